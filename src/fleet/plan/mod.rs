//! The plan: what will be done to which server in which order, and why it may not be done.
//!
//! One value is printed by `plan`, read by an independent checker and driven by `deploy`.

mod absence;
mod batches;
mod check;
mod findings;
mod found;
mod held;
mod numbers;
mod once;
mod planner;
pub mod safety;
mod snapshot;
mod step;
mod why_not;

pub use absence::{drain, undrain};
pub use check::{Note, check};
pub use numbers::{GroupNumbers, steps_back};
pub use once::OncePlan;
pub use planner::{Options, plan};
pub use safety::{Capacity, Scope};
pub use snapshot::{offline_snapshot, releases_in_fleet};
pub use step::{PlannedStep, Step, Undo};
pub use why_not::WhyNot;

use crate::fleet::model::{Absence, Drain, GroupName, ReleaseId, Rolling, ServerName, ServiceName, TargetRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A plan: specific enough that nothing meaningful is left to choose while it is carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Format number of this record.
    pub format: u32,
    /// What it is for.
    #[serde(default)]
    pub aim: Aim,
    /// What will run afterwards; not known when planned offline.
    pub release: Option<ReleaseId>,
    /// What is run once, before the first batch.
    #[serde(default)]
    pub once: Option<OncePlan>,
    /// Servers that go together, batch after batch.
    pub batches: Vec<Vec<ServerPlan>>,
    /// Servers on which nothing would change.
    pub unchanged: Vec<ServerName>,
    /// What the balancer was found to be set to, by group.
    pub groups: BTreeMap<GroupName, GroupNumbers>,
    /// `[rolling]`.
    pub rolling: Rolling,
    /// `[drain]`.
    pub drain: Drain,
    /// How long the server lock is waited for.
    pub lock_wait: Duration,
    /// How long a request may have to wait at the gateway, where it is held there.
    #[serde(default)]
    pub longest_wait: Option<Duration>,
    /// The lowest capacity that each counting scope will see.
    pub lowest_capacity: Vec<Capacity>,
    /// What would not be zero-downtime, and why; empty unless it was allowed.
    pub not_zero_downtime: Vec<String>,
    /// The guard lets everything pass, because `--allow-downtime` or `--first` said so.
    pub unguarded: bool,
    /// Things worth saying.
    pub warnings: Vec<String>,
    /// How long each service may take from start to verified, and its grace period.
    pub services: BTreeMap<ServiceName, ServiceNumbers>,
}

/// What a plan is for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// It brings a release.
    #[default]
    Deploy,
    /// It takes a server out of rotation and leaves it so, with this record.
    Drain(Absence),
    /// It brings a server back that was out.
    Undrain,
}

/// The same in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A release is brought.
    #[default]
    Deploy,
    /// A server is taken out.
    Drain,
    /// A server is brought back.
    Undrain,
}

impl Purpose {
    /// Whether a release is brought.
    #[must_use]
    pub fn is_deploy(&self) -> bool {
        *self == Self::Deploy
    }
}

impl Aim {
    /// It in one word.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        match self {
            Self::Deploy => Purpose::Deploy,
            Self::Drain(_) => Purpose::Drain,
            Self::Undrain => Purpose::Undrain,
        }
    }
}

/// The numbers of a service that the plan was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceNumbers {
    /// From start to verified.
    pub deadline: Duration,
    /// How long it is given to stop.
    pub grace: Duration,
}

/// What will be done to one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerPlan {
    /// Which.
    pub name: ServerName,
    /// How we find it.
    pub starts_as: StartsAs,
    /// Its targets, all of which must be out before anything stops.
    pub targets: Vec<TargetRef>,
    /// What it can go back to; `None` means that undoing leaves it stopped.
    pub previous: Option<ReleaseId>,
    /// What runs was not brought by us and is saved as a release first.
    pub adopt: bool,
    /// The planned absence that a record on it speaks of.
    pub absence: Option<Absence>,
    /// The services that a gateway has put to sleep there, each with the reason: renewed, verified and asleep again.
    #[serde(default)]
    pub asleep: BTreeMap<ServiceName, String>,
    /// The steps.
    pub steps: Vec<PlannedStep>,
}

/// How a server is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartsAs {
    /// It takes traffic.
    Serving,
    /// It has no targets: nobody sends it anything.
    Worker,
    /// Its targets are unhealthy for another reason than our flip: there is nothing to drain.
    Broken(String),
    /// No container of the project is there.
    Empty,
    /// Left out of rotation by a deploy that failed: it comes in when verified.
    LeftOut(String),
    /// Left out by a person: it is renewed, verified and stays out.
    KeptOut(String),
}

impl StartsAs {
    /// Whether traffic must be drained from it before anything stops.
    #[must_use]
    pub fn needs_drain(&self) -> bool {
        matches!(self, Self::Serving)
    }

    /// Whether it is in rotation afterwards.
    #[must_use]
    pub fn comes_in(&self) -> bool {
        !matches!(self, Self::Worker | Self::KeptOut(_))
    }
}

impl Plan {
    /// Every server that is worked on, in order.
    pub fn servers(&self) -> impl Iterator<Item = &ServerPlan> {
        self.batches.iter().flatten()
    }

    /// What one server's settles would take without a proof node by node, where there is one.
    #[must_use]
    pub fn saved_by_nodes(&self) -> Option<Duration> {
        self.drain.by.nodes()?;
        let saved = self.groups.values().map(|numbers| {
            let out = numbers.settle_out(&self.drain).max(self.drain.serve.saturating_sub(numbers.out_nominal()));
            out + numbers.settle_in(&self.drain).saturating_sub(numbers.attributes.slow_start)
        });
        saved.max()
    }

    /// How long it is expected to take, batch after batch.
    #[must_use]
    pub fn expected(&self) -> Duration {
        let batches: Duration =
            self.batches.iter().map(|batch| batch.iter().map(ServerPlan::expected).max().unwrap_or_default()).sum();
        let once: Duration = self.once.iter().map(|once| once.server.expected()).sum();
        once + batches + self.rolling.pause * u32::try_from(self.batches.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

impl ServerPlan {
    /// How long its steps are expected to take.
    #[must_use]
    pub fn expected(&self) -> Duration {
        self.steps.iter().map(|step| step.expected).sum()
    }

    /// The numbers of one step, where the plan has it.
    #[must_use]
    pub fn step(&self, step: Step) -> Option<&PlannedStep> {
        self.steps.iter().find(|planned| planned.step == step)
    }
}
