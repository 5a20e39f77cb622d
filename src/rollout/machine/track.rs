//! One server's way through its steps: forward, and on every other course when something is not proved.

use super::nodes::NodeWatch;
use super::polls::{APART, Polls};
use super::{Cx, secs};
use crate::clock::Stamp;
use crate::event::{Course, Event, ServerOutcome, StepState, Took};
use crate::fleet::model::{GroupName, ReleaseOnDisk, TargetRef};
use crate::fleet::plan::{Plan, PlannedStep, ServerPlan, Step};
use crate::rollout::port::{BalancerError, ServerError};
use crate::server::wire::Reply;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It has not begun.
    Begin,
    /// A server's or the balancer's answer to one order.
    Ticket(u64),
    /// A moment.
    Until(Stamp),
    /// The balancer's word about the groups.
    Views,
}

/// Whether a step is proved.
#[derive(Debug)]
pub(super) enum Progress {
    Stay,
    Proved(Option<String>),
    Failed(Cause),
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) kind: CauseKind,
    pub(super) step: Option<Step>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    pub(super) output: Vec<String>,
}

/// Kinds that somebody decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CauseKind {
    /// The server lock is somebody else's.
    Held,
    /// The guard says no.
    Guard,
    /// Not proved.
    Unproved,
    /// The server is gone or the connection to it.
    Gone,
    /// What was run once did not end well: what it changed is not ours to undo.
    Once,
    /// SIGINT or SIGTERM.
    Interrupted,
}

impl Cause {
    pub(super) fn new(kind: CauseKind, message: impl Into<String>) -> Self {
        Self { kind, step: None, message: message.into(), hint: None, output: Vec::new() }
    }

    pub(super) fn unproved(message: impl Into<String>) -> Self {
        Self::new(CauseKind::Unproved, message)
    }
}

impl From<ServerError> for Cause {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Failed(failure) => {
                Self { hint: failure.hint, output: failure.output, ..Self::new(CauseKind::Unproved, failure.message) }
            }
            ServerError::Late(_) => Self::unproved(error.to_string()),
            ServerError::Lost(_) | ServerError::Unreachable(_) => Self::new(CauseKind::Gone, error.to_string()),
        }
    }
}

/// What the server is to run.
#[derive(Debug, Clone)]
pub(super) enum Destination {
    /// This release.
    Release(Box<ReleaseOnDisk>),
    /// None that we know of.
    Nothing,
}

/// When things happened.
#[derive(Debug, Default)]
pub(super) struct Moments {
    pub(super) locked: Option<Stamp>,
    pub(super) flipped: Option<Stamp>,
    /// When each target was first seen out, or healthy again.
    pub(super) turned: BTreeMap<TargetRef, Stamp>,
    pub(super) started: Option<Stamp>,
    /// When health was told to pass again.
    pub(super) back: Option<Stamp>,
    pub(super) steady_since: Option<Stamp>,
    pub(super) in_again: Option<Stamp>,
    /// Since when a target has been unhealthy for another reason than our flip.
    pub(super) wrong_since: Option<Stamp>,
    /// Targets that were unhealthy for a reason of their own before we came: no node picks them.
    pub(super) broken_before: BTreeSet<TargetRef>,
    /// When the settle is over, as far as the clock alone decides.
    pub(super) settle_until: Option<Stamp>,
    /// The last change of the server's own request counter.
    pub(super) counted: Option<(u64, Stamp)>,
}

