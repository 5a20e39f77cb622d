//! Events as lines for people.

use super::{Level, measured, table};
use crate::diag::Problem;
use crate::event::{
    Course, Event, GatewayState, HookState, Line, Mark, NodeTold, Requests, ServerOutcome, StepState, Summary, Took,
};
use crate::fleet::model::{ServerName, show_duration};
use crate::fleet::plan::Purpose;
use serde_json::Value;
use std::time::Duration;

/// So many single losses are shown to people.
const LOSSES: usize = 5;

/// The line for an event at a level; `bars` show what is under way by themselves.
pub(super) fn line(line: &Line, level: Level, bars: bool) -> Option<String> {
    let at = format!("{:>7.1}s", line.at);
    let text = match &line.event {
        Event::Warning { server, what } => format!("{at}  warning: {}{what}", prefix(server.as_ref())),
        Event::Step { server, step, state: StepState::Failed, detail, course, .. } => {
            format!(
                "{at}  {server}  {step} failed{}: {}",
                on_course(*course),
                detail.as_deref().unwrap_or("no reason given")
            )
        }
        Event::Hook { hook, state: HookState::Failed, what, .. } => {
            format!("{at}  warning: hooks.{hook} failed: {}", what.as_deref().unwrap_or("no reason given"))
        }
        Event::Gateway { state: GatewayState::ReloadRefused, what } => format!("{at}  warning: {what}"),
        Event::Summary(summary) => self::summary(summary, level),
        Event::ServerDone { server, what, outcome, took } if level > Level::Quiet => {
            format!("{at}  {server}  {}{what}{}", mark(*outcome), parts(took))
        }
        _ if level == Level::Quiet => return None,
        Event::Lab { control_plane, nodes, services } => {
            format!(
                "{at}  lab: {} nodes at {}, the balancer's API at {control_plane}, {} services",
                nodes.len(),
                nodes.join(", "),
                services.len()
            )
        }
        Event::Preflight { server, what } => format!("{at}  {}{what}", prefix(server.as_ref())),
        Event::Began { release, expected_seconds, purpose: purpose @ (Purpose::Drain | Purpose::Undrain), .. } => {
            let about = show_duration(Duration::from_secs_f64(expected_seconds.round()));
            let what = if *purpose == Purpose::Drain { "leaves rotation" } else { "comes back" };
            format!("{at}  a server with {} {what}, about {about}", release.short())
        }
        Event::Began { release, label, servers, unchanged, expected_seconds, .. } => {
            let label = label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
            let same = if *unchanged > 0 { format!(", {unchanged} unchanged") } else { String::new() };
            let about = show_duration(Duration::from_secs_f64(expected_seconds.round()));
            format!("{at}  {}{label} to {servers} servers{same}, about {about}", release.short())
        }
        Event::Step { state: StepState::Proved, .. } if bars && level < Level::Verbose => return None,
        Event::Step { server, step, state: StepState::Proved, seconds, detail, course, .. } => {
            let detail = detail.as_ref().map(|detail| format!("  {detail}")).unwrap_or_default();
            format!("{at}  {server}  {:<12}{seconds:>7.1}s{}{detail}", step.word(), on_course(*course))
        }
        Event::Nodes { server, nodes, .. } if level == Level::Verbose => {
            let one = |node: &NodeTold| format!("{} {}/{}", node.address, node.times, node.needed);
            format!("{at}  {server}  nodes told: {}", nodes.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        Event::Hook { hook, server, state: HookState::Said, what, .. } => {
            format!("{at}  {}{hook} | {}", prefix(server.as_ref()), what.as_deref().unwrap_or_default())
        }
        Event::Hook { hook, state: HookState::Done, seconds, .. } => format!("{at}  hooks.{hook} done ({seconds:.1}s)"),
        Event::Waiting { server, step, what } if level == Level::Verbose => format!("{at}  {server}  {step}: {what}"),
        Event::Step { server, step, .. } if level == Level::Verbose => format!("{at}  {server}  {step} ..."),
        Event::Requests { counts } if level == Level::Verbose => format!("{at}  {}", requests(counts)),
        Event::Second(second) => format!("{at}  {}", measured::second(second)),
        Event::Provisioned { at: place, settings } => {
            let parts: Vec<String> = settings.iter().map(|(key, from, to)| format!("{key} {from} -> {to}")).collect();
            format!("{at}  {place} changed, as it says itself: {}", parts.join(", "))
        }
        Event::Gateway { what, .. } => format!("{at}  {what}"),
        Event::Mark { mark, label } => {
            let what = if *mark == Mark::Begin { "began" } else { "ended" };
            let label = label.as_ref().map_or_else(|| "a deploy".to_owned(), |label| format!("deploy {label}"));
            format!("{at}  {label} {what}")
        }
        _ => return None,
    };
    Some(text)
}

fn prefix(server: Option<&ServerName>) -> String {
    server.map(|server| format!("{server}: ")).unwrap_or_default()
}

fn mark(outcome: ServerOutcome) -> &'static str {
    match outcome {
        ServerOutcome::Deployed | ServerOutcome::Unchanged | ServerOutcome::Drained | ServerOutcome::Undrained => "",
        ServerOutcome::LeftOut | ServerOutcome::Unknown => "needs a hand: ",
        _ => "undone: ",
    }
}

fn on_course(course: Course) -> &'static str {
    match course {
        Course::Forward => "",
        Course::FlipBack => " (flipping back)",
        Course::RollBack => " (rolling back)",
        Course::LeaveStopped => " (leaving it stopped)",
        Course::LeaveOut => " (leaving it out)",
        Course::Finish => " (finishing)",
    }
}

