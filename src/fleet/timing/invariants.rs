//! What the numbers of a fleet must be to each other, so that nothing is lost: each relation with its formula, its two sides and
//! why it matters. `docs/timing.md` is written from this file.

use super::basis::{Basis, Side};
use super::wake::Wake;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What it means when a relation does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know; fails nothing.
    Note,
    /// A check fails; a deploy says so and goes on.
    Warning,
    /// Requests may be lost, or a deploy cannot end well: a deploy refuses.
    Error,
}

/// Reads a relation off a fleet.
pub(super) type OfFleet = fn(&Basis<'_>) -> Vec<Reading>;

/// One relation, and how it is read: off a fleet, or off whatever else it is about.
#[derive(Clone, Copy)]
pub struct Invariant<R = OfFleet> {
    /// Its name, and the anchor of its section in `docs/timing.md`.
    pub id: &'static str,
    /// The relation, as one writes it.
    pub formula: &'static str,
    /// What it means when it does not hold.
    pub severity: Severity,
    /// Why it must hold, in one sentence.
    pub why: &'static str,
    /// Reads it: once for each thing that it is about.
    pub(super) read: R,
}

impl<R> Invariant<R> {
    pub(super) fn relation(&self) -> Relation {
        let Self { id, formula, severity, why, .. } = *self;
        Relation { id, formula, severity, why }
    }
}

/// What is said of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// Its name, and the anchor of its section in `docs/timing.md`.
    pub id: &'static str,
    /// The relation, as one writes it.
    pub formula: &'static str,
    /// What it means when it does not hold.
    pub severity: Severity,
    /// Why it must hold, in one sentence.
    pub why: &'static str,
}

impl<R> fmt::Debug for Invariant<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

/// What the sides of a relation are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Targets.
    Targets,
    /// Pods.
    Pods,
    /// Requests.
    Requests,
    /// Requests a second.
    PerSecond,
    /// Anything else that is counted: requests, connections, health checks.
    Count,
}

/// A relation, read for one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// What it is about: a group, a service; empty where it is the whole fleet.
    pub subject: String,
    /// What must be smaller.
    pub left: Side,
    /// What must be larger.
    pub right: Side,
    /// What both are counted in.
    pub unit: Unit,
    /// Whether both may be equal.
    pub equal: bool,
    /// The numbers that it is made of, by key.
    pub sources: Vec<String>,
    /// What it costs that it does not hold, with its figures, where that is more than the relation's own sentence says.
    pub cost: Option<String>,
}

impl Reading {
    /// Whether it holds; `None` where a side is not known.
    #[must_use]
    pub fn holds(&self) -> Option<bool> {
        let (left, right) = (self.left.value()?, self.right.value()?);
        Some(if self.equal { left <= right } else { left < right })
    }

    /// How much larger the right side is, in the sides' unit; negative where it does not hold.
    #[must_use]
    pub fn margin(&self) -> Option<f64> {
        Some(self.right.value()? - self.left.value()?)
    }

    /// Why it is not known.
    #[must_use]
    pub fn unknown(&self) -> Option<&str> {
        [&self.left, &self.right].into_iter().find_map(Side::unknown)
    }
}

/// A relation and what was read.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Which relation.
    pub invariant: Relation,
    /// What was read.
    pub reading: Reading,
}

impl Finding {
    /// Whether it is known not to hold.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.reading.holds() == Some(false)
    }

    /// Whether a check fails because of it.
    #[must_use]
    pub fn fails_check(&self) -> bool {
        self.is_broken() && self.invariant.severity >= Severity::Warning
    }

    /// Whether a deploy is refused because of it.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_broken() && self.invariant.severity == Severity::Error
    }

    /// Its name with its subject.
    #[must_use]
    pub fn name(&self) -> String {
        match self.reading.subject.as_str() {
            "" => self.invariant.id.to_owned(),
            subject => format!("{}({subject})", self.invariant.id),
        }
    }
}

/// Every relation, read off a fleet.
#[must_use]
pub fn findings(basis: &Basis<'_>) -> Vec<Finding> {
    let read = |invariant: &'static Invariant| {
        (invariant.read)(basis).into_iter().map(|reading| Finding { invariant: invariant.relation(), reading })
    };
    super::catalogue::INVARIANTS.iter().filter(|invariant| enabled(invariant.id)).flat_map(read).collect()
}

/// Every relation of a wake, read off one.
#[must_use]
pub fn of_wake(wake: &Wake) -> Vec<Finding> {
    let read = |invariant: &'static Invariant<_>| {
        let read: super::catalogue::OfWake = invariant.read;
        read(wake).into_iter().map(|reading| Finding { invariant: invariant.relation(), reading })
    };
    super::catalogue::TENANTS.iter().flat_map(read).collect()
}

#[cfg(not(any(test, feature = "without-invariant")))]
fn enabled(_: &str) -> bool {
    true
}

#[cfg(any(test, feature = "without-invariant"))]
fn enabled(id: &str) -> bool {
    WITHOUT.with_borrow(|without| without.as_deref() != Some(id))
}

#[cfg(any(test, feature = "without-invariant"))]
thread_local! {
    /// A build for tests may leave one relation out, to see that its numbers are then found unguarded.
    pub static WITHOUT: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// A duration as a side, in seconds.
pub(super) fn time(time: Duration) -> Side {
    Side::Known(time.as_secs_f64())
}

/// So many pieces as a side.
pub(super) fn count(count: usize) -> Side {
    Side::Known(count as f64)
}
