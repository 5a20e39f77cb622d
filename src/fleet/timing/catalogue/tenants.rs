//! The relations of tenants on Kubernetes: whoever waits must wait long enough, whoever looks must look often enough, and what is
//! quiet must be told from what is used.

use super::super::basis::Side;
use super::super::invariants::{Invariant, Reading, Severity, Unit};
use super::super::wake::{Scaler, Scraped, Told, Waiter, Wake};
use Severity::{Error, Note, Warning};
use std::time::Duration;

/// Reads a relation off one tenant.
pub(in crate::fleet::timing) type OfWake = fn(&Wake) -> Vec<Reading>;

/// A backend that is just back needs a moment for its answer.
const TO_ANSWER: f64 = 5.0;
/// The longest `stabilizationWindowSeconds` that the API takes.
const LONGEST_QUIET: f64 = 3600.0;
/// A backend that can no longer be woken is told of within this.
const TOLD_WITHIN: f64 = 900.0;

/// Every relation, in the order in which they are told.
pub static TENANTS: &[Invariant<OfWake>] = &[
    Invariant {
        id: "tenant-wake-within-hold",
        formula: "the sum of a wake's parts <= 0.8 x hold",
        severity: Error,
        why: "Each part of a wake may come out at its longest; a hold that ends first turns away whoever waited for it.",
        read: |wake| {
            let mut one = of(wake, wake.longest(), scaled(&wake.hold.side(), 0.8), &[&wake.hold]);
            one.sources.splice(0..0, wake.parts.iter().flat_map(|part| part.most.keys.clone()));
            costs(one, |longest, most| {
                format!("a wake takes up to {}, a request is sure of {} only", seconds(longest), seconds(most))
            })
        },
    },
    Invariant {
        id: "tenant-hold-within-patience",
        formula: "hold + 5s <= the shortest of what the balancer and the clients wait",
        severity: Error,
        why: "What is held longer than anybody waits is held for nobody; a write that was given up may be carried out all the same, and then again.",
        read: |wake| {
            patient(wake, &wake.hold, plus(&wake.hold.side(), TO_ANSWER), |waiter, hold, waits| {
                let idle = hold - TO_ANSWER - waits;
                let who = waiter.who;
                match idle > 0.0 {
                    true => {
                        format!("the last {} of the hold serve nobody: {who} cuts at {}", seconds(idle), seconds(waits))
                    }
                    false => format!(
                        "who is let through at the end of the hold has {} left for his answer: {who} cuts at {}",
                        seconds(-idle),
                        seconds(waits)
                    ),
                }
            })
        },
    },
    Invariant {
        id: "tenant-answer-within-patience",
        formula: "the sum of a wake's parts + 5s <= the shortest of what the balancer and the clients wait",
        severity: Error,
        why: "A wake that takes longer than anybody waits wakes a backend for nobody.",
        read: |wake| {
            patient(wake, &wake.hold, plus(&wake.longest(), TO_ANSWER), |waiter, _, waits| {
                format!("the slowest wakes are cut: {} waits {}", waiter.who, seconds(waits))
            })
        },
    },
    Invariant {
        id: "tenant-seen-by-scrape",
        formula: "prometheus.scrape (and without a latch one turn each of whoever looks) <= the shortest of what the balancer and the clients wait",
        severity: Error,
        why: "A request that waits is seen by a scrape that falls into its wait, and without a latch only until the next one; who gives up sooner wakes nothing.",
        read: |wake| {
            let Some(scraped) = &wake.scraped else { return Vec::new() };
            let left = match wake.latch {
                Some(_) => scraped.scrape.side(),
                None => sum(&[scraped.scrape.side(), wake.looks()]),
            };
            patient(wake, &scraped.scrape, left, |_, needed, waits| {
                format!(
                    "whoever waits for {} only may wake nothing: it takes up to {} until he is seen",
                    seconds(waits),
                    seconds(needed)
                )
            })
        },
    },
    Invariant {
        id: "tenant-timeout-within-scrape",
        formula: "prometheus.timeout <= prometheus.scrape",
        severity: Error,
        why: "Prometheus refuses a scrape that may outlast its interval.",
        read: |wake| scraped(wake, |it| of(wake, it.timeout.side(), it.scrape.side(), &[&it.timeout, &it.scrape])),
    },
    Invariant {
        id: "tenant-window-holds-samples",
        formula: "4 x prometheus.scrape <= prometheus.window",
        severity: Error,
        why: "A rate needs two samples in its window, and a scrape may be lost; without a rate a backend sleeps while it is used.",
        read: |wake| {
            let Some(it) = &wake.scraped else { return Vec::new() };
            let Some(window) = &it.window else { return Vec::new() };
            vec![of(wake, scaled(&it.scrape.side(), 4.0), window.side(), &[&it.scrape, window])]
        },
    },
    Invariant {
        id: "tenant-relist-covers-scrape",
        formula: "prometheus.scrape <= adapter.relist",
        severity: Warning,
        why: "An adapter that looks for metrics more often than they come finds none in between, and the HPA loses its metric.",
        read: |wake| scraped(wake, |it| of(wake, it.scrape.side(), it.relist.side(), &[&it.scrape, &it.relist])),
    },
    Invariant {
        id: "tenant-age-covers-relist",
        formula: "adapter.relist <= adapter.max_age",
        severity: Warning,
        why: "What the adapter forgets before it looks again is missing in between.",
        read: |wake| scraped(wake, |it| of(wake, it.relist.side(), it.max_age.side(), &[&it.relist, &it.max_age])),
    },
    Invariant {
        id: "tenant-probes-below-floor",
        formula: "the rate of the probes that are counted < what is taken from the rate",
        severity: Error,
        why: "Monitoring that counts as use keeps a backend awake for ever.",
        read: |wake| {
            let Some(it) = &wake.scraped else { return Vec::new() };
            let Some(floor) = &it.floor else { return Vec::new() };
            if it.probes.side().value() == Some(0.0) {
                return Vec::new();
            }
            let one = of(wake, it.probes.side(), floor.side(), &[floor]);
            let mut one = Reading { unit: Unit::PerSecond, equal: false, ..one };
            one.sources.extend(it.probes.keys.iter().cloned());
            costs(one, |rate, _| format!("it never sleeps: probes alone make {} requests a minute", round(rate * 60.0)))
        },
    },
    Invariant {
        id: "tenant-use-above-floor",
        formula: "the requests in a window that what is taken from the rate hides <= 1",
        severity: Note,
        why: "A constant cannot tell one request from one probe: use below it does not keep a backend awake (a request that is under way at a scrape still does).",
        read: |wake| {
            let Some(it) = &wake.scraped else { return Vec::new() };
            let (Some(floor), Some(window)) = (&it.floor, &it.window) else { return Vec::new() };
            let hidden = match (floor.side(), it.probes.side(), window.side()) {
                (Side::Known(floor), Side::Known(probes), Side::Known(window)) => {
                    Side::Known(((floor - probes).max(0.0) * window).floor())
                }
                (Side::Unknown(why), _, _) | (_, Side::Unknown(why), _) | (_, _, Side::Unknown(why)) => {
                    Side::Unknown(why)
                }
            };
            let one = Reading { unit: Unit::Requests, ..of(wake, hidden, Side::Known(1.0), &[floor]) };
            costs(one, |hidden, _| {
                let window = window.side().value().unwrap_or_default();
                format!("up to {hidden} requests in {} do not keep it awake", seconds(window))
            })
        },
    },
    Invariant {
        id: "tenant-one-pod",
        formula: "maxReplicas <= 1",
        severity: Warning,
        why: "A metric of requests under way wants one pod for each thousandth that its target is below them: it says whether, not how many.",
        read: |wake| {
            let Some(it) = &wake.scaler else { return Vec::new() };
            let one = Reading { unit: Unit::Pods, ..of(wake, it.most.side(), Side::Known(1.0), &[&it.most]) };
            costs(one, |most, _| format!("one request starts {most} pods"))
        },
    },
    Invariant {
        id: "tenant-quiet-is-taken",
        formula: "after <= 1h",
        severity: Error,
        why: "Kubernetes takes no longer window for scaling down.",
        read: |wake| scaler(wake, |it| of(wake, it.quiet.side(), Side::Known(LONGEST_QUIET), &[&it.quiet])),
    },
    Invariant {
        id: "tenant-quiet-outlasts-wake",
        formula: "10 x the sum of a wake's parts <= after",
        severity: Warning,
        why: "A quiet window that is short beside the wake puts people through a wake after every cup of coffee.",
        read: |wake| {
            let one = of(wake, scaled(&wake.longest(), 10.0), wake.quiet.side(), &[&wake.quiet]);
            costs(one, |_, quiet| format!("whoever pauses for {} waits again", seconds(quiet)))
        },
    },
    Invariant {
        id: "tenant-latch-outlasts-sync",
        formula: "one turn each of whoever looks once a request was seen, and prometheus.scrape + prometheus.timeout <= prometheus.latch, or gateway.latch",
        severity: Error,
        why: "An HPA that looks when the request is over, or between two scrapes, sees only zeros: it does not wake, and takes back what was woken beside it.",
        read: |wake| {
            let (Some(it), Some(latch)) = (&wake.scaler, &wake.latch) else { return Vec::new() };
            let gap = wake.scraped.as_ref().map(|it| sum(&[it.scrape.side(), it.timeout.side()]));
            let left = match (wake.looks(), gap) {
                (Side::Known(looks), Some(Side::Known(gap))) => Side::Known(looks.max(gap)),
                (looks, _) => looks,
            };
            let one = of(wake, left, latch.side(), &[&it.sync, latch]);
            costs(one, |_, latch| match wake.scraped {
                Some(_) => {
                    format!("a request that was seen is forgotten after {}, before the HPA has looked", seconds(latch))
                }
                None => "the HPA may stop what the gateway has just started".to_owned(),
            })
        },
    },
    Invariant {
        id: "tenant-wake-before-alarm",
        formula: "the sum of a wake's parts < alarms.stuck",
        severity: Warning,
        why: "An alarm that comes while a wake may still succeed teaches people to ignore it.",
        read: |wake| vec![Reading { equal: false, ..of(wake, wake.longest(), wake.stuck.side(), &[&wake.stuck]) }],
    },
    Invariant {
        id: "tenant-alarm-within-hold",
        formula: "alarms.stuck <= hold",
        severity: Warning,
        why: "An alarm that comes after the hold comes after the requests are lost.",
        read: |wake| vec![of(wake, wake.stuck.side(), wake.hold.side(), &[&wake.stuck, &wake.hold])],
    },
    Invariant {
        id: "tenant-inactive-outlasts-restart",
        formula: "2 x cluster.sync + alarms.scrape + edge.restart <= alarms.inactive",
        severity: Warning,
        why: "An HPA is without its metric whenever the edge starts anew, and that is no reason to wake anybody.",
        read: |wake| {
            scaler(wake, |it| {
                let parts = [scaled(&it.sync.side(), 2.0), it.observed.side(), it.restart.side()];
                of(wake, sum(&parts), it.inactive.side(), &[&it.sync, &it.observed, &it.restart, &it.inactive])
            })
        },
    },
    Invariant {
        id: "tenant-inactive-is-told",
        formula: "alarms.inactive <= 15m",
        severity: Warning,
        why: "A backend whose HPA cannot read its metric never wakes again, and nobody notices before the next login.",
        read: |wake| scaler(wake, |it| of(wake, it.inactive.side(), Side::Known(TOLD_WITHIN), &[&it.inactive])),
    },
    Invariant {
        id: "tenant-dial-within-hold",
        formula: "edge.dial <= 0.1 x hold",
        severity: Warning,
        why: "A try that waits long for a connection sees late that the backend is back, and outlasts the hold by as much.",
        read: |wake| vec![of(wake, wake.dial.side(), scaled(&wake.hold.side(), 0.1), &[&wake.dial, &wake.hold])],
    },
    Invariant {
        id: "tenant-retry-is-short",
        formula: "edge.retry <= 1s",
        severity: Warning,
        why: "Whoever waits for a backend that is back already waits for nothing but the next try.",
        read: |wake| vec![of(wake, wake.retry.side(), Side::Known(1.0), &[&wake.retry])],
    },
    Invariant {
        id: "tenant-names-within-hold",
        formula: "how long an answer of the name service is used again <= 0.2 x hold",
        severity: Warning,
        why: "A pod that is gone is asked for as long as its address is remembered.",
        read: |wake| {
            let Some(refresh) = &wake.refresh else { return Vec::new() };
            vec![of(wake, refresh.side(), scaled(&wake.hold.side(), 0.2), &[refresh, &wake.hold])]
        },
    },
    Invariant {
        id: "tenant-keep-alive-outlasts-balancer",
        formula: "clients.balancer < edge.keep_alive",
        severity: Warning,
        why: "A front that closes an idle connection first does so while the balancer sends a request into it: the client gets a 502.",
        read: |wake| {
            let Some(balancer) = wake.waiters.first() else { return Vec::new() };
            let one = of(wake, balancer.waits.side(), wake.keep_alive.side(), &[&balancer.waits, &wake.keep_alive]);
            vec![Reading { equal: false, ..one }]
        },
    },
    Invariant {
        id: "tenant-reload-keeps-held",
        formula: "hold <= how long a held request outlives a new configuration of the edge (Caddy: 0s)",
        severity: Note,
        why: "Caddy 2.11.7 answers every request that waits with 502 when its configuration is loaded anew, POST and GET alike; the modes with the gateway do not.",
        read: |wake| {
            let Some(reload) = &wake.reload else { return Vec::new() };
            let one = of(wake, wake.hold.side(), reload.side(), &[&wake.hold]);
            costs(one, |_, _| "load the edge's configuration anew only while nobody waits".to_owned())
        },
    },
];

