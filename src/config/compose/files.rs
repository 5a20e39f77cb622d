//! The compose file and what it brings in by `include` and `extends`, read once, and the services as they are after both.
//!
//! Pure but for whoever gives the files. What it cannot follow it says; it never guesses. The rules are those of the compose file
//! reference ("include", "extends", "Merge"), held to Compose by `tests/it/compose.rs`.

use crate::config::problem::{Place, Problem, Source};
use crate::config::yaml::{self, Entry, Node, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// More files than this are not followed.
const MOST_FILES: usize = 64;
/// A file may be included by several others, but not so often.
const MOST_VISITS: usize = 256;
/// A longer chain of `extends` is not followed.
const LONGEST_CHAIN: usize = 32;

/// The compose file with all that belongs to it, as texts.
#[derive(Debug)]
pub struct ComposeFiles {
    /// The compose file's name, relative to deploy.toml.
    pub(super) main: String,
    /// By name relative to deploy.toml.
    pub(super) docs: BTreeMap<String, Doc>,
    /// Files beside it that Compose would read by itself, and with `--file` does not.
    pub(super) unread_beside: Vec<String>,
}

/// One file.
#[derive(Debug)]
pub(super) struct Doc {
    pub(super) source: Arc<Source>,
    pub(super) root: Result<Arc<Node>, Box<Problem>>,
    /// Its own services, by name.
    pub(super) services: BTreeMap<String, Entry>,
    /// Why it cannot be followed though it could be read.
    odd: Option<String>,
}

impl Doc {
    fn read(source: Arc<Source>) -> Self {
        let (root, odd) = match yaml::read(&source) {
            Err(problem) => (Err(Box::new(problem.hint("Compose refuses this file"))), None),
            Ok(all) if all.len() > 1 => (Ok(all[0].clone()), Some(format!("{} has several documents", source.name))),
            Ok(all) => match all.into_iter().next() {
                Some(root) => (Ok(root), None),
                None => {
                    let empty = Problem::new(&Place::new(&source, 0..0), format!("{} is empty", source.name));
                    (Err(Box::new(empty)), None)
                }
            },
        };
        let services = root.as_ref().ok().and_then(|root| root.get("services"));
        let odd = odd.or_else(|| {
            let own = services.is_some_and(|services| services.tagged);
            own.then(|| format!("{} resets or overrides its services", source.name))
        });
        let services = services.map_or(&[][..], |services| services.entries());
        let services = services.iter().map(|entry| (entry.key.clone(), entry.clone())).collect();
        Self { source, root, services, odd }
    }

    pub(super) fn place(&self, span: &std::ops::Range<usize>) -> Place {
        Place::new(&self.source, span.clone())
    }
}

/// Another file that a file names.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    /// `include` or `extends`.
    pub(super) by: &'static str,
    pub(super) path: Result<String, String>,
    pub(super) place: Place,
}

impl ComposeFiles {
    /// Reads the compose file `main` and what it brings in; `file` gives each text by its name relative to deploy.toml, under the
    /// name that a person knows it by.
    pub fn gather(main: &str, mut file: impl FnMut(&str) -> Option<Arc<Source>>) -> Self {
        let mut docs = BTreeMap::new();
        let mut wanted = vec![normal(main)];
        while let Some(name) = wanted.pop() {
            if docs.len() >= MOST_FILES || docs.contains_key(&name) {
                continue;
            }
            let Some(source) = file(&name) else { continue };
            let doc = Doc::read(source);
            wanted.extend(references(&name, &doc).into_iter().filter_map(|reference| reference.path.ok()));
            docs.insert(name, doc);
        }
        Self { main: normal(main), docs, unread_beside: Vec::new() }
    }

    pub(super) fn doc(&self) -> Option<&Doc> {
        self.docs.get(&self.main)
    }

    /// Every file that is named by one that was read.
    pub(super) fn references(&self) -> Vec<Reference> {
        self.docs.iter().flat_map(|(name, doc)| references(name, doc)).collect()
    }

