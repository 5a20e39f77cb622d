//! The lab's servers: the other side of the `Server` port, with real processes instead of containers.
//!
//! Every request is answered from what really runs. It knows nothing of the balancer: what the balancer makes of a
//! service that stopped is seen over the network, as in reality.

mod front;
mod locks;
mod looks;
mod process;
mod release;
mod services;
mod watchdog;
mod wiring;

pub use process::ServiceCommand;

use crate::clock::Clock;
use crate::event::LabService;
use crate::fleet::model::{
    Absence, Fleet, Once, OnceRecord, OnceState, ReleaseId, ReleaseOnDisk, Server as ServerSpec, ServerFacts,
    ServerName, ServiceName, note_once,
};
use crate::lab::lock;
use crate::lab::ports::Ports;
use crate::lab::service::Fault;
use crate::rollout::port::{Server, ServerError};
use crate::server::wire::{Failure, FailureKind, Listed, OnceEnd, Reply, Request, Run, Stopped};
use front::Front;
use locks::Locks;
use process::Process;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wiring::Wiring;

/// What is run once takes so long in fleet time.
const ONCE: Duration = Duration::from_secs(2);

/// What a lab's servers are made of.
#[derive(Debug, Clone)]
pub(super) struct ServersSpec {
    pub(super) fleet: Arc<Fleet>,
    pub(super) clock: Clock,
    pub(super) command: ServiceCommand,
    /// A folder that lasts as long as the lab.
    pub(super) dir: PathBuf,
    pub(super) seed: u64,
    /// What is wrong with services of every release but the first: on one server, or on all.
    pub(super) faults: Vec<(Option<ServerName>, ServiceName, Fault)>,
}

/// A server of the lab, as one run sees it.
#[derive(Debug, Clone)]
pub struct LabServer {
    machine: Arc<Machine>,
    run: Run,
}

/// The server itself; every run sees the same one.
#[derive(Debug)]
struct Machine {
    spec: ServersSpec,
    server: ServerSpec,
    wiring: Wiring,
    front: Option<Front>,
    dir: PathBuf,
    state: Mutex<State>,
    locks: Locks,
    unreachable: AtomicBool,
    /// One changing command at a time.
    work: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    containers: BTreeMap<ServiceName, Arc<Process>>,
    releases: BTreeMap<ReleaseId, ReleaseOnDisk>,
    current: Option<ReleaseId>,
    previous: Option<ReleaseId>,
    incoming: Option<ReleaseId>,
    /// The one file that says what runs, where scripts write it without naming a release.
    definition: Option<ReleaseId>,
    drained: bool,
    absence: Option<Absence>,
    records: Vec<String>,
    /// What was run once here, as far as it is said.
    once: Vec<OnceRecord>,
    /// By run.
    journals: BTreeMap<String, String>,
}

impl LabServer {
    pub(super) fn new(spec: &ServersSpec, server: &ServerSpec, ports: &mut Ports) -> io::Result<Self> {
        let wiring = Wiring::new(&spec.fleet, server, ports)?;
        let front = spec.fleet.drain.by.hold().map(|_| ports.take().map(Front::new)).transpose()?;
        let dir = spec.dir.join(server.name.as_str());
        std::fs::create_dir_all(&dir)?;
        let old = release::old(&spec.fleet);
        let id = old.manifest.id.clone();
        let state = State { releases: BTreeMap::from([(id.clone(), old)]), current: Some(id), ..State::default() };
        let machine = Machine {
            spec: spec.clone(),
            server: server.clone(),
            wiring,
            front,
            dir,
            state: Mutex::new(state),
            locks: Locks::default(),
            unreachable: AtomicBool::new(false),
            work: tokio::sync::Mutex::default(),
        };
        let run = Run { id: "lab".into(), who: "the lab".into(), what: "rehearse".into() };
        Ok(Self { machine: Arc::new(machine), run })
    }

    /// The same server, as another run sees it: their locks exclude each other.
    #[must_use]
    pub fn for_run(&self, run: Run) -> Self {
        Self { machine: Arc::clone(&self.machine), run }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &ServerName {
        &self.machine.server.name
    }

    /// Where a port that deploy.toml names on this server really is.
    #[must_use]
    pub fn address(&self, port: u16) -> Option<SocketAddr> {
        self.machine.wiring.at(port)
    }

    /// Its services that run.
    #[must_use]
    pub fn services(&self) -> Vec<LabService> {
        let containers = lock(&self.machine.state).containers.clone();
        let running = containers.iter().filter(|(_, process)| process.exit_code().is_none());
        running
            .map(|(service, process)| LabService {
                server: self.name().clone(),
                service: service.clone(),
                pid: process.pid,
                address: self.machine.wiring.listens(service).first().map(|listen| listen.at.to_string()),
            })
            .collect()
    }

    /// Cuts the line to it, or mends it: it answers no run, and serves on.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.machine.unreachable.store(unreachable, Ordering::SeqCst);
    }

    /// The sentences that runs left when they freed its lock.
    #[must_use]
    pub fn records(&self) -> Vec<String> {
        lock(&self.machine.state).records.clone()
    }

