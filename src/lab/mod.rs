//! The pretended fleet: a balancer that behaves like an ALB, servers that really stop, and the truth about every request.
//!
//! It is made from the user's own deploy.toml. Only `cli` and tests may use it; it knows nothing of how a deploy is
//! driven, and hides nothing from who looks.

pub mod balancer;
mod fetch;
pub mod naive;
mod ports;
pub mod servers;
pub mod service;
pub mod simulation;
pub mod story;

#[cfg(test)]
mod tests;

pub use balancer::{Delay, Truth};
pub use servers::{LabServer, ServiceCommand};
pub use service::Fault as ServiceFault;

use crate::clock::Clock;
use crate::event::{Event, LabService};
use crate::fleet::model::{DrainBy, Fleet, Group, GroupName, Network, Server, ServerName, ServiceName, TargetId, Zone};
use crate::measure::Target;
use anyhow::Context as _;
use balancer::model::{GroupSpec, Matcher, Merge, ModelSpec, Place};
use balancer::{Balancer, BalancerSpec, Listen, Registered};
use ports::Ports;
use servers::ServersSpec;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// The zone of servers that name none.
const ZONE: &str = "lab-1a";
/// A fleet that is not healthy after so long on the wall never will be.
const HEALTHY_WITHIN: Duration = Duration::from_secs(120);

/// How a lab is made.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// How many times as fast as the wall clock fleet time runs.
    pub speed: f64,
    /// Every random choice comes from this.
    pub seed: u64,
    /// Balancer nodes in each zone; an ALB has two nodes at the least, whatever this says.
    pub nodes_per_zone: usize,
    /// How services are started; the own executable with `lab-service` where nothing is said.
    pub command: Option<ServiceCommand>,
    /// What is wrong with the services of the new release: on one server, or on all.
    pub faults: Vec<(Option<ServerName>, ServiceName, ServiceFault)>,
    /// Where the balancer's access log goes.
    pub access_log: Option<PathBuf>,
    /// How the balancer's API merges what its nodes think.
    pub merge: Merge,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            speed: 1.0,
            seed: 1,
            nodes_per_zone: 1,
            command: None,
            faults: Vec::new(),
            access_log: None,
            merge: Merge::default(),
        }
    }
}

/// A running lab. Dropping it ends everything, the services included.
#[derive(Debug)]
pub struct Lab {
    fleet: Arc<Fleet>,
    clock: Clock,
    balancer: Balancer,
    servers: BTreeMap<ServerName, Arc<LabServer>>,
    // Held so that the folder lasts as long as the services that look for files in it.
    _dir: TempDir,
}

impl Lab {
    /// Builds a fleet as deploy.toml describes it, and waits until everything listens and every balancer node sees every
    /// target healthy.
    ///
    /// # Errors
    /// When a port, a folder or a process cannot be had, or the fleet does not become healthy.
    pub async fn start(fleet: &Fleet, options: LabOptions) -> anyhow::Result<Self> {
        let command = match options.command.clone() {
            Some(command) => command,
            None => ServiceCommand::own().context("the own executable, which plays the services, is not known")?,
        };
        let dir = tempfile::Builder::new().prefix("handover-lab-").tempdir().context("no folder for the lab")?;
        let clock = Clock::start_at_speed(options.speed);
        let fleet = Arc::new(fleet.clone());
        let spec = ServersSpec {
            fleet: Arc::clone(&fleet),
            clock,
            command,
            dir: dir.path().to_owned(),
            seed: options.seed,
            faults: options.faults.clone(),
        };
        let mut ports = Ports::new();
        let mut servers = BTreeMap::new();
        for server in &fleet.servers {
            let built = LabServer::new(&spec, server, &mut ports).with_context(|| format!("server {}", server.name))?;
            servers.insert(server.name.clone(), Arc::new(built));
        }
        for server in servers.values() {
            server.boot().await.with_context(|| format!("the services of {}", server.name()))?;
        }
        for server in servers.values() {
            server.ready().await.with_context(|| format!("the services of {}", server.name()))?;
        }
        let (targets, addresses) = registrations(&fleet, &servers);
        let balancer = Balancer::start(balancer_spec(&fleet, &options), targets, addresses, clock)
            .await
            .context("the balancer")?;
        if !balancer.wait_healthy(HEALTHY_WITHIN).await {
            anyhow::bail!("the lab's balancer does not see every target healthy after {} s", HEALTHY_WITHIN.as_secs());
        }
        let fleet = Arc::new(at_home(&fleet, balancer.count()));
        Ok(Self { fleet, clock, balancer, servers, _dir: dir })
    }

    /// Its clock: fleet time began when the lab was built.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The fleet that it plays.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The first event: where everything is.
    #[must_use]
    pub fn event(&self) -> Event {
        let nodes = self.node_addresses().iter().map(ToString::to_string).collect();
        Event::Lab { control_plane: self.endpoint(), nodes, services: self.services() }
    }

