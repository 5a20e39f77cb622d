//! Records to counts: by target, inside and outside of the window. Small ids and sums; only the losses that are shown keep a text.

use super::clean::clean;
use super::judge::{Cause, judge};
use super::line::{Broken, ENOUGH, Record, parse};
use crate::event::Requests;
use crate::measure::classify::{self, Class};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::AddAssign;

/// So many losses are kept with their circumstances.
const KEPT: usize = 100;
/// So many targets are told apart; a log that names more was not written by a balancer.
const TARGETS: usize = 10_000;
/// So much of a path is kept.
const PATH: usize = 200;

/// The moments between which a deploy took place: from the first on, and before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The first moment that belongs to it.
    pub from: Option<i64>,
    /// The first moment that does not any more.
    pub to: Option<i64>,
}

impl Window {
    /// Whether there is one at all: without, everything is inside.
    #[must_use]
    pub fn given(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    fn holds(&self, moment: i64) -> bool {
        self.from.is_none_or(|from| moment >= from) && self.to.is_none_or(|to| moment < to)
    }
}

/// What is asked of a log.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Which part of it is the deploy's.
    pub window: Window,
    /// The health paths of the groups that are drained by a flip.
    pub health_paths: Vec<String>,
}

/// The counts of one side of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Side {
    /// By class.
    pub requests: Requests,
    /// The lost ones by cause, in the order of [`Cause::ALL`].
    pub causes: [u64; Cause::ALL.len()],
}

impl AddAssign for Side {
    fn add_assign(&mut self, more: Self) {
        let (sum, more_requests) = (&mut self.requests, more.requests);
        sum.total += more_requests.total;
        sum.served += more_requests.served;
        sum.app_errors += more_requests.app_errors;
        sum.nowhere += more_requests.nowhere;
        sum.cut_short += more_requests.cut_short;
        sum.drain_signals += more_requests.drain_signals;
        sum.client_gone += more_requests.client_gone;
        self.causes.iter_mut().zip(more.causes).for_each(|(sum, more)| *sum += more);
    }
}

/// The counts of one target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// Its address and port; none where no target was chosen.
    pub target: Option<String>,
    /// Inside of the window.
    pub inside: Side,
    /// Outside of it.
    pub outside: Side,
}

/// A request that was lost inside of the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// When it came.
    pub at: i64,
    /// It was the how manieth that was read: equal moments keep their order.
    order: u64,
    /// For which target.
    pub target: Option<String>,
    /// What the client got.
    pub status: Option<u16>,
    /// How it was lost.
    pub class: Class,
    /// Why.
    pub cause: Cause,
    /// What was asked: the method and the path without a query string.
    pub request: String,
}

impl Ord for Loss {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Loss {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Everything that was counted.
#[derive(Debug, Default)]
pub struct Tally {
    rules: Rules,
    ids: HashMap<Box<[u8]>, usize>,
    /// The first is that of the requests without a target.
    targets: Vec<Counted>,
    /// The latest on top, so that it makes room for an earlier one: files come in any order.
    losses: BinaryHeap<Loss>,
    /// How many lines were counted.
    pub records: u64,
    /// The first and the last moment at which a request came.
    pub span: Option<(i64, i64)>,
    /// How many lines do not say when their request came.
    pub counted_back: u64,
    /// How many 502, 503 and 504 of the balancer no rule had forwarded.
    pub unforwarded: u64,
}

impl Tally {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, targets: vec![Counted::default()], ..Self::default() }
    }

    /// Counts a line; gives how many fields it has. `before` is how many lines of the same file had before it.
    ///
    /// # Errors
    /// When it cannot be counted.
    pub fn take<'a>(&mut self, line: &'a [u8], before: usize) -> Result<usize, Broken<'a>> {
        let record = parse(line)?;
        // Without its actions a cut-off fixed response would look like a loss.
        if record.fields < before && record.fields < ENOUGH {
            return Err(Broken::CutOff { fields: record.fields, before });
        }
        self.count(&record);
        Ok(record.fields)
    }

    fn count(&mut self, record: &Record<'_>) {
        let judged = judge(record, |path| self.rules.health_paths.iter().any(|health| health.as_bytes() == path));
        let came = record.came();
        let inside = self.rules.window.holds(came);
        let id = self.id(record.target);
        let counted = &mut self.targets[id];
        let side = if inside { &mut counted.inside } else { &mut counted.outside };
        classify::count(&mut side.requests, judged.class);
        if let Some(cause) = judged.cause {
            side.causes[cause as usize] += 1;
            if inside {
                self.keep(record, came, judged.class, cause);
            }
        }
        self.records += 1;
        self.counted_back += u64::from(record.created.is_none());
        self.unforwarded += u64::from(judged.unforwarded);
        self.span = Some(self.span.map_or((came, came), |(first, last)| (first.min(came), last.max(came))));
    }

    fn id(&mut self, target: Option<&[u8]>) -> usize {
        let Some(target) = target else { return 0 };
        if let Some(id) = self.ids.get(target) {
            return *id;
        }
        let (id, name) = match self.targets.len() {
            next if next < TARGETS => (next, clean(target, target.len())),
            _ => (TARGETS, "others".to_owned()),
        };
        if id < TARGETS {
            self.ids.insert(target.into(), id);
        }
        if id == self.targets.len() {
            self.targets.push(Counted { target: Some(name), ..Counted::default() });
        }
        id
    }

    fn keep(&mut self, record: &Record<'_>, at: i64, class: Class, cause: Cause) {
        if self.losses.len() == KEPT && self.losses.peek().is_some_and(|latest| latest.at <= at) {
            return;
        }
        let path = record.path();
        self.losses.push(Loss {
            at,
            order: self.records,
            target: record.target.map(|target| clean(target, target.len())),
            status: record.status,
            class,
            cause,
            request: format!(
                "{} {}",
                clean(record.method(), 20),
                if path.is_empty() { "-".into() } else { clean(path, PATH) }
            ),
        });
        if self.losses.len() > KEPT {
            self.losses.pop();
        }
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> Window {
        self.rules.window
    }

    /// By target: those that lost the most inside of the window first.
    #[must_use]
    pub fn targets(&self) -> Vec<&Counted> {
        let any = |counted: &&Counted| counted.inside.requests.total + counted.outside.requests.total > 0;
        let mut targets: Vec<&Counted> = self.targets.iter().filter(any).collect();
        targets.sort_by(|a, b| {
            let key = |counted: &Counted| std::cmp::Reverse(counted.inside.requests.lost());
            key(a).cmp(&key(b)).then_with(|| a.target.cmp(&b.target))
        });
        targets
    }

    /// All targets together: inside, outside.
    #[must_use]
    pub fn sums(&self) -> (Side, Side) {
        let mut sums = (Side::default(), Side::default());
        for counted in &self.targets {
            sums.0 += counted.inside;
            sums.1 += counted.outside;
        }
        sums
    }

    /// The first losses inside of the window, by the moment at which their requests came.
    #[must_use]
    pub fn losses(&self) -> Vec<&Loss> {
        let mut losses: Vec<&Loss> = self.losses.iter().collect();
        losses.sort();
        losses
    }
}
