//! What becomes of a server when its deploy dies, and what the next one does about an agent that was killed.
//!
//! Only `current` is ever brought up, and a server is let back into rotation only with what ran before or with what
//! was verified.

use super::record::{Record, State};
use super::site::{Site, disk};
use crate::fleet::model::{Container, ReleaseId, ServiceName};
use crate::fleet::patience::longest_start;
use crate::fleet::recovery::{PutRight, put_right, taken_over};
use crate::fleet::release::{DEFINITION, Manifest};
use crate::fleet::verify::{ContainerFault, container_faults, judge, service_faults};
use crate::server::compose::{self, Inspected};
use crate::server::layout::Pointer;
use crate::server::process::ProcessId;
use crate::server::publish;
use crate::server::wire::{Failure, FailureKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A killed agent's command is waited for at least so long, however little patience the next one brings.
const LAST_COMMAND: Duration = Duration::from_secs(30);

/// How a server stands after whatever was left was put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Righted {
    /// As it should.
    Well(String),
    /// Not as it should, and more of the same would not help: what is wrong shows in its services.
    Ill(String),
}

impl Righted {
    pub(in crate::server) fn what(&self) -> &str {
        let (Self::Well(what) | Self::Ill(what)) = self;
        what
    }
}

impl Site {
    /// The deploy is dead and nothing runs any more: puts right what it left, writes that down, frees the lock.
    pub(super) async fn died(&mut self, why: &str) {
        if self.server_lock.is_none() {
            return;
        }
        let left = match self.put_right().await {
            Ok(left) => {
                self.record.state = State::Idle;
                left.what().to_owned()
            }
            // The state stays: whoever takes the lock next tries again.
            Err(failure) => format!("could not be put right: {failure}"),
        };
        self.record.say(format!("{why}; {left}"));
        self.record.command = None;
        // There is nobody to tell; the lock goes all the same.
        drop(self.save());
        self.server_lock = None;
    }

    /// # Errors
    /// When it could not be done and is worth another try: the state then stays as it is.
    pub(super) async fn put_right(&mut self) -> Result<Righted, Failure> {
        let absence = self.absence()?;
        let reason = absence.as_ref().map(|absence| absence.reason.clone()).unwrap_or_default();
        let stays_out = || format!("left out of rotation as before ({reason})");
        match put_right(&self.record.state, self.is_out(), absence.is_some()) {
            PutRight::Nothing => Ok(Righted::Well("nothing had been changed".to_owned())),
            PutRight::StaysOut => Ok(Righted::Well(stays_out())),
            PutRight::UpButOut if self.fleet.drain.by.facts().survives_restart => {
                if self.record.drained {
                    // Before anything comes up that would pass.
                    self.flip(true).await?;
                }
                self.bring_current_up(false).await
            }
            // New containers would enter rotation.
            PutRight::UpButOut => {
                Ok(Righted::Well(format!("{}; `handover deploy` brings it up and leaves it out", stays_out())))
            }
            PutRight::FlipBackIfItRuns => self.flip_back_if_it_runs().await,
            PutRight::LetBackIfVerified => self.let_back_if_verified().await,
            PutRight::BringCurrentUp => self.bring_current_up(true).await,
        }
    }

    /// Whether health is made to fail by one of ours. Where an engine was restarted in the middle of a deploy, the flag may be there
    /// although the deploy's record knows of none.
    pub(in crate::server) fn is_out(&self) -> bool {
        self.record.drained || self.flag_is_ours()
    }

    async fn flip_back_if_it_runs(&mut self) -> Result<Righted, Failure> {
        let containers = self.containers().await?;
        if !containers.iter().any(Inspected::is_alive) {
            return Ok(Righted::Ill("its containers no longer run, so it stays drained".to_owned()));
        }
        if self.started_while_out(&containers) {
            return self.let_back_if_verified().await;
        }
        self.flip(false).await?;
        Ok(Righted::Well("flipped back: what ran before still runs".to_owned()))
    }

    async fn let_back_if_verified(&mut self) -> Result<Righted, Failure> {
        let Some(current) = self.last_good()? else {
            return Ok(Righted::Ill("it stays drained: there is no release that was verified here".to_owned()));
        };
        let asleep = self.asleep()?;
        if let Err(failure) = self.wait_until_verified(&current, |service| !asleep.contains(service)).await {
            return if self.is_to_end() { Err(failure) } else { Ok(Righted::Ill(failure.to_string())) };
        }
        self.flip(false).await?;
        let manifest = publish::read_release(&self.layout, &current)?;
        let ids = publish::image_ids(&manifest).await?;
        let asleep = self.leave_asleep(&current, &manifest, &ids).await;
        Ok(Righted::Well(format!("release {} was verified and let back{asleep}", current.short())))
    }

