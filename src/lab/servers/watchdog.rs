//! The deploy script and the watchdogs of the story, as they act on a lab's server: by its one definition, with or without its
//! lock.

use super::{LabServer, Machine};
use crate::fleet::model::{ReleaseId, ReleaseOnDisk, ServiceName};
use crate::fleet::strikes::{Rules, Seen, Strikes};
use crate::fleet::verify::judge;
use crate::fleet::watch::{Do, Left, Look, Next, Saw, Turn};
use crate::lab::lock;
use crate::server::wire::{Failure, FailureKind, Reply, Run};
use std::collections::BTreeMap;
use std::time::Duration;

/// Whoever deploys is done sooner.
const PATIENCE: Duration = Duration::from_secs(600);

impl LabServer {
    pub(in crate::lab) async fn lock_by_script(&self, run: &Run) {
        self.machine.locks.server(run, self.machine.spec.clock.wall(PATIENCE)).await;
    }

    pub(in crate::lab) fn free_by_script(&self, run: &Run) {
        self.machine.locks.free_server(run);
    }

    /// Writes the definition in its place: whoever brings containers up afterwards brings these.
    pub(in crate::lab) fn write_definition(&self, release: ReleaseOnDisk) {
        let mut state = lock(&self.machine.state);
        state.definition = Some(release.manifest.id.clone());
        state.releases.insert(release.manifest.id.clone(), release);
    }

    /// Stops what runs, and brings up what the definition says by then.
    pub(in crate::lab) async fn restart_by_definition(&self) -> Result<(), Failure> {
        self.machine.stop().await;
        self.machine.start(&self.machine.definition()?).await?;
        self.machine.ready().await
    }

    /// The watchdog as it was: one failed health check, and its own copy is written over the definition and brought up.
    pub(in crate::lab) async fn heal_at_once(
        &self,
        copy: &(dyn Fn(&ReleaseOnDisk) -> ReleaseOnDisk + Send + Sync),
    ) -> Result<bool, Failure> {
        let copy = copy(&self.machine.release(&self.machine.definition()?)?);
        if self.machine.is_healthy(&copy).await {
            return Ok(false);
        }
        let id = copy.manifest.id.clone();
        self.write_definition(copy);
        self.machine.start(&id).await?;
        self.machine.ready().await?;
        Ok(true)
    }

    /// The watchdog mended: a turn of the one that is installed on servers.
    pub(in crate::lab) async fn look(&self, rules: &Rules, strikes: &mut Strikes) {
        let (mut turn, mut todo) = Turn::begin(*rules);
        loop {
            let saw = self.carry_out(todo).await;
            match turn.step(strikes, saw, self.machine.spec.clock.now().since_start().as_secs()) {
                Next::Do(next) => todo = next,
                Next::End(_) => return,
            }
        }
    }

    async fn carry_out(&self, todo: Do) -> Saw {
        let (machine, run) = (&self.machine, watchdog(self));
        match todo {
            Do::SeeLock | Do::TakeLock => {
                let holder = match machine.locks.server(&run, Duration::ZERO).await {
                    Reply::Held(holder) => Some(holder.who),
                    _ => None,
                };
                match (todo, holder) {
                    (Do::TakeLock, None) => Saw::Taken(Ok(false)),
                    (Do::TakeLock, Some(holder)) => Saw::Taken(Err(holder)),
                    (_, None) => {
                        machine.locks.free_server(&run);
                        Saw::Lock(None)
                    }
                    (_, holder) => Saw::Lock(holder),
                }
            }
            Do::Look => {
                let release = machine.definition().ok();
                let services = match &release {
                    Some(id) => machine.seen(id).await.map_err(|failure| failure.to_string()),
                    None => Ok(BTreeMap::new()),
                };
                // Nobody dies here, and nobody is left out.
                Saw::Server(Box::new(Look { release, absent: None, left: Left::Nothing, services }))
            }
            Do::Heal(_) => {
                let started = match machine.definition() {
                    Ok(id) => machine.start(&id).await,
                    Err(failure) => Err(failure),
                };
                Saw::Done(started.map(|()| String::new()).map_err(|failure| failure.to_string()))
            }
            Do::PutRight | Do::LetBack => Saw::Done(Ok(String::new())),
            Do::Free => {
                machine.locks.free_server(&run);
                Saw::Done(Ok(String::new()))
            }
        }
    }
}

fn watchdog(server: &LabServer) -> Run {
    let who = format!("watchdog@{}", server.name());
    Run { id: who.clone(), who, what: "the watchdog".into() }
}

impl Machine {
    /// What is to run here: what was written last, or what is current.
    fn definition(&self) -> Result<ReleaseId, Failure> {
        let state = lock(&self.state);
        let id = state.definition.clone().or_else(|| state.current.clone());
        id.ok_or_else(|| Failure::new(FailureKind::Missing, "no release was ever brought here"))
    }

    /// Whether every health check answers 200 of the groups whose services a release has.
    async fn is_healthy(&self, release: &ReleaseOnDisk) -> bool {
        let has = |group: &crate::fleet::model::GroupName| {
            let mut services = self.spec.fleet.services.iter().filter(|service| service.groups.contains(group));
            services.any(|service| release.manifest.services.contains_key(&service.name))
        };
        let seen = self.look().await;
        seen.health
            .iter()
            .filter(|(group, _)| has(group))
            .all(|(_, answers)| answers.iter().all(|status| *status == 200))
    }

    async fn seen(&self, id: &ReleaseId) -> Result<BTreeMap<ServiceName, Seen>, Failure> {
        let verified = self.verify(id).await?;
        let one = |service: &crate::fleet::model::Service| {
            let judged = verified.services.get(&service.name).map(|evidence| judge(&service.verify, evidence, id));
            let seen = match judged {
                Some(Err(why)) => Seen::Failing(why),
                Some(Ok(())) => Seen::Fine,
                None => Seen::Failing("its check did not run".to_owned()),
            };
            (service.name.clone(), seen)
        };
        Ok(self.spec.fleet.services.iter().map(one).collect())
    }
}
