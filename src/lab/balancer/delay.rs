//! How late the lab's own work began: a lab that cannot keep its own times proves nothing.

use super::lock;
use std::sync::Mutex;
use std::time::Duration;

/// Kept at the most; a run of a day at full load stays below it.
const KEPT: usize = 1 << 20;

/// How late, on the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// Of a hundred checks, one began later than this.
    pub p99: Duration,
    /// The latest of all.
    pub max: Duration,
    /// Out of so many.
    pub count: usize,
}

/// Every check's delay, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Delays(Mutex<Vec<u32>>);

impl Delays {
    pub(super) fn note(&self, late: Duration) {
        let mut delays = lock(&self.0);
        if delays.len() < KEPT {
            delays.push(u32::try_from(late.as_micros()).unwrap_or(u32::MAX));
        }
    }

    pub(super) fn summary(&self) -> Delay {
        let mut sorted = lock(&self.0).clone();
        sorted.sort_unstable();
        let micros = |at: Option<&u32>| Duration::from_micros(at.copied().map_or(0, u64::from));
        let p99 = sorted.len().saturating_sub(sorted.len() / 100 + 1);
        Delay { p99: micros(sorted.get(p99)), max: micros(sorted.last()), count: sorted.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_hundred_is_later_than_the_p99() {
        let delays = Delays::default();
        assert_eq!(delays.summary(), Delay::default());
        (1..=200).for_each(|millis| delays.note(Duration::from_millis(millis)));
        let delay = delays.summary();
        assert_eq!(delay.p99, Duration::from_millis(198));
        assert_eq!(delay.max, Duration::from_millis(200));
    }
}
