//! What a gateway has put to sleep, on a server that somebody works on: renewed with all the rest, and off again afterwards.
//!
//! Only what its record still calls asleep is stopped, or what somebody who is dead by now was stopping. Who asked for a backend
//! meanwhile has turned its record to *waking*, and whoever of the two is second sees what the first has written: so nothing is
//! stopped that somebody is about to be sent to.

use super::change::endings;
use super::record::now;
use super::site::{Site, disk};
use crate::fleet::model::{Container, ReleaseId, ServiceName};
use crate::fleet::patience::ENGINE_MARGIN;
use crate::fleet::release::{DEFINITION, Manifest};
use crate::fleet::verify::{excused, service_faults};
use crate::server::compose::{self, Inspected};
use crate::server::layout::asleep::{self, Asleep};
use crate::server::wire::{Failure, Stopped};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

impl Site {
    /// Stops what slept before and was started here, but for what somebody asked for since.
    pub(super) async fn sleep(&mut self) -> Result<Stopped, Failure> {
        self.hold().await?;
        let before = self.containers().await?;
        let grace: Duration = before.iter().map(|container| container.grace).sum();
        let within = grace + ENGINE_MARGIN;
        let time = (now(), now() + within.as_secs());
        let written = asleep::begin_stop(self.layout.dir(), time, &format!("{} ({})", self.run.who, self.run.id));
        let sleeps = written.map_err(|error| self.unread(&error))?;
        let services: BTreeSet<&ServiceName> = sleeps.iter().flat_map(|one| &one.services).collect();
        let own = |one: &Inspected| services.contains(&one.container.service);
        let names: BTreeSet<&str> =
            before.iter().filter(|one| own(one) && one.is_alive()).map(|one| one.container.service.as_str()).collect();
        if names.is_empty() {
            self.end_stop(&sleeps)?;
            return Ok(Stopped { stopped: Vec::new(), left: Vec::new() });
        }
        let began = SystemTime::now();
        let stop = compose::stop_some(&self.fleet.app, names).cwd(Path::new("/"));
        let ended = self.change(&stop, within).await.and_then(|output| output.success("putting back to sleep"));
        // Also where it failed: nobody stops it any more.
        self.end_stop(&sleeps)?;
        ended?;
        let after = self.containers().await?;
        let left: Vec<Container> =
            after.iter().filter(|one| own(one) && one.is_alive()).map(|one| one.container.clone()).collect();
        let ours: Vec<Inspected> = before.into_iter().filter(own).collect();
        Ok(Stopped { stopped: endings(&ours, &after, began), left })
    }

    fn end_stop(&self, sleeps: &[Asleep]) -> Result<(), Failure> {
        let written = asleep::end_stop(self.layout.dir(), sleeps);
        written.map_err(|error| self.unread(&error))
    }

    /// What keeps a record of something that sleeps from being read or written.
    pub(in crate::server) fn unread(&self, error: &io::Error) -> Failure {
        let failure = disk(&asleep::folder(self.layout.dir()), error);
        match error.kind() {
            io::ErrorKind::InvalidData => failure.hint(
                "remove that file once nobody works on this server: what slept is then a service like every other, and falls asleep \
                 again when nobody needs it",
            ),
            _ => failure,
        }
    }

    /// What is to be off when everything is put right; what somebody asked for meanwhile is not among it.
    pub(super) fn to_be_off(&self) -> Result<BTreeSet<ServiceName>, Failure> {
        let off = asleep::to_be_off(self.layout.dir(), now()).map_err(|error| self.unread(&error))?;
        Ok(off.into_iter().flat_map(|one| one.services).collect())
    }

    /// Leaves what sleeps as `release` has it, and off; says what could not be done, which is no reason to keep anything else down.
    pub(super) async fn leave_asleep(
        &mut self,
        release: &ReleaseId,
        manifest: &Manifest,
        ids: &BTreeMap<ServiceName, String>,
    ) -> String {
        match self.renew_asleep(release, manifest, ids).await {
            Ok(()) => String::new(),
            Err(failure) => format!("; what sleeps could not be left so: {failure}"),
        }
    }

    async fn renew_asleep(
        &mut self,
        release: &ReleaseId,
        manifest: &Manifest,
        ids: &BTreeMap<ServiceName, String>,
    ) -> Result<(), Failure> {
        let mut asleep = self.to_be_off()?;
        asleep.retain(|name| manifest.services.contains_key(name));
        if asleep.is_empty() {
            return Ok(());
        }
        let containers: Vec<Container> = self.containers().await?.into_iter().map(|one| one.container).collect();
        let seen = excused(&containers, &asleep);
        if asleep.iter().any(|name| !service_faults(manifest, ids, &seen, name).is_empty()) {
            let names = asleep.iter().map(ServiceName::as_str);
            let create = compose::create_some(&self.fleet.app, Path::new(DEFINITION), names);
            self.bring_up(release, &create).await?;
        }
        self.sleep().await.map(drop)
    }
}
