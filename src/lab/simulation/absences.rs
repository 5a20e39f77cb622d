//! One simulated server that leaves rotation and comes back, with faults from a seed: it is in or out in the end, never
//! between, and nobody stops anything.

use super::dice::Dice;
use super::faults::{Fault, drawn};
use super::play::{first, order, quiet};
use super::world::{Inner, Violation, World};
use crate::clock::Stamp;
use crate::event::ServerOutcome;
use crate::fleet::model::{Absence, Fleet, ServerName};
use crate::rollout::{Deployed, Source};
use std::time::Duration;

/// Draining takes about so long, and coming back too.
const LENGTH: Duration = Duration::from_secs(60);

/// Plays the run of a seed; what was not kept is the answer.
pub(super) async fn play(fleet: &Fleet, seed: u64) -> Vec<Violation> {
    let world = World::new(fleet, seed, None).await;
    let Some(server) = Dice::new(seed, 7).one(&fleet.servers).map(|server| server.name.clone()) else {
        return Vec::new();
    };
    let absence = Absence { ends_when_verified: false, ..Absence::of_a_failure("a person's word") };
    Box::pin(run(&world, &server, Source::Drain(absence), &drawn(fleet, seed, LENGTH))).await;
    Box::pin(run(&world, &server, Source::Undrain, &drawn(fleet, !seed, LENGTH))).await;
    mended(&world).await;
    let deployed = Box::pin(run(&world, &server, Source::Undrain, &[])).await;
    let now = world.clock.now();
    world.with(|inner| {
        let problem = deployed.as_ref().and_then(Deployed::problem).map(|problem| problem.message.clone());
        if problem.is_some() || !inner.is_in(&server) {
            let what = format!("with every fault gone it could not be brought back: {problem:?}");
            inner.violation(3, Some(&server), "undrain", what);
        }
        inner.judge_serving(&server, now);
        std::mem::take(&mut inner.violations)
    })
}

/// One run with its faults, and what it left.
async fn run(world: &World, server: &ServerName, source: Source, faults: &[Fault]) -> Option<Deployed> {
    let now = world.clock.now();
    let number = world.with(|inner| {
        (inner.faults, inner.began, inner.lost) = (faults.to_vec(), now, 0);
        inner.dead_runs.len() + 1
    });
    let mut order = order(world, &format!("sim-{number}"), None);
    (order.source, order.options.servers) = (source, Some(vec![server.clone()]));
    let deployed = Box::pin(first(world, order, faults)).await;
    world.with(|inner| inner.judge_done(deployed.as_ref()));
    quiet(world, faults).await;
    let now = world.clock.now();
    world.with(|inner| inner.judge_in_or_out(server, deployed.as_ref(), now));
    deployed
}

/// Every fault is gone, and what died is up.
async fn mended(world: &World) {
    let now = world.clock.now();
    world.with(|inner| {
        inner.faults.clear();
        for machine in inner.machines.values_mut().filter(|machine| machine.running.is_some()) {
            (machine.up, machine.started) = (true, Some(now));
        }
    });
    world.wait(LENGTH).await;
}

impl Inner {
    fn judge_done(&mut self, deployed: Option<&Deployed>) {
        let done = deployed.is_some_and(|deployed| deployed.problem().is_none());
        if done && self.lost > 0 {
            let what = format!("it reports success, and {} requests were lost by its doing", self.lost);
            self.violation(1, None, "", what);
        }
    }

    fn judge_in_or_out(&mut self, server: &ServerName, deployed: Option<&Deployed>, now: Stamp) {
        let ending = deployed.and_then(|deployed| deployed.ending.as_ref().ok());
        let claim: Option<ServerOutcome> = ending.and_then(|ending| ending.each.get(server).copied());
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            self.judge_locks(&name);
            if self.machines[&name].running.is_none() {
                self.violation(2, Some(&name), "", "it was stopped, and nobody was to stop anything".into());
            }
            if name != *server {
                self.judge_serving(&name, now);
            }
        }
        // Whose disk takes nothing more can neither be told to pass nor be written down.
        if self.has(|fault| matches!(fault, Fault::DiskFull(at, _) if at == server)) {
            return;
        }
        if !matches!(claim, Some(ServerOutcome::Untouched | ServerOutcome::Unchanged)) {
            self.judge_claim(server, claim, now);
        }
        let (drained, absent) = (self.machines[server].drained, self.machines[server].absence.is_some());
        if drained != absent && !self.died_by_itself(server, now) {
            let what = format!("it is neither in nor out: drained {drained}, absent {absent}, {claim:?}");
            self.violation(3, Some(server), "", what);
        }
        if !absent {
            self.judge_serving(server, now);
        }
    }
}
