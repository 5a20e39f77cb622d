//! What was observed: values that may also be *unknown*, which is never the same as fine.

use super::{GroupName, HealthSettings, ReleaseId, ServerName, ServiceName, TargetId, Watched, Zone};
use crate::fleet::held::HeldSeen;
use crate::fleet::nodes::NodesSeen;
use crate::fleet::release::Manifest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Something learnt, or why it could not be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known<T> {
    /// It was learnt.
    Known(T),
    /// It was not, and why.
    Unknown(String),
}

impl<T> Known<T> {
    /// The value, where it is known.
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

/// The fleet as it was seen at one moment; good for planning, not for acting: every step looks again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The groups, by the name that deploy.toml has for them.
    pub groups: BTreeMap<GroupName, Known<GroupView>>,
    /// The servers.
    pub servers: BTreeMap<ServerName, Known<ServerFacts>>,
}

/// One server and what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerView {
    /// Which.
    pub name: ServerName,
    /// What is known.
    pub facts: Known<ServerFacts>,
}

/// A target group as the balancer describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupView {
    /// The balancer's own id of it (an ARN).
    pub id: String,
    /// The path of the health check.
    pub path: String,
    /// The port that the health check asks; `None` is each target's own.
    pub health_port: Option<u16>,
    /// The numbers of the health check.
    pub settings: HealthSettings,
    /// The attributes that matter.
    pub attributes: GroupAttributes,
    /// What some of those do not go with.
    pub beside: Beside,
    /// The load balancers that it is attached to, by the balancer's own ids of them.
    pub fronts: Vec<String>,
    /// Whether targets are addresses: those wait the deregistration delay out before they can be registered again.
    pub by_address: bool,
    /// Whose word a target's state is.
    pub word: Word,
    /// Every registered target.
    pub targets: Vec<TargetView>,
    /// What somebody who deploys should know of it, each as a sentence.
    pub notes: Vec<String>,
}

/// Whose word a target's state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// One word for many nodes, which decide one by one: the last may be late.
    Merged,
    /// Every node was asked, and a state is what all of them say.
    EachNode,
}

/// Attributes of a group (AWS API: `DescribeTargetGroupAttributes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAttributes {
    /// `load_balancing.cross_zone.enabled`, with the load balancer's own setting (always on) resolved.
    pub cross_zone: bool,
    /// `target_group_health.unhealthy_state_routing.minimum_healthy_targets.count`.
    pub fail_open_count: u32,
    /// The same as a percentage; `None` is off.
    pub fail_open_percent: Option<u32>,
    /// `deregistration_delay.timeout_seconds`.
    pub deregistration_delay: Duration,
    /// `slow_start.duration_seconds`; zero is off.
    pub slow_start: Duration,
}

/// Attributes of a group that deploy.toml does not have, and that others do not go with (AWS user guide).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Beside {
    /// `stickiness.enabled`.
    pub sticky: bool,
    /// `load_balancing.algorithm.type`, where it is told.
    pub algorithm: Option<String>,
    /// `target_group_health.dns_failover.minimum_healthy_targets.count`, where it is told and on.
    pub dns_count: Option<u32>,
    /// The same as a percentage.
    pub dns_percent: Option<u32>,
}

/// A load balancer's own numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontView {
    /// The balancer's own id of it (an ARN).
    pub id: String,
    /// `idle_timeout.timeout_seconds`.
    pub idle_timeout: Duration,
}

impl FrontView {
    /// What people call it.
    #[must_use]
    pub fn name(&self) -> &str {
        front_name(&self.id)
    }
}

/// The name in a load balancer's ARN: `.../loadbalancer/app/NAME/ID`.
#[must_use]
pub fn front_name(id: &str) -> &str {
    id.rsplit('/').nth(1).unwrap_or(id)
}

/// A target as the balancer describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetView {
    /// Its id.
    pub id: TargetId,
    /// Its port.
    pub port: u16,
    /// Its zone, where the balancer says so.
    pub zone: Option<Zone>,
    /// Its state.
    pub state: TargetState,
    /// Why, where the balancer says so.
    pub reason: Option<TargetReason>,
    /// The balancer's own sentence.
    pub description: Option<String>,
    /// Whether somebody shifted traffic away from it.
    pub shift: OverrideState,
}

/// `TargetHealth.State` (AWS API reference).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetState {
    /// Registered, not checked yet.
    Initial,
    /// Takes traffic.
    Healthy,
    /// Failed its checks.
    Unhealthy,
    /// In no use.
    Unused,
    /// Being deregistered.
    Draining,
    /// Not checked at all.
    Unavailable,
    /// A word that we do not know.
    Other(String),
}

