//! A simulated server: what lies on its disk, what runs on it, who holds its locks, and what it says of itself.

use super::count::Count;
use super::faults::{Fault, Wreck};
use super::world::{Inner, NEW, OLD};
use crate::clock::Stamp;
use crate::fleet::model::{
    Absence, Container, ContainerState, Holder, OnceRecord, ReleaseId, ReleaseOnDisk, ServerFacts, ServerName, Service,
    ServiceName, Verify,
};
use crate::fleet::recovery::State;
use crate::fleet::verify::Evidence;
use crate::server::wire::{Failure, FailureKind, Listed, Sighting, Verified};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who an agent is: a process of its own for each connection.
pub(super) type AgentId = u64;

/// A server.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) running: Option<ReleaseId>,
    pub(super) up: bool,
    pub(super) started: Option<Stamp>,
    pub(super) drained: bool,
    pub(super) nodes: Count,
    /// Until when an app that drains itself on SIGTERM stays.
    pub(super) leaving: Option<Stamp>,
    pub(super) absence: Option<Absence>,
    pub(super) current: Option<ReleaseId>,
    pub(super) previous: Option<ReleaseId>,
    pub(super) incoming: Option<ReleaseId>,
    pub(super) on_disk: BTreeSet<ReleaseId>,
    pub(super) lock: Option<AgentId>,
    pub(super) deploy_lock: Option<AgentId>,
    /// The runs that took the locks last and did not free them in order.
    pub(super) lock_note: Option<String>,
    pub(super) deploy_note: Option<String>,
    /// What the record says: how far, by which run.
    pub(super) state: State,
    pub(super) record_of: Option<String>,
    /// Who has the lock has done nothing yet to what he found.
    pub(super) untouched: bool,
    /// A command that goes on although its agent was killed ends then.
    pub(super) command_until: Option<Stamp>,
    pub(super) journals: BTreeMap<String, String>,
    pub(super) agents: BTreeMap<AgentId, Agent>,
    /// Who changes something at this moment.
    pub(super) at_work: Option<(AgentId, String)>,
    pub(super) restarts: u32,
    /// What a gateway has put to sleep here, and whether it runs all the same for now.
    pub(super) asleep: BTreeMap<ServiceName, String>,
    pub(super) roused: bool,
    pub(super) once: Vec<OnceRecord>,
    pub(super) count: u64,
    /// Unlocks that were asked for: each calls a waiting lock off.
    pub(super) unlocks: u64,
}

/// An agent.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) run: String,
    /// Nobody can speak to it any more.
    pub(super) gone: bool,
    /// It ended, one way or the other.
    pub(super) ended: bool,
    /// Another one of the same run goes on: it puts nothing right.
    pub(super) yields: bool,
}

impl Machine {
    pub(super) fn new() -> Self {
        let old = ReleaseId::new(OLD);
        Self {
            running: Some(old.clone()),
            up: true,
            nodes: Count::default(),
            started: Some(Stamp::ZERO),
            drained: false,
            leaving: None,
            absence: None,
            current: Some(old.clone()),
            previous: None,
            incoming: None,
            on_disk: BTreeSet::from([old]),
            lock: None,
            deploy_lock: None,
            lock_note: None,
            deploy_note: None,
            state: State::Idle,
            record_of: None,
            untouched: false,
            command_until: None,
            journals: BTreeMap::new(),
            agents: BTreeMap::new(),
            at_work: None,
            restarts: 0,
            asleep: BTreeMap::new(),
            roused: false,
            once: Vec::new(),
            count: 0,
            unlocks: 0,
        }
    }

    fn sleeps(&self, service: &ServiceName) -> bool {
        !self.roused && self.asleep.contains_key(service)
    }

    pub(super) fn runs_new(&self) -> bool {
        self.running.as_ref().is_some_and(|id| id.as_str() != OLD)
    }
}

fn short_on_disk(why: &str) -> Failure {
    Failure::new(FailureKind::Internal, why)
}

impl Inner {
    pub(super) fn disk_is_full(&self, name: &ServerName, now: Stamp) -> Result<(), Failure> {
        let since = self.since(now);
        let full = self.has(|fault| matches!(fault, Fault::DiskFull(at, from) if at == name && since >= *from));
        if full { Err(short_on_disk("no space left on device")) } else { Ok(()) }
    }

    pub(super) fn image_ids(&self, id: &ReleaseId) -> BTreeMap<ServiceName, String> {
        self.fleet.services.iter().map(|s| (s.name.clone(), format!("image of {}", id.short()))).collect()
    }

    pub(super) fn release_on_disk(&self, id: &ReleaseId) -> Option<ReleaseOnDisk> {
        let manifest = self.releases.get(id)?.clone();
        Some(ReleaseOnDisk { manifest, image_ids: self.image_ids(id) })
    }

    fn containers(&self, name: &ServerName, now: Stamp) -> Vec<Container> {
        let machine = &self.machines[name];
        let Some(running) = &machine.running else { return Vec::new() };
        let other = machine.runs_new() && self.wreck(name) == Some(Wreck::OtherImage);
        let image = if other { "image of something else".to_owned() } else { format!("image of {}", running.short()) };
        let runs = self.answers(name, now);
        let one = |service: &Service| Container {
            service: service.name.clone(),
            name: format!("{}-{}-1", self.fleet.app, service.name),
            state: if runs && !machine.sleeps(&service.name) {
                ContainerState::Running
            } else {
                ContainerState::Exited
            },
            restarts: machine.restarts,
            exit_code: i32::from(!runs),
            image_id: image.clone(),
            health: None,
        };
        self.fleet.services.iter().map(one).collect()
    }

