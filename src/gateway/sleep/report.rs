//! Whether it pays: every wake with its parts, what sleeping saved, and whether every start was quick enough for long enough.
//!
//! Pure: it reads what was written down, and the time is an argument.

use super::diary::{Entry, What};
use serde::Serialize;
use std::time::Duration;

const DAY: f64 = 86_400.0;

/// What a host's log says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// When the log begins, seconds since the epoch.
    pub since: Option<f64>,
    /// Every wake, the oldest first.
    pub wakes: Vec<Waking>,
    /// How many wakes failed.
    pub failed: usize,
    /// How long half of the wakes took at most, and so on, in seconds.
    pub p50: Option<f64>,
    /// The same for 95 in a hundred.
    pub p95: Option<f64>,
    /// The same for 99 in a hundred.
    pub p99: Option<f64>,
    /// The slowest.
    pub slowest: Option<f64>,
    /// How long it slept, in hours.
    pub hours_asleep: f64,
    /// The memory that nobody had to keep meanwhile, in MiB times hours.
    pub mib_hours: f64,
    /// Whether every start was quick enough.
    pub gate: Gate,
}

/// One wake.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Waking {
    /// When it was over, seconds since the epoch.
    pub at: f64,
    /// From the first who asked until his answer began, in seconds.
    pub seconds: f64,
    /// Until the call.
    pub decision: f64,
    /// Until the containers ran.
    pub container: f64,
    /// Until they accepted.
    pub accept: f64,
    /// Until the first answer began.
    pub answer: Option<f64>,
}

/// Whether every start of so many days was quick enough.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gate {
    /// How quick, in seconds.
    pub within: f64,
    /// How many days.
    pub days: f64,
    /// What it came to.
    pub verdict: Verdict,
    /// Why, as a sentence.
    pub why: String,
}

/// What it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every start was.
    Passed,
    /// One was not.
    Failed,
    /// Nobody can say yet.
    TooEarly,
}

impl Report {
    /// What the entries say; `now` in seconds since the epoch.
    #[must_use]
    pub fn of(entries: &[Entry], now: f64, within: Duration, days: u32) -> Self {
        let wakes: Vec<Waking> = entries.iter().filter_map(waking).collect();
        let mut sorted: Vec<f64> = wakes.iter().map(|wake| wake.seconds).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = |of: f64| {
            let at = ((of * sorted.len() as f64).ceil() as usize).saturating_sub(1);
            sorted.get(at).copied()
        };
        let (hours_asleep, mib_hours) = saved(entries, now);
        Self {
            since: entries.first().map(|entry| entry.at),
            failed: entries.iter().filter(|entry| matches!(entry.what, What::WakeFailed { .. })).count(),
            p50: rank(0.5),
            p95: rank(0.95),
            p99: rank(0.99),
            slowest: sorted.last().copied(),
            hours_asleep,
            mib_hours,
            gate: gate(entries, now, within.as_secs_f64(), f64::from(days)),
            wakes,
        }
    }
}

fn waking(entry: &Entry) -> Option<Waking> {
    let What::Woke { decision, container, accept, answer } = entry.what else { return None };
    let seconds = entry.what.whole()?;
    Some(Waking { at: entry.at, seconds, decision, container, accept, answer })
}

/// Hours asleep, and memory times hours.
fn saved(entries: &[Entry], now: f64) -> (f64, f64) {
    let (mut hours, mut mib_hours) = (0.0, 0.0);
    let mut asleep: Option<(f64, f64)> = None;
    let mut ends = |asleep: &mut Option<(f64, f64)>, at: f64| {
        if let Some((since, mib)) = asleep.take() {
            let slept = (at - since).max(0.0) / 3600.0;
            hours += slept;
            mib_hours += slept * mib;
        }
    };
    for entry in entries {
        match &entry.what {
            What::Slept { memory_bytes, .. } => asleep = Some((entry.at, *memory_bytes as f64 / 1_048_576.0)),
            What::Woke { .. } => ends(&mut asleep, entry.at - entry.what.whole().unwrap_or_default()),
            What::WakeFailed { .. } | What::Adopted | What::Gone => ends(&mut asleep, entry.at),
            What::NotSlept { .. } => {}
        }
    }
    ends(&mut asleep, now);
    (hours, mib_hours)
}

