//! How a run ended: one word, one exit code, what was left where, and how long it took against what it must take.

use super::track::{Cause, CauseKind, Track};
use super::{Machine, secs};
use crate::diag::{Exit, Problem};
use crate::event::{Course, Floor, ServerOutcome, Took};
use crate::fleet::model::ServerName;
use crate::fleet::nodes::Told;
use crate::fleet::plan::Aim;
use crate::fleet::timing;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// In one word.
    pub outcome: &'static str,
    /// What went wrong; `None` where nothing did.
    pub problem: Option<Problem>,
    /// How each server ended.
    pub each: BTreeMap<ServerName, ServerOutcome>,
    /// How long each server's parts took, in the order in which they were worked on.
    pub took: Vec<(ServerName, Took)>,
    /// From the first server's lock to the last `in`, in seconds.
    pub seconds: f64,
    /// The terms of what it takes at the least.
    pub floor: Floor,
}

pub(super) fn ending(machine: &Machine) -> Ending {
    let each = each(machine);
    let (outcome, problem) = verdict(machine, &each);
    let seconds = match (machine.first_lock, machine.last_in) {
        (Some(from), Some(to)) => secs(to.since(from)),
        _ => 0.0,
    };
    let worked = machine.finished.iter().filter(|track| !track.is_aside());
    let took = worked.map(|track| (track.plan.name.clone(), track.took)).collect();
    Ending { outcome, problem, each, took, seconds, floor: floor(machine) }
}

fn each(machine: &Machine) -> BTreeMap<ServerName, ServerOutcome> {
    let setup = &machine.setup;
    let mut each: BTreeMap<ServerName, ServerOutcome> = BTreeMap::new();
    for name in setup.plan.servers().map(|server| &server.name) {
        each.insert(name.clone(), ServerOutcome::Untouched);
    }
    for name in &setup.plan.unchanged {
        each.insert(name.clone(), ServerOutcome::Unchanged);
    }
    for track in machine.finished.iter().chain(&machine.tracks) {
        // Who leaves in the middle does not know what becomes of it: its own agent puts it right.
        let Some(outcome) = track.outcome.or(track.locked.then_some(ServerOutcome::Unknown)) else { continue };
        let slot = each.entry(track.plan.name.clone()).or_insert(outcome);
        if !track.is_aside() || outcome == ServerOutcome::Unknown {
            *slot = outcome;
        }
    }
    each
}

fn verdict(machine: &Machine, each: &BTreeMap<ServerName, ServerOutcome>) -> (&'static str, Option<Problem>) {
    let first_failed = machine.finished.iter().find(|track| track.failed() && !is_interrupt(track));
    let hand =
        machine.finished.iter().find(|t| matches!(t.outcome, Some(ServerOutcome::LeftOut | ServerOutcome::Unknown)));
    if let Some(track) = hand {
        return ("needs_hand", Some(needs_hand(machine, track, each)));
    }
    // Whoever interrupts when all is done and verified once more interrupts nothing.
    let no_release = matches!(machine.setup.plan.aim, Aim::Drain(_) | Aim::Undrain);
    let all_done = machine.finished.iter().any(|track| track.is_final_check || (no_release && !track.failed()));
    if machine.interrupted && !(all_done && first_failed.is_none()) {
        let before = first_failed.and_then(|track| Some((&track.plan.name, track.causes.first()?)));
        let before =
            before.map_or_else(String::new, |(name, cause)| format!("{name} had failed before: {}; ", cause.message));
        let undone = machine.finished.iter().any(|track| is_interrupt(track) && track.course != Course::Finish);
        let word =
            if undone { "interrupted, and what was under way is undone" } else { "interrupted; nothing was half done" };
        let message = format!("{word}; {before}{}", what_runs_where(machine, each));
        return ("interrupted", Some(Problem::new(Exit::Interrupted, message)));
    }
    if let Some(track) = first_failed {
        return failed(machine, track, each);
    }
    if machine.stopped_by_loss {
        let message = format!(
            "{} requests were lost, so no other server was begun; {}",
            machine.lost,
            what_runs_where(machine, each)
        );
        return ("lost_requests", Some(Problem::new(Exit::Lost, message)));
    }
    let ended = machine.finished.iter().filter(|track| !track.is_aside()).filter_map(|track| track.outcome);
    let mut words = ended.filter_map(|outcome| match outcome {
        ServerOutcome::Deployed => Some("deployed"),
        ServerOutcome::Drained => Some("drained"),
        ServerOutcome::Undrained => Some("undrained"),
        _ => None,
    });
    (words.next().unwrap_or("unchanged"), None)
}

