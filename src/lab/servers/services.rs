//! Starting and stopping a server's services, and making its health fail on purpose.

use super::process::{Process, Start};
use super::{Machine, looks};
use crate::fleet::model::{Container, DrainBy, HttpCall, ReleaseId, ReleaseOnDisk, Service, ServiceName};
use crate::lab::lock;
use crate::lab::service::{Fault, ServiceSpec};
use crate::server::wire::{Failure, FailureKind, Reply, Stopped, StoppedContainer};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Of `service.deadline` a start takes so much, and of `service.shutdown` a stop: the example app is healthy but not
/// instant.
const START_SHARE: (f64, f64) = (0.03, 0.06);
const STOP_SHARE: (f64, f64) = (0.15, 0.35);
/// Where the app itself answers 503 after SIGTERM, it serves on for so much of `service.shutdown`.
const SERVES_ON_SHARE: f64 = 0.85;
/// What a real request takes.
const LATENCY: Duration = Duration::from_millis(30);
/// A service that does not listen after so long will not.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);

impl Machine {
    pub(super) fn containers(&self) -> Vec<Container> {
        lock(&self.state).containers.values().map(|process| process.container()).collect()
    }

    /// Brings a release up; what runs another one is replaced.
    pub(super) async fn start(&self, id: &ReleaseId) -> Result<(), Failure> {
        let release = self.release(id)?;
        let _one_at_a_time = self.work.lock().await;
        let leftover: Vec<Arc<Process>> = self.all_but_the_gateway().into_values().collect();
        for process in leftover.iter().filter(|process| &process.release != id) {
            process.stop(self.spec.clock.wall(LISTENS_WITHIN)).await;
        }
        let mut state = lock(&self.state);
        state.incoming = Some(id.clone());
        if !self.drain_survives() {
            state.drained = false;
        }
        for service in self.spec.fleet.services.iter().filter(|s| release.manifest.services.contains_key(&s.name)) {
            let running = state.containers.get(&service.name).filter(|process| process.exit_code().is_none());
            let stays = Some(&service.name) == self.spec.fleet.drain.by.hands_over();
            if running.is_some_and(|process| &process.release == id || stays) {
                continue;
            }
            let process = self.begin(service, &release)?;
            state.containers.insert(service.name.clone(), Arc::new(process));
        }
        Ok(())
    }

    fn begin(&self, service: &Service, release: &ReleaseOnDisk) -> Result<Process, Failure> {
        let id = &release.manifest.id;
        let start = Start {
            command: &self.spec.command,
            app: &self.spec.fleet.app,
            service: &service.name,
            release: id,
            image_id: release.image_ids.get(&service.name).cloned().unwrap_or_default(),
            log: self.dir.join(format!("{}.log", service.name)),
        };
        Process::start(start, &self.service_spec(service, id))
            .map_err(|error| Failure::new(FailureKind::Command, format!("{} cannot be started: {error}", service.name)))
    }

    /// The gateway of this release takes the place of the one that runs.
    pub(super) async fn hand_over(&self, id: &ReleaseId) -> Result<(), Failure> {
        let release = self.release(id)?;
        let _one_at_a_time = self.work.lock().await;
        let gateway = self.spec.fleet.drain.by.hands_over().and_then(|name| self.spec.fleet.service(name));
        let Some(service) = gateway.filter(|service| release.manifest.services.contains_key(&service.name)) else {
            return Ok(());
        };
        let before = lock(&self.state).containers.get(&service.name).cloned();
        if before.as_ref().is_some_and(|process| &process.release == id && process.exit_code().is_none()) {
            return Ok(());
        }
        self.renew_front().await?;
        if let Some(before) = before {
            before.stop(self.spec.clock.wall(LISTENS_WITHIN)).await;
        }
        let process = self.begin(service, &release)?;
        lock(&self.state).containers.insert(service.name.clone(), Arc::new(process));
        Ok(())
    }

    /// What a stop stops: everything, but for a gateway that holds.
    fn all_but_the_gateway(&self) -> BTreeMap<ServiceName, Arc<Process>> {
        let mut containers = lock(&self.state).containers.clone();
        containers.retain(|service, _| Some(service) != self.spec.fleet.drain.by.hands_over());
        containers
    }

    /// Waits until every service listens.
    pub(super) async fn ready(&self) -> Result<(), Failure> {
        let containers = lock(&self.state).containers.clone();
        for (service, process) in containers {
            if !matches!(tokio::time::timeout(LISTENS_WITHIN, process.ready()).await, Ok(true)) {
                return Err(Failure::new(FailureKind::Command, format!("{service} does not listen"))
                    .output(process.last_lines()));
            }
        }
        Ok(())
    }

