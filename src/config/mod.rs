//! deploy.toml: text -> every problem at once, each with its place -> `fleet::model::Fleet`.
//!
//! It may know `fleet` and nothing else of the crate: no environment, no server, no balancer. Files are touched in `load` only;
//! everything else works on texts. Parser, defaults, schema and reference page are made from one table (`keys`).

mod build;
mod compose;
mod docs;
mod export;
mod gateway;
mod keys;
mod mutation;
mod nearest;
mod numbers;
mod overlay;
mod parse;
mod problem;
mod propose;
mod sleep;
mod tenants;
mod tree;
mod url;
mod validate;
mod view;
pub mod yaml;

#[cfg(test)]
mod tests;

pub use compose::{
    AS_READ, ComposeAnswer, ComposeFiles, ComposeNumbers, ComposeOffer, HealthTest, LINTS, Lint, LintFinding,
    ServiceNumbers, ServiceOffer, WHOLE, compose_text_problems, lint_page,
};
pub use docs::{reference, schema, tenants_page};
pub use export::balancer_lines;
pub use gateway::{Gateway, gateway_from, load_gateway};
pub use mutation::{Compose, Mutation, mutations};
pub use numbers::Number;
pub use problem::{Place, Problem, ProblemLine, Problems, Severity, Source};
pub use propose::{Proposal, ServerOffer, proposal};
pub use tenants::{DEFAULTS, LoadedTenants, load_tenants, tenants_from};

use crate::fleet::model::Fleet;
use parse::Missing;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use view::View;

/// A file without errors, as it was read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it says, every default filled in.
    pub fleet: Fleet,
    /// What a person should look at.
    pub warnings: Vec<Problem>,
    /// The folder of deploy.toml: the release's files are relative to it.
    pub dir: PathBuf,
    origins: BTreeMap<String, Place>,
    /// What was written, overlay included, before it was checked.
    tree: tree::Table,
    source: Arc<Source>,
}

impl Loaded {
    /// Where a number comes from, e.g. `deploy.toml:25`; entries of lists go by name: `service.api.shutdown`,
    /// `balancer.group.mythex-api.health.interval`. `None` is a default.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<String> {
        self.place(key).map(|place| format!("{}:{}", place.source.name, place.position().0))
    }

    /// Where a number stands; `None` is a default.
    #[must_use]
    pub fn place(&self, key: &str) -> Option<Place> {
        self.origins.get(key).cloned()
    }
}

/// Reads deploy.toml, and the destination's file beside it over it.
///
/// # Errors
/// Every problem of the files, those of the disk included.
pub fn load(path: &Path, destination: Option<&str>) -> Result<Loaded, Problems> {
    let base = read(path)?;
    let overlay = match destination {
        Some(name) => Some(read_overlay(path, name)?),
        None => None,
    };
    let mut loaded = from_sources(&base, overlay.as_ref())?;
    path.parent().unwrap_or_else(|| Path::new("")).clone_into(&mut loaded.dir);
    Ok(loaded)
}

/// The same from texts; `dir` is empty.
///
/// # Errors
/// Every problem of the texts.
pub fn from_sources(base: &Arc<Source>, overlay: Option<&Arc<Source>>) -> Result<Loaded, Problems> {
    let (mut table, mut problems) = tree::parse(base);
    if let Some(source) = overlay {
        let (over, more) = tree::parse(source);
        problems.extend(more);
        table = overlay::lay(table, over);
    }
    assemble(table, problems, base)
}

/// Checks and builds what was read; `problems` are those of the reading.
fn assemble(table: tree::Table, mut problems: Vec<Problem>, base: &Arc<Source>) -> Result<Loaded, Problems> {
    let tree = table.clone();
    // What is missing may stand in the part that could not be read.
    let readable = problems.is_empty();
    let broken: Vec<(String, usize)> = problems.iter().map(line_of).collect();
    let mut found = Vec::new();
    let missing = if readable { Missing::Told } else { Missing::Unknown };
    let table = parse::check("", table, missing, &mut found);
    problems.extend(found.into_iter().filter(|problem| !broken.contains(&line_of(problem))));
    let root = View::root(&table);
    if readable {
        problems.extend(validate::check(root));
    }
    let (warnings, errors): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(|problem| problem.severity == Severity::Warning);
    if let Some(errors) = Problems::of(errors, &base.name) {
        return Err(errors);
    }
    let Some(fleet) = build::fleet(root) else {
        let text = "this file could not be understood, and no check says why: a fault of handover";
        return Err(Problem::new(&Place::new(base, 0..0), text).hint("please report it with the file").into());
    };
    let mut origins = BTreeMap::new();
    origins_of("", &table, &mut origins);
    Ok(Loaded { fleet, warnings, dir: PathBuf::new(), origins, tree, source: Arc::clone(base) })
}

fn line_of(problem: &Problem) -> (String, usize) {
    (problem.place.source.name.clone(), problem.place.position().0)
}

fn origins_of(prefix: &str, table: &tree::Table, origins: &mut BTreeMap<String, Place>) {
    for entry in &table.entries {
        let key = if prefix.is_empty() { entry.key.clone() } else { format!("{prefix}.{}", entry.key) };
        match &entry.node.value {
            tree::Value::Table(inner) => origins_of(&key, inner, origins),
            tree::Value::List(items) => {
                for item in items {
                    if let tree::Value::Table(inner) = &item.value
                        && let Some(name) = inner.text("name")
                    {
                        origins_of(&format!("{key}.{name}"), inner, origins);
                    }
                }
            }
            _ => {}
        }
        origins.insert(key, entry.node.place.clone());
    }
}

fn read(path: &Path) -> Result<Arc<Source>, Problems> {
    let name = path.display().to_string();
    let unread = |reason: String| Problem::new(&Place::new(&Source::new(name.as_str(), ""), 0..0), reason);
    let bytes = std::fs::read(path).map_err(|error| {
        unread(format!("{name} cannot be read: {error}"))
            .hint("`-c FILE` names another file; docs/reference.md and the deploy.toml of this project show how one is written")
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..at]).into_owned();
        let place = Place::new(&Source::new(name.as_str(), before), at..at);
        Problem::new(&place, format!("{name} is not UTF-8 from here on"))
    })?;
    Ok(Source::new(name, text))
}

fn read_overlay(base: &Path, destination: &str) -> Result<Arc<Source>, Problems> {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, end) = (part(base.file_stem()), part(base.extension()));
    let dir = base.parent().unwrap_or_else(|| Path::new(""));
    let path = dir.join(format!("{stem}.{destination}.{end}"));
    let name = path.display().to_string();
    let missing = |text: String| Problem::new(&Place::new(&Source::new(name.as_str(), ""), 0..0), text);
    if destination.is_empty() || destination.contains(['/', '\\']) {
        return Err(missing(format!("`{destination}` is no destination: a name without slashes")).into());
    }
    if path.is_file() {
        return read(&path);
    }
    let found = destinations(dir, &stem, &end);
    let hint = match nearest::nearest(destination, found.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`? there is {}", found.join(", ")),
        None if found.is_empty() => format!("there is no {stem}.*.{end} at all"),
        None => format!("there is {}", found.join(", ")),
    };
    Err(missing(format!("destination `{destination}` has no file {name}")).hint(hint).into())
}

/// The destinations that have a file.
fn destinations(dir: &Path, stem: &str, end: &str) -> Vec<String> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let (before, after) = (format!("{stem}."), format!(".{end}"));
    let mut found: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_prefix(&before)?.strip_suffix(&after)?.to_owned()))
        .collect();
    found.sort();
    found
}