    /// Starts what is `current`.
    pub(super) async fn boot(&self) -> Result<(), Failure> {
        self.machine.renew_front().await?;
        let current = lock(&self.machine.state).current.clone();
        match current {
            Some(current) => self.machine.start(&current).await,
            None => Ok(()),
        }
    }

    /// Waits until every service listens.
    pub(super) async fn ready(&self) -> Result<(), Failure> {
        self.machine.ready().await
    }

    /// Restarts everything with another release at once, the way scripts do it: no drain, no lock, no question.
    pub(super) async fn restart_with(&self, release: &ReleaseId) -> Result<(), Failure> {
        self.machine.stop().await;
        self.machine.start(release).await?;
        self.machine.ready().await
    }

    /// Ends every service at once.
    pub(super) fn kill(&self) {
        lock(&self.machine.state).containers.values().for_each(|process| process.kill());
        self.machine.front.iter().for_each(Front::kill);
    }

    /// Ends every service at once, and waits until none is left.
    pub(super) async fn end(&self) {
        self.kill();
        let containers = lock(&self.machine.state).containers.clone();
        for process in containers.values() {
            process.ended().await;
        }
    }

    /// Makes a release known as if it had been staged and pulled.
    pub(super) fn learn(&self, release: ReleaseOnDisk) {
        lock(&self.machine.state).releases.insert(release.manifest.id.clone(), release);
    }

    /// A release that is not the first one.
    pub(super) fn another_release(&self) -> Result<ReleaseOnDisk, Failure> {
        let vars = BTreeMap::from([("TAG".to_owned(), "another".to_owned())]);
        Ok(release::on_disk(release::resolve(&self.machine.spec.fleet, &[], "", &vars)?.manifest))
    }
}

impl Server for LabServer {
    async fn call(&self, request: Request) -> Result<Reply, ServerError> {
        if self.machine.unreachable.load(Ordering::SeqCst) {
            return Err(ServerError::Unreachable("the line is cut, as ordered".into()));
        }
        let server = self.clone();
        // A task of its own: whoever asked may go away, the operation goes on.
        let done = tokio::spawn(async move { server.machine.answer(&server.run, request).await }).await;
        done.map_err(|error| ServerError::Lost(error.to_string()))?.map_err(ServerError::Failed)
    }
}

impl Machine {
    async fn answer(&self, run: &Run, request: Request) -> Result<Reply, Failure> {
        if changes(&request) && !self.locks.is_ours(run) {
            return Err(Failure::new(FailureKind::NotLocked, "the server lock is not ours"));
        }
        match request {
            Request::Observe => {
                let held = if self.front.is_some() { Some(self.held().await) } else { None };
                Ok(Reply::Facts(Box::new(ServerFacts { held, ..self.facts() })))
            }
            Request::Held => Ok(Reply::Holding(self.held().await)),
            Request::HandOver { release } => {
                self.hand_over(&release).await?;
                Ok(Reply::Started(self.containers()))
            }
            Request::LockDeploy => Ok(self.locks.deploy(run)),
            Request::UnlockDeploy => Ok(self.locks.free_deploy(run)),
            Request::Lock { wait } => Ok(self.locks.server(run, self.spec.clock.wall(wait)).await),
            Request::Unlock { record } => {
                lock(&self.state).records.push(record);
                Ok(self.locks.free_server(run))
            }
            Request::Freeze { reason } => Ok(self.locks.freeze(run, reason)),
            Request::Unfreeze => Ok(self.locks.unfreeze()),
            Request::Resolve { files, compose, vars } => {
                Ok(Reply::Resolved(Box::new(release::resolve(&self.spec.fleet, &files, &compose, &vars)?)))
            }
            Request::Stage { manifest, files } => self.stage(manifest, &files),
            Request::Pull { release } => Ok(Reply::Pulled(self.release(&release)?.image_ids)),
            Request::Adopt => self.adopt(),
            Request::Flip { drained } => self.flip(drained).await,
            Request::Look => Ok(Reply::Sighting(self.look().await)),
            Request::Count => Ok(Reply::Count(self.count().await)),
            Request::Nodes => Ok(Reply::Nodes(self.nodes().await)),
            Request::Once { release, once } => self.once(&release, &once).await,
            Request::Stop => Ok(Reply::Stopped(self.stop().await)),
            Request::Start { release } => {
                self.start(&release).await?;
                Ok(Reply::Started(self.containers()))
            }
            Request::Verify { release } => Ok(Reply::Verified(Box::new(self.verify(&release).await?))),
            Request::Switch { release } => self.switch(&release),
            // Nobody puts anything to sleep in a lab.
            Request::Sleep => Ok(Reply::Stopped(Stopped { stopped: Vec::new(), left: Vec::new() })),
            Request::Absent { absence } => {
                lock(&self.state).absence = absence.map(|absence| Absence { since: locks::now(), ..absence });
                Ok(Reply::Done)
            }
            Request::Releases => Ok(Reply::Releases(self.listed())),
            Request::Journal { lines } => {
                let mut state = lock(&self.state);
                let text = state.journals.entry(run.id.clone()).or_default();
                lines.iter().for_each(|line| *text += &format!("{line}\n"));
                Ok(Reply::Done)
            }
            Request::Install | Request::Uninstall => Ok(Reply::Installed(Vec::new())),
            Request::Journals { .. } => Ok(Reply::Journals(lock(&self.state).journals.values().cloned().collect())),
        }
    }

