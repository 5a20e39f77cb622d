//! Everything that can fail before traffic is touched, for the whole fleet: reach, rights, locks, the release in place.

use super::absence::{self, overdue};
use super::ask::{OBSERVE, observe, on_each, server_problem};
use super::bring::{adopt, find, resolve, stage_and_pull};
use super::driver::Ports;
use super::machine::{Protection, Setup};
use super::port::{Balancer, Server};
use super::unfinished::{self, Unfinished};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Sink};
use crate::fleet::model::{Absence, Fleet, Holder, Known, ReleaseId, ReleaseOnDisk, ServerName, Snapshot, show_moment};
use crate::fleet::plan::{self, Options, Plan, WhyNot};
use crate::fleet::release::Manifest;
use crate::server::wire::{Blob, Reply, Request, Run};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is to be deployed, as the operator said.
#[derive(Debug, Clone)]
pub struct Order {
    /// Who asks.
    pub run: Run,
    /// The fleet.
    pub fleet: Fleet,
    /// Where the release comes from.
    pub source: Source,
    /// What else the operator said.
    pub options: Options,
    /// `--wait`: so long is waited for another deploy to end.
    pub wait: Duration,
    /// What is done where an earlier deploy broke off.
    pub over: Over,
    /// The run that this one goes on with.
    pub resumes: Option<String>,
    /// For the simulation only: what is left out, to see that its absence is found.
    pub without: Option<Protection>,
}

impl Order {
    /// A deploy of files, with nothing else said.
    #[must_use]
    pub fn of_files(run: Run, fleet: Fleet, files: Files) -> Self {
        let source = Source::Files(files);
        let options = Options::default();
        Self { run, fleet, source, options, wait: Duration::ZERO, over: Over::Ask, resumes: None, without: None }
    }
}

/// Where a release comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The compose file and what lies beside it.
    Files(Files),
    /// It lies whole on every server: no registry is asked.
    OnDisk(ReleaseId),
    /// None: the server that is meant leaves rotation, with this record.
    Drain(Absence),
    /// None: the server that is meant comes back.
    Undrain,
}

/// What a release is made of.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// The compose file and what lies beside it.
    pub files: Vec<Blob>,
    /// The variables.
    pub vars: BTreeMap<String, String>,
    /// `--name`.
    pub label: Option<String>,
}

/// What is done where an earlier deploy of another release broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// It is refused: somebody has to say.
    Ask,
    /// What it left is taken as it is found.
    GoOn,
}

/// A fleet that is ready to be deployed to.
#[derive(Debug)]
pub struct Ready {
    /// What the machine needs.
    pub setup: Setup,
    /// What was seen last, before the first step.
    pub snapshot: Snapshot,
    /// The release.
    pub manifest: Manifest,
}

/// Why it was not begun.
#[derive(Debug)]
pub struct NotReady {
    /// What stands in the way.
    pub problem: Problem,
    /// It is an earlier deploy that broke off.
    pub unfinished: Option<Box<Unfinished>>,
}

impl From<Problem> for NotReady {
    fn from(problem: Problem) -> Self {
        Self { problem, unfinished: None }
    }
}

/// What lies on a server and is not what was published there stands in nobody's way, but somebody should know.
fn say_drift(snapshot: &Snapshot, clock: &Clock, sink: &dyn Sink) {
    for (name, facts) in &snapshot.servers {
        for what in facts.get().into_iter().flat_map(|facts| &facts.drift) {
            let warning = Event::Warning { server: Some(name.clone()), what: what.clone() };
            sink.take(Line::new(clock.now(), warning));
        }
    }
}

/// Makes everything ready, or says why not; nothing that serves was touched.
///
/// # Errors
/// The first thing that stands in the way, with every server that it stands in the way on.
pub async fn preflight<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    clock: &Clock,
    sink: &dyn Sink,
) -> Result<Ready, NotReady> {
    let say = |server: Option<&ServerName>, what: String| {
        sink.take(Line::new(clock.now(), Event::Preflight { server: server.cloned(), what }));
    };
    let warn = |what: &String| sink.take(Line::new(clock.now(), Event::Warning { server: None, what: what.clone() }));
    let snapshot = observe(ports, &order.fleet, clock).await;
    fit_to_begin(&snapshot)?;
    say(None, format!("{} servers and {} groups answer", snapshot.servers.len(), snapshot.groups.len()));
    lock_deploy(ports, order, clock).await?;
    say(None, "the deploy lock is ours on every server".into());
    // Whoever had the lock until now may have changed what was seen before, or have put a freeze on.
    let snapshot = observe(ports, &order.fleet, clock).await;
    fit_to_begin(&snapshot)?;
    say_drift(&snapshot, clock, sink);
    overdue(&snapshot).iter().for_each(warn);
    let selected = selected(&order.fleet, &order.options);
    let left = unfinished::find(ports, clock).await?;
    let there = match &order.source {
        Source::Drain(_) | Source::Undrain => return absence::ready(order, snapshot, left.as_ref(), &say, &warn),
        Source::Files(files) => {
            let resolved = resolve(ports, &order.fleet, files, clock, &selected).await?;
            resolved.warnings.iter().for_each(warn);
            let (id, services) = (&resolved.manifest.id, resolved.manifest.services.len());
            say(None, format!("release {} of {services} services", id.short()));
            unfinished::fits(left.as_ref(), id, &snapshot, order, &say)?;
            let there = stage_and_pull(ports, order, files, clock, &selected, &resolved).await?;
            say(None, format!("staged and pulled on {} servers", there.len()));
            there
        }
        Source::OnDisk(id) => {
            unfinished::fits(left.as_ref(), id, &snapshot, order, &say)?;
            let there = find(ports, clock, &selected, id).await?;
            say(None, format!("release {} lies whole on {} servers", id.short(), there.len()));
            there
        }
    };
    let Some(manifest) = there.values().next().map(|release| release.manifest.clone()) else {
        return Err(Problem::new(Exit::Usage, "no server is meant").hint("see --servers").into());
    };
    adopt(ports, clock, &snapshot, &selected).await?;
    let snapshot = observe(ports, &order.fleet, clock).await;
    let plan = make_plan(&order.fleet, &snapshot, Some(&manifest), &order.options)?;
    plan.warnings.iter().for_each(warn);
    let previous = previous(&snapshot, &plan);
    let told = super::hooks::told(order, Some((&manifest.id, manifest.label.as_ref())));
    let setup = Setup { fleet: order.fleet.clone(), plan, release: there, previous, told, without: order.without };
    Ok(Ready { setup, snapshot, manifest })
}

