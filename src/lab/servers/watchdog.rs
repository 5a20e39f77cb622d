//! The deploy script and the watchdogs of the story, as they act on a lab's server: by its one definition, with or without its
//! lock.

use super::{LabServer, Machine};
use crate::fleet::model::{ReleaseId, ReleaseOnDisk, ServiceName};
use crate::fleet::strikes::{Rules, Seen, Strikes, Verdict};
use crate::fleet::verify::judge;
use crate::lab::lock;
use crate::lab::story::given;
use crate::server::wire::{Failure, FailureKind, Run};
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

    /// The watchdog mended: a held lock is planned work; strikes are counted, and looked at again under the lock.
    pub(in crate::lab) async fn look(&self, rules: &Rules, strikes: &mut Strikes) -> Result<(), Failure> {
        let (machine, run) = (&self.machine, watchdog(self));
        if !given(&machine.locks.server(&run, Duration::ZERO).await) {
            strikes.start_again();
            return Ok(());
        }
        machine.locks.free_server(&run);
        let id = machine.definition()?;
        let seen = machine.seen(&id).await?;
        if !given(&machine.locks.server(&run, Duration::ZERO).await) {
            // Somebody took it while we looked: what we saw may be their doing.
            strikes.start_again();
            return Ok(());
        }
        let now = machine.spec.clock.now().since_start().as_secs();
        let verdicts = strikes.look(rules, &id, &seen, now);
        let ill: Vec<&ServiceName> =
            verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Heal).map(|(service, _)| service).collect();
        let healed = if ill.is_empty() { Ok(()) } else { machine.start(&id).await };
        strikes.healed(ill, now);
        machine.locks.free_server(&run);
        healed
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
