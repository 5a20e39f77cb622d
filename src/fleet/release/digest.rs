//! What a release is called: a digest over everything that makes it behave as it does, and over nothing else.

use super::{DEFINITION, PLACEHOLDER};
use crate::fleet::model::ReleaseId;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A file beside the definition, as far as the digest is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMark {
    /// Relative to the release's folder.
    pub name: String,
    /// Whether it is written with mode 0600.
    pub secret: bool,
    /// SHA-256 of its content, in hex.
    pub sha256: String,
}

/// SHA-256 in hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let written = write!(out, "{byte:02x}");
        debug_assert!(written.is_ok(), "a String takes everything");
        out
    })
}

/// JSON with sorted keys: one spelling for one meaning.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut text = format!("{:#}", sorted(value));
    text.push('\n');
    text
}

// serde_json's own map is sorted only as long as no crate in the tree turns `preserve_order` on.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<&String, &Value> = map.iter().collect();
            Value::Object(ordered.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// The digest that *is* the release.
///
/// Every part goes in with its length before it, so that no two inputs share their bytes.
#[must_use]
pub fn digest(definition: &str, files: &[FileMark]) -> ReleaseId {
    let mut files: Vec<&FileMark> = files.iter().filter(|file| file.name != DEFINITION).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(b"handover release 1");
    part(definition.as_bytes());
    for file in files {
        part(file.name.as_bytes());
        part(if file.secret { b"0600" } else { b"0644" });
        part(file.sha256.as_bytes());
    }
    ReleaseId::new(hex(&hash.finalize()))
}

/// The definition with the release's own first twelve digits where the placeholder stands.
#[must_use]
pub fn as_written(definition: &str, id: &ReleaseId) -> String {
    definition.replace(PLACEHOLDER, id.short())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(name: &str, secret: bool, content: &str) -> FileMark {
        FileMark { name: name.into(), secret, sha256: sha256_hex(content.as_bytes()) }
    }

    fn files() -> impl Strategy<Value = Vec<FileMark>> {
        proptest::collection::btree_map("[a-z]{1,6}", (any::<bool>(), "[a-z]{0,4}"), 0..6)
            .prop_map(|files| files.iter().map(|(name, (secret, content))| mark(name, *secret, content)).collect())
    }

    proptest! {
        #[test]
        fn the_order_of_files_is_no_part_of_the_release(files in files(), definition in ".{0,40}") {
            let mut turned = files.clone();
            turned.reverse();
            prop_assert_eq!(digest(&definition, &files), digest(&definition, &turned));
        }

        #[test]
        fn whatever_changes_makes_another_release(files in files(), definition in ".{1,40}", at in any::<prop::sample::Index>()) {
            let before = digest(&definition, &files);
            prop_assert_ne!(&before, &digest(&format!("{definition} "), &files));
            let mut more = files.clone();
            more.push(mark("zzzzzzz", false, ""));
            prop_assert_ne!(&before, &digest(&definition, &more));
            if !files.is_empty() {
                let at = at.index(files.len());
                for change in [
                    |file: &mut FileMark| file.secret = !file.secret,
                    |file: &mut FileMark| file.sha256.push('0'),
                    |file: &mut FileMark| file.name.push('_'),
                ] {
                    let mut other = files.clone();
                    change(&mut other[at]);
                    prop_assert_ne!(&before, &digest(&definition, &other));
                }
            }
        }
    }

    #[test]
    fn bytes_never_move_from_one_part_to_the_next() {
        let one = [mark("a", false, "x"), mark("b", false, "y")];
        let other = [mark("ab", false, "x")];
        assert_ne!(digest("d", &one), digest("d", &other));
        assert_ne!(digest("da", &[]), digest("d", &[mark("a", false, "")]));
    }

    #[test]
    fn the_order_of_keys_has_no_meaning() {
        let one: Value = serde_json::from_str(r#"{"b":{"y":1,"x":[{"q":1,"p":2}]},"a":2}"#).expect("json");
        let other: Value = serde_json::from_str(r#"{"a":2,"b":{"x":[{"p":2,"q":1}],"y":1}}"#).expect("json");
        assert_eq!(canonical(&one), canonical(&other));
        assert!(canonical(&one).starts_with("{\n  \"a\": 2"));
    }

    #[test]
    fn the_placeholder_becomes_the_first_twelve_digits() {
        let id = ReleaseId::new("0123456789abcdef0123");
        assert_eq!(as_written("{\"R\": \"@@HANDOVER_RELEASE@@\"}", &id), "{\"R\": \"0123456789ab\"}");
    }
}
