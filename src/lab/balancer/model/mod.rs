//! An ALB without a clock: several nodes, each with its own phase and its own view of every target.
//!
//! Time is an argument. Whoever owns the clock asks which checks are due, makes them and records the results; who
//! sends a request asks a node to pick a target. The threshold machine is `fleet::health`.

mod matcher;
mod merge;
mod pick;
mod settings;

pub use matcher::Matcher;

use crate::clock::Stamp;
use crate::fleet::health::{Check, Checker, Verdict};
use crate::fleet::model::{GroupAttributes, GroupName, HealthSettings, OverrideState, TargetId, TargetView, Zone};
use merge::merged;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A target's place: (id, port).
pub type Place = (TargetId, u16);

/// How the API merges what the nodes think (not documented by AWS, so every rule must be survived).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// The first node that changes its mind is believed.
    #[default]
    First,
    /// The last one is waited for.
    Last,
}

/// How the pretended balancer is made.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    /// Every random choice comes from this.
    pub seed: u64,
    /// The zone of each node.
    pub nodes: Vec<Zone>,
    /// Checks come up to so much earlier or later, as a share of the interval.
    pub jitter: f64,
    /// From a node's decision to the API's answer.
    pub api_lag: Duration,
    /// How the API merges the nodes' views.
    pub merge: Merge,
    /// From `DeregisterTargets` to the last node that no longer picks the target (user reports: 10 to 25 s).
    pub deregister_lag: Duration,
    /// Questions per second that the API answers for long (AWS: 10), with four times as many at once.
    pub api_rate: f64,
}

impl ModelSpec {
    /// Nodes in these zones, with the figures of the user reports.
    #[must_use]
    pub fn new(seed: u64, nodes: Vec<Zone>) -> Self {
        Self {
            seed,
            nodes,
            jitter: 0.02,
            api_lag: Duration::from_millis(500),
            merge: Merge::First,
            deregister_lag: Duration::from_secs(15),
            api_rate: 10.0,
        }
    }
}

/// How a group is made.
#[derive(Debug, Clone)]
pub struct GroupSpec {
    /// Its name.
    pub name: GroupName,
    /// Its default port.
    pub port: u16,
    /// The path of the health check.
    pub path: String,
    /// Which answers pass.
    pub matcher: Matcher,
    /// The port of the health check, where it is not the traffic port.
    pub health_port: Option<u16>,
    /// The numbers of the health check.
    pub settings: HealthSettings,
    /// Its attributes.
    pub attributes: GroupAttributes,
    /// Attributes that are kept, held to AWS's rules, and have no effect here; AWS's defaults where none stand.
    pub others: BTreeMap<String, String>,
    /// Whether targets are addresses.
    pub by_address: bool,
}

/// A health check that is to be made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOrder {
    /// By which node.
    pub node: usize,
    /// In which group.
    pub group: GroupName,
    /// Of which target.
    pub place: Place,
    /// No answer by then is a failure.
    pub timeout: Duration,
    /// When it was due.
    pub due: Stamp,
}

/// Where a node sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// To this target.
    Target {
        /// Which.
        place: Place,
        /// Only because too few are healthy.
        fail_open: bool,
    },
    /// There is none: 503.
    None,
}

#[derive(Debug)]
struct Group {
    spec: GroupSpec,
    targets: BTreeMap<Place, Target>,
    next: Vec<u64>,
    history: VecDeque<(Stamp, Vec<TargetView>)>,
}

#[derive(Debug)]
struct Target {
    zone: Option<Zone>,
    shift: OverrideState,
    deregistered: Option<Stamp>,
    views: Vec<NodeView>,
}

#[derive(Debug)]
struct NodeView {
    checker: Checker,
    next_check: Stamp,
    pending: bool,
    last_status: Option<u16>,
}

/// The balancer.
#[derive(Debug)]
pub struct Model {
    spec: ModelSpec,
    groups: BTreeMap<GroupName, Group>,
    random: u64,
    tokens: f64,
    refilled: Stamp,
}

