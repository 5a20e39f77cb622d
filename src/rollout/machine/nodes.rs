//! Asks a server who checks its health, and says whether every node has let go of it, or taken it back.
//!
//! It only ever shortens a settle: without a proof the balancer's word and the clock decide, as they do where nobody counts.

use super::polls::APART;
use super::track::Track;
use super::{Cx, Protection};
use crate::clock::Stamp;
use crate::event::{Event, NodeTold};
use crate::fleet::model::{GroupName, Known};
use crate::fleet::nodes::{self, Judged, NodesSeen, Reading, Rule, Told};
use crate::fleet::plan::Step;
use crate::rollout::port::ServerError;
use crate::server::wire::{Reply, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// An answer must come within; what is asked answers on its own machine.
const WITHIN: Duration = Duration::from_secs(5);
/// Between two questions at the least, and at the most while a node is expected to ask only later.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// A check that is due has been answered so soon.
const ANSWERED: Duration = Duration::from_millis(50);

/// What is known of the nodes of one server.
#[derive(Debug, Default)]
pub(super) struct NodeWatch {
    ticket: Option<u64>,
    again: Option<Stamp>,
    /// When the last node will have been told, if all ask as they did.
    due: Option<Stamp>,
    /// The last answer, and when it was asked for.
    seen: Option<(Stamp, Known<NodesSeen>)>,
    asked: Stamp,
    /// The nodes that let go, by group: whoever is missing on the way back may only be silent.
    known: BTreeMap<GroupName, BTreeSet<IpAddr>>,
    proved: BTreeMap<Told, usize>,
    told: Vec<NodeTold>,
    warned: bool,
}

impl NodeWatch {
    pub(super) fn takes(&self, ticket: u64) -> bool {
        self.ticket == Some(ticket)
    }

    /// When the next question is due.
    pub(super) fn next(&self) -> Option<Stamp> {
        self.again.filter(|_| self.ticket.is_none())
    }

    /// Nobody waits for nodes now.
    pub(super) fn rest(&mut self) {
        (self.again, self.due) = (None, None);
    }

    /// When to ask the balancer that is wanted at a moment: not so shortly before the nodes are through that it could not be asked
    /// again when they are.
    pub(super) fn in_step(&self, wanted: Stamp) -> Stamp {
        self.due.filter(|due| wanted < *due && due.since(wanted) < APART).unwrap_or(wanted)
    }

    /// What proved a settle, where that was the nodes.
    pub(super) fn proof(&self, wanted: Told) -> Option<String> {
        let nodes = self.proved.get(&wanted)?;
        Some(format!("all of {nodes} nodes were told"))
    }

    /// Whether the nodes proved it.
    pub(super) fn has_proved(&self, wanted: Told) -> bool {
        self.proved.contains_key(&wanted)
    }
}

impl Track {
    /// Asks, where the next question is due: every look of a step that waits for nodes begins with it, or its time would never pass.
    pub(super) fn ask_nodes(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        if cx.setup.plan.drain.by.nodes().is_none() || self.plan.targets.is_empty() || self.nodes.ticket.is_some() {
            return;
        }
        let again = *self.nodes.again.get_or_insert(now);
        if now >= again {
            self.nodes.asked = now;
            self.nodes.ticket = Some(cx.call(&self.plan.name, Request::Nodes, WITHIN));
        }
    }

    /// The answer, or none.
    pub(super) fn nodes_told(&mut self, cx: &mut Cx<'_>, now: Stamp, result: Result<Reply, ServerError>) {
        self.nodes.ticket = None;
        let seen = match result {
            Ok(Reply::Nodes(seen)) => seen,
            Ok(_) => Known::Unknown("an answer that does not belong to it".into()),
            Err(error) => Known::Unknown(error.to_string()),
        };
        let wanted = match self.step().map(|step| step.step) {
            Some(Step::Out | Step::Settle) => Told::Out,
            Some(Step::In | Step::SettleIn) => Told::In,
            _ => return,
        };
        let mut due = None;
        if let Known::Known(seen) = &seen {
            let rules = self.rules(cx);
            if wanted == Told::Out && !cx.setup.lacks(Protection::Nodes) {
                for rule in rules.values() {
                    *cx.reading = nodes::read(seen, rule, *cx.reading).unwrap_or(*cx.reading);
                }
            }
            due = rules.values().filter_map(|rule| nodes::due(seen, rule, wanted, *cx.reading)).max();
            self.tell_nodes(cx, seen, &rules, wanted);
        }
        self.nodes.seen = Some((self.nodes.asked, seen));
        self.nodes.due = due.map(|due| now + due + ANSWERED);
        let wait = due.map_or(AGAIN.1, |due| (due + ANSWERED).clamp(AGAIN.0, AGAIN.1));
        self.nodes.again = Some(now + wait);
    }

    fn rules(&self, cx: &Cx<'_>) -> BTreeMap<GroupName, Rule> {
        let Some(count) = cx.setup.plan.drain.by.nodes() else { return BTreeMap::new() };
        let own: Vec<_> = self.own_groups().into_iter().filter_map(|name| cx.setup.fleet.group(&name)).collect();
        let rule = |group: &&crate::fleet::model::Group| {
            let settings = cx.setup.plan.groups.get(&group.name)?.settings;
            let path = group.health.path.clone();
            let twins = own.iter().filter(|other| other.health.path == path).count();
            let port = (twins > 1).then(|| group.health.port.unwrap_or(group.port));
            let (from, agent) = (count.from.clone(), count.agent.clone());
            Some((group.name.clone(), Rule { path, port, settings, from, agent }))
        };
        own.iter().filter_map(rule).collect()
    }

    fn tell_nodes(&mut self, cx: &mut Cx<'_>, seen: &NodesSeen, rules: &BTreeMap<GroupName, Rule>, wanted: Told) {
        let mut told = Vec::new();
        for (group, rule) in rules {
            let needed = rule.needed(wanted, *cx.reading);
            for node in rule.nodes(seen).unwrap_or_default() {
                let times = if node.told == wanted { node.row } else { 0 };
                told.push(NodeTold { group: group.clone(), address: node.address, told: wanted, times, needed });
            }
        }
        if told != self.nodes.told {
            cx.say(Event::Nodes { server: self.plan.name.clone(), reading: *cx.reading, nodes: told.clone() });
            self.nodes.told = told;
        }
    }

    /// Whether every node of every group of this server was told often enough; asks on where it was not.
    pub(super) fn told_by_nodes(&mut self, cx: &mut Cx<'_>, now: Stamp, wanted: Told) -> bool {
        if cx.setup.plan.drain.by.nodes().is_none() {
            return false;
        }
        let rules = self.rules(cx);
        let judged = self.judge_nodes(cx, now, wanted, &rules);
        match judged {
            Judged::Proved(nodes) => {
                self.nodes.proved.insert(wanted, nodes.len());
                true
            }
            Judged::NotYet(why) => {
                self.seen = why;
                false
            }
            Judged::Nothing(why) => {
                if !std::mem::replace(&mut self.nodes.warned, true) {
                    let what = format!("not proved node by node: {why}; the balancer's word and a settle decide");
                    cx.warn(&self.plan.name, what);
                }
                false
            }
        }
    }

    fn judge_nodes(&mut self, cx: &Cx<'_>, now: Stamp, wanted: Told, rules: &BTreeMap<GroupName, Rule>) -> Judged {
        let (asked, seen) = match &self.nodes.seen {
            Some((asked, Known::Known(seen))) if *asked >= self.nodes_since(wanted) => (*asked, seen),
            Some((_, Known::Unknown(why))) => return Judged::Nothing(why.clone()),
            _ => return Judged::NotYet("nobody has said yet who checks".into()),
        };
        if rules.is_empty() {
            return Judged::Nothing("deploy.toml names no group that is checked here".into());
        }
        let mut all = BTreeSet::new();
        for (group, rule) in rules {
            let none = BTreeSet::new();
            let known = self.nodes.known.get(group).filter(|_| wanted == Told::In).unwrap_or(&none);
            let judged = if cx.setup.lacks(Protection::Nodes) {
                anybody(seen, rule, wanted)
            } else {
                nodes::judge(seen, now.since(asked), rule, wanted, *cx.reading, known)
            };
            match judged {
                Judged::Proved(nodes) => {
                    if wanted == Told::Out {
                        self.nodes.known.insert(group.clone(), nodes.clone());
                    }
                    all.extend(nodes);
                }
                other => return other,
            }
        }
        Judged::Proved(all)
    }

    /// What was counted before is of another row.
    fn nodes_since(&self, wanted: Told) -> Stamp {
        match wanted {
            Told::Out => self.moments.flipped.unwrap_or(self.entered),
            Told::In => self.moments.back.unwrap_or(self.entered),
        }
    }
}

/// What a count would be that forgets whom it counts: for the simulation, which finds out what becomes of that.
fn anybody(seen: &NodesSeen, rule: &Rule, wanted: Told) -> Judged {
    let enough = rule.needed(wanted, Reading::Exact);
    let node = seen.nodes.iter().find(|node| node.told == wanted && node.row >= enough);
    node.map_or(Judged::NotYet("nobody was told".into()), |node| Judged::Proved([node.address].into()))
}
