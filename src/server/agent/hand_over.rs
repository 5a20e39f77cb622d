//! The gateway's own renewal: its successor takes the open listeners over, so that there is no moment in which nobody listens.
//!
//! Compose has one container for a service and stops it before it makes the next. So one more is started beside it from the new
//! definition; it takes the listeners over, the old container finishes what it has and ends, the service's own container is made
//! anew, takes the listeners over in turn, and the one beside it ends the same way. Each time the gateway itself must have said
//! that another process answers. Asked again after any interruption, it goes on from what it finds.

use super::site::{ENGINE, Site, disk};
use crate::fleet::model::{Container, Known, ReleaseId, ServiceName};
use crate::fleet::patience::ENGINE_MARGIN;
use crate::fleet::release::DEFINITION;
use crate::server::compose::{self, Inspected};
use crate::server::probes;
use crate::server::run::{CommandLine, run};
use crate::server::wire::{Failure, FailureKind};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// A gateway reads its files, asks for the listeners and serves.
const TAKES_OVER: Duration = Duration::from_secs(30);

/// What the engine is told of a gateway that is to end by itself.
const NEVER: &str = "no";
/// What it is told of one beside that took the listeners over: it is to live until it has handed them over, and then ends well. Compose
/// gives it `no`.
const UNTIL_IT_ENDS: &str = "on-failure";

/// A container beside the one that the definition has.
struct Beside {
    name: String,
    alive: bool,
    started: Option<SystemTime>,
    /// Whether it was seen to have taken the listeners over, and is not to hand them over yet.
    proved: bool,
}

impl Site {
    /// The gateway that stays while everything else is stopped, where one runs: its own container, or the one beside it where nobody
    /// came to end a renewal.
    pub(super) async fn staying(&self) -> Result<Option<ServiceName>, Failure> {
        let Some(service) = self.fleet.drain.by.hands_over() else { return Ok(None) };
        let runs = self.one_of(service).await?.is_some_and(|own| own.is_alive()) || self.beside(service).await?.alive;
        Ok(runs.then(|| service.clone()))
    }

    /// Makes the gateway run as `release` has it.
    pub(super) async fn hand_over(&mut self, release: &ReleaseId) -> Result<Vec<Container>, Failure> {
        self.hold().await?;
        let manifest = self.startable(release).await?;
        let Some(service) = self.fleet.drain.by.hands_over().cloned() else {
            return Err(Failure::new(FailureKind::Internal, "no service of this fleet hands over"));
        };
        if manifest.services.contains_key(&service) {
            self.renew(release, &service).await?;
        }
        Ok(self.containers().await?.into_iter().map(|c| c.container).collect())
    }

    async fn renew(&mut self, release: &ReleaseId, service: &ServiceName) -> Result<(), Failure> {
        let beside = self.only_proved(service).await?;
        let own = self.one_of(service).await?;
        let due = match &own {
            // Who was started last has the listeners: the other one finishes what it has.
            Some(own) if !own.is_alive() || (beside.alive && own.started < beside.started) => true,
            Some(own) => !self.is_as_defined(release, service, own).await?,
            None => true,
        };
        if let (true, false, Some(own)) = (due, beside.alive, own.as_ref().filter(|own| own.is_alive())) {
            self.start_beside(release, service, &beside, own).await?;
        }
        if due {
            // It finishes what it has, and ends by itself; what it does not finish in its grace period is cut by the engine.
            if let Some(own) = own {
                self.ended(service, own.grace).await?;
                self.order(&compose::stop_container(&own.id), "ending the gateway that handed over").await?;
            }
            if self.beside(service).await?.alive {
                let line = compose::restart(&beside.name, NEVER);
                self.order(&line, "keeping the engine from starting a gateway again that hands over").await?;
            }
            // Anew, also where the definition is the same: the engine was told not to start the old one again.
            let up = compose::up_anew(&self.fleet.app, Path::new(DEFINITION), [service.as_str()]);
            self.taken_over_by(release, &up, "bringing the gateway up").await?;
        } else if let Some(own) = own.filter(|own| own.restart == NEVER) {
            // An earlier renewal came no further than that.
            self.starts_again(&own.id, &self.restart_of(release, service)?).await?;
        }
        if due || beside.alive { self.end_beside(service, &beside).await } else { self.remove_beside(&beside).await }
    }

