//! A pretended fleet behind the two ports, in virtual time: servers that can lie, a balancer whose nodes disagree.
//!
//! It counts what a client would have felt and whether a container was ever stopped while a node could still pick it.

use handover::clock::{Clock, Stamp};
use handover::config;
use handover::diag::Exit;
use handover::event::{Line, Sink};
use handover::fleet::health::Check;
use handover::fleet::held::HeldSeen;
use handover::fleet::model::*;
use handover::fleet::plan::Options;
use handover::fleet::provision::Change;
use handover::fleet::release::{Manifest, ServicePin};
use handover::fleet::verify::Evidence;
use handover::lab::balancer::model::{GroupSpec, Matcher, Merge, Model, ModelSpec, Pick};
use handover::rollout::port::{Balancer, BalancerError, Here, Server as ServerPort, ServerError};
use handover::rollout::{
    Deployed, Files, HookCommand, HookFailed, Order, Outside, Ports, Running, Source, Tell, deploy,
};
use handover::server::wire::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Something that goes otherwise than it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// `stop` returns 0 and the containers live on.
    StopLeavesAlive,
    /// `up` brings containers of the old image.
    UpOldImage,
    /// The new containers answer as the old version.
    AnswersOldVersion,
    /// Half of the workers go on answering 200.
    HalfFlips,
    /// Health follows, but real traffic is refused while drained.
    RealRefused,
    /// The new containers restart again and again.
    RestartLoop,
    /// `current` stays what it was.
    SwitchDoesNothing,
    /// Health stays 503 after the flip back of the new release.
    StaysDrained,
    /// On the server all is well, but the balancer never gets an answer from the new release.
    Unreachable,
    /// It dies while it is drained.
    DiesDrained,
    /// The server lock is somebody else's.
    LockHeld,
    /// The connection is lost at the stop.
    LostAtStop,
    /// A container has to be killed.
    Killed,
    /// The previous release does not come up again either.
    RollbackFails,
    /// The app leaves right after SIGTERM.
    LeavesAtOnce,
    /// Its own counter never falls silent.
    NeverSilent,
    /// Somebody else holds the server lock for a while.
    LockSlow,
    /// The app needs most of its grace period to stop.
    StopsSlowly,
    /// What only the second group checks has been dead all along.
    SecondGroupDead,
    /// What slept does not stop again.
    StaysAwake,
    /// One request behind the gateway never ends.
    NeverQuiet,
    /// The gateway of the new release does not take the listeners over.
    HandOverFails,
    /// Nor does that of the old one.
    HandBackFails,
}

#[derive(Debug)]
struct Sim {
    name: ServerName,
    running: Option<ReleaseId>,
    up: bool,
    drained: bool,
    term_until: Option<Stamp>,
    current: Option<ReleaseId>,
    previous: Option<ReleaseId>,
    absence: Option<Absence>,
    locked: bool,
    deploy_locked: bool,
    lies: BTreeSet<Lie>,
    /// This service sleeps here, and whether it runs all the same.
    asleep: Option<ServiceName>,
    /// What was run once here.
    once: Vec<OnceRecord>,
    roused: bool,
    restarts: u32,
    requests: Vec<String>,
    count: u64,
    work: Arc<tokio::sync::Mutex<()>>,
    unlocks: u32,
    /// What a gateway that holds runs, and since when it does.
    gateway: Option<ReleaseId>,
    /// Whether that gateway is the one beside, which nobody came to relieve.
    beside: bool,
    held_since: Option<Stamp>,
    /// The longest hold so far.
    longest_hold: Duration,
}

/// What a server is like, for assertions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looks {
    pub current: Option<ReleaseId>,
    pub running: Option<ReleaseId>,
    pub drained: bool,
    pub absence: Option<Absence>,
    pub locked: bool,
}