/// `TargetHealth.Reason` (AWS API reference).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetReason {
    /// `Target.ResponseCodeMismatch`: our own 503 looks like this.
    ResponseCodeMismatch,
    /// `Target.Timeout`.
    Timeout,
    /// `Target.FailedHealthChecks`: nobody listens.
    FailedHealthChecks,
    /// Any other, as AWS writes it.
    Other(String),
}

/// `AdministrativeOverride.State`: a zonal shift takes a healthy target's traffic away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideState {
    /// None.
    None,
    /// A shift is on, in AWS's word.
    Shifted(String),
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The Compose version, e.g. `2.40.3`.
    pub compose: String,
    /// The engine's version.
    pub engine: String,
    /// Rights and things that are missing, each as a sentence; empty where nothing is.
    pub missing: Vec<String>,
    /// Bytes free where releases lie.
    pub disk_free: u64,
    /// The last release verified here.
    pub current: Option<ReleaseOnDisk>,
    /// The one before.
    pub previous: Option<ReleaseOnDisk>,
    /// The one being tried.
    pub incoming: Option<ReleaseId>,
    /// Every container of the project, the stopped ones too.
    pub containers: Vec<Container>,
    /// Whether health is made to fail on purpose now.
    pub drained: bool,
    /// Whether a person did that, by a drain file of his own, and no record says why: nobody else takes it away.
    #[serde(default)]
    pub by_hand: bool,
    /// Left out of rotation on purpose, and why.
    pub absence: Option<Absence>,
    /// Who holds the server lock.
    pub lock: Option<Holder>,
    /// Who holds the deploy lock.
    pub deploy_lock: Option<Holder>,
    /// A freeze and its reason.
    pub freeze: Option<Holder>,
    /// What the watchdog saw last; none where none ever looked.
    #[serde(default)]
    pub watchdog: Option<Watched>,
    /// The installed binary's version, where bootstrap and watchdog are installed.
    #[serde(default)]
    pub installed: Option<String>,
    /// The services that a gateway has put to sleep, each with the reason.
    #[serde(default)]
    pub asleep: BTreeMap<ServiceName, String>,
    /// What was run once here, by release.
    #[serde(default)]
    pub once: Vec<super::OnceRecord>,
    /// What lies on the server and is not what was published or told it, each as a sentence.
    #[serde(default)]
    pub drift: Vec<String>,
    /// Who checks its health, where somebody counts.
    #[serde(default)]
    pub nodes: Option<Known<NodesSeen>>,
    /// What the gateway says of what it holds, where the way to drain asks it.
    #[serde(default)]
    pub held: Option<Known<HeldSeen>>,
}

impl ServerFacts {
    /// What the server can go back to: what was last verified here, or what ran before us and was saved.
    #[must_use]
    pub fn way_back(&self) -> Option<&ReleaseOnDisk> {
        let adopted = || self.previous.as_ref().filter(|previous| previous.manifest.id.is_adopted());
        self.current.as_ref().or_else(adopted)
    }
}

/// A release on a server's disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseOnDisk {
    /// What it is.
    pub manifest: Manifest,
    /// The local image ids of its pins, by service; a service whose image is gone is missing.
    pub image_ids: BTreeMap<ServiceName, String>,
}

/// A planned absence of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// Why, as a sentence.
    pub reason: String,
    /// Whether a verified deploy may end it (a failed rollback, a halt) or only a person (`drain`).
    pub ends_when_verified: bool,
    /// Since when, seconds since the epoch; 0 lets the server say.
    pub since: u64,
    /// Until when it was meant to last, seconds since the epoch. Nobody ends it then, but it is called overdue.
    #[serde(default)]
    pub until: Option<u64>,
    /// Who took it out: user and machine.
    #[serde(default)]
    pub by: Option<String>,
}

impl Absence {
    /// One that a verified deploy ends: what a deploy that failed leaves.
    pub fn of_a_failure(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ends_when_verified: true, since: 0, until: None, by: None }
    }

    /// Whether it lasts longer than it was meant to.
    #[must_use]
    pub fn is_overdue(&self, now: u64) -> bool {
        self.until.is_some_and(|until| now > until)
    }
}

/// A container of the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Of which service.
    pub service: ServiceName,
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: ContainerState,
    /// How often the engine restarted it.
    pub restarts: u32,
    /// Its last exit code.
    pub exit_code: i32,
    /// The id of the image that it was made of.
    pub image_id: String,
    /// Docker's own health word, where the image has a check.
    pub health: Option<String>,
}

/// `State.Status` of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Runs.
    Running,
    /// Between two tries.
    Restarting,
    /// Ended.
    Exited,
    /// Any other word of the engine.
    Other(String),
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Who: user and machine, or a command line from /proc/locks.
    pub who: String,
    /// What for.
    pub what: String,
    /// Since when, seconds since the epoch; 0 where it is not known.
    pub since: u64,
    /// The run's id, where it is one of ours.
    pub run: Option<String>,
}