    fn facts(&self) -> ServerFacts {
        let state = lock(&self.state);
        let release = |id: &Option<ReleaseId>| id.as_ref().and_then(|id| state.releases.get(id)).cloned();
        ServerFacts {
            compose: "2.40.3".into(),
            engine: "lab".into(),
            missing: Vec::new(),
            disk_free: 1 << 40,
            current: release(&state.current),
            previous: release(&state.previous),
            incoming: state.incoming.clone(),
            containers: state.containers.values().map(|process| process.container()).collect(),
            drained: self.is_drained(&state),
            by_hand: false,
            absence: state.absence.clone(),
            lock: self.locks.server_holder(),
            deploy_lock: self.locks.deploy_holder(),
            freeze: self.locks.freeze_holder(),
            watchdog: None,
            installed: None,
            asleep: BTreeMap::new(),
            once: state.once.clone(),
            drift: Vec::new(),
            nodes: None,
            held: None,
        }
    }

    fn listed(&self) -> Vec<Listed> {
        let state = lock(&self.state);
        let pointers = [(&state.current, "current"), (&state.previous, "previous"), (&state.incoming, "incoming")];
        let named = |id: &ReleaseId| -> Vec<String> {
            let own = pointers.iter().filter(|(own, _)| own.as_ref() == Some(id));
            own.map(|(_, name)| (*name).to_owned()).collect()
        };
        let one = |release: &ReleaseOnDisk| Listed {
            names: named(&release.manifest.id),
            release: release.clone(),
            staged: 0,
            broken: None,
        };
        state.releases.values().map(one).collect()
    }

    fn is_drained(&self, state: &State) -> bool {
        if self.spec.fleet.drain.by.file().is_some() { self.drain_file().exists() } else { state.drained }
    }

    fn release(&self, id: &ReleaseId) -> Result<ReleaseOnDisk, Failure> {
        let missing = || Failure::new(FailureKind::Missing, format!("release {} is not on this server", id.short()));
        lock(&self.state).releases.get(id).cloned().ok_or_else(missing)
    }

    fn stage(
        &self,
        manifest: crate::fleet::release::Manifest,
        files: &[crate::server::wire::Blob],
    ) -> Result<Reply, Failure> {
        release::check_files(&manifest, files)?;
        let staged = release::on_disk(manifest);
        lock(&self.state).releases.insert(staged.manifest.id.clone(), staged);
        Ok(Reply::Done)
    }

    fn adopt(&self) -> Result<Reply, Failure> {
        let mut state = lock(&self.state);
        let running = state.containers.values().next().map(|process| process.release.clone());
        let running = running.and_then(|id| state.releases.get(&id).cloned());
        let running =
            running.ok_or_else(|| Failure::new(FailureKind::Missing, "nothing runs here that could be saved"))?;
        let adopted = release::adopted(&running);
        let manifest = adopted.manifest.clone();
        state.current = Some(manifest.id.clone());
        state.releases.insert(manifest.id.clone(), adopted);
        Ok(Reply::Adopted(Box::new(manifest)))
    }

    /// A command of deploy.toml is never run on the machine of a rehearsal: it takes a moment, and is written down.
    async fn once(&self, release: &ReleaseId, once: &Once) -> Result<Reply, Failure> {
        let known = self.release(release)?.manifest.services.contains_key(&once.service);
        if !known {
            let what = format!("run_once `{}`: the release has no service {}", once.name, once.service);
            return Err(Failure::new(FailureKind::Input, what));
        }
        self.spec.clock.sleep(ONCE).await;
        let fails = |fault: &(Option<ServerName>, ServiceName, Fault)| fault.1.as_str() == once.name;
        let code = i32::from(self.spec.faults.iter().any(fails));
        let state = if code == 0 { OnceState::Done } else { OnceState::Failed };
        let (release, name) = (release.clone(), once.name.clone());
        note_once(&mut lock(&self.state).once, OnceRecord { release, name, state, at: locks::now() });
        let output = vec![format!("a rehearsal does not run `{}`", once.run.join(" "))];
        Ok(Reply::Once(OnceEnd { code: Some(code), output, took: ONCE }))
    }

    fn switch(&self, release: &ReleaseId) -> Result<Reply, Failure> {
        self.release(release)?;
        let mut state = lock(&self.state);
        if state.current.as_ref() != Some(release) {
            state.previous = state.current.replace(release.clone());
        }
        state.incoming = None;
        Ok(Reply::Switched(release.clone()))
    }
}

/// What is done only by who holds the server lock.
fn changes(request: &Request) -> bool {
    matches!(
        request,
        Request::Flip { .. }
            | Request::Stop
            | Request::Start { .. }
            | Request::Switch { .. }
            | Request::Sleep
            | Request::HandOver { .. }
            | Request::Once { .. }
    )
}
