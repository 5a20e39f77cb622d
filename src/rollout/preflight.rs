//! Everything that can fail before traffic is touched, for the whole fleet: reach, rights, locks, the release in place.

use super::driver::Ports;
use super::machine::Setup;
use super::port::{Balancer, Server, ServerError};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Sink};
use crate::fleet::model::{Fleet, Holder, Known, ReleaseOnDisk, ServerName, ServiceName, Snapshot, show_duration};
use crate::fleet::plan::{self, Options, Plan, WhyNot};
use crate::fleet::release::Manifest;
use crate::server::wire::{Blob, FailureKind, Reply, Request, Resolved};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::task::JoinSet;

/// What is to be deployed, as the operator said.
#[derive(Debug, Clone)]
pub struct Order {
    /// The fleet.
    pub fleet: Fleet,
    /// The compose file and what lies beside it.
    pub files: Vec<Blob>,
    /// The variables.
    pub vars: BTreeMap<String, String>,
    /// `--name`.
    pub label: Option<String>,
    /// What else the operator said.
    pub options: Options,
    /// `--wait`: so long is waited for another deploy to end.
    pub wait: Duration,
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

/// A server or a balancer may take so long to say what is there: a run that cannot begin ends within 30 s.
pub(super) const OBSERVE: Duration = Duration::from_secs(25);
/// Resolving and pinning ask a registry.
const RESOLVE: Duration = Duration::from_secs(120);
/// Big images over a slow line.
const PULL: Duration = Duration::from_secs(900);
/// Files over a slow line.
const STAGE: Duration = Duration::from_secs(300);

/// Makes everything ready, or says why not; nothing that serves was touched.
///
/// # Errors
/// The first thing that stands in the way, with every server that it stands in the way on.
pub async fn preflight<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    clock: &Clock,
    sink: &dyn Sink,
) -> Result<Ready, Problem> {
    let say = |server: Option<&ServerName>, what: String| {
        sink.take(Line::new(clock.now(), Event::Preflight { server: server.cloned(), what }));
    };
    let snapshot = observe(ports, &order.fleet, clock).await;
    fit_to_begin(&snapshot)?;
    say(None, format!("{} servers and {} groups answer", snapshot.servers.len(), snapshot.groups.len()));
    lock_deploy(ports, order, clock).await?;
    say(None, "the deploy lock is ours on every server".into());
    // Whoever had the lock until now may have changed what was seen before, or have put a freeze on.
    let snapshot = observe(ports, &order.fleet, clock).await;
    fit_to_begin(&snapshot)?;
    let selected = selected(order);
    let resolved = resolve(ports, order, clock, &selected).await?;
    let manifest = resolved.manifest.clone();
    for warning in &resolved.warnings {
        sink.take(Line::new(clock.now(), Event::Warning { server: None, what: warning.clone() }));
    }
    say(None, format!("release {} of {} services", manifest.id.short(), manifest.services.len()));
    let images = stage_and_pull(ports, order, clock, &selected, &resolved).await?;
    say(None, format!("staged and pulled on {} servers", images.len()));
    adopt(ports, clock, &snapshot, &selected).await?;
    let snapshot = observe(ports, &order.fleet, clock).await;
    let plan = make_plan(&order.fleet, &snapshot, Some(&manifest), &order.options)?;
    for warning in &plan.warnings {
        sink.take(Line::new(clock.now(), Event::Warning { server: None, what: warning.clone() }));
    }
    let release = images
        .into_iter()
        .map(|(name, image_ids)| (name, ReleaseOnDisk { manifest: manifest.clone(), image_ids }))
        .collect();
    let previous = previous(&snapshot, &plan);
    Ok(Ready { setup: Setup { fleet: order.fleet.clone(), plan, release, previous }, snapshot, manifest })
}