    fn service_spec(&self, service: &Service, release: &ReleaseId) -> ServiceSpec {
        let (fleet, name) = (&self.spec.fleet, self.server.name.as_str());
        let fault = self.fault(service, release);
        let shown = if fault == Some(Fault::WrongRelease) { "0badc0de0bad" } else { release.short() };
        ServiceSpec {
            server: name.to_owned(),
            service: service.name.to_string(),
            release: shown.to_owned(),
            speed: self.spec.clock.speed(),
            listens: self.wiring.listens(&service.name),
            answers: self.wiring.answers(fleet, &self.server, &service.name, shown),
            // Where a gateway holds, health is its own.
            drain_file: fleet.drain.by.file().filter(|_| self.front.is_none()).map(|_| self.drain_file()),
            serves_on: (fleet.drain.by == DrainBy::Sigterm).then(|| service.shutdown.mul_f64(SERVES_ON_SHARE)),
            heartbeat: looks::heartbeat(&service.verify).map(|_| self.heartbeat_file(&service.name)),
            start: service.deadline.mul_f64(self.share(service, "start", START_SHARE)),
            stop: self.stop_time(service),
            latency: LATENCY,
            fault,
        }
    }

    fn stop_time(&self, service: &Service) -> Duration {
        let share = self.share(service, "stop", STOP_SHARE);
        let left = if self.spec.fleet.drain.by == DrainBy::Sigterm { 1.0 - SERVES_ON_SHARE } else { 1.0 };
        service.shutdown.mul_f64(share * left)
    }

    /// A share between two bounds, always the same for one seed, server and service.
    fn share(&self, service: &Service, what: &str, (least, most): (f64, f64)) -> f64 {
        let name = format!("{}/{}/{}/{what}", self.spec.seed, self.server.name, service.name);
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let thousandth = u32::try_from((hash >> 20) % 1000).unwrap_or(0);
        least + (most - least) * f64::from(thousandth) / 1000.0
    }

    fn fault(&self, service: &Service, release: &ReleaseId) -> Option<Fault> {
        if super::release::old(&self.spec.fleet).manifest.id == *release {
            return None;
        }
        let mine = |server: &Option<_>| server.as_ref().is_none_or(|name| name == &self.server.name);
        self.spec
            .faults
            .iter()
            .find(|(server, name, _)| mine(server) && name == &service.name)
            .map(|(_, _, fault)| *fault)
    }

    fn drain_survives(&self) -> bool {
        self.spec.fleet.drain.by.facts().survives_restart
    }

    pub(super) fn drain_file(&self) -> PathBuf {
        self.dir.join("drain")
    }

    /// Stops all services at the same time, each with its own grace period, and removes them.
    pub(super) async fn stop(&self) -> Stopped {
        let _one_at_a_time = self.work.lock().await;
        let containers = self.all_but_the_gateway();
        let mut stopping = tokio::task::JoinSet::new();
        for (service, process) in containers {
            let grace = self
                .release(&process.release)
                .ok()
                .and_then(|r| r.manifest.services.get(&service).map(|pin| pin.grace));
            let (clock, grace) = (self.spec.clock, grace.unwrap_or(LISTENS_WITHIN));
            // One that had ended by itself is removed, and was not stopped by us.
            let ran = process.exit_code().is_none();
            stopping.spawn(async move {
                let began = clock.now();
                let exit_code = process.stop(clock.wall(grace)).await;
                let stopped = StoppedContainer {
                    service,
                    name: process.name().to_owned(),
                    took: clock.now().since(began),
                    exit_code,
                };
                (ran, stopped)
            });
        }
        let ended: Vec<(bool, StoppedContainer)> = stopping.join_all().await;
        let mut state = lock(&self.state);
        for (_, container) in &ended {
            state.containers.remove(&container.service);
        }
        let gateway = self.spec.fleet.drain.by.hands_over();
        let left = state.containers.iter().filter(|(service, _)| Some(*service) != gateway);
        let left = left.map(|(_, process)| process.container()).collect();
        let stopped = ended.into_iter().filter(|(ran, _)| *ran).map(|(_, container)| container).collect();
        Stopped { stopped, left }
    }

    /// Makes health fail on purpose, or no more, the way that deploy.toml says.
    pub(super) async fn flip(&self, drained: bool) -> Result<Reply, Failure> {
        match &self.spec.fleet.drain.by {
            DrainBy::File { .. } | DrainBy::Gateway { .. } | DrainBy::Hold { .. } => self.flip_file(drained)?,
            DrainBy::Http { drain, undrain } => self.flip_http(if drained { drain } else { undrain }).await?,
            DrainBy::Exec { .. } | DrainBy::Signal { .. } => {
                let order = if drained { "drain" } else { "undrain" };
                lock(&self.state).containers.values().for_each(|process| process.order(order));
            }
            DrainBy::Sigterm | DrainBy::Deregister => {}
        }
        lock(&self.state).drained = drained;
        Ok(Reply::Done)
    }

    fn flip_file(&self, drained: bool) -> Result<(), Failure> {
        let file = self.drain_file();
        let done = if drained { std::fs::write(&file, "") } else { std::fs::remove_file(&file) };
        match done {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::new(FailureKind::Command, format!("{}: {error}", file.display())))
            }
            _ => Ok(()),
        }
    }

    async fn flip_http(&self, call: &HttpCall) -> Result<(), Failure> {
        match self.ask(&call.method, &call.url, None).await {
            Ok((status, _)) if (200..300).contains(&status) => Ok(()),
            Ok((status, _)) => Err(Failure::new(FailureKind::Command, format!("{} answered {status}", call.url))),
            Err(why) => Err(Failure::new(FailureKind::Command, why)),
        }
    }
}
