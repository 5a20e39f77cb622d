//! The simulated fleet: a balancer whose nodes disagree, servers that can fail in every way, traffic that never pauses.
//!
//! It notes every request that our own doing lost, every container that was stopped while a node could still pick it, and
//! every moment in which two worked on one server.

use super::faults::{Fault, Wreck};
use super::machine::Machine;
use super::port::SimPort;
use crate::clock::{Clock, Stamp};
use crate::fleet::health::Check;
use crate::fleet::model::{
    DrainBy, Fleet, Group, GroupName, Known, ReleaseId, ServerName, TargetId, TargetReason, Zone,
};
use crate::fleet::nodes::{NodesSeen, Told};
use crate::fleet::release::{Manifest, ServicePin};
use crate::lab::balancer::model::{CheckOrder, GroupSpec, Matcher, Merge, Model, ModelSpec, Pick};
use crate::lab::lock;
use crate::rollout::machine::Protection;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How fine time runs.
const TICK: Duration = Duration::from_millis(200);

/// From a node's decision until it can be heard of: the API's lag, and a question that was asked just before.
const TOLD_AFTER: Duration = Duration::from_secs(5);

pub(super) const OLD: &str = "0000000000000000000000000000000000000000000000000000000000000000";
pub(super) const NEW: &str = "1111111111111111111111111111111111111111111111111111111111111111";
pub(super) const OTHER: &str = "2222222222222222222222222222222222222222222222222222222222222222";

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// In the run of this seed.
    pub seed: u64,
    /// Which promise (design: 1 to 4 and 7).
    pub promise: u8,
    /// What the engine was doing there.
    pub step: Option<String>,
    /// Where.
    pub server: Option<ServerName>,
    /// What was seen.
    pub what: String,
    /// What had gone wrong in that run.
    pub faults: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) fleet: Fleet,
    pub(super) seed: u64,
    pub(super) model: Model,
    pub(super) machines: BTreeMap<ServerName, Machine>,
    pub(super) faults: Vec<Fault>,
    pub(super) without: Option<Protection>,
    pub(super) releases: BTreeMap<ReleaseId, Manifest>,
    /// Runs whose process is gone, and whether it said goodbye.
    pub(super) dead_runs: BTreeMap<String, bool>,
    /// Who is connected to which server.
    pub(super) ports: Vec<Weak<SimPort>>,
    pub(super) violations: Vec<Violation>,
    /// Requests that went to a server on which our own doing had left nothing to answer.
    pub(super) lost: u64,
    pub(super) next_agent: u64,
    /// How often something was run once.
    pub(super) once_tries: u32,
    /// When the faults' clock began.
    pub(super) began: Stamp,
}

/// The simulated fleet.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) inner: Arc<Mutex<Inner>>,
    pub(super) clock: Clock,
}

impl World {
    /// A fleet that runs the old release everywhere, seen healthy by every node.
    pub(super) async fn new(fleet: &Fleet, seed: u64, without: Option<Protection>) -> Self {
        let clock = Clock::start();
        let inner = Inner::new(fleet, seed, without, clock.now());
        let world = Self { inner: Arc::new(Mutex::new(inner)), clock };
        for _ in 0..6000 {
            if world.with(|inner| inner.model.all_healthy()) {
                break;
            }
            world.pass(TICK).await;
        }
        world.pass(Duration::from_secs(5)).await;
        world.with(|inner| inner.lost = 0);
        world
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut lock(&self.inner))
    }

    /// Lets time pass, tick by tick.
    async fn pass(&self, time: Duration) {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            self.clock.sleep(TICK).await;
            let now = self.clock.now();
            self.with(|inner| inner.tick(now));
        }
    }

    /// Lets the balancer check and send traffic for as long as somebody waits for `done`.
    pub(super) async fn while_running<T>(&self, done: impl Future<Output = T>) -> T {
        tokio::pin!(done);
        loop {
            tokio::select! {
                biased;
                done = &mut done => return done,
                () = self.pass(TICK) => {}
            }
        }
    }

    /// The same for a time.
    pub(super) async fn wait(&self, time: Duration) {
        self.pass(time).await;
    }
}

