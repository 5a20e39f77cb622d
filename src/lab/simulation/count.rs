//! The count of a simulated server's gateway: it begins anew whenever its process does.

use crate::clock::Stamp;
use crate::fleet::nodes::{Asked, Counts, NodesSeen, Origin, Told};
use std::net::IpAddr;
use std::time::Duration;

/// Who asked, since when.
#[derive(Debug, Default)]
pub(super) struct Count {
    counts: Counts,
    since: Option<Stamp>,
}

impl Count {
    fn up(&self, now: Stamp) -> Duration {
        now.since(self.since.unwrap_or_default())
    }

    /// A check was answered by a process that began at `started`.
    pub(super) fn told(
        &mut self,
        address: IpAddr,
        path: &str,
        port: u16,
        told: Told,
        now: Stamp,
        started: Option<Stamp>,
    ) {
        if self.since != started {
            *self = Self { counts: Counts::default(), since: started };
        }
        let asked = Asked { address, origin: Origin::Machine, path, port, agent: "" };
        self.counts.told(asked, told, self.up(now));
    }

    pub(super) fn real(&mut self, address: IpAddr, now: Stamp) {
        let up = self.up(now);
        self.counts.real(address, up);
    }

    pub(super) fn seen(&self, now: Stamp) -> NodesSeen {
        self.counts.seen(self.up(now), |_| Origin::Machine)
    }
}
