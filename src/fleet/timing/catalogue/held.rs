//! The relations of a gateway that holds what arrives while what is behind it is changed.

use super::super::basis::{Basis, Side};
use super::super::invariants::{Invariant, Reading, Severity, time};
use super::{TO_ANSWER, reading};
use crate::fleet::held::longest_wait;
use crate::fleet::model::{BalancerKind, HostSpec};
use std::time::Duration;

/// What the longest wait is made of.
const WAIT: [&str; 4] = ["drain.max", "service.shutdown", "service.deadline", "rolling.stable"];

pub(super) const WITHIN_HOLD: Invariant = Invariant {
    id: "deploy-within-hold",
    formula: "drain.max + service.shutdown + service.deadline + rolling.stable <= gateway.host.hold (with drain.by = \"hold\")",
    severity: Severity::Error,
    why: "Whoever arrives right after everything is held waits until what was under way has ended and the new release is verified; one whose hold ends before is lost.",
    read: |basis| {
        let Some(wait) = wait(basis) else { return Vec::new() };
        let hosts = hosts(basis);
        if hosts.is_empty() {
            let unknown = "the gateway stands in a file of its own; `plan` and `deploy` ask the gateway itself";
            return vec![of(wait, Side::Unknown(unknown.to_owned()), "gateway.host.hold")];
        }
        let one = |host: &HostSpec| Reading {
            subject: host.name.to_string(),
            ..of(wait, time(host.hold), &format!("gateway.host.{}.hold", host.name))
        };
        hosts.into_iter().map(one).collect()
    },
};

pub(super) const WITHIN_IDLE: Invariant = Invariant {
    id: "deploy-within-idle",
    formula: "drain.max + service.shutdown + service.deadline + rolling.stable + 5s <= balancer.idle_timeout (with drain.by = \"hold\")",
    severity: Severity::Error,
    why: "A balancer that gives up while the gateway still holds answers 504 itself.",
    read: |basis| {
        let wait = wait(basis).filter(|_| basis.fleet.balancer.kind == BalancerKind::Alb);
        wait.map(|wait| of(wait + TO_ANSWER, time(basis.fleet.balancer.idle_timeout), "balancer.idle_timeout"))
            .into_iter()
            .collect()
    },
};

pub(super) const WITHIN_CLIENTS: Invariant = Invariant {
    id: "deploy-within-clients",
    formula: "drain.max + service.shutdown + service.deadline + rolling.stable <= gateway.host.class.hold (with drain.by = \"hold\")",
    severity: Severity::Warning,
    why: "Clients that are known to give up earlier are lost where a deploy takes as long as it may.",
    read: |basis| {
        let Some(wait) = wait(basis) else { return Vec::new() };
        let one = |host: &HostSpec| {
            let classes = host.classes.iter().map(|class| class.hold).min()?;
            let key = format!("gateway.host.{}.class", host.name);
            Some(Reading { subject: host.name.to_string(), ..of(wait, time(classes), &key) })
        };
        hosts(basis).into_iter().filter_map(one).collect()
    },
};

pub(super) const WITHIN_MEASURE: Invariant = Invariant {
    id: "deploy-within-measure",
    formula: "drain.max + service.shutdown + service.deadline + rolling.stable + 5s <= measure.timeout (with drain.by = \"hold\")",
    severity: Severity::Warning,
    why: "A prober that gives up while its request is only held counts it as lost.",
    read: |basis| {
        let Some((wait, measure)) = wait(basis).zip(basis.fleet.measure.as_ref()) else { return Vec::new() };
        vec![of(wait + TO_ANSWER, time(measure.timeout), "measure.timeout")]
    },
};

pub(super) const HAND_OVER_OUTLASTS_IDLE: Invariant = Invariant {
    id: "hand-over-outlasts-idle",
    formula: "balancer.idle_timeout < stop_grace_period of drain.hold.service (with drain.by = \"hold\")",
    severity: Severity::Warning,
    why: "A gateway that handed over is ended after its grace period, and an idle connection that the balancer still keeps may carry a request at that very moment.",
    read: |basis| {
        let Some(gateway) = basis.fleet.drain.by.hands_over() else { return Vec::new() };
        if basis.fleet.balancer.kind != BalancerKind::Alb {
            return Vec::new();
        }
        let keys = ["balancer.idle_timeout", &format!("compose.{gateway}.stop_grace_period")];
        let one = reading(time(basis.fleet.balancer.idle_timeout), basis.grace(gateway), &keys);
        vec![Reading { subject: gateway.to_string(), equal: false, ..one }]
    },
};

fn wait(basis: &Basis<'_>) -> Option<Duration> {
    basis.fleet.drain.by.hold().map(|_| longest_wait(basis.fleet))
}

fn hosts<'a>(basis: &Basis<'a>) -> Vec<&'a HostSpec> {
    basis.fleet.gateway.iter().flat_map(|gateway| &gateway.hosts).collect()
}

fn of(wait: Duration, most: Side, key: &str) -> Reading {
    let sources: Vec<&str> = WAIT.into_iter().chain([key]).collect();
    reading(time(wait), most, &sources)
}