fn manifest(fleet: &Fleet, id: &str) -> Manifest {
    let pin = |shutdown: Duration| ServicePin {
        image: format!("simulated/app@sha256:{id}"),
        grace: (shutdown * 3).max(crate::fleet::release::DEFAULT_GRACE),
        replicas: 1,
        one_shot: false,
    };
    Manifest {
        format: crate::fleet::release::MANIFEST_FORMAT,
        id: ReleaseId::new(id),
        label: None,
        services: fleet.services.iter().map(|s| (s.name.clone(), pin(s.shutdown))).collect(),
        files: BTreeMap::new(),
    }
}

impl Inner {
    fn new(fleet: &Fleet, seed: u64, without: Option<Protection>, now: Stamp) -> Self {
        let mut model =
            Model::new(balancer(fleet, seed), fleet.balancer.groups.iter().map(|g| group(fleet, g)).collect());
        for server in &fleet.servers {
            for (group, target) in server.targets.iter().flat_map(|(g, targets)| targets.iter().map(move |t| (g, t))) {
                model.register(group, target.id.clone(), target.port, server.zone.clone(), now);
            }
        }
        // In every third world something sleeps on every server.
        let sleeper = fleet.services.iter().rev().find(|service| service.groups.is_empty() && seed.is_multiple_of(3));
        let machine = || Machine {
            asleep: sleeper.iter().map(|one| (one.name.clone(), "nobody needed it".to_owned())).collect(),
            ..Machine::new()
        };
        let machines = fleet.servers.iter().map(|server| (server.name.clone(), machine())).collect();
        let mut fleet = fleet.clone();
        if let DrainBy::Gateway { nodes, .. } = &mut fleet.drain.by {
            // The nodes of this world are where they are.
            (nodes.from, nodes.agent) = (Vec::new(), None);
        }
        Self {
            machines,
            seed,
            model,
            faults: Vec::new(),
            without,
            releases: [OLD, NEW, OTHER].map(|id| (ReleaseId::new(id), manifest(&fleet, id))).into(),
            fleet,
            dead_runs: BTreeMap::new(),
            ports: Vec::new(),
            violations: Vec::new(),
            lost: 0,
            once_tries: 0,
            next_agent: 1,
            began: now,
        }
    }

    pub(super) fn violation(&mut self, promise: u8, server: Option<&ServerName>, step: &str, what: String) {
        let step = (!step.is_empty()).then(|| step.to_owned());
        let faults = self.faults.iter().map(|fault| format!("{fault:?}")).collect();
        let found = Violation { seed: self.seed, promise, step, server: server.cloned(), what, faults };
        if !self.violations.contains(&found) {
            self.violations.push(found);
        }
    }

    /// How far the faults' clock has come.
    pub(super) fn since(&self, now: Stamp) -> Duration {
        now.since(self.began)
    }

