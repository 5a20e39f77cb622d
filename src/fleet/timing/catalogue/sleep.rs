//! The relations of backends that sleep: a start must fit whoever waits for it, and a sleep must be worth its wake.

use super::super::basis::{Basis, Side};
use super::super::invariants::{Invariant, Reading, Severity, time};
use super::reading;
use crate::fleet::model::{HostSpec, SleepSpec};
use std::time::Duration;

/// How long the shipped alert rules let a wake last (`WakeStuck`).
pub(in crate::fleet::timing) const WAKE_STUCK: Duration = Duration::from_secs(120);

pub(super) const START_WITHIN_HOLD: Invariant = Invariant {
    id: "wake-within-hold",
    formula: "gateway.host.sleep.start <= 0.8 x gateway.host.hold",
    severity: Severity::Warning,
    why: "Whoever wakes a backend waits for its start and for his answer; a hold that ends first turns him away while it comes up.",
    read: |basis| {
        each(basis, |host, sleep| (time(sleep.start), time(host.hold.mul_f64(0.8)), &["sleep.start", "hold"]))
    },
};

pub(super) const WORTH_IT: Invariant = Invariant {
    id: "sleep-worth-its-wake",
    formula: "10 x gateway.host.sleep.start <= gateway.host.sleep.after",
    severity: Severity::Warning,
    why: "A quiet window that is short beside the start puts people through a wake after every cup of coffee.",
    read: |basis| {
        each(basis, |_, sleep| {
            (time(sleep.start.saturating_mul(10)), time(sleep.after), &["sleep.start", "sleep.after"])
        })
    },
};

pub(super) const AWAKE_COVERS_START: Invariant = Invariant {
    id: "awake-covers-start",
    formula: "gateway.host.sleep.start <= gateway.host.sleep.awake",
    severity: Severity::Warning,
    why: "A backend that ends sooner after a wake than a start takes is in a crash loop, and counts as one only within `awake`.",
    read: |basis| each(basis, |_, sleep| (time(sleep.start), time(sleep.awake), &["sleep.start", "sleep.awake"])),
};

pub(super) const CIRCUIT_OUTLASTS_START: Invariant = Invariant {
    id: "circuit-outlasts-start",
    formula: "gateway.host.sleep.start <= gateway.host.sleep.again",
    severity: Severity::Warning,
    why: "A backend that cannot start is left alone for longer than one start takes, or it never is.",
    read: |basis| each(basis, |_, sleep| (time(sleep.start), time(sleep.again), &["sleep.start", "sleep.again"])),
};

pub(super) const START_WITHIN_ALARM: Invariant = Invariant {
    id: "wake-before-alarm",
    formula: "gateway.host.sleep.start < 120s (the alert rule WakeStuck)",
    severity: Severity::Warning,
    why: "An alarm that comes while a start may still succeed teaches people to ignore it.",
    read: |basis| {
        let one = each(basis, |_, sleep| (time(sleep.start), time(WAKE_STUCK), &["sleep.start"]));
        one.into_iter().map(|reading| Reading { equal: false, ..reading }).collect()
    },
};

pub(super) const START_WITHIN_WATCHDOG: Invariant = Invariant {
    id: "wake-within-watchdog",
    formula: "gateway.host.sleep.start <= watchdog.strikes x watchdog.interval",
    severity: Severity::Warning,
    why: "A watchdog that loses patience while a backend wakes restarts what was only starting.",
    read: |basis| {
        let watchdog = &basis.fleet.watchdog;
        let patience = watchdog.interval.saturating_mul(watchdog.strikes);
        let mut found = each(basis, |_, sleep| (time(sleep.start), time(patience), &["sleep.start"]));
        for reading in &mut found {
            reading.sources.extend(["watchdog.strikes".to_owned(), "watchdog.interval".to_owned()]);
        }
        found
    },
};

/// For every host that may sleep; what is read are keys of the host.
fn each(
    basis: &Basis<'_>,
    of: impl Fn(&HostSpec, &SleepSpec) -> (Side, Side, &'static [&'static str]),
) -> Vec<Reading> {
    let hosts = basis.fleet.gateway.iter().flat_map(|gateway| &gateway.hosts);
    let one = |host: &HostSpec| {
        let (left, right, keys) = of(host, host.sleep.as_ref()?);
        let sources: Vec<String> = keys.iter().map(|key| format!("gateway.host.{}.{key}", host.name)).collect();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        Some(Reading { subject: host.name.to_string(), ..reading(left, right, &sources) })
    };
    hosts.filter_map(one).collect()
}
