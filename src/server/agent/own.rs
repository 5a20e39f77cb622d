//! What bootstrap and watchdog do on a server: the same lock, record and commands as an agent's, with nobody who asks.
//!
//! `current` is brought up, never written; what was out of rotation comes back only verified. When it is time for that is not decided
//! here.

use super::deadman::Righted;
use super::drain::flip_file;
use super::record::{Record, State};
use super::site::{Ctl, Site, disk};
use super::trust;
use crate::fleet::model::{DrainBy, Holder, ServiceName};
use crate::fleet::patience::longest_start;
use crate::fleet::release::DEFINITION;
use crate::server::compose;
use crate::server::flock::holder;
use crate::server::process::ProcessId;
use crate::server::settings::Settings;
use crate::server::wire::{Context, FORMAT, Failure, FailureKind, Run};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const TRY_AGAIN: Duration = Duration::from_secs(1);

impl Site {
    /// A server as one of its own processes sees it.
    pub(in crate::server) fn own(settings: Settings, what: &str) -> Self {
        let process = ProcessId::of(std::process::id());
        let run = Run {
            id: format!("{what}-{}-{}", process.pid, process.start),
            who: format!("{what} of {}", settings.server),
            what: format!("handover {what}"),
        };
        Self::new(Context { format: FORMAT, run, server: settings.server, fleet: settings.fleet })
    }

    /// Takes the server lock, waiting for it so long at most. Says how far whoever had it before had come, or who has it.
    pub(in crate::server) async fn take_lock(&mut self, wait: Duration) -> Result<Result<State, Holder>, Failure> {
        // Kept: a wait that nobody can end is no reason to look again at once.
        let (_nobody, ctl) = watch::channel(Ctl::default());
        self.take(wait, ctl, 0).await
    }

    /// Whether the server lock is ours.
    pub(in crate::server) fn is_at_work(&self) -> bool {
        self.server_lock.is_some()
    }

    /// Puts right what a dead deploy left in that state.
    pub(in crate::server) async fn put_right_after(&mut self, left: State) -> Result<Righted, Failure> {
        self.trusted()?;
        // On disk: whoever dies while he waits has let nothing in.
        self.enter(left)?;
        self.put_right().await
    }

    /// Writes down what was done and frees the lock. Unlike an unlock it lets nothing back: what is drained was left so on purpose.
    /// `left` is anything but idle where something is still to be put right.
    pub(in crate::server) fn free(&mut self, what: &str, left: State) -> Result<(), Failure> {
        self.record.say(what);
        self.record.state = left;
        self.record.command = None;
        let written = self.save();
        self.server_lock = None;
        written
    }

    /// Lets health pass again, once everything is verified.
    pub(in crate::server) async fn let_back(&mut self) -> Result<(), Failure> {
        self.trusted()?;
        let current = self.current()?.ok_or_else(|| Failure::new(FailureKind::Missing, "nothing was verified here"))?;
        let asleep = self.asleep()?;
        self.wait_until_verified(&current, |service| !asleep.contains(service)).await?;
        self.flip(false).await
    }

    /// Before the engine runs: sets the flag and writes that down. Without the lock, since nobody else is there yet; how far somebody
    /// had come before the boot is left to whoever takes it.
    pub(in crate::server) async fn out_from_the_start(&mut self) -> Result<(), Failure> {
        // A person's own says the same, and is his to take away.
        let by_hand = self.flag_is_there() && !self.flag_is_ours();
        if let Some(path) = self.fleet.drain.by.file().filter(|_| !by_hand) {
            // First: the disk that takes no record is another one than the flag's as a rule.
            flip_file(Path::new(path), true)?;
        }
        let lock = self.layout.server_lock().to_owned();
        let held = holder(&lock, &self.layout.server_lock_note()).map_err(|error| disk(&lock, &error))?;
        if held.is_some() {
            // The engine restarts under somebody's hands: the record is his, and he takes the flag away when he is done.
            return Ok(());
        }
        let path = self.layout.record();
        self.record = Record::read(&path).map_err(|error| disk(&path, &error))?;
        if self.is_out_by_hand() {
            return Ok(());
        }
        self.flip(true).await
    }

    /// After a boot: what was left out on purpose is out again, by whichever way the server itself can say so.
    pub(in crate::server) async fn stay_out(&mut self) -> Result<(), Failure> {
        match self.fleet.drain.by {
            DrainBy::File { .. } | DrainBy::Gateway { .. } | DrainBy::Hold { .. } => self.flip(true).await,
            // The balancer's side of it outlives a boot.
            DrainBy::Deregister => Ok(()),
            // Only its stop makes health fail.
            DrainBy::Sigterm => self.stop().await.map(drop),
            DrainBy::Http { .. } | DrainBy::Exec { .. } | DrainBy::Signal { .. } => {
                // The engine revives the containers; they can be told once they listen.
                let longest = longest_start(&self.fleet);
                let end = Instant::now() + longest;
                loop {
                    match self.flip(true).await {
                        Ok(()) => return Ok(()),
                        Err(failure) if Instant::now() >= end || self.is_to_end() => return Err(failure),
                        Err(_) => tokio::time::sleep(TRY_AGAIN).await,
                    }
                }
            }
        }
    }

    /// Makes the containers of these services anew from `current`, and waits until they pass. A service that takes traffic leaves
    /// rotation first, as far as the server itself can say so, and comes back verified.
    pub(in crate::server) async fn heal(&mut self, services: &[ServiceName]) -> Result<String, Failure> {
        self.trusted()?;
        let current = self.current()?.ok_or_else(|| Failure::new(FailureKind::Missing, "nothing was verified here"))?;
        self.startable(&current).await?;
        let facts = self.fleet.drain.by.facts();
        let was_out = self.is_out();
        let takes_traffic = |name: &ServiceName| self.fleet.service(name).is_some_and(|s| !s.groups.is_empty());
        let leaves = facts.survives_restart && facts.undone_on_server && !self.is_out_by_hand();
        if leaves && services.iter().any(takes_traffic) {
            let alive =
                self.containers().await?.iter().any(|c| c.is_alive() && services.contains(&c.container.service));
            self.flip(true).await?;
            if alive {
                // What still answers goes on until the balancer has noticed.
                tokio::time::sleep(self.fleet.drain.serve).await;
            }
        }
        self.enter(State::Stopped)?;
        let names = services.iter().map(ServiceName::as_str);
        let up = compose::up_anew(&self.fleet.app, Path::new(DEFINITION), names);
        self.bring_up(&current, &up).await?;
        let all_that_take_traffic =
            self.fleet.services.iter().all(|s| s.groups.is_empty() || services.contains(&s.name));
        if !facts.survives_restart && all_that_take_traffic {
            // It died with the containers.
            self.record.drained = false;
        }
        self.wait_until_verified(&current, |name| services.contains(name)).await?;
        // What was out before for another reason comes back when everything works, and so does what the engine has started meanwhile.
        let others = self.containers().await?;
        let others = others.iter().filter(|c| !services.contains(&c.container.service));
        if self.record.drained && !was_out && !self.started_while_out(others) {
            self.flip(false).await?;
        }
        Ok(format!("release {}: brought up anew and verified", current.short()))
    }

    /// Nothing is started from a folder that others may write to.
    fn trusted(&self) -> Result<(), Failure> {
        match trust::faults(&self.layout).first() {
            None => Ok(()),
            Some(fault) => Err(Failure::new(FailureKind::Missing, fault.clone())),
        }
    }
}