fn previous(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<ServerName, ReleaseOnDisk> {
    let current = |name: &ServerName| snapshot.servers.get(name)?.get()?.way_back().cloned();
    plan.servers().filter_map(|s| current(&s.name).map(|current| (s.name.clone(), current))).collect()
}

/// The servers that the operator meant.
#[must_use]
pub fn selected(order: &Order) -> Vec<ServerName> {
    let all = order.fleet.servers.iter().map(|server| server.name.clone());
    match &order.options.servers {
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

fn refusal(why: &[WhyNot]) -> Problem {
    let mut hints: Vec<String> = Vec::new();
    for hint in why.iter().map(WhyNot::hint) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    let message = why.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    Problem::new(Exit::Refused, message).hint(hints.join("\n"))
}

/// Looks at everything. What cannot be learnt is unknown, with the reason.
pub async fn observe<S: Server, B: Balancer>(ports: &Ports<S, B>, fleet: &Fleet, clock: &Clock) -> Snapshot {
    let mut snapshot = Snapshot { groups: BTreeMap::new(), servers: BTreeMap::new() };
    let servers = on_each(ports, ports.servers.keys().cloned().collect(), clock, OBSERVE, |_| Request::Observe);
    let groups = async {
        let mut seen = BTreeMap::new();
        // One deadline for all groups: a run that cannot begin is not to take longer the more groups it has.
        let until = clock.now() + OBSERVE;
        for group in &fleet.balancer.groups {
            let limit = clock.wall(until.since(clock.now()));
            let view = match tokio::time::timeout(limit, patiently(clock, || ports.balancer.observe(&group.name))).await
            {
                Ok(Ok(view)) => Known::Known(view),
                Ok(Err(error)) => Known::Unknown(error.to_string()),
                Err(_) => Known::Unknown(format!("the balancer gave no answer within {}", show_duration(OBSERVE))),
            };
            seen.insert(group.name.clone(), view);
        }
        seen
    };
    let (servers, groups) = tokio::join!(servers, groups);
    snapshot.groups = groups;
    for (name, answer) in servers {
        let known = match answer {
            Ok(Reply::Facts(facts)) => Known::Known(*facts),
            Ok(other) => Known::Unknown(format!("an answer that was not asked for: {other:?}")),
            Err(ServerError::Failed(failure)) => Known::Unknown(failure.with_hint()),
            Err(error) => Known::Unknown(error.to_string()),
        };
        snapshot.servers.insert(name, known);
    }
    snapshot
}

/// Asks again while the balancer gives no answer; the caller sets the limit.
async fn patiently<T, F: Future<Output = Result<T, super::port::BalancerError>>>(
    clock: &Clock,
    ask: impl Fn() -> F,
) -> Result<T, super::port::BalancerError> {
    loop {
        match ask().await {
            Err(error) if error.is_unknown() => clock.sleep(Duration::from_secs(2)).await,
            answer => return answer,
        }
    }
}

type Answers = BTreeMap<ServerName, Result<Reply, ServerError>>;

/// Asks several servers at the same time.
pub async fn on_each<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    names: Vec<ServerName>,
    clock: &Clock,
    within: Duration,
    request: impl Fn(&ServerName) -> Request,
) -> Answers {
    let mut tasks = JoinSet::new();
    for name in names {
        let (port, request, wall) = (ports.servers.get(&name).cloned(), request(&name), clock.wall(within));
        tasks.spawn(async move { (name, ask(port, request, wall, within).await) });
    }
    let mut answers = BTreeMap::new();
    while let Some(done) = tasks.join_next().await {
        if let Ok((name, answer)) = done {
            answers.insert(name, answer);
        }
    }
    answers
}

async fn ask<S: Server>(
    port: Option<Arc<S>>,
    request: Request,
    wall: Duration,
    within: Duration,
) -> Result<Reply, ServerError> {
    let Some(port) = port else { return Err(ServerError::Unreachable("it was never connected to".into())) };
    tokio::time::timeout(wall, port.call(request))
        .await
        .unwrap_or_else(|_| Err(ServerError::Late(show_duration(within))))
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
    let since = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(freeze.since));
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

fn server_problem(name: &ServerName, error: ServerError, what: &str) -> Problem {
    match error {
        ServerError::Failed(failure) => {
            let exit = if failure.kind == FailureKind::Input { Exit::Usage } else { Exit::Refused };
            let mut problem =
                Problem::new(exit, format!("{name}: {what}: {}", failure.message)).on(name).output(failure.output);
            problem.hint = failure.hint;
            problem
        }
        other => Problem::new(Exit::Refused, format!("{name}: {what}: {other}")).on(name),
    }
}

/// Has the definition resolved, once, by the first server that is meant.
///
/// # Errors
/// What Compose or the registry says against it.
pub async fn resolve<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    clock: &Clock,
    selected: &[ServerName],
) -> Result<Resolved, Problem> {
    let Some(first) = selected.first() else {
        return Err(Problem::new(Exit::Usage, "no server is meant").hint("see --servers"));
    };
    let request = |_: &ServerName| Request::Resolve {
        files: order.files.clone(),
        compose: order.fleet.release.compose.clone(),
        vars: order.vars.clone(),
    };
    let answer = on_each(ports, vec![first.clone()], clock, RESOLVE, request).await.into_values().next();
    match answer {
        Some(Ok(Reply::Resolved(mut resolved))) => {
            resolved.manifest.label.clone_from(&order.label);
            Ok(*resolved)
        }
        Some(Err(error)) => Err(server_problem(first, error, "the definition could not be resolved")),
        other => Err(Problem::new(Exit::Failed, format!("{first}: an answer that was not asked for: {other:?}"))),
    }
}

async fn stage_and_pull<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    clock: &Clock,
    selected: &[ServerName],
    resolved: &Resolved,
) -> Result<BTreeMap<ServerName, BTreeMap<ServiceName, String>>, Problem> {
    let files = super::files_of(order, resolved);
    let stage = |_: &ServerName| Request::Stage { manifest: resolved.manifest.clone(), files: files.clone() };
    all_did(on_each(ports, selected.to_vec(), clock, STAGE, stage).await, "the release could not be staged")?;
    let pull = |_: &ServerName| Request::Pull { release: resolved.manifest.id.clone() };
    let pulled = all_did(on_each(ports, selected.to_vec(), clock, PULL, pull).await, "its images could not be pulled")?;
    let mut images = BTreeMap::new();
    for name in selected {
        match pulled.get(name) {
            Some(Reply::Pulled(image_ids)) => drop(images.insert(name.clone(), image_ids.clone())),
            other => {
                let message = format!("{name}: what it pulled is not known: {other:?}");
                return Err(Problem::new(Exit::Refused, message).on(name).hint("nothing was touched; try again"));
            }
        }
    }
    Ok(images)
}

/// Saves what runs by other means before anything of it is stopped.
async fn adopt<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    clock: &Clock,
    snapshot: &Snapshot,
    selected: &[ServerName],
) -> Result<(), Problem> {
    let foreign = |name: &&ServerName| {
        snapshot
            .servers
            .get(*name)
            .and_then(Known::get)
            .is_some_and(|facts| facts.current.is_none() && !facts.containers.is_empty())
    };
    let names: Vec<ServerName> = selected.iter().filter(foreign).cloned().collect();
    all_did(
        on_each(ports, names, clock, STAGE, |_| Request::Adopt).await,
        "what runs there cannot be saved as a release to go back to",
    )?;
    Ok(())
}

fn all_did(answers: Answers, what: &str) -> Result<BTreeMap<ServerName, Reply>, Problem> {
    let mut done = BTreeMap::new();
    let mut problems: Vec<Problem> = Vec::new();
    for (name, answer) in answers {
        match answer {
            Ok(reply) => drop(done.insert(name, reply)),
            Err(error) => problems.push(server_problem(&name, error, what)),
        }
    }
    if problems.is_empty() {
        return Ok(done);
    }
    let message = problems.iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n");
    let mut first = problems.swap_remove(0);
    first.message = message;
    Err(first)
}