    /// The services as they are once everything is brought together, those of inactive profiles included.
    pub(super) fn project(&self) -> Project<'_> {
        let mut visit = Visit { open: BTreeSet::new(), left: MOST_VISITS, unknown: None };
        let services = self.visit(&self.main, &mut visit);
        Project { services, unknown: visit.unknown }
    }

    fn visit<'a>(&'a self, name: &str, visit: &mut Visit) -> BTreeMap<String, Service<'a>> {
        let mut services = BTreeMap::new();
        let Some((key, doc)) = self.docs.get_key_value(name) else {
            visit.because(format!("{name} is not there"));
            return services;
        };
        if let Some(why) = &doc.odd {
            visit.because(why.clone());
        }
        let root = match &doc.root {
            Ok(root) => root,
            Err(problem) => {
                visit.because(problem.line());
                return services;
            }
        };
        if visit.left == 0 || !visit.open.insert(name.to_owned()) {
            visit.because(format!("{name} is included too often"));
            return services;
        }
        visit.left -= 1;
        for service in doc.services.keys() {
            services.insert(service.clone(), self.service(key, doc, service));
        }
        for item in root.entry("include").map(|include| includes(name, doc, include)).unwrap_or_default() {
            for (name, mut service) in self.included(item, visit) {
                if services.contains_key(&name) {
                    service.unknown = Some(format!("`{name}` is there already and included once more"));
                }
                services.insert(name, service);
            }
        }
        visit.open.remove(name);
        services
    }

    /// What one entry of `include` brings: of several files the later lie over the earlier.
    fn included<'a>(&'a self, item: Vec<Reference>, visit: &mut Visit) -> BTreeMap<String, Service<'a>> {
        let mut brought: BTreeMap<String, Service<'a>> = BTreeMap::new();
        for path in item {
            let found = match path.path {
                Ok(path) => self.visit(&path, visit),
                Err(why) => {
                    visit.because(why);
                    BTreeMap::new()
                }
            };
            for (name, mut service) in found {
                if let Some(under) = brought.remove(&name) {
                    service.layers.extend(under.layers);
                    service.unknown = service.unknown.or(under.unknown);
                }
                brought.insert(name, service);
            }
        }
        brought
    }

    /// A service of one file with everything that it extends.
    fn service<'a>(&'a self, file: &'a str, doc: &'a Doc, name: &str) -> Service<'a> {
        let mut service = Service { layers: Vec::new(), unknown: None };
        let (mut file, mut doc, mut name) = (file, doc, name.to_owned());
        loop {
            let Some(entry) = doc.services.get(&name) else {
                service.unknown = Some(format!("it extends `{name}`, which {} does not have", doc.source.name));
                return service;
            };
            if entry.node.tagged {
                service.unknown = Some(format!("`{name}` is reset or overridden"));
            }
            service.layers.push(Layer { doc, entry });
            let Some(extends) = entry.node.get("extends") else { return service };
            if extends.tagged || service.layers.len() > LONGEST_CHAIN {
                service.unknown = Some("what it extends cannot be followed".to_owned());
                return service;
            }
            let base = extends.text().or_else(|| extends.get("service")?.text());
            let Some(base) = base.filter(|base| !base.contains('$')) else {
                service.unknown = Some("it does not say plainly what it extends".to_owned());
                return service;
            };
            name = base.to_owned();
            let Some(path) = extends.get("file").and_then(|file| file.text()) else { continue };
            let found = reach(file, path).and_then(|path| {
                let found = self.docs.get_key_value(&path);
                found.ok_or_else(|| format!("it extends `{name}` of {path}, which is not there"))
            });
            match found {
                Ok((path, found)) => {
                    if let Err(problem) = &found.root {
                        service.unknown = Some(problem.line());
                    } else if let Some(why) = &found.odd {
                        service.unknown = Some(why.clone());
                    }
                    (file, doc) = (path, found);
                }
                Err(why) => {
                    service.unknown = Some(why);
                    return service;
                }
            }
        }
    }
}

/// A walk through everything that is included.
struct Visit {
    open: BTreeSet<String>,
    left: usize,
    unknown: Option<String>,
}

impl Visit {
    fn because(&mut self, why: String) {
        self.unknown.get_or_insert(why);
    }
}

/// Everything brought together.
#[derive(Debug)]
pub(super) struct Project<'a> {
    pub(super) services: BTreeMap<String, Service<'a>>,
    /// Why the services are not known at all, or not all of them.
    pub(super) unknown: Option<String>,
}

/// A service with what it extends.
#[derive(Debug)]
pub(super) struct Service<'a> {
    /// Itself first, then what lies under it.
    pub(super) layers: Vec<Layer<'a>>,
    /// Why not all of it is known.
    pub(super) unknown: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Layer<'a> {
    pub(super) doc: &'a Doc,
    pub(super) entry: &'a Entry,
}

