//! The gateway of a server that holds: the real one, as a process of its own in front of the pretended services.
//!
//! It is there from the first moment on and stays while everything behind it stops; another one takes its listeners over when it is
//! renewed. It speaks for the ports at which the balancer knows the server.

use super::Machine;
use crate::fleet::held::HeldSeen;
use crate::fleet::model::Known;
use crate::lab::fetch::{Ask, fetch};
use crate::lab::lock;
use crate::server::wire::{Failure, FailureKind};
use hyper::{Method, Uri};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// The gateway's own default.
const HOLD: Duration = Duration::from_secs(50);
/// It reads a file, asks for listeners and serves; on the wall.
const SERVES_WITHIN: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A server's gateway, and those that handed over to it and finish what they have.
#[derive(Debug)]
pub(super) struct Front {
    told: SocketAddr,
    processes: Mutex<Vec<Child>>,
}

impl Front {
    pub(super) fn new(told: SocketAddr) -> Self {
        Self { told, processes: Mutex::default() }
    }

    pub(super) fn kill(&self) {
        for process in lock(&self.processes).iter_mut() {
            // One that has ended needs no signal.
            drop(process.start_kill());
        }
    }

    async fn seen(&self) -> Known<HeldSeen> {
        let host = self.told.to_string();
        let ask =
            Ask { at: self.told, method: &Method::GET, path: "/hold", host: &host, agent: "handover-lab", from: None };
        match fetch(ask, Duration::from_secs(2)).await {
            Ok((200, body)) => match serde_json::from_slice(&body) {
                Ok(seen) => Known::Known(seen),
                Err(error) => Known::Unknown(error.to_string()),
            },
            Ok((status, _)) => Known::Unknown(format!("the gateway answers {status}")),
            Err(error) => Known::Unknown(format!("the gateway does not answer: {error:?}")),
        }
    }
}

impl Machine {
    /// What the gateway says, in the words of deploy.toml: the lab's file and the lab's time are its own.
    pub(super) async fn held(&self) -> Known<HeldSeen> {
        let Some(front) = &self.front else {
            return Known::Unknown(format!("with `drain.by = \"{}\"` nobody holds", self.spec.fleet.drain.by.word()));
        };
        match front.seen().await {
            Known::Known(seen) => Known::Known(HeldSeen {
                hold: self.hold_time(),
                file: self.spec.fleet.drain.by.file().map(ToOwned::to_owned),
                ..seen
            }),
            unknown => unknown,
        }
    }

    /// Starts the gateway, or one that takes the place of the one that runs; returns once it serves.
    pub(super) async fn renew_front(&self) -> Result<(), Failure> {
        let (Some(front), Some(_)) = (&self.front, self.spec.fleet.drain.by.hold()) else { return Ok(()) };
        let failed =
            |what: String| Failure::new(FailureKind::Command, format!("the gateway cannot be started: {what}"));
        let before = match front.seen().await {
            Known::Known(seen) => Some(seen.process),
            Known::Unknown(_) => None,
        };
        let path = self.dir.join("gateway.toml");
        std::fs::write(&path, self.gateway_toml(front)?).map_err(|error| failed(error.to_string()))?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.join("gateway.log"));
        let child = Command::new(&self.spec.command.program)
            .args(["gateway", "--take-over", "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_err(|error| failed(error.to_string()))?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        lock(&front.processes).push(child);
        let end = Instant::now() + SERVES_WITHIN;
        loop {
            match front.seen().await {
                Known::Known(seen) if Some(&seen.process) != before.as_ref() => return Ok(()),
                _ if Instant::now() >= end => {
                    let said = std::fs::read_to_string(self.dir.join("gateway.log")).unwrap_or_default();
                    return Err(failed(said.lines().last().unwrap_or("it does not serve").to_owned()));
                }
                _ => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// How long it holds, in fleet time.
    fn hold_time(&self) -> Duration {
        let hosts = self.spec.fleet.gateway.iter().flat_map(|gateway| &gateway.hosts);
        hosts.map(|host| host.hold).min().unwrap_or(HOLD)
    }

    fn gateway_toml(&self, front: &Front) -> Result<String, Failure> {
        let fleet = &self.spec.fleet;
        let behind = self.wiring.behind(fleet).ok_or_else(|| {
            Failure::new(
                FailureKind::Input,
                "no service listens behind the gateway: none has a check with a port of its own",
            )
        })?;
        let url = fleet.measure.as_ref().and_then(|measure| measure.url.parse::<Uri>().ok());
        let name = url.as_ref().and_then(Uri::host).unwrap_or("localhost");
        let listens: Vec<String> = self.wiring.fronts().map(|at| format!("\"{at}\"")).collect();
        let millis = self.spec.clock.wall(self.hold_time()).as_millis().max(100);
        let mut text = format!(
            "[gateway]\nlisten = [{}]\nmetrics = \"{}\"\nhold_file = {}\ncontrol = {}\nworkers = 1\nfinish = \"10s\"\n\n\
             [[gateway.host]]\nname = \"{name}\"\nbackend = \"http://{behind}\"\nhold = \"{millis}ms\"\n",
            listens.join(", "),
            front.told,
            quoted(&self.drain_file()),
            quoted(&self.dir.join("gateway.sock")),
        );
        let paths: std::collections::BTreeSet<&str> =
            fleet.balancer.groups.iter().map(|one| one.health.path.as_str()).collect();
        for path in paths {
            text += &format!("\n[[gateway.health]]\npath = \"{path}\"\n");
        }
        Ok(text)
    }
}

fn quoted(path: &std::path::Path) -> String {
    format!("{:?}", path.to_string_lossy())
}
