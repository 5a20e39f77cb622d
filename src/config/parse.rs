//! Holds a tree against the key table: unknown keys, wrong types, values out of range, missing keys, all of them.
//!
//! It may know no meaning: whether two values fit together is `validate`'s question. What was complained about stays in the
//! tree as `Bad`, so that nothing later mistakes it for missing.

use super::keys::{self, ANY, Form, Key, Kind, Need, quoted};
use super::nearest::nearest;
use super::problem::{Place, Problem};
use super::tree::{Entry, Node, Table, Value};
use crate::fleet::model::{parse_duration, show_duration};
use std::time::Duration;

/// Whether a key that is not there is a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is.
    Told,
    /// It may stand where the text could not be read.
    Unknown,
}

/// Checks the table `at` and everything below it.
pub(super) fn check(at: &str, table: Table, missing: Missing, problems: &mut Vec<Problem>) -> Table {
    let mut entries = Vec::new();
    for entry in table.entries {
        let Some(key) = keys::find(at, &entry.key) else {
            problems.push(unknown(at, &entry));
            continue;
        };
        let place = entry.node.place.clone();
        let value = value(key, entry.node, missing, problems);
        entries.push(Entry { node: Node { place, value }, ..entry });
    }
    let table = Table { entries, ..table };
    if missing == Missing::Told {
        for key in keys::of_table(at).filter(|key| matches!(key.need, Need::Required)) {
            if table.entry(key.name).is_none() {
                problems.push(absent(key, &table.place));
            }
        }
    }
    table
}

fn unknown(at: &str, entry: &Entry) -> Problem {
    let name = &entry.key;
    let place = if at.is_empty() { "deploy.toml".to_owned() } else { format!("`{at}`") };
    let known: Vec<&str> = keys::of_table(at).map(|key| key.name).collect();
    let elsewhere = keys::all().find(|key| key.name == name && !key.table.is_empty());
    let hint = match (nearest(name, known.iter().copied()), elsewhere) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, Some(key)) => format!("`{name}` belongs to `{}`", key.table),
        (None, None) => format!("known here: {}", known.join(", ")),
    };
    Problem::new(&entry.key_place, format!("unknown key `{name}` in {place}")).label("not known here").hint(hint)
}

fn absent(key: &Key, place: &Place) -> Problem {
    let line = match key.kind {
        Kind::Table(path) if key.table.is_empty() => format!("add a table `[{path}]`"),
        Kind::Tables(path) => format!("add a table `[[{path}]]`"),
        _ => format!("add a line like `{} = {}`", key.name, key.example),
    };
    Problem::new(place, format!("`{}` is missing", key.path())).label(format!("no `{}` here", key.name)).hint(line)
}

/// The value as it will be read later: itself, made plain, or `Bad`.
fn value(key: &Key, node: Node, missing: Missing, problems: &mut Vec<Problem>) -> Value {
    let before = problems.len();
    let value = match (key.kind, node.value) {
        (Kind::Table(path), Value::Table(table)) => {
            return Value::Table(check(path, table, missing, problems));
        }
        (Kind::Tables(path), Value::List(items)) => {
            return tables(key, path, &node.place, items, missing, problems);
        }
        (Kind::Fields, Value::Table(table)) => fields(key, table, problems),
        (Kind::Targets, Value::Table(table)) => {
            let entries = table.entries.into_iter().map(|entry| {
                let place = entry.node.place.clone();
                let value = texts(key, Form::Target, entry.node, Empty::Refused, problems);
                Entry { node: Node { place, value }, ..entry }
            });
            return Value::Table(Table { entries: entries.collect(), place: table.place });
        }
        (Kind::List { form, empty }, value @ Value::List(_)) => {
            let empty = if empty { Empty::Taken } else { Empty::Refused };
            return texts(key, form, Node { place: node.place, value }, empty, problems);
        }
        (Kind::TextOrList(form), value) => {
            return texts(key, form, Node { place: node.place, value }, Empty::Taken, problems);
        }
        (Kind::Targets, value) => {
            return texts(key, Form::Target, Node { place: node.place, value }, Empty::Refused, problems);
        }
        (kind, value) => {
            scalar(key, kind, &Node { place: node.place, value: value.clone() }, problems);
            value
        }
    };
    if problems.len() == before { value } else { Value::Bad }
}