fn is_interrupt(track: &Track) -> bool {
    track.causes.first().is_some_and(|cause| cause.kind == CauseKind::Interrupted)
}

fn problem(exit: Exit, track: &Track, cause: &Cause, message: String) -> Problem {
    Problem {
        exit,
        message,
        hint: cause.hint.clone(),
        server: Some(track.plan.name.clone()),
        step: cause.step,
        output: cause.output.clone(),
    }
}

fn failed(
    machine: &Machine,
    track: &Track,
    each: &BTreeMap<ServerName, ServerOutcome>,
) -> (&'static str, Option<Problem>) {
    let Some(cause) = track.causes.first() else { return ("failed", None) };
    let untouched = each.values().all(|outcome| {
        matches!(outcome, ServerOutcome::Untouched | ServerOutcome::Unchanged | ServerOutcome::FlippedBack)
    });
    let nothing_done = untouched && machine.finished.iter().all(|track| track.moments.flipped.is_none());
    let (exit, outcome) = match cause.kind {
        CauseKind::Once => (Exit::Undone, "failed"),
        CauseKind::Held if nothing_done => (Exit::Held, "refused"),
        _ if nothing_done => (Exit::Refused, "refused"),
        _ => (Exit::Undone, "rolled_back"),
    };
    let name = &track.plan.name;
    let became = track.outcome.map(|outcome| track.sentence(outcome)).unwrap_or_default();
    let mut message = format!("{name}: {}; {name} {became}", cause.message);
    if machine.setup.plan.aim == Aim::Deploy {
        message = format!("{message}; {}", what_runs_where(machine, each));
    }
    let mut problem = problem(exit, track, cause, message);
    if track.outcome == Some(ServerOutcome::StaysOut) && problem.hint.is_none() {
        problem.hint = Some(format!(
            "look at it with `handover verify --servers {name}`; when the cause is mended, `handover undrain {name}` again"
        ));
    }
    (outcome, Some(problem))
}

fn needs_hand(machine: &Machine, track: &Track, each: &BTreeMap<ServerName, ServerOutcome>) -> Problem {
    let causes: Vec<&str> = track.causes.iter().map(|cause| cause.message.as_str()).collect();
    let name = &track.plan.name;
    let became = track.outcome.map(|outcome| track.sentence(outcome)).unwrap_or_default();
    let others: Vec<String> = each
        .iter()
        .filter(|(other, outcome)| *other != name && matches!(outcome, ServerOutcome::LeftOut | ServerOutcome::Unknown))
        .map(|(other, _)| other.to_string())
        .collect();
    let too = if others.is_empty() { String::new() } else { format!("; likewise {}", others.join(", ")) };
    let message = format!("{name}: {}; {name} {became}{too}", causes.join("; then "));
    let fallback = Cause::unproved(String::new());
    let first = track.causes.first().unwrap_or(&fallback);
    let mut problem = problem(Exit::NeedsHand, track, first, message);
    problem.hint = Some(match track.outcome {
        Some(ServerOutcome::LeftOut) => format!(
            "look at it with `handover verify --servers {name}`; when the cause is mended, `handover deploy --servers {name}` with the same variables brings it in"
        ),
        _ if track.causes.iter().any(|cause| cause.kind == CauseKind::Gone) => format!(
            "the agent on {name} flips a drained server back when it no longer hears from us; when {name} can be reached, `handover plan` says how it stands"
        ),
        _ if machine.setup.plan.aim != Aim::Deploy => {
            format!("`handover drain {name}` or `handover undrain {name}` again makes it one or the other")
        }
        _ => format!("`handover plan` says how {name} stands; `handover deploy --servers {name}` makes it right"),
    });
    problem
}

