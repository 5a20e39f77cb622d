//! The first look at a compose file's text: a writable relative bind mount, which would lie inside a release's folder and be
//! lost or shared with the next release.
//!
//! It may know no YAML: it sees the usual ways to write one and no others (no anchors, no flow style over several lines). The
//! resolved file is looked at again where Compose itself has read it.

use crate::config::problem::{Place, Problem, Source};
use std::ops::Range;
use std::sync::Arc;

/// Every writable relative bind mount that can be seen in the text of a compose file.
#[must_use]
pub fn compose_text_problems(text: &str, file: &str) -> Vec<Problem> {
    let source = Source::new(file, text);
    let lines = lines_of(text);
    let mut problems = Vec::new();
    let mut volumes: Option<usize> = None;
    for (index, line) in lines.iter().enumerate() {
        if line.text.is_empty() {
            continue;
        }
        let item = line.text.strip_prefix("- ").map(str::trim_start);
        // A list may stand as deep as its key, so an item does not end it.
        if volumes.is_some_and(|depth| line.depth < depth || (line.depth == depth && item.is_none())) {
            volumes = None;
        }
        if line.text.strip_prefix("volumes:").is_some_and(|rest| rest.is_empty()) {
            volumes = Some(line.depth);
            continue;
        }
        let (Some(_), Some(item)) = (volumes, item) else { continue };
        if let Some(mount) = short(item) {
            problems.push(problem(&source, line, mount));
        } else if let Some(mount) = long(&lines, index) {
            problems.push(problem(&source, line, &mount));
        }
    }
    problems
}

/// A line without comment, and where it stands.
struct Line<'a> {
    depth: usize,
    text: &'a str,
    span: Range<usize>,
}

fn lines_of(text: &str) -> Vec<Line<'_>> {
    let mut start = 0;
    let mut lines = Vec::new();
    for raw in text.split_inclusive('\n') {
        let body = raw.split(" #").next().unwrap_or_default().trim_end();
        let plain = body.trim_start();
        let depth = body.len() - plain.len();
        let span = start + depth..start + body.len();
        lines.push(Line { depth, text: if plain.starts_with('#') { "" } else { plain }, span });
        start += raw.len();
    }
    lines
}

fn problem(source: &Arc<Source>, line: &Line<'_>, mount: &str) -> Problem {
    Problem::new(&Place::new(source, line.span.clone()), format!("`{mount}` is a writable mount of a relative path"))
        .label("lies inside the release's folder")
        .hint("data needs a named volume or an absolute path; a file that is only read needs `:ro` (or `read_only: true`)")
}

/// `./data:/data`, without `:ro`.
fn short(item: &str) -> Option<&str> {
    let item = item.trim_matches(['"', '\'']);
    let mut parts = item.split(':');
    let (from, to, mode) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
    let writable = !mode.split(',').any(|word| word == "ro");
    (relative(from) && to.starts_with('/') && writable).then_some(item)
}

/// `type: bind` with a relative `source` and no `read_only: true`.
fn long(lines: &[Line<'_>], first: usize) -> Option<String> {
    let depth = lines[first].depth;
    let below = lines[first + 1..].iter().take_while(|line| line.text.is_empty() || line.depth > depth);
    let keys: Vec<(&str, &str)> = std::iter::once(lines[first].text.strip_prefix("- ").unwrap_or_default())
        .chain(below.map(|line| line.text))
        .filter_map(|text| text.trim().split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim().trim_matches(['"', '\''])))
        .collect();
    let value = |name| keys.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let from = value("source").or_else(|| value("src"))?;
    let bind = value("type") == Some("bind");
    (bind && relative(from) && value("read_only") != Some("true")).then(|| from.to_owned())
}

fn relative(path: &str) -> bool {
    path == "." || path == ".." || path.starts_with("./") || path.starts_with("../")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        compose_text_problems(text, "compose.yaml").iter().map(Problem::line).collect()
    }

    #[test]
    fn a_writable_relative_mount_is_found_in_both_syntaxes() {
        let text = "services:\n  api:\n    volumes:\n      - ./data:/data\n      - type: bind\n        source: ../x\n        target: /x\n";
        assert_eq!(
            found(text),
            [
                "compose.yaml:4:7: `./data:/data` is a writable mount of a relative path",
                "compose.yaml:5:7: `../x` is a writable mount of a relative path",
            ]
        );
    }

    #[test]
    fn a_list_as_deep_as_its_key_is_read_too() {
        assert_eq!(found("s:\n  volumes:\n  - \"./data:/data:rw\" # why\n  ports:\n  - ./no:/mount\n").len(), 1);
    }

    #[test]
    fn what_is_read_only_absolute_or_named_is_fine() {
        let text = "services:\n  api:\n    volumes:\n      - ./a:/a:ro\n      - ./b:/b:z,ro\n      - /srv:/srv\n      - data:/data\n      \
                    - type: bind\n        source: ./c\n        target: /c\n        read_only: true\nvolumes:\n  data:\n";
        assert_eq!(found(text), [""; 0]);
    }
}
