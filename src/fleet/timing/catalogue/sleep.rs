//! The relations of backends that sleep: a start must fit whoever waits for it, and a sleep must be worth its wake.

use super::super::basis::{Basis, Side};
use super::super::invariants::{Invariant, Reading, Severity, Unit, time};
use super::reading;
use crate::fleet::model::{GatewaySpec, Group, HostSpec, SleepSpec};
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

/// What people bear who come first, and what clients do that give up after a minute.
const BEARABLE: Duration = Duration::from_secs(60);

pub(super) const SILENCE_IS_USE: Invariant = Invariant {
    id: "sleep-outlasts-silence",
    formula: "longest_request <= gateway.host.sleep.quiet + gateway.host.sleep.after",
    severity: Severity::Warning,
    why: "An answer that began and sends nothing for longer than that is no use any more: the stop cuts it off.",
    read: |basis| {
        let mut found = Vec::new();
        for (host, sleep) in sleepers(basis) {
            for service in basis.fleet.services.iter().filter(|service| sleep.services.contains(&service.name)) {
                let why = "deploy.toml does not say how long a request may take (`service.longest_request`)";
                let own = |key: &str| format!("gateway.host.{}.sleep.{key}", host.name);
                let keys = [format!("service.{}.longest_request", service.name), own("quiet"), own("after")];
                let right = time(sleep.quiet.saturating_add(sleep.after));
                let sides =
                    reading(Side::of(service.longest_request, why), right, &keys.each_ref().map(String::as_str));
                found.push(Reading { subject: service.name.to_string(), ..sides });
            }
        }
        found
    },
};

pub(super) const HELD_FITS: Invariant = Invariant {
    id: "held-within-connections",
    formula: "gateway.host.held <= gateway.connections",
    severity: Severity::Warning,
    why: "Whoever waits for a start keeps a connection: where fewer are kept than may wait, waiting ones are closed to make room.",
    read: |basis| {
        let of = |gateway: &GatewaySpec| {
            let most = Side::Known(f64::from(u32::try_from(gateway.connections).unwrap_or(u32::MAX)));
            let one = |host: &HostSpec| {
                let held = Side::Known(f64::from(u32::try_from(host.held).unwrap_or(u32::MAX)));
                let keys = [&format!("gateway.host.{}.held", host.name), "gateway.connections"];
                Reading { subject: host.name.to_string(), unit: Unit::Count, ..reading(held, most.clone(), &keys) }
            };
            gateway.hosts.iter().filter(|host| host.sleep.is_some()).map(one).collect::<Vec<_>>()
        };
        basis.fleet.gateway.iter().flat_map(of).collect()
    },
};

pub(super) const WAKE_AFTER_DEPLOY: Invariant = Invariant {
    id: "wake-after-planned-work",
    formula: "gateway.host.hold / 2 + gateway.host.sleep.start <= gateway.host.hold",
    severity: Severity::Note,
    why: "A wake waits for a deploy for half of the hold; whoever came first is answered only where the other half is enough for a start.",
    read: |basis| {
        each(basis, |host, sleep| (time(host.hold / 2 + sleep.start), time(host.hold), &["hold", "sleep.start"]))
    },
};

pub(super) const HEALTH_IS_ANSWERED_HERE: Invariant = Invariant {
    id: "health-never-wakes",
    formula: "1 <= how many gateway.health have the path of balancer.group.health, where the group's port is the gateway's",
    severity: Severity::Error,
    why: "A health check that is passed on is a request like any other: it wakes what sleeps and keeps it awake, or takes the server out while it starts.",
    read: |basis| {
        if sleepers(basis).next().is_none() {
            return Vec::new();
        }
        let of = |gateway: &GatewaySpec| {
            let here =
                |group: &&Group| gateway.listen.iter().chain(&gateway.listen_tls).any(|at| at.port() == group.port);
            let one = |group: &Group| {
                let count = gateway.health.iter().filter(|health| health.path == group.health.path).count();
                let count = Side::Known(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
                let keys = [&format!("balancer.group.{}.health.path", group.name), "gateway.health"];
                Reading {
                    subject: group.name.to_string(),
                    unit: Unit::Count,
                    ..reading(Side::Known(1.0), count, &keys)
                }
            };
            basis.fleet.balancer.groups.iter().filter(here).map(one).collect::<Vec<_>>()
        };
        basis.fleet.gateway.iter().flat_map(of).collect()
    },
};

pub(super) const BEARABLE_START: Invariant = Invariant {
    id: "wake-is-bearable",
    formula: "gateway.host.sleep.start <= 60s",
    severity: Severity::Note,
    why: "Sleep pays where the wake is borne: people and many clients give up after a minute (`handover sleep report` measures it).",
    read: |basis| each(basis, |_, sleep| (time(sleep.start), time(BEARABLE), &["sleep.start"])),
};

/// Every host that may sleep.
fn sleepers<'a>(basis: &Basis<'a>) -> impl Iterator<Item = (&'a HostSpec, &'a SleepSpec)> {
    let hosts = basis.fleet.gateway.iter().flat_map(|gateway| &gateway.hosts);
    hosts.filter_map(|host| Some((host, host.sleep.as_ref()?)))
}

