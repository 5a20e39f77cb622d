//! Looks at a server: its lock, its record, its planned absence, its services. Changes nothing and judges only each service.

use crate::fleet::model::{Container, ContainerState, ReleaseId, ServiceName};
use crate::fleet::release::Manifest;
use crate::fleet::strikes::{Restarts, Seen};
use crate::fleet::verify::{Evidence, judge, service_faults};
use crate::fleet::watch::{Left, Look};
use crate::server::agent::{Record, Site, State, disk, now};
use crate::server::compose::Inspected;
use crate::server::layout::Layout;
use crate::server::wire::{Failure, FailureKind};
use crate::server::{flock, probes, publish};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// For what a service that deploy.toml does not name may need to start.
const START: Duration = Duration::from_secs(60);

/// Who holds the server lock.
pub(super) fn holder(layout: &Layout) -> Result<Option<String>, Failure> {
    let lock = layout.server_lock();
    let holder = flock::holder(lock, &layout.server_lock_note())
        .map_err(|error| Failure::new(FailureKind::Missing, format!("{}: {error}", lock.display())))?;
    Ok(holder.map(|holder| format!("{} ({})", holder.who, holder.what)))
}

/// The server, now.
pub(super) async fn at(site: &Site, restarts: &mut Restarts) -> Result<Look, Failure> {
    let path = site.layout.record();
    let record = Record::read(&path).map_err(|error| disk(&path, &error))?;
    let left = left(&record.state, record.drained || site.flag_is_ours(), site.is_at_work());
    let release = site.current()?;
    let services = match &release {
        None => Ok(BTreeMap::new()),
        Some(release) => services(site, release, restarts).await.map_err(|failure| failure.to_string()),
    };
    let absent = site.absence()?.map(|absence| {
        let overdue = if absence.is_overdue(now()) { " (overdue: it was to be back by now)" } else { "" };
        format!("{}{overdue}", absence.reason)
    });
    Ok(Look { release, absent, left, services })
}

/// What was left behind. Under our own lock the record is ours, and says only whether health still fails.
fn left(state: &State, out: bool, ours: bool) -> Left {
    match state {
        State::Idle if out => Left::Drained,
        State::Idle => Left::Nothing,
        _ if ours && out => Left::Drained,
        _ if ours => Left::Nothing,
        _ => Left::Unfinished,
    }
}

async fn services(
    site: &Site,
    release: &ReleaseId,
    restarts: &mut Restarts,
) -> Result<BTreeMap<ServiceName, Seen>, Failure> {
    let manifest = site.manifest(release)?;
    let containers = site.containers().await?;
    let checked: Vec<_> =
        site.fleet.services.iter().filter(|service| manifest.services.contains_key(&service.name)).cloned().collect();
    let evidence = probes::services(&checked, &containers).await;
    let images = publish::image_ids(&manifest).await?;
    let asleep = site.asleep()?;
    let judged = |name: &ServiceName| {
        let one = One { site, manifest: &manifest, release, containers: &containers, restarts, name };
        let seen = if asleep.contains(name) { Seen::Excused } else { one.seen(&images, evidence.get(name)) };
        (name.clone(), seen)
    };
    let seen = manifest.services.keys().map(judged).collect();
    restarts.see(containers.iter().map(|c| (c.id.clone(), c.container.restarts)));
    Ok(seen)
}

/// One service.
struct One<'a> {
    site: &'a Site,
    manifest: &'a Manifest,
    release: &'a ReleaseId,
    containers: &'a [Inspected],
    restarts: &'a Restarts,
    name: &'a ServiceName,
}

impl One<'_> {
    fn seen(&self, images: &BTreeMap<ServiceName, String>, evidence: Option<&Evidence>) -> Seen {
        if self.manifest.services.get(self.name).is_some_and(|pin| pin.one_shot) {
            return Seen::Excused;
        }
        let all: Vec<Container> = self.containers.iter().map(|c| c.container.clone()).collect();
        // Another image than the published one, or one container too many, is somebody's doing: a deploy's to mend.
        let fault = service_faults(self.manifest, images, &all, self.name).into_iter().find(|fault| !fault.lasting);
        let why = match (fault, self.site.fleet.service(self.name), evidence) {
            (Some(fault), _, _) => Some(fault.what),
            (None, Some(service), Some(evidence)) => judge(&service.verify, evidence, self.release).err(),
            (None, _, _) => None,
        };
        match why {
            None => Seen::Fine,
            Some(_) if self.is_starting() => Seen::Starting,
            Some(why) => Seen::Failing(why),
        }
    }

    fn is_starting(&self) -> bool {
        let patience = self.site.fleet.service(self.name).map_or(START, |service| service.deadline);
        let own: Vec<&Inspected> = self.containers.iter().filter(|c| &c.container.service == self.name).collect();
        is_starting(&own, patience, self.restarts, SystemTime::now())
    }
}

/// Every container of it runs, and one was started a moment ago: not by the engine, again and again.
fn is_starting(own: &[&Inspected], patience: Duration, restarts: &Restarts, now: SystemTime) -> bool {
    let young = |c: &&Inspected| c.started.and_then(|at| now.duration_since(at).ok()).is_some_and(|age| age < patience);
    let steady =
        |c: &&Inspected| c.container.state == ContainerState::Running && !restarts.grew(&c.id, c.container.restarts);
    own.iter().any(young) && own.iter().all(steady)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drained_for_nobody_is_still_so_once_the_lock_is_ours() {
        assert_eq!(left(&State::Idle, true, false), Left::Drained);
        assert_eq!(left(&State::Locked, true, true), Left::Drained);
        assert_eq!(left(&State::Locked, false, true), Left::Nothing);
        assert_eq!(left(&State::Locked, true, false), Left::Unfinished, "somebody else died with it");
        assert_eq!(left(&State::Stopped, false, false), Left::Unfinished);
    }

    #[test]
    fn what_crashed_a_moment_ago_is_not_starting_at_the_second_look_either() {
        let now = SystemTime::now();
        let container = |restarts| Inspected {
            id: "a".into(),
            container: Container {
                service: "api".into(),
                name: "app-api-1".into(),
                state: ContainerState::Running,
                restarts,
                exit_code: 0,
                image_id: String::new(),
                health: None,
            },
            started: Some(now - Duration::from_secs(3)),
            finished: None,
            grace: Duration::ZERO,
            env: BTreeMap::new(),
            labels: BTreeMap::new(),
            restart: "no".into(),
        };
        let mut restarts = Restarts::default();
        for (count, starting) in [(0, true), (1, false), (1, true), (2, false)] {
            for look in ["first", "under the lock"] {
                let one = container(count);
                assert_eq!(is_starting(&[&one], START, &restarts, now), starting, "{count} at the {look} look");
                restarts.see([(one.id.clone(), count)]);
            }
            restarts.turn_ends();
        }
    }
}