#[derive(Debug, Default)]
pub struct Trouble {
    /// Until then the API throttles every question.
    pub throttled_until: Option<Duration>,
    /// From then on it denies access.
    pub denied_from: Option<Duration>,
    pub denied_until: Option<Duration>,
    /// This server breaks at that moment.
    pub breaks: Option<(ServerName, Duration)>,
    /// So many questions were asked in any one second.
    pub busiest: u32,
    /// The connection to this server is lost at that moment.
    pub cut: Option<(ServerName, Duration)>,
    /// These requests are answered with a failure: by server and word.
    pub refuses: BTreeSet<(ServerName, &'static str)>,
    /// Registering and deregistering take so long.
    pub slow_orders: Duration,
    /// From then on no question to the balancer is ever answered.
    pub silent_from: Option<Duration>,
}

pub struct Inner {
    fleet: Fleet,
    model: Model,
    sims: BTreeMap<ServerName, Sim>,
    pub trouble: Trouble,
    pub served: u64,
    pub nowhere: u64,
    pub violations: Vec<String>,
    pub lowest_serving: usize,
    asked: Vec<(GroupName, Stamp)>,
    releases: BTreeMap<ReleaseId, Manifest>,
    new: ReleaseId,
    grace_before_leaving: Duration,
    /// Every order to run something once: where, what, and whether a server was out then.
    pub once: Vec<(ServerName, String, bool)>,
    /// The next one of that name ends so.
    pub once_ends: BTreeMap<String, Result<Option<i32>, ServerError>>,
}

/// The pretended fleet.
#[derive(Clone)]
pub struct World {
    pub inner: Arc<Mutex<Inner>>,
    pub clock: Clock,
    pub events: Arc<Mutex<Vec<Line>>>,
    /// The team's own commands that were run, and which of them fail.
    pub hooks: Arc<Mutex<Hooked>>,
    /// What a prober says was lost.
    pub lost: Arc<watch::Sender<u64>>,
}

impl Sink for World {
    fn take(&self, line: Line) {
        self.events.lock().expect("events").push(line);
    }
}

pub fn fleet(text: &str) -> Fleet {
    config::from_sources(&config::Source::new("deploy.toml", text), None).unwrap_or_else(|p| panic!("{p}")).fleet
}

/// What a gateway that fits says before a deploy.
fn fits(fleet: &Fleet) -> HeldSeen {
    HeldSeen {
        holding: false,
        forwarded: 1,
        tunnels: 0,
        waiting: 0,
        process: "1".to_owned(),
        hold: Duration::from_secs(120),
        file: fleet.drain.by.file().map(ToOwned::to_owned),
        hands_over: true,
    }
}

fn manifest(fleet: &Fleet, id: &str) -> Manifest {
    let pin = ServicePin {
        image: format!("registry/app@sha256:{id}"),
        grace: Duration::from_secs(30),
        replicas: 1,
        one_shot: false,
    };
    Manifest {
        format: 1,
        id: ReleaseId::new(id),
        label: None,
        services: fleet.services.iter().map(|s| (s.name.clone(), pin.clone())).collect(),
        files: BTreeMap::new(),
    }
}

pub const OLD: &str = "0ld0ld0ld0ld0ld0";
pub const NEW: &str = "new0new0new0new0";

impl World {
    /// A fleet that runs the old release everywhere, seen healthy by every node.
    pub async fn new(fleet: Fleet, nodes: usize, change: impl FnOnce(&mut ModelSpec)) -> Self {
        let zones: BTreeSet<Zone> = fleet.servers.iter().filter_map(|s| s.zone.clone()).collect();
        let zones: Vec<Zone> = if zones.is_empty() { vec!["a".into()] } else { zones.into_iter().collect() };
        let mut spec = ModelSpec::new(11, (0..nodes).map(|n| zones[n % zones.len()].clone()).collect());
        change(&mut spec);
        let by_address = |group: &Group| {
            let mut targets = fleet.servers.iter().filter_map(|s| s.targets.get(&group.name)).flatten();
            targets.any(|target| is_address(&target.id))
        };
        let groups = fleet
            .balancer
            .groups
            .iter()
            .map(|group| GroupSpec { by_address: by_address(group), ..group_spec(group) })
            .collect();
        let clock = Clock::start();
        let mut model = Model::new(spec, groups);
        for server in &fleet.servers {
            for (group, targets) in &server.targets {
                for target in targets {
                    model.register(group, target.id.clone(), target.port, server.zone.clone(), clock.now());
                }
            }
        }
        let sims = fleet.servers.iter().map(|server| (server.name.clone(), Sim::new(server.name.clone()))).collect();
        let releases = [OLD, NEW].map(|id| (ReleaseId::new(id), manifest(&fleet, id))).into();
        let lowest_serving = fleet.servers.len();
        let inner = Inner {
            fleet,
            model,
            sims,
            trouble: Trouble::default(),
            served: 0,
            nowhere: 0,
            violations: Vec::new(),
            lowest_serving,
            asked: Vec::new(),
            releases,
            new: ReleaseId::new(NEW),
            grace_before_leaving: Duration::from_secs(60),
            once: Vec::new(),
            once_ends: BTreeMap::new(),
        };
        let world = Self {
            inner: Arc::new(Mutex::new(inner)),
            clock,
            events: Arc::default(),
            hooks: Arc::default(),
            lost: Arc::new(watch::channel(0).0),
        };
        let ticking = world.clone();
        tokio::spawn(async move {
            loop {
                ticking.clock.sleep(Duration::from_millis(100)).await;
                ticking.inner.lock().expect("world").tick(ticking.clock.now());
            }
        });
        while !world.inner.lock().expect("world").model.all_healthy() {
            world.clock.sleep(Duration::from_secs(1)).await;
        }
        world.clock.sleep(Duration::from_secs(5)).await;
        let mut inner = world.inner.lock().expect("world");
        (inner.served, inner.nowhere) = (0, 0);
        drop(inner);
        world
    }

    pub fn lie(&self, server: &str, lie: Lie) -> &Self {
        self.with(|inner| inner.sims.get_mut(&server.into()).expect("server").lies.insert(lie));
        self
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().expect("world"))
    }

    /// What a server has: `current`, whether it is drained, whether it runs, its locks.
    pub fn state(&self, server: &str) -> String {
        self.with(|inner| {
            let sim = &inner.sims[&server.into()];
            let word = |id: &Option<ReleaseId>| {
                id.as_ref().map_or("none", |id| if id.as_str() == NEW { "new" } else { "old" }).to_owned()
            };
            let mut words = vec![
                format!("current {}", word(&sim.current)),
                format!("runs {}", word(&sim.running.clone().filter(|_| sim.up))),
            ];
            words.extend(sim.drained.then(|| "drained".to_owned()));
            words.extend(sim.absence.as_ref().map(|_| "absent".to_owned()));
            words.extend((sim.locked || sim.deploy_locked).then(|| "locked".to_owned()));
            words.join(", ")
        })
    }

    /// The same as values.
    pub fn looks(&self, server: &ServerName) -> Looks {
        self.with(|inner| {
            let sim = &inner.sims[server];
            Looks {
                current: sim.current.clone(),
                running: sim.running.clone().filter(|_| sim.up),
                drained: sim.drained,
                absence: sim.absence.clone(),
                locked: sim.locked || sim.deploy_locked,
            }
        })
    }

    /// Left out of rotation, by a deploy that failed or by a person.
    pub fn out(&self, server: &str, ends_when_verified: bool) {
        self.with(|inner| {
            let sim = inner.sims.get_mut(&server.into()).expect("server");
            sim.drained = true;
            sim.absence = Some(Absence { ends_when_verified, ..Absence::of_a_failure("before") });
        });
    }

