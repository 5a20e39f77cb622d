//! The numbers that a plan is made with: each group's, and from them each step's expected time and deadline.

use super::{PlannedStep, StartsAs, Step, held};
use crate::fleet::model::{
    Drain, DrainBy, Fleet, GroupAttributes, GroupName, GroupView, HealthSettings, Hook, Once, Word,
};
use crate::fleet::patience::ENGINE_MARGIN;
use crate::fleet::release::{DEFAULT_GRACE, Manifest};
use crate::fleet::timing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A look at a server over SSH, or a question to the API.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// An API that is throttled or lags gets so long to say one clear word.
const GUARD_DEADLINE: Duration = Duration::from_secs(60);
/// Seen on the server within.
pub(super) const FLIP_DEADLINE: Duration = Duration::from_secs(20);
/// Beyond the grace periods: the engine's own work.
pub(super) const STOP_SLACK: Duration = Duration::from_secs(30);
/// `docker compose up` of images that are there: usual time.
pub(super) const START_EXPECTED: Duration = Duration::from_secs(3);
/// The longest that AWS user reports saw a deregistered target take traffic on.
const DEREGISTER_AT_LEAST: Duration = Duration::from_secs(60);

/// What the balancer was found to be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupNumbers {
    /// The numbers of its health check.
    pub settings: HealthSettings,
    /// Its attributes.
    pub attributes: GroupAttributes,
    /// Whether targets are addresses.
    pub by_address: bool,
    /// Whose word a target's state is.
    pub word: Word,
}

impl From<&GroupView> for GroupNumbers {
    fn from(view: &GroupView) -> Self {
        Self { settings: view.settings, attributes: view.attributes, by_address: view.by_address, word: view.word }
    }
}

impl GroupNumbers {
    /// How long to wait after the balancer said *out*.
    #[must_use]
    pub fn settle_out(&self, drain: &Drain) -> Duration {
        match self.word {
            Word::Merged => timing::settle(&self.settings, drain.margin),
            Word::EachNode => drain.margin,
        }
    }

    /// How long to wait after the balancer said *healthy*: also for a slow start to end.
    #[must_use]
    pub fn settle_in(&self, drain: &Drain) -> Duration {
        self.settle_out(drain).max(self.attributes.slow_start)
    }

    /// The first moment after the flip at which the balancer can say *out*.
    #[must_use]
    pub fn out_earliest(&self, drain: &Drain) -> Duration {
        if drain.by == DrainBy::Deregister { Duration::ZERO } else { timing::out_earliest(&self.settings) }
    }

    /// When the last node has noticed a flip, at the latest.
    #[must_use]
    pub fn out_nominal(&self) -> Duration {
        timing::out_nominal(&self.settings)
    }

    /// How long a target takes requests on after it was deregistered, whatever is said of it.
    #[must_use]
    pub fn lingers(&self) -> Duration {
        match self.word {
            Word::Merged => DEREGISTER_AT_LEAST,
            Word::EachNode => Duration::ZERO,
        }
    }

    fn out_expected(&self, drain: &Drain) -> Duration {
        match (&drain.by, self.word) {
            (DrainBy::Deregister, Word::Merged) => self.lingers().max(self.attributes.deregistration_delay),
            (DrainBy::Deregister, Word::EachNode) => LOOK,
            _ => timing::out_nominal(&self.settings),
        }
    }

    fn out_deadline(&self, drain: &Drain) -> Duration {
        match (&drain.by, self.word) {
            (DrainBy::Deregister, Word::Merged) => self.out_expected(drain) * 2 + drain.margin,
            _ => drain.max,
        }
    }
}

/// How long all services together are given to stop, by what the release pins or deploy.toml and Compose say of them: one
/// after the other at the worst, which is how Compose has it where they depend on each other.
pub(super) fn grace(fleet: &Fleet, manifest: Option<&Manifest>) -> Duration {
    let pinned = manifest.map(|m| m.services.values().map(|pin| pin.grace).sum());
    pinned.unwrap_or_else(|| fleet.services.iter().map(|s| s.shutdown.max(DEFAULT_GRACE)).sum())
}

