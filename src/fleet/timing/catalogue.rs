//! The relations themselves. One entry a relation; facts name their source.

mod held;
mod nodes;
mod sleep;
mod tenants;

pub(super) use tenants::OfWake;
pub use tenants::TENANTS;

use super::basis::{Basis, Side};
use super::invariants::{Invariant, Reading, Severity, Unit, count, time};
use super::{in_bound, out_bound, out_nominal, settle};
use crate::fleet::model::{BalancerKind, DrainBy, GatewaySpec, Group, HostSpec, ServerName, Service};
use crate::fleet::plan::safety::needed;
use Severity::{Error, Note, Warning};
use std::collections::BTreeSet;
use std::time::Duration;

/// One question to the API at its slowest, credentials included: our own limit of it (`adapters::alb`); the SDK's retries are off.
pub const API_AT_ITS_SLOWEST: Duration = Duration::from_secs(15);

/// Docker waits 100 ms before the first restart and doubles that each time (Docker reference: restart policies): after this the
/// third has come.
const THREE_RESTARTS: Duration = Duration::from_millis(700);
/// A heartbeat may be so late without anybody being dead: two lost packets, sent again after a second each.
const SLOW_NETWORK: Duration = Duration::from_secs(2);
/// A backend that is just back needs a moment for its answer.
const TO_ANSWER: Duration = Duration::from_secs(5);
/// A health checker's nodes that traffic may come through: one in each of three zones.
const NODES: usize = 3;