    pub(super) fn wreck(&self, server: &ServerName) -> Option<Wreck> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::Wreck(at, wreck) if at.as_ref().is_none_or(|at| at == server) => Some(*wreck),
            _ => None,
        })
    }

    pub(super) fn has(&self, is: impl Fn(&Fault) -> bool) -> bool {
        self.faults.iter().any(is)
    }

    /// Whether an app answers by itself, whoever asks.
    pub(super) fn answers(&self, name: &ServerName, now: Stamp) -> bool {
        let Some(machine) = self.machines.get(name) else { return false };
        let dead = self.died_at(name).is_some_and(|when| machine.started < Some(when) && now >= when);
        if machine.running.is_none() || !machine.up || dead {
            return false;
        }
        if !machine.runs_new() {
            return true;
        }
        match self.wreck(name) {
            Some(Wreck::CrashLoop | Wreck::NeverUp) => false,
            Some(Wreck::DiesAfter(life)) => machine.started.is_some_and(|at| now < at + life),
            _ => true,
        }
    }

    /// Whether the balancer gets an answer.
    fn reachable(&self, name: &ServerName, now: Stamp) -> bool {
        let hidden =
            self.wreck(name) == Some(Wreck::Unreachable) && self.machines.get(name).is_some_and(Machine::runs_new);
        self.answers(name, now) && !hidden
    }

    pub(super) fn server_of(&self, id: &TargetId) -> Option<ServerName> {
        let own = |server: &&crate::fleet::model::Server| server.targets.values().flatten().any(|t| &t.id == id);
        self.fleet.servers.iter().find(own).map(|server| server.name.clone())
    }

    fn tick(&mut self, now: Stamp) {
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            self.leaves_by_itself(&name, now);
        }
        for order in self.model.due(now) {
            let name = self.server_of(&order.place.0);
            let check = name.clone().map_or(Check::Fail(TargetReason::FailedHealthChecks), |name| {
                let machine = &self.machines[&name];
                let fails = machine.drained || machine.leaving.is_some();
                let half = self.has(|f| matches!(f, Fault::HalfFlips(at) | Fault::OtherCheck(at) if *at == name));
                match (self.reachable(&name, now), fails) {
                    (false, _) => Check::Fail(TargetReason::FailedHealthChecks),
                    (true, true) if !half => Check::Fail(TargetReason::ResponseCodeMismatch),
                    (true, _) => Check::Pass,
                }
            });
            if let Some(name) = name {
                self.count(&name, &order, &check, now);
            }
            self.model.record(&order, check, now);
        }
        let groups: Vec<GroupName> = self.model.groups().map(|group| group.name.clone()).collect();
        for group in &groups {
            for node in 0..self.model.nodes() {
                self.send(node, group, now);
            }
        }
    }

    /// Whoever answers a check counts it.
    fn count(&mut self, name: &ServerName, order: &CheckOrder, check: &Check, now: Stamp) {
        let told = match check {
            Check::Pass => Told::In,
            Check::Fail(TargetReason::ResponseCodeMismatch) => Told::Out,
            Check::Fail(_) => return,
        };
        let Some(path) = self.model.group(&order.group).map(|group| group.path.clone()) else { return };
        if let Some(machine) = self.machines.get_mut(name) {
            machine.nodes.told(address(order.node), &path, order.place.1, told, now, machine.started);
        }
    }

    /// What the one who answers checks has counted.
    pub(super) fn nodes(&self, name: &ServerName, now: Stamp) -> Known<NodesSeen> {
        if !self.answers(name, now) {
            return Known::Unknown("connection refused".into());
        }
        Known::Known(self.machines[name].nodes.seen(now))
    }

    /// An app that drains itself on SIGTERM goes when its time is over.
    fn leaves_by_itself(&mut self, name: &ServerName, now: Stamp) {
        if self.machines[name].leaving.is_some_and(|until| now >= until) {
            self.about_to_stop(name, now);
            if let Some(machine) = self.machines.get_mut(name) {
                (machine.leaving, machine.running, machine.up, machine.started) = (None, None, false, None);
            }
        }
    }

    fn send(&mut self, node: usize, group: &GroupName, now: Stamp) {
        match self.model.pick(node, group, now) {
            Pick::None => self.lost += 1,
            Pick::Target { place, .. } => {
                let Some(name) = self.server_of(&place.0) else { return };
                if let Some(machine) = self.machines.get_mut(&name) {
                    machine.count += 1;
                    machine.nodes.real(address(node), now);
                }
                // What died by itself is not our doing; what we stopped and did not bring back is.
                let ours = self.machines[&name].running.is_none() || !self.machines[&name].up;
                if ours && !self.died_by_itself(&name, now) {
                    self.lost += 1;
                }
            }
        }
    }

    /// When its app dies by itself.
    fn died_at(&self, name: &ServerName) -> Option<Stamp> {
        let one = |fault: &Fault| match fault {
            Fault::Dies(at, when) if at == name => Some(self.began + *when),
            Fault::Lonely(other, when) if other != name => Some(self.began + *when),
            _ => None,
        };
        self.faults.iter().filter_map(one).min()
    }

    pub(super) fn died_by_itself(&self, name: &ServerName, now: Stamp) -> bool {
        self.died_at(name).is_some_and(|when| now >= when)
    }

    /// Promise 2.
    pub(super) fn about_to_stop(&mut self, name: &ServerName, now: Stamp) {
        if self.may_be_picked(name, now) && self.reachable(name, now) && !self.others_are_dead(name, now) {
            let what = "a container was stopped while a node could still pick its server".to_owned();
            self.violation(2, Some(name), "stop", what);
        }
    }

    /// Where others died by themselves, nodes may fail open to a server that all of them had let go of. Nobody can tell before
    /// the balancer can; and a release that was never verified is taken back all the same, so that what worked comes up.
    fn others_are_dead(&self, name: &ServerName, now: Stamp) -> bool {
        let told = self.model.groups().map(|group| {
            let settings = group.settings;
            settings.interval * (settings.unhealthy + 1) + settings.timeout + TOLD_AFTER
        });
        let told = told.max().unwrap_or_default();
        let machine = &self.machines[name];
        let verified = machine.running == machine.current;
        let others = self.machines.keys().filter(|other| *other != name);
        others.filter_map(|other| self.died_at(other)).any(|at| at <= now && (now < at + told || !verified))
    }

    pub(super) fn may_be_picked(&self, name: &ServerName, now: Stamp) -> bool {
        self.places(name).into_iter().any(|(group, place)| self.model.may_be_picked(&group, &place, now))
    }

    /// Whether every node sends traffic to it.
    pub(super) fn is_in(&self, name: &ServerName) -> bool {
        self.places(name).into_iter().all(|(group, place)| {
            let healthy =
                |node| self.model.verdict(node, &group, &place) == Some(crate::fleet::health::Verdict::Healthy);
            (0..self.model.nodes()).all(healthy)
        })
    }

    pub(super) fn places(&self, name: &ServerName) -> Vec<(GroupName, (TargetId, u16))> {
        let Some(server) = self.fleet.server(name) else { return Vec::new() };
        let port = |group: &GroupName| self.model.group(group).map_or(0, |spec| spec.port);
        let one = |(group, targets): (&GroupName, &Vec<crate::fleet::model::TargetSpec>)| {
            let place = |target: &crate::fleet::model::TargetSpec| {
                (group.clone(), (target.id.clone(), target.port.unwrap_or_else(|| port(group))))
            };
            targets.iter().map(place).collect::<Vec<_>>()
        };
        server.targets.iter().flat_map(one).collect()
    }
}