/// The steps of one server with their numbers.
pub(super) fn steps(
    fleet: &Fleet,
    groups: &BTreeMap<GroupName, GroupNumbers>,
    own_groups: &[GroupName],
    starts_as: &StartsAs,
    grace: Duration,
    sleeps: bool,
) -> Vec<PlannedStep> {
    if fleet.drain.by.hold().is_some() {
        return held::steps(fleet, groups, own_groups, starts_as, grace, sleeps);
    }
    let drain = &fleet.drain;
    let numbers: Vec<&GroupNumbers> = own_groups.iter().filter_map(|name| groups.get(name)).collect();
    let longest = |of: &dyn Fn(&GroupNumbers) -> Duration| numbers.iter().map(|n| of(n)).max().unwrap_or_default();
    let out = longest(&|n| n.out_expected(drain));
    let settle = longest(&|n| n.settle_out(drain));
    let out_deadline = longest(&|n| n.out_deadline(drain));
    let shutdown = fleet.services.iter().map(|s| s.shutdown).max().unwrap_or_default();
    let started = fleet.services.iter().map(|s| s.deadline).max().unwrap_or_default();
    let in_bound = longest(&|n| timing::in_bound(&n.settings, drain.margin));
    let settle_in = longest(&|n| n.settle_in(drain));
    let step = |step, expected, deadline| PlannedStep { step, expected, deadline };
    let one_look = |name| step(name, LOOK, FLIP_DEADLINE);
    let hook = |name, hook| Some(step(name, LOOK, fleet.hooks.get(hook)?.limit + FLIP_DEADLINE));
    let targets = !numbers.is_empty();
    let mut steps = Vec::new();
    if targets {
        steps.push(step(Step::Guard, LOOK, GUARD_DEADLINE));
    }
    steps.push(lock_step(fleet));
    if targets && starts_as.needs_drain() {
        steps.extend(hook(Step::PreDrain, Hook::PreDrain));
    }
    let flips =
        targets && drain.by != DrainBy::Sigterm && (starts_as.needs_drain() || drain.by.facts().survives_restart);
    if flips {
        steps.push(one_look(Step::Flip));
    }
    if targets && starts_as.needs_drain() && drain.by != DrainBy::Sigterm {
        steps.push(step(Step::Out, out, out_deadline));
    }
    if targets && !matches!(starts_as, StartsAs::Empty) && drain.by != DrainBy::Sigterm {
        let wait = if starts_as.needs_drain() { settle.max(drain.serve.saturating_sub(out)) } else { settle };
        steps.push(step(Step::Settle, proved_after(drain, wait, Duration::ZERO), wait * 2 + drain.max));
    }
    if targets {
        steps.push(step(Step::GuardAgain, LOOK, GUARD_DEADLINE));
    }
    if !matches!(starts_as, StartsAs::Empty) {
        let expected = if drain.by == DrainBy::Sigterm { shutdown.max(out + settle) } else { shutdown };
        steps.push(step(Step::Stop, expected, grace + STOP_SLACK));
    }
    steps.push(step(Step::Start, START_EXPECTED, started.max(STOP_SLACK)));
    steps.push(step(Step::Verify, fleet.rolling.stable, started + fleet.rolling.stable * 2));
    steps.push(one_look(Step::Switch));
    if sleeps {
        steps.push(step(Step::Sleep, LOOK, grace + STOP_SLACK));
    }
    if targets && starts_as.comes_in() {
        if flips {
            steps.push(step(Step::Back, LOOK, back_deadline(drain, &numbers)));
        }
        let in_nominal = longest(&|n| timing::in_nominal(&n.settings));
        steps.push(step(Step::In, in_nominal, drain.back.unwrap_or(in_bound * 3 / 2)));
        let slow_start = longest(&|n| n.attributes.slow_start);
        steps.push(step(Step::SettleIn, proved_after(drain, settle_in, slow_start), settle_in * 2 + in_bound));
    }
    steps.push(unlock_step());
    steps.extend(hook(Step::PostServer, Hook::PostServer));
    steps
}

pub(super) fn lock_step(fleet: &Fleet) -> PlannedStep {
    PlannedStep { step: Step::Lock, expected: LOOK, deadline: fleet.lock.wait + FLIP_DEADLINE }
}

pub(super) fn unlock_step() -> PlannedStep {
    PlannedStep { step: Step::Unlock, expected: LOOK, deadline: FLIP_DEADLINE }
}

/// How long it takes is known to the team alone; its container is looked after besides.
pub(super) fn once_step(once: &Once) -> PlannedStep {
    let deadline = once.limit + ENGINE_MARGIN * 2;
    PlannedStep { step: Step::RunOnce, expected: START_EXPECTED.min(once.limit), deadline }
}

/// How long a settle is expected to take: what is proved node by node needs none of its own.
fn proved_after(drain: &Drain, settle: Duration, counted: Duration) -> Duration {
    if drain.by.nodes().is_some() { counted } else { settle }
}

/// Targets that are addresses wait the deregistration delay out before they can be registered again (AWS user guide,
/// target-group-register-targets).
fn back_deadline(drain: &Drain, numbers: &[&GroupNumbers]) -> Duration {
    if drain.by != DrainBy::Deregister {
        return FLIP_DEADLINE;
    }
    let delay = numbers.iter().filter(|n| n.by_address).map(|n| n.attributes.deregistration_delay).max();
    FLIP_DEADLINE + delay.unwrap_or_default() + drain.margin
}

/// The steps that take a serving server to another release, with a plan's own numbers: for the way back of a server
/// that was deployed already.
#[must_use]
pub fn steps_back(fleet: &Fleet, plan: &super::Plan, server: &super::ServerPlan) -> Vec<PlannedStep> {
    let mut own: Vec<GroupName> = server.targets.iter().map(|target| target.group.clone()).collect();
    own.dedup();
    let grace = plan.services.values().map(|s| s.grace).sum();
    let starts_as = if own.is_empty() { StartsAs::Worker } else { StartsAs::Serving };
    steps(fleet, &plan.groups, &own, &starts_as, grace, server.step(Step::Sleep).is_some())
}