/// One server's way.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) plan: ServerPlan,
    pub(super) course: Course,
    pub(super) steps: VecDeque<PlannedStep>,
    pub(super) entered: Stamp,
    pub(super) wait: Wait,
    pub(super) destination: Destination,
    pub(super) moments: Moments,
    pub(super) nodes: NodeWatch,
    pub(super) took: Took,
    pub(super) outcome: Option<ServerOutcome>,
    pub(super) causes: Vec<Cause>,
    /// What was last seen, for whoever asks why it takes so long.
    pub(super) seen: String,
    /// The last log lines of services whose check did not pass.
    pub(super) log: Vec<String>,
    pub(super) restarts: Option<u32>,
    pub(super) locked: bool,
    pub(super) stopped: bool,
    pub(super) said_absent: bool,
    /// The record of its absence was written or ended, as far as anybody knows.
    pub(super) record_changed: bool,
    /// Something of the way back or out failed too: what it was to leave is not known to be so.
    pub(super) undo_failed: bool,
    /// An interrupt waits until the server has answered what it was ordered: what is undone must have ended.
    pub(super) interrupt_waits: bool,
    /// What answers is a look, which may be taken again.
    pub(super) only_looks: bool,
    /// Health is yet to be made to fail in the new containers, because the state died with the old ones.
    pub(super) flip_first: bool,
    pub(super) is_final_check: bool,
    pub(super) is_once: bool,
    pub(super) flip_ordered: bool,
    /// It was deployed and is taken back because another server failed: nothing is wrong with it.
    pub(super) revert: bool,
    said: String,
}

impl Track {
    pub(super) fn new(plan: ServerPlan, course: Course, destination: Destination, now: Stamp) -> Self {
        let steps = plan.steps.iter().copied().collect();
        Self {
            plan,
            course,
            steps,
            entered: now,
            wait: Wait::Begin,
            destination,
            moments: Moments::default(),
            nodes: NodeWatch::default(),
            took: Took::default(),
            outcome: None,
            causes: Vec::new(),
            seen: String::new(),
            log: Vec::new(),
            restarts: None,
            locked: false,
            stopped: false,
            said_absent: false,
            record_changed: false,
            undo_failed: false,
            interrupt_waits: false,
            only_looks: false,
            flip_first: false,
            is_final_check: false,
            is_once: false,
            flip_ordered: false,
            revert: course == Course::RollBack,
            said: String::new(),
        }
    }

    pub(super) fn final_check(mut self) -> Self {
        self.is_final_check = true;
        self
    }

    /// On the way to what ran before, even where that is nothing.
    pub(super) fn goes_back(&self) -> bool {
        matches!(self.course, Course::RollBack | Course::LeaveStopped)
    }

    pub(super) fn is_done(&self) -> bool {
        self.outcome.is_some()
    }

    /// Whether it ended otherwise than planned.
    pub(super) fn failed(&self) -> bool {
        !self.causes.is_empty()
    }

    pub(super) fn takes(&self, ticket: u64) -> bool {
        self.wait == Wait::Ticket(ticket)
    }

    pub(super) fn step(&self) -> Option<PlannedStep> {
        self.steps.front().copied()
    }

    pub(super) fn own_groups(&self) -> BTreeSet<GroupName> {
        self.plan.targets.iter().map(|target| target.group.clone()).collect()
    }

    pub(super) fn wake(&self) -> Option<Stamp> {
        if self.is_done() {
            return None;
        }
        let deadline = self.step().map(|step| self.entered + step.deadline);
        let wait = match self.wait {
            Wait::Until(at) => Some(at),
            Wait::Begin => Some(self.entered),
            Wait::Ticket(_) | Wait::Views => None,
        };
        let settled = self.settle_ends();
        [deadline, wait, settled, self.nodes.next()].into_iter().flatten().min()
    }

