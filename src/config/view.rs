//! A checked tree as it is read: by key, with the table's defaults, `None` for what is missing or was complained about.
//!
//! It may know no single key. Everything that is read goes through the key table, so no default can stand anywhere else.

use super::keys::{self, Kind, Need};
use super::problem::Place;
use super::tree::{self, Entry, Node, Table, Value};
use crate::fleet::model::parse_duration;
use std::time::Duration;

/// One table, or the absence of one: then every default holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    at: &'static str,
    table: Option<&'a Table>,
}

/// A text and where it was said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said<'a> {
    pub text: &'a str,
    pub place: &'a Place,
}

impl<'a> View<'a> {
    /// The whole file.
    pub fn root(table: &'a Table) -> Self {
        Self { at: "", table: Some(table) }
    }

    /// A whole file with a table's keys.
    pub fn table(at: &'static str, table: &'a Table) -> Self {
        Self { at, table: Some(table) }
    }

    /// The table under a key.
    pub fn sub(&self, name: &str) -> Self {
        let at = match keys::find(self.at, name).map(|key| key.kind) {
            Some(Kind::Table(path) | Kind::Tables(path)) => path,
            _ => "?",
        };
        let table = match self.entry(name).map(|entry| &entry.node.value) {
            Some(Value::Table(table)) => Some(table),
            _ => None,
        };
        Self { at, table }
    }

    /// The tables under a key.
    pub fn subs(&self, name: &str) -> Vec<Self> {
        let at = self.sub(name).at;
        let items = match self.entry(name).map(|entry| &entry.node.value) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        let table = |item: &'a Node| match &item.value {
            Value::Table(table) => Some(Self { at, table: Some(table) }),
            _ => None,
        };
        items.iter().filter_map(table).collect()
    }

    /// The key as it was written.
    pub fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.table?.entry(name)
    }

    /// Whether it was written, well or badly.
    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Whether it was written badly.
    pub fn bad(&self, name: &str) -> bool {
        matches!(self.entry(name), Some(Entry { node: Node { value: Value::Bad, .. }, .. }))
    }

    /// Where the table begins.
    pub fn place(&self) -> Option<&'a Place> {
        Some(&self.table?.place)
    }

    /// Where a key's value stands, or else the table.
    pub fn at(&self, name: &str) -> Option<&'a Place> {
        self.entry(name).map(|entry| &entry.node.place).or_else(|| self.place())
    }

    /// A text as it was written, no default.
    pub fn said(&self, name: &str) -> Option<Said<'a>> {
        let node = &self.entry(name)?.node;
        match &node.value {
            Value::Text(text) => Some(Said { text, place: &node.place }),
            _ => None,
        }
    }

    /// Every text of a text or list as it was written, no default.
    pub fn said_all(&self, name: &str) -> Vec<Said<'a>> {
        self.entry(name).map(|entry| said_in(&entry.node)).unwrap_or_default()
    }

    /// Every entry of a table of texts, or of texts and lists of them.
    pub fn fields(&self, name: &str) -> &'a [Entry] {
        match self.entry(name).map(|entry| &entry.node.value) {
            Some(Value::Table(table)) => &table.entries,
            _ => &[],
        }
    }

    /// The value, or the key table's default.
    fn value(&self, name: &str) -> Option<Value> {
        if let Some(entry) = self.entry(name) {
            return Some(entry.node.value.clone());
        }
        match keys::find(self.at, name)?.need {
            Need::Default(text) => Some(tree::parse_value(text)?.value),
            Need::Required | Need::Computed(_) | Need::Optional => None,
        }
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list of texts; a single one is a list too.
    pub fn texts(&self, name: &str) -> Option<Vec<String>> {
        let value = self.value(name)?;
        let place = Place::new(&super::Source::new("", ""), 0..0);
        if matches!(value, Value::Bad) {
            return None;
        }
        Some(said_in(&Node { place, value }).iter().map(|said| said.text.to_owned()).collect())
    }

    /// A whole number that fits.
    pub fn number<N: TryFrom<i64>>(&self, name: &str) -> Option<N> {
        match self.value(name)? {
            Value::Integer(number) => N::try_from(number).ok(),
            _ => None,
        }
    }

    /// Any number.
    pub fn rate(&self, name: &str) -> Option<f64> {
        match self.value(name)? {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    /// True or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            Value::Bool(yes) => Some(yes),
            _ => None,
        }
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        parse_duration(&self.text(name)?).ok()
    }
}

/// Every text of a text or a list.
pub(super) fn said_in(node: &Node) -> Vec<Said<'_>> {
    match &node.value {
        Value::Text(text) => vec![Said { text, place: &node.place }],
        Value::List(items) => items.iter().flat_map(said_in).collect(),
        _ => Vec::new(),
    }
}
