//! A deploy from beginning to end: make ready, drive, write down, free the locks.

use super::ask::on_each;
use super::driver::{Outside, Ports, drive};
use super::hooks;
use super::keep::{Book, Keeper};
use super::machine::Ending;
use super::port::{Balancer, Server};
use super::preflight::{NotReady, Order, Ready, preflight};
use super::unfinished::Unfinished;
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Sink, seconds};
use crate::fleet::model::ReleaseId;
use crate::server::wire::Request;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Who is told what happens.
#[derive(Clone, Copy)]
pub struct Tell<'a> {
    /// Whoever shows it.
    pub events: &'a dyn Sink,
    /// Where the run is written down besides on its servers.
    pub book: Option<&'a dyn Book>,
}

/// How a deploy ended.
#[derive(Debug)]
pub struct Deployed {
    /// Of which release, as far as it came to have a name.
    pub release: Option<ReleaseId>,
    /// How many servers were meant.
    pub servers: usize,
    /// How it ended; an error where it did not begin.
    pub ending: Result<Ending, Problem>,
    /// It did not begin because an earlier one broke off.
    pub unfinished: Option<Box<Unfinished>>,
}

impl Deployed {
    /// One that did not begin.
    #[must_use]
    pub fn not_begun(servers: usize, problem: Problem) -> Self {
        Self { release: None, servers, ending: Err(problem), unfinished: None }
    }

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
    tell: Tell<'_>,
    mut outside: Outside,
) -> Deployed {
    let servers = super::preflight::selected(&order.fleet, &order.options).len();
    let (interrupts, lost) = (outside.interrupts.clone(), outside.lost.clone());
    let ready = tokio::select! {
        biased;
        ready = preflight(ports, order, clock, tell.events) => ready,
        Ok(()) = outside.interrupts.changed() => {
            Err(Problem::new(Exit::Interrupted, "interrupted before anything was touched").into())
        }
    };
    let deployed = match ready {
        Err(NotReady { problem, unfinished }) => Deployed { unfinished, ..Deployed::not_begun(servers, problem) },
        Ok(ready) => Box::pin(run(ports, order, ready, clock, tell, outside)).await,
    };
    if *interrupts.borrow() > 1 {
        // Nothing is waited for: the end of the connections wakes every server's own dead-man.
        return deployed;
    }
    if deployed.unfinished.is_none() {
        let lost = *lost.borrow();
        Box::pin(hooks::after(ports, order, &deployed, lost, clock, tell.events)).await;
    }
    // Whatever happened: the connections that end soon free the locks too, but a person who looks now sees them freed.
    on_each(ports, ports.servers.keys().cloned().collect(), clock, Duration::from_secs(5), |_| Request::UnlockDeploy)
        .await;
    deployed
}

async fn run<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    ready: Ready,
    clock: &Clock,
    tell: Tell<'_>,
    outside: Outside,
) -> Deployed {
    let plan = &ready.setup.plan;
    let release = ready.manifest.id.clone();
    let servers = super::preflight::selected(&order.fleet, &order.options).len();
    let interrupts = outside.interrupts.clone();
    let allowed = hooks::pre_deploy(ports, order, &ready.setup.told, clock, tell.events).await;
    let allowed = match allowed {
        _ if *interrupts.borrow() > 0 => {
            Err(Problem::new(Exit::Interrupted, "interrupted before anything was touched"))
        }
        allowed => allowed,
    };
    if let Err(problem) = allowed {
        return Deployed { release: Some(release), ..Deployed::not_begun(servers, problem) };
    }
    tell.events.take(Line::new(
        clock.now(),
        Event::Began {
            release: release.clone(),
            label: ready.manifest.label.clone(),
            servers: plan.servers().count(),
            unchanged: plan.unchanged.len(),
            expected_seconds: seconds(plan.expected()),
            purpose: plan.aim.purpose(),
        },
    ));
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let what = (plan, &release, ready.manifest.label.as_ref());
    let keeper = Keeper::begin(ports, order, what, clock, tell, began);
    let ending = drive(ready.setup, ports, clock, &keeper, outside).await;
    if *interrupts.borrow() < 2 {
        keeper.end(&ending, clock).await;
    }
    Deployed { release: Some(release), servers, ending: Ok(ending), unfinished: None }
}
