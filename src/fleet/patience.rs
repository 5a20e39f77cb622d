//! How long what an agent does to containers may take at most: whoever waits for it, or may end it, reckons with the same numbers.

use super::model::Fleet;
use std::time::Duration;

/// Beyond what the containers themselves may take.
pub const ENGINE_MARGIN: Duration = Duration::from_secs(60);
/// Making containers of images that are there; `depends_on` may wait for health.
const UP_AT_LEAST: Duration = Duration::from_secs(120);
/// A team's own command.
pub const COMMAND: Duration = Duration::from_secs(60);

/// The longest time from start to verified of all services.
#[must_use]
pub fn longest_start(fleet: &Fleet) -> Duration {
    fleet.services.iter().map(|service| service.deadline).max().unwrap_or_default()
}

/// Bringing containers up, where others with these grace periods, together, are stopped first.
#[must_use]
pub fn up(fleet: &Fleet, grace: Duration) -> Duration {
    grace + UP_AT_LEAST.max(longest_start(fleet) + ENGINE_MARGIN)
}

/// One turn of the watchdog: rotation is left, containers are made anew and verified, and the team is told.
#[must_use]
pub fn turn(fleet: &Fleet, grace: Duration) -> Duration {
    let verified = longest_start(fleet) + fleet.rolling.stable;
    fleet.drain.serve + up(fleet, grace) + verified + ENGINE_MARGIN + COMMAND * 2
}
