//! A YAML text as a tree in which every key and value has its place, anchors and merge keys followed.
//!
//! It may know nothing of what the text is about. An alias shares the node it stands for and never copies it, and everything is bounded, so that no
//! text costs more than its own length: not one that nests, nor one whose aliases would unfold to more than memory holds.

use crate::config::problem::{Place, Problem, Source};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Longer texts are no compose files.
const LONGEST: usize = 2 * 1024 * 1024;
/// So many levels, those behind aliases counted.
const DEEPEST: usize = 64;
/// So many entries may come into mappings by merge keys.
const MERGED: usize = 200_000;

/// A value and where it stands.
#[derive(Debug)]
pub struct Node {
    /// What it holds.
    pub value: Value,
    /// Its bytes.
    pub span: Range<usize>,
    /// `!reset`, `!override` and other tags that are not YAML's own.
    pub(super) tagged: bool,
    /// `!reset` alone.
    pub(super) reset: bool,
    /// Levels below it, aliases followed.
    height: usize,
}

/// What a node holds.
#[derive(Debug)]
pub enum Value {
    /// A text; `plain` where it was written without quotes, so that it may mean a number or nothing.
    Scalar {
        /// As it stands there, quotes taken off.
        text: String,
        /// Whether it had none.
        plain: bool,
    },
    /// A list.
    List(Vec<Arc<Node>>),
    /// A mapping: its own keys first, then what merge keys brought.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its bytes.
    pub key_span: Range<usize>,
    /// The value.
    pub node: Arc<Node>,
}

impl Node {
    /// What a mapping holds; nothing where it is none.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// What a list holds; nothing where it is none.
    #[must_use]
    pub fn items(&self) -> &[Arc<Self>] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// A key of a mapping, with its value.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Self>> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// The text of a scalar.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Whether it is a mapping.
    #[must_use]
    pub fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }
}

/// Reads every document of a text.
///
/// # Errors
/// The first thing that is no YAML, or that nobody would read.
pub fn read(source: &Arc<Source>) -> Result<Vec<Arc<Node>>, Box<Problem>> {
    if source.text.len() > LONGEST {
        let text = format!("{} is longer than {} MiB", source.name, LONGEST / 1024 / 1024);
        return Err(Box::new(Problem::new(&Place::new(source, 0..0), text)));
    }
    let mut reader = Reader {
        source,
        bytes: byte_of_char(&source.text),
        anchors: Vec::new(),
        stack: Vec::new(),
        done: Vec::new(),
        merged: 0,
    };
    for event in Parser::new_from_str(&source.text) {
        let (event, span) = event.map_err(|error| {
            let at = reader.byte(error.marker().index());
            reader.problem(at..at, format!("this is no YAML: {}", error.info()))
        })?;
        reader.take(event, span)?;
    }
    Ok(reader.done)
}

/// Where each character begins; `None` where characters are bytes.
fn byte_of_char(text: &str) -> Option<Vec<usize>> {
    (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect())
}

/// A collection that is not complete yet.
struct Frame {
    anchor: usize,
    span: Range<usize>,
    tagged: bool,
    reset: bool,
    key: Option<(String, Range<usize>)>,
    /// What `<<` names, in its order.
    merges: Option<Arc<Node>>,
    seen: HashSet<String>,
    value: Value,
    height: usize,
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    bytes: Option<Vec<usize>>,
    /// By anchor id; `None` while it is not complete.
    anchors: Vec<Option<Arc<Node>>>,
    stack: Vec<Frame>,
    done: Vec<Arc<Node>>,
    merged: usize,
}

