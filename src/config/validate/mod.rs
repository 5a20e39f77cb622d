//! What values must be to each other: names that are used twice or nowhere, checks that would defeat the drain, numbers that
//! AWS would refuse. Everything that can be said without asking a server or the balancer.
//!
//! It may know no default (the view has them) and builds nothing. Invariants of time are `fleet::timing`'s.

mod balancer;
mod drain;
mod release;
mod servers;
mod services;

use super::nearest::nearest;
use super::problem::{Place, Problem};
use super::view::{Said, View};

/// Everything that more than one check looks at.
struct Facts<'a> {
    root: View<'a>,
    balancer: View<'a>,
    drain: View<'a>,
    groups: Vec<View<'a>>,
    services: Vec<View<'a>>,
    servers: Vec<View<'a>>,
}

/// Every problem, warnings included.
pub(super) fn check(root: View<'_>) -> Vec<Problem> {
    let balancer = root.sub("balancer");
    let facts = Facts {
        root,
        balancer,
        drain: root.sub("drain"),
        groups: balancer.subs("group"),
        services: root.subs("service"),
        servers: root.subs("server"),
    };
    let mut problems = Vec::new();
    release::check(&facts, &mut problems);
    balancer::check(&facts, &mut problems);
    drain::check(&facts, &mut problems);
    services::check(&facts, &mut problems);
    servers::check(&facts, &mut problems);
    servers::check_rolling(&facts, &mut problems);
    super::gateway::check(root.sub("gateway"), &mut problems);
    let names: Vec<String> = facts.services.iter().filter_map(|service| service.text("name")).collect();
    super::sleep::check(root.sub("gateway"), Some(&names), &mut problems);
    problems
}

impl<'a> Facts<'a> {
    fn kind_is(&self, word: &str) -> bool {
        self.balancer.said("kind").is_some_and(|said| said.text == word)
    }

    /// Whether health is made to fail while the services go on.
    fn flips(&self) -> bool {
        let ways = ["file", "http", "exec", "signal", "sigterm", "gateway"];
        self.drain.said("by").is_some_and(|said| ways.contains(&said.text))
    }

    /// AWS's own ranges hold for AWS; a lab may be quicker.
    fn is_aws(&self) -> bool {
        self.kind_is("alb") && !self.balancer.has("endpoint")
    }

    fn group_names(&self) -> Vec<&'a str> {
        names(&self.groups)
    }
}

fn names<'a>(tables: &[View<'a>]) -> Vec<&'a str> {
    tables.iter().filter_map(|table| table.said("name")).map(|said| said.text).collect()
}

/// The second of two equal names points to the first.
fn doubles<'a>(said: impl IntoIterator<Item = Said<'a>>, what: &str, problems: &mut Vec<Problem>) {
    let mut seen: Vec<Said<'a>> = Vec::new();
    for one in said {
        match seen.iter().find(|first| first.text == one.text) {
            Some(first) => problems.push(
                Problem::new(one.place, format!("two {what} `{}`", one.text))
                    .label("again here")
                    .second(first.place, "first here"),
            ),
            None => seen.push(one),
        }
    }
}

/// A name that nothing in the file has.
fn stranger(said: Said<'_>, what: &str, known: &[&str]) -> Problem {
    let problem = Problem::new(said.place, format!("there is no {what} `{}`", said.text)).label("not in this file");
    match nearest(said.text, known.iter().copied()) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None if known.is_empty() => problem.hint(format!("the file has no {what}")),
        None => problem.hint(format!("the file has {}", known.join(", "))),
    }
}

/// A key that is written and changes nothing.
fn idle(place: &Place, path: &str, why: &str) -> Problem {
    Problem::new(place, format!("`{path}` has no effect {why}")).label("no effect").hint("take it out")
}
