//! What a simulated agent does when its deploy dies.
//!
//! What is decided then is decided by `fleet::recovery`, as on a real server.

use super::agent::{TICK, Worker};
use super::machine::AgentId;
use super::world::World;
use crate::clock::Stamp;
use crate::fleet::model::{ReleaseId, ServerName};
use crate::fleet::recovery::{PutRight, State, put_right};
use crate::rollout::machine::Protection;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// What an agent does besides what it is asked: it notices that its deploy is dead, and puts its server right.
pub(super) async fn watch(world: World, server: ServerName, agent: AgentId, work: Arc<Mutex<()>>) {
    let (lease, dead_man) = world.with(|inner| (inner.fleet.lock.lease, inner.without != Some(Protection::DeadMan)));
    let (mut silent, mut broken) = (Duration::ZERO, Duration::ZERO);
    loop {
        world.clock.sleep(TICK).await;
        let cut = world.is_cut(&server);
        let (over, goodbye, broke) = world.with(|inner| {
            let found = inner.machines.get(&server).and_then(|machine| machine.agents.get(&agent));
            let death = found.and_then(|found| inner.dead_runs.get(&found.run));
            let over = found.is_none_or(|found| found.ended || found.yields);
            (over, death == Some(&true), death == Some(&false) || found.is_some_and(|found| found.gone))
        });
        if over {
            return;
        }
        silent = if cut { silent + TICK } else { Duration::ZERO };
        broken = if broke && !cut { broken + TICK } else { Duration::ZERO };
        if (goodbye && !cut) || silent >= lease || broken >= lease {
            break;
        }
    }
    // What runs is finished first; what comes after it is for nobody.
    world.with(|inner| inner.close(&server, agent));
    let _one_at_a_time = work.lock().await;
    let worker = Worker { world: world.clone(), server: server.clone(), run: String::new(), agent };
    if dead_man && world.with(|inner| inner.machines[&server].lock == Some(agent)) {
        worker.put_right().await;
    }
    world.with(|inner| {
        if let Some(machine) = inner.machines.get_mut(&server).filter(|machine| machine.lock == Some(agent)) {
            machine.lock_note = None;
        }
        if let Some(machine) = inner.machines.get_mut(&server).filter(|machine| machine.deploy_lock == Some(agent)) {
            machine.deploy_note = None;
        }
        inner.end_agent(&server, agent);
    });
}

impl Worker {
    /// The deploy is dead and nothing runs any more.
    async fn put_right(&self) {
        let (state, drained, out) = self.with(|inner, _| {
            let machine = &inner.machines[&self.server];
            (machine.state.clone(), machine.drained, machine.absence.is_some())
        });
        self.begin_work("dead-man");
        match put_right(&state, drained, out) {
            PutRight::Nothing | PutRight::StaysOut => {}
            PutRight::FlipBackIfItRuns => {
                drop(self.machine(|machine| machine.drained &= machine.running.is_none() || !machine.up));
            }
            PutRight::LetBackIfVerified => {
                let current = self.with(|inner, _| inner.machines[&self.server].current.clone());
                if let Some(current) = current
                    && self.is_verified(&current).await
                {
                    drop(self.machine(|machine| machine.drained = false));
                }
            }
            PutRight::UpButOut => {
                if self.with(|inner, _| inner.fleet.drain.by.facts().survives_restart) {
                    self.bring_current_up(false).await;
                }
            }
            PutRight::BringCurrentUp => self.bring_current_up(true).await,
        }
        self.end_work();
        if !self.is_dead() {
            drop(self.machine(|machine| machine.state = State::Idle));
        }
    }

    async fn bring_current_up(&self, lets_back: bool) {
        let Some(current) = self.with(|inner, _| inner.machines[&self.server].current.clone()) else { return };
        if !self.with(|inner, now| inner.passes(&self.server, &current, now)) {
            self.up(&current).await;
        }
        if self.is_verified(&current).await {
            drop(self.machine(|machine| {
                machine.drained &= !lets_back;
                machine.roused = false;
                machine.incoming = None;
            }));
        }
    }

    /// Whether it passes within its deadline, and stays so.
    async fn is_verified(&self, release: &ReleaseId) -> bool {
        let (longest, stable) = self.with(|inner, _| {
            let deadlines = inner.fleet.services.iter().map(|service| service.deadline).max().unwrap_or_default();
            (deadlines, inner.fleet.rolling.stable)
        });
        let until = self.world.clock.now() + longest;
        let mut since: Option<Stamp> = None;
        while self.world.clock.now() < until && !self.is_dead() {
            let now = self.world.clock.now();
            let passes = self.with(|inner, now| inner.passes(&self.server, release, now));
            since = if passes { Some(since.unwrap_or(now)) } else { None };
            if since.is_some_and(|since| now.since(since) >= stable) {
                return true;
            }
            self.world.clock.sleep(Duration::from_secs(1)).await;
        }
        false
    }
}