    /// The one beside; removed where it was started last and did not take the listeners over, since who hands over ends by itself.
    async fn only_proved(&mut self, service: &ServiceName) -> Result<Beside, Failure> {
        let beside = self.beside(service).await?;
        let waits = |own: &Inspected| own.is_alive() && own.started < beside.started;
        let own = self.one_of(service).await?.filter(|own| beside.alive && !beside.proved && waits(own));
        let Some(own) = own else { return Ok(beside) };
        self.ended(service, own.grace).await?;
        if !self.one_of(service).await?.is_some_and(|own| own.is_alive()) {
            return self.beside(service).await;
        }
        self.remove_beside(&beside).await?;
        self.beside(service).await
    }

    /// Starts a gateway beside the one that runs; where it does not take the listeners over, everything is as before.
    async fn start_beside(
        &mut self,
        release: &ReleaseId,
        service: &ServiceName,
        beside: &Beside,
        own: &Inspected,
    ) -> Result<(), Failure> {
        self.remove_beside(beside).await?;
        self.order(&compose::restart(&own.id, NEVER), "keeping the engine from starting the old gateway again").await?;
        let line = compose::beside(&self.fleet.app, Path::new(DEFINITION), service.as_str(), &beside.name);
        if let Err(failure) = self.taken_over_by(release, &line, "starting a gateway beside the one that runs").await {
            // Both are tried, and what is told is why it failed.
            let removed = self.remove_beside(beside).await;
            let again = self.starts_again(&own.id, &own.restart).await;
            return Err(match removed.and(again) {
                Ok(()) => failure,
                Err(more) => Failure { message: format!("{}; and then: {more}", failure.message), ..failure },
            });
        }
        self.order(&compose::restart(&beside.name, UNTIL_IT_ENDS), "letting the engine keep the gateway beside").await
    }

    async fn starts_again(&mut self, container: &str, when: &str) -> Result<(), Failure> {
        self.order(&compose::restart(container, when), "letting the engine start the gateway again").await
    }

    /// When the engine is to start the service's container again, as the definition has it.
    fn restart_of(&self, release: &ReleaseId, service: &ServiceName) -> Result<String, Failure> {
        let path = self.layout.release(release).join(DEFINITION);
        let text = std::fs::read(&path).map_err(|error| disk(&path, &error))?;
        let definition: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let of_service = definition.pointer(&format!("/services/{service}/restart"));
        Ok(of_service.and_then(serde_json::Value::as_str).unwrap_or(NEVER).to_owned())
    }

    async fn one_of(&self, service: &ServiceName) -> Result<Option<Inspected>, Failure> {
        Ok(self.containers().await?.into_iter().find(|one| &one.container.service == service))
    }

    /// Whether a container was made from the definition of this release, as Compose itself would say.
    async fn is_as_defined(
        &self,
        release: &ReleaseId,
        service: &ServiceName,
        own: &Inspected,
    ) -> Result<bool, Failure> {
        let line = compose::config_hash(&self.fleet.app, Path::new(DEFINITION), service.as_str());
        let said =
            run(&line.cwd(&self.layout.release(release)), ENGINE).await?.success("reading the gateway's definition")?;
        let text = said.text();
        let hash = text.split_whitespace().last();
        Ok(hash.is_some() && own.labels.get("com.docker.compose.config-hash").map(String::as_str) == hash)
    }