impl Layer<'_> {
    pub(super) fn place(&self, span: &std::ops::Range<usize>) -> Place {
        self.doc.place(span)
    }
}

/// What a service says under a key.
pub(super) enum Found<'a> {
    Nothing,
    Here(Layer<'a>, &'a Entry),
    /// Why it cannot be said.
    Unknown(String),
}

impl<'a> Service<'a> {
    /// The first layer that says something under a path of keys.
    pub(super) fn find(&self, path: &[&str]) -> Found<'a> {
        for layer in &self.layers {
            let mut entry = layer.entry;
            let mut whole = true;
            for key in path {
                if entry.node.tagged {
                    break;
                }
                match entry.node.entry(key) {
                    Some(inner) => entry = inner,
                    None => {
                        whole = false;
                        break;
                    }
                }
            }
            if entry.node.tagged {
                return Found::Unknown(format!("`{}` is reset or overridden", entry.key));
            }
            if whole {
                return Found::Here(*layer, entry);
            }
        }
        Found::Nothing
    }

    /// Every layer's list or mapping under a key: Compose puts those together, down to one that resets or overrides the rest.
    pub(super) fn all(&self, key: &str) -> Vec<(Layer<'a>, &'a Entry)> {
        let mut all = Vec::new();
        for layer in &self.layers {
            let Some(entry) = layer.entry.node.entry(key) else { continue };
            if !entry.node.reset {
                all.push((*layer, entry));
            }
            if entry.node.tagged {
                break;
            }
        }
        all
    }

    /// Whether a profile switches it off: nobody names profiles where it is published.
    pub(super) fn is_off(&self) -> bool {
        self.all("profiles").iter().any(|(_, entry)| !entry.node.items().is_empty())
    }

    /// Where it stands.
    pub(super) fn place(&self) -> Option<Place> {
        self.layers.first().map(|layer| layer.place(&layer.entry.key_span))
    }
}

fn references(name: &str, doc: &Doc) -> Vec<Reference> {
    let mut all = Vec::new();
    let Ok(root) = &doc.root else { return all };
    if let Some(include) = root.entry("include") {
        all.extend(includes(name, doc, include).into_iter().flatten());
    }
    for entry in doc.services.values() {
        if let Some(file) = entry.node.get("extends").and_then(|extends| extends.get("file"))
            && let Some(path) = file.text()
        {
            all.push(Reference { by: "extends", path: reach(name, path), place: doc.place(&file.span) });
        }
    }
    all
}

/// The files of each entry of `include`.
fn includes(name: &str, doc: &Doc, include: &Entry) -> Vec<Vec<Reference>> {
    let odd = |node: &Node, why: &str| {
        let path = Err(format!("`include` {why}"));
        vec![Reference { by: "include", path, place: doc.place(&node.span) }]
    };
    if include.node.tagged || !matches!(include.node.value, Value::List(_)) {
        return vec![odd(&include.node, "is not a list")];
    }
    let of = |item: &Arc<Node>| {
        let path = item.get("path").unwrap_or(item);
        let list = if path.items().is_empty() { std::slice::from_ref(path) } else { path.items() };
        let one = |node: &Arc<Node>| {
            let path = match node.text() {
                None => Err("`include` does not name a file".to_owned()),
                // Paths inside would begin elsewhere.
                Some(_) if item.get("project_directory").is_some() => {
                    Err("`include.project_directory` moves what is included".to_owned())
                }
                Some(path) => reach(name, path),
            };
            Reference { by: "include", path, place: doc.place(&node.span) }
        };
        if item.tagged { odd(item, "is reset or overridden") } else { list.iter().map(one).collect() }
    };
    include.node.items().iter().map(of).collect()
}

/// A path that a file names, relative to deploy.toml like the file's own name.
fn reach(from: &str, path: &str) -> Result<String, String> {
    if path.contains(['$', '@']) || path.contains("://") || path.is_empty() {
        return Err(format!("`{path}` does not say plainly which file"));
    }
    let folder = Path::new(from).parent().unwrap_or_else(|| Path::new(""));
    Ok(normal(&folder.join(path).to_string_lossy()))
}

/// Without `.` and, where it can be, without `..`.
fn normal(path: &str) -> String {
    let mut out = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out.to_string_lossy().into_owned()
}