impl Reader<'_> {
    fn byte(&self, char: usize) -> usize {
        match &self.bytes {
            None => char,
            Some(bytes) => bytes.get(char).copied().unwrap_or(self.source.text.len()),
        }
    }

    fn problem(&self, span: Range<usize>, text: String) -> Box<Problem> {
        Box::new(Problem::new(&Place::new(self.source, span), text))
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Box<Problem>> {
        let span = self.byte(span.start.index())..self.byte(span.end.index());
        match event {
            Event::DocumentStart(_) => self.anchors.clear(),
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(id).cloned().flatten() else {
                    return Err(self.problem(span, "this alias stands for nothing that is complete here".to_owned()));
                };
                self.put(node, &span)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref());
                let value = Value::Scalar { text: text.into_owned(), plain };
                let (tagged, reset) = own(tag.as_ref());
                let node = Arc::new(Node { value, span: span.clone(), tagged, reset, height: 0 });
                self.keep(anchor, &node);
                self.put(node, &span)?;
            }
            Event::SequenceStart(anchor, tag) => self.open(anchor, tag.as_ref(), span, Value::List(Vec::new()))?,
            Event::MappingStart(anchor, tag) => self.open(anchor, tag.as_ref(), span, Value::Map(Vec::new()))?,
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn keep(&mut self, anchor: usize, node: &Arc<Node>) {
        if anchor > 0 {
            if self.anchors.len() <= anchor {
                self.anchors.resize(anchor + 1, None);
            }
            self.anchors[anchor] = Some(Arc::clone(node));
        }
    }

    fn open(
        &mut self,
        anchor: usize,
        tag: Option<&Cow<'_, Tag>>,
        span: Range<usize>,
        value: Value,
    ) -> Result<(), Box<Problem>> {
        if self.stack.len() >= DEEPEST {
            return Err(self.problem(span, format!("this nests deeper than {DEEPEST} levels")));
        }
        let ((tagged, reset), seen) = (own(tag), HashSet::new());
        self.stack.push(Frame { anchor, span, tagged, reset, key: None, merges: None, seen, value, height: 0 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Box<Problem>> {
        let Some(mut frame) = self.stack.pop() else { return Ok(()) };
        if let Some(merges) = frame.merges.take() {
            self.merge(&mut frame, &merges)?;
        }
        let Frame { anchor, span, tagged, reset, value, height, .. } = frame;
        let node = Arc::new(Node { value, span: span.clone(), tagged, reset, height: height + 1 });
        self.keep(anchor, &node);
        self.put(node, &span)
    }

    /// Puts a complete value where it belongs.
    fn put(&mut self, node: Arc<Node>, span: &Range<usize>) -> Result<(), Box<Problem>> {
        // Checked here, so that freeing the tree never recurses deeper than this either.
        if node.height + self.stack.len() > DEEPEST {
            return Err(self.problem(span.clone(), format!("this nests deeper than {DEEPEST} levels")));
        }
        let Some(frame) = self.stack.last_mut() else {
            self.done.push(node);
            return Ok(());
        };
        let height = frame.height.max(node.height);
        match &mut frame.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => match frame.key.take() {
                None => {
                    let Value::Scalar { text, plain } = &node.value else {
                        return Err(self.problem(span.clone(), "a key must be a plain text".to_owned()));
                    };
                    if !frame.seen.insert(text.clone()) {
                        let text = format!("`{text}` stands twice in one mapping");
                        return Err(self.problem(span.clone(), text));
                    }
                    // A quoted "<<" is a key like any other.
                    let name = if *plain || text != "<<" { text.clone() } else { "\"<<\"".to_owned() };
                    frame.key = Some((name, span.clone()));
                    return Ok(());
                }
                Some((key, _)) if key == "<<" => frame.merges = Some(node),
                Some((key, key_span)) => entries.push(Entry { key, key_span, node }),
            },
            Value::Scalar { .. } => {}
        }
        frame.height = height;
        Ok(())
    }

    /// What stands in the mapping itself wins; of several that are merged, the first (YAML's merge key; so does Compose).
    fn merge(&mut self, frame: &mut Frame, merges: &Arc<Node>) -> Result<(), Box<Problem>> {
        let Value::Map(entries) = &mut frame.value else { return Ok(()) };
        let from: Vec<&Arc<Node>> = if merges.is_map() { vec![merges] } else { merges.items().iter().collect() };
        if from.iter().any(|node| !node.is_map()) || !(merges.is_map() || matches!(merges.value, Value::List(_))) {
            return Err(self.problem(merges.span.clone(), "`<<` merges mappings, and this is none".to_owned()));
        }
        for entry in from.iter().flat_map(|node| node.entries()) {
            self.merged += 1;
            if self.merged > MERGED {
                return Err(
                    self.problem(merges.span.clone(), "merge keys bring more together here than is read".to_owned())
                );
            }
            if frame.seen.insert(entry.key.clone()) {
                frame.height = frame.height.max(entry.node.height);
                entries.push(entry.clone());
            }
        }
        Ok(())
    }
}

/// `!!str` makes a text of what would mean a number.
fn is_text(tag: Option<&Tag>) -> bool {
    tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str")
}

/// Whether a tag is not YAML's own, and whether it is `!reset`.
fn own(tag: Option<&Cow<'_, Tag>>) -> (bool, bool) {
    let own = tag.filter(|tag| !tag.is_yaml_core_schema());
    (own.is_some(), own.is_some_and(|tag| tag.suffix == "reset"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn tree(text: &str) -> Result<Arc<Node>, String> {
        let all = read(&Source::new("c.yaml", text)).map_err(|problem| problem.line())?;
        all.into_iter().next().ok_or_else(|| "empty".to_owned())
    }

    fn at(text: &str, path: &[&str]) -> String {
        let mut node = tree(text).expect("YAML");
        for key in path {
            node = node.get(key).unwrap_or_else(|| panic!("{key} of {path:?}")).clone();
        }
        node.text().expect("a text").to_owned()
    }

    #[test]
    fn merge_keys_bring_what_is_not_there_and_the_first_of_a_list_wins() {
        let text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2, <<: *a}\nc:\n  <<: [*b, *a]\n  z: 3\n";
        for (key, expected) in [("x", "1"), ("y", "2"), ("z", "3")] {
            assert_eq!(at(text, &["c", key]), expected, "{key}");
        }
    }

    #[test]
    fn places_are_those_of_the_text_also_behind_letters_of_several_bytes() {
        let text = "# größer\nä: {b: ö, c: d}\n";
        let node = tree(text).expect("YAML");
        let c = node.get("ä").and_then(|ä| ä.entry("c").cloned()).expect("c");
        assert_eq!((&text[c.key_span.clone()], &text[c.node.span.clone()]), ("c", "d"));
        assert_eq!(Place::new(&Source::new("x", text), c.node.span.clone()).to_string(), "x:2:14");
    }

    #[test]
    fn what_compose_refuses_is_refused_with_its_place() {
        for (text, expected) in [
            ("a: 1\na: 2\n", "c.yaml:2:1: `a` stands twice in one mapping"),
            ("a: {<<: 5}\n", "c.yaml:1:9: `<<` merges mappings, and this is none"),
            ("a: *b\n", "no YAML"),
            ("a: [1\n", "no YAML"),
            ("? [x]\n: y\n", "c.yaml:1:3: a key must be a plain text"),
            ("a: &a [*a]\n", "stands for nothing that is complete"),
        ] {
            let said = tree(text).expect_err(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn no_bomb_costs_more_than_its_length() {
        let mut lines = vec!["l0: &l0 {k0: x}".to_owned()];
        lines.extend((1..50).map(|n| format!("l{n}: &l{n} [*l{p}, *l{p}, *l{p}, *l{p}]", p = n - 1)));
        let laughs = lines.join("\n");
        let chain: String = (1..20_000).map(|n| format!("a{n}: &a{n} [*a{p}]\n", p = n - 1)).collect();
        let merges: String =
            (1..3_000).map(|n| format!("a{n}: &a{n} {{k{n}: x, <<: [*a{p}, *a{p}]}}\n", p = n - 1)).collect();
        for (text, fine) in [
            (laughs, true),
            (format!("a0: &a0 [x]\n{chain}"), false),
            (format!("a0: &a0 {{x: y}}\n{merges}"), false),
            ("[".repeat(100_000), false),
            ("{a: ".repeat(100_000), false),
            ("- ".repeat(100_000), false),
            ("x".repeat(LONGEST + 1), false),
        ] {
            let began = Instant::now();
            assert_eq!(tree(&text).is_ok(), fine, "{}", &text[..60]);
            assert!(began.elapsed() < Duration::from_secs(5), "{:?} for {}", began.elapsed(), &text[..60]);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text in "(\\PC|[\\[\\]{}:,&*<!|>'\"#\n\t -]|<<: \\*a|&a |\\*a ){0,120}") {
            drop(tree(&text));
        }
    }
}
