//! `handover plan`: what a deploy would do, changing nothing.

use super::args::{Global, PlanArgs};
use super::{check, connect, finish, input};
use crate::clock::{Clock, Stamp};
use crate::diag::{Exit, Problem};
use crate::event::journal::Journal;
use crate::event::{Event, Line, Sink};
use crate::fleet::model::{Known, ServerFacts, Snapshot};
use crate::fleet::plan::{Options, Plan, offline_snapshot, releases_in_fleet};
use crate::report::{Format, Reporter, plan_json, plan_text};
use crate::rollout::{Files, Unfinished, journals, make_plan, observe, overdue, resolve, selected};
use serde_json::json;

/// So many runs of every kind are looked through for one that broke off.
const LOOK_BACK: u32 = 20;

pub(super) async fn run(global: &Global, args: &PlanArgs, reporter: &Reporter) -> u8 {
    let planned = Box::pin(planned(global, args, reporter)).await;
    match planned {
        Ok(plan) => {
            if reporter.format() != Format::Json {
                reporter.result(&plan_text(&plan));
            }
            finish::ended(reporter, None, &plan_json(&plan))
        }
        Err(problem) => {
            // Only what the plan itself says against it is about downtime.
            let why: Vec<&str> =
                if problem.exit == Exit::Refused { problem.message.lines().collect() } else { Vec::new() };
            let result = json!({"outcome": "refused", "servers": [], "lowest_capacity": [], "not_zero_downtime": why});
            finish::ended(reporter, Some(&problem), &result)
        }
    }
}

async fn planned(global: &Global, args: &PlanArgs, reporter: &Reporter) -> Result<Plan, Problem> {
    say_warnings(reporter, check::gate(global, &input::load(global)?).await?);
    if args.offline { offline(global, args) } else { live(global, args, reporter).await }
}

/// Numbers that do not fit and are no danger.
pub(super) fn say_warnings(reporter: &Reporter, warnings: Vec<String>) {
    for what in warnings {
        reporter.take(Line::new(Stamp::ZERO, Event::Warning { server: None, what }));
    }
}

fn options(global: &Global, args: &PlanArgs, fleet: &crate::fleet::model::Fleet) -> Result<Options, Problem> {
    Ok(Options { offline: args.offline, ..input::options(global, fleet, args.allow)? })
}

fn offline(global: &Global, args: &PlanArgs) -> Result<Plan, Problem> {
    let fleet = input::load(global)?.fleet;
    let options = options(global, args, &fleet)?;
    make_plan(&fleet, &offline_snapshot(&fleet), None, &options)
}

async fn live(global: &Global, args: &PlanArgs, reporter: &Reporter) -> Result<Plan, Problem> {
    let loaded = input::load(global)?;
    let options = options(global, args, &loaded.fleet)?;
    let (vars, files) = (input::variables(global, &loaded.fleet)?, input::files(&loaded)?);
    let fleet = loaded.fleet;
    let clock = Clock::start();
    let ports = connect::fleet(&fleet, &connect::run("handover plan")).await?;
    let snapshot = observe(&ports, &fleet, &clock).await;
    let files = Files { files, vars, label: None };
    let resolved = resolve(&ports, &fleet, &files, &clock, &selected(&fleet, &options)).await;
    if let Ok(resolved) = &resolved {
        for warning in &resolved.warnings {
            reporter.take(Line::new(clock.now(), Event::Warning { server: None, what: warning.clone() }));
        }
    }
    let plan = match resolved {
        Ok(resolved) => make_plan(&fleet, &snapshot, Some(&resolved.manifest), &options),
        Err(problem) => Err(problem),
    };
    say_unfinished(reporter, &ports, &clock, &snapshot).await;
    say_warnings(reporter, overdue(&snapshot));
    connect::close(ports).await;
    say_mixed(reporter, &options, &snapshot);
    plan
}

/// A deploy that broke off stands in the way of another release: who plans is told.
async fn say_unfinished(reporter: &Reporter, ports: &connect::RealPorts, clock: &Clock, snapshot: &Snapshot) {
    let goes_on = |facts: &ServerFacts| facts.deploy_lock.is_some();
    if snapshot.servers.values().filter_map(Known::get).any(goes_on) {
        return;
    }
    // What cannot be read now is asked for again by the deploy, which refuses without it.
    let Ok(mut journals) = journals(ports, clock, LOOK_BACK).await else { return };
    let warn = |what| reporter.take(Line::new(clock.now(), Event::Warning { server: None, what }));
    if journals.first().is_some_and(|journal| !journal.head.purpose.is_deploy() && journal.is_unfinished()) {
        let journal = journals.remove(0);
        let again = journal.head.what.clone();
        let what = format!(
            "{} broke off; what it left is as `handover plan` finds it, and `{again}` may be run again",
            Unfinished { journal }.sentence()
        );
        warn(what);
    }
    if let Some(journal) = journals.into_iter().find(|j| j.head.purpose.is_deploy()).filter(Journal::is_unfinished) {
        warn(format!("an earlier deploy broke off: {}; see `handover resume`", Unfinished { journal }.sentence()));
    }
}

/// A part of a fleet that is deployed to leaves different releases side by side: that is said.
pub(super) fn say_mixed(reporter: &Reporter, options: &Options, snapshot: &Snapshot) {
    if options.servers.is_none() {
        return;
    }
    for (release, servers) in releases_in_fleet(snapshot) {
        let servers = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        reporter.note(&format!("{} runs on {servers}", release.short()));
    }
}
