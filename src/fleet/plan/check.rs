//! A second reader of the plan, which knows nothing of how it was made: what it finds is a fault of the planner.

use super::{Aim, Plan, ServerPlan, StartsAs, Step};
use crate::fleet::model::{DrainBy, Fleet, Hook, ServerName};
use std::collections::{BTreeMap, BTreeSet};

/// Something wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The server concerned, where it is one.
    pub server: Option<ServerName>,
    /// What is wrong.
    pub what: String,
}

/// Reads a plan; an empty answer means that it may be driven.
#[must_use]
pub fn check(fleet: &Fleet, plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    each_server_once(fleet, plan, &mut notes);
    let most = fleet.rolling.batch.of(fleet.servers.len());
    if let Some(batch) = plan.batches.iter().find(|batch| batch.len() > most || batch.is_empty()) {
        notes.push(Note { server: None, what: format!("a batch of {} where 1 to {most} are allowed", batch.len()) });
    }
    if let Some(once) = &plan.once {
        let server = Some(once.server.name.clone());
        notes.extend(super::once::faults(once).into_iter().map(|what| Note { server: server.clone(), what }));
    }
    for server in plan.servers() {
        steps_in_order(plan, server, &mut notes);
        every_hook(fleet, server, &mut notes);
        every_target(fleet, server, &mut notes);
    }
    if !plan.unguarded {
        for capacity in &plan.lowest_capacity {
            let floor = fleet.rolling.min_healthy.max(1);
            if capacity.leaving > 0 && capacity.remaining() < floor {
                notes.push(Note {
                    server: None,
                    what: format!("{} would keep {} healthy, {floor} must stay", capacity.scope, capacity.remaining()),
                });
            }
        }
    }
    notes
}

fn each_server_once(fleet: &Fleet, plan: &Plan, notes: &mut Vec<Note>) {
    let mut times: BTreeMap<&ServerName, u32> = BTreeMap::new();
    for name in plan.servers().map(|s| &s.name).chain(&plan.unchanged) {
        *times.entry(name).or_default() += 1;
    }
    for (name, times) in times {
        if times > 1 {
            notes.push(Note { server: Some(name.clone()), what: format!("is in the plan {times} times") });
        }
        if fleet.server(name).is_none() {
            notes.push(Note { server: Some(name.clone()), what: "is not in deploy.toml".into() });
        }
    }
}

/// What must stand before a stop, and in which order everything stands.
fn steps_in_order(plan: &Plan, server: &ServerPlan, notes: &mut Vec<Note>) {
    let mut note = |what: String| notes.push(Note { server: Some(server.name.clone()), what });
    let order: Vec<Step> = server.steps.iter().map(|s| s.step).collect();
    if !order.is_sorted() || order.iter().collect::<BTreeSet<_>>().len() != order.len() {
        note(format!("its steps are out of order: {order:?}"));
    }
    let has = |step| order.contains(&step);
    for what in deadlines(server) {
        note(what);
    }
    if plan.aim != Aim::Deploy {
        return brings_nothing(plan, server, &order).into_iter().for_each(note);
    }
    for step in [Step::Lock, Step::Start, Step::Verify, Step::Switch, Step::Unlock] {
        if !has(step) {
            note(format!("has no step `{step}`"));
        }
    }
    if !server.asleep.is_empty() && !has(Step::Sleep) {
        note("would leave awake what sleeps".into());
    }
    if plan.drain.by.hold().is_some() {
        return held(plan, server, &order).into_iter().for_each(note);
    }
    if has(Step::Stop) && !server.targets.is_empty() {
        if !has(Step::Guard) || !has(Step::GuardAgain) {
            note("would stop without a guard before it".into());
        }
        let watched = plan.drain.by == DrainBy::Sigterm;
        if server.starts_as.needs_drain() && !watched && !(has(Step::Flip) && has(Step::Out) && has(Step::Settle)) {
            note("would stop while the balancer may still pick it".into());
        }
    }
    if server.starts_as.comes_in() && !server.targets.is_empty() && !(has(Step::In) && has(Step::SettleIn)) {
        note("would not be waited for until it is back in rotation".into());
    }
}