    pub(super) fn facts(&self, name: &ServerName, now: Stamp) -> ServerFacts {
        let machine = &self.machines[name];
        let named = |id: &Option<ReleaseId>| {
            id.as_ref().filter(|id| machine.on_disk.contains(*id)).and_then(|id| self.release_on_disk(id))
        };
        let holder = |agent: &Option<AgentId>| {
            let run = machine.agents.get(agent.as_ref()?)?.run.clone();
            Some(Holder { who: run.clone(), what: "handover".into(), since: 0, run: Some(run) })
        };
        ServerFacts {
            compose: "2.40.3".into(),
            engine: "20.10".into(),
            missing: self.disk_is_full(name, now).err().map(|full| full.message).into_iter().collect(),
            disk_free: 1 << 40,
            current: named(&machine.current),
            previous: named(&machine.previous),
            incoming: machine.incoming.clone(),
            containers: self.containers(name, now),
            drained: machine.drained,
            by_hand: false,
            absence: machine.absence.clone(),
            lock: holder(&machine.lock),
            deploy_lock: holder(&machine.deploy_lock),
            freeze: None,
            watchdog: None,
            installed: None,
            asleep: machine.asleep.clone(),
            once: machine.once.clone(),
            drift: Vec::new(),
            nodes: None,
            held: None,
        }
    }

    pub(super) fn listed(&self, name: &ServerName) -> Vec<Listed> {
        let machine = &self.machines[name];
        let one = |id: &ReleaseId| {
            Some(Listed { release: self.release_on_disk(id)?, names: Vec::new(), staged: 0, broken: None })
        };
        machine.on_disk.iter().filter_map(one).collect()
    }

    pub(super) fn look(&self, name: &ServerName, now: Stamp) -> Sighting {
        let machine = &self.machines[name];
        let (answers, half) = (self.answers(name, now), self.has(|f| matches!(f, Fault::HalfFlips(at) if at == name)));
        let health = match (answers, machine.drained || machine.leaving.is_some()) {
            (false, _) => vec![0; 4],
            (true, true) if half => vec![503, 200, 503, 200],
            (true, true) => vec![503; 4],
            (true, false) => vec![200; 4],
        };
        let refused = machine.drained && self.has(|fault| matches!(fault, Fault::RealRefused(at) if at == name));
        let real = match (answers, refused) {
            (false, _) => 0,
            (true, true) => 503,
            (true, false) => 200,
        };
        let groups = self.fleet.server(name).map(|server| server.targets.keys().cloned().collect::<Vec<_>>());
        Sighting {
            health: groups.unwrap_or_default().into_iter().map(|group| (group, health.clone())).collect(),
            real: vec![real; 4],
        }
    }

    pub(super) fn verify(&mut self, name: &ServerName, release: &ReleaseId, now: Stamp) -> Verified {
        let wreck = self.wreck(name);
        if let Some(machine) = self.machines.get_mut(name)
            && machine.runs_new()
            && wreck == Some(Wreck::CrashLoop)
        {
            machine.restarts += 1;
        }
        let machine = &self.machines[name];
        let runs = self.answers(name, now);
        let shown = match (&machine.running, wreck) {
            (Some(_), Some(Wreck::OldVersion)) if machine.runs_new() => ReleaseId::new(OLD),
            (Some(running), _) => running.clone(),
            (None, _) => ReleaseId::new("nothing"),
        };
        let evidence = |service: &Service| match &service.verify {
            _ if !runs || machine.sleeps(&service.name) => Evidence::Nothing("connection refused".into()),
            Verify::Http { .. } => {
                Evidence::Http { status: 200, body: format!(r#"{{"version":"{}"}}"#, shown.short()) }
            }
            Verify::Tcp { .. } => Evidence::Connected,
            Verify::Exec { .. } => Evidence::Exec { code: 0, output: String::new() },
            Verify::Heartbeat { .. } => Evidence::Touched { age: Duration::ZERO, after_start: true },
        };
        Verified {
            containers: self.containers(name, now),
            image_ids: self.image_ids(release),
            services: self.fleet.services.iter().map(|s| (s.name.clone(), evidence(s))).collect(),
            logs: BTreeMap::new(),
            asleep: machine.asleep.keys().cloned().collect(),
        }
    }

    /// Whether what runs is what a release says, and passes its checks.
    pub(super) fn passes(&self, name: &ServerName, release: &ReleaseId, now: Stamp) -> bool {
        let machine = &self.machines[name];
        let wrong = matches!(self.wreck(name), Some(Wreck::OtherImage | Wreck::OldVersion)) && machine.runs_new();
        machine.running.as_ref() == Some(release) && self.answers(name, now) && !wrong
    }

    /// What was to be brought: the release that the run of this world is about.
    pub(super) fn new_release() -> ReleaseId {
        ReleaseId::new(NEW)
    }
}
