//! Variables in a compose file: which a text uses, and what it says once those that are given stand in it.
//!
//! It may know no environment: what is given is an argument. The grammar is Compose's (compose file reference, "Interpolation"); `$`
//! before anything else stands for itself (measured with Compose 2.40.3).

use crate::fleet::release::{FROM_THE_SERVER, RELEASE_VARIABLE};
use std::collections::BTreeMap;

/// Compose sets this one itself.
const PROJECT: &str = "COMPOSE_PROJECT_NAME";

/// What is known of variables.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) vars: &'a BTreeMap<String, String>,
    /// `release.vars`: given when a release is made, if not now.
    pub(super) declared: &'a [String],
    pub(super) app: &'a str,
}

/// What is known of one.
pub(super) enum Word<'a> {
    Is(&'a str),
    /// It has a value, which is not known here.
    Later(String),
    /// Nothing sets it.
    Unset,
}

impl<'a> Given<'a> {
    pub(super) fn word(&self, name: &str) -> Word<'a> {
        if let Some(value) = self.vars.get(name) {
            return Word::Is(value);
        }
        match name {
            PROJECT => Word::Is(self.app),
            RELEASE_VARIABLE => Word::Later(format!("`{name}` is known when a release is made")),
            _ if self.declared.iter().any(|var| var == name) => Word::Later(format!("`{name}` is not given here")),
            _ if FROM_THE_SERVER.contains(&name) => Word::Later(format!("`{name}` is each machine's own")),
            _ => Word::Unset,
        }
    }
}

/// A variable where it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) name: String,
    /// What stands after the name: `:-`, `-`, `:+`, `+`, `:?`, `?` or nothing.
    pub(super) operator: &'static str,
    /// The default, the alternative or the complaint.
    pub(super) rest: String,
}

impl Use {
    /// Whether it says something without being set.
    pub(super) fn has_default(&self) -> bool {
        matches!(self.operator, ":-" | "-" | ":+" | "+")
    }
}

enum Piece<'a> {
    Text(&'a str),
    Use(Use),
}

/// Defaults in defaults in defaults: so many.
const DEEPEST: usize = 16;
/// A longer default is none.
const LONGEST: usize = 4096;

/// Longest first.
const OPERATORS: [&str; 6] = [":-", ":+", ":?", "-", "+", "?"];

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        pieces.push(Piece::Text(&rest[..at]));
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            pieces.push(Piece::Text("$"));
            rest = after;
        } else if let Some((used, after)) = after.strip_prefix('{').and_then(braced) {
            pieces.push(Piece::Use(used));
            rest = after;
        } else if let Some((name, after)) = name(after) {
            pieces.push(Piece::Use(Use { name: name.to_owned(), operator: "", rest: String::new() }));
            rest = after;
        } else {
            pieces.push(Piece::Text("$"));
            rest = after;
        }
    }
    pieces.push(Piece::Text(rest));
    pieces
}

fn name(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, rest))
}

/// `NAME}` or `NAME:-default}`, the default with braces of its own.
fn braced(text: &str) -> Option<(Use, &str)> {
    let (name, rest) = name(text)?;
    let mut open = 1;
    let end = rest.bytes().take(LONGEST).position(|byte| {
        open += i32::from(byte == b'{') - i32::from(byte == b'}');
        open == 0
    })?;
    let (inner, after) = (&rest[..end], &rest[end + 1..]);
    if inner.is_empty() {
        return Some((Use { name: name.to_owned(), operator: "", rest: String::new() }, after));
    }
    let operator = OPERATORS.into_iter().find(|operator| inner.starts_with(operator))?;
    Some((Use { name: name.to_owned(), operator, rest: inner[operator.len()..].to_owned() }, after))
}

/// Every variable of a text; those inside a default count where the default would be used.
pub(super) fn uses(text: &str, given: &Given<'_>) -> Vec<Use> {
    let mut all = Vec::new();
    uses_within(text, given, DEEPEST, &mut all);
    all
}

fn uses_within(text: &str, given: &Given<'_>, depth: usize, all: &mut Vec<Use>) {
    for piece in pieces(text) {
        if let Piece::Use(used) = piece {
            if depth > 0 && used.operator.ends_with('-') && matches!(given.word(&used.name), Word::Unset) {
                uses_within(&used.rest, given, depth - 1, all);
            }
            all.push(used);
        }
    }
}

