//! Whether every node has let go of a server, or taken it back, by what it was told.
//!
//! A proof is given or it is not: whatever cannot be told (two nodes behind one address, a node that fell silent, a checker that
//! cannot be told from another) is no proof, and then the balancer's word and a settle decide as they do everywhere else. Neither is
//! the balancer's own word ever overruled by a count.

use super::count::{self, NodeSeen, NodesSeen, Origin, Told};
use crate::fleet::model::{HealthSettings, Network, show_duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// A node that was heard of within so many intervals may still send requests, although it is silent.
const SILENT: u32 = 10;
/// Of an interval: checks come so much later than they should ("approximately", says the AWS user guide).
const LATER: u32 = 4;
/// So many requests must have been expected before their absence says anything: by chance none of twelve comes in once in 160,000 runs.
pub const ENOUGH: f64 = 12.0;
/// Our own looks at the health path.
const OURSELVES: &str = "handover";

/// Whoever checks by these numbers is heard of again within.
#[must_use]
pub fn window(settings: &HealthSettings) -> Duration {
    settings.interval + settings.timeout + settings.interval / LATER
}

/// Whom to count, and by which numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The path of the group's health check, the query included.
    pub path: String,
    /// Its port, where another group of the server checks the same path.
    pub port: Option<u16>,
    /// The numbers of the check.
    pub settings: HealthSettings,
    /// Where the balancer's nodes are; nothing: anywhere but on this machine.
    pub from: Vec<Network>,
    /// How the balancer's `User-Agent` begins, where it has one of its own.
    pub agent: Option<String>,
}

/// How a balancer reads its threshold: sources differ (facts on AWS: "consecutive" in the API reference, "exceeds" in one sentence of
/// the user guide).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Not seen yet: it is waited until the requests of the nodes tell, at most for one more check of each.
    #[default]
    Unknown,
    /// So many checks, and not one more: seen in the traffic of this run.
    Exact,
    /// One check more, because requests came meanwhile or because there were too few to tell.
    OneMore,
}

/// What the counts say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// These nodes were all told often enough.
    Proved(BTreeSet<IpAddr>),
    /// Somebody was not, and who.
    NotYet(String),
    /// Nothing can be proved by counting, and why.
    Nothing(String),
}

impl Rule {
    /// Whoever checks is heard of again within.
    #[must_use]
    pub fn window(&self) -> Duration {
        window(&self.settings)
    }

    /// So many answers in a row make a node decide.
    #[must_use]
    pub fn needed(&self, wanted: Told, reading: Reading) -> u32 {
        let threshold = match wanted {
            Told::Out => self.settings.unhealthy,
            Told::In => self.settings.healthy,
        };
        threshold + u32::from(reading != Reading::Exact)
    }

    fn is_asked(&self, node: &NodeSeen) -> bool {
        node.path == self.path
            && self.port.is_none_or(|port| node.port == port)
            && self.agent.as_ref().is_none_or(|agent| node.agent.starts_with(agent))
            && !node.agent.starts_with(OURSELVES)
    }

    fn is_named(&self, node: &NodeSeen) -> bool {
        self.from.iter().any(|network| network.holds(node.address))
    }

    /// The checkers that count, or why none can.
    ///
    /// # Errors
    /// A sentence why counting proves nothing.
    pub fn nodes<'a>(&self, seen: &'a NodesSeen) -> Result<Vec<&'a NodeSeen>, String> {
        if seen.more {
            return Err("more addresses ask for its health than can be told apart".into());
        }
        let mut nodes = Vec::new();
        for node in seen.nodes.iter().filter(|node| self.is_asked(node)) {
            let named = self.is_named(node);
            if let (Some(what), false) = (hides(node.origin), named) {
                return Err(format!(
                    "checks come from {} ({what}), behind which nodes cannot be told apart",
                    node.address
                ));
            }
            let sends = node.usual.requests > 0 || node.after.iter().any(|requests| *requests > 0);
            match (self.from.is_empty() || named, sends) {
                (true, _) => nodes.push(node),
                (false, false) => {}
                (false, true) => {
                    let message =
                        "asks and sends like a node of the balancer, and is in no network of `drain.nodes.from`";
                    return Err(format!("{} {message}", node.address));
                }
            }
        }
        if let Some(node) = nodes.iter().find(|node| self.is_merged(node)) {
            return Err(format!("more than one checker is behind {}: it asks too often for one", node.address));
        }
        Ok(nodes)
    }

    fn is_merged(&self, node: &NodeSeen) -> bool {
        node.gaps.is_some_and(|gaps| gaps.least < self.settings.interval / 2)
    }
}