impl Model {
    /// A balancer with groups and no targets.
    #[must_use]
    pub fn new(spec: ModelSpec, groups: Vec<GroupSpec>) -> Self {
        let nodes = spec.nodes.len();
        let (random, tokens) = (spec.seed.wrapping_mul(2).wrapping_add(1), spec.api_rate * 4.0);
        let groups = groups
            .into_iter()
            .map(|g| {
                (
                    g.name.clone(),
                    Group { spec: g, targets: BTreeMap::new(), next: vec![0; nodes], history: VecDeque::new() },
                )
            })
            .collect();
        Self { spec, groups, random, tokens, refilled: Stamp::ZERO }
    }

    /// From a node's decision to the API's answer, from now on.
    pub fn set_api_lag(&mut self, lag: Duration) {
        self.spec.api_lag = lag;
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.spec.nodes.len()
    }

    /// The groups.
    pub fn groups(&self) -> impl Iterator<Item = &GroupSpec> {
        self.groups.values().map(|group| &group.spec)
    }

    /// A group's spec, for whoever changes its settings.
    pub fn group_mut(&mut self, name: &GroupName) -> Option<&mut GroupSpec> {
        self.groups.get_mut(name).map(|group| &mut group.spec)
    }

    /// A group's spec.
    #[must_use]
    pub fn group(&self, name: &GroupName) -> Option<&GroupSpec> {
        self.groups.get(name).map(|group| &group.spec)
    }

