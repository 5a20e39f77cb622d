//! What a lab's server sees of itself: every look is a real request to what really listens.

use super::Machine;
use super::process::Process;
use super::wiring::spot;
use crate::fleet::model::{Known, ReleaseId, Service, ServiceName, Verify};
use crate::fleet::nodes::NodesSeen;
use crate::fleet::verify::{Evidence, judge};
use crate::lab::fetch::{Ask, NoAnswer, fetch};
use crate::lab::lock;
use crate::lab::service::NODES;
use crate::server::wire::{Failure, Sighting, Verified};
use hyper::Method;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;

/// Whoever asks so is no real traffic.
const AGENT: &str = "handover-lab";
/// Each thing is asked so often: one of several workers may answer otherwise.
const TIMES: usize = 3;
/// So much of an answer is kept.
const BODY_KEPT: usize = 64 * 1024;
/// No answer by then is none, on the wall: a look is our own work and does not run faster than the machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// The file and the age of a heartbeat.
pub(super) fn heartbeat(verify: &Verify) -> Option<Duration> {
    match verify {
        Verify::Heartbeat { age, .. } => Some(*age),
        _ => None,
    }
}

impl Machine {
    /// Asks a URL of deploy.toml where it really is.
    pub(super) async fn ask(&self, method: &str, url: &str, host: Option<&str>) -> Result<(u16, String), String> {
        let (port, path) = spot(url).ok_or_else(|| format!("{url} is no URL"))?;
        let at = self.wiring.at(port).ok_or_else(|| format!("{url}: nobody listens on port {port} here"))?;
        let method: Method = method.parse().map_err(|_| format!("`{method}` is no method"))?;
        let own_host = format!("127.0.0.1:{port}");
        let ask = Ask { at, method: &method, path: &path, host: host.unwrap_or(&own_host), agent: AGENT, from: None };
        match fetch(ask, PATIENCE).await {
            Ok((status, body)) => Ok((status, String::from_utf8_lossy(&body).chars().take(BODY_KEPT).collect())),
            Err(NoAnswer::Late) => Err(format!("{url} gave no answer in time")),
            Err(NoAnswer::Broken(why)) => Err(format!("{url}: {why}")),
        }
    }

    async fn statuses(&self, url: &str) -> Vec<u16> {
        let mut seen = Vec::new();
        for _ in 0..TIMES {
            seen.push(self.ask("GET", url, None).await.map_or(0, |(status, _)| status));
        }
        seen
    }

    pub(super) async fn look(&self) -> Sighting {
        let mut health = BTreeMap::new();
        let groups = &self.spec.fleet.balancer.groups;
        for group in groups.iter().filter(|group| self.server.targets.contains_key(&group.name)) {
            health.insert(group.name.clone(), self.statuses(&group.local_health_url()).await);
        }
        let real = match &self.spec.fleet.drain.real {
            Some(url) => self.statuses(url).await,
            None => Vec::new(),
        };
        Sighting { health, real }
    }

    pub(super) async fn count(&self) -> Option<u64> {
        let counter = self.spec.fleet.drain.counter.as_ref()?;
        let (_, body) = self.ask("GET", &counter.http, None).await.ok()?;
        let json: serde_json::Value = serde_json::from_str(&body).ok()?;
        counter.json.split('.').try_fold(&json, |at, key| at.get(key))?.as_u64()
    }

    /// What the services that answer health checks counted, all of them together.
    pub(super) async fn nodes(&self) -> Known<NodesSeen> {
        let mut all: Option<NodesSeen> = None;
        for port in self.wiring.counted(&self.spec.fleet, &self.server) {
            let answer = self.ask("GET", &format!("http://127.0.0.1:{port}{NODES}"), None).await;
            let seen: NodesSeen = match answer.map(|(_, body)| serde_json::from_str(&body)) {
                Ok(Ok(seen)) => seen,
                Ok(Err(error)) => return Known::Unknown(error.to_string()),
                Err(why) => return Known::Unknown(why),
            };
            all = Some(match all {
                None => seen,
                Some(mut all) => {
                    all.up = all.up.min(seen.up);
                    all.more |= seen.more;
                    all.nodes.extend(seen.nodes);
                    all
                }
            });
        }
        all.map_or_else(|| Known::Unknown("nobody answers health checks here".into()), Known::Known)
    }

    pub(super) async fn verify(&self, id: &ReleaseId) -> Result<Verified, Failure> {
        let release = self.release(id)?;
        let processes = lock(&self.state).containers.clone();
        let (mut services, mut logs) = (BTreeMap::new(), BTreeMap::new());
        for service in &self.spec.fleet.services {
            let process = processes.get(&service.name);
            let evidence = self.evidence(service, process).await;
            if let (Err(_), Some(process)) = (judge(&service.verify, &evidence, id), process) {
                logs.insert(service.name.clone(), process.last_lines());
            }
            services.insert(service.name.clone(), evidence);
        }
        Ok(Verified {
            containers: self.containers(),
            image_ids: release.image_ids,
            services,
            logs,
            asleep: BTreeSet::new(),
        })
    }

    async fn evidence(&self, service: &Service, process: Option<&Arc<Process>>) -> Evidence {
        match &service.verify {
            Verify::Http { url, host, .. } => match self.ask("GET", url, host.as_deref()).await {
                Ok((status, body)) => Evidence::Http { status, body },
                Err(why) => Evidence::Nothing(why),
            },
            Verify::Tcp { address } => self.connects(address).await,
            Verify::Exec { argv } => match process {
                Some(process) => executed(process, argv).await,
                None => Evidence::Nothing(format!("{} does not run", service.name)),
            },
            Verify::Heartbeat { path, .. } => match process {
                Some(process) => self.touched(&service.name, path, process),
                None => Evidence::Nothing(format!("{} does not run", service.name)),
            },
        }
    }

    async fn connects(&self, address: &str) -> Evidence {
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
        let Some(at) = port.and_then(|port| self.wiring.at(port)) else {
            return Evidence::Nothing(format!("nobody listens on {address} here"));
        };
        match tokio::time::timeout(PATIENCE, TcpStream::connect(at)).await {
            Ok(Ok(_)) => Evidence::Connected,
            Ok(Err(error)) => Evidence::Nothing(format!("{address}: {error}")),
            Err(_) => Evidence::Nothing(format!("{address} gave no answer in time")),
        }
    }

    /// Where a service of the lab leaves its heartbeat.
    pub(super) fn heartbeat_file(&self, service: &ServiceName) -> PathBuf {
        self.dir.join(format!("{service}.beat"))
    }

    fn touched(&self, service: &ServiceName, path: &str, process: &Process) -> Evidence {
        let modified = std::fs::metadata(self.heartbeat_file(service)).and_then(|meta| meta.modified());
        match modified {
            Err(error) => Evidence::Nothing(format!("{path}: {error}")),
            Ok(at) => {
                let age = SystemTime::now().duration_since(at).unwrap_or_default();
                Evidence::Touched { age: self.spec.clock.fleet(age), after_start: at >= process.started }
            }
        }
    }
}

/// A command of deploy.toml is never run on the machine of a rehearsal: the process itself says whether it works.
async fn executed(process: &Process, argv: &[String]) -> Evidence {
    match process.works(PATIENCE).await {
        Some(true) => Evidence::Exec { code: 0, output: String::new() },
        Some(false) => Evidence::Exec { code: 1, output: format!("{} says that it does not work", process.name()) },
        None => Evidence::Nothing(format!("`{}`: {} gave no answer", argv.join(" "), process.name())),
    }
}
