//! The pretended ALB: a model without a clock, and around it the parts that make it real in fleet time: health checks,
//! the nodes that take requests, the log of what became of them, and the ELBv2 API.
//!
//! It knows targets only as addresses: neither servers nor releases.

mod actions;
mod body;
mod checks;
mod core;
mod delay;
mod face;
mod faults;
mod front;
mod log;
pub mod model;
mod modify;
mod pool;
mod query;
mod standalone;
#[cfg(test)]
mod tests;
mod views;
mod xml;

pub(in crate::lab) use core::own_address;
pub use delay::Delay;
pub use faults::{Fault, FaultKind, Faults};
pub use log::Truth;
pub(in crate::lab) use standalone::nodes_for;
pub use standalone::{Standalone, StandaloneGroup, StandaloneSpec, StandaloneTarget, standalone};

use self::core::Core;
use crate::clock::Clock;
use crate::fleet::model::{GroupName, TargetId, Zone};
use crate::lab::lock;
use model::{GroupSpec, Model, ModelSpec, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Where the balancer's parts listen; port 0 takes a free one.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// The API.
    pub api: Option<SocketAddr>,
    /// Each node's first group; the other groups take free ports on the same address.
    pub nodes: Vec<SocketAddr>,
}

/// Everything that a balancer is made of.
#[derive(Debug)]
pub struct BalancerSpec {
    /// The nodes and their habits.
    pub model: ModelSpec,
    /// The groups; the first is where the load balancer's listener forwards to.
    pub groups: Vec<GroupSpec>,
    /// In which region its ARNs are.
    pub region: String,
    /// Where it listens.
    pub listen: Listen,
    /// Where the access log goes.
    pub access_log: Option<PathBuf>,
    /// From which address each node asks targets; where none is named, a loopback address of its own asks those on this machine.
    pub sources: Vec<std::net::IpAddr>,
    /// Whether the API insists on AWS's own ranges; a lab may have shorter intervals.
    pub strict_ranges: bool,
}

/// A target to begin with.
#[derive(Debug, Clone)]
pub struct Registered {
    /// In which group.
    pub group: GroupName,
    /// What the balancer calls it.
    pub id: TargetId,
    /// Its traffic port, as the balancer knows it.
    pub port: u16,
    /// In which zone.
    pub zone: Option<Zone>,
}

/// A running balancer; it ends when it is dropped.
#[derive(Debug)]
pub struct Balancer {
    core: Arc<Core>,
    endpoint: SocketAddr,
    fronts: BTreeMap<GroupName, Vec<SocketAddr>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Balancer {
    /// Starts one. `addresses` says where each (id, port) really listens, health ports included.
    ///
    /// # Errors
    /// When an address cannot be listened on or the access log cannot be written.
    pub async fn start(
        spec: BalancerSpec,
        targets: Vec<Registered>,
        addresses: BTreeMap<Place, SocketAddr>,
        clock: Clock,
    ) -> io::Result<Self> {
        let nodes = spec.model.nodes.len();
        let listen = spec.listen.clone();
        let core = Arc::new(Core::new(spec, addresses, clock)?);
        for target in targets {
            core.register(&target.group, target.id, Some(target.port), target.zone);
        }
        let (endpoint, api) = face::listen(&core, listen.api).await?;
        let mut tasks = vec![api, tokio::spawn(checks::run(Arc::clone(&core)))];
        let mut fronts: BTreeMap<GroupName, Vec<SocketAddr>> = BTreeMap::new();
        for (at, group) in core.order.clone().into_iter().enumerate() {
            for node in 0..nodes {
                let wanted = listen.nodes.get(node).copied().unwrap_or_else(loopback);
                let wanted = if at == 0 { wanted } else { SocketAddr::new(wanted.ip(), 0) };
                let (address, task) = front::listen(&core, node, &group, wanted).await?;
                fronts.entry(group.clone()).or_default().push(address);
                tasks.push(task);
            }
        }
        Ok(Self { core, endpoint, fronts, tasks })
    }

    /// Where the ELBv2 API answers.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.endpoint)
    }

    /// How many nodes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.core.model).nodes()
    }

    /// The nodes of the load balancer's listener: those of the first group.
    #[must_use]
    pub fn nodes(&self) -> Vec<SocketAddr> {
        self.core.order.first().map_or_else(Vec::new, |group| self.nodes_of(group))
    }

    /// The nodes of a group's listener.
    #[must_use]
    pub fn nodes_of(&self, group: &GroupName) -> Vec<SocketAddr> {
        self.fronts.get(group).cloned().unwrap_or_default()
    }

    /// What became of every request.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.core.log.truth()
    }

    /// How late health checks began, on the wall.
    #[must_use]
    pub fn delay(&self) -> Delay {
        self.core.delays.summary()
    }

    /// Every action that the API was asked for.
    #[must_use]
    pub fn asked(&self) -> BTreeSet<String> {
        lock(&self.core.asked).clone()
    }

    /// Begins to write down anew what is asked for.
    pub fn forget_asked(&self) {
        lock(&self.core.asked).clear();
    }

    /// What the API is made to answer.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.core.faults.clone()
    }

    /// Whether every node sees every target healthy.
    #[must_use]
    pub fn all_healthy(&self) -> bool {
        lock(&self.core.model).all_healthy()
    }

    /// Whether any node may still pick a target.
    #[must_use]
    pub fn may_be_picked(&self, group: &GroupName, place: &Place) -> bool {
        lock(&self.core.model).may_be_picked(group, place, self.core.clock.now())
    }

    /// Looks at the model, or changes it: zonal shifts and whatever else a test wants.
    pub fn with_model<T>(&self, act: impl FnOnce(&mut Model) -> T) -> T {
        let out = act(&mut lock(&self.core.model));
        self.core.changed();
        out
    }

    /// Waits until every node sees every target healthy; false when that takes too long.
    pub async fn wait_healthy(&self, wall: Duration) -> bool {
        let until = tokio::time::Instant::now() + wall;
        while !self.all_healthy() {
            if tokio::time::Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Ends it: listeners close, connections break off.
    pub fn stop(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
        }
        self.core.log.flush();
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
