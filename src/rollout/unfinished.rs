//! A deploy that broke off, because the machine that ran it died: what its journal says, beside what is there.
//!
//! Where the two differ, what is there counts, and that is said.

use super::ask::on_each;
use super::driver::Ports;
use super::port::{Balancer, Server};
use super::preflight::{NotReady, Order, Over};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::ServerOutcome;
use crate::event::journal::{Journal, Reached};
use crate::fleet::model::{Known, ReleaseId, ServerFacts, ServerName, Snapshot, show_moment};
use crate::server::wire::{Reply, Request};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(25);
/// So many runs of every kind are looked through for the youngest deploy.
const LOOK_BACK: u32 = 20;

/// A deploy that broke off.
#[derive(Debug, Clone, PartialEq)]
pub struct Unfinished {
    /// What it wrote down.
    pub journal: Journal,
}

impl Unfinished {
    /// Who, when, what.
    #[must_use]
    pub fn sentence(&self) -> String {
        let head = &self.journal.head;
        let began = show_moment(head.began);
        let label = head.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
        format!("{} by {}, begun {began}, of release {}{label}", head.what, head.who, head.release.short())
    }
}

/// Reads the journals of every server; the youngest run first.
///
/// # Errors
/// When a server does not give them: whether something was left half done is not known then.
pub async fn journals<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    clock: &Clock,
    newest: u32,
) -> Result<Vec<Journal>, Problem> {
    let names = ports.servers.keys().cloned().collect();
    let mut found = Vec::new();
    for (name, answer) in on_each(ports, names, clock, WITHIN, |_| Request::Journals { newest }).await {
        match answer {
            Ok(Reply::Journals(texts)) => found.extend(texts.iter().filter_map(|text| Journal::read(text))),
            Ok(other) => return Err(not_known(&name, &format!("an answer that was not asked for: {other:?}"))),
            Err(error) => return Err(not_known(&name, &error.to_string())),
        }
    }
    Ok(Journal::merge(found))
}

fn not_known(name: &ServerName, why: &str) -> Problem {
    Problem::new(Exit::Refused, format!("{name}: its journal cannot be read: {why}"))
        .hint("whether an earlier deploy was left half done is not known without it; nothing was touched")
        .on(name)
}

/// The deploys among the journals of every server, the youngest first: who is out of rotation or back is no part of that.
///
/// # Errors
/// As `journals`.
pub async fn deploys<S: Server, B: Balancer>(ports: &Ports<S, B>, clock: &Clock) -> Result<Vec<Journal>, Problem> {
    let mut found = journals(ports, clock, LOOK_BACK).await?;
    found.retain(|journal| journal.head.purpose.is_deploy());
    Ok(found)
}

/// The youngest deploy, if it broke off. Only with the deploy lock in hand: a run that goes on looks the same.
pub(super) async fn find<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    clock: &Clock,
) -> Result<Option<Unfinished>, Problem> {
    let youngest = deploys(ports, clock).await?.into_iter().next();
    Ok(youngest.filter(Journal::is_unfinished).map(|journal| Unfinished { journal }))
}

/// Whether a release may be brought over what was left: the same one goes on with it, another one needs a word.
pub(super) fn fits(
    left: Option<&Unfinished>,
    release: &ReleaseId,
    snapshot: &Snapshot,
    order: &Order,
    say: &dyn Fn(Option<&ServerName>, String),
) -> Result<(), NotReady> {
    let Some(left) = left else { return Ok(()) };
    if left.journal.head.release != *release && order.over == Over::Ask {
        let message = format!("an earlier deploy broke off: {}", left.sentence());
        let problem = Problem::new(Exit::Refused, message).hint(
            "`handover resume` finishes it; `handover deploy --start-over` leaves it and brings this release; \
             `handover rollback` goes back",
        );
        return Err(NotReady { problem, unfinished: Some(Box::new(left.clone())) });
    }
    say(None, format!("goes on where another broke off: {}", left.sentence()));
    for (server, what) in compared(&left.journal, snapshot) {
        say(Some(&server), what);
    }
    Ok(())
}

/// What the journal says of each server, beside what is there.
#[must_use]
pub fn compared(journal: &Journal, snapshot: &Snapshot) -> Vec<(ServerName, String)> {
    let one = |name: &ServerName| {
        let said = match journal.reached(name) {
            Reached::Nothing => return None,
            Reached::Began(step, _) => format!("`{step}` had begun"),
            Reached::Ended(step, ..) => format!("`{step}` had ended"),
            Reached::Done(outcome) => format!("it was {}", word(outcome)),
        };
        let expected = matches!(journal.reached(name), Reached::Done(ServerOutcome::Deployed));
        let found = match snapshot.servers.get(name) {
            Some(Known::Known(facts)) => state(facts),
            Some(Known::Unknown(why)) => format!("how it stands is not known ({why})"),
            None => "it was not looked at".to_owned(),
        };
        let runs = snapshot.servers.get(name).and_then(Known::get).and_then(|facts| facts.current.as_ref());
        let differs = expected != runs.is_some_and(|current| current.manifest.id == journal.head.release);
        let counts = if differs { "; what is there counts" } else { "" };
        Some((name.clone(), format!("by the journal {said}; found: {found}{counts}")))
    };
    journal.head.servers.iter().filter_map(one).collect()
}

fn word(outcome: ServerOutcome) -> &'static str {
    match outcome {
        ServerOutcome::Deployed => "deployed",
        ServerOutcome::Unchanged => "unchanged",
        ServerOutcome::Untouched => "not touched",
        ServerOutcome::FlippedBack => "flipped back",
        ServerOutcome::RolledBack => "rolled back",
        ServerOutcome::LeftStopped => "left stopped",
        ServerOutcome::LeftOut => "left out of rotation",
        ServerOutcome::Drained => "drained",
        ServerOutcome::Undrained => "back in rotation",
        ServerOutcome::StaysOut => "still out of rotation",
        ServerOutcome::Unknown => "in a state that could not be learnt",
    }
}

fn state(facts: &ServerFacts) -> String {
    let current = facts.current.as_ref().map_or("no release of ours", |current| current.manifest.id.short());
    let runs = if facts.containers.is_empty() { "nothing runs" } else { "its containers are there" };
    let out = match (&facts.absence, facts.drained) {
        (Some(absence), _) => format!(", left out ({})", absence.reason),
        (None, true) => ", drained".to_owned(),
        (None, false) => String::new(),
    };
    format!("{current} is current, {runs}{out}")
}