    /// Which groups this track wants to hear about, and from when on.
    pub(super) fn wants(&self, plan: &Plan, polls: &Polls) -> Vec<(GroupName, Stamp)> {
        let Some(step) = self.step().filter(|_| !self.is_done()) else { return Vec::new() };
        let not_before = |group: &GroupName| -> Option<Stamp> {
            let numbers = plan.groups.get(group)?;
            let again = Self::asked_last(polls, group).map_or(self.entered, |asked| asked + APART);
            match step.step {
                Step::Guard | Step::GuardAgain => polls.since(group, self.entered).is_none().then_some(self.entered),
                Step::Out => {
                    let earliest = self.moments.flipped.unwrap_or(self.entered) + numbers.out_earliest(&plan.drain);
                    Some(self.nodes.in_step(earliest.max(again)))
                }
                Step::Settle | Step::SettleIn => Some(self.nodes.in_step(self.last_answer(polls, group) + APART * 2)),
                Step::In => {
                    // Who never left is back at once.
                    let left = plan.drain.by.hold().is_none();
                    let earliest = crate::fleet::timing::in_earliest(&numbers.settings);
                    let earliest = self.entered + if left { earliest } else { Duration::ZERO };
                    Some(self.nodes.in_step(earliest.max(again)))
                }
                Step::Stop if self.watches_its_stop(plan) => {
                    Some((self.entered + numbers.out_earliest(&plan.drain)).max(again))
                }
                Step::Back if self.waits_to_register(plan) => Some(again),
                _ => None,
            }
        };
        self.own_groups().into_iter().filter_map(|group| not_before(&group).map(|at| (group, at))).collect()
    }

    fn asked_last(polls: &Polls, group: &GroupName) -> Option<Stamp> {
        polls.get(group)?.asked
    }

    fn last_answer(&self, polls: &Polls, group: &GroupName) -> Stamp {
        polls
            .get(group)
            .and_then(|poll| poll.view.as_ref())
            .map_or(self.entered, |(asked, _)| (*asked).max(self.entered))
    }

    pub(super) fn on_reply(&mut self, cx: &mut Cx<'_>, now: Stamp, result: Result<Reply, ServerError>) {
        let Some(step) = self.step() else { return };
        let progress = match result {
            Ok(reply) => self.replied(cx, now, step, reply),
            Err(ServerError::Failed(failure)) if step.step == Step::Flip && self.goes_back() => {
                // A broken app may not be able to fail its health on purpose: whether it is out is for the balancer to say.
                cx.warn(&self.plan.name, format!("health could not be made to fail on the way back: {failure}"));
                self.moments.flipped = Some(now);
                Progress::Proved(None)
            }
            Err(error @ (ServerError::Late(_) | ServerError::Lost(_))) if step.step == Step::RunOnce => {
                Progress::Failed(self.of_once(cx, format!("whether it was run is not known: {error}")))
            }
            Err(error) => self.call_failed(now, step, error),
        };
        self.settle_progress(cx, now, progress);
        self.interrupt_that_waits(cx, now);
    }

    pub(super) fn on_targets(&mut self, cx: &mut Cx<'_>, now: Stamp, result: Result<(), BalancerError>) {
        let progress = match result {
            Ok(()) => self.targets_ordered(now),
            Err(BalancerError::Unknown(why)) => {
                self.seen = format!("the balancer gave no answer: {why}");
                self.wait = Wait::Until(now + Duration::from_secs(2));
                self.flip_ordered = false;
                Progress::Stay
            }
            Err(BalancerError::Refused(why)) => {
                Progress::Failed(Cause::unproved(format!("the balancer refused: {why}")))
            }
        };
        self.settle_progress(cx, now, progress);
        self.interrupt_that_waits(cx, now);
    }