    /// Whether a balancer node may send this server a request now.
    pub fn may_be_picked(&self, server: &ServerName) -> bool {
        let now = self.clock.now();
        self.with(|inner| inner.may_be_picked(server, now))
    }

    /// This service is off on every server because nobody needs it.
    pub fn sleeps(&self, service: &str) {
        self.with(|inner| inner.sims.values_mut().for_each(|sim| sim.asleep = Some(service.into())));
    }

    /// The servers on which what sleeps runs all the same.
    pub fn roused(&self) -> Vec<String> {
        self.with(|inner| inner.sims.values().filter(|sim| sim.roused).map(|sim| sim.name.to_string()).collect())
    }

    pub fn empty(&self, server: &str) {
        self.with(|inner| {
            let sim = inner.sims.get_mut(&server.into()).expect("server");
            (sim.running, sim.up, sim.current, sim.previous) = (None, false, None, None);
        });
    }

    pub async fn deploy(&self) -> Deployed {
        self.deploy_with(Options::default(), |_| {}).await
    }

    pub async fn deploy_with(&self, options: Options, change: impl FnOnce(&watch::Sender<u32>)) -> Deployed {
        self.carry_out(Source::Files(Files::default()), options, change).await
    }

    /// Takes a server out of rotation, as a person does.
    pub async fn drain(&self, server: &str) -> Deployed {
        self.carry_out(Source::Drain(drained("disk")), only(server), |_| {}).await
    }

    pub async fn undrain(&self, server: &str) -> Deployed {
        self.carry_out(Source::Undrain, only(server), |_| {}).await
    }

    pub async fn carry_out(
        &self,
        source: Source,
        options: Options,
        change: impl FnOnce(&watch::Sender<u32>),
    ) -> Deployed {
        let fleet = self.with(|inner| inner.fleet.clone());
        let ports = self.ports();
        let (interrupt, interrupts) = watch::channel(0);
        let lost = self.lost.subscribe();
        change(&interrupt);
        let run = Run { id: "1-1-1".into(), who: "somebody@test".into(), what: "handover deploy".into() };
        let order = Order { options, source, ..Order::of_files(run, fleet, Files::default()) };
        let tell = Tell { events: self, book: None };
        deploy(&ports, &order, &self.clock, tell, Outside { interrupts, lost }).await
    }

    pub fn ports(&self) -> Ports<SimPort, BalancerPort> {
        let fleet = self.with(|inner| inner.fleet.clone());
        let servers = fleet
            .servers
            .iter()
            .map(|s| (s.name.clone(), Arc::new(SimPort { world: self.clone(), name: s.name.clone() })))
            .collect();
        Ports { servers, balancer: Arc::new(BalancerPort(self.clone())), here: Arc::new(HookPort(self.clone())) }
    }

    /// The steps that failed, as `server step course`.
    pub fn failed_steps(&self) -> Vec<String> {
        let lines = self.events.lock().expect("events");
        lines
            .iter()
            .filter_map(|line| match &line.event {
                handover::event::Event::Step {
                    server,
                    step,
                    course,
                    state: handover::event::StepState::Failed,
                    ..
                } => Some(format!("{server} {step} {course:?}")),
                _ => None,
            })
            .collect()
    }

    /// Which release its gateway runs.
    pub fn gateway(&self, server: &str) -> Option<ReleaseId> {
        self.with(|inner| inner.sims[&server.into()].gateway.clone())
    }

    /// Its gateway has ended.
    pub fn loses_its_gateway(&self, server: &str) {
        self.with(|inner| inner.sims.get_mut(&server.into()).expect("server").gateway = None);
    }

    /// Its gateway handed over to the one beside, and whoever was to go on died.
    pub fn dies_in_a_renewal(&self, server: &str) {
        self.with(|inner| inner.sims.get_mut(&server.into()).expect("server").beside = true);
    }

    /// For how long it held everything, at the longest.
    pub fn longest_hold(&self, server: &str) -> Duration {
        self.with(|inner| inner.sims[&server.into()].longest_hold)
    }

    pub fn requests(&self, server: &str) -> Vec<String> {
        self.with(|inner| inner.sims[&server.into()].requests.clone())
    }
}

/// The commands that were run.
#[derive(Debug, Default)]
pub struct Hooked {
    /// Each, and whether the deploy lock was ours on every server meanwhile.
    pub run: Vec<(HookCommand, bool)>,
    /// These fail: by moment and server.
    pub fail: Vec<(Hook, Option<ServerName>)>,
    /// These never end.
    pub hang: Vec<Hook>,
}

impl Hooked {
    /// Every command as `moment` or `moment server`.
    pub fn names(&self) -> Vec<String> {
        let name = |command: &HookCommand| match &command.server {
            Some(server) => format!("{} {server}", command.hook),
            None => command.hook.to_string(),
        };
        self.run.iter().map(|(command, _)| name(command)).collect()
    }

    /// What the last command was told under a name.
    pub fn told(&self, name: &str) -> &str {
        self.run.last().and_then(|(command, _)| command.env.get(name)).map_or("", String::as_str)
    }
}

struct HookPort(World);

impl std::fmt::Debug for HookPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookPort")
    }
}

impl Here for HookPort {
    fn run(&self, command: HookCommand, said: tokio::sync::mpsc::UnboundedSender<String>) -> Running<'_> {
        let locked = self.0.with(|inner| inner.sims.values().all(|sim| sim.deploy_locked));
        let mut hooked = self.0.hooks.lock().expect("hooks");
        let fails = hooked.fail.contains(&(command.hook, command.server.clone()));
        let hangs = hooked.hang.contains(&command.hook);
        hooked.run.push((command, locked));
        Box::pin(async move {
            self.0.clock.sleep(Duration::from_secs(if hangs { 100_000 } else { 2 })).await;
            drop(said.send("a line".into()));
            let failed = || HookFailed { message: "`it` ended with exit code 1".into(), output: vec!["no".into()] };
            if fails { Err(failed()) } else { Ok(()) }
        })
    }
}