fn gate(entries: &[Entry], now: f64, within: f64, days: f64) -> Gate {
    let from = now - days * DAY;
    let of = || entries.iter().filter(|entry| entry.at >= from);
    let failed = of().filter(|entry| matches!(entry.what, What::WakeFailed { .. })).count();
    let wakes: Vec<f64> = of().filter_map(|entry| entry.what.whole()).collect();
    let slow = wakes.iter().filter(|seconds| **seconds > within).count();
    let known = entries.first().map_or(0.0, |entry| (now - entry.at) / DAY);
    let (verdict, why) = if failed + slow > 0 {
        let total = wakes.len() + failed;
        (
            Verdict::Failed,
            format!("of {total} starts in {days} days {slow} took longer than {within}s and {failed} failed"),
        )
    } else if known < days {
        (Verdict::TooEarly, format!("the log knows {known:.1} of {days} days"))
    } else if wakes.is_empty() {
        (Verdict::TooEarly, format!("nobody woke it in {days} days"))
    } else {
        (Verdict::Passed, format!("all {} starts in {days} days took {within}s at most", wakes.len()))
    };
    Gate { within, days, verdict, why }
}

#[cfg(test)]
mod tests {
    use super::super::diary::FORMAT;
    use super::*;

    fn entry(at: f64, what: What) -> Entry {
        Entry { format: FORMAT, at, what }
    }

    fn woke(accept: f64) -> What {
        What::Woke { decision: 0.0, container: 0.5, accept, answer: Some(0.5) }
    }

    fn slept(mib: u64) -> What {
        What::Slept { memory_bytes: mib * 1_048_576, killed: Vec::new() }
    }

    fn report(entries: &[Entry], now: f64) -> Report {
        Report::of(entries, now, Duration::from_secs(60), 7)
    }

    #[test]
    fn every_start_counts_for_the_gate_and_only_after_so_many_days() {
        let week = 7.0 * DAY;
        let mut log = vec![entry(0.0, slept(310)), entry(100.0, woke(11.0))];
        assert_eq!(report(&log, 3600.0).gate.verdict, Verdict::TooEarly);
        assert_eq!(report(&log, week + 50.0).gate.verdict, Verdict::Passed);
        assert_eq!(report(&log, week + 200.0).gate.verdict, Verdict::TooEarly, "nobody came in the last seven days");
        log.push(entry(200.0, What::WakeFailed { why: "no such container".to_owned() }));
        let failed = report(&log, week + 50.0).gate;
        assert_eq!(failed.verdict, Verdict::Failed);
        assert_eq!(failed.why, "of 2 starts in 7 days 0 took longer than 60s and 1 failed");
        let slow = [entry(0.0, woke(59.5))];
        assert_eq!(report(&slow, 10.0).gate.verdict, Verdict::Failed);
        assert_eq!(report(&[], 10.0).gate.verdict, Verdict::TooEarly);
    }

    #[test]
    fn what_was_saved_is_memory_times_the_time_asleep() {
        let hour = 3600.0;
        let log = [
            entry(0.0, slept(310)),
            entry(10.0 * hour + 12.0, woke(11.0)),
            entry(12.0 * hour, slept(100)),
            entry(13.0 * hour, What::Adopted),
            entry(14.0 * hour, What::NotSlept { why: "x".to_owned() }),
            entry(20.0 * hour, slept(310)),
        ];
        let found = report(&log, 21.0 * hour);
        assert_eq!((found.hours_asleep, found.mib_hours), (12.0, 310.0 * 11.0 + 100.0));
        assert_eq!((found.wakes.len(), found.wakes[0].seconds, found.failed), (1, 12.0, 0));
    }

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let log: Vec<Entry> = (1..=100).map(|n| entry(f64::from(n), woke(f64::from(n) - 1.0))).collect();
        let found = report(&log, 200.0);
        assert_eq!((found.p50, found.p95, found.p99, found.slowest), (Some(50.0), Some(95.0), Some(99.0), Some(100.0)));
    }
}
