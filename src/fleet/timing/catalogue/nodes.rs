//! The relations of drains that are proved node by node.

use super::super::basis::{Basis, Side};
use super::super::invariants::{Invariant, Reading, Severity, Unit, time};
use super::{groups, in_health, reading, targets};
use crate::fleet::nodes::{ENOUGH, window};

pub(super) const TRAFFIC_TELLS: Invariant = Invariant {
    id: "traffic-tells-thresholds",
    formula: "12 requests <= measure.rate x interval / targets (with drain.by = \"gateway\")",
    severity: Severity::Note,
    why: "Whether a balancer lets go after so many failures or one more is read off the requests that stop coming; with too few of them every server waits for one more check.",
    read: |basis| {
        if basis.fleet.drain.by.nodes().is_none() {
            return Vec::new();
        }
        let rate = basis.fleet.measure.as_ref().map_or(0.0, |measure| measure.rate);
        let one = groups(basis, |group| {
            let each = u32::try_from(targets(basis, group).max(1)).unwrap_or(u32::MAX);
            let sent = rate * group.health.settings.interval.as_secs_f64() / f64::from(each);
            let keys = ["measure.rate", &in_health(group, "interval")];
            Reading { unit: Unit::Requests, ..reading(Side::Known(ENOUGH), Side::Known(sent), &keys) }
        });
        one.collect()
    },
};

pub(super) const EVERYBODY_KNOWN: Invariant = Invariant {
    id: "nodes-known-before-in",
    formula: "1.25 x interval + timeout <= rolling.stable + healthy x interval (with drain.by = \"gateway\")",
    severity: Severity::Note,
    why: "A gateway that was started anew has seen every node only after so long; a proof that comes later waits for it.",
    read: known,
};

fn known(basis: &Basis<'_>) -> Vec<Reading> {
    if basis.fleet.drain.by.nodes().is_none() {
        return Vec::new();
    }
    let one = groups(basis, |group| {
        let settings = &group.health.settings;
        let by_then = basis.fleet.rolling.stable + settings.interval * settings.healthy;
        let sources = ["interval", "timeout", "healthy"]
            .map(|key| in_health(group, key))
            .into_iter()
            .chain(["rolling.stable".to_owned()]);
        let sources: Vec<String> = sources.collect();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        reading(time(window(settings)), time(by_then), &sources)
    });
    one.collect()
}