/// For every host that may sleep; what is read are keys of the host.
fn each(
    basis: &Basis<'_>,
    of: impl Fn(&HostSpec, &SleepSpec) -> (Side, Side, &'static [&'static str]),
) -> Vec<Reading> {
    let one = |(host, sleep): (&HostSpec, &SleepSpec)| {
        let (left, right, keys) = of(host, sleep);
        let sources: Vec<String> = keys.iter().map(|key| format!("gateway.host.{}.{key}", host.name)).collect();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        Reading { subject: host.name.to_string(), ..reading(left, right, &sources) }
    };
    sleepers(basis).map(one).collect()
}

#[cfg(test)]
mod tests {
    use crate::config::{Source, from_sources};
    use crate::fleet::model::Known;
    use crate::fleet::timing::{Basis, findings};
    use std::collections::BTreeMap;

    /// The relations that do not hold, or are not known, of these.
    fn open(gateway: &str, host: &str, service: &str) -> Vec<String> {
        let example = include_str!("../../../../deploy.toml");
        let example =
            example.replace("name   = \"publish-worker\"", &format!("name   = \"publish-worker\"\n{service}"));
        let text = format!(
            "{example}\n[gateway]\nlisten = \"0.0.0.0:8080\"\nmetrics = \"127.0.0.1:9180\"\n{gateway}\n[[gateway.host]]\nname = \"cms.example\"\n\
             backend = \"http://127.0.0.1:9000\"\n{host}\n"
        );
        let fleet = from_sources(&Source::new("deploy.toml", &text), None).unwrap_or_else(|why| panic!("{why}")).fleet;
        let compose = Known::Known(BTreeMap::new());
        let all = findings(&Basis { fleet: &fleet, compose: &compose });
        let new = [
            "sleep-outlasts-silence",
            "held-within-connections",
            "wake-after-planned-work",
            "health-never-wakes",
            "wake-is-bearable",
        ];
        let told = all.into_iter().filter(|one| new.contains(&one.invariant.id) && one.reading.holds() != Some(true));
        told.map(|one| one.name()).collect()
    }

    #[test]
    fn each_relation_of_a_backend_that_sleeps_is_broken_by_its_own_numbers() {
        const HEALTH: &str = "\n[[gateway.health]]\npath = \"/health\"\n";
        let sleep = |more: &str| format!("sleep = {{ services = [\"publish-worker\"], after = \"30m\", {more} }}");
        let few = format!("connections = 16{HEALTH}");
        let longest = "longest_request = \"10s\"";
        assert_eq!(open(HEALTH, &sleep("start = \"20s\""), longest), [""; 0]);
        assert_eq!(open("", "", ""), [""; 0], "nothing sleeps");
        assert_eq!(open("", &sleep("start = \"20s\""), longest), ["health-never-wakes(mythex-api)"]);
        assert_eq!(open(HEALTH, &sleep("start = \"20s\""), ""), ["sleep-outlasts-silence(publish-worker)"]);
        let short = sleep("start = \"20s\", quiet = \"1s\"").replace("30m", "300s");
        assert_eq!(open(HEALTH, &short, "longest_request = \"302s\""), ["sleep-outlasts-silence(publish-worker)"]);
        assert_eq!(open(&few, &sleep("start = \"20s\""), longest), ["held-within-connections(cms.example)"]);
        assert_eq!(open(HEALTH, &sleep("start = \"26s\""), longest), ["wake-after-planned-work(cms.example)"]);
        let long = format!("hold = \"130s\"\n{}", sleep("start = \"61s\""));
        assert_eq!(open(HEALTH, &long, longest), ["wake-is-bearable(cms.example)"]);
    }
}
