//! What is run once in the simulation, and the promise about it: before any server is started, and never twice for one release.

use super::agent::Worker;
use super::world::{Inner, NEW};
use crate::fleet::model::{Once, OnceRecord, OnceState, ReleaseId, ServerName, note_once};
use crate::server::wire::{Failure, OnceEnd, Reply};
use std::time::Duration;

/// How long it takes.
const TAKES: Duration = Duration::from_secs(20);

impl Worker {
    pub(super) async fn once(&self, release: &ReleaseId, once: &Once) -> Result<Reply, Failure> {
        let note = |state| {
            self.with(|inner, now| {
                let at = now.since_start().as_secs();
                let record = OnceRecord { release: release.clone(), name: once.name.clone(), state, at };
                if let Some(machine) = inner.machines.get_mut(&self.server) {
                    note_once(&mut machine.once, record);
                }
            });
        };
        // The container is there still where an agent was killed: its end is waited for.
        let (begun, fails) = self.with(|inner, _| {
            let own = inner.machines.get(&self.server).map(|machine| machine.once.clone()).unwrap_or_default();
            let is_done = |r: &OnceRecord| r.release == *release && r.name == once.name && r.state == OnceState::Done;
            if own.iter().any(is_done) {
                return (true, false);
            }
            let begun = inner.once_state(once, release).contains(&OnceState::Began);
            if !begun {
                inner.judge_once(&self.server, once, release);
            }
            (begun, !begun && inner.once_fails())
        });
        if !begun {
            note(OnceState::Began);
        }
        self.world.clock.sleep(TAKES).await;
        note(if fails { OnceState::Failed } else { OnceState::Done });
        Ok(Reply::Once(OnceEnd { code: Some(i32::from(fails)), output: Vec::new(), took: TAKES }))
    }
}

impl Inner {
    fn once_state(&self, once: &Once, release: &ReleaseId) -> Vec<OnceState> {
        let own = |record: &&OnceRecord| record.release == *release && record.name == once.name;
        self.machines.values().flat_map(|machine| machine.once.iter().filter(own)).map(|record| record.state).collect()
    }

    /// The first try of every third seed.
    fn once_fails(&mut self) -> bool {
        self.once_tries += 1;
        self.seed.is_multiple_of(3) && self.once_tries == 1
    }

    fn judge_once(&mut self, name: &ServerName, once: &Once, release: &ReleaseId) {
        if self.once_state(once, release).contains(&OnceState::Done) {
            let what = format!("{} was run for this release, and is run again", once.name);
            self.violation(3, Some(name), "run_once", what);
        }
        let touched = self.machines.iter().find(|(_, machine)| machine.runs_new() && machine.current.is_none());
        if let Some(touched) = touched.map(|(name, _)| name.clone()) {
            let what = format!("{} is run while {touched} is half deployed", once.name);
            self.violation(3, Some(name), "run_once", what);
        }
    }

    /// The new release is started nowhere before what is run once has ended well.
    pub(super) fn judge_start(&mut self, name: &ServerName, release: &ReleaseId) {
        if release.as_str() != NEW {
            return;
        }
        for once in self.fleet.run_once.clone() {
            if !self.once_state(&once, release).contains(&OnceState::Done) {
                self.violation(2, Some(name), "start", format!("it was started before {} was run", once.name));
            }
        }
    }
}