    async fn bring_current_up(&mut self, lets_back: bool) -> Result<Righted, Failure> {
        let Some(current) = self.last_good()? else {
            return Ok(Righted::Ill("left as it was: there is no release that was verified here".to_owned()));
        };
        let mut manifest = publish::check_files(&self.layout, &current)?;
        let ids = publish::image_ids(&manifest).await?;
        // What a gateway has put to sleep is off on purpose; what somebody asked for meanwhile may be of what nobody verified.
        let asleep = self.to_be_off()?;
        let all = asleep.is_empty();
        let whole = manifest.clone();
        manifest.services.retain(|service, _| !asleep.contains(service));
        // A gateway that runs is left alone until everything else does.
        let staying = self.staying().await?;
        manifest.services.retain(|service, _| Some(service) != staying.as_ref());
        if !self.awake_faults(&manifest, &ids, &asleep).await?.is_empty() {
            let brought = if all {
                self.up(&current).await
            } else {
                let names = manifest.services.keys().map(ServiceName::as_str);
                let up = compose::up_some(&self.fleet.app, Path::new(DEFINITION), names);
                self.bring_up(&current, &up).await
            };
            if let Err(failure) = brought {
                // What waiting may mend is seen in the services by whoever looks, and healed; anything else is tried again.
                let lasting = self.awake_faults(&manifest, &ids, &asleep).await?.iter().any(|fault| fault.lasting);
                return if lasting { Err(failure) } else { Ok(Righted::Ill(failure.to_string())) };
            }
        }
        let counts = |service: &ServiceName| !asleep.contains(service) && Some(service) != staying.as_ref();
        if let Err(failure) = self.wait_until_verified(&current, counts).await {
            return if self.is_to_end() { Err(failure) } else { Ok(Righted::Ill(failure.to_string())) };
        }
        if lets_back && self.is_out() {
            self.flip(false).await?;
        }
        self.layout.point(Pointer::Incoming, None).map_err(|error| disk(self.layout.dir(), &error))?;
        if staying.is_some() {
            self.hand_over(&current).await?;
        }
        let end = if lets_back && self.is_out_by_hand() {
            "verified"
        } else if lets_back {
            "verified and let back"
        } else {
            "verified, and stays out of rotation as before"
        };
        let asleep = self.leave_asleep(&current, &whole, &ids).await;
        Ok(Righted::Well(format!("release {} was brought up, {end}{asleep}", current.short())))
    }

    async fn awake_faults(
        &self,
        manifest: &Manifest,
        ids: &BTreeMap<ServiceName, String>,
        asleep: &BTreeSet<ServiceName>,
    ) -> Result<Vec<ContainerFault>, Failure> {
        let staying = self.staying().await?;
        let containers = self.containers().await?.into_iter().map(|c| c.container);
        let counts = |one: &Container| !asleep.contains(&one.service) && Some(&one.service) != staying.as_ref();
        let awake: Vec<_> = containers.filter(counts).collect();
        Ok(container_faults(manifest, ids, &awake))
    }

    /// What was verified here last; on a server that ran by other means, what was saved of that.
    pub(in crate::server) fn last_good(&self) -> Result<Option<ReleaseId>, Failure> {
        let pointer = |pointer| self.layout.pointer(pointer).map_err(|error| disk(self.layout.dir(), &error));
        match pointer(Pointer::Current)?.filter(|current| publish::check_files(&self.layout, current).is_ok()) {
            Some(current) => Ok(Some(current)),
            None => Ok(pointer(Pointer::Previous)?.filter(ReleaseId::is_adopted)),
        }
    }

