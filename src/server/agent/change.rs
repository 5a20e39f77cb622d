//! Stop, start, switch: each says on disk what it is about to do, does it, and says what it saw afterwards.

use super::record::State;
use super::site::{Site, disk};
use crate::fleet::model::{Container, ReleaseId, ServiceName};
use crate::fleet::patience::{self, ENGINE_MARGIN};
use crate::fleet::release::{DEFINITION, Manifest};
use crate::server::compose::{self, Inspected};
use crate::server::layout::Pointer;
use crate::server::publish;
use crate::server::run::CommandLine;
use crate::server::settings::Settings;
use crate::server::wire::{Failure, FailureKind, Stopped, StoppedContainer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Site {
    /// Stops every container of the project, each with its own grace period, and removes them; but for a gateway that holds what arrives
    /// meanwhile.
    pub(super) async fn stop(&mut self) -> Result<Stopped, Failure> {
        self.hold().await?;
        self.enter(State::Stopped)?;
        let staying = self.staying().await?;
        let goes = |one: &Inspected| Some(&one.container.service) != staying.as_ref();
        let before: Vec<Inspected> = self.containers().await?.into_iter().filter(goes).collect();
        if before.is_empty() {
            return Ok(Stopped { stopped: Vec::new(), left: Vec::new() });
        }
        // One after the other at the worst: that is how `depends_on` has it.
        let grace: Duration = before.iter().map(|container| container.grace).sum();
        let deadline = Instant::now() + grace + ENGINE_MARGIN;
        let began = SystemTime::now();
        let names: BTreeSet<&str> = before.iter().map(|one| one.container.service.as_str()).collect();
        let stop = match &staying {
            Some(_) => compose::stop_some(&self.fleet.app, names.iter().copied()),
            None => compose::stop(&self.fleet.app),
        };
        let stop = stop.cwd(Path::new("/"));
        let ended = self
            .change(&stop, grace + ENGINE_MARGIN)
            .await
            .and_then(|output| output.success("stopping the containers"));
        let after = self.stopped_by(deadline, ended.is_ok(), &goes).await?;
        let left: Vec<Container> = after.iter().filter(|c| c.is_alive()).map(|c| c.container.clone()).collect();
        if !left.is_empty() {
            ended?;
        }
        let stopped = endings(&before, &after, began);
        if left.is_empty() {
            let down = match &staying {
                Some(_) => compose::remove_some(&self.fleet.app, names),
                None => compose::down(&self.fleet.app),
            };
            let down = down.cwd(Path::new("/"));
            self.change(&down, ENGINE_MARGIN * 2).await?.success("removing the stopped containers")?;
        }
        let left: Vec<Container> = self.containers().await?.into_iter().filter(goes).map(|c| c.container).collect();
        if left.is_empty() && !self.fleet.drain.by.facts().survives_restart {
            // It died with the processes: nobody may take the next ones for drained.
            self.record.drained = false;
            self.save()?;
        }
        Ok(Stopped { stopped, left })
    }

    /// A client that ended has not stopped anything: the containers say whether they are.
    async fn stopped_by(
        &self,
        deadline: Instant,
        patient: bool,
        goes: &(impl Fn(&Inspected) -> bool + Sync),
    ) -> Result<Vec<Inspected>, Failure> {
        loop {
            let containers: Vec<Inspected> = self.containers().await?.into_iter().filter(|one| goes(one)).collect();
            if !patient || Instant::now() >= deadline || !containers.iter().any(Inspected::is_alive) {
                return Ok(containers);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Brings a staged release up: nothing is pulled, nothing is built.
    pub(super) async fn start(&mut self, release: &ReleaseId) -> Result<Vec<Container>, Failure> {
        self.hold().await?;
        self.startable(release).await?;
        let point = self.layout.point(Pointer::Incoming, Some(release));
        point.map_err(|error| disk(self.layout.dir(), &error))?;
        self.enter(State::Started(release.clone()))?;
        self.up(release).await?;
        Ok(self.containers().await?.into_iter().map(|c| c.container).collect())
    }

    /// Whether a release lies here whole, with every image.
    pub(super) async fn startable(&self, release: &ReleaseId) -> Result<Manifest, Failure> {
        let manifest = publish::check_files(&self.layout, release)?;
        let ids = publish::image_ids(&manifest).await?;
        match manifest.services.iter().find(|(name, _)| !ids.contains_key(*name)) {
            None => Ok(manifest),
            Some((name, pin)) => Err(Failure::new(
                FailureKind::Missing,
                format!("{name}: the image {} is not on this server", pin.image),
            )),
        }
    }

    pub(super) async fn up(&mut self, release: &ReleaseId) -> Result<(), Failure> {
        let Some(staying) = self.staying().await? else {
            return self.bring_up(release, &compose::up(&self.fleet.app, Path::new(DEFINITION))).await;
        };
        // Its turn comes when everything else runs.
        let manifest = publish::check_files(&self.layout, release)?;
        let names = manifest.services.keys().filter(|name| **name != staying).map(ServiceName::as_str);
        let up = compose::up_some(&self.fleet.app, Path::new(DEFINITION), names);
        self.bring_up(release, &up).await
    }

    pub(super) async fn bring_up(&mut self, release: &ReleaseId, up: &CommandLine) -> Result<(), Failure> {
        let up = up.clone().cwd(&self.layout.release(release));
        let within = patience::up(&self.fleet, self.grace().await?);
        let output = self.change(&up, within).await?;
        let up = output.success(&format!("bringing release {} up", release.short()));
        up.map(drop).map_err(|failure| publish::Secrets::of_release(&self.layout, release).hidden(failure))
    }

    /// What stopping everything may take, one after the other.
    pub(super) async fn grace(&self) -> Result<Duration, Failure> {
        Ok(self.containers().await?.iter().map(|container| container.grace).sum())
    }

    /// Makes a release `current`; the one before becomes `previous`, and old ones go.
    pub(super) async fn switch(&mut self, release: &ReleaseId) -> Result<ReleaseId, Failure> {
        self.hold().await?;
        publish::read_release(&self.layout, release)?;
        let failed = |error: &std::io::Error| disk(self.layout.dir(), error);
        let before = self.layout.pointer(Pointer::Current).map_err(|error| failed(&error))?;
        self.layout.point(Pointer::Current, Some(release)).map_err(|error| failed(&error))?;
        let previous = self.layout.pointer(Pointer::Previous).map_err(|error| failed(&error))?;
        match before.filter(|before| before != release) {
            Some(before) => self.layout.point(Pointer::Previous, Some(&before)),
            // One step back from it is not itself.
            None if previous.as_ref() == Some(release) => self.layout.point(Pointer::Previous, None),
            None => Ok(()),
        }
        .map_err(|error| failed(&error))?;
        self.layout.point(Pointer::Incoming, None).map_err(|error| failed(&error))?;
        self.enter(State::Switched)?;
        let settings = Settings::of(&self.server, &self.fleet).write(&self.layout);
        settings.map_err(|error| disk(&self.layout.settings(), &error))?;
        let gone = publish::prune(&self.layout, self.fleet.release.keep);
        // Nobody waits for it, and what another release or a container uses stays.
        tokio::spawn(publish::forget_images(self.layout.clone(), gone));
        match self.layout.pointer(Pointer::Current) {
            Ok(Some(current)) => Ok(current),
            Ok(None) => Err(Failure::new(FailureKind::Internal, "`current` is not there after it was written")),
            Err(error) => Err(disk(self.layout.dir(), &error)),
        }
    }
}

/// How each container that ran has ended, and how long after the order.
pub(super) fn endings(before: &[Inspected], after: &[Inspected], began: SystemTime) -> Vec<StoppedContainer> {
    let after: BTreeMap<&str, &Inspected> = after.iter().map(|container| (container.id.as_str(), container)).collect();
    let ended = before.iter().filter(|container| container.is_alive()).filter_map(|container| {
        let end = after.get(container.id.as_str()).copied().filter(|end| !end.is_alive());
        Some(StoppedContainer {
            service: container.container.service.clone(),
            name: container.container.name.clone(),
            took: end?.finished.and_then(|at| at.duration_since(began).ok()).unwrap_or_default(),
            exit_code: end?.container.exit_code,
        })
    });
    ended.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::agent::tests::fleet;

    #[test]
    fn a_long_grace_period_is_no_reason_to_cut_a_heal_off() {
        let mut fleet = fleet(Path::new("/x"), Duration::from_secs(10));
        (fleet.drain.serve, fleet.rolling.stable) = (Duration::from_secs(40), Duration::from_secs(20));
        let none = patience::up(&fleet, Duration::ZERO);
        for seconds in [0, 10, 600, 3600] {
            let grace = Duration::from_secs(seconds);
            assert_eq!(patience::up(&fleet, grace), grace + none, "{seconds}");
            let needed = fleet.drain.serve + patience::up(&fleet, grace) + fleet.rolling.stable;
            assert!(patience::turn(&fleet, grace) > needed, "{seconds}");
        }
    }
}