fn parts(took: &Took) -> String {
    let total: f64 = values(took).into_iter().flatten().sum();
    if total > 0.0 { format!(" ({total:.1}s)") } else { String::new() }
}

fn values(took: &Took) -> [Option<f64>; 8] {
    [took.out, took.settle_out, took.stop, took.start, took.stable, took.sleep, took.in_, took.settle_in]
}

/// The table per server: how long each part took.
#[must_use]
pub(super) fn took_table(rows: &[(ServerName, Took)]) -> String {
    let head = ["out", "settle", "stop", "start", "stable", "sleep", "in", "settle"];
    // Where nothing sleeps there is nothing to say about it.
    let shown = |part: &str| part != "sleep" || rows.iter().any(|(_, took)| took.sleep.is_some());
    let first = |name: &str| vec![name.to_owned()];
    let mut lines: Vec<Vec<String>> = vec![first("server")];
    lines[0].extend(head.iter().filter(|part| shown(part)).map(ToString::to_string));
    for (server, took) in rows {
        let cells = head.iter().zip(values(took)).filter(|(part, _)| shown(part));
        let cells = cells.map(|(_, took)| took.map_or_else(|| "-".to_owned(), |took| format!("{took:.1}s")));
        lines.push(first(server.as_str()).into_iter().chain(cells).collect());
    }
    table(&lines)
}

pub(super) fn requests(counts: &Requests) -> String {
    let mut parts = vec![format!("{} served", counts.served)];
    let more = [
        (counts.app_errors, "app errors"),
        (counts.drain_signals, "drain signals"),
        (counts.client_gone, "given up by the client"),
        (counts.cut_short, "cut short"),
    ];
    parts.extend(more.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")));
    format!("{} requests: {}, {} reached nowhere", counts.total, parts.join(", "), counts.nowhere)
}

fn summary(summary: &Summary, level: Level) -> String {
    let mut out = String::new();
    if level > Level::Quiet && !summary.took.is_empty() {
        out.push_str(&took_table(&summary.took));
    }
    match &summary.requests {
        Some(counts) => out.push_str(&format!("{}\n", requests(counts))),
        None => out.push_str("losses not measured\n"),
    }
    let release = summary.release.as_ref().map(|release| format!(" {}", release.short())).unwrap_or_default();
    out.push_str(&format!("{}{release}: {} servers", summary.outcome.replace('_', " "), summary.servers));
    if summary.floor_seconds > 0.0 {
        let ratio = summary.seconds / summary.floor_seconds;
        out.push_str(&format!(
            ", {:.1}s against a floor of {:.1}s ({ratio:.2})",
            summary.seconds, summary.floor_seconds
        ));
    }
    for (name, value) in &summary.more {
        out.push_str(&format!("\n{}", more(name, value)));
    }
    out
}

/// What a rehearsal adds, in words.
fn more(name: &str, value: &Value) -> String {
    let number = |pointer: &str| value.pointer(pointer).cloned().unwrap_or_default();
    match (name, value) {
        ("speed", _) => format!("played {value} times as fast as the wall clock"),
        ("delay_ms", _) => format!("the lab was late by {} ms at p99, {} ms at most", number("/p99"), number("/max")),
        ("truth", _) => {
            let mut out = format!(
                "by the balancer's own log {} requests, {} reached nowhere",
                number("/total"),
                number("/nowhere")
            );
            for (cause, count) in value.get("causes").and_then(Value::as_object).into_iter().flatten() {
                out.push_str(&format!("\n  {count}: {cause}"));
            }
            out
        }
        (name, Value::Array(all)) => {
            let mut out = format!("{name}:");
            all.iter().take(LOSSES).for_each(|one| out.push_str(&format!("\n  {one}")));
            if all.len() > LOSSES {
                out.push_str(&format!("\n  and {} more; --output json has them all", all.len() - LOSSES));
            }
            out
        }
        (name, value) => format!("{name}: {value}"),
    }
}

/// What went wrong, with what to do about it.
pub(super) fn problem(problem: &Problem) -> String {
    let mut out = String::new();
    for (at, line) in problem.message.lines().enumerate() {
        out.push_str(if at == 0 { "error: " } else { "       " });
        out.push_str(line);
        out.push('\n');
    }
    for line in &problem.output {
        out.push_str(&format!("     | {line}\n"));
    }
    for line in problem.hint.iter().flat_map(|hint| hint.lines()) {
        out.push_str(&format!(" hint: {line}\n"));
    }
    out
}
