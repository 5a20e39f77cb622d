//! One server as its agent sees it: the locks that it holds, the record that it keeps, and which request is what.

use super::record::{Record, State, now};
use super::succession::Succession;
use crate::fleet::model::{Absence, Fleet, Holder, Known, ServerName};
use crate::fleet::recovery::freed;
use crate::fleet::verify::judge;
use crate::server::compose::{self, Inspected, parse_inspect};
use crate::server::flock::{Flock, Taken, try_take};
use crate::server::layout::{Layout, read_json, remove, write_json};
use crate::server::process::ProcessId;
use crate::server::run::{CommandLine, Output, last_lines, run, run_noted};
use crate::server::wire::{Context, Failure, FailureKind, Reply, Request, Run, Verified};
use crate::server::{journal, probes, publish};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The engine answers about its own state.
pub(super) const ENGINE: Duration = Duration::from_secs(30);
/// Between two tries to take a lock that is held.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// What the main loop tells whoever works.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ctl {
    /// How many unlocks were asked for so far.
    pub(super) unlocks: u64,
    /// Nobody listens any more.
    pub(super) dead: bool,
}

/// One server.
#[derive(Debug)]
pub(in crate::server) struct Site {
    pub(in crate::server) server: ServerName,
    pub(in crate::server) fleet: Fleet,
    pub(super) run: Run,
    pub(in crate::server) layout: Layout,
    pub(super) record: Record,
    /// Nothing was done yet to what the lock was taken over with.
    pub(super) untouched: bool,
    /// Whoever runs it was told to end: what it waits for is given up, what it changes is finished.
    pub(in crate::server) ends: Arc<AtomicBool>,
    pub(super) server_lock: Option<Flock>,
    pub(super) deploy_lock: Option<Flock>,
    pub(super) succession: Succession,
}

/// A failure of the disk, in the words that every part uses.
pub(in crate::server) fn disk(path: &Path, error: &io::Error) -> Failure {
    let kind =
        if error.kind() == io::ErrorKind::PermissionDenied { FailureKind::Missing } else { FailureKind::Internal };
    let (shown, told) = (path.display().to_string(), error.to_string());
    let failure = Failure::new(kind, if told.contains(&shown) { told } else { format!("{shown}: {told}") });
    if error.kind() != io::ErrorKind::InvalidData {
        return failure;
    }
    failure.hint(format!(
        "it is broken, or of another version of handover: restore it, or, once nobody works on this server, `rm {shown}`; what it \
         said (who is out and why, what somebody was in the middle of) is then forgotten"
    ))
}

impl Site {
    pub(super) fn new(context: Context) -> Self {
        let layout = Layout::of(&context.fleet);
        Self {
            succession: Succession::new(layout.successor(), &context.run.id),
            server: context.server,
            fleet: context.fleet,
            run: context.run,
            layout,
            record: Record::default(),
            untouched: false,
            ends: Arc::default(),
            server_lock: None,
            deploy_lock: None,
        }
    }

    /// Whether a request must be finished although its asker is dead: it changes what runs, or what is switched on.
    pub(super) fn must_finish(request: &Request) -> bool {
        matches!(
            request,
            Request::Flip { .. }
                | Request::Stop
                | Request::Start { .. }
                | Request::Switch { .. }
                | Request::Sleep
                | Request::HandOver { .. }
                | Request::Once { .. }
                | Request::Absent { .. }
                | Request::Adopt
                | Request::Lock { .. }
                | Request::Unlock { .. }
                | Request::Install
                | Request::Uninstall
        )
    }

