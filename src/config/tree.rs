//! The text of a file as a tree in which every key and value knows its place, in file order.
//!
//! It may know TOML but no key of deploy.toml; `toml`'s own tables are sorted by name and borrow the text, and an overlay
//! mixes two files in one tree, so the tree is ours.

use super::problem::{Place, Problem, Source};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub place: Place,
    pub value: Value,
}

/// What TOML can say, and what could not be used of it.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Date,
    List(Vec<Node>),
    Table(Table),
    /// It was there, and a problem was reported: whatever depends on it says nothing more.
    Bad,
}

impl Value {
    /// What a person would call it.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Bad => "what it is",
        }
    }
}

/// A table: its entries in file order.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub place: Place,
    pub entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: String,
    pub key_place: Place,
    pub node: Node,
}

impl Table {
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The text of a key, where it is one.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.entry(key)?.node.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads a source as far as it can be read, and every error of syntax.
pub(super) fn parse(source: &Arc<Source>) -> (Table, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let problems = errors
        .iter()
        .map(|error| {
            let place = Place::new(source, error.span().unwrap_or(0..0));
            Problem::new(&place, format!("this is not TOML: {}", error.message().replace('\n', ", ")))
        })
        .collect();
    let place = Place::new(source, 0..0);
    (table_of(source, table.get_ref(), place), problems)
}

/// Reads one value, e.g. a default of the key table.
pub(super) fn parse_value(text: &str) -> Option<Node> {
    let source = Source::new("default", text);
    DeValue::parse(text).ok().map(|value| node_of(&source, &value))
}

fn table_of(source: &Arc<Source>, table: &DeTable<'_>, place: Place) -> Table {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_place: Place::new(source, key.span()),
            node: node_of(source, value),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_place.span.start);
    Table { place, entries }
}

fn node_of(source: &Arc<Source>, value: &Spanned<DeValue<'_>>) -> Node {
    let place = Place::new(source, value.span());
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or_else(|_| Value::Float(f64::MAX), Value::Integer)
        }
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Bad, Value::Float),
        DeValue::Boolean(yes) => Value::Bool(*yes),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(list) => Value::List(list.iter().map(|item| node_of(source, item)).collect()),
        DeValue::Table(table) => Value::Table(table_of(source, table, place.clone())),
    };
    Node { place, value }
}
