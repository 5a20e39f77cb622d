//! YAML as it is written here: block style, two spaces, one way to write each value, so that what is rendered can be compared.

use std::fmt::Write as _;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Yaml {
    /// In the order in which it is written.
    Map(Vec<(&'static str, Self)>),
    /// A mapping whose keys are somebody's names.
    Named(Vec<(String, Self)>),
    List(Vec<Self>),
    Text(String),
    Whole(u64),
    Flag(bool),
}

/// A text.
pub(super) fn text(text: impl Into<String>) -> Yaml {
    Yaml::Text(text.into())
}

/// Texts.
pub(super) fn texts<T: Into<String>>(all: impl IntoIterator<Item = T>) -> Yaml {
    Yaml::List(all.into_iter().map(text).collect())
}

/// A mapping.
pub(super) fn map<const N: usize>(entries: [(&'static str, Yaml); N]) -> Yaml {
    Yaml::Map(entries.into())
}

/// Documents of one file, under a comment.
pub(super) fn file(comment: &str, documents: &[Yaml]) -> String {
    let mut out: String = comment.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
    for (at, document) in documents.iter().enumerate() {
        if at > 0 {
            out.push_str("---\n");
        }
        block(document, 0, &mut out);
    }
    out
}

fn block(value: &Yaml, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Yaml::Map(entries) => entries.iter().for_each(|(key, value)| entry(key, value, depth, out)),
        Yaml::Named(entries) => entries.iter().for_each(|(key, value)| entry(&scalar(key), value, depth, out)),
        Yaml::List(items) => {
            for item in items {
                let mut inner = String::new();
                block(item, depth + 1, &mut inner);
                // The first line of what is inside stands behind the dash.
                let _ = write!(out, "{indent}- {}", inner.trim_start_matches(' '));
            }
        }
        _ => {
            let _ = writeln!(out, "{indent}{}", plain(value));
        }
    }
}

fn entry(key: &str, value: &Yaml, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let _ = match value {
        Yaml::Map(entries) if !entries.is_empty() => writeln!(out, "{indent}{key}:"),
        Yaml::Named(entries) if !entries.is_empty() => writeln!(out, "{indent}{key}:"),
        Yaml::List(items) if !items.is_empty() => writeln!(out, "{indent}{key}:"),
        Yaml::Text(lines) if lines.contains('\n') => {
            let inner = "  ".repeat(depth + 1);
            let lines: String =
                lines.lines().map(|line| format!("{inner}{line}").trim_end().to_owned() + "\n").collect();
            return out.push_str(&format!("{indent}{key}: |-\n{lines}"));
        }
        other => return out.push_str(&format!("{indent}{key}: {}\n", plain(other))),
    };
    block(value, depth + 1, out);
}

fn plain(value: &Yaml) -> String {
    match value {
        Yaml::Map(_) | Yaml::Named(_) => "{}".to_owned(),
        Yaml::List(_) => "[]".to_owned(),
        Yaml::Text(text) => scalar(text),
        Yaml::Whole(number) => number.to_string(),
        Yaml::Flag(yes) => yes.to_string(),
    }
}

/// Without quotes only what no reader of YAML takes for anything but a text.
fn scalar(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(word)
        && !words.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_written_one_way_and_means_what_it_is() {
        let inner = map([("a", Yaml::Whole(1)), ("b", texts(["x", "no", "1m", "a: b"]))]);
        let value = map([
            ("name", text("app-backend")),
            ("none", Yaml::List(Vec::new())),
            ("list", Yaml::List(vec![inner, text("last")])),
            ("code", text("max(\n  x\n)")),
            ("flag", Yaml::Flag(true)),
            ("labels", Yaml::Named(vec![("wake_host".into(), text("cms.example.org"))])),
        ]);
        let expected = "\
# why
name: app-backend
none: []
list:
  - a: 1
    b:
      - x
      - \"no\"
      - \"1m\"
      - \"a: b\"
  - last
code: |-
  max(
    x
  )
flag: true
labels:
  wake_host: cms.example.org
";
        assert_eq!(file("why", &[value]), expected);
    }
}