    pub(super) async fn handle(
        &mut self,
        request: Request,
        ctl: watch::Receiver<Ctl>,
        unlocks: u64,
    ) -> Result<Reply, Failure> {
        match request {
            Request::Observe => Ok(Reply::Facts(Box::new(self.observe().await?))),
            Request::LockDeploy => self.lock_deploy(),
            Request::UnlockDeploy => {
                self.deploy_lock = None;
                Ok(Reply::Done)
            }
            Request::Resolve { files, compose, vars } => {
                let resolved = publish::resolve(&self.layout, &self.fleet, &files, &compose, &vars).await?;
                Ok(Reply::Resolved(Box::new(resolved)))
            }
            Request::Stage { manifest, files } => {
                publish::stage(&self.layout, &self.fleet.app, &manifest, &files).await?;
                Ok(Reply::Done)
            }
            Request::Pull { release } => {
                Ok(Reply::Pulled(publish::pull(&publish::read_release(&self.layout, &release)?).await?))
            }
            Request::Adopt => {
                let containers = self.containers().await?;
                Ok(Reply::Adopted(Box::new(publish::adopt(&self.layout, &self.fleet, &containers).await?)))
            }
            Request::Lock { wait } => self.lock(wait, ctl, unlocks).await,
            Request::Unlock { record } => self.unlock(&record).await,
            Request::Flip { drained } => self.ask_flip(drained).await,
            Request::Look => Ok(Reply::Sighting(probes::look(&self.fleet).await)),
            Request::Count => Ok(Reply::Count(match &self.fleet.drain.counter {
                Some(counter) => probes::count(counter).await,
                None => None,
            })),
            Request::Held => Ok(Reply::Holding(match self.fleet.drain.by.hold() {
                Some(hold) => probes::held(hold).await,
                None => Known::Unknown(format!("with `drain.by = \"{}\"` nobody holds", self.fleet.drain.by.word())),
            })),
            Request::HandOver { release } => Ok(Reply::Started(self.hand_over(&release).await?)),
            Request::Nodes => Ok(Reply::Nodes(probes::nodes(&self.fleet.drain.by).await)),
            Request::Once { release, once } => Ok(Reply::Once(self.once(&release, &once).await?)),
            Request::Stop => Ok(Reply::Stopped(self.stop().await?)),
            Request::Start { release } => Ok(Reply::Started(self.start(&release).await?)),
            Request::Verify { release } => Ok(Reply::Verified(Box::new(self.verify(&release).await?))),
            Request::Switch { release } => Ok(Reply::Switched(self.switch(&release).await?)),
            Request::Sleep => Ok(Reply::Stopped(self.sleep().await?)),
            Request::Absent { absence } => self.absent(absence).await,
            Request::Freeze { reason } => self.freeze(reason),
            Request::Unfreeze => {
                remove(&self.layout.freeze()).map_err(|error| disk(&self.layout.freeze(), &error))?;
                Ok(Reply::Done)
            }
            Request::Releases => Ok(Reply::Releases(publish::list(&self.layout).await?)),
            Request::Journal { lines } => {
                let folder = self.layout.journals();
                journal::append(&folder, &self.run.id, &lines).map_err(|error| disk(&folder, &error))?;
                Ok(Reply::Done)
            }
            // Whoever deploys, or installs, has it: two at once would each find the other's half.
            Request::Install => match self.lock_deploy()? {
                Reply::Held(holder) => Ok(Reply::Held(holder)),
                _ => Ok(Reply::Installed(self.install().await?)),
            },
            Request::Uninstall => match self.lock_deploy()? {
                Reply::Held(holder) => Ok(Reply::Held(holder)),
                _ => Ok(Reply::Installed(self.uninstall().await?)),
            },
            Request::Journals { newest } => {
                let folder = self.layout.journals();
                journal::newest(&folder, newest).map(Reply::Journals).map_err(|error| disk(&folder, &error))
            }
        }
    }

    pub(super) fn lock_deploy(&mut self) -> Result<Reply, Failure> {
        if self.deploy_lock.is_some() {
            return Ok(Reply::Locked);
        }
        self.own_folder()?;
        let lock = self.layout.deploy_lock();
        match try_take(&lock, &self.layout.deploy_lock_note(), &self.run).map_err(|error| disk(&lock, &error))? {
            Taken::Held(holder) => Ok(Reply::Held(holder)),
            Taken::Ours(flock) => {
                self.deploy_lock = Some(flock);
                Ok(Reply::Locked)
            }
        }
    }

