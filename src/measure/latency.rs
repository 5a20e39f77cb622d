//! Durations gathered into percentiles. The only place that knows hdrhistogram.
//!
//! Nothing is corrected afterwards: every latency counts from the moment its request was due, so that a request which had
//! to wait for its turn shows what a user would have waited.

use crate::event::{Latency, Punctuality};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Longer than any time limit of a request.
const LONGEST_MICROS: u64 = 3_600_000_000;

/// Durations, to the microsecond and a thousandth of themselves.
#[derive(Debug)]
pub(super) struct Durations(Option<Histogram<u64>>);

impl Default for Durations {
    fn default() -> Self {
        // These bounds are ones that it takes.
        Self(Histogram::new_with_bounds(1, LONGEST_MICROS, 3).ok())
    }
}

impl Durations {
    pub(super) fn add(&mut self, duration: Duration) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(u64::try_from(duration.as_micros()).unwrap_or(LONGEST_MICROS));
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(Histogram::reset);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// This share of them was not longer; `None` where there are none.
    pub(super) fn share(&self, share: f64) -> Option<f64> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        // The upper end of a bucket may lie above what was ever seen.
        Some(in_seconds(histogram.value_at_quantile(share).min(histogram.max())))
    }

    fn max(&self) -> Option<f64> {
        self.0.as_ref().filter(|histogram| !histogram.is_empty()).map(|histogram| in_seconds(histogram.max()))
    }

    pub(super) fn latency(&self) -> Latency {
        Latency {
            requests: self.count(),
            p50_seconds: self.share(0.5),
            p90_seconds: self.share(0.9),
            p99_seconds: self.share(0.99),
            p999_seconds: self.share(0.999),
            max_seconds: self.max(),
        }
    }

    pub(super) fn punctuality(&self, late_requests: u64, not_sent: u64) -> Punctuality {
        Punctuality {
            late_p50_seconds: self.share(0.5),
            late_p99_seconds: self.share(0.99),
            late_max_seconds: self.max(),
            late_requests,
            not_sent,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour has few microseconds")]
fn in_seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_freeze_are_those_of_pen_and_paper() {
        // 100 requests a second for 10 s, answered at once, but for one second that was frozen: the request that was due
        // t into the freeze waits 1 s - t.
        let mut all = Durations::default();
        (0..900).for_each(|_| all.add(Duration::from_millis(1)));
        (0..100).for_each(|n| all.add(Duration::from_millis(1000 - 10 * n)));
        let latency = all.latency();
        let near =
            |value: Option<f64>, wanted: f64| value.is_some_and(|value| (value - wanted).abs() <= wanted * 0.002);
        assert!(near(latency.p50_seconds, 0.001), "{latency:?}");
        assert!(near(latency.p90_seconds, 0.001), "the 900th of 1000: {latency:?}");
        assert!(near(latency.p99_seconds, 0.9), "the 990th: {latency:?}");
        assert!(near(latency.p999_seconds, 0.99), "the 999th: {latency:?}");
        assert!(near(latency.max_seconds, 1.0), "{latency:?}");
        assert_eq!(latency.requests, 1000);
    }

    #[test]
    fn nothing_has_no_percentile_and_an_age_is_held() {
        let mut durations = Durations::default();
        assert_eq!(durations.latency(), Latency::default());
        durations.add(Duration::from_secs(100_000));
        assert!(durations.share(0.5).is_some_and(|value| (value - 3600.0).abs() < 4.0));
        durations.clear();
        assert_eq!(durations.count(), 0);
    }
}
