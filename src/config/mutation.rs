//! Every number set to wrong values, one at a time, to see what notices: a number that nothing guards is how lost requests come
//! back in six months.
//!
//! It may know no invariant by name: what notices is whatever the file's rules refuse or the relations call broken.

use super::{Loaded, Number, Place};
use crate::fleet::model::{Known, ServiceName};
use crate::fleet::timing::{Amount, Basis, ComposeService, findings};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The compose file's numbers, by service.
pub type Compose = Known<BTreeMap<ServiceName, ComposeService>>;

const ITS_OWN: &str = "how long a command of the team's takes is known to nobody else; cut off, it refuses or is told";

/// Numbers that may be anything, each with the reason.
const FREE: [(&str, &str); 32] = [
    ("balancer.group.port", "a port is a name: the guard finds no target under a wrong one"),
    ("balancer.group.health.port", "a port is a name: the flip is not seen under a wrong one"),
    ("service.verify.status", "a status is a name: verify fails on a wrong one"),
    ("rolling.pause", "a longer pause only takes longer, and none loses nothing"),
    ("ssh.parallel", "fewer connections at a time only take longer"),
    ("release.keep", "the current, the previous and the incoming release stay whatever it says"),
    ("hooks.pre_connect.limit", ITS_OWN),
    ("hooks.pre_deploy.limit", ITS_OWN),
    ("hooks.pre_drain.limit", ITS_OWN),
    ("hooks.post_server.limit", ITS_OWN),
    ("hooks.post_deploy.limit", ITS_OWN),
    ("hooks.on_failure.limit", ITS_OWN),
    ("run_once.limit", ITS_OWN),
    ("gateway.held", "who does not fit is answered 503 at once, which is counted"),
    ("gateway.connections", "the idle ones go first, and every one that goes is counted"),
    ("gateway.head_timeout", "only how slow a client may be"),
    ("gateway.body_timeout", "only how slow a client may be"),
    ("gateway.send_timeout", "only how slow a client may be"),
    ("gateway.head_bytes", "what is too long is answered 431, which is counted"),
    ("gateway.finish", "an old process that ends too soon says what it cut"),
    ("gateway.workers", "fewer threads only serve less"),
    ("gateway.watch", "only how soon a change is noticed"),
    (
        "gateway.external_metrics.latch",
        "how often the HPA looks is known to the cluster: `handover sleep check` knows both",
    ),
    ("gateway.host.held", "who does not fit is answered 503 at once, which is counted"),
    ("gateway.host.connect_interval", "its range is narrow enough"),
    ("gateway.host.connect_timeout", "a connect that is given up is tried again while the request waits"),
    ("gateway.host.answer_timeout", "how long the app takes is known to nobody else"),
    ("gateway.host.body_bytes", "what is too long is answered 413, which is counted"),
    ("gateway.host.reuse", "what must not be sent twice goes over no connection that was idle"),
    (
        "gateway.host.sleep.quiet",
        "a request without an answer always counts; how long a silent stream is of use is known to nobody else",
    ),
    ("gateway.host.sleep.tries", "one start more or less of a backend that cannot start"),
    ("gateway.host.class.hold", "how patient a client is is known to nobody else"),
];

/// One wrong value and what noticed it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mutation {
    /// The number.
    pub key: String,
    /// What it is.
    #[serde(skip)]
    pub from: Amount,
    /// What it was set to.
    pub to: Amount,
    /// The relations that broke, or the file's own rule that refused it.
    pub caught_by: Vec<String>,
    /// Why the number may be anything.
    pub free: Option<&'static str>,
    /// Where the number stands; `None` for a default.
    #[serde(skip)]
    pub place: Option<Place>,
}

impl Mutation {
    /// Nothing noticed it, and nobody says that nothing needs to.
    #[must_use]
    pub fn is_unguarded(&self) -> bool {
        self.caught_by.is_empty() && self.free.is_none()
    }
}

/// Sets every number just past its nearest bound and far past it, in each direction in which something notices.
#[must_use]
pub fn mutations(loaded: &Loaded, compose: &Compose) -> Vec<Mutation> {
    let before = broken(loaded, compose);
    let mut mutations = Vec::new();
    for number in loaded.numbers().into_iter().filter(|number| has_effect(loaded, number)) {
        let free = FREE.iter().find(|(pattern, _)| *pattern == number.pattern).map(|(_, reason)| *reason);
        let caught = |to: Amount| of_file(loaded, &number, to, compose, &before);
        let found = Range::of(&number).mutate(caught);
        let row = |(to, caught_by)| Mutation {
            key: number.key.clone(),
            from: number.amount,
            to,
            caught_by,
            free,
            place: number.place.clone(),
        };
        mutations.extend(found.into_iter().map(row));
    }
    mutations.extend(of_compose(loaded, compose, &before));
    mutations
}