    /// Waits until the services that count pass, and go on passing.
    pub(super) async fn wait_until_verified(
        &self,
        release: &ReleaseId,
        counts: impl Fn(&ServiceName) -> bool + Send + Sync,
    ) -> Result<(), Failure> {
        let longest = longest_start(&self.fleet);
        let end = Instant::now() + longest;
        let mut passed_at: Option<Instant> = None;
        loop {
            // An engine that did not answer once has proved nothing either way.
            let faults = self.faults(release, &counts).await.unwrap_or_else(|failure| vec![failure.to_string()]);
            match (&passed_at, faults.is_empty()) {
                (Some(at), true) if at.elapsed() >= self.fleet.rolling.stable => return Ok(()),
                (None, true) => passed_at = Some(Instant::now()),
                (Some(_), true) => {}
                (_, false) => passed_at = None,
            }
            if Instant::now() >= end && passed_at.is_none() {
                let what = format!(
                    "release {} was brought up and not verified: {}{}",
                    release.short(),
                    faults.join("; "),
                    if self.is_out() { "; it stays drained" } else { "" }
                );
                return Err(Failure::new(FailureKind::Command, what));
            }
            if self.is_to_end() {
                let what = format!("told to end before release {} was verified", release.short());
                return Err(Failure::new(FailureKind::Command, what));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    pub(super) async fn faults(
        &self,
        release: &ReleaseId,
        counts: &(impl Fn(&ServiceName) -> bool + Send + Sync),
    ) -> Result<Vec<String>, Failure> {
        let manifest = publish::read_release(&self.layout, release)?;
        let seen = self.verify(release).await?;
        let mut faults: Vec<String> = manifest
            .services
            .keys()
            .filter(|service| counts(service))
            .flat_map(|service| service_faults(&manifest, &seen.image_ids, &seen.containers, service))
            .map(|fault| fault.what)
            .collect();
        let own = |name: &ServiceName| manifest.services.contains_key(name) && counts(name);
        for service in self.fleet.services.iter().filter(|service| own(&service.name)) {
            let judged = seen.services.get(&service.name).map(|evidence| judge(&service.verify, evidence, release));
            if let Some(Err(why)) = judged {
                faults.push(format!("{}: {why}", service.name));
            }
        }
        Ok(faults)
    }

    /// Whoever goes away in order leaves nothing drained that nobody said was to stay out; what was out before he came comes back
    /// only where it passes now.
    pub(super) async fn leave_in_order(&mut self) -> Result<(), Failure> {
        let left_out = self.absence()?.is_some();
        let what = match put_right(&self.record.state, self.is_out(), left_out) {
            PutRight::FlipBackIfItRuns if !self.started_while_out(&self.containers().await?) => {
                self.flip_back_if_it_runs().await?.what().to_owned()
            }
            PutRight::FlipBackIfItRuns | PutRight::LetBackIfVerified => self.let_back_if_it_passes().await?,
            PutRight::Nothing | PutRight::StaysOut | PutRight::UpButOut | PutRight::BringCurrentUp => return Ok(()),
        };
        self.record.say(what);
        Ok(())
    }

    async fn let_back_if_it_passes(&mut self) -> Result<String, Failure> {
        let Some(current) = self.last_good()? else {
            return Ok("it stays drained as before: there is no release that was verified here".to_owned());
        };
        let asleep = self.asleep()?;
        match self.faults(&current, &|service: &ServiceName| !asleep.contains(service)).await?.first() {
            Some(fault) => Ok(format!("it stays drained as before: {fault}")),
            None => {
                self.flip(false).await?;
                Ok("let back: everything passes".to_owned())
            }
        }
    }

    /// The lock is ours. If whoever had it before was killed: waits for his command and writes down what he left. A server
    /// that he left drained stays so for now: whoever takes the lock counts on it being out, and at the latest its unlock
    /// lets it back, where it may. Returns how far he had come.
    pub(super) async fn take_over(&mut self, patience: Instant) -> Result<State, Failure> {
        let path = self.layout.record();
        let mut record = Record::read(&path).map_err(|error| disk(&path, &error))?;
        let left = record.state.clone();
        record.state = taken_over(&left);
        if let Some(command) = record.command.take() {
            wait_for(&command, patience.max(Instant::now() + LAST_COMMAND)).await?;
        }
        let was = record.run.replace(self.run.clone());
        // Of all ways but the file the state died with the processes.
        record.drained &= self.fleet.drain.by.facts().survives_restart || !record.is_of_another_boot();
        record.agent = Some(ProcessId::of(std::process::id()));
        self.record = record;
        self.untouched = true;
        if left != State::Idle {
            let who = was.map_or_else(|| "somebody".to_owned(), |run| format!("{} ({})", run.who, run.id));
            self.record.say(format!("found that the agent of {who} had died in the state {left:?}"));
        }
        self.save().map(|()| left)
    }
}

async fn wait_for(command: &ProcessId, end: Instant) -> Result<(), Failure> {
    while command.group_is_alive() {
        if Instant::now() >= end {
            let message = format!("a command of an agent that was killed still runs (process group {})", command.pid);
            return Err(Failure::new(FailureKind::Command, message).hint("wait for it, or end it"));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}
