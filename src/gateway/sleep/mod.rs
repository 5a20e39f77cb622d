//! A backend that nobody needs is off: decided by a plain machine, carried out through the Docker Engine API.
//!
//! Each host that may sleep has a keeper, a task that does what its machine says and tells it what became of it. What others on
//! the server must know stands on disk before it is done (`server::layout::asleep`). Nothing here knows a request.

pub(super) mod ask;
mod diary;
mod docker;
mod keeper;
mod lock;
pub(super) mod machine;
mod order;
mod report;
mod work;

pub use ask::{Ask, FORMAT, HostSays, Says};
pub use diary::{Entry, What, entries};
pub(super) use keeper::keep;
pub use lock::ServerLock;
pub use report::{Gate, Report, Verdict, Waking};

use crate::fleet::model::{HostSpec, SleepPlace, SleepSpec};
use crate::server::layout::asleep::{self, Off};
use machine::{Rules, Sleep, Written};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

fn rules(spec: &SleepSpec, host: &HostSpec) -> Rules {
    Rules {
        after: spec.after,
        quiet: spec.quiet,
        start: spec.start,
        awake: spec.awake,
        tries: spec.tries,
        again: spec.again,
        patience: host.hold / 2,
    }
}

/// The machine of a host, beginning with what was written down; `None` where it never sleeps. A record that is broken is its own
/// gateway's to make true again: by waking what it may have been about, which costs memory and loses nothing.
///
/// # Errors
/// When what was written down cannot be read: whether it sleeps is then unknown.
pub(super) fn begin(place: Option<&SleepPlace>, host: &HostSpec) -> Result<Option<Sleep>, String> {
    let (Some(place), Some(spec)) = (place, &host.sleep) else { return Ok(None) };
    let written = match asleep::read(Path::new(&place.dir), host.name.as_str()).map(|found| found.map(|one| one.state))
    {
        Ok(None) => Written::Nothing,
        Ok(Some(Off::Stopping)) => Written::Stopping,
        Ok(Some(Off::Asleep)) => Written::Asleep,
        Ok(Some(Off::Waking)) => Written::Waking,
        Err(error) if error.kind() == ErrorKind::InvalidData => Written::Waking,
        Err(error) => return Err(format!("gateway.host.{}: {error}", host.name)),
    };
    Ok(Some(Sleep::new(rules(spec, host), written, Instant::now())))
}
