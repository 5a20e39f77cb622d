//! Why something may not be done: data, tied to what is refused, turned into words only at the end.

use super::Scope;
use crate::fleet::model::{GroupName, ServerName, ServiceName, TargetRef, show_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A reason not to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WhyNot {
    /// Too few healthy targets would be left in a counting scope.
    Capacity {
        /// Which scope.
        scope: Scope,
        /// Healthy now.
        healthy: u32,
        /// Healthy ones that would leave.
        leaving: u32,
        /// So many must stay.
        needed: u32,
    },
    /// No target of a group is healthy: it was never deployed to, or all of it is broken.
    NoneHealthy {
        /// Which.
        group: GroupName,
    },
    /// A zonal shift is on: a target that looks healthy takes no traffic.
    ZonalShift {
        /// For which target.
        target: TargetRef,
        /// AWS's word for it.
        word: String,
    },
    /// Somebody else is draining.
    SomebodyDraining {
        /// Which target.
        target: TargetRef,
    },
    /// A healthy target belongs to no server of deploy.toml and would keep the old release.
    Unclaimed {
        /// Which.
        target: TargetRef,
    },
    /// A server has no target in a group although deploy.toml says so.
    NotRegistered {
        /// The server.
        server: ServerName,
        /// What was looked for.
        target: String,
        /// Where.
        group: GroupName,
    },
    /// A target is in a state that can neither be drained nor waited for.
    WrongState {
        /// The server.
        server: ServerName,
        /// Its target.
        target: TargetRef,
        /// The state.
        state: String,
    },
    /// A server could not be learnt about.
    ServerUnknown {
        /// Which.
        server: ServerName,
        /// Why.
        why: String,
    },
    /// A group could not be learnt about.
    GroupUnknown {
        /// Which.
        group: GroupName,
        /// Why.
        why: String,
    },
    /// A right or a tool is missing on a server.
    Missing {
        /// The server.
        server: ServerName,
        /// What.
        what: String,
    },
    /// The drain cannot be finished by its deadline.
    DrainTooShort {
        /// Of which group.
        group: GroupName,
        /// So long it may take.
        bound: Duration,
        /// So long it is given.
        max: Duration,
    },
    /// The whole drain does not fit the grace period.
    GraceTooShort {
        /// Which service.
        service: ServiceName,
        /// So long is needed.
        needed: Duration,
        /// So long is given.
        grace: Duration,
    },
    /// The new containers may be back in rotation before they are verified.
    UnverifiedReturn {
        /// The way to drain.
        by: String,
        /// So soon the balancer may take them back.
        after: Duration,
        /// So long verifying may take.
        deadline: Duration,
    },
    /// A service is in deploy.toml but not in the compose file, or the other way round.
    ServiceMismatch {
        /// Which.
        service: ServiceName,
        /// Where it is missing.
        missing_in: String,
    },
    /// No release was verified on a server: whether it is fit to serve could not be told.
    NothingVerified {
        /// The server.
        server: ServerName,
    },
    /// The way to drain takes a server out by stopping it.
    OutMeansStopped {
        /// The server.
        server: ServerName,
    },
    /// What runs on a server cannot be gone back to.
    NoWayBack {
        /// The server.
        server: ServerName,
        /// Why.
        why: String,
    },
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity { scope, healthy, leaving, needed } => write!(
                f,
                "{scope}: {healthy} healthy, {leaving} would leave, {needed} must stay; with fewer an ALB routes to every \
                 target, the drained one included, and HAProxy to none"
            ),
            Self::NoneHealthy { group } => write!(f, "{group}: no target is healthy"),
            Self::ZonalShift { target, word } => {
                write!(f, "{target}: a zonal shift is on ({word}), so it takes no traffic although it looks healthy")
            }
            Self::SomebodyDraining { target } => write!(f, "{target} is being deregistered by somebody else"),
            Self::Unclaimed { target } => {
                write!(f, "{target} is healthy but belongs to no server of deploy.toml: it would keep the old release")
            }
            Self::NotRegistered { server, target, group } => {
                write!(f, "{server}: {target} is not registered in {group}")
            }
            Self::WrongState { server, target, state } => write!(f, "{server}: {target} is `{state}`"),
            Self::ServerUnknown { server, why } => write!(f, "{server}: {why}"),
            Self::GroupUnknown { group, why } => write!(f, "{group}: {why}"),
            Self::Missing { server, what } => write!(f, "{server}: {what}"),
            Self::DrainTooShort { group, bound, max } => write!(
                f,
                "{group}: the balancer may need {} to let a server go, drain.max allows {}",
                show_duration(*bound),
                show_duration(*max)
            ),
            Self::GraceTooShort { service, needed, grace } => write!(
                f,
                "{service}: needs {} to stop, its grace period in the compose file is {}",
                show_duration(*needed),
                show_duration(*grace)
            ),
            Self::UnverifiedReturn { by, after, deadline } => write!(
                f,
                "drain.by = \"{by}\" does not survive a restart: a new container may enter before it is verified (the balancer takes it \
                 back after {}, verifying may take {})",
                show_duration(*after),
                show_duration(*deadline)
            ),
            Self::ServiceMismatch { service, missing_in } => {
                write!(f, "service `{service}` is missing in {missing_in}")
            }
            Self::NothingVerified { server } => {
                write!(f, "{server}: no release was ever verified on it, so nothing could say when it is fit to serve")
            }
            Self::OutMeansStopped { server } => write!(
                f,
                "{server}: drain.by = \"sigterm\" takes a server out of rotation by stopping it: it cannot be out and run on"
            ),
            Self::NoWayBack { server, why } => write!(f, "{server}: there would be no way back: {why}"),
        }
    }
}

impl WhyNot {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Capacity { .. } => "add a server, or lower rolling.batch or rolling.min_healthy; --allow-downtime goes on all the same".into(),
            Self::NoneHealthy { .. } => "if this is the first deploy, say so with --first; if everything is broken, --allow-downtime goes on all the same".into(),
            Self::ZonalShift { .. } => "end the zonal shift first".into(),
            Self::SomebodyDraining { .. } => "wait until it is gone, or register it again".into(),
            Self::Unclaimed { .. } => "add its server to deploy.toml, or deregister it".into(),
            Self::NotRegistered { .. } => "register it, or correct `target` in deploy.toml".into(),
            Self::WrongState { .. } => "wait until it is healthy or unhealthy, or register it again".into(),
            Self::ServerUnknown { .. } => "try `ssh` to it by hand; every server of deploy.toml takes part in the deploy lock".into(),
            Self::GroupUnknown { .. } => "check the group's name, the region and the rights of these credentials; with HAProxy the backend's name and balancer.nodes".into(),
            Self::Missing { .. } => "set it right on the server and try again".into(),
            Self::DrainTooShort { .. } => "raise drain.max, or let the group check more often".into(),
            Self::GraceTooShort { .. } => "raise stop_grace_period in the compose file".into(),
            Self::UnverifiedReturn { .. } => "drain by file, shorten the services' deadlines, or accept it with drain.unverified_return = true".into(),
            Self::ServiceMismatch { .. } => "every service of the compose file needs a [[service]] with a check, and the other way round".into(),
            Self::NothingVerified { server } => format!("`handover deploy --servers {server}` brings one"),
            Self::OutMeansStopped { server } => format!("drain by file, http, exec, signal or deregister; a server that is stopped is brought in by `handover deploy --servers {server}`"),
            Self::NoWayBack { .. } => "deploy the running release once by name, or remove its containers".into(),
        }
    }
}
