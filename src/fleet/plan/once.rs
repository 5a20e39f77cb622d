//! What is run once before the first server: on which, and what of it was run for this release already.

use super::numbers::{lock_step, once_step, unlock_step};
use super::planner::Maker;
use super::{ServerPlan, StartsAs, Step};
use crate::fleet::model::{Known, Once, OnceState, ServerName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is run once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OncePlan {
    /// Where, with the steps for it.
    pub server: ServerPlan,
    /// What, in order.
    pub run: Vec<Once>,
    /// What was run for this release before.
    pub done: Vec<String>,
}

impl OncePlan {
    /// Which of them a step is that has so many like it before the end, itself included.
    #[must_use]
    pub fn with_left(&self, left: usize) -> Option<&Once> {
        self.run.get(self.run.len().checked_sub(left)?)
    }
}

impl Maker<'_> {
    /// On the first server that is worked on; where one was begun on another and its end is not known, there.
    pub(super) fn once(&self, batches: &[Vec<ServerPlan>]) -> Option<OncePlan> {
        if self.options.skip_once || self.fleet.run_once.is_empty() {
            return None;
        }
        let planned = || batches.iter().flatten().map(|server| &server.name);
        let (mut run, mut done, mut begun) = (Vec::new(), Vec::new(), None);
        for once in &self.fleet.run_once {
            let found = self.recorded(once);
            if found.iter().any(|(_, state)| *state == OnceState::Done) {
                done.push(once.name.clone());
                continue;
            }
            let unknown = found.into_iter().find(|(_, state)| *state == OnceState::Began).map(|(name, _)| name);
            begun = begun.or(unknown.filter(|name| planned().any(|planned| planned == name)));
            run.push(once.clone());
        }
        let name = begun.or_else(|| planned().next().cloned())?;
        let mut steps = vec![lock_step(self.fleet)];
        steps.extend(run.iter().map(once_step));
        steps.push(unlock_step());
        let server = ServerPlan {
            name,
            starts_as: StartsAs::Worker,
            targets: Vec::new(),
            previous: None,
            adopt: false,
            absence: None,
            asleep: BTreeMap::new(),
            steps,
        };
        Some(OncePlan { server, run, done })
    }

    /// What every server says of it, for this release.
    fn recorded(&self, once: &Once) -> Vec<(ServerName, OnceState)> {
        let Some(release) = self.release else { return Vec::new() };
        let facts = self.snapshot.servers.iter().filter_map(|(name, known)| match known {
            Known::Known(facts) => Some((name, facts)),
            Known::Unknown(_) => None,
        });
        let of_it = |(name, facts): (&ServerName, &crate::fleet::model::ServerFacts)| {
            let mut own = facts.once.iter().rev();
            let record = own.find(|record| record.release == release.id && record.name == once.name)?;
            Some((name.clone(), record.state))
        };
        facts.filter_map(of_it).collect()
    }
}

/// What the second reader finds in it.
pub(super) fn faults(once: &OncePlan) -> Vec<String> {
    let order: Vec<Step> = once.server.steps.iter().map(|step| step.step).collect();
    let mut due = vec![Step::Lock];
    due.extend(once.run.iter().map(|_| Step::RunOnce));
    due.push(Step::Unlock);
    let mut wrong = Vec::new();
    if order != due {
        wrong.push(format!("what is run once has the steps {order:?}"));
    }
    if !once.server.targets.is_empty() {
        wrong.push("what is run once would take targets away".to_owned());
    }
    if once.run.iter().any(|run| once.done.contains(&run.name)) {
        wrong.push("what was run for this release would be run again".to_owned());
    }
    wrong
}
