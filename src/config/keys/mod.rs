//! The one table of every key of deploy.toml: parser, defaults, JSON schema and reference page are all made from it.
//!
//! It may know how a single value must look, but not how two values must fit together: that is `validate`.

mod fleet_rows;
mod form;
mod gateway_rows;
mod hook_rows;
mod rows;
mod tenant_rows;

pub(super) use form::{Form, port_of, split_target};
use gateway_rows::GATEWAY_ROWS;
use hook_rows::HOOK_ROWS;
use rows::{FLEET_ROWS, ROWS};
use tenant_rows::TENANT_ROWS;

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// The table it stands in, `""` for the file itself.
    pub table: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// What it means to leave it out.
    pub need: Need,
    /// What it is for.
    pub doc: &'static str,
    /// A value, as one writes it.
    pub example: &'static str,
}

/// What a value must be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Bool,
    /// A whole number in a range, and what it counts.
    Integer {
        min: i64,
        max: i64,
        unit: &'static str,
    },
    /// A number above 0, and what it counts.
    Rate {
        unit: &'static str,
    },
    /// A text with a unit, not below and not above, in milliseconds.
    Duration {
        min: u64,
        max: u64,
    },
    /// A text of a certain form.
    Text(Form),
    /// One of these words; those of `later` are understood and refused by name.
    Word {
        now: &'static [&'static str],
        later: &'static [&'static str],
    },
    /// A list of texts, not empty if it says so.
    List {
        form: Form,
        empty: bool,
    },
    /// A text or a list of them.
    TextOrList(Form),
    /// A number of servers or a share of them.
    Batch,
    /// A target, a list of them, or a table of either by group.
    Targets,
    /// Names and the values they must have.
    Fields,
    /// A table with keys of its own.
    Table(&'static str),
    /// A list of tables with keys of their own.
    Tables(&'static str),
}

/// What it means to leave a key out.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    /// The file is refused.
    Required,
    /// The same as this value, as one writes it.
    Default(&'static str),
    /// The same as a value that depends on others; this says how.
    Computed(&'static str),
    /// There is none.
    Optional,
}

impl Key {
    /// Where it is found: `rolling.batch`, `balancer.group.health.interval`.
    pub fn path(&self) -> String {
        if self.table.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.table, self.name) }
    }
}

impl Kind {
    /// What a person would call it, with its range.
    pub fn noun(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Integer { min, max, unit } => match (*min, *max) {
                (min, ANY) => format!("a whole number of {unit}, at least {min}"),
                (min, max) => format!("a whole number from {min} to {max} ({unit})"),
            },
            Self::Rate { unit } => format!("a number of {unit}, above 0"),
            Self::Duration { .. } => "a duration with a unit".to_owned(),
            Self::Text(form) => form.noun().to_owned(),
            Self::Word { now, .. } => quoted(now),
            Self::List { form, .. } => format!("a list, each item {}", form.noun()),
            Self::TextOrList(form) => format!("{}, or a list of them", form.noun()),
            Self::Batch => "a number of servers, at least 1, or a share such as \"25%\"".to_owned(),
            Self::Targets => "a target, a list of them, or a table of them by group".to_owned(),
            Self::Fields => "a table of field names and the values they must have".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables(_) => "a list of tables".to_owned(),
        }
    }
}

/// No upper end that anybody could reach by writing a sensible number.
pub(super) const ANY: i64 = u32::MAX as i64;

/// `"a"`, `"b"` or `"c"`.
pub(super) fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Every key of deploy.toml, tables in the order in which the reference shows them.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    ROWS.iter().chain(FLEET_ROWS).chain(HOOK_ROWS).chain(GATEWAY_ROWS)
}

/// Every key of the tenants' files.
pub(super) fn of_tenants() -> impl Iterator<Item = &'static Key> {
    TENANT_ROWS.iter()
}

/// The keys of one table.
pub(super) fn of_table(table: &str) -> impl Iterator<Item = &'static Key> {
    all().chain(of_tenants()).filter(move |key| key.table == table)
}

/// One key.
pub(super) fn find(table: &str, name: &str) -> Option<&'static Key> {
    of_table(table).find(|key| key.name == name)
}
