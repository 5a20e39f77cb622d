//! The plan for a server whose gateway holds what arrives: it never leaves rotation, so nobody is asked whether it may, and what is
//! reckoned instead is how long a request may have to wait.

use super::numbers::{
    FLIP_DEADLINE, GroupNumbers, LOOK, START_EXPECTED, STOP_SLACK, hook_step, lock_step, unlock_step,
};
use super::planner::Maker;
use super::{Plan, PlannedStep, ServerPlan, StartsAs, Step, WhyNot};
use crate::fleet::held::longest_wait;
use crate::fleet::model::{Fleet, GroupName, Hook, Known};
use crate::fleet::timing;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn steps(
    fleet: &Fleet,
    groups: &BTreeMap<GroupName, GroupNumbers>,
    own_groups: &[GroupName],
    starts_as: &StartsAs,
    grace: Duration,
    sleeps: bool,
) -> Vec<PlannedStep> {
    let started = fleet.services.iter().map(|one| one.deadline).max().unwrap_or_default();
    let shutdown = fleet.services.iter().map(|one| one.shutdown).max().unwrap_or_default();
    let numbers = own_groups.iter().filter_map(|name| groups.get(name));
    let in_bound = numbers.map(|one| timing::in_bound(&one.settings, fleet.drain.margin)).max();
    let step = |step, expected, deadline| PlannedStep { step, expected, deadline };
    let one_look = |name| step(name, LOOK, FLIP_DEADLINE);
    let runs = !matches!(starts_as, StartsAs::Empty);
    let mut steps = vec![lock_step(fleet)];
    let holds = runs && !matches!(starts_as, StartsAs::NoGateway(_));
    if holds {
        steps.extend(hook_step(fleet, Step::PreDrain, Hook::PreDrain));
        steps.push(one_look(Step::Flip));
        steps.push(step(Step::Out, LOOK, fleet.drain.max.max(LOOK)));
    }
    if runs {
        steps.push(step(Step::Stop, shutdown, grace + STOP_SLACK));
    }
    steps.push(step(Step::Start, START_EXPECTED, started.max(STOP_SLACK)));
    steps.push(step(Step::Verify, fleet.rolling.stable, started + fleet.rolling.stable * 2));
    steps.push(one_look(Step::Switch));
    if sleeps {
        steps.push(step(Step::Sleep, LOOK, grace + STOP_SLACK));
    }
    if holds && !matches!(starts_as, StartsAs::KeptOut(_)) {
        steps.push(one_look(Step::Back));
    }
    if let Some(bound) = in_bound.filter(|_| !matches!(starts_as, StartsAs::KeptOut(_))) {
        steps.push(step(Step::In, LOOK, fleet.drain.back.unwrap_or(bound * 3 / 2)));
    }
    if runs && fleet.drain.by.hands_over().is_some() {
        // Twice: to the one beside it, and back to the service's own container.
        steps.push(step(Step::HandOver, START_EXPECTED * 2, (grace + STOP_SLACK * 2) * 2 + started));
    }
    steps.push(unlock_step());
    steps.extend(hook_step(fleet, Step::PostServer, Hook::PostServer));
    steps
}

impl Maker<'_> {
    /// Whether every server's gateway can hold for as long as that.
    pub(super) fn gateways_fit(&mut self, batches: &[Vec<ServerPlan>]) {
        let (Some(by), Some(path)) = (self.fleet.drain.by.hold(), self.fleet.drain.by.file()) else { return };
        let bound = longest_wait(self.fleet);
        for server in batches.iter().flatten().filter(|server| server.step(Step::Flip).is_some()) {
            let Some(Known::Known(facts)) = self.snapshot.servers.get(&server.name) else { continue };
            let missing = match &facts.held {
                _ if self.options.offline => continue,
                Some(Known::Known(seen)) => seen.unfit(by, path, bound),
                Some(Known::Unknown(why)) => vec![why.clone()],
                None => vec!["it was not asked what its gateway holds".to_owned()],
            };
            let missing = missing.into_iter().map(|what| WhyNot::Missing { server: server.name.clone(), what });
            self.why.extend(missing);
        }
    }
}

impl Plan {
    /// How long a request is expected to wait at the gateway, where requests wait there.
    #[must_use]
    pub fn expected_wait(&self) -> Option<Duration> {
        self.drain.by.hold()?;
        let while_held = |server: &ServerPlan| -> Duration {
            let held =
                server.steps.iter().skip_while(|one| one.step != Step::Flip).take_while(|one| one.step < Step::In);
            held.map(|one| one.expected).sum()
        };
        self.servers().map(while_held).max()
    }
}