/// A person's word that a server is to be out.
pub fn drained(reason: &str) -> Absence {
    Absence { ends_when_verified: false, ..Absence::of_a_failure(reason) }
}

pub fn only(server: &str) -> Options {
    Options { servers: Some(vec![server.into()]), ..Options::default() }
}

fn group_spec(group: &Group) -> GroupSpec {
    GroupSpec {
        name: group.name.clone(),
        port: group.port,
        path: group.health.path.clone(),
        health_port: None,
        others: BTreeMap::new(),
        matcher: Matcher::default(),
        settings: group.health.settings,
        attributes: group.attributes(),
        by_address: false,
    }
}

fn is_address(id: &TargetId) -> bool {
    id.as_str().parse::<std::net::IpAddr>().is_ok()
}

pub fn last_merges(spec: &mut ModelSpec) {
    spec.merge = Merge::Last;
}

impl Sim {
    fn new(name: ServerName) -> Self {
        let old = Some(ReleaseId::new(OLD));
        Self {
            name,
            running: old.clone(),
            up: true,
            drained: false,
            term_until: None,
            current: old,
            previous: None,
            absence: None,
            locked: false,
            deploy_locked: false,
            lies: BTreeSet::new(),
            asleep: None,
            once: Vec::new(),
            roused: false,
            restarts: 0,
            requests: Vec::new(),
            count: 0,
            work: Arc::default(),
            unlocks: 0,
            gateway: Some(ReleaseId::new(OLD)),
            beside: false,
            held_since: None,
            longest_hold: Duration::ZERO,
        }
    }

    fn is_new(&self) -> bool {
        self.running.as_ref().is_some_and(|id| id.as_str() == NEW)
    }

    fn lies(&self, lie: Lie) -> bool {
        self.lies.contains(&lie)
    }

    fn answers(&self) -> bool {
        self.answers_itself() && !(self.lies(Lie::Unreachable) && self.is_new())
    }

    /// What the server itself sees of its app.
    fn answers_itself(&self) -> bool {
        let dead = (self.lies(Lie::DiesDrained) && self.drained) || (self.lies(Lie::RestartLoop) && self.is_new());
        self.up && self.running.is_some() && !dead
    }

    /// What was let through before ends within three seconds.
    fn is_quiet(&self, now: Stamp) -> bool {
        self.held_since.is_some_and(|since| now.since(since) >= Duration::from_secs(3)) && !self.lies(Lie::NeverQuiet)
    }

    fn sleeps(&self, service: &ServiceName) -> bool {
        !self.roused && self.asleep.as_ref() == Some(service)
    }

    fn container_of(&self, service: &ServiceName, gateway: Option<&ServiceName>) -> Container {
        let mut container = self.container(service);
        match &self.gateway {
            _ if gateway != Some(service) => {}
            None => container.state = ContainerState::Exited,
            Some(_) if self.beside => container.state = ContainerState::Exited,
            Some(release) => {
                container.image_id = format!("image of {release}");
                container.state = ContainerState::Running;
            }
        }
        container
    }

    fn container(&self, service: &ServiceName) -> Container {
        let mut image = self.running.clone().unwrap_or_else(|| ReleaseId::new("nothing"));
        if self.lies(Lie::UpOldImage) && self.is_new() {
            image = ReleaseId::new(OLD);
        }
        Container {
            service: service.clone(),
            name: format!("{}-{service}-1", self.name),
            state: if self.up && !self.sleeps(service) { ContainerState::Running } else { ContainerState::Exited },
            restarts: self.restarts,
            exit_code: 0,
            image_id: format!("image of {image}"),
            health: None,
        }
    }
}

impl Inner {
    fn tick(&mut self, now: Stamp) {
        if let Some((name, _)) = self.trouble.breaks.as_ref().filter(|(_, at)| now >= Stamp::at(*at)) {
            self.sims.get_mut(name).expect("server").up = false;
        }
        let mut left = Vec::new();
        for sim in self.sims.values_mut() {
            if sim.term_until.is_some_and(|until| now >= until) {
                sim.term_until = None;
                left.extend(sim.up.then(|| sim.name.clone()));
            }
        }
        for name in left {
            // An app that drains itself is gone at this moment: that is when nobody may pick it any more.
            if !self.sims[&name].lies(Lie::LeavesAtOnce) {
                self.about_to_stop(&name, now);
            }
            let sim = self.sims.get_mut(&name).expect("server");
            (sim.up, sim.running) = (false, None);
        }
        self.dead_man(now);
        let holds = self.fleet.drain.by.hold().is_some();
        for order in self.model.due(now) {
            let second = self.fleet.balancer.groups.get(1).is_some_and(|group| group.name == order.group);
            let check = match self.sim_of(&order.place.0) {
                Some(sim) if second && sim.lies(Lie::SecondGroupDead) && !sim.is_new() => {
                    Check::Fail(TargetReason::FailedHealthChecks)
                }
                // Whoever holds answers for himself.
                Some(sim) if holds && sim.gateway.is_some() => Check::Pass,
                Some(_) if holds => Check::Fail(TargetReason::FailedHealthChecks),
                Some(sim) if !sim.answers() => Check::Fail(TargetReason::FailedHealthChecks),
                Some(sim) if (sim.drained || sim.term_until.is_some()) && !sim.lies(Lie::HalfFlips) => {
                    Check::Fail(TargetReason::ResponseCodeMismatch)
                }
                Some(_) => Check::Pass,
                None => Check::Fail(TargetReason::FailedHealthChecks),
            };
            self.model.record(&order, check, now);
        }
        let groups: Vec<GroupName> = self.model.groups().map(|g| g.name.clone()).collect();
        for group in &groups {
            for node in 0..self.model.nodes() {
                let served = match self.model.pick(node, group, now) {
                    Pick::Target { place, .. } => {
                        self.sims.values_mut().find(|s| is_of(&self.fleet, &s.name, &place.0)).is_some_and(|sim| {
                            sim.count += 1;
                            sim.answers() || (holds && sim.held_since.is_some())
                        })
                    }
                    Pick::None => false,
                };
                if served { self.served += 1 } else { self.nowhere += 1 }
            }
        }
        let serving = self.sims.values().filter(|sim| sim.answers() && !sim.drained).count();
        self.lowest_serving = self.lowest_serving.min(serving);
    }