    /// Moves as far as it goes without news.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        while let Some(step) = self.step().filter(|_| !self.is_done()) {
            let begin = self.wait == Wait::Begin;
            if begin {
                self.announce(cx, step);
                self.wait = Wait::Views;
            }
            let before = (self.steps.len(), self.course);
            self.tell_what_is_seen(cx, step);
            let mut progress = if begin { self.begin(cx, now, step) } else { self.look(cx, now, step) };
            if matches!(progress, Progress::Stay) && now >= self.entered + step.deadline {
                progress = Progress::Failed(self.too_late(step));
            }
            self.settle_progress(cx, now, progress);
            if before == (self.steps.len(), self.course) && self.wait != Wait::Begin {
                return;
            }
        }
    }

    fn tell_what_is_seen(&mut self, cx: &mut Cx<'_>, step: PlannedStep) {
        if self.said != self.seen && !self.seen.is_empty() {
            self.said.clone_from(&self.seen);
            cx.waiting(&self.plan.name, step.step, &self.seen);
        }
    }

    fn announce(&self, cx: &mut Cx<'_>, step: PlannedStep) {
        cx.say(Event::Step {
            server: self.plan.name.clone(),
            step: step.step,
            course: self.course,
            state: StepState::Began,
            seconds: secs(step.expected),
            detail: None,
        });
    }

    fn too_late(&self, step: PlannedStep) -> Cause {
        let within = crate::fleet::model::show_duration(step.deadline);
        let seen = if self.seen.is_empty() { "nothing was seen".to_owned() } else { self.seen.clone() };
        Cause {
            output: self.log.clone(),
            ..Cause::unproved(format!("`{}` was not proved within {within}: {seen}", step.step))
        }
    }

    pub(super) fn settle_progress(&mut self, cx: &mut Cx<'_>, now: Stamp, progress: Progress) {
        let Some(step) = self.step() else { return };
        let took = secs(now.since(self.entered));
        let tell = |state, detail| Event::Step {
            server: self.plan.name.clone(),
            step: step.step,
            course: self.course,
            state,
            seconds: took,
            detail,
        };
        match progress {
            Progress::Stay => {}
            Progress::Proved(detail) => {
                cx.say(tell(StepState::Proved, detail));
                self.note_taken(step.step, now);
                self.steps.pop_front();
                self.enter(now);
                if self.steps.is_empty() {
                    self.finish(cx);
                }
            }
            Progress::Failed(cause) if step.step == Step::Sleep => {
                cx.say(tell(StepState::Failed, Some(cause.message.clone())));
                self.stays_awake(cx, now, &cause);
            }
            Progress::Failed(cause) if self.only_told(step.step) => {
                cx.say(tell(StepState::Failed, Some(cause.message)));
                self.goes_on_all_the_same(cx, now);
            }
            Progress::Failed(mut cause) => {
                cause.step = Some(step.step);
                cx.say(tell(StepState::Failed, Some(cause.message.clone())));
                self.undo(cx, now, step, cause);
            }
        }
    }

    pub(super) fn enter(&mut self, now: Stamp) {
        self.entered = now;
        self.wait = Wait::Begin;
        self.seen.clear();
        self.moments.wrong_since = None;
        self.moments.counted = None;
        self.moments.settle_until = None;
        self.nodes.rest();
        self.flip_ordered = false;
        if self.step().is_some_and(|step| matches!(step.step, Step::Out | Step::In)) {
            self.moments.turned.clear();
        }
    }

    fn note_taken(&mut self, step: Step, now: Stamp) {
        if step == Step::Back {
            self.moments.back = Some(now);
        }
        if self.course != Course::Forward || self.is_aside() {
            return;
        }
        let took = Some(secs(now.since(self.entered)));
        match step {
            Step::Out => self.took.out = self.moments.flipped.map(|flipped| secs(now.since(flipped))),
            Step::Settle => self.took.settle_out = took,
            Step::Stop => self.took.stop = took,
            Step::Verify => {
                self.took.stable = self.moments.steady_since.map(|since| secs(now.since(since)));
                self.took.start =
                    self.moments.started.zip(self.moments.steady_since).map(|(from, to)| secs(to.since(from)));
            }
            Step::Sleep => self.took.sleep = took,
            Step::In => self.took.in_ = took,
            Step::SettleIn => {
                self.took.settle_in = took;
                self.moments.in_again = Some(now);
            }
            Step::Unlock => drop(self.moments.in_again.get_or_insert(now)),
            _ => {}
        }
    }
}
