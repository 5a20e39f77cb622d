//! A simulated agent: the locks it holds, and what it carries out.
//!
//! What its record says is decided by `fleet::recovery`, as on a real server.

use super::faults::Fault;
use super::machine::AgentId;
use super::world::{Inner, World, dies_with_it};
use crate::clock::Stamp;
use crate::fleet::model::{DrainBy, Holder, Known, ReleaseId, ServerName, ServiceName};
use crate::fleet::recovery::{PutRight, State, flipped_out, freed, put_right, taken_over};
use crate::rollout::machine::Protection;
use crate::server::wire::{Failure, FailureKind, Reply, Request, Resolved, Stopped, StoppedContainer};
use std::time::Duration;

/// Between two looks.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// A command that changes nothing takes that long.
const QUICK: Duration = Duration::from_millis(50);
/// Bringing containers up.
const UP: Duration = Duration::from_secs(3);
/// Stopping them.
const DOWN: Duration = Duration::from_secs(2);
/// What SIGKILL leaves as exit code.
const KILLED: i32 = 137;

fn not_locked() -> Failure {
    Failure::new(FailureKind::NotLocked, "the server lock is not held by this deploy (any more)")
}

fn changes(request: &Request) -> bool {
    matches!(
        request,
        Request::Flip { .. }
            | Request::Stop
            | Request::HandOver { .. }
            | Request::Start { .. }
            | Request::Switch { .. }
            | Request::Sleep
            | Request::Once { .. }
            | Request::Absent { .. }
    )
}

impl Inner {
    /// Nobody can speak to it any more.
    pub(super) fn close(&mut self, server: &ServerName, agent: AgentId) {
        let Some(machine) = self.machines.get_mut(server) else { return };
        if let Some(agent) = machine.agents.get_mut(&agent) {
            agent.gone = true;
        }
    }

    /// It ends: the kernel frees its locks.
    pub(super) fn end_agent(&mut self, server: &ServerName, agent: AgentId) {
        self.close(server, agent);
        let Some(machine) = self.machines.get_mut(server) else { return };
        if let Some(agent) = machine.agents.get_mut(&agent) {
            agent.ended = true;
        }
        for lock in [&mut machine.lock, &mut machine.deploy_lock] {
            if *lock == Some(agent) {
                *lock = None;
            }
        }
    }
}

/// An agent at work.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) world: World,
    pub(super) server: ServerName,
    pub(super) run: String,
    pub(super) agent: AgentId,
}

