//! Label selectors as the Kubernetes API takes them in `labelSelector` (its documentation, "Labels and Selectors"); pure.

/// Requirements that all must be met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Selector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        split(text)?.into_iter().map(|part| requirement(part.trim())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether labels meet it. As the API has it, a label that is missing is not in any list.
    pub(super) fn meets(&self, label: impl Fn(&str) -> Option<String>) -> bool {
        self.0.iter().all(|one| match one {
            Requirement::In(key, values) => label(key).is_some_and(|value| values.contains(&value)),
            Requirement::NotIn(key, values) => !label(key).is_some_and(|value| values.contains(&value)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
        })
    }
}

/// At the commas that are not between brackets.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return Err(format!("a bracket too many in `{text}`")),
            ',' if !inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("a bracket is not closed in `{text}`"));
    }
    parts.push(&text[begin..]);
    if text.trim().is_empty() { Ok(Vec::new()) } else { Ok(parts) }
}

fn requirement(part: &str) -> Result<Requirement, String> {
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(named(key)?, vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return Ok(Requirement::In(named(key)?, vec![value.trim().to_owned()]));
    }
    if let Some(open) = part.find('(') {
        let values =
            part[open + 1..].trim_end().strip_suffix(')').ok_or_else(|| format!("`{part}` goes on after `)`"))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = part[..open].split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(Requirement::In(named(key)?, values)),
            (Some(key), Some("notin"), None) => Ok(Requirement::NotIn(named(key)?, values)),
            _ => Err(format!("`{part}` is no requirement: write `KEY in (A,B)` or `KEY notin (A,B)`")),
        };
    }
    match part.strip_prefix('!') {
        Some(key) => Ok(Requirement::Missing(named(key)?)),
        None => Ok(Requirement::Exists(named(part)?)),
    }
}

fn named(key: &str) -> Result<String, String> {
    let key = key.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(plain) {
        return Err(format!("`{key}` is no key of a label"));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meets(selector: &str) -> bool {
        let labels = |key: &str| (key == "wake_host").then(|| "cms.example.org".to_owned());
        Selector::parse(selector).unwrap_or_else(|why| panic!("{selector}: {why}")).meets(labels)
    }

    #[test]
    fn every_form_is_understood() {
        for (selector, expected) in [
            ("", true),
            ("wake_host=cms.example.org", true),
            ("wake_host==cms.example.org", true),
            ("wake_host = cms.example.org", true),
            ("wake_host=cmsxexample.org", false),
            ("wake_host!=cms.example.org", false),
            ("wake_host!=other", true),
            ("other!=cms", true),
            ("wake_host in (a, cms.example.org)", true),
            ("wake_host in (a,b)", false),
            ("wake_host notin (a,b)", true),
            ("wake_host notin (cms.example.org)", false),
            ("wake_host", true),
            ("!wake_host", false),
            ("other", false),
            ("!other", true),
            ("wake_host=cms.example.org,!other,wake_host in (cms.example.org)", true),
            ("wake_host=cms.example.org,other", false),
        ] {
            assert_eq!(meets(selector), expected, "{selector}");
        }
        for selector in ["a in (b", "a in b)", "a foo (b)", "=b", ",", "a b", "!", "in (a)", "a in (b) c", "a=b,"] {
            assert!(Selector::parse(selector).is_err(), "{selector}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z!=(), in.]{0,40}|\\PC{0,20}") {
            drop(Selector::parse(&text));
        }
    }
}
