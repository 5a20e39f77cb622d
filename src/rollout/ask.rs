//! Asking servers and balancer what is there, all at the same time; what cannot be learnt is unknown.

use super::driver::Ports;
use super::port::{Balancer, Server, ServerError};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Fleet, Known, ServerName, Snapshot, show_duration};
use crate::server::wire::{FailureKind, Reply, Request};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// A server or a balancer may take so long to say what is there: a run that cannot begin ends within 30 s.
pub(super) const OBSERVE: Duration = Duration::from_secs(25);

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

pub(super) type Answers = BTreeMap<ServerName, Result<Reply, ServerError>>;

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

pub(super) fn server_problem(name: &ServerName, error: ServerError, what: &str) -> Problem {
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
