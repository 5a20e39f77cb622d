//! `handover deploy`: the main job.

use super::args::{DeployArgs, Global};
use super::measuring::Measuring;
use super::signals::Signals;
use super::{check, connect, finish, input, plan};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::plan::Options;
use crate::report::Reporter;
use crate::rollout::{Deployed, Order, Outside, deploy, observe};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(global: &Global, args: &DeployArgs, reporter: &Arc<Reporter>) -> u8 {
    let clock = Clock::start();
    let order = match Box::pin(order(global, args, reporter)).await {
        Ok(order) => order,
        Err(problem) => return not_begun(reporter, &clock, 0, problem),
    };
    let servers = crate::rollout::selected(&order).len();
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(problem) => return not_begun(reporter, &clock, servers, problem),
    };
    let ports = tokio::select! {
        ports = connect::fleet(&order.fleet, "handover deploy") => ports,
        () = signals.first() => Err(signals.name(Problem::new(Exit::Interrupted, "interrupted before anything was touched"))),
    };
    let ports = match ports {
        Ok(ports) => ports,
        Err(problem) => return not_begun(reporter, &clock, servers, problem),
    };
    let fleet = &order.fleet;
    let measuring =
        match Measuring::start(fleet.measure.as_ref(), &fleet.balancer.groups, None, &clock, Arc::clone(reporter)) {
            Ok(measuring) => measuring,
            Err(problem) => return not_begun(reporter, &clock, servers, problem),
        };
    let outside = Outside { interrupts: signals.count.clone(), lost: measuring.lost() };
    let deployed = Box::pin(deploy(&ports, &order, &clock, &measuring, outside)).await;
    let at_once = *signals.count.borrow() > 1;
    if at_once {
        let problem = deployed.problem().cloned().map(|problem| signals.name(problem));
        return finish::deployed(reporter, &clock, deployed, problem, finish::Extra::default());
    }
    let (requests, losses) = measuring.finish().await;
    if order.options.servers.is_some() {
        plan::say_mixed(reporter, &order, &observe(&ports, &order.fleet, &clock).await);
    }
    connect::close(ports).await;
    let problem = deployed.problem().cloned().map(|problem| signals.name(problem));
    let extra = finish::Extra { first: order.options.first, ..finish::Extra::measured(requests, &losses) };
    finish::deployed(reporter, &clock, deployed, problem, extra)
}

pub(super) fn not_begun(reporter: &Reporter, clock: &Clock, servers: usize, problem: Problem) -> u8 {
    let deployed = Deployed { release: None, servers, ending: Err(problem.clone()) };
    finish::deployed(reporter, clock, deployed, Some(problem), finish::Extra::default())
}

async fn order(global: &Global, args: &DeployArgs, reporter: &Reporter) -> Result<Order, Problem> {
    let loaded = input::load(global)?;
    let options = Options {
        servers: input::selection(global, &loaded.fleet)?,
        allow_downtime: args.allow.allow_downtime,
        first: args.allow.first,
        offline: false,
    };
    let (vars, files) = (input::variables(global, &loaded.fleet)?, input::files(&loaded)?);
    plan::say_warnings(reporter, check::gate(global, &loaded).await?);
    if options.allow_downtime {
        confirm(global, "requests will be lost where the guard would refuse; go on?")?;
    }
    Ok(Order {
        fleet: loaded.fleet,
        files,
        vars,
        label: args.name.clone(),
        options,
        wait: args.wait.unwrap_or(Duration::ZERO),
    })
}

/// Asks on a terminal; without one, `--yes` is the answer or the run is refused.
pub(super) fn confirm(global: &Global, question: &str) -> Result<(), Problem> {
    if global.yes {
        return Ok(());
    }
    let refused =
        || Problem::new(Exit::Refused, "not confirmed; nothing was touched").hint("--yes answers every question");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(refused());
    }
    let mut err = std::io::stderr();
    drop(write!(err, "{question} [y/N] "));
    drop(err.flush());
    let mut answer = String::new();
    drop(std::io::stdin().read_line(&mut answer));
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}
