//! Whether the promises were kept: what the engine says it left where, beside what is there.

use super::faults::{Fault, Wreck};
use super::world::{Inner, NEW, OLD};
use crate::clock::Stamp;
use crate::event::ServerOutcome;
use crate::fleet::model::{ReleaseId, ServerName};
use crate::rollout::Deployed;
use crate::rollout::machine::Ending;
use std::collections::BTreeMap;

type Each = BTreeMap<ServerName, ServerOutcome>;

impl Inner {
    /// Right after the engine said that it is done.
    pub(super) fn judge_success(&mut self, ending: &Ending, now: Stamp) {
        if !matches!(ending.outcome, "deployed" | "unchanged") {
            return;
        }
        let lost = self.lost;
        if lost > 0 {
            self.violation(1, None, "", format!("it reports success, and {lost} requests were lost by its doing"));
        }
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            let release = ReleaseId::new(NEW);
            let current = self.machines[&name].current == Some(release.clone());
            if !(current && (self.passes(&name, &release, now) || self.died_by_itself(&name, now))) {
                let runs = self.machines[&name].running.as_ref().map_or("nothing", ReleaseId::short).to_owned();
                let what =
                    format!("it reports success, and {name} runs {runs} (current: {current}) or does not answer");
                self.violation(1, Some(&name), "", what);
            }
            if self.machines[&name].roused && !self.machines[&name].asleep.is_empty() {
                self.violation(
                    6,
                    Some(&name),
                    "sleep",
                    format!("it reports success, and what slept on {name} is awake"),
                );
            }
        }
    }

    /// When all is quiet: the dead are put right, the faults are over.
    pub(super) fn judge_quiet(&mut self, deployed: Option<&Deployed>, now: Stamp) {
        let each: Option<Each> = deployed.and_then(|d| d.ending.as_ref().ok()).map(|ending| ending.each.clone());
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            self.judge_locks(&name);
            let claim = each.as_ref().and_then(|each| each.get(&name)).copied();
            self.judge_claim(&name, claim, now);
            let left_out =
                matches!(claim, Some(ServerOutcome::LeftOut | ServerOutcome::LeftStopped | ServerOutcome::Unknown));
            if !left_out {
                self.judge_serving(&name, now);
            }
        }
    }

    pub(super) fn judge_locks(&mut self, name: &ServerName) {
        let machine = &self.machines[name];
        if machine.lock.is_some() || machine.deploy_lock.is_some() {
            self.violation(4, Some(name), "", "a lock outlived its holder by more than the lease".into());
        }
    }

    /// Promise 3: says exactly what it left where.
    pub(super) fn judge_claim(&mut self, name: &ServerName, claim: Option<ServerOutcome>, now: Stamp) {
        let machine = &self.machines[name];
        let current = machine.current.as_ref().map(ReleaseId::as_str);
        let runs = machine.running.as_ref().map(ReleaseId::as_str);
        let died = self.died_by_itself(name, now);
        let as_said = match claim {
            None | Some(ServerOutcome::Unknown) => true,
            Some(ServerOutcome::Deployed) => current == Some(NEW) && (runs == Some(NEW) || died),
            Some(ServerOutcome::Unchanged | ServerOutcome::Untouched | ServerOutcome::FlippedBack) => {
                (current == runs || died) && !machine.drained
            }
            Some(ServerOutcome::RolledBack) => current == Some(OLD) && (runs == Some(OLD) || died) && !machine.drained,
            Some(ServerOutcome::LeftStopped) => runs.is_none(),
            Some(ServerOutcome::Drained | ServerOutcome::StaysOut) => machine.absence.is_some() && machine.drained,
            Some(ServerOutcome::Undrained) => machine.absence.is_none() && !machine.drained,
            Some(ServerOutcome::LeftOut) => machine.absence.is_some() && (machine.drained || runs.is_none()),
        };
        if !as_said {
            let what = format!(
                "it says {claim:?}; current is {}, {} runs, drained: {}, absence: {}",
                current.unwrap_or("none"),
                runs.unwrap_or("nothing"),
                machine.drained,
                machine.absence.is_some()
            );
            self.violation(3, Some(name), "", what);
        }
    }

    /// Promise 3: the fleet serves.
    pub(super) fn judge_serving(&mut self, name: &ServerName, now: Stamp) {
        let own_fault =
            self.died_by_itself(name, now) || self.has(|fault| matches!(fault, Fault::DiskFull(at, _) if at == name));
        let bad_release = self.machines[name].runs_new()
            && matches!(self.wreck(name), Some(Wreck::DiesAfter(_) | Wreck::Unreachable));
        if own_fault || bad_release || self.is_in(name) {
            return;
        }
        let machine = &self.machines[name];
        let what = format!(
            "it no longer serves: {} runs (up: {}), drained: {}, absence: {}, state {:?}",
            machine.running.as_ref().map_or("nothing", ReleaseId::short),
            self.answers(name, now),
            machine.drained,
            machine.absence.is_some(),
            machine.state
        );
        self.violation(3, Some(name), "", what);
    }

    /// After the cause was mended and the deploy was finished.
    pub(super) fn judge_finished(&mut self, deployed: &Deployed, now: Stamp) {
        if let Some(problem) = deployed.problem() {
            let what = format!("with every fault gone it could not be finished: {}", problem.message);
            return self.violation(3, problem.server.as_ref(), "resume", what);
        }
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            let release = ReleaseId::new(NEW);
            if !self.passes(&name, &release, now) || !self.is_in(&name) {
                self.violation(3, Some(&name), "resume", "it was finished, and does not serve the release".into());
            }
        }
    }
}