    fn sim_of(&self, id: &TargetId) -> Option<&Sim> {
        self.sims.values().find(|sim| is_of(&self.fleet, &sim.name, id))
    }

    /// Its health answers 200 again, whatever the record says.
    pub fn undrain(&mut self, server: &str) {
        self.sims.get_mut(&server.into()).expect("server").drained = false;
    }

    /// A record says that it is out, and nothing else does.
    pub fn absent(&mut self, server: &str, absence: Absence) {
        self.sims.get_mut(&server.into()).expect("server").absence = Some(absence);
    }

    /// What a script does to a server that knows no balancer: health fails or passes, the app runs or does not.
    pub fn by_hand(&mut self, server: &ServerName, drained: bool, up: bool) {
        let sim = self.sims.get_mut(server).expect("server");
        (sim.drained, sim.up) = (drained, up);
    }

    /// From now on a server does as it says.
    pub fn honest(&mut self, server: &str) {
        self.sims.get_mut(&server.into()).expect("server").lies.clear();
    }

    /// How long an app that drains on SIGTERM serves on, and the grace period that its release gives it.
    pub fn grace(&mut self, grace: Duration) {
        self.grace_before_leaving = grace;
        for manifest in self.releases.values_mut() {
            for pin in manifest.services.values_mut() {
                pin.grace = grace + Duration::from_secs(30);
            }
        }
    }

    fn about_to_stop(&mut self, name: &ServerName, now: Stamp) {
        if self.fleet.drain.by.hold().is_some() {
            if !self.sims[name].is_quiet(now) {
                self.violations.push(format!("{name} was stopped while a request was under way behind its gateway"));
            }
        } else if self.may_be_picked(name, now) && self.sims[name].answers() {
            self.violations.push(format!("{name} was stopped while a node could still pick it"));
        }
    }

    fn may_be_picked(&self, name: &ServerName, now: Stamp) -> bool {
        let server = self.fleet.server(name).expect("server");
        server.targets.iter().any(|(group, targets)| {
            let port = self.model.group(group).expect("group").port;
            targets.iter().any(|target| {
                let place = (target.id.clone(), target.port.unwrap_or(port));
                self.model.may_be_picked(group, &place, now)
            })
        })
    }

    /// What an agent does that nobody speaks to any more: free the locks, flip back what still runs what it ran.
    fn dead_man(&mut self, now: Stamp) {
        let lease = self.fleet.lock.lease;
        let Some((name, _)) = self.trouble.cut.as_ref().filter(|(_, at)| now >= Stamp::at(*at + lease)) else { return };
        let sim = self.sims.get_mut(name).expect("server");
        if sim.locked && sim.running == sim.current && sim.absence.is_none() {
            sim.drained = false;
        }
        (sim.locked, sim.deploy_locked) = (false, false);
    }

    fn is_cut(&self, name: &ServerName, now: Stamp) -> bool {
        self.trouble.cut.as_ref().is_some_and(|(cut, at)| cut == name && now >= Stamp::at(*at))
    }

    fn facts(&self, name: &ServerName) -> ServerFacts {
        let sim = &self.sims[name];
        let on_disk =
            |id: &ReleaseId| ReleaseOnDisk { manifest: self.releases[id].clone(), image_ids: self.image_ids(id) };
        let containers = if sim.running.is_some() {
            self.fleet.services.iter().map(|s| sim.container_of(&s.name, self.fleet.drain.by.hands_over())).collect()
        } else {
            Vec::new()
        };
        ServerFacts {
            compose: "2.40.3".into(),
            engine: "20.10".into(),
            missing: Vec::new(),
            disk_free: 1 << 40,
            current: sim.current.as_ref().map(on_disk),
            previous: sim.previous.as_ref().map(on_disk),
            incoming: None,
            containers,
            drained: sim.drained,
            by_hand: false,
            absence: sim.absence.clone(),
            lock: None,
            deploy_lock: None,
            freeze: None,
            watchdog: None,
            installed: None,
            asleep: sim.asleep.iter().map(|name| (name.clone(), "nobody needed it".to_owned())).collect(),
            once: sim.once.clone(),
            drift: Vec::new(),
            nodes: None,
            held: self.fleet.drain.by.hold().map(|_| match sim.gateway {
                Some(_) => Known::Known(fits(&self.fleet)),
                None => Known::Unknown("connection refused".into()),
            }),
        }
    }

    fn listed(&self, id: &ReleaseId) -> Listed {
        let release = ReleaseOnDisk { manifest: self.releases[id].clone(), image_ids: self.image_ids(id) };
        Listed { release, names: Vec::new(), staged: 0, broken: None }
    }

    fn image_ids(&self, id: &ReleaseId) -> BTreeMap<ServiceName, String> {
        self.fleet.services.iter().map(|s| (s.name.clone(), format!("image of {id}"))).collect()
    }
}

fn is_of(fleet: &Fleet, name: &ServerName, id: &TargetId) -> bool {
    fleet.server(name).is_some_and(|server| server.targets.values().flatten().any(|target| &target.id == id))
}

pub struct SimPort {
    world: World,
    name: ServerName,
}