    /// A folder is one app's: two of them would prune and switch each other's releases.
    fn own_folder(&self) -> Result<(), Failure> {
        let path = self.layout.app();
        match read_json::<String>(&path).map_err(|error| disk(&path, &error))? {
            None => write_json(&path, &self.fleet.app).map_err(|error| disk(&path, &error)),
            Some(app) if app == self.fleet.app => Ok(()),
            Some(app) => Err(Failure::new(FailureKind::Missing, self.layout.belongs_to(&app))),
        }
    }

    async fn lock(&mut self, wait: Duration, ctl: watch::Receiver<Ctl>, unlocks: u64) -> Result<Reply, Failure> {
        if self.server_lock.is_some() {
            return Ok(Reply::Locked);
        }
        Ok(match self.take(wait, ctl, unlocks).await? {
            Ok(_) => Reply::Locked,
            Err(holder) => Reply::Held(holder),
        })
    }

    /// Waits for the server lock; an unlock that is asked for meanwhile, or the asker's death, ends the waiting. Says how far whoever
    /// had it before had come, or who has it.
    pub(super) async fn take(
        &mut self,
        wait: Duration,
        mut ctl: watch::Receiver<Ctl>,
        unlocks: u64,
    ) -> Result<Result<State, Holder>, Failure> {
        let end = Instant::now() + wait;
        let lock = self.layout.server_lock().to_owned();
        loop {
            match try_take(&lock, &self.layout.server_lock_note(), &self.run).map_err(|error| disk(&lock, &error))? {
                Taken::Ours(flock) => {
                    self.server_lock = Some(flock);
                    break;
                }
                Taken::Held(holder) => {
                    let over = Instant::now() >= end || self.is_to_end();
                    let Ctl { unlocks: asked, dead } = *ctl.borrow_and_update();
                    if over || dead || asked > unlocks {
                        return Ok(Err(holder));
                    }
                }
            }
            // Whatever wakes it up, it looks again.
            drop(tokio::time::timeout(TRY_AGAIN, ctl.changed()).await);
        }
        let taken = self.take_over(end).await;
        if taken.is_err() {
            self.server_lock = None;
        }
        taken.map(Ok)
    }

    async fn unlock(&mut self, record: &str) -> Result<Reply, Failure> {
        if self.hold().await.is_err() {
            return Ok(Reply::Done);
        }
        self.record.say(record);
        let left = self.leave_in_order().await;
        self.record.state = freed(self.record.state.clone(), self.untouched);
        self.record.command = None;
        let written = self.save();
        self.server_lock = None;
        left.and(written).map(|()| Reply::Done)
    }

    async fn absent(&mut self, absence: Option<Absence>) -> Result<Reply, Failure> {
        self.hold().await?;
        let path = self.layout.absence();
        match absence {
            Some(absence) => {
                let since = if absence.since == 0 { now() } else { absence.since };
                write_json(&path, &Absence { since, ..absence })
            }
            None => remove(&path),
        }
        .map_err(|error| disk(&path, &error))?;
        Ok(Reply::Done)
    }

    fn freeze(&self, reason: String) -> Result<Reply, Failure> {
        let path = self.layout.freeze();
        let freeze = Holder { who: self.run.who.clone(), what: reason, since: now(), run: Some(self.run.id.clone()) };
        write_json(&path, &freeze).map_err(|error| disk(&path, &error))?;
        Ok(Reply::Done)
    }

    pub(in crate::server) fn absence(&self) -> Result<Option<Absence>, Failure> {
        let path = self.layout.absence();
        read_json(&path).map_err(|error| disk(&path, &error))
    }

