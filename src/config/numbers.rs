//! Every number of the file: found by walking the key table, never by asking who needs it; and the file again with one of them
//! changed, refused or taken by the same rules.
//!
//! It may know no key by name.

use super::keys::{self, Key, Kind, Need};
use super::problem::Place;
use super::tree::{self, Entry, Node, Table, Value};
use super::{Loaded, Problems, assemble};
use crate::fleet::model::{parse_duration, show_duration};
use crate::fleet::timing::Amount;
use std::time::Duration;

/// A number of the file, or the default that holds where it is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// Where it is found; entries of lists go by name: `service.api.shutdown`.
    pub key: String,
    /// The key of the table that it follows: `service.shutdown`.
    pub pattern: String,
    /// How much.
    pub amount: Amount,
    /// The least and the most that the key takes.
    pub range: (Amount, Amount),
    /// Where it stands; `None` for a default.
    pub place: Option<Place>,
    steps: Vec<Step>,
}

/// One step down the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(&'static str),
    Item(usize),
}

impl Loaded {
    /// Every number, in the order of the reference page.
    #[must_use]
    pub fn numbers(&self) -> Vec<Number> {
        let mut numbers = Vec::new();
        walk("", Some(&self.tree), &Site { key: String::new(), steps: Vec::new() }, &mut numbers);
        numbers
    }

    /// The file with one number changed.
    ///
    /// # Errors
    /// When the rules of the file refuse the new number.
    pub fn with(&self, number: &Number, amount: Amount) -> Result<Self, Problems> {
        let mut tree = self.tree.clone();
        put(&mut tree, &number.steps, &value_of(amount));
        let mut loaded = assemble(tree, Vec::new(), &self.source)?;
        loaded.dir.clone_from(&self.dir);
        Ok(loaded)
    }
}

/// Where the walk stands.
struct Site {
    key: String,
    steps: Vec<Step>,
}

impl Site {
    fn below(&self, name: &str, steps: &[Step]) -> Self {
        let key = if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) };
        Self { key, steps: self.steps.iter().chain(steps).cloned().collect() }
    }
}

fn walk(path: &'static str, table: Option<&Table>, site: &Site, numbers: &mut Vec<Number>) {
    for key in keys::of_table(path) {
        let entry = table.and_then(|table| table.entry(key.name));
        let here = site.below(key.name, &[Step::Key(key.name)]);
        match (key.kind, entry.map(|entry| &entry.node.value)) {
            (Kind::Table(inner), Some(Value::Table(table))) => walk(inner, Some(table), &here, numbers),
            // A table of which nothing is required holds with its defaults.
            (Kind::Table(inner), None) if !keys::of_table(inner).any(|key| matches!(key.need, Need::Required)) => {
                walk(inner, None, &here, numbers);
            }
            (Kind::Tables(inner), Some(Value::List(items))) => {
                for (at, item) in items.iter().enumerate() {
                    let Value::Table(table) = &item.value else { continue };
                    let name = table.text("name").map_or_else(|| at.to_string(), ToOwned::to_owned);
                    let item = Site {
                        key: format!("{}.{name}", here.key),
                        steps: [here.steps.clone(), vec![Step::Item(at)]].concat(),
                    };
                    walk(inner, Some(table), &item, numbers);
                }
            }
            _ => numbers.extend(number(key, entry, here)),
        }
    }
}

fn number(key: &Key, entry: Option<&Entry>, site: Site) -> Option<Number> {
    let default = match key.need {
        Need::Default(text) if entry.is_none() => tree::parse_value(text),
        _ => None,
    };
    let node = entry.map(|entry| &entry.node).or(default.as_ref())?;
    let (amount, range) = amount(key.kind, &node.value)?;
    let place = entry.map(|entry| entry.node.place.clone());
    Some(Number { key: site.key, pattern: key.path(), amount, range, place, steps: site.steps })
}

fn amount(kind: Kind, value: &Value) -> Option<(Amount, (Amount, Amount))> {
    let millis = |millis| Amount::Time(Duration::from_millis(millis));
    let count = |number: i64| Amount::Count(u64::try_from(number).unwrap_or(0));
    Some(match (kind, value) {
        (Kind::Duration { min, max }, Value::Text(text)) => {
            (Amount::Time(parse_duration(text).ok()?), (millis(min), millis(max)))
        }
        (Kind::Integer { min, max, .. }, Value::Integer(number)) => (count(*number), (count(min), count(max))),
        (Kind::Rate { .. }, Value::Integer(number)) => rate(*number as f64),
        (Kind::Rate { .. }, Value::Float(number)) => rate(*number),
        (Kind::Batch, Value::Integer(number)) => (count(*number), (Amount::Count(1), count(keys::ANY))),
        (Kind::Batch, Value::Text(text)) => {
            let share = text.strip_suffix('%')?.parse().ok()?;
            (Amount::Share(share), (Amount::Share(1), Amount::Share(100)))
        }
        _ => return None,
    })
}

fn rate(number: f64) -> (Amount, (Amount, Amount)) {
    (Amount::Rate(number), (Amount::Rate(0.001), Amount::Rate(1_000_000.0)))
}

fn value_of(amount: Amount) -> Value {
    match amount {
        Amount::Time(time) => Value::Text(show_duration(time)),
        Amount::Count(count) => Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
        Amount::Share(share) => Value::Text(format!("{share}%")),
        Amount::Rate(rate) => Value::Float(rate),
    }
}

/// Writes a value; tables that are not there are made, at the place of what they would stand in.
fn put(table: &mut Table, steps: &[Step], value: &Value) {
    let Some((Step::Key(name), rest)) = steps.split_first() else { return };
    let at = table.entries.iter().position(|entry| entry.key == *name).unwrap_or_else(|| {
        let place = table.place.clone();
        let node =
            Node { place: place.clone(), value: Value::Table(Table { place: place.clone(), entries: Vec::new() }) };
        table.entries.push(Entry { key: (*name).to_owned(), key_place: place, node });
        table.entries.len() - 1
    });
    let Some(entry) = table.entries.get_mut(at) else { return };
    match (rest.split_first(), &mut entry.node.value) {
        (None, old) => *old = value.clone(),
        (Some((Step::Item(at), rest)), Value::List(items)) => {
            if let Some(Value::Table(inner)) = items.get_mut(*at).map(|item| &mut item.value) {
                put(inner, rest, value);
            }
        }
        (Some(_), Value::Table(inner)) => put(inner, rest, value),
        (Some(_), _) => {}
    }
}