/// Which servers run the new release and which do not; where none is brought, how each ended.
fn what_runs_where(machine: &Machine, each: &BTreeMap<ServerName, ServerOutcome>) -> String {
    if machine.setup.plan.aim != Aim::Deploy {
        let ended = machine.finished.iter().filter_map(|track| Some((track, track.outcome?)));
        let each: Vec<String> =
            ended.map(|(track, outcome)| format!("{} {}", track.plan.name, track.sentence(outcome))).collect();
        return each.join("; ");
    }
    let release = machine.setup.plan.release.as_ref().map_or("the release", |release| release.short());
    let names = |new: bool| {
        let is_new = |o: &ServerOutcome| matches!(o, ServerOutcome::Deployed | ServerOutcome::Unchanged);
        let names: Vec<String> =
            each.iter().filter(|(_, o)| is_new(o) == new).map(|(name, _)| name.to_string()).collect();
        if names.is_empty() { "no server".to_owned() } else { names.join(", ") }
    };
    format!("{release} runs on {}, what was there before on {}", names(true), names(false))
}

/// What the run takes at the least: the balancer's own times, and the stops and starts as they were.
fn floor(machine: &Machine) -> Floor {
    let mut sum = Floor::default();
    let plan = &machine.setup.plan;
    // Who holds waits for no balancer.
    let holds = plan.drain.by.hold().is_some();
    for batch in &plan.batches {
        let tracks: Vec<&Track> = machine
            .finished
            .iter()
            .filter(|track| {
                !track.is_aside()
                    && (track.took.settle_in.is_some() || (holds && track.took.stop.is_some()))
                    && batch.iter().any(|s| s.name == track.plan.name)
            })
            .collect();
        if tracks.is_empty() {
            continue;
        }
        let longest = |of: &dyn Fn(&Track) -> f64| tracks.iter().map(|track| of(track)).fold(0.0, f64::max);
        let numbers = |track: &Track, of: &dyn Fn(&crate::fleet::plan::GroupNumbers) -> Duration| {
            secs(track.own_groups().iter().filter_map(|g| plan.groups.get(g)).map(of).max().unwrap_or_default())
        };
        let settle = longest(&|t| match t.nodes.has_proved(Told::Out) {
            true => 0.0,
            false => numbers(t, &|n| n.settle_out(&plan.drain)),
        });
        let serve = if tracks.iter().all(|t| t.nodes.has_proved(Told::Out)) { 0.0 } else { secs(plan.drain.serve) };
        let drained = !holds && tracks.iter().any(|track| track.took.out.is_some());
        if drained {
            sum.out += longest(&|t| numbers(t, &|n| timing::out_nominal(&n.settings))).max(serve - settle);
            sum.settle_out += settle;
        }
        sum.stop += longest(&|t| t.took.stop.unwrap_or_default());
        sum.start += longest(&|t| t.took.start.unwrap_or_default());
        sum.stable += secs(plan.rolling.stable);
        // No server comes back before it: that is a stop like the other.
        sum.sleep += longest(&|t| t.took.sleep.unwrap_or_default());
        if holds {
            continue;
        }
        sum.in_ += longest(&|t| numbers(t, &|n| timing::in_nominal(&n.settings)));
        sum.settle_in += longest(&|t| match t.nodes.has_proved(Told::In) {
            true => numbers(t, &|n| n.attributes.slow_start),
            false => numbers(t, &|n| n.settle_in(&plan.drain)),
        });
    }
    sum
}
