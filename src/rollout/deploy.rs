//! A deploy from beginning to end: make ready, drive, free the locks.

use super::driver::{Outside, Ports, drive};
use super::machine::Ending;
use super::port::{Balancer, Server};
use super::preflight::{Order, Ready, on_each, preflight};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Sink, seconds};
use crate::fleet::model::ReleaseId;
use crate::server::wire::Request;
use std::time::Duration;

/// How a deploy ended.
#[derive(Debug)]
pub struct Deployed {
    /// Of which release, as far as it came to have a name.
    pub release: Option<ReleaseId>,
    /// How many servers were meant.
    pub servers: usize,
    /// How it ended; an error where it did not begin.
    pub ending: Result<Ending, Problem>,
}

impl Deployed {
    /// What went wrong, before the first step or after it; `None` where nothing did.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match &self.ending {
            Ok(ending) => ending.problem.as_ref(),
            Err(problem) => Some(problem),
        }
    }
}

/// Deploys.
pub async fn deploy<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    clock: &Clock,
    sink: &dyn Sink,
    mut outside: Outside,
) -> Deployed {
    let servers = super::preflight::selected(order).len();
    let interrupts = outside.interrupts.clone();
    let ready = tokio::select! {
        biased;
        ready = preflight(ports, order, clock, sink) => ready,
        Ok(()) = outside.interrupts.changed() => Err(Problem::new(Exit::Interrupted, "interrupted before anything was touched")),
    };
    let deployed = match ready {
        Err(problem) => Deployed { release: None, servers, ending: Err(problem) },
        Ok(ready) => run(ports, ready, clock, sink, outside, servers).await,
    };
    if *interrupts.borrow() > 1 {
        // Nothing is waited for: the end of the connections wakes every server's own dead-man.
        return deployed;
    }
    // Whatever happened: the connections that end soon free the locks too, but a person who looks now sees them freed.
    on_each(ports, ports.servers.keys().cloned().collect(), clock, Duration::from_secs(5), |_| Request::UnlockDeploy)
        .await;
    deployed
}

async fn run<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    ready: Ready,
    clock: &Clock,
    sink: &dyn Sink,
    outside: Outside,
    servers: usize,
) -> Deployed {
    let plan = &ready.setup.plan;
    let release = Some(ready.manifest.id.clone());
    sink.take(Line::new(
        clock.now(),
        Event::Began {
            release: ready.manifest.id.clone(),
            label: ready.manifest.label.clone(),
            servers: plan.servers().count(),
            unchanged: plan.unchanged.len(),
            expected_seconds: seconds(plan.expected()),
        },
    ));
    let ending = drive(ready.setup, ports, clock, sink, outside).await;
    Deployed { release, servers, ending: Ok(ending) }
}
