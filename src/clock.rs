//! Fleet time: the only place that turns it into a wait. It runs faster than the wall clock by a stated speed.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};
use std::time::Duration;
use tokio::time::Instant;

/// A moment of a run: fleet time since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(Duration);

impl Stamp {
    /// The beginning.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment at which so much has passed.
    #[must_use]
    pub fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// How much has passed since the beginning.
    #[must_use]
    pub fn since_start(self) -> Duration {
        self.0
    }

    /// How much has passed since an earlier moment; zero where that lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Stamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl Sub<Duration> for Stamp {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

/// A running clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    speed: f64,
}

impl Clock {
    /// Starts a clock at wall speed.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at_speed(1.0)
    }

    /// Starts a clock that runs `speed` times as fast as the wall clock.
    #[must_use]
    pub fn start_at_speed(speed: f64) -> Self {
        Self { start: Instant::now(), speed }
    }

    /// The speed.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// The moment that it is.
    #[must_use]
    pub fn now(&self) -> Stamp {
        Stamp(self.start.elapsed().mul_f64(self.speed))
    }

    /// How long a fleet-time duration lasts on the wall.
    #[must_use]
    pub fn wall(&self, fleet: Duration) -> Duration {
        fleet.div_f64(self.speed)
    }

    /// How much fleet time a wall duration is.
    #[must_use]
    pub fn fleet(&self, wall: Duration) -> Duration {
        wall.mul_f64(self.speed)
    }

    /// The wall instant of a moment.
    #[must_use]
    pub fn instant(&self, stamp: Stamp) -> Instant {
        self.start + self.wall(stamp.0)
    }

    /// Waits for a fleet-time duration.
    pub async fn sleep(&self, fleet: Duration) {
        tokio::time::sleep(self.wall(fleet)).await;
    }

    /// Waits until a moment.
    pub async fn sleep_until(&self, stamp: Stamp) {
        tokio::time::sleep_until(self.instant(stamp)).await;
    }
}