    async fn beside(&self, service: &ServiceName) -> Result<Beside, Failure> {
        let name = format!("{}-{service}-hands-over", self.fleet.app);
        let output = run(&compose::inspect(std::slice::from_ref(&name)), ENGINE).await?;
        if output.code != 0 && output.stderr.contains("No such container") {
            return Ok(Beside { name, alive: false, started: None, proved: false });
        }
        let text = output.success("looking at the gateway beside")?.text();
        let seen: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let alive = seen.pointer("/0/State/Running").and_then(serde_json::Value::as_bool).unwrap_or(false);
        let started = seen.pointer("/0/State/StartedAt").and_then(serde_json::Value::as_str);
        let started = started.and_then(|text| humantime::parse_rfc3339(text).ok());
        let when = seen.pointer("/0/HostConfig/RestartPolicy/Name").and_then(serde_json::Value::as_str);
        Ok(Beside { name, alive, started, proved: when == Some(UNTIL_IT_ENDS) })
    }

    async fn remove_beside(&mut self, beside: &Beside) -> Result<(), Failure> {
        let output = self.change(&compose::remove_container(&beside.name), ENGINE_MARGIN).await?;
        if output.code != 0 && output.stderr.contains("No such container") {
            return Ok(());
        }
        output.success("removing a gateway that handed over").map(drop)
    }

    async fn order(&mut self, line: &CommandLine, what: &str) -> Result<(), Failure> {
        let grace = self.grace().await?;
        self.change(line, grace + ENGINE_MARGIN).await?.success(what).map(drop)
    }

    /// Starts a gateway, and waits until another process than before answers where it is asked.
    async fn taken_over_by(&mut self, release: &ReleaseId, line: &CommandLine, what: &str) -> Result<(), Failure> {
        let before = self.process_before().await?;
        let line = line.clone().cwd(&self.layout.release(release));
        let grace = self.grace().await?;
        self.change(&line, grace + ENGINE_MARGIN).await?.success(what)?;
        let end = Instant::now() + TAKES_OVER;
        loop {
            let why = match self.process().await {
                Ok(process) if Some(&process) != before.as_ref() => return Ok(()),
                Ok(_) => "the one that ran before still answers".to_owned(),
                Err(why) => why,
            };
            if Instant::now() >= end {
                let message = format!("{what}: it did not take the listeners over: {why}");
                return Err(Failure::new(FailureKind::Command, message)
                    .hint("it must run with `--take-over`, on the server's own network, with the folder of `gateway.control` mounted"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Who answers now; nobody only where none of its containers runs. Unknown is not nobody: whoever answered next would be taken for
    /// a successor.
    async fn process_before(&self) -> Result<Option<String>, Failure> {
        let end = Instant::now() + TAKES_OVER;
        loop {
            let why = match self.process().await {
                Ok(process) => return Ok(Some(process)),
                Err(why) => why,
            };
            if self.staying().await?.is_none() {
                return Ok(None);
            }
            if Instant::now() >= end {
                return Err(Failure::new(
                    FailureKind::Command,
                    format!("the gateway that runs does not say who it is: {why}"),
                ));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn process(&self) -> Result<String, String> {
        let Some(hold) = self.fleet.drain.by.hold() else { return Err("nobody holds here".to_owned()) };
        match probes::held(hold).await {
            Known::Known(seen) => Ok(seen.process),
            Known::Unknown(why) => Err(why),
        }
    }

    /// Waits until the service's container has ended by itself, so long at most.
    async fn ended(&self, service: &ServiceName, grace: Duration) -> Result<(), Failure> {
        let end = Instant::now() + grace;
        while Instant::now() < end && self.one_of(service).await?.is_some_and(|one| one.is_alive()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn end_beside(&mut self, service: &ServiceName, beside: &Beside) -> Result<(), Failure> {
        let grace = self.one_of(service).await?.map_or(Duration::ZERO, |one| one.grace);
        let end = Instant::now() + grace;
        while Instant::now() < end && self.beside(service).await?.alive {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        if self.beside(service).await?.alive {
            let stop = compose::stop_container(&beside.name);
            self.change(&stop, grace + ENGINE_MARGIN).await?.success("ending a gateway that handed over")?;
        }
        self.remove_beside(beside).await
    }
}
