//! The balancer alone, for targets on other addresses: the end-to-end suite's real servers.

use super::model::{GroupSpec, Matcher, ModelSpec, Place};
use super::{Balancer, BalancerSpec, Listen, Registered};
use crate::clock::Clock;
use crate::fleet::model::{GroupAttributes, GroupName, HealthSettings, TargetId, Zone};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A balancer and the targets that it begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandaloneSpec {
    /// The groups; the first is where the listener forwards to.
    pub groups: Vec<StandaloneGroup>,
    /// The zone of each node; without any, one node in each zone of the targets and two at the least.
    #[serde(default)]
    pub nodes: Vec<Zone>,
    /// How fast time runs.
    #[serde(default = "one")]
    pub speed: f64,
    /// Every random choice comes from this.
    #[serde(default)]
    pub seed: u64,
    /// In which region the ARNs are.
    #[serde(default = "region")]
    pub region: String,
    /// Where the API listens; a free loopback port where none is named.
    #[serde(default)]
    pub api: Option<SocketAddr>,
    /// Where each node listens; free loopback ports where none are named.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// Where the access log goes.
    #[serde(default)]
    pub access_log: Option<PathBuf>,
    /// From which address each node asks targets, where it is to have one of its own.
    #[serde(default)]
    pub sources: Vec<std::net::IpAddr>,
    /// Whether the API insists on AWS's own ranges.
    #[serde(default)]
    pub strict_ranges: bool,
}

/// A group of a standalone balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandaloneGroup {
    /// Its name or ARN.
    pub name: GroupName,
    /// Its port.
    pub port: u16,
    /// The path of its health check.
    pub path: String,
    /// The port of its health check, where it is not the traffic port.
    #[serde(default)]
    pub health_port: Option<u16>,
    /// Seconds from one check to the next.
    pub interval: f64,
    /// Seconds within which an answer must come.
    pub timeout: f64,
    /// Failures in a row.
    pub unhealthy: u32,
    /// Successes in a row.
    pub healthy: u32,
    /// Its attributes, by AWS's own keys; what is not named has AWS's default.
    #[serde(default)]
    pub deregistration_delay: Option<f64>,
    /// `load_balancing.cross_zone.enabled`.
    #[serde(default = "yes")]
    pub cross_zone: bool,
    /// `target_group_health.unhealthy_state_routing.minimum_healthy_targets.count`.
    #[serde(default = "one_target")]
    pub fail_open_count: u32,
    /// The same as a percentage.
    #[serde(default)]
    pub fail_open_percent: Option<u32>,
    /// Its targets.
    pub targets: Vec<StandaloneTarget>,
}

/// A target of a standalone balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandaloneTarget {
    /// What the balancer calls it.
    pub id: TargetId,
    /// The port by which it is registered, where it is not the group's.
    #[serde(default)]
    pub port: Option<u16>,
    /// Where it really listens, as `HOST:PORT`.
    pub address: String,
    /// In which zone.
    #[serde(default)]
    pub zone: Option<Zone>,
}

fn one() -> f64 {
    1.0
}

fn region() -> String {
    "eu-central-1".to_owned()
}

fn yes() -> bool {
    true
}

fn one_target() -> u32 {
    1
}

/// AWS API reference: the default of `deregistration_delay.timeout_seconds`.
const DEFAULT_DELAY: f64 = 300.0;

/// A running standalone balancer.
#[derive(Debug)]
pub struct Standalone {
    /// The balancer.
    pub balancer: Balancer,
    /// Its clock.
    pub clock: Clock,
}

/// Starts a balancer by itself.
///
/// # Errors
/// When a target's name does not resolve, an address cannot be listened on, or the log cannot be written.
pub async fn standalone(spec: StandaloneSpec) -> io::Result<Standalone> {
    let clock = Clock::start_at_speed(spec.speed);
    let mut addresses: BTreeMap<Place, SocketAddr> = BTreeMap::new();
    let mut targets = Vec::new();
    for group in &spec.groups {
        for target in &group.targets {
            let port = target.port.unwrap_or(group.port);
            let missing = || io::Error::other(format!("{} has no address", target.address));
            let address = tokio::net::lookup_host(&target.address).await?.next().ok_or_else(missing)?;
            addresses.insert((target.id.clone(), port), address);
            if let Some(health) = group.health_port {
                addresses.entry((target.id.clone(), health)).or_insert(SocketAddr::new(address.ip(), health));
            }
            targets.push(Registered {
                group: group.name.clone(),
                id: target.id.clone(),
                port,
                zone: target.zone.clone(),
            });
        }
    }
    let nodes = if spec.nodes.is_empty() {
        nodes_for(targets.iter().filter_map(|t| t.zone.clone()))
    } else {
        spec.nodes.clone()
    };
    let balancer = BalancerSpec {
        model: ModelSpec::new(spec.seed, nodes),
        groups: spec.groups.iter().map(group_spec).collect(),
        region: spec.region.clone(),
        listen: Listen { api: spec.api, nodes: spec.listen.clone() },
        access_log: spec.access_log.clone(),
        sources: spec.sources.clone(),
        strict_ranges: spec.strict_ranges,
    };
    let balancer = Balancer::start(balancer, targets, addresses, clock).await?;
    Ok(Standalone { balancer, clock })
}

/// One node in every zone, and two at the least: an ALB never has fewer.
pub(in crate::lab) fn nodes_for(zones: impl Iterator<Item = Zone>) -> Vec<Zone> {
    let zones: BTreeSet<Zone> = zones.collect();
    let mut nodes: Vec<Zone> = zones.into_iter().collect();
    if nodes.is_empty() {
        nodes.push(Zone::from("lab-1a"));
    }
    while nodes.len() < 2 {
        nodes.push(nodes[0].clone());
    }
    nodes
}

fn group_spec(group: &StandaloneGroup) -> GroupSpec {
    let by_address = group.targets.first().is_some_and(|target| target.id.as_str().parse::<IpAddr>().is_ok());
    GroupSpec {
        name: group.name.clone(),
        port: group.port,
        path: group.path.clone(),
        matcher: Matcher::default(),
        health_port: group.health_port,
        others: BTreeMap::new(),
        settings: HealthSettings {
            interval: Duration::from_secs_f64(group.interval),
            timeout: Duration::from_secs_f64(group.timeout),
            unhealthy: group.unhealthy,
            healthy: group.healthy,
        },
        attributes: GroupAttributes {
            cross_zone: group.cross_zone,
            fail_open_count: group.fail_open_count,
            fail_open_percent: group.fail_open_percent,
            deregistration_delay: Duration::from_secs_f64(group.deregistration_delay.unwrap_or(DEFAULT_DELAY)),
            slow_start: Duration::ZERO,
        },
        by_address,
    }
}