impl Worker {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Inner, Stamp) -> T) -> T {
        let now = self.world.clock.now();
        self.world.with(|inner| act(inner, now))
    }

    pub(super) fn machine<T>(&self, act: impl FnOnce(&mut super::machine::Machine) -> T) -> Result<T, Failure> {
        let gone = || Failure::new(FailureKind::Internal, "there is no such server");
        self.with(|inner, _| inner.machines.get_mut(&self.server).map(act)).ok_or_else(gone)
    }

    /// A killed agent does nothing more.
    pub(super) fn is_dead(&self) -> bool {
        self.with(|inner, _| inner.machines[&self.server].agents.get(&self.agent).is_none_or(|agent| agent.ended))
    }

    pub(super) async fn carry_out(&self, request: Request) -> Result<Reply, Failure> {
        let closed = self.with(|inner, _| {
            inner.machines[&self.server].agents[&self.agent].gone || inner.dead_runs.contains_key(&self.run)
        });
        if self.is_dead() || closed {
            return Err(Failure::new(FailureKind::Internal, "nobody reads this"));
        }
        if changes(&request) {
            self.hold().await?;
        }
        let words = format!("{request:?}");
        let word = words.split([' ', '{', '(']).next().unwrap_or_default().to_lowercase();
        let changing = changes(&request);
        if changing {
            self.begin_work(&word);
        }
        let done = self.obey(request).await;
        if changing {
            self.end_work();
        }
        done
    }

    /// Promise 4.
    pub(super) fn begin_work(&self, word: &str) {
        self.with(|inner, _| {
            let machine = &inner.machines[&self.server];
            let (other, holder) = (machine.at_work.clone(), machine.lock);
            if let Some((by, what)) = other.filter(|(by, _)| *by != self.agent) {
                let what = format!("two worked on it at once: agent {by} ({what}) and agent {}", self.agent);
                inner.violation(4, Some(&self.server), word, what);
            }
            if holder != Some(self.agent) {
                let what = "it was changed by who does not hold its lock".to_owned();
                inner.violation(4, Some(&self.server), word, what);
            }
            if let Some(machine) = inner.machines.get_mut(&self.server) {
                machine.at_work = Some((self.agent, word.to_owned()));
            }
        });
    }

    pub(super) fn end_work(&self) {
        drop(self.machine(|machine| {
            if machine.at_work.as_ref().is_some_and(|(by, _)| *by == self.agent) {
                machine.at_work = None;
            }
        }));
    }

    /// Nothing is changed without the server lock; the run whose agent was killed takes its own up again.
    async fn hold(&self) -> Result<(), Failure> {
        if self.with(|inner, _| {
            inner.without == Some(Protection::Fence) || inner.machines[&self.server].lock == Some(self.agent)
        }) {
            return Ok(());
        }
        let ours = self.machine(|machine| {
            let ours = machine.state != State::Idle && machine.record_of.as_ref() == Some(&self.run);
            let taken = ours && machine.lock.is_none();
            if taken {
                machine.lock = Some(self.agent);
            }
            taken
        })?;
        if !ours {
            return Err(not_locked());
        }
        self.last_command().await;
        Ok(())
    }

    /// A killed agent's command is waited for.
    async fn last_command(&self) {
        while self.with(|inner, now| inner.machines[&self.server].command_until.is_some_and(|until| now < until)) {
            self.world.clock.sleep(TICK).await;
        }
    }

    async fn lock(&self, wait: Duration) -> Result<Reply, Failure> {
        let unlocks = self.machine(|machine| machine.unlocks)?;
        let until = self.world.clock.now() + wait;
        loop {
            let free = self.with(|inner, now| {
                let since = inner.since(now);
                let script =
                    inner.has(|f| matches!(f, Fault::LockTaken(at, span) if *at == self.server && span.holds(since)));
                let holder = inner.machines[&self.server].lock;
                !script && (holder.is_none() || holder == Some(self.agent))
            });
            if free {
                break;
            }
            let called_off = self.machine(|machine| machine.unlocks)? > unlocks;
            if self.world.clock.now() >= until || called_off || self.is_dead() {
                return Ok(Reply::Held(Holder {
                    who: "root@web".into(),
                    what: "backup.sh".into(),
                    since: 0,
                    run: None,
                }));
            }
            self.world.clock.sleep(TICK).await;
        }
        self.machine(|machine| {
            machine.lock = Some(self.agent);
            machine.lock_note = Some(self.run.clone());
            (machine.state, machine.record_of) = (taken_over(&machine.state), Some(self.run.clone()));
            machine.untouched = true;
        })?;
        self.last_command().await;
        Ok(Reply::Locked)
    }

    fn enter(&self, state: State) -> Result<(), Failure> {
        self.with(|inner, now| inner.disk_is_full(&self.server, now))?;
        self.machine(|machine| (machine.state, machine.untouched) = (state, false))
    }

    async fn obey(&self, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Stop => return self.stop().await.map(Reply::Stopped),
            Request::Start { release } => {
                self.enter(State::Started(release.clone()))?;
                self.with(|inner, _| inner.judge_start(&self.server, &release));
                self.up(&release).await;
                return Ok(Reply::Started(self.with(|inner, now| inner.facts(&self.server, now).containers)));
            }
            Request::Once { release, once } => return self.once(&release, &once).await,
            Request::Lock { wait } => return self.lock(wait).await,
            _ => self.world.clock.sleep(QUICK).await,
        }
        if self.is_dead() {
            return Err(Failure::new(FailureKind::Internal, "nobody reads this"));
        }
        self.answer(request)
    }

    fn answer(&self, request: Request) -> Result<Reply, Failure> {
        let full = || self.with(|inner, now| inner.disk_is_full(&self.server, now));
        let done = |_| Reply::Done;
        match request {
            Request::Observe => Ok(Reply::Facts(Box::new(self.with(|inner, now| inner.facts(&self.server, now))))),
            Request::LockDeploy => self.lock_deploy(),
            Request::UnlockDeploy => {
                self.machine(|m| m.deploy_lock = m.deploy_lock.filter(|by| *by != self.agent)).map(done)
            }
            Request::Unlock { .. } => self.unlock(),
            Request::Resolve { vars, .. } => {
                let id = vars.get("RELEASE").map_or_else(Inner::new_release, |id| ReleaseId::new(id.as_str()));
                let manifest = self.with(|inner, _| inner.releases.get(&id).cloned());
                let manifest = manifest.ok_or_else(|| Failure::new(FailureKind::Input, "no such release"))?;
                Ok(Reply::Resolved(Box::new(Resolved { definition: "{}".into(), manifest, warnings: Vec::new() })))
            }
            Request::Stage { manifest, .. } => {
                full()?;
                self.machine(|machine| machine.on_disk.insert(manifest.id)).map(|_| Reply::Done)
            }
            Request::Pull { release } => Ok(Reply::Pulled(self.with(|inner, _| inner.image_ids(&release)))),
            Request::Flip { drained } => self.flip(drained).map(done),
            Request::Look => Ok(Reply::Sighting(self.with(|inner, now| inner.look(&self.server, now)))),
            Request::Count => self.machine(|machine| Reply::Count(Some(machine.count))),
            Request::Held => Ok(Reply::Holding(Known::Unknown("no gateway holds in a simulation".into()))),
            Request::Nodes => Ok(Reply::Nodes(self.with(|inner, now| inner.nodes(&self.server, now)))),
            Request::Verify { release } => {
                Ok(Reply::Verified(Box::new(self.with(|inner, now| inner.verify(&self.server, &release, now)))))
            }
            Request::Switch { release } => {
                full()?;
                self.machine(|machine| {
                    if machine.current.as_ref() != Some(&release) {
                        machine.previous = machine.current.replace(release.clone());
                    }
                    (machine.incoming, machine.state, machine.untouched) = (None, State::Switched, false);
                    Reply::Switched(release)
                })
            }
            Request::Sleep => self.sleep().map(Reply::Stopped),
            Request::Absent { absence } => {
                full()?;
                self.machine(|machine| machine.absence = absence).map(done)
            }
            Request::Releases => Ok(Reply::Releases(self.with(|inner, _| inner.listed(&self.server)))),
            Request::Journal { lines } => {
                full()?;
                self.machine(|machine| {
                    let text = machine.journals.entry(self.run.clone()).or_default();
                    lines.iter().for_each(|line| *text += &format!("{line}\n"));
                })
                .map(done)
            }
            Request::Install | Request::Uninstall => Ok(Reply::Installed(Vec::new())),
            Request::Journals { .. } => self.machine(|m| Reply::Journals(m.journals.values().cloned().collect())),
            Request::Adopt | Request::Freeze { .. } | Request::Unfreeze => Ok(Reply::Done),
            Request::Stop
            | Request::Start { .. }
            | Request::HandOver { .. }
            | Request::Lock { .. }
            | Request::Once { .. } => Err(Failure::new(FailureKind::Internal, "answered elsewhere")),
        }
    }

    fn lock_deploy(&self) -> Result<Reply, Failure> {
        self.machine(|machine| match machine.deploy_lock {
            Some(by) if by != self.agent => {
                let who = machine.agents.get(&by).map(|agent| agent.run.clone()).unwrap_or_default();
                Reply::Held(Holder { who, what: "handover deploy".into(), since: 0, run: None })
            }
            _ => {
                machine.deploy_lock = Some(self.agent);
                machine.deploy_note = Some(self.run.clone());
                Reply::Locked
            }
        })
    }

    fn flip(&self, drained: bool) -> Result<(), Failure> {
        self.with(|inner, now| inner.disk_is_full(&self.server, now))?;
        self.machine(|machine| {
            if drained {
                machine.state = flipped_out(machine.state.clone(), machine.drained);
            } else if matches!(machine.state, State::Drained | State::Switched) {
                machine.state = State::Locked;
            }
            machine.drained = drained;
        })
    }

    fn sleep(&self) -> Result<Stopped, Failure> {
        self.machine(|machine| {
            machine.roused = false;
            Stopped { stopped: Vec::new(), left: Vec::new() }
        })
    }

    fn unlock(&self) -> Result<Reply, Failure> {
        let passes = self.with(|inner, now| {
            let current = inner.machines[&self.server].current.clone();
            current.is_some_and(|current| inner.passes(&self.server, &current, now))
        });
        self.machine(|machine| {
            if machine.lock != Some(self.agent) {
                return Reply::Done;
            }
            match put_right(&machine.state, machine.drained, machine.absence.is_some()) {
                PutRight::FlipBackIfItRuns => machine.drained &= machine.running.is_none(),
                PutRight::LetBackIfVerified => machine.drained &= !passes,
                PutRight::Nothing | PutRight::StaysOut | PutRight::UpButOut | PutRight::BringCurrentUp => {}
            }
            (machine.state, machine.lock, machine.lock_note) =
                (freed(machine.state.clone(), machine.untouched), None, None);
            Reply::Done
        })
    }

    async fn stop(&self) -> Result<Stopped, Failure> {
        self.enter(State::Stopped)?;
        let sigterm = self.with(|inner, _| inner.fleet.drain.by == DrainBy::Sigterm);
        let (takes, code) = self.with(|inner, _| {
            let slow = inner.faults.iter().find_map(|fault| match fault {
                Fault::StopsSlowly(at, takes) if *at == self.server => Some(*takes),
                _ => None,
            });
            let grace = inner.releases.values().flat_map(|m| m.services.values()).map(|pin| pin.grace).max();
            let grace = grace.unwrap_or_default();
            let takes = slow.unwrap_or(DOWN);
            if takes > grace { (grace, KILLED) } else { (takes, 0) }
        });
        let ran = self.with(|inner, now| {
            if !sigterm {
                inner.about_to_stop(&self.server, now);
            }
            let serves = inner.fleet.services.iter().map(|service| service.shutdown).max().unwrap_or_default();
            let machine = inner.machines.get_mut(&self.server)?;
            machine.command_until = Some(now + takes);
            machine.up &= sigterm;
            let ran = machine.running.is_some();
            if sigterm && ran {
                machine.leaving = Some(now + serves);
            }
            Some(ran)
        });
        if sigterm {
            while self.with(|inner, _| inner.machines[&self.server].leaving.is_some()) {
                self.world.clock.sleep(TICK).await;
            }
        } else {
            self.world.clock.sleep(takes).await;
        }
        let dies = self.with(|inner, _| dies_with_it(&inner.fleet));
        self.machine(|machine| {
            (machine.running, machine.up, machine.started, machine.restarts) = (None, false, None, 0);
            machine.command_until = None;
            machine.drained &= !dies;
        })?;
        let services: Vec<ServiceName> =
            self.with(|inner, _| inner.fleet.services.iter().map(|s| s.name.clone()).collect());
        let one = |service: ServiceName| StoppedContainer {
            name: service.to_string(),
            service,
            took: takes,
            exit_code: code,
        };
        let stopped = if ran == Some(true) { services.into_iter().map(one).collect() } else { Vec::new() };
        Ok(Stopped { stopped, left: Vec::new() })
    }

    pub(super) async fn up(&self, release: &ReleaseId) {
        self.with(|inner, now| inner.machines.get_mut(&self.server).map(|m| m.command_until = Some(now + UP)));
        self.world.clock.sleep(UP).await;
        self.with(|inner, now| {
            let Some(machine) = inner.machines.get_mut(&self.server) else { return };
            (machine.running, machine.up, machine.started) = (Some(release.clone()), true, Some(now));
            machine.roused = true;
            (machine.incoming, machine.command_until, machine.leaving) = (Some(release.clone()), None, None);
        });
    }
}
