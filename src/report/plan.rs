//! The plan, for people and for machines: the same value that a deploy drives.

use super::table;
use crate::event::seconds;
use crate::fleet::model::show_duration;
use crate::fleet::plan::{Plan, ServerPlan, StartsAs};
use serde_json::{Value, json};
use std::time::Duration;

/// The plan as text.
#[must_use]
pub fn plan_text(plan: &Plan) -> String {
    let mut out = String::new();
    let release = plan
        .release
        .as_ref()
        .map_or_else(|| "a release that is not known offline".to_owned(), |r| r.short().to_owned());
    if plan.batches.is_empty() {
        out.push_str(&format!("nothing to do: {release} runs on every server that is meant\n"));
        warnings(plan, &mut out);
        return out;
    }
    once(plan, &mut out);
    out.push_str(&format!("{release}, batch after batch:\n"));
    for (number, batch) in plan.batches.iter().enumerate() {
        for server in batch {
            out.push_str(&format!("\n{}. {}{}\n", number + 1, server.name, how(server)));
            out.push_str(&steps(server));
            for (service, why) in &server.asleep {
                out.push_str(&format!(
                    "   {service} sleeps ({why}): it is renewed, woken to be verified, and asleep again afterwards\n"
                ));
            }
        }
    }
    out.push('\n');
    for name in &plan.unchanged {
        out.push_str(&format!("{name}: nothing would change\n"));
    }
    for capacity in &plan.lowest_capacity {
        out.push_str(&format!(
            "lowest capacity in {}: {} of {} healthy, {} must stay\n",
            capacity.scope,
            capacity.remaining(),
            capacity.registered,
            capacity.needed
        ));
    }
    if let Some(wait) = plan.expected_wait() {
        out.push_str(&format!(
            "the server stays in rotation: the gateway holds every request until what is behind it runs again, about {}, {} at most\n",
            rounded(wait),
            rounded(plan.longest_wait.unwrap_or_default())
        ));
    }
    if let Some(saved) = plan.saved_by_nodes() {
        out.push_str(&format!(
            "proof: every node of the balancer, as the gateway counts them; that saves {} a server. Where it cannot be had, the balancer's word and a settle decide\n",
            rounded(saved)
        ));
    }
    warnings(plan, &mut out);
    out.push_str(&format!("about {} in all\n", rounded(plan.expected())));
    out
}

/// What is run before the first server, and what was.
fn once(plan: &Plan, out: &mut String) {
    let Some(once) = &plan.once else { return };
    for run in &once.run {
        let limit = show_duration(run.limit);
        let command = run.run.join(" ");
        out.push_str(&format!(
            "once, on {}: {} in {}: {command} (at most {limit})\n",
            once.server.name, run.name, run.service
        ));
    }
    for name in &once.done {
        out.push_str(&format!("once: {name} was run for this release already\n"));
    }
    out.push('\n');
}

fn warnings(plan: &Plan, out: &mut String) {
    for why in &plan.not_zero_downtime {
        out.push_str(&format!("not zero-downtime: {why}\n"));
    }
    for warning in &plan.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
}

fn how(server: &ServerPlan) -> String {
    match &server.starts_as {
        StartsAs::Serving => String::new(),
        StartsAs::Worker => ", takes no traffic".into(),
        StartsAs::Broken(why) => format!(", goes first because it is broken: {why}"),
        StartsAs::Empty => ", empty: there is nothing to go back to".into(),
        StartsAs::LeftOut(why) => format!(", left out before and coming in: {why}"),
        StartsAs::KeptOut(why) => format!(", stays out of rotation: {why}"),
    }
}

fn steps(server: &ServerPlan) -> String {
    let mut rows = vec![vec!["   step".to_owned(), "expected".to_owned(), "deadline".to_owned()]];
    for step in &server.steps {
        rows.push(vec![format!("   {}", step.step), rounded(step.expected), show_duration(step.deadline)]);
    }
    table(&rows)
}

fn rounded(duration: Duration) -> String {
    show_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) / 100 * 100))
}

/// The plan as the JSON summary has it.
#[must_use]
pub fn plan_json(plan: &Plan) -> Value {
    let servers: Vec<Value> = plan
        .servers()
        .map(|server| {
            let steps: Vec<Value> = server
                .steps
                .iter()
                .map(|s| json!({"step": s.step, "expected_seconds": seconds(s.expected), "deadline_seconds": seconds(s.deadline)}))
                .collect();
            json!({"name": server.name, "starts_as": server.starts_as, "previous": server.previous, "targets": server.targets, "asleep": server.asleep, "steps": steps})
        })
        .collect();
    json!({
        "outcome": if plan.batches.is_empty() { "nothing_to_do" } else { "planned" },
        "release": plan.release,
        "batches": plan.batches.iter().map(|batch| batch.iter().map(|s| &s.name).collect::<Vec<_>>()).collect::<Vec<_>>(),
        "once": plan.once.as_ref().map(|once| json!({
            "server": once.server.name,
            "run": once.run.iter().map(|run| &run.name).collect::<Vec<_>>(),
            "done": once.done,
        })),
        "servers": servers,
        "unchanged": plan.unchanged,
        "lowest_capacity": plan.lowest_capacity,
        "not_zero_downtime": plan.not_zero_downtime,
        "warnings": plan.warnings,
        "proof": match (plan.saved_by_nodes(), plan.drain.by.hold()) {
            (Some(_), _) => "nodes",
            (None, Some(_)) => "hold",
            (None, None) => "word",
        },
        "saved_by_nodes_seconds": plan.saved_by_nodes().map(seconds),
        "held_seconds": plan.expected_wait().map(seconds),
        "held_seconds_at_most": plan.longest_wait.map(seconds),
        "expected_seconds": seconds(plan.expected()),
    })
}