/// The text with every variable's value in it.
///
/// # Errors
/// Why it is not known.
pub(super) fn put_in(text: &str, given: &Given<'_>) -> Result<String, String> {
    put_within(text, given, DEEPEST)
}

fn put_within(text: &str, given: &Given<'_>, depth: usize) -> Result<String, String> {
    let mut out = String::new();
    for piece in pieces(text) {
        match piece {
            // What could be a variable in another Compose is left to it.
            Piece::Text("$") if !text.contains("$$") => return Err(format!("`{text}` is left to Compose")),
            Piece::Text(text) => out.push_str(text),
            Piece::Use(used) => out.push_str(&value(&used, given, depth)?),
        }
    }
    Ok(out)
}

fn value(used: &Use, given: &Given<'_>, depth: usize) -> Result<String, String> {
    let set = match given.word(&used.name) {
        Word::Is(value) => Some(value),
        Word::Unset => None,
        Word::Later(why) => return Err(why),
    };
    let filled = set.filter(|value| !value.is_empty());
    let missing = || format!("`{}` is not set", used.name);
    match (used.operator, set, filled) {
        (":-", _, Some(value)) | ("-", Some(value), _) => Ok(value.to_owned()),
        (":-" | "-", ..) | (":+", _, Some(_)) | ("+", Some(_), _) if depth > 0 => {
            put_within(&used.rest, given, depth - 1)
        }
        (":-" | "-", ..) => Err(format!("the default of `{}` is left to Compose", used.name)),
        (":+" | "+", ..) => Ok(String::new()),
        (":?", _, None) => Err(missing()),
        (_, Some(value), _) => Ok(value.to_owned()),
        (_, None, _) => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn given(vars: &BTreeMap<String, String>, test: impl Fn(&Given<'_>)) {
        let declared = ["TAG".to_owned(), "LATER".to_owned()];
        test(&Given { vars, declared: &declared, app: "mythex" });
    }

    #[test]
    fn variables_are_put_in_as_compose_does_or_said_to_be_missing_by_name() {
        let vars = [("TAG", "v1"), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        #[rustfmt::skip]
        let rows: &[(&str, Result<&str, &str>)] = &[
            ("plain", Ok("plain")), ("$TAG", Ok("v1")), ("a${TAG}b", Ok("av1b")), ("$TAG-x", Ok("v1-x")), ("$$TAG", Ok("$TAG")),
            ("${NO:-90s}", Ok("90s")), ("${NO-90s}", Ok("90s")), ("${EMPTY:-90s}", Ok("90s")), ("${EMPTY-90s}", Ok("")),
            ("${TAG:-90s}", Ok("v1")), ("${TAG:+1s}", Ok("1s")), ("${EMPTY:+1s}", Ok("")), ("${EMPTY+1s}", Ok("1s")),
            ("${NO+1s}", Ok("")), ("${NO:-${ALSO:-3s}}", Ok("3s")), ("${NO:-{3s}}", Ok("{3s}")), ("${TAG:?no}", Ok("v1")),
            ("$COMPOSE_PROJECT_NAME", Ok("mythex")), ("$NO", Err("`NO` is not set")), ("${EMPTY:?no}", Err("`EMPTY` is not set")),
            ("${NO?no}", Err("`NO` is not set")), ("${LATER:-1s}", Err("`LATER` is not given here")),
            ("$HOME", Err("`HOME` is each machine's own")),
            ("$HANDOVER_RELEASE", Err("`HANDOVER_RELEASE` is known when a release is made")), ("$(date)", Err("`$(date)` is left to Compose")),
        ];
        given(&vars, |given| {
            for (text, expected) in rows {
                let expected = expected.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
                assert_eq!(put_in(text, given), expected, "{text}");
            }
        });
    }

    #[test]
    fn what_is_used_is_found_also_inside_a_default_that_counts() {
        given(&BTreeMap::new(), |given| {
            let names = |text| uses(text, given).into_iter().map(|used| used.name).collect::<Vec<_>>();
            assert_eq!(names("${A:-$B} $$C $TAG ${D:?x} $1 $(E)"), ["B", "A", "TAG", "D"]);
            assert_eq!(names("${TAG:-$B}"), ["TAG"]);
        });
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([${}:?+-]|[A-Z]|\\PC){0,40}") {
            given(&BTreeMap::new(), |given| {
                drop(put_in(&text, given));
                drop(uses(&text, given));
            });
        }
    }
}