/// Every relation, in the order in which they are told.
pub static INVARIANTS: &[Invariant] = &[
    Invariant {
        id: "serve-covers-out",
        formula: "unhealthy x interval <= drain.serve",
        severity: Error,
        why: "A server that stops serving before the balancer has had time to notice loses what is still sent to it.",
        read: |basis| {
            groups(basis, |group| {
                let left = time(out_nominal(&group.health.settings));
                reading(
                    left,
                    time(basis.fleet.drain.serve),
                    &[&in_health(group, "unhealthy"), &in_health(group, "interval"), "drain.serve"],
                )
            })
            .filter(|_| flips(basis))
            .collect()
        },
    },
    Invariant {
        id: "out-within-max",
        formula: "(unhealthy + 1) x interval + timeout + drain.margin <= drain.max",
        severity: Error,
        why: "A deploy that gives up before the balancer's slowest node has let go gives up on servers that were fine.",
        read: |basis| {
            let drain = &basis.fleet.drain;
            leaving(basis, |group| {
                let left = time(out_bound(&group.health.settings, drain.margin));
                reading(
                    left,
                    time(drain.max),
                    &[
                        &in_health(group, "unhealthy"),
                        &in_health(group, "interval"),
                        &in_health(group, "timeout"),
                        "drain.margin",
                        "drain.max",
                    ],
                )
            })
            .filter(|_| flips(basis))
            .collect()
        },
    },
    Invariant {
        id: "api-within-max",
        formula: "unhealthy x interval + one question to the API at its slowest (15s) <= drain.max",
        severity: Error,
        why: "One question that hangs to its limit must leave time for another before the deploy gives up; the SDK's own retries are off, so each question is ours.",
        read: |basis| {
            leaving(basis, |group| {
                let left = time(out_nominal(&group.health.settings) + API_AT_ITS_SLOWEST);
                reading(
                    left,
                    time(basis.fleet.drain.max),
                    &[&in_health(group, "unhealthy"), &in_health(group, "interval"), "drain.max"],
                )
            })
            .filter(|_| basis.fleet.balancer.kind == BalancerKind::Alb)
            .collect()
        },
    },
    Invariant {
        id: "interval-above-timeout",
        formula: "timeout < interval",
        severity: Error,
        why: "A check that is still waited for when the next one begins is counted by nobody the same way; AWS refuses it.",
        read: |basis| {
            groups(basis, |group| Reading {
                equal: false,
                ..reading(
                    time(group.health.settings.timeout),
                    time(group.health.settings.interval),
                    &[&in_health(group, "timeout"), &in_health(group, "interval")],
                )
            })
            .collect()
        },
    },
    Invariant {
        id: "shutdown-within-grace",
        formula: "shutdown <= stop_grace_period",
        severity: Error,
        why: "What has not finished when its grace period ends is killed with the requests that it still answers.",
        read: |basis| {
            let of = |service: &Service| {
                let keys = [in_service(service, "shutdown"), format!("compose.{}.stop_grace_period", service.name)];
                Reading {
                    subject: service.name.to_string(),
                    ..reading(time(service.shutdown), basis.grace(&service.name), &keys.each_ref().map(String::as_str))
                }
            };
            basis.fleet.services.iter().map(of).collect()
        },
    },
    Invariant {
        id: "sigterm-drain-within-grace",
        formula: "max(drain.serve, (unhealthy + 1) x interval + timeout + margin + settle) + shutdown <= stop_grace_period",
        severity: Error,
        why: "An app that drains when it is told to stop must be let go by every node before it is killed.",
        read: |basis| {
            let drain = &basis.fleet.drain;
            let mut readings = Vec::new();
            for service in basis.fleet.services.iter().filter(|_| drain.by == DrainBy::Sigterm) {
                let own = basis.fleet.balancer.groups.iter().filter(|group| service.groups.contains(&group.name));
                let whole = own
                    .map(|group| {
                        out_bound(&group.health.settings, drain.margin) + settle(&group.health.settings, drain.margin)
                    })
                    .max();
                let Some(whole) = whole else { continue };
                let left = time(whole.max(drain.serve) + service.shutdown);
                let keys = [
                    in_service(service, "shutdown"),
                    "drain.serve".into(),
                    "drain.margin".into(),
                    format!("compose.{}.stop_grace_period", service.name),
                ];
                readings.push(Reading {
                    subject: service.name.to_string(),
                    ..reading(left, basis.grace(&service.name), &keys.each_ref().map(String::as_str))
                });
            }
            readings
        },
    },
    Invariant {
        id: "capacity",
        formula: "batch + max(fail_open_count, fail_open_percent of the targets, min_healthy, 1) <= targets in every counting scope",
        severity: Error,
        why: "With fewer healthy targets an ALB routes to all of them, the drained one included, and HAProxy to none.",
        read: |basis| {
            let fleet = basis.fleet;
            leaving(basis, |group| {
                let registered = basis.smallest_scope(group);
                let stay = needed(
                    &group.attributes(),
                    u32::try_from(registered).unwrap_or(u32::MAX),
                    fleet.rolling.min_healthy,
                ) as usize;
                // A batch is spread over zones, so that a scope of one zone loses its share of it.
                let scopes = if group.cross_zone { 1 } else { zones(basis, group).max(1) };
                let leave = fleet.rolling.batch.of(fleet.servers.len()).div_ceil(scopes);
                let sides = reading(
                    count(leave.saturating_add(stay)),
                    count(registered),
                    &[
                        "rolling.batch",
                        "rolling.min_healthy",
                        &in_group(group, "fail_open_count"),
                        &in_group(group, "fail_open_percent"),
                    ],
                );
                Reading { unit: Unit::Targets, ..sides }
            })
            .collect()
        },
    },
    Invariant {
        id: "return-within-back",
        formula: "(healthy + 1) x interval + timeout + drain.margin <= drain.back",
        severity: Error,
        why: "A server that is out longer than anybody planned for is a server less when the next one goes; what is not back by then is rolled back.",
        read: |basis| {
            let drain = &basis.fleet.drain;
            leaving(basis, |group| {
                let left = time(in_bound(&group.health.settings, drain.margin));
                let right =
                    Side::of(drain.back, "deploy.toml does not say how soon a server must be back (`drain.back`)");
                reading(
                    left,
                    right,
                    &[
                        &in_health(group, "healthy"),
                        &in_health(group, "interval"),
                        &in_health(group, "timeout"),
                        "drain.margin",
                        "drain.back",
                    ],
                )
            })
            .collect()
        },
    },
    Invariant {
        id: "outage-within-wait",
        formula: "drain + shutdown + deadline + stable + return <= lock.wait",
        severity: Warning,
        why: "Whoever waits for the server lock (bootstrap, watchdog, the next deploy) must outwait one server's whole turn.",
        read: |basis| {
            let fleet = basis.fleet;
            let bound =
                |of: &dyn Fn(&Group) -> Duration| fleet.balancer.groups.iter().map(of).max().unwrap_or_default();
            let out = bound(&|g| {
                out_bound(&g.health.settings, fleet.drain.margin) + settle(&g.health.settings, fleet.drain.margin)
            });
            let back = bound(&|g| {
                in_bound(&g.health.settings, fleet.drain.margin)
                    + settle(&g.health.settings, fleet.drain.margin).max(g.slow_start)
            });
            let shutdown: Duration = fleet.services.iter().map(|s| s.shutdown).max().unwrap_or_default();
            let deadline = fleet.services.iter().map(|s| s.deadline).max().unwrap_or_default();
            let turn = out.max(fleet.drain.serve) + shutdown + deadline + fleet.rolling.stable + back;
            let services = fleet.services.iter().flat_map(|s| [in_service(s, "shutdown"), in_service(s, "deadline")]);
            let slow = fleet.balancer.groups.iter().map(|group| in_group(group, "slow_start"));
            let keys: Vec<String> = services
                .chain(slow)
                .chain(["drain.serve", "drain.margin", "rolling.stable", "lock.wait"].map(String::from))
                .collect();
            vec![reading(time(turn), time(fleet.lock.wait), &keys.iter().map(String::as_str).collect::<Vec<_>>())]
        },
    },
    Invariant {
        id: "lease-within-wait",
        formula: "2 x lock.lease <= lock.wait",
        severity: Warning,
        why: "Who waits for the lock of a deploy that died must still wait when its lease ends and its server has been put right.",
        read: |basis| {
            let lock = &basis.fleet.lock;
            vec![reading(time(lock.lease * 2), time(lock.wait), &["lock.lease", "lock.wait"])]
        },
    },
    Invariant {
        id: "heartbeats-within-lease",
        formula: "one heartbeat (lock.lease / 3) and a slow network (2s) <= lock.lease",
        severity: Warning,
        why: "A deploy whose signs of life come later than its lease allows is taken for dead while it works.",
        read: |basis| {
            let lease = basis.fleet.lock.lease;
            vec![reading(time(lease / 3 + SLOW_NETWORK), time(lease), &["lock.lease"])]
        },
    },
    Invariant {
        id: "bootstrap-within-wait",
        formula: "lock.bootstrap <= lock.wait",
        severity: Warning,
        why: "A deploy that meets a server which is just booting must outwait its bootstrap.",
        read: |basis| {
            let lock = &basis.fleet.lock;
            let left = Side::of(
                lock.bootstrap,
                "deploy.toml does not say how long a server's bootstrap takes (`lock.bootstrap`)",
            );
            vec![reading(left, time(lock.wait), &["lock.bootstrap", "lock.wait"])]
        },
    },
    Invariant {
        id: "heals-within-window",
        formula: "(2^(watchdog.heals - 1) - 1) x watchdog.strikes x watchdog.interval <= watchdog.window",
        severity: Warning,
        why: "Heals grow apart; where the last one allowed comes after the first is forgotten, a watchdog never stops healing what healing does not help.",
        read: |basis| {
            let watchdog = &basis.fleet.watchdog;
            let rules = watchdog.rules();
            let pauses: Duration = (1..watchdog.heals as usize)
                .map(|heals| rules.pause(heals))
                .fold(Duration::ZERO, Duration::saturating_add);
            let keys = ["watchdog.heals", "watchdog.strikes", "watchdog.interval", "watchdog.window"];
            vec![reading(time(pauses), time(watchdog.window), &keys)]
        },
    },
    Invariant {
        id: "start-within-strikes",
        formula: "max(deadline, healthcheck.start_period) <= (watchdog.strikes - 1) x watchdog.interval",
        severity: Warning,
        why: "A watchdog that loses patience before a service may be up restarts what was only starting.",
        read: |basis| {
            let watchdog = &basis.fleet.watchdog;
            let of = |service: &Service| {
                // What is not known may be the longer one.
                let left = match basis.start_period(&service.name) {
                    Side::Known(period) => Side::Known(period.max(service.deadline.as_secs_f64())),
                    unknown => unknown,
                };
                let keys = [
                    in_service(service, "deadline"),
                    format!("compose.{}.healthcheck.start_period", service.name),
                    "watchdog.strikes".into(),
                    "watchdog.interval".into(),
                ];
                let right = time(watchdog.interval.saturating_mul(watchdog.strikes.saturating_sub(1)));
                Reading {
                    subject: service.name.to_string(),
                    ..reading(left, right, &keys.each_ref().map(String::as_str))
                }
            };
            basis.fleet.services.iter().map(of).collect()
        },
    },
    Invariant {
        id: "stable-outlasts-restarts",
        formula: "three restarts of Docker's (0.7s) <= rolling.stable",
        severity: Warning,
        why: "A container that crashes at once is restarted within a tenth of a second; only who looks longer sees it crash again.",
        read: |basis| vec![reading(time(THREE_RESTARTS), time(basis.fleet.rolling.stable), &["rolling.stable"])],
    },
    Invariant {
        id: "stable-within-deadline",
        formula: "rolling.stable <= deadline",
        severity: Warning,
        why: "A service must be able to stay well for as long as is asked before its time is over.",
        read: |basis| {
            let of = |service: &Service| {
                let keys = [in_service(service, "deadline"), "rolling.stable".into()];
                Reading {
                    subject: service.name.to_string(),
                    ..reading(
                        time(basis.fleet.rolling.stable),
                        time(service.deadline),
                        &keys.each_ref().map(String::as_str),
                    )
                }
            };
            basis.fleet.services.iter().map(of).collect()
        },
    },
    Invariant {
        id: "delay-covers-request",
        formula: "longest_request <= deregistration_delay",
        severity: Error,
        why: "Whoever deregisters a target, a deploy or an autoscaler, cuts the requests that take longer than its delay (AWS user guide).",
        read: |basis| {
            groups(basis, |group| {
                let longest = services_of(basis, group).filter_map(|service| service.longest_request).max();
                let left = Side::of(
                    longest,
                    "deploy.toml does not say how long a request may take (`service.longest_request`)",
                );
                let keys: Vec<String> = services_of(basis, group)
                    .map(|s| in_service(s, "longest_request"))
                    .chain([in_group(group, "deregistration_delay")])
                    .collect();
                reading(left, time(group.deregistration_delay), &keys.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .filter(|_| basis.fleet.balancer.kind == BalancerKind::Alb || basis.fleet.drain.by == DrainBy::Deregister)
            .collect()
        },
    },
    Invariant {
        id: "shutdown-covers-request",
        formula: "longest_request <= shutdown",
        severity: Error,
        why: "The last request that a server was sent begins just before it is let go; its app must be given the time to answer it.",
        read: |basis| {
            let of = |service: &Service| {
                let left = Side::of(
                    service.longest_request,
                    "deploy.toml does not say how long a request may take (`service.longest_request`)",
                );
                let keys = [in_service(service, "longest_request"), in_service(service, "shutdown")];
                Reading {
                    subject: service.name.to_string(),
                    ..reading(left, time(service.shutdown), &keys.each_ref().map(String::as_str))
                }
            };
            basis.fleet.services.iter().filter(|service| !service.groups.is_empty()).map(of).collect()
        },
    },
    Invariant {
        id: "delay-within-max",
        formula: "deregistration_delay <= drain.max",
        severity: Error,
        why: "HAProxy's sessions are waited for as long as the delay allows; a deploy that gives up sooner never sees such a server out.",
        read: |basis| {
            groups(basis, |group| {
                reading(
                    time(group.deregistration_delay),
                    time(basis.fleet.drain.max),
                    &[&in_group(group, "deregistration_delay"), "drain.max"],
                )
            })
            .filter(|_| {
                basis.fleet.balancer.kind == BalancerKind::Haproxy && basis.fleet.drain.by == DrainBy::Deregister
            })
            .collect()
        },
    },
    Invariant {
        id: "keep-alive-above-idle",
        formula: "balancer.idle_timeout < keep_alive",
        severity: Error,
        why: "An app that closes idle connections before the balancer does loses the request that is just being sent on one (AWS user guide: 502).",
        read: |basis| {
            let idle = basis.fleet.balancer.idle_timeout;
            let of = |service: &Service| Reading {
                subject: service.name.to_string(),
                equal: false,
                ..reading(
                    time(idle),
                    Side::of(
                        service.keep_alive,
                        "deploy.toml does not say how long the app keeps idle connections (`service.keep_alive`)",
                    ),
                    &["balancer.idle_timeout", &in_service(service, "keep_alive")],
                )
            };
            let fronted = basis.fleet.services.iter().filter(|service| !service.groups.is_empty());
            fronted.filter(|_| basis.fleet.balancer.kind == BalancerKind::Alb).map(of).collect()
        },
    },
    Invariant {
        id: "gateway-keep-alive-above-idle",
        formula: "balancer.idle_timeout < gateway.keep_alive",
        severity: Error,
        why: "A gateway that closes idle connections before the balancer does loses the request that is just being sent on one (AWS user guide: 502).",
        read: |basis| {
            let idle = basis.fleet.balancer.idle_timeout;
            let of = |gateway: &GatewaySpec| Reading {
                equal: false,
                ..reading(time(idle), time(gateway.keep_alive), &["balancer.idle_timeout", "gateway.keep_alive"])
            };
            let fronted = basis.fleet.gateway.iter().filter(|_| basis.fleet.balancer.kind == BalancerKind::Alb);
            fronted.map(of).collect()
        },
    },
    Invariant {
        id: "hold-within-idle",
        formula: "gateway.host.hold + 5s <= balancer.idle_timeout",
        severity: Error,
        why: "A balancer that gives up before the hold ends answers 504 itself, and the rest of the hold serves nobody; the backend needs a moment to answer, too.",
        read: |basis| {
            let idle = basis.fleet.balancer.idle_timeout;
            let of = |host: &HostSpec| Reading {
                subject: host.name.to_string(),
                ..reading(
                    time(host.hold + TO_ANSWER),
                    time(idle),
                    &[&format!("gateway.host.{}.hold", host.name), "balancer.idle_timeout"],
                )
            };
            let gateway = basis.fleet.gateway.iter().filter(|_| basis.fleet.balancer.kind == BalancerKind::Alb);
            gateway.flat_map(|gateway| &gateway.hosts).map(of).collect()
        },
    },
    Invariant {
        id: "hold-within-shutdown",
        formula: "gateway.host.hold <= gateway.shutdown",
        severity: Warning,
        why: "A gateway that is stopped while requests wait cuts those whose hold would have lasted longer.",
        read: |basis| {
            let of = |gateway: &GatewaySpec| {
                let shutdown = time(gateway.shutdown);
                let one = move |host: &HostSpec| Reading {
                    subject: host.name.to_string(),
                    ..reading(
                        time(host.hold),
                        shutdown.clone(),
                        &[&format!("gateway.host.{}.hold", host.name), "gateway.shutdown"],
                    )
                };
                gateway.hosts.iter().map(one).collect::<Vec<_>>()
            };
            basis.fleet.gateway.iter().flat_map(of).collect()
        },
    },
    sleep::START_WITHIN_HOLD,
    sleep::WORTH_IT,
    sleep::AWAKE_COVERS_START,
    sleep::CIRCUIT_OUTLASTS_START,
    sleep::START_WITHIN_ALARM,
    sleep::START_WITHIN_WATCHDOG,
    sleep::SILENCE_IS_USE,
    sleep::HELD_FITS,
    sleep::WAKE_AFTER_DEPLOY,
    sleep::HEALTH_IS_ANSWERED_HERE,
    sleep::BEARABLE_START,
    held::WITHIN_HOLD,
    held::WITHIN_IDLE,
    held::WITHIN_CLIENTS,
    held::WITHIN_MEASURE,
    held::HAND_OVER_OUTLASTS_IDLE,
    nodes::TRAFFIC_TELLS,
    nodes::EVERYBODY_KNOWN,
    Invariant {
        id: "slow-start-within-pause",
        formula: "slow_start <= rolling.pause + settle",
        severity: Note,
        why: "While a server's share still grows the others carry more; a deploy waits for its end all the same before the next one goes.",
        read: |basis| {
            let (rolling, drain) = (&basis.fleet.rolling, &basis.fleet.drain);
            leaving(basis, |group| {
                let right = time(rolling.pause + settle(&group.health.settings, drain.margin));
                reading(
                    time(group.slow_start),
                    right,
                    &[&in_group(group, "slow_start"), "rolling.pause", "drain.margin"],
                )
            })
            .filter(|_| basis.fleet.balancer.kind == BalancerKind::Alb)
            .collect()
        },
    },
    Invariant {
        id: "rate-sees-a-late-node",
        formula: "targets x nodes (3) / measure.rate <= interval",
        severity: Warning,
        why: "The smallest gap that these numbers allow is one node that is one check late with one server; a rate that never meets it in that time calls it nothing.",
        read: |basis| {
            let Some(measure) = &basis.fleet.measure else {
                let why = "there is no `[measure]`: losses are not measured";
                return vec![reading(Side::Unknown(why.into()), Side::Unknown(why.into()), &["measure.rate"])];
            };
            groups(basis, |group| {
                let left = Side::Known((targets(basis, group).max(1) * NODES) as f64 / measure.rate);
                reading(left, time(group.health.settings.interval), &["measure.rate", &in_health(group, "interval")])
            })
            .collect()
        },
    },
    Invariant {
        id: "measure-outwaits-check",
        formula: "timeout <= measure.timeout",
        severity: Warning,
        why: "An answer that is still in time for the balancer must be so for who counts losses.",
        read: |basis| {
            let Some(measure) = &basis.fleet.measure else { return Vec::new() };
            groups(basis, |group| {
                reading(
                    time(group.health.settings.timeout),
                    time(measure.timeout),
                    &[&in_health(group, "timeout"), "measure.timeout"],
                )
            })
            .collect()
        },
    },
    Invariant {
        id: "measure-outwaits-request",
        formula: "longest_request <= measure.timeout",
        severity: Warning,
        why: "A request that is only slow must not be counted as lost.",
        read: |basis| {
            let Some(measure) = &basis.fleet.measure else { return Vec::new() };
            let of = |service: &Service| {
                let left = Side::of(
                    service.longest_request,
                    "deploy.toml does not say how long a request may take (`service.longest_request`)",
                );
                Reading {
                    subject: service.name.to_string(),
                    ..reading(
                        left,
                        time(measure.timeout),
                        &[&in_service(service, "longest_request"), "measure.timeout"],
                    )
                }
            };
            basis.fleet.services.iter().filter(|service| !service.groups.is_empty()).map(of).collect()
        },
    },
    Invariant {
        id: "heartbeat-within-deadline",
        formula: "verify.age <= deadline",
        severity: Warning,
        why: "A heartbeat may be as old as its age allows; a service that may not take that long to show its first one fails without a fault.",
        read: |basis| {
            let of = |service: &Service| match &service.verify {
                crate::fleet::model::Verify::Heartbeat { age, .. } => Some(Reading {
                    subject: service.name.to_string(),
                    ..reading(
                        time(*age),
                        time(service.deadline),
                        &[&in_service(service, "verify.age"), &in_service(service, "deadline")],
                    )
                }),
                _ => None,
            };
            basis.fleet.services.iter().filter_map(of).collect()
        },
    },
];

/// Whether health is made to fail while the services go on.
fn flips(basis: &Basis<'_>) -> bool {
    !matches!(basis.fleet.drain.by, DrainBy::Sigterm | DrainBy::Deregister | DrainBy::Hold { .. })
}

/// The groups that a server leaves; where a gateway holds, it leaves none.
fn leaving<'a>(basis: &'a Basis<'_>, of: impl Fn(&Group) -> Reading + 'a) -> impl Iterator<Item = Reading> + 'a {
    groups(basis, of).filter(|_| basis.fleet.drain.by.hold().is_none())
}

fn groups<'a>(basis: &'a Basis<'_>, of: impl Fn(&Group) -> Reading + 'a) -> impl Iterator<Item = Reading> + 'a {
    basis.fleet.balancer.groups.iter().map(move |group| Reading { subject: group.name.to_string(), ..of(group) })
}