fn balancer(fleet: &Fleet, seed: u64) -> ModelSpec {
    let mut dice = super::dice::Dice::new(seed, 2);
    let zones: BTreeSet<Zone> = fleet.servers.iter().filter_map(|s| s.zone.clone()).collect();
    let zones: Vec<Zone> = if zones.is_empty() { vec!["a".into()] } else { zones.into_iter().collect() };
    let nodes = zones.len().max(1 + dice.below(4));
    let mut spec = ModelSpec::new(seed, (0..nodes).map(|node| zones[node % zones.len()].clone()).collect());
    spec.jitter = if dice.once_in(2) { 0.02 } else { 0.05 };
    // Our margin is made for that much (facts: seconds).
    spec.api_lag = dice.within(Duration::from_secs(3).min(fleet.drain.margin / 2));
    spec.merge = if dice.once_in(2) { Merge::First } else { Merge::Last };
    spec
}

fn group(fleet: &Fleet, group: &Group) -> GroupSpec {
    let mut targets = fleet.servers.iter().filter_map(|server| server.targets.get(&group.name)).flatten();
    GroupSpec {
        name: group.name.clone(),
        port: group.port,
        path: group.health.path.clone(),
        health_port: None,
        others: BTreeMap::new(),
        matcher: Matcher::default(),
        settings: group.health.settings,
        attributes: group.attributes(),
        by_address: targets.any(|target| target.id.as_str().parse::<std::net::IpAddr>().is_ok()),
    }
}

/// Where a node asks from.
fn address(node: usize) -> IpAddr {
    let [.., low] = node.to_be_bytes();
    IpAddr::from([10, 0, 0, low.wrapping_add(1)])
}

/// Whether the state of being drained dies with the process that holds it.
pub(super) fn dies_with_it(fleet: &Fleet) -> bool {
    !fleet.drain.by.facts().survives_restart && fleet.drain.by != DrainBy::Sigterm
}
