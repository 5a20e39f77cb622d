//! The team's own commands: which is run when, with what it is told, and what its failure means to the run.
//!
//! Whoever runs them is behind a port; what they print is told as events.

use super::deploy::Deployed;
use super::driver::Ports;
use super::port::{Balancer, Here, Server};
use super::preflight::{Order, Source};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, HookState, Line, Sink, seconds};
use crate::fleet::model::{Fleet, Hook, ReleaseId, ServerName};
use crate::server::wire::Run;
use std::collections::BTreeMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A command of the team's, whole: nothing of it is left to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCommand {
    /// Which moment it is for.
    pub hook: Hook,
    /// About which server, where it is about one.
    pub server: Option<ServerName>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// What it is told.
    pub env: BTreeMap<String, String>,
    /// It is ended by force after so long.
    pub limit: Duration,
}

/// Why a command is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFailed {
    /// A sentence.
    pub message: String,
    /// The last lines that it printed.
    pub output: Vec<String>,
}

/// A running command.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<(), HookFailed>> + Send + 'a>>;

/// Where the team's commands are only named: a rehearsal runs nothing of deploy.toml on anybody's machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct NotRun;

impl Here for NotRun {
    fn run(&self, command: HookCommand, said: mpsc::UnboundedSender<String>) -> Running<'_> {
        let program = command.argv.first().map_or("", String::as_str);
        // Whoever does not listen misses nothing.
        drop(said.send(format!("a rehearsal does not run `{program}`")));
        Box::pin(ready(Ok(())))
    }
}

/// What every command is told.
pub(super) fn told(order: &Order, release: Option<(&ReleaseId, Option<&String>)>) -> BTreeMap<String, String> {
    let mut env = told_of(&order.run, &order.fleet);
    let servers = super::preflight::selected(&order.fleet, &order.options);
    env.insert("HANDOVER_SERVERS".into(), servers.iter().map(ServerName::as_str).collect::<Vec<_>>().join(" "));
    if let Some((id, label)) = release {
        env.insert("HANDOVER_RELEASE".into(), id.short().to_owned());
        env.insert("HANDOVER_LABEL".into(), label.cloned().unwrap_or_default());
    }
    env
}

fn told_of(run: &Run, fleet: &Fleet) -> BTreeMap<String, String> {
    let command = run.what.split_whitespace().nth(1).unwrap_or(&run.what);
    let all = [("APP", fleet.app.as_str()), ("DEPLOY", &run.id), ("COMMAND", command), ("WHO", &run.who)];
    all.into_iter().map(|(name, value)| (format!("HANDOVER_{name}"), value.to_owned())).collect()
}

/// The command for a moment, with what it is told besides; `None` where deploy.toml has none.
pub(super) fn command(
    fleet: &Fleet,
    hook: Hook,
    told: &BTreeMap<String, String>,
    besides: &[(&str, &str)],
) -> Option<HookCommand> {
    let spec = fleet.hooks.get(hook)?;
    let mut env = told.clone();
    env.insert("HANDOVER_HOOK".into(), hook.word().into());
    env.extend(besides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Some(HookCommand { hook, server: None, argv: spec.run.clone(), env, limit: spec.limit })
}

/// Runs a command that is about the run as a whole, and tells of it.
async fn carried_out(
    here: &Arc<dyn Here>,
    command: HookCommand,
    clock: &Clock,
    sink: &dyn Sink,
) -> Result<(), HookFailed> {
    let (hook, began) = (command.hook, clock.now());
    let tell = |state, what: Option<String>| {
        let seconds = seconds(clock.now().since(began));
        sink.take(Line::new(clock.now(), Event::Hook { hook, server: None, state, seconds, what }));
    };
    tell(HookState::Began, None);
    let (said, mut lines) = mpsc::unbounded_channel();
    let mut running = here.run(command, said);
    let ended = loop {
        tokio::select! {
            biased;
            Some(line) = lines.recv() => tell(HookState::Said, Some(line)),
            ended = &mut running => break ended,
        }
    };
    while let Ok(line) = lines.try_recv() {
        tell(HookState::Said, Some(line));
    }
    match &ended {
        Ok(()) => tell(HookState::Done, None),
        Err(failed) => tell(HookState::Failed, Some(failed.message.clone())),
    }
    ended
}

/// Before anything is connected to.
///
/// # Errors
/// When it fails: then nothing is done, and `on_failure` was run.
pub async fn pre_connect(
    here: &Arc<dyn Here>,
    fleet: &Fleet,
    run: &Run,
    clock: &Clock,
    sink: &dyn Sink,
) -> Result<(), Problem> {
    let Some(command) = command(fleet, Hook::PreConnect, &told_of(run, fleet), &[]) else { return Ok(()) };
    let Err(failed) = carried_out(here, command, clock, sink).await else { return Ok(()) };
    let problem = refused(Hook::PreConnect, failed);
    not_begun(here, fleet, run, &problem, clock, sink).await;
    Err(problem)
}

/// Before the first step, with everything ready.
pub(super) async fn pre_deploy<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    told: &BTreeMap<String, String>,
    clock: &Clock,
    sink: &dyn Sink,
) -> Result<(), Problem> {
    if matches!(order.source, Source::Drain(_) | Source::Undrain) {
        return Ok(());
    }
    let Some(command) = command(&order.fleet, Hook::PreDeploy, told, &[]) else { return Ok(()) };
    carried_out(&ports.here, command, clock, sink).await.map_err(|failed| refused(Hook::PreDeploy, failed))
}