fn of(wake: &Wake, left: Side, right: Side, told: &[&Told<impl Sized>]) -> Reading {
    let sources = told.iter().flat_map(|told| told.keys.iter().cloned()).collect();
    Reading { subject: wake.tenant.clone(), left, right, unit: Unit::Seconds, equal: true, sources, cost: None }
}

/// Says what it costs, with the figures, where it is known not to hold.
fn costs(reading: Reading, says: impl Fn(f64, f64) -> String) -> Vec<Reading> {
    let cost = match (reading.holds(), reading.left.value(), reading.right.value()) {
        (Some(false), Some(left), Some(right)) => Some(says(left, right)),
        _ => None,
    };
    vec![Reading { cost, ..reading }]
}

/// Against whoever waits the shortest in front.
fn patient(wake: &Wake, told: &Told<Duration>, left: Side, says: impl Fn(&Waiter, f64, f64) -> String) -> Vec<Reading> {
    let Some(waiter) = wake.least_patient() else { return Vec::new() };
    let one = of(wake, left, waiter.waits.side(), &[&waiter.waits, told]);
    costs(one, |left, right| says(waiter, left, right))
}

fn scraped(wake: &Wake, read: impl Fn(&Scraped) -> Reading) -> Vec<Reading> {
    wake.scraped.iter().map(read).collect()
}

fn scaler(wake: &Wake, read: impl Fn(&Scaler) -> Reading) -> Vec<Reading> {
    wake.scaler.iter().map(read).collect()
}

fn scaled(side: &Side, by: f64) -> Side {
    match side {
        Side::Known(value) => Side::Known((value * by * 1000.0).round() / 1000.0),
        Side::Unknown(why) => Side::Unknown(why.clone()),
    }
}

fn plus(side: &Side, more: f64) -> Side {
    sum(&[side.clone(), Side::Known(more)])
}

fn sum(sides: &[Side]) -> Side {
    let mut total = 0.0;
    for side in sides {
        match side {
            Side::Known(value) => total += value,
            Side::Unknown(why) => return Side::Unknown(why.clone()),
        }
    }
    Side::Known(total)
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn seconds(value: f64) -> String {
    format!("{} s", round(value))
}
