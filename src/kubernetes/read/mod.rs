//! What other people wrote: HPAs, workloads, Caddy's configuration, Prometheus' and its adapter's. Read as far as it says anything about a
//! wake; what it is, is told by what stands in it.
//!
//! Caddyfiles are not read: Caddy turns them into its own JSON (`caddy adapt`), which is.

mod assemble;
mod caddy;
mod hpa;
mod prometheus;
mod promql;

pub use assemble::{Besides, Read, read};

use crate::config::yaml::{self, Node};
use crate::config::{Place, Problem, Source};
use crate::fleet::timing::Told;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A file, and what `caddy adapt` made of it where it is a Caddyfile.
#[derive(Debug, Clone)]
pub struct Given {
    /// As a person wrote it.
    pub source: Arc<Source>,
    /// Caddy's own form of it.
    pub adapted: Option<Arc<Source>>,
}

/// A file, and the documents in it.
struct Document {
    source: Arc<Source>,
    /// Where places are looked for instead, because the text was made from it.
    shown: Option<Arc<Source>>,
    node: Arc<Node>,
}

impl Document {
    fn all(given: &Given) -> Result<Vec<Self>, Box<Problem>> {
        let source = given.adapted.as_ref().unwrap_or(&given.source);
        let shown = given.adapted.as_ref().map(|_| Arc::clone(&given.source));
        let nodes = yaml::read(source)?;
        let made = |node| Self { source: Arc::clone(source), shown: shown.clone(), node };
        Ok(nodes.into_iter().map(made).collect())
    }

    /// Where a value stands; of a Caddyfile the first line with the directive that it comes from.
    fn place(&self, span: &Range<usize>, directive: &str) -> Place {
        let Some(shown) = &self.shown else { return Place::new(&self.source, span.clone()) };
        let at = shown.text.find(directive).unwrap_or(0);
        Place::new(shown, at..at + directive.len().min(shown.text.len() - at))
    }
}

/// Where every number stands, by the key that it is told with.
#[derive(Debug, Default)]
struct Places(BTreeMap<String, Place>);

impl Places {
    /// A number at a place; its key is what a person would look for there.
    fn told<T>(&mut self, value: T, name: &str, place: Place) -> Told<T> {
        let (line, _) = place.position();
        let key = format!("{}:{line}: {name}", place.source.name);
        self.0.insert(key.clone(), place);
        Told::new(value, key)
    }
}

/// `a.b.c` below a node.
fn at<'a>(node: &'a Arc<Node>, path: &str) -> Option<&'a Arc<Node>> {
    path.split('.').try_fold(node, |node, key| node.get(key))
}

/// A number of a node.
fn number(node: &Node) -> Option<f64> {
    node.text()?.parse().ok()
}

/// Durations of Prometheus and Go (`1m30s`), and Caddy's numbers of nanoseconds.
fn duration(text: &str) -> Option<Duration> {
    if let Ok(nanos) = text.parse::<u64>() {
        return Some(Duration::from_nanos(nanos));
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let value: f64 = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let unit = match &after[..end] {
            "ns" => 1e-9,
            "us" | "\u{b5}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            _ => return None,
        };
        sum += Duration::try_from_secs_f64(value * unit).ok()?;
        rest = &after[end..];
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_three_programs_are_read() {
        for (text, millis) in
            [("90s", 90_000), ("1m30s", 90_000), ("1.5h", 5_400_000), ("20000000000", 20_000), ("250ms", 250)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "5x", "1m30"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
