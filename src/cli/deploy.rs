//! `handover deploy`: the main job.

use super::args::{DeployArgs, Global};
use super::session::{self, Session};
use super::{check, input, plan, report, team};
use crate::clock::Clock;
use crate::diag::Problem;
use crate::fleet::model::Fleet;
use crate::fleet::plan::Options;
use crate::report::Reporter;
use crate::rollout::{Files, Order, Over, Source};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(global: &Global, args: &DeployArgs, reporter: &Arc<Reporter>) -> u8 {
    let (fleet, files, options) = match Box::pin(ready(global, args, reporter)).await {
        Ok(ready) => ready,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 0, problem),
    };
    let session = match Box::pin(Session::open(global, &fleet, "handover deploy", reporter)).await {
        Ok(session) => session,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), fleet.servers.len(), problem),
    };
    let order = Order {
        run: session.run.clone(),
        fleet,
        source: Source::Files(files),
        options,
        wait: args.wait.unwrap_or(Duration::ZERO),
        over: if args.start_over { Over::GoOn } else { Over::Ask },
        resumes: None,
        without: None,
    };
    let exit = Box::pin(session.carry_out(global, order)).await;
    report::at_the_end(reporter, args.report.as_deref(), "handover deploy", exit)
}

async fn ready(global: &Global, args: &DeployArgs, reporter: &Reporter) -> Result<(Fleet, Files, Options), Problem> {
    let mut loaded = input::load(global)?;
    team::hooks(&mut loaded, &args.team)?;
    let options = input::options(global, &loaded.fleet, args.allow)?;
    let (vars, files) = (input::variables(global, &loaded.fleet)?, input::files(&loaded)?);
    report::claim(args.report.as_deref())?;
    reporter.keep();
    reporter.keep_besides(report::about(global, &loaded, "handover deploy").await);
    plan::say_warnings(reporter, check::gate(global, &loaded).await?);
    team::confirmed(global, &loaded.fleet, &args.team.confirm)?;
    if options.allow_downtime {
        session::confirm(global, "requests will be lost where the guard would refuse; go on?")?;
    }
    Ok((loaded.fleet, Files { files, vars, label: args.name.clone() }, options))
}
