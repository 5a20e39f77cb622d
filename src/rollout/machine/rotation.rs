//! Waiting for the balancer: out, in, and the settles after them, with the guard looking on.

use super::judge::{self, Targets};
use super::track::{Cause, Progress, Track, Wait};
use super::{Cx, Protection};
use crate::clock::Stamp;
use crate::event::Course;
use crate::fleet::model::DrainBy;
use crate::fleet::nodes::Told;
use crate::fleet::plan::{GroupNumbers, Step};
use crate::server::wire::Request;
use std::time::Duration;

/// Between two readings of the server's own count.
const COUNT_AGAIN: Duration = Duration::from_secs(1);

impl Track {
    /// Notes which targets turned, and forgets those that turned back; the guard looks on.
    pub(super) fn watch_out(&mut self, cx: &Cx<'_>, now: Stamp, wanted: Targets) -> Option<Cause> {
        let since = if wanted == Targets::Out { self.moments.flipped.unwrap_or(self.entered) } else { self.entered };
        let mut wrong = None;
        for target in self.plan.targets.clone() {
            let Some(poll) = cx.polls.get(&target.group) else { continue };
            // On the way forward that is the end; on the way back there is nothing better than to go on asking.
            if let Some(why) = &poll.refused {
                if self.course == Course::Forward {
                    return Some(Cause::unproved(format!("the balancer refused: {why}")));
                }
                self.seen = format!("the balancer refused: {why}");
                continue;
            }
            if cx.polls.since(&target.group, since).is_none() {
                if let Some(why) = &poll.unknown {
                    self.seen = format!("the balancer gave no answer: {why}");
                }
                continue;
            }
            match judge::target(cx, self, &target, since, wanted) {
                Ok(()) => {
                    self.moments.turned.entry(target).or_insert(now);
                }
                Err(seen) => {
                    self.moments.turned.remove(&target);
                    if seen.wrong {
                        wrong = Some(seen.what.clone());
                    }
                    self.seen = seen.what;
                }
            }
        }
        self.broke(cx, now, wrong)
    }

    /// A drained server that answers its health check with anything but our 503 has broken; one such answer may be a blip.
    fn broke(&mut self, cx: &Cx<'_>, now: Stamp, wrong: Option<String>) -> Option<Cause> {
        let Some(what) = wrong else {
            self.moments.wrong_since = None;
            return None;
        };
        let since = *self.moments.wrong_since.get_or_insert(now);
        let patience = judge::longest(cx, &self.own_groups(), |n| n.settings.interval + n.settings.timeout);
        (now.since(since) >= patience).then(|| Cause::unproved(format!("it broke while it was drained: {what}")))
    }

    fn all_turned(&self) -> bool {
        self.plan.targets.iter().all(|target| self.moments.turned.contains_key(target))
    }

    fn guard_meanwhile(&self, cx: &Cx<'_>) -> Option<Cause> {
        if self.course != Course::Forward {
            return None;
        }
        match judge::guard(cx, self, self.moments.flipped.unwrap_or(self.entered)) {
            Some(Err(cause)) => Some(cause),
            _ => None,
        }
    }

    pub(super) fn look_out(&mut self, cx: &mut Cx<'_>, now: Stamp) -> Progress {
        self.ask_nodes(cx, now);
        self.moments.flipped.get_or_insert(now);
        if let Some(cause) = self.watch_out(cx, now, Targets::Out).or_else(|| self.guard_meanwhile(cx)) {
            return Progress::Failed(cause);
        }
        if !self.all_turned() {
            self.wait = Wait::Views;
            return Progress::Stay;
        }
        if cx.setup.plan.drain.by == DrainBy::Deregister {
            let lingers = judge::longest(cx, &self.own_groups(), GroupNumbers::lingers);
            let until = self.moments.flipped.unwrap_or(now) + lingers;
            if now < until {
                self.wait = Wait::Until(until);
                return Progress::Stay;
            }
        }
        Progress::Proved(Some(format!("{} of {} targets out", self.moments.turned.len(), self.plan.targets.len())))
    }