fn refused(hook: Hook, failed: HookFailed) -> Problem {
    Problem::new(Exit::Refused, format!("hooks.{hook}: {}; nothing was touched", failed.message))
        .output(failed.output)
        .hint("mend it, or leave every hook out with `--skip-hooks`")
}

/// `on_failure` for a run that ended before it came to its order.
pub async fn not_begun(
    here: &Arc<dyn Here>,
    fleet: &Fleet,
    run: &Run,
    problem: &Problem,
    clock: &Clock,
    sink: &dyn Sink,
) {
    let exit = u8::from(problem.exit).to_string();
    let outcome = if matches!(problem.exit, Exit::Interrupted | Exit::Terminated) { "interrupted" } else { "refused" };
    let besides = [("HANDOVER_OUTCOME", outcome), ("HANDOVER_EXIT", &exit), ("HANDOVER_ERROR", &problem.message)];
    if let Some(command) = command(fleet, Hook::OnFailure, &told_of(run, fleet), &besides) {
        // That it failed was told; there is nothing left that it could stop.
        drop(carried_out(here, command, clock, sink).await);
    }
}

/// The last command of a run: `post_deploy` where it ended with 0, else `on_failure`.
pub(super) async fn after<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    deployed: &Deployed,
    lost: u64,
    clock: &Clock,
    sink: &dyn Sink,
) {
    let ending = deployed.ending.as_ref().ok();
    let problem = deployed.problem();
    // Whoever says --first served nobody before.
    let lost = if order.options.first { 0 } else { lost };
    let (hook, exit, outcome) = match (problem, ending) {
        (None, Some(ending)) if lost == 0 => (Hook::PostDeploy, Exit::Done, ending.outcome),
        (None, _) => (Hook::OnFailure, Exit::Lost, "lost_requests"),
        (Some(problem), Some(ending)) => (Hook::OnFailure, problem.exit, ending.outcome),
        (Some(problem), None) => match problem.exit {
            Exit::Interrupted | Exit::Terminated => (Hook::OnFailure, problem.exit, "interrupted"),
            Exit::Failed => (Hook::OnFailure, problem.exit, "failed"),
            _ => (Hook::OnFailure, problem.exit, "refused"),
        },
    };
    let brings = matches!(order.source, Source::Files(_) | Source::OnDisk(_));
    if hook == Hook::PostDeploy && !brings {
        return;
    }
    let label = match &order.source {
        Source::Files(files) => files.label.as_ref(),
        _ => None,
    };
    let told = told(order, deployed.release.as_ref().map(|id| (id, label)));
    let (exit, lost) = (u8::from(exit).to_string(), lost.to_string());
    let error = problem.map_or("", |problem| &problem.message);
    let seconds = ending.map_or(0.0, |ending| ending.seconds).to_string();
    let besides = [
        ("HANDOVER_OUTCOME", outcome),
        ("HANDOVER_EXIT", &exit),
        ("HANDOVER_LOST", &lost),
        ("HANDOVER_ERROR", error),
        ("HANDOVER_SECONDS", &seconds),
    ];
    if let Some(command) = command(&order.fleet, hook, &told, &besides) {
        // That it failed was told, and undoes nothing.
        drop(carried_out(&ports.here, command, clock, sink).await);
    }
}
