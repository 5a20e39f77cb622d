//! Hazards of the files as such: what cannot be read, what is not published, variables that nothing sets.

use super::Cx;
use crate::config::compose::files::{Doc, Layer};
use crate::config::compose::vars::{self, Word};
use crate::config::problem::{Place, Source};
use crate::config::yaml::{Node, Value};
use crate::fleet::release::FROM_THE_SERVER;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) fn look(cx: &mut Cx<'_>) {
    let files = cx.files;
    let Some(main) = files.doc() else {
        let place = Place::new(&Source::new(files.main.as_str(), ""), 0..0);
        return cx.say("unreadable", place, format!("{} is not there or cannot be read", files.main));
    };
    for doc in files.docs.values() {
        match &doc.root {
            Err(problem) => cx.say("unreadable", problem.place.clone(), problem.text.clone()),
            Ok(root) => {
                if let Some(version) = root.entry("version") {
                    let text = "`version` means nothing to Compose v2, which says so at every command".to_owned();
                    cx.say("version-obsolete", doc.place(&version.key_span), text);
                }
            }
        }
    }
    services_are_there(cx, main);
    references(cx);
    for name in &files.unread_beside {
        let text = format!("{name} lies beside {} and is not read: one file is published", files.main);
        cx.say("override-ignored", Place::new(&main.source, 0..0), text);
    }
    variables(cx, main);
}

fn services_are_there(cx: &mut Cx<'_>, main: &Doc) {
    let Ok(root) = &main.root else { return };
    if root.get("services").is_none_or(|services| services.entries().is_empty()) && root.get("include").is_none() {
        let first = root.entries().iter().any(|entry| entry.node.get("image").or(entry.node.get("build")).is_some());
        let text = if first {
            "services stand at the top level, as in the first Compose's files; Compose v2 refuses that"
        } else {
            "there are no services"
        };
        return cx.say("no-services", main.place(&root.span), text.to_owned());
    }
    if cx.project.unknown.is_some() {
        return;
    }
    let at = root.entry("services").map_or(0..0, |entry| entry.key_span.clone());
    for service in &cx.fleet.services {
        let name = service.name.as_str();
        match cx.project.services.get(name) {
            None => {
                cx.say("service-missing", main.place(&at), format!("deploy.toml verifies `{name}`, which is not here"));
            }
            Some(off) if off.is_off() => {
                let text =
                    format!("deploy.toml verifies `{name}`, which a profile switches off: none is active on servers");
                cx.say_of("service-missing", off, text);
            }
            Some(_) => {}
        }
    }
}

/// What is included or extended must be published too: it is resolved on a server, from the published files alone.
fn references(cx: &mut Cx<'_>) {
    for reference in cx.files.references() {
        let Ok(path) = &reference.path else { continue };
        let published = cx.fleet.release.files.iter().any(|file| file.trim_start_matches("./") == path);
        if !published && *path != cx.files.main {
            let text = format!("`{}` brings in {path}, which is not published", reference.by);
            cx.say("reference-not-published", reference.place, text);
        } else if !cx.files.docs.contains_key(path) {
            let text = format!("`{}` brings in {path}, which is not there", reference.by);
            cx.say("reference-not-published", reference.place, text);
        }
    }
}

/// Everything that Compose puts variables into: `x-` keys too, but not keys, and nothing that something else lies over.
fn variables(cx: &mut Cx<'_>, main: &Doc) {
    let mut seen = HashSet::new();
    for entry in main.root.as_ref().map_or(&[][..], |root| root.entries()) {
        if entry.key != "services" && entry.key != "include" {
            walk(cx, main, &entry.node, &mut seen);
        }
    }
    for (_, service) in cx.active.clone() {
        for (depth, layer) in service.layers.iter().enumerate() {
            for entry in layer.entry.node.entries() {
                if entry.key != "extends" && !covered(&service.layers[..depth], &entry.key, &entry.node) {
                    walk(cx, layer.doc, &entry.node, &mut seen);
                }
            }
        }
    }
}

fn covered(above: &[Layer<'_>], key: &str, node: &Node) -> bool {
    node.text().is_some() && above.iter().any(|layer| layer.entry.node.get(key).is_some())
}

/// Every text once, however many aliases lead to it.
fn walk(cx: &mut Cx<'_>, doc: &Doc, node: &Arc<Node>, seen: &mut HashSet<*const Node>) {
    if !seen.insert(Arc::as_ptr(node)) {
        return;
    }
    match &node.value {
        Value::Scalar { text, .. } => scalar(cx, doc, node, text),
        Value::List(items) => items.iter().for_each(|item| walk(cx, doc, item, seen)),
        Value::Map(entries) => entries.iter().for_each(|entry| walk(cx, doc, &entry.node, seen)),
    }
}

fn scalar(cx: &mut Cx<'_>, doc: &Doc, node: &Node, text: &str) {
    if !text.contains('$') {
        return;
    }
    for used in vars::uses(text, &cx.given) {
        let name = used.name.as_str();
        let of_the_server = FROM_THE_SERVER.contains(&name);
        let place = || doc.place(&within(&doc.source, &node.span, name));
        match cx.given.word(name) {
            Word::Later(_) if of_the_server => {
                cx.say(
                    "variable-of-server",
                    place(),
                    format!("`{name}` is each server's own: each would make another release"),
                );
            }
            Word::Unset if !used.has_default() => {
                cx.say("variable-unset", place(), format!("nothing sets `{name}`: a release cannot be made"));
            }
            _ => {}
        }
    }
}

/// Where in a text's span the variable stands; the whole span where the text was folded.
fn within(source: &Source, span: &std::ops::Range<usize>, name: &str) -> std::ops::Range<usize> {
    let text = source.text.get(span.clone()).unwrap_or_default();
    let at = [format!("${{{name}"), format!("${name}")].iter().find_map(|word| Some((text.find(word)?, word.len())));
    at.map_or(span.clone(), |(at, length)| span.start + at..span.start + at + length)
}