fn tables(
    key: &Key,
    path: &str,
    place: &Place,
    items: Vec<Node>,
    missing: Missing,
    problems: &mut Vec<Problem>,
) -> Value {
    if items.is_empty() && matches!(key.need, Need::Required) {
        problems
            .push(Problem::new(place, format!("`{}` is empty", key.path())).hint(format!("add a table `[[{path}]]`")));
        return Value::Bad;
    }
    let check_item = |item: Node| {
        let value = match item.value {
            Value::Table(table) => Value::Table(check(path, table, missing, problems)),
            other => {
                problems.push(wrong(key, &item.place, &other));
                Value::Bad
            }
        };
        Node { value, ..item }
    };
    Value::List(items.into_iter().map(check_item).collect())
}

fn scalar(key: &Key, kind: Kind, node: &Node, problems: &mut Vec<Problem>) {
    let found = match (kind, &node.value) {
        (Kind::Bool, Value::Bool(_)) => None,
        (Kind::Integer { min, max, .. }, Value::Integer(number)) => {
            (*number < min || *number > max).then(|| range(key, node, &number.to_string(), &bounds(min, max)))
        }
        (Kind::Rate { .. }, Value::Integer(number)) => rate(key, node, *number as f64),
        (Kind::Rate { .. }, Value::Float(number)) => rate(key, node, *number),
        (Kind::Duration { min, max }, Value::Text(text)) => duration(key, node, text, min, max),
        (Kind::Duration { .. }, Value::Integer(_) | Value::Float(_)) => Some(unitless(key, node)),
        (Kind::Text(form), Value::Text(text)) => shape(key, form, node, text),
        (Kind::Word { now, later }, Value::Text(text)) => word(key, node, text, now, later),
        (Kind::Batch, Value::Integer(number)) => {
            (*number < 1 || *number > ANY).then(|| range(key, node, &number.to_string(), &bounds(1, ANY)))
        }
        (Kind::Batch, Value::Text(text)) => batch(key, node, text),
        (_, other) => Some(wrong(key, &node.place, other)),
    };
    problems.extend(found);
}

fn wrong(key: &Key, place: &Place, value: &Value) -> Problem {
    Problem::new(place, format!("`{}` must be {}, not {}", key.path(), key.kind.noun(), value.noun()))
        .label(format!("this is {}", value.noun()))
        .hint(format!("write it like `{} = {}`", key.name, key.example))
}

fn range(key: &Key, node: &Node, written: &str, bounds: &str) -> Problem {
    Problem::new(&node.place, format!("`{}` must be {bounds}, not {written}", key.path())).label("out of range")
}

fn bounds(min: i64, max: i64) -> String {
    if max == ANY { format!("at least {min}") } else { format!("from {min} to {max}") }
}

fn rate(key: &Key, node: &Node, number: f64) -> Option<Problem> {
    let fine = number.is_finite() && number > 0.0 && number <= 100_000.0;
    (!fine).then(|| range(key, node, &number.to_string(), "above 0, at most 100000"))
}

fn unitless(key: &Key, node: &Node) -> Problem {
    let written = match &node.value {
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => String::new(),
    };
    Problem::new(&node.place, format!("`{}` must be a duration with a unit, not a bare number", key.path()))
        .label("seconds? milliseconds?")
        .hint(format!("write `{} = \"{written}s\"`, or with `ms`, `m`, `h`", key.name))
}

fn duration(key: &Key, node: &Node, text: &str, min: u64, max: u64) -> Option<Problem> {
    let read = match parse_duration(text) {
        Ok(read) => read,
        Err(error) => {
            let problem = Problem::new(&node.place, format!("`{}`: {error}", key.path()));
            return Some(problem.label("not a duration").hint(format!("like `{} = {}`", key.name, key.example)));
        }
    };
    let show = |millis| show_duration(Duration::from_millis(millis));
    if read < Duration::from_millis(min) {
        let bound = if min == 1 { "longer than 0s".to_owned() } else { format!("at least {}", show(min)) };
        return Some(range(key, node, text, &bound));
    }
    (read > Duration::from_millis(max)).then(|| range(key, node, text, &format!("at most {}", show(max))))
}