impl ServerPort for SimPort {
    /// One request at a time, in order, as the agent has it; whoever asked may go away, the operation goes on.
    async fn call(&self, request: Request) -> Result<Reply, ServerError> {
        let port = Self { world: self.world.clone(), name: self.name.clone() };
        let work = self.world.with(|inner| {
            let sim = inner.sims.get_mut(&self.name).expect("server");
            sim.unlocks += u32::from(matches!(request, Request::Unlock { .. }));
            Arc::clone(&sim.work)
        });
        let done = tokio::spawn(async move {
            // Journals are read and written beside the work here, so that what the engine asks for stays countable.
            match request {
                Request::Journal { .. } => return Ok(Reply::Done),
                Request::Journals { .. } => return Ok(Reply::Journals(Vec::new())),
                _ => {}
            }
            let _one_at_a_time = work.lock().await;
            port.carry_out(request).await
        });
        done.await.expect("a server does not panic")
    }
}

impl SimPort {
    async fn carry_out(&self, request: Request) -> Result<Reply, ServerError> {
        let cut = |inner: &mut Inner| inner.is_cut(&self.name, self.world.clock.now());
        if self.world.with(cut) {
            return Err(ServerError::Unreachable("the line is cut".into()));
        }
        let wait = match &request {
            Request::Start { .. } => Duration::from_secs(3),
            Request::Sleep if self.world.with(|inner| inner.sims[&self.name].asleep.is_some()) => {
                Duration::from_secs(4)
            }
            _ => Duration::from_millis(50),
        };
        let reply = match request {
            Request::Stop => {
                let slow = self.world.with(|inner| inner.sims[&self.name].lies(Lie::StopsSlowly));
                self.stop(Duration::from_secs(if slow { 100 } else { 2 })).await
            }
            Request::Once { release, once } => {
                self.world.with(|inner| inner.begins_once(&self.name, &release, &once));
                self.world.clock.sleep(Duration::from_secs(30)).await;
                self.world.with(|inner| inner.ran_once(&self.name, release, &once))
            }
            request => {
                self.world.clock.sleep(wait).await;
                if matches!(request, Request::Lock { .. }) {
                    self.wait_for_the_lock().await;
                }
                let now = self.world.clock.now();
                self.world.with(|inner| inner.answer(&self.name, request, now))
            }
        };
        if self.world.with(cut) { Err(ServerError::Lost("the line is cut".into())) } else { reply }
    }