    /// A number in `0.0..1.0` (splitmix64).
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
        let share = (z >> 11) as f64 / (1u64 << 53) as f64;
        share
    }

    /// Registers a target; each node begins to check it at its own phase. One that is being deregistered comes back.
    pub fn register(&mut self, group: &GroupName, id: TargetId, port: Option<u16>, zone: Option<Zone>, now: Stamp) {
        let phases: Vec<f64> = (0..self.nodes()).map(|_| self.random()).collect();
        let Some(group) = self.groups.get_mut(group) else { return };
        let place = (id, port.unwrap_or(group.spec.port));
        if group.targets.get(&place).is_some_and(|target| target.deregistered.is_none()) {
            return;
        }
        let settings = group.spec.settings;
        let views = phases
            .into_iter()
            .map(|phase| NodeView {
                checker: Checker::new(settings.unhealthy, settings.healthy),
                next_check: now + settings.interval.mul_f64(phase),
                pending: false,
                last_status: None,
            })
            .collect();
        group.targets.insert(place, Target { zone, shift: OverrideState::None, deregistered: None, views });
        self.remember(now);
    }

    /// Deregisters a target. AWS: one that is not registered at this port is a success that does nothing.
    pub fn deregister(&mut self, group: &GroupName, id: &TargetId, port: Option<u16>, now: Stamp) {
        let Some(group) = self.groups.get_mut(group) else { return };
        let port = port.unwrap_or(group.spec.port);
        if let Some(target) = group.targets.get_mut(&(id.clone(), port)) {
            target.deregistered.get_or_insert(now);
        }
        self.remember(now);
    }

    /// Puts a zonal shift on a target, or takes it off.
    pub fn shift(&mut self, group: &GroupName, place: &Place, shift: OverrideState, now: Stamp) {
        if let Some(target) = self.groups.get_mut(group).and_then(|g| g.targets.get_mut(place)) {
            target.shift = shift;
        }
        self.remember(now);
    }

    /// When the next check is due.
    #[must_use]
    pub fn next_check(&self) -> Option<Stamp> {
        let targets = self.groups.values().flat_map(|g| g.targets.values());
        targets.filter(|t| t.deregistered.is_none()).flat_map(|t| &t.views).map(|view| view.next_check).min()
    }

    /// The checks that are due; each is answered by `record`. The cadence does not shift with slow answers.
    pub fn due(&mut self, now: Stamp) -> Vec<CheckOrder> {
        let mut orders = Vec::new();
        let jitters: Vec<f64> = (0..16).map(|_| self.random() - 0.5).collect();
        let jitter = self.spec.jitter;
        for (name, group) in &mut self.groups {
            let settings = group.spec.settings;
            for (place, target) in &mut group.targets {
                for (node, view) in target.views.iter_mut().enumerate() {
                    if view.next_check > now || target.deregistered.is_some() {
                        continue;
                    }
                    let due = view.next_check;
                    let wobble = jitters[(orders.len() + node) % jitters.len()] * 2.0 * jitter;
                    view.next_check = view.next_check + settings.interval.mul_f64(1.0 + wobble);
                    if view.next_check <= now {
                        view.next_check = now + settings.interval;
                    }
                    if std::mem::replace(&mut view.pending, true) {
                        continue;
                    }
                    orders.push(CheckOrder {
                        node,
                        group: name.clone(),
                        place: place.clone(),
                        timeout: settings.timeout,
                        due,
                    });
                }
            }
        }
        orders
    }

    /// Takes a check's result in.
    pub fn record(&mut self, order: &CheckOrder, check: Check, now: Stamp) {
        self.record_answer(order, check, None, now);
    }

    /// Takes a check's result in, with the status that was answered.
    pub fn record_answer(&mut self, order: &CheckOrder, check: Check, status: Option<u16>, now: Stamp) {
        let view = self
            .groups
            .get_mut(&order.group)
            .and_then(|g| g.targets.get_mut(&order.place))
            .and_then(|t| t.views.get_mut(order.node));
        if let Some(view) = view {
            view.pending = false;
            view.last_status = status;
            view.checker.record(check);
            self.remember(now);
        }
    }

    /// What one node thinks of one target.
    #[must_use]
    pub fn verdict(&self, node: usize, group: &GroupName, place: &Place) -> Option<Verdict> {
        Some(self.groups.get(group)?.targets.get(place)?.views.get(node)?.checker.verdict())
    }

    /// Whether every node thinks that every registered target is healthy.
    #[must_use]
    pub fn all_healthy(&self) -> bool {
        self.groups
            .values()
            .flat_map(|g| g.targets.values())
            .filter(|t| t.deregistered.is_none())
            .all(|target| target.views.iter().all(|view| view.checker.verdict() == Verdict::Healthy))
    }

    /// One question to the API; false when the bucket is empty.
    pub fn may_ask(&mut self, now: Stamp) -> bool {
        let refill = now.since(self.refilled).as_secs_f64() * self.spec.api_rate;
        self.tokens = (self.tokens + refill).min(self.spec.api_rate * 4.0);
        self.refilled = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    /// What the API answers about a group's targets: merged, and as it was a lag ago.
    #[must_use]
    pub fn describe(&self, group: &GroupName, now: Stamp) -> Option<Vec<TargetView>> {
        let group = self.groups.get(group)?;
        let as_of = now - self.spec.api_lag;
        let known = group.history.iter().rev().find(|(at, _)| *at <= as_of).or(group.history.front());
        let mut views = known.map(|(_, views)| views.clone()).unwrap_or_default();
        let delay = group.spec.attributes.deregistration_delay;
        views.retain(|view| {
            let target = group.targets.get(&(view.id.clone(), view.port));
            target.is_some_and(|t| t.deregistered.is_none_or(|at| now < at + delay))
        });
        Some(views)
    }

    /// Whether an address that was deregistered must still wait its delay out (AWS user guide).
    #[must_use]
    pub fn is_draining(&self, group: &GroupName, id: &TargetId, port: Option<u16>, now: Stamp) -> bool {
        let Some(group) = self.groups.get(group) else { return false };
        let port = port.unwrap_or(group.spec.port);
        let target = group.targets.get(&(id.clone(), port)).and_then(|t| t.deregistered);
        target.is_some_and(|at| now < at + group.spec.attributes.deregistration_delay)
    }

    /// The zone of a server, where any group knows it.
    #[must_use]
    pub fn zone_of(&self, id: &TargetId) -> Option<Zone> {
        let mut targets = self.groups.values().flat_map(|g| &g.targets);
        targets
            .find(|(place, target)| &place.0 == id && target.zone.is_some())
            .and_then(|(_, target)| target.zone.clone())
    }

    /// The zones of the nodes.
    #[must_use]
    pub fn zones(&self) -> Vec<Zone> {
        self.spec.nodes.clone()
    }

    /// Writes the merged view down, where it changed.
    fn remember(&mut self, now: Stamp) {
        let merge = self.spec.merge;
        for group in self.groups.values_mut() {
            let views: Vec<TargetView> =
                group.targets.iter().map(|(place, target)| merged(place, target, merge)).collect();
            if group.history.back().is_none_or(|(_, last)| *last != views) {
                group.history.push_back((now, views));
            }
            while group.history.len() > 256 {
                group.history.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests;