    /// Where the ELBv2 API answers.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.balancer.endpoint()
    }

    /// The region that its ARNs name.
    #[must_use]
    pub fn region(&self) -> String {
        region(&self.fleet)
    }

    /// Where the balancer's nodes take requests for the first group; empty without groups.
    #[must_use]
    pub fn node_addresses(&self) -> Vec<SocketAddr> {
        self.balancer.nodes()
    }

    /// The servers, as one run sees them.
    #[must_use]
    pub fn servers(&self) -> BTreeMap<ServerName, Arc<LabServer>> {
        self.servers.clone()
    }

    /// The services that run now.
    #[must_use]
    pub fn services(&self) -> Vec<LabService> {
        self.servers.values().flat_map(|server| server.services()).collect()
    }

    /// The balancer, for whoever wants to put a fault into it or to look at its model.
    #[must_use]
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// What became of every request that reached a node.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.balancer.truth()
    }

    /// How late the lab's own work began, on the wall.
    #[must_use]
    pub fn delay(&self) -> Delay {
        self.balancer.delay()
    }

    /// Whether the lab kept its times well enough for the run to mean something: p99 of its delay within a tenth of the
    /// shortest check timeout on the wall.
    #[must_use]
    pub fn kept_its_times(&self) -> bool {
        let shortest = self.fleet.balancer.groups.iter().map(|group| group.health.settings.timeout).min();
        shortest.is_none_or(|timeout| self.delay().p99 <= self.clock.wall(timeout) / 10)
    }

    /// What a prober asks here instead of the real balancer: the same path over plain HTTP, on every node in turn.
    #[must_use]
    pub fn measure_target(&self) -> Option<Target> {
        let (measure, nodes) = (self.fleet.measure.as_ref()?, self.node_addresses());
        let plain = measure.url.replacen("https://", "http://", 1);
        (!nodes.is_empty()).then_some(Target { url: plain, addresses: Some(nodes) })
    }

    /// Ends everything, and waits until no service is left.
    pub async fn shutdown(mut self) {
        for server in self.servers.values() {
            server.end().await;
        }
        self.balancer.stop();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for server in self.servers.values() {
            server.kill();
        }
    }
}

/// The fleet as it is deployed to here: the lab's nodes are on this machine, and are named as what they are.
fn at_home(fleet: &Fleet, nodes: usize) -> Fleet {
    let mut fleet = fleet.clone();
    if let DrainBy::Gateway { nodes: count, .. } = &mut fleet.drain.by {
        count.from = (0..nodes).map(|node| Network::one(balancer::own_address(node))).collect();
    }
    fleet
}

fn region(fleet: &Fleet) -> String {
    fleet.balancer.region.clone().unwrap_or_else(|| "eu-central-1".to_owned())
}

fn zone(server: &Server) -> Zone {
    server.zone.clone().unwrap_or_else(|| Zone::from(ZONE))
}

fn balancer_spec(fleet: &Fleet, options: &LabOptions) -> BalancerSpec {
    let zones = balancer::nodes_for(fleet.servers.iter().map(zone));
    let nodes =
        zones.iter().flat_map(|zone| std::iter::repeat_n(zone.clone(), options.nodes_per_zone.max(1))).collect();
    let model = ModelSpec { merge: options.merge, ..ModelSpec::new(options.seed, nodes) };
    BalancerSpec {
        model,
        groups: fleet.balancer.groups.iter().map(|group| group_spec(fleet, group)).collect(),
        region: region(fleet),
        listen: Listen::default(),
        access_log: options.access_log.clone(),
        sources: Vec::new(),
        strict_ranges: false,
    }
}

fn group_spec(fleet: &Fleet, group: &Group) -> GroupSpec {
    let mut targets = fleet.servers.iter().filter_map(|server| server.targets.get(&group.name)).flatten();
    GroupSpec {
        name: group.name.clone(),
        port: group.port,
        path: group.health.path.clone(),
        matcher: Matcher::default(),
        health_port: group.health.port,
        others: BTreeMap::new(),
        settings: group.health.settings,
        attributes: group.attributes(),
        by_address: targets.any(|target| target.id.as_str().parse::<IpAddr>().is_ok()),
    }
}

/// Every target to begin with, and where each (id, port) really is, health ports included.
fn registrations(
    fleet: &Fleet,
    servers: &BTreeMap<ServerName, Arc<LabServer>>,
) -> (Vec<Registered>, BTreeMap<Place, SocketAddr>) {
    let (mut targets, mut addresses) = (Vec::new(), BTreeMap::new());
    for server in &fleet.servers {
        let Some(built) = servers.get(&server.name) else { continue };
        for group in &fleet.balancer.groups {
            for target in server.targets.get(&group.name).into_iter().flatten() {
                let port = target.port.unwrap_or(group.port);
                targets.push(registered(&group.name, &target.id, port, server));
                for port in [Some(port), group.health.port].into_iter().flatten() {
                    addresses.extend(built.address(port).map(|at| ((target.id.clone(), port), at)));
                }
            }
        }
    }
    (targets, addresses)
}

fn registered(group: &GroupName, id: &TargetId, port: u16, server: &Server) -> Registered {
    Registered { group: group.clone(), id: id.clone(), port, zone: Some(zone(server)) }
}

/// Locks a mutex whose holder may have panicked: the lab goes on and says what it sees.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