    /// When the settle is over, as far as the clock alone decides.
    pub(super) fn settle_ends(&self) -> Option<Stamp> {
        self.step().filter(|step| matches!(step.step, Step::Settle | Step::SettleIn))?;
        self.moments.settle_until
    }

    pub(super) fn look_settle(&mut self, cx: &mut Cx<'_>, now: Stamp, due: bool) -> Progress {
        if cx.setup.lacks(Protection::Settle) {
            return Progress::Proved(None);
        }
        let drained = self.drains();
        if drained {
            self.ask_nodes(cx, now);
        }
        let drain = &cx.setup.plan.drain;
        let against = drained.then(|| self.watch_out(cx, now, Targets::Out).or_else(|| self.guard_meanwhile(cx)));
        if let Some(cause) = against.flatten() {
            return Progress::Failed(cause);
        }
        let counts = drain.counter.is_some() && drained;
        if counts && (due || self.wait == Wait::Views) {
            self.only_looks = true;
            self.wait = Wait::Ticket(cx.call(&self.plan.name, Request::Count, COUNT_AGAIN * 5));
        }
        if drained && !self.all_turned() {
            self.moments.settle_until = None;
            return Progress::Stay;
        }
        let proved = drained && self.told_by_nodes(cx, now, Told::Out);
        let mut ends = match proved {
            true => now,
            false if drained => self.moments.flipped.unwrap_or(self.entered) + drain.serve,
            false => self.entered,
        };
        for target in self.plan.targets.iter().filter(|_| !proved) {
            let Some(numbers) = cx.setup.plan.groups.get(&target.group) else { continue };
            let from = if drained { self.moments.turned.get(target).copied().unwrap_or(now) } else { self.entered };
            ends = ends.max(from + numbers.settle_out(drain));
        }
        self.moments.settle_until = Some(ends);
        if now < ends {
            return Progress::Stay;
        }
        self.moments.settle_until = None;
        let silence = judge::longest(cx, &self.own_groups(), |n| n.settings.interval + n.settings.timeout);
        match self.moments.counted {
            _ if !counts => Progress::Proved(self.nodes.proof(Told::Out)),
            Some((count, since)) if now.since(since) >= silence => {
                Progress::Proved(Some(format!("silent at {count} requests")))
            }
            Some((count, _)) => {
                self.seen = format!("the server still counts requests ({count})");
                Progress::Stay
            }
            None => {
                self.seen = "the server's own count could not be read".into();
                Progress::Stay
            }
        }
    }

    pub(super) fn counted(&mut self, now: Stamp, count: Option<u64>) {
        match (count, self.moments.counted) {
            (None, _) => self.moments.counted = None,
            (Some(count), Some((before, _))) if count == before => {}
            (Some(count), _) => self.moments.counted = Some((count, now)),
        }
    }

    pub(super) fn look_in(&mut self, cx: &mut Cx<'_>, now: Stamp) -> Progress {
        self.ask_nodes(cx, now);
        if let Some(cause) = self.watch_out(cx, now, Targets::Healthy) {
            return Progress::Failed(cause);
        }
        if self.all_turned() { Progress::Proved(None) } else { Progress::Stay }
    }

    pub(super) fn look_settle_in(&mut self, cx: &mut Cx<'_>, now: Stamp) -> Progress {
        self.ask_nodes(cx, now);
        if let Some(cause) = self.watch_out(cx, now, Targets::Healthy) {
            return Progress::Failed(cause);
        }
        if cx.setup.lacks(Protection::SettleIn) {
            return Progress::Proved(None);
        }
        if !self.all_turned() {
            self.moments.settle_until = None;
            return Progress::Stay;
        }
        let proved = self.told_by_nodes(cx, now, Told::In);
        let ends = self.plan.targets.iter().filter_map(|target| {
            let numbers = cx.setup.plan.groups.get(&target.group)?;
            let settle = if proved { numbers.attributes.slow_start } else { numbers.settle_in(&cx.setup.plan.drain) };
            Some(self.moments.turned.get(target).copied()?.max(self.entered) + settle)
        });
        let ends = ends.max().unwrap_or(now);
        self.moments.settle_until = Some(ends);
        if now < ends { Progress::Stay } else { Progress::Proved(self.nodes.proof(Told::In)) }
    }
}