fn word(key: &Key, node: &Node, text: &str, now: &[&str], later: &[&str]) -> Option<Problem> {
    if now.contains(&text) {
        return None;
    }
    if later.contains(&text) {
        let problem = Problem::new(&node.place, format!("`{} = \"{text}\"` is not built yet", key.path()));
        return Some(problem.label("has an issue of its own").hint(format!("use {}", quoted(now))));
    }
    let problem = Problem::new(&node.place, format!("`{}` must be {}, not \"{text}\"", key.path(), key.kind.noun()));
    Some(match nearest(text, now.iter().copied()) {
        Some(near) => problem.label("not known").hint(format!("did you mean \"{near}\"?")),
        None => problem.label("not known"),
    })
}

fn shape(key: &Key, form: Form, node: &Node, text: &str) -> Option<Problem> {
    let fault = form.fault(text)?;
    Some(
        Problem::new(&node.place, format!("`{}` must be {}: {fault}", key.path(), form.noun()))
            .label(format!("not {}", form.noun()))
            .hint(format!("like `{} = {}`", key.name, key.example)),
    )
}

fn batch(key: &Key, node: &Node, text: &str) -> Option<Problem> {
    let Some(share) = text.strip_suffix('%').filter(|share| share.bytes().all(|b| b.is_ascii_digit())) else {
        return Some(wrong(key, &node.place, &node.value));
    };
    let fine = share.parse().is_ok_and(|share: u32| (1..=100).contains(&share));
    (!fine).then(|| range(key, node, &format!("\"{text}\""), "from 1% to 100%"))
}

/// Whether a list may be empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    Taken,
    Refused,
}

/// One text or a list of them; what is wrong with one item leaves the others readable.
fn texts(key: &Key, form: Form, node: Node, empty: Empty, problems: &mut Vec<Problem>) -> Value {
    let mut text = |node: Node| {
        let found = match &node.value {
            Value::Text(text) => shape(key, form, &node, text),
            other => Some(wrong(key, &node.place, other)),
        };
        let value = if found.is_none() { node.value } else { Value::Bad };
        problems.extend(found);
        Node { value, ..node }
    };
    match node.value {
        Value::List(items) if items.is_empty() && empty == Empty::Refused => {
            let problem = Problem::new(&node.place, format!("`{}` is empty", key.path())).label("nothing in it");
            problems.push(problem.hint(format!("like `{} = {}`", key.name, key.example)));
            Value::Bad
        }
        Value::List(items) => Value::List(items.into_iter().map(text).collect()),
        _ => text(node).value,
    }
}

/// Nested tables become names with dots, numbers and truth values their text.
fn fields(key: &Key, table: Table, problems: &mut Vec<Problem>) -> Value {
    let place = table.place.clone();
    let mut entries = Vec::new();
    flatten(key, "", table, &mut entries, problems);
    Value::Table(Table { place, entries })
}

fn flatten(key: &Key, prefix: &str, table: Table, entries: &mut Vec<Entry>, problems: &mut Vec<Problem>) {
    for entry in table.entries {
        let name = if prefix.is_empty() { entry.key } else { format!("{prefix}.{}", entry.key) };
        let text = match entry.node.value {
            Value::Text(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Bool(yes) => yes.to_string(),
            Value::Table(table) => {
                flatten(key, &name, table, entries, problems);
                continue;
            }
            other => {
                problems.push(
                    Problem::new(&entry.node.place, format!("`{}.{name}` cannot be {}", key.path(), other.noun()))
                        .hint("write the value as a string"),
                );
                continue;
            }
        };
        let node = Node { place: entry.node.place, value: Value::Text(text) };
        entries.push(Entry { key: name, key_place: entry.key_place, node });
    }
}
