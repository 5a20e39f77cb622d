//! The hold on purpose: while a file is there every request waits at the gateway, whatever its backend may say, so that what is
//! behind it can be changed. Who made the file, and what is done meanwhile, is not known here.

use super::site::Shared;
use crate::fleet::held::HeldSeen;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Since when everything is held on purpose, and who says so.
#[derive(Debug)]
pub(super) struct Closing {
    since: Mutex<Option<Instant>>,
    /// Every process in a container has the same number; none begins in the same nanosecond as another.
    process: String,
}

impl Closing {
    pub(super) fn new() -> Self {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { since: Mutex::new(None), process: format!("{}-{}", std::process::id(), began.as_nanos()) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Shared {
    /// Looks whether the hold file is there, and closes or opens every host.
    pub(super) fn look_at_hold_file(&self) {
        let site = self.site();
        // What cannot be looked at is not there, as with drain files.
        let there = site.spec.hold_file.as_ref().is_some_and(|path| Path::new(path).exists());
        let mut since = self.closing.since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = there.then(|| since.unwrap_or_else(Instant::now));
        // Under the same lock, so that two who look agree; again each time, since a reload may have brought new hosts.
        site.standings().for_each(|standing| standing.close(there));
    }

    /// Whether so long that whoever arrived first was sent away: then the balancer is better told so.
    pub(super) fn holds_too_long(&self) -> bool {
        let since = *self.closing.since.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = || self.site().standings().map(|standing| standing.host().spec.hold).max();
        since.is_some_and(|since| since.elapsed() > longest().unwrap_or(Duration::MAX))
    }

    /// What is said to whoever changes what is behind the gateway.
    pub(super) fn held_seen(&self) -> HeldSeen {
        self.look_at_hold_file();
        let site = self.site();
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        HeldSeen {
            holding: self.closing.is_closed(),
            forwarded: site.standings().map(|standing| standing.forwarded() as u64).sum(),
            tunnels: site.standings().map(|standing| count(standing.metrics.tunnels.get())).sum(),
            waiting: count(self.metrics.held.get()),
            process: self.closing.process.clone(),
            hold: site.standings().map(|standing| standing.host().spec.hold).min().unwrap_or(Duration::MAX),
            file: site.spec.hold_file.clone(),
            hands_over: site.spec.control.is_some(),
        }
    }
}