/// A default of a key that would have no effect here is no number of this file.
fn has_effect(loaded: &Loaded, number: &Number) -> bool {
    number.place.is_some() || loaded.with(number, number.amount).is_ok()
}

/// What is broken, by name.
fn broken(loaded: &Loaded, compose: &Compose) -> BTreeSet<String> {
    let found = findings(&Basis { fleet: &loaded.fleet, compose });
    found.iter().filter(|finding| finding.fails_check()).map(|finding| finding.invariant.id.to_owned()).collect()
}

fn of_file(loaded: &Loaded, number: &Number, to: Amount, compose: &Compose, before: &BTreeSet<String>) -> Vec<String> {
    match loaded.with(number, to) {
        Err(problems) => problems.iter().take(1).map(|problem| format!("deploy.toml: {}", problem.text)).collect(),
        Ok(changed) => broken(&changed, compose).difference(before).cloned().collect(),
    }
}

/// The grace periods, which stand in the compose file.
fn of_compose(loaded: &Loaded, compose: &Compose, before: &BTreeSet<String>) -> Vec<Mutation> {
    let Known::Known(services) = compose else { return Vec::new() };
    let mut mutations = Vec::new();
    for (name, service) in services {
        let Known::Known(grace) = service.grace else { continue };
        let caught = |to: Amount| {
            let Amount::Time(grace) = to else { return Vec::new() };
            let mut changed = services.clone();
            if let Some(service) = changed.get_mut(name) {
                service.grace = Known::Known(grace);
            }
            broken(loaded, &Known::Known(changed)).difference(before).cloned().collect()
        };
        let range =
            Range { now: Amount::Time(grace), least: 0, most: Amount::Time(grace).position().saturating_mul(1000) };
        mutations.extend(range.mutate(caught).into_iter().map(|(to, caught_by)| Mutation {
            key: format!("compose.{name}.stop_grace_period"),
            from: Amount::Time(grace),
            to,
            caught_by,
            free: None,
            place: None,
        }));
    }
    mutations
}

/// Where a number may go, on its own scale.
struct Range {
    now: Amount,
    least: u64,
    most: u64,
}

impl Range {
    fn of(number: &Number) -> Self {
        let on_scale = |end: Amount, up: bool| match (number.amount, end) {
            // The scale is the number's own: whole seconds where it is written in them.
            (Amount::Time(now), Amount::Time(end)) if now.subsec_nanos() == 0 => {
                if up {
                    end.as_secs()
                } else {
                    end.as_millis().div_ceil(1000) as u64
                }
            }
            (Amount::Time(_), Amount::Time(end)) => end.as_millis() as u64,
            (_, end) => end.position(),
        };
        Self { now: number.amount, least: on_scale(number.range.0, false), most: on_scale(number.range.1, true) }
    }

    /// In each direction the nearest value that is noticed, and the farthest; where no direction has any, the farthest ones,
    /// noticed by nothing.
    fn mutate(&self, caught: impl Fn(Amount) -> Vec<String>) -> Vec<(Amount, Vec<String>)> {
        let now = self.now.position();
        let mut found = Vec::new();
        let mut ends = Vec::new();
        for end in [self.least, self.most] {
            if end == now {
                continue;
            }
            let far = caught(self.now.at(end));
            if far.is_empty() {
                ends.push((self.now.at(end), far));
                continue;
            }
            let near = nearest(now, end, |at| !caught(self.now.at(at)).is_empty());
            if near != end {
                found.push((self.now.at(near), caught(self.now.at(near))));
            }
            found.push((self.now.at(end), far));
        }
        if found.is_empty() { ends } else { found }
    }
}

/// The position nearest to `from` at which something is noticed, `to` being one.
fn nearest(from: u64, to: u64, noticed: impl Fn(u64) -> bool) -> u64 {
    let (mut quiet, mut loud) = (from, to);
    while quiet.abs_diff(loud) > 1 {
        let middle = quiet.min(loud) + quiet.abs_diff(loud) / 2;
        if noticed(middle) {
            loud = middle;
        } else {
            quiet = middle;
        }
    }
    loud
}