fn hides(origin: Origin) -> Option<&'static str> {
    match origin {
        Origin::Machine => None,
        Origin::Itself => Some("the server itself"),
        Origin::Bridge => Some("the way out of its own network"),
        Origin::Proxy => Some("a trusted proxy"),
    }
}

/// Judges what was counted `late` ago. `known` are nodes that were seen earlier in the run, by a process that may be gone.
#[must_use]
pub fn judge(
    seen: &NodesSeen,
    late: Duration,
    rule: &Rule,
    wanted: Told,
    reading: Reading,
    known: &BTreeSet<IpAddr>,
) -> Judged {
    let nodes = match rule.nodes(seen) {
        Ok(nodes) => nodes,
        Err(why) => return Judged::Nothing(why),
    };
    let remembered = rule.settings.interval * SILENT;
    let heard: Vec<&NodeSeen> = nodes.into_iter().filter(|node| node.age + late <= remembered).collect();
    if heard.is_empty() {
        return Judged::Nothing(format!("nobody was seen to ask for {}", rule.path));
    }
    if seen.up < rule.window() {
        return Judged::NotYet(format!("it has counted for {} only", show_duration(whole(seen.up))));
    }
    let missing = known.iter().find(|address| !heard.iter().any(|node| node.address == **address));
    let silent = heard.iter().find(|node| node.age + late > rule.window()).map(|node| node.address);
    if let Some(address) = silent.or_else(|| missing.copied()) {
        return Judged::NotYet(format!("node {address} has fallen silent, and may still have its own view"));
    }
    let needed = rule.needed(wanted, reading);
    let told = |node: &NodeSeen| if node.told == wanted { node.row } else { 0 };
    if let Some(node) = heard.iter().find(|node| told(node) < needed) {
        return Judged::NotYet(format!("node {} was told {} of {needed} times", node.address, told(node)));
    }
    if let (Told::Out, Some(node)) = (wanted, heard.iter().find(|node| since(node, needed) > 0)) {
        return Judged::NotYet(format!("requests still come from node {}", node.address));
    }
    Judged::Proved(heard.iter().map(|node| node.address).collect())
}

/// Real requests after the so-manyth answer of the row.
fn since(node: &NodeSeen, answers: u32) -> u32 {
    node.after.iter().skip(answers.saturating_sub(1) as usize).sum()
}

/// How the balancer reads its threshold, by the requests after the threshold and before one check more; `None` while that cannot be
/// said. All nodes of a balancer read it alike, so what each of them did not send counts together.
#[must_use]
pub fn read(seen: &NodesSeen, rule: &Rule, before: Reading) -> Option<Reading> {
    let mut nodes = rule.nodes(seen).ok()?;
    nodes.retain(|node| node.age <= rule.window());
    let threshold = rule.settings.unhealthy;
    let told = |node: &&NodeSeen| node.told == Told::Out && node.row >= threshold;
    if nodes.iter().any(|node| told(node) && since(node, threshold) > 0) {
        return Some(Reading::OneMore);
    }
    if before != Reading::Unknown || nodes.is_empty() || !nodes.iter().all(told) {
        return None;
    }
    let expected: f64 = nodes.iter().map(|node| missed(node, rule)).sum();
    if expected >= ENOUGH {
        return Some(Reading::Exact);
    }
    nodes.iter().all(|node| node.row > threshold).then_some(Reading::OneMore)
}

/// How many requests a node would have sent between the threshold and one check more, if it had gone on as before.
fn missed(node: &NodeSeen, rule: &Rule) -> f64 {
    if node.usual.over.is_zero() {
        return 0.0;
    }
    let open = if node.row > rule.settings.unhealthy { rule.settings.interval } else { node.age };
    let counted = open.saturating_sub(count::ON_ITS_WAY).as_secs_f64();
    f64::from(node.usual.requests) / node.usual.over.as_secs_f64() * counted
}

/// When the last node will have been told often enough, if all ask as they did; from the moment of counting on.
#[must_use]
pub fn due(seen: &NodesSeen, rule: &Rule, wanted: Told, reading: Reading) -> Option<Duration> {
    let needed = rule.needed(wanted, reading);
    let nodes = rule.nodes(seen).ok()?;
    let interval = rule.settings.interval;
    let one = |node: &NodeSeen| {
        let left = needed.saturating_sub(if node.told == wanted { node.row } else { 0 });
        (interval * left).saturating_sub(node.age.min(interval))
    };
    nodes.into_iter().filter(|node| node.age <= rule.window()).map(one).max()
}

fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}