fn previous(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<ServerName, ReleaseOnDisk> {
    let current = |name: &ServerName| snapshot.servers.get(name)?.get()?.way_back().cloned();
    plan.servers().filter_map(|s| current(&s.name).map(|current| (s.name.clone(), current))).collect()
}

/// The servers that the operator meant.
#[must_use]
pub fn selected(fleet: &Fleet, options: &Options) -> Vec<ServerName> {
    let all = fleet.servers.iter().map(|server| server.name.clone());
    match &options.servers {
        None => all.collect(),
        Some(names) => all.filter(|name| names.contains(name)).collect(),
    }
}

/// Makes the plan and has it read by somebody else.
///
/// # Errors
/// Every reason why not; or what the second reader found, which is a fault of ours.
pub fn make_plan(
    fleet: &Fleet,
    snapshot: &Snapshot,
    release: Option<&Manifest>,
    options: &Options,
) -> Result<Plan, Problem> {
    let plan = plan::plan(fleet, snapshot, release, options).map_err(|why| refusal(&why))?;
    read_again(fleet, plan)
}

/// Has a plan read by somebody else.
pub(super) fn read_again(fleet: &Fleet, plan: Plan) -> Result<Plan, Problem> {
    let notes = plan::check(fleet, &plan);
    if notes.is_empty() {
        return Ok(plan);
    }
    let notes: Vec<String> = notes
        .into_iter()
        .map(|note| note.server.map_or_else(|| note.what.clone(), |server| format!("{server}: {}", note.what)))
        .collect();
    Err(Problem::new(
        Exit::Failed,
        format!("this is a fault of handover, not yours: its own plan does not hold: {}", notes.join("; ")),
    )
    .hint("nothing was touched; please report it with the output of `handover plan --output json`"))
}

pub(super) fn refusal(why: &[WhyNot]) -> Problem {
    let mut hints: Vec<String> = Vec::new();
    for hint in why.iter().map(WhyNot::hint) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    let message = why.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    Problem::new(Exit::Refused, message).hint(hints.join("\n"))
}

/// Whether anything forbids to begin at all: a server that is not there, a right that is missing, a freeze.
fn fit_to_begin(snapshot: &Snapshot) -> Result<(), Problem> {
    let mut why = Vec::new();
    for (group, known) in &snapshot.groups {
        if let Known::Unknown(reason) = known {
            why.push(WhyNot::GroupUnknown { group: group.clone(), why: reason.clone() });
        }
    }
    for (server, known) in &snapshot.servers {
        match known {
            Known::Unknown(reason) => why.push(WhyNot::ServerUnknown { server: server.clone(), why: reason.clone() }),
            Known::Known(facts) => {
                why.extend(
                    facts.missing.iter().map(|what| WhyNot::Missing { server: server.clone(), what: what.clone() }),
                );
            }
        }
    }
    if !why.is_empty() {
        return Err(refusal(&why));
    }
    for (server, known) in &snapshot.servers {
        if let Some(freeze) = known.get().and_then(|facts| facts.freeze.as_ref()) {
            return Err(frozen(server, freeze));
        }
    }
    Ok(())
}

pub(super) fn frozen(server: &ServerName, freeze: &Holder) -> Problem {
    let since = show_moment(freeze.since);
    let message = format!("a freeze is on: {} ({}, since {since})", freeze.what, freeze.who);
    Problem::new(Exit::Held, message).hint("when its reason is gone: `handover lock release`").on(server)
}

/// Takes the deploy lock on every server of the file, in name order, so that two deploys cannot each hold half.
async fn lock_deploy<S: Server, B: Balancer>(ports: &Ports<S, B>, order: &Order, clock: &Clock) -> Result<(), Problem> {
    let until = clock.now() + order.wait;
    for name in ports.servers.keys() {
        loop {
            let answers = on_each(ports, vec![name.clone()], clock, OBSERVE, |_| Request::LockDeploy).await;
            match answers.into_values().next() {
                Some(Ok(Reply::Locked)) => break,
                Some(Ok(Reply::Held(_))) if clock.now() < until => clock.sleep(Duration::from_secs(2)).await,
                Some(Ok(Reply::Held(holder))) => return Err(held(name, &holder)),
                Some(Err(error)) => return Err(server_problem(name, error, "the deploy lock could not be taken")),
                other => {
                    return Err(Problem::new(
                        Exit::Failed,
                        format!("{name}: an answer that was not asked for: {other:?}"),
                    ));
                }
            }
        }
    }
    Ok(())
}

pub(super) fn held(name: &ServerName, holder: &Holder) -> Problem {
    Problem::new(
        Exit::Held,
        format!("another deploy is under way: {} ({}) holds the deploy lock of {name}", holder.who, holder.what),
    )
    .hint("wait for it with `--wait 10m`, or see `handover lock status`")
    .on(name)
}