fn services_of<'a>(basis: &'a Basis<'_>, group: &'a Group) -> impl Iterator<Item = &'a Service> {
    basis.fleet.services.iter().filter(|service| service.groups.contains(&group.name))
}

fn targets(basis: &Basis<'_>, group: &Group) -> usize {
    let servers: BTreeSet<&ServerName> =
        basis.fleet.servers.iter().filter(|s| s.targets.contains_key(&group.name)).map(|s| &s.name).collect();
    servers.len()
}

fn zones(basis: &Basis<'_>, group: &Group) -> usize {
    let own = basis.fleet.servers.iter().filter(|s| s.targets.contains_key(&group.name));
    own.map(|server| server.zone.as_ref()).collect::<BTreeSet<_>>().len()
}

fn reading(left: Side, right: Side, sources: &[&str]) -> Reading {
    let sources = sources.iter().map(|source| (*source).to_owned()).collect();
    Reading { subject: String::new(), left, right, unit: Unit::Seconds, equal: true, sources, cost: None }
}

fn in_health(group: &Group, key: &str) -> String {
    format!("balancer.group.{}.health.{key}", group.name)
}

fn in_group(group: &Group, key: &str) -> String {
    format!("balancer.group.{}.{key}", group.name)
}

fn in_service(service: &Service, key: &str) -> String {
    format!("service.{}.{key}", service.name)
}