    /// Nothing is changed without the server lock. Where the agent that held it for this very run was killed in the middle, it
    /// is taken up again: what was begun is better undone by its own deploy than left to the next.
    pub(super) async fn hold(&mut self) -> Result<(), Failure> {
        if self.server_lock.is_some() {
            return Ok(());
        }
        let (path, lock) = (self.layout.record(), self.layout.server_lock().to_owned());
        let record = Record::read(&path).map_err(|error| disk(&path, &error))?;
        let ours = record.state != State::Idle && record.run.is_some_and(|run| run.id == self.run.id);
        let taken = if ours {
            Some(try_take(&lock, &self.layout.server_lock_note(), &self.run).map_err(|error| disk(&lock, &error))?)
        } else {
            None
        };
        if let Some(Taken::Ours(flock)) = taken {
            self.server_lock = Some(flock);
            let taken_over = self.take_over(Instant::now() + self.fleet.lock.wait).await;
            if taken_over.is_err() {
                self.server_lock = None;
            }
            return taken_over.and_then(|left| self.enter(left));
        }
        Err(Failure::new(FailureKind::NotLocked, "the server lock is not held by this deploy (any more)"))
    }

    pub(super) fn save(&self) -> Result<(), Failure> {
        let path = self.layout.record();
        self.record.write(&path).map_err(|error| disk(&path, &error))
    }

    /// Says on disk what is about to be done.
    pub(super) fn enter(&mut self, state: State) -> Result<(), Failure> {
        self.record.state = state;
        self.untouched = false;
        self.save()
    }

    pub(super) fn is_to_end(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Runs a changing command; the record names its process group for as long as it runs.
    pub(super) async fn change(&mut self, line: &CommandLine, within: Duration) -> Result<Output, Failure> {
        let path = self.layout.record();
        let record = &mut self.record;
        let result = run_noted(line, within, |group| {
            record.command = Some(ProcessId::of(group));
            // The command runs already: it is better watched from memory than not at all.
            drop(record.write(&path));
        })
        .await;
        self.record.command = None;
        drop(self.record.write(&path));
        result
    }

    /// Every container of the project.
    pub(in crate::server) async fn containers(&self) -> Result<Vec<Inspected>, Failure> {
        for _ in 0..3 {
            let ids = run(&compose::list(&self.fleet.app), ENGINE).await?.success("listing containers")?;
            let ids: Vec<String> = ids.text().split_whitespace().map(ToOwned::to_owned).collect();
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let output = run(&compose::inspect(&ids), ENGINE).await?;
            if output.code != 0 && output.stderr.contains("No such container") {
                // One went between the two questions.
                continue;
            }
            let output = output.success("looking at containers")?;
            return parse_inspect(&output.stdout).map_err(|error| {
                Failure::new(FailureKind::Internal, format!("the engine's answer is not understood: {error}"))
            });
        }
        Err(Failure::new(FailureKind::Command, "the project's containers come and go too fast to be looked at"))
    }

    pub(super) async fn verify(&self, release: &crate::fleet::model::ReleaseId) -> Result<Verified, Failure> {
        let manifest = publish::read_release(&self.layout, release)?;
        let containers = self.containers().await?;
        let services: Vec<_> =
            self.fleet.services.iter().filter(|s| manifest.services.contains_key(&s.name)).cloned().collect();
        let evidence = probes::services(&services, &containers).await;
        let image_ids = publish::image_ids(&manifest).await?;
        let mut logs = BTreeMap::new();
        for service in &services {
            let fine = evidence.get(&service.name).is_some_and(|seen| judge(&service.verify, seen, release).is_ok());
            let own = containers.iter().find(|c| c.container.service == service.name);
            if let (false, Some(container)) = (fine, own)
                && let Ok(output) = run(&compose::logs(&container.id), ENGINE).await
            {
                logs.insert(service.name.clone(), last_lines(&format!("{}{}", output.text(), output.stderr), 20));
            }
        }
        // Once more, so that nothing that ended during the checks passes for running.
        let containers = self.containers().await?.into_iter().map(|c| c.container).collect();
        Ok(Verified { containers, image_ids, services: evidence, logs, asleep: self.asleep()? })
    }
}
