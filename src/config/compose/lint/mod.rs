//! What in a compose file costs requests or surprises people: each hazard with a name, its line and a way out.
//!
//! The names, and the page about them, are in `table`; what Compose and the engine really do is cited there. A hazard that cannot
//! be told from the text alone is not told: no alarm is better than a false one.

mod file;
mod lifecycle;
mod network;
mod service;
mod table;

pub use table::{LINTS, Lint, lint_page};

use super::files::{ComposeFiles, Project, Service};
use super::numbers::{Reader, Scalar};
use super::vars::Given;
use crate::config::problem::{Place, Problem, Severity};
use crate::fleet::model::Fleet;
use std::collections::{BTreeMap, BTreeSet};

/// One hazard at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintFinding {
    /// Which, and the anchor of its section in `docs/compose-lint.md`.
    pub id: &'static str,
    /// An error where requests are lost or a deploy cannot work.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What is so, in one sentence.
    pub text: String,
    /// The way out.
    pub hint: String,
}

impl LintFinding {
    /// As a problem, to be drawn like those of deploy.toml.
    #[must_use]
    pub fn to_problem(&self) -> Problem {
        let problem = Problem::new(&self.place, self.text.as_str()).label(self.id).hint(self.hint.as_str());
        if self.severity == Severity::Warning { problem.warning() } else { problem }
    }
}

impl ComposeFiles {
    /// Every hazard, in the order of the text. `vars` are the variables that are given here; those of `release.vars` are taken for
    /// given when a release is made.
    #[must_use]
    pub fn lint(&self, fleet: &Fleet, vars: &BTreeMap<String, String>) -> Vec<LintFinding> {
        let given = Given { vars, declared: &fleet.release.vars, app: &fleet.app };
        let project = self.project();
        let active = || project.services.iter().filter(|(_, service)| !service.is_off());
        let mut cx = Cx {
            files: self,
            fleet,
            given,
            project: &project,
            active: active().map(|(name, service)| (name.as_str(), service)).collect(),
            ends: active().flat_map(|(_, service)| lifecycle::awaited_ends(service)).collect(),
            found: Vec::new(),
        };
        file::look(&mut cx);
        for (name, service) in cx.active.clone() {
            service::look(&mut cx, name, service);
            lifecycle::look(&mut cx, name, service);
        }
        network::look(&mut cx);
        let mut found = cx.found;
        let main = |place: &Place| self.doc().is_none_or(|doc| doc.source != place.source);
        found.sort_by_key(|finding| {
            let place = &finding.place;
            (main(place), place.source.name.clone(), place.span.start, finding.id)
        });
        // What several services extend is told once.
        found.dedup_by(|a, b| a.id == b.id && a.place == b.place);
        found
    }
}

/// What every look has at hand.
struct Cx<'a> {
    files: &'a ComposeFiles,
    fleet: &'a Fleet,
    given: Given<'a>,
    project: &'a Project<'a>,
    /// The services that no profile switches off.
    active: Vec<(&'a str, &'a Service<'a>)>,
    /// The services whose end others wait for.
    ends: BTreeSet<String>,
    found: Vec<LintFinding>,
}

impl<'a> Cx<'a> {
    /// Tells a hazard with the severity and the way out that the table has for it.
    fn say(&mut self, id: &'static str, place: Place, text: String) {
        let lint = LINTS.iter().find(|lint| lint.id == id);
        let (severity, hint) = lint.map_or((Severity::Warning, ""), |lint| (lint.severity, lint.way_out));
        self.found.push(LintFinding { id, severity, place, text, hint: hint.to_owned() });
    }

    /// Likewise at the service itself.
    fn say_of(&mut self, id: &'static str, service: &Service<'_>, text: String) {
        if let Some(place) = service.place() {
            self.say(id, place, text);
        }
    }

    fn get(&self, name: &str) -> Option<&'a Service<'a>> {
        self.project.services.get(name).filter(|service| !service.is_off())
    }

    /// The text under a path of keys and its place, where both are certain.
    fn text(&self, service: &Service<'_>, path: &[&str]) -> Option<(Scalar, Place)> {
        let scalar = self.reader().scalar(service, path).ok().flatten()?;
        match service.find(path) {
            super::files::Found::Here(layer, entry) => Some((scalar, layer.place(&entry.node.span))),
            _ => None,
        }
    }

    /// Whether deploy.toml expects the service to answer.
    fn expected(&self, name: &str) -> bool {
        self.fleet.services.iter().any(|service| service.name.as_str() == name)
    }

    /// Whether a gateway may put it to sleep.
    fn sleeps(&self, name: &str) -> bool {
        let hosts = self.fleet.gateway.iter().flat_map(|gateway| &gateway.hosts);
        hosts.filter_map(|host| host.sleep.as_ref()).any(|sleep| sleep.services.iter().any(|one| one.as_str() == name))
    }

    fn reader(&self) -> Reader<'_> {
        Reader { given: &self.given, without: "" }
    }
}