    /// Somebody else's for a minute; an unlock that comes meanwhile calls the waiting off.
    async fn wait_for_the_lock(&self) {
        let seen = |inner: &mut Inner| inner.sims[&self.name].unlocks;
        let (until, unlocks) = (self.world.clock.now() + Duration::from_secs(60), self.world.with(seen));
        while self.world.with(|inner| inner.sims[&self.name].lies(Lie::LockSlow))
            && self.world.clock.now() < until
            && self.world.with(seen) == unlocks
        {
            self.world.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    async fn stop(&self, wait: Duration) -> Result<Reply, ServerError> {
        let now = self.world.clock.now();
        let (sigterm, lies) = self.world.with(|inner| {
            let sigterm = inner.fleet.drain.by == DrainBy::Sigterm;
            let stays = inner.grace_before_leaving;
            if !sigterm {
                inner.about_to_stop(&self.name, now);
            }
            let sim = inner.sims.get_mut(&self.name).expect("server");
            sim.requests.push("stop".into());
            if sigterm && sim.running.is_some() {
                sim.term_until = Some(now + if sim.lies(Lie::LeavesAtOnce) { Duration::from_secs(1) } else { stays });
            }
            (sigterm, sim.lies.clone())
        });
        if sigterm {
            while self.world.with(|inner| inner.sims[&self.name].term_until.is_some()) {
                self.world.clock.sleep(Duration::from_millis(200)).await;
            }
        } else {
            self.world.clock.sleep(wait).await;
        }
        self.world.with(|inner| {
            let services: Vec<ServiceName> = inner.fleet.services.iter().map(|s| s.name.clone()).collect();
            let sim = inner.sims.get_mut(&self.name).expect("server");
            if lies.contains(&Lie::LostAtStop) && !sim.is_new() {
                return Err(ServerError::Lost("broken pipe".into()));
            }
            let old = !sim.is_new();
            let alive = lies.contains(&Lie::StopLeavesAlive) && old;
            let left = if alive { services.iter().map(|s| sim.container(s)).collect() } else { Vec::new() };
            if !alive {
                (sim.running, sim.up, sim.restarts) = (None, false, 0);
            }
            let exit_code = if lies.contains(&Lie::Killed) { 137 } else { 0 };
            let stopped = services
                .into_iter()
                .map(|service| StoppedContainer { name: service.to_string(), service, took: wait, exit_code })
                .collect();
            Ok(Reply::Stopped(Stopped { stopped, left }))
        })
    }
}

impl Inner {
    fn begins_once(&mut self, name: &ServerName, release: &ReleaseId, once: &Once) {
        let out = self.sims.values().any(|sim| sim.drained || sim.is_new());
        self.once.push((name.clone(), once.name.clone(), out));
        self.note(name, release, once, OnceState::Began);
    }

    fn ran_once(&mut self, name: &ServerName, release: ReleaseId, once: &Once) -> Result<Reply, ServerError> {
        let code = self.once_ends.remove(&once.name).unwrap_or(Ok(Some(0)))?;
        let state = if code == Some(0) { OnceState::Done } else { OnceState::Failed };
        self.note(name, &release, once, state);
        let output = vec!["relation \"users\" already exists".to_owned()];
        Ok(Reply::Once(OnceEnd { code, output, took: Duration::from_secs(30) }))
    }

    fn note(&mut self, name: &ServerName, release: &ReleaseId, once: &Once, state: OnceState) {
        let record = OnceRecord { release: release.clone(), name: once.name.clone(), state, at: 0 };
        note_once(&mut self.sims.get_mut(name).expect("server").once, record);
    }

    fn answer(&mut self, name: &ServerName, request: Request, now: Stamp) -> Result<Reply, ServerError> {
        let word = format!("{request:?}").split([' ', '{', '(']).next().unwrap_or_default().to_lowercase();
        let image_ids = |inner: &Self, id: &ReleaseId| inner.image_ids(id);
        let facts = self.facts(name);
        let new = self.new.clone();
        let new_manifest = self.releases[&new].clone();
        let ids = match &request {
            Request::Pull { release } | Request::Verify { release } => image_ids(self, release),
            _ => BTreeMap::new(),
        };
        let groups: Vec<GroupName> = self.fleet.server(name).expect("server").targets.keys().cloned().collect();
        let services = self.fleet.services.clone();
        let gateway = self.fleet.drain.by.hands_over().cloned();
        let file = self.fleet.drain.by.file().map(ToOwned::to_owned);
        let listed = self.releases.keys().map(|id| self.listed(id)).collect();
        let survives = self.fleet.drain.by.facts().survives_restart || self.fleet.drain.by == DrainBy::Sigterm;
        let refused = self.trouble.refuses.iter().any(|(server, refused)| server == name && *refused == word);
        let sim = self.sims.get_mut(name).expect("server");
        sim.requests.push(word);
        if refused {
            return Err(ServerError::Failed(Failure::new(FailureKind::Command, "no space left on device")));
        }
        Ok(match request {
            Request::Observe => Reply::Facts(Box::new(facts)),
            Request::LockDeploy => {
                sim.deploy_locked = true;
                Reply::Locked
            }
            Request::UnlockDeploy => {
                sim.deploy_locked = false;
                Reply::Done
            }
            Request::Lock { .. } if sim.lies(Lie::LockHeld) => {
                Reply::Held(Holder { who: "root@web".into(), what: "backup.sh".into(), since: 0, run: None })
            }
            Request::Lock { .. } => {
                sim.locked = true;
                Reply::Locked
            }
            Request::Unlock { .. } => {
                sim.locked = false;
                Reply::Done
            }
            Request::Resolve { .. } => Reply::Resolved(Box::new(Resolved {
                definition: "{}".into(),
                manifest: new_manifest,
                warnings: Vec::new(),
            })),
            Request::Pull { .. } => Reply::Pulled(ids),
            Request::Releases => Reply::Releases(listed),
            Request::Flip { drained } => {
                sim.drained = drained || (sim.lies(Lie::StaysDrained) && sim.is_new());
                if let Some(since) = sim.held_since.filter(|_| !sim.drained) {
                    sim.longest_hold = sim.longest_hold.max(now.since(since));
                }
                sim.held_since = sim.drained.then(|| sim.held_since.unwrap_or(now));
                Reply::Done
            }
            Request::Look => {
                let health = match (sim.answers_itself(), sim.drained) {
                    (false, _) => vec![0; 4],
                    (true, true) if sim.lies(Lie::HalfFlips) => vec![503, 200, 503, 200],
                    (true, true) => vec![503; 4],
                    (true, false) => vec![200; 4],
                };
                let real = if sim.drained && sim.lies(Lie::RealRefused) { 503 } else { 200 };
                let real = if sim.answers_itself() { real } else { 0 };
                Reply::Sighting(Sighting {
                    health: groups.into_iter().map(|g| (g, health.clone())).collect(),
                    real: vec![real; 4],
                })
            }
            Request::Held => Reply::Holding(Known::Known(HeldSeen {
                holding: sim.held_since.is_some(),
                forwarded: u64::from(!sim.is_quiet(now)),
                tunnels: 0,
                waiting: 0,
                process: sim.gateway.as_ref().map(ToString::to_string).unwrap_or_default(),
                hold: Duration::from_secs(120),
                file,
                hands_over: true,
            })),
            Request::HandOver { release } => {
                let back = release.as_str() == OLD;
                if sim.lies(if back { Lie::HandBackFails } else { Lie::HandOverFails }) {
                    let message = "it did not take the listeners over";
                    return Err(ServerError::Failed(Failure::new(FailureKind::Command, message)));
                }
                sim.gateway = Some(release);
                sim.beside = false;
                Reply::Started(services.iter().map(|s| sim.container_of(&s.name, gateway.as_ref())).collect())
            }
            Request::Nodes => Reply::Nodes(Known::Unknown("nobody counts here".into())),
            Request::Count => {
                if !sim.lies(Lie::NeverSilent) && sim.drained {
                    Reply::Count(Some(7))
                } else {
                    sim.count += 1;
                    Reply::Count(Some(sim.count))
                }
            }
            Request::Start { release } => {
                let back = release.as_str() == OLD;
                // What does not run comes up with all others.
                sim.gateway.get_or_insert_with(|| release.clone());
                sim.running = Some(release);
                sim.roused = true;
                sim.up = !(back && sim.lies(Lie::RollbackFails));
                // A state that lives in the process dies with it.
                sim.drained &= survives;
                Reply::Started(services.iter().map(|s| sim.container_of(&s.name, gateway.as_ref())).collect())
            }
            Request::Verify { release } => {
                if sim.lies(Lie::RestartLoop) && sim.is_new() {
                    sim.restarts += 1;
                }
                let shown = if sim.lies(Lie::AnswersOldVersion) && sim.is_new() {
                    ReleaseId::new(OLD)
                } else {
                    sim.running.clone().unwrap_or(release)
                };
                let evidence = |service: &Service| match &service.verify {
                    _ if !sim.up || sim.sleeps(&service.name) => Evidence::Nothing("connection refused".into()),
                    Verify::Http { .. } => {
                        Evidence::Http { status: 200, body: format!(r#"{{"version":"{}"}}"#, shown.short()) }
                    }
                    Verify::Tcp { .. } => Evidence::Connected,
                    Verify::Exec { .. } => Evidence::Exec { code: 0, output: String::new() },
                    Verify::Heartbeat { .. } => Evidence::Touched { age: Duration::ZERO, after_start: true },
                };
                Reply::Verified(Box::new(Verified {
                    containers: services.iter().map(|s| sim.container_of(&s.name, gateway.as_ref())).collect(),
                    image_ids: ids,
                    services: services.iter().map(|s| (s.name.clone(), evidence(s))).collect(),
                    logs: BTreeMap::new(),
                    asleep: sim.asleep.iter().cloned().collect(),
                }))
            }
            Request::Switch { release } => {
                if !(sim.lies(Lie::SwitchDoesNothing) && release.as_str() == NEW) {
                    sim.previous = sim.current.replace(release);
                }
                Reply::Switched(sim.current.clone().unwrap_or_else(|| ReleaseId::new("none")))
            }
            Request::Sleep => {
                let stays = sim.lies(Lie::StaysAwake);
                sim.roused = stays;
                let (up, own) = (sim.up, sim.asleep.clone());
                let own = own.iter().filter(|_| up);
                let slept = |service: &ServiceName| StoppedContainer {
                    service: service.clone(),
                    name: service.to_string(),
                    took: Duration::from_secs(1),
                    exit_code: 0,
                };
                let left = own.clone().filter(|_| stays).map(|service| sim.container(service)).collect();
                Reply::Stopped(Stopped { stopped: own.filter(|_| !stays).map(slept).collect(), left })
            }
            Request::Absent { absence } => {
                sim.absence = absence;
                Reply::Done
            }
            Request::Stage { .. }
            | Request::Adopt
            | Request::Freeze { .. }
            | Request::Unfreeze
            | Request::Stop
            | Request::Once { .. }
            | Request::Journal { .. }
            | Request::Journals { .. }
            | Request::Install
            | Request::Uninstall => Reply::Done,
        })
    }
}

pub struct BalancerPort(World);

impl BalancerPort {
    async fn ask<T>(&self, answer: impl FnOnce(&mut Inner, Stamp) -> T) -> Result<T, BalancerError> {
        self.0.clock.sleep(Duration::from_millis(80)).await;
        let now = self.0.clock.now();
        if self.0.with(|inner| inner.trouble.silent_from.is_some_and(|from| now >= Stamp::at(from))) {
            std::future::pending::<()>().await;
        }
        self.0.with(|inner| {
            let given_back = inner.trouble.denied_until.is_some_and(|until| now >= Stamp::at(until));
            if !given_back && inner.trouble.denied_from.is_some_and(|from| now >= Stamp::at(from)) {
                return Err(BalancerError::Refused(
                    "AccessDenied: not authorized to perform DescribeTargetHealth".into(),
                ));
            }
            if inner.trouble.throttled_until.is_some_and(|until| now < Stamp::at(until)) {
                return Err(BalancerError::Unknown("Throttling: Rate exceeded".into()));
            }
            Ok(answer(inner, now))
        })
    }
}

impl Balancer for BalancerPort {
    async fn observe(&self, group: &GroupName) -> Result<GroupView, BalancerError> {
        self.ask(|inner, now| {
            let spec = inner.model.group(group).expect("group").clone();
            GroupView {
                id: spec.name.to_string(),
                path: spec.path,
                health_port: spec.health_port,
                settings: spec.settings,
                attributes: spec.attributes,
                beside: Beside::default(),
                fronts: Vec::new(),
                by_address: spec.by_address,
                word: Word::Merged,
                notes: Vec::new(),
                targets: inner.model.describe(group, now).expect("group"),
            }
        })
        .await
    }

    async fn health(&self, group: &GroupName) -> Result<Vec<TargetView>, BalancerError> {
        self.ask(|inner, now| {
            inner.asked.push((group.clone(), now));
            let recent = inner
                .asked
                .iter()
                .rev()
                .take_while(|(_, at)| now.since(*at) < Duration::from_millis(990))
                .filter(|(g, _)| g == group)
                .count();
            inner.trouble.busiest = inner.trouble.busiest.max(u32::try_from(recent).expect("few"));
            inner.model.describe(group, now).expect("group")
        })
        .await
    }

    async fn register(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        self.0.clock.sleep(self.0.with(|inner| inner.trouble.slow_orders)).await;
        for target in targets {
            let zone = self.0.with(|inner| {
                inner
                    .fleet
                    .servers
                    .iter()
                    .find(|s| s.targets.values().flatten().any(|t| t.id == target.id))
                    .and_then(|s| s.zone.clone())
            });
            self.ask(|inner, now| inner.model.register(&target.group, target.id.clone(), Some(target.port), zone, now))
                .await?;
        }
        Ok(())
    }

    async fn deregister(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        self.0.clock.sleep(self.0.with(|inner| inner.trouble.slow_orders)).await;
        for target in targets {
            self.ask(|inner, now| inner.model.deregister(&target.group, &target.id, Some(target.port), now)).await?;
        }
        Ok(())
    }

    async fn front(&self, id: &str) -> Result<FrontView, BalancerError> {
        Err(BalancerError::Refused(format!("this world has no load balancer {id}")))
    }

    async fn apply(&self, change: &Change) -> Result<(), BalancerError> {
        Err(BalancerError::Refused(format!("nothing is provisioned in this world: {change}")))
    }
}

pub fn exit(deployed: &Deployed) -> Exit {
    deployed.problem().map_or(Exit::Done, |problem| problem.exit)
}

pub fn message(deployed: &Deployed) -> String {
    deployed.problem().map_or_else(String::new, |problem| problem.message.clone())
}