/// Where a gateway holds, whatever is behind it: nothing stops before it holds and is empty, it lets go again, and its own turn comes
/// last.
fn held(plan: &Plan, server: &ServerPlan, order: &[Step]) -> Vec<String> {
    let has = |step| order.contains(&step);
    let mut wrong = Vec::new();
    if has(Step::Stop) && !(has(Step::Flip) && has(Step::Out)) {
        wrong.push("would stop what the gateway may still send to".to_owned());
    }
    if has(Step::Flip) && !has(Step::Back) && !matches!(server.starts_as, StartsAs::KeptOut(_)) {
        wrong.push("would let requests wait for ever".to_owned());
    }
    if !server.targets.is_empty() && has(Step::Back) && !has(Step::In) {
        wrong.push("would not be waited for until it is back in rotation".to_owned());
    }
    if has(Step::Stop) && plan.drain.by.hands_over().is_some() && !has(Step::HandOver) {
        wrong.push("would leave the gateway of the release before".to_owned());
    }
    wrong
}

/// What the team wants to be run is run.
fn every_hook(fleet: &Fleet, server: &ServerPlan, notes: &mut Vec<Note>) {
    let has = |step| server.step(step).is_some();
    let leaves = has(Step::Out) || (has(Step::Stop) && server.starts_as.needs_drain() && !server.targets.is_empty());
    let due = [(Hook::PreDrain, Step::PreDrain, leaves), (Hook::PostServer, Step::PostServer, true)];
    let missing = due.iter().filter(|(hook, step, due)| *due && fleet.hooks.get(*hook).is_some() && !has(*step));
    notes.extend(
        missing.map(|(_, step, _)| Note { server: Some(server.name.clone()), what: format!("has no step `{step}`") }),
    );
}

fn deadlines(server: &ServerPlan) -> Vec<String> {
    let wrong = server.steps.iter().filter(|step| step.deadline.is_zero() || step.deadline < step.expected);
    wrong.map(|step| format!("`{}` is expected to take longer than its deadline", step.step)).collect()
}

/// What a plan must hold that takes a server out or brings it back, and what it must leave alone.
fn brings_nothing(plan: &Plan, server: &ServerPlan, order: &[Step]) -> Vec<String> {
    let has = |step: &Step| order.contains(step);
    let mut wrong: Vec<String> = Vec::new();
    if plan.servers().count() != 1 {
        wrong.push("is not the only one that leaves or comes back".into());
    }
    let serves = server.starts_as == StartsAs::Serving && !server.targets.is_empty();
    let holds = plan.drain.by.hold().is_some();
    let needed: &[Step] = match &plan.aim {
        Aim::Drain(_) if holds && serves => &[Step::Lock, Step::Flip, Step::Out, Step::Unlock],
        Aim::Undrain if holds => &[Step::Lock, Step::Verify, Step::Back, Step::Unlock],
        Aim::Drain(_) if serves => &[Step::Guard, Step::Lock, Step::Flip, Step::Out, Step::Settle, Step::Unlock],
        Aim::Undrain if !server.targets.is_empty() => {
            &[Step::Lock, Step::Verify, Step::Back, Step::In, Step::SettleIn, Step::Unlock]
        }
        Aim::Undrain => &[Step::Lock, Step::Verify, Step::Unlock],
        _ => &[Step::Lock, Step::Unlock],
    };
    wrong.extend(needed.iter().filter(|step| !has(step)).map(|step| format!("has no step `{step}`")));
    let mut changes = vec![Step::GuardAgain, Step::Stop, Step::Start, Step::Switch, Step::Sleep, Step::HandOver];
    changes.extend(if plan.aim == Aim::Undrain { [Step::Flip, Step::Out] } else { [Step::Back, Step::In] });
    wrong.extend(changes.iter().filter(|step| has(step)).map(|step| format!("has a step `{step}`")));
    wrong
}

fn every_target(fleet: &Fleet, server: &ServerPlan, notes: &mut Vec<Note>) {
    let Some(configured) = fleet.server(&server.name) else { return };
    for (group, specs) in &configured.targets {
        for spec in specs {
            if !server.targets.iter().any(|t| &t.group == group && t.id == spec.id) {
                notes.push(Note {
                    server: Some(server.name.clone()),
                    what: format!("its target {} in {group} is not waited for", spec.id),
                });
            }
        }
    }
}
