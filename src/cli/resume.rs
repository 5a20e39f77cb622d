//! `handover resume`: finishes a deploy that broke off, with what is there already.

use super::args::{Global, ResumeArgs};
use super::session::{self, Session};
use super::{check, finish, input, plan, team};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::journal::Journal;
use crate::fleet::model::Fleet;
use crate::fleet::plan::Options;
use crate::report::{Format, Reporter};
use crate::rollout::{Order, Over, Source, deploys};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(global: &Global, args: &ResumeArgs, reporter: &Arc<Reporter>) -> u8 {
    let fleet = match Box::pin(ready(global, args, reporter)).await {
        Ok(fleet) => fleet,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 0, problem),
    };
    let session = match Box::pin(Session::open(global, &fleet, "handover resume", reporter)).await {
        Ok(session) => session,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 0, problem),
    };
    match session.unless_interrupted(youngest(&session)).await {
        Err(problem) => session.refuse(problem).await,
        Ok(journal) if journal.is_deployed() => {
            let what = format!("nothing to resume: {} brought {} everywhere", journal.head.run, journal.head.release);
            super::connect::close(session.ports).await;
            if reporter.format() != Format::Json {
                reporter.result(&what);
            }
            finish::ended(reporter, None, &json!({"outcome": "unchanged", "release": journal.head.release}))
        }
        Ok(journal) => {
            let options =
                Options { allow_downtime: args.allow.allow_downtime, first: args.allow.first, ..Options::default() };
            let mut order = Order {
                run: session.run.clone(),
                fleet,
                source: Source::OnDisk(journal.head.release.clone()),
                options,
                wait: args.wait.unwrap_or(Duration::ZERO),
                over: Over::GoOn,
                resumes: None,
                without: None,
            };
            goes_on(&mut order, &journal);
            Box::pin(session.carry_out(global, order)).await
        }
    }
}

async fn ready(global: &Global, args: &ResumeArgs, reporter: &Reporter) -> Result<Fleet, Problem> {
    let mut loaded = input::load(global)?;
    team::hooks(&mut loaded, &args.team)?;
    if global.servers.is_some() {
        return Err(Problem::new(Exit::Usage, "--servers: what is resumed is the deploy as it was meant")
            .hint("`handover deploy --servers ...` brings a release to some servers only"));
    }
    plan::say_warnings(reporter, check::gate(global, &loaded).await?);
    team::confirmed(global, &loaded.fleet, &args.team.confirm)?;
    Ok(loaded.fleet)
}

async fn youngest(session: &Session) -> Result<Journal, Problem> {
    let found = deploys(&session.ports, &session.clock).await?;
    found.into_iter().next().ok_or_else(|| {
        Problem::new(Exit::Refused, "there is nothing to resume: no server knows of any deploy")
            .hint("`handover deploy` begins one")
    })
}

/// Lets an order go on with another run: its release, its servers.
pub(super) fn goes_on(order: &mut Order, journal: &Journal) {
    order.source = Source::OnDisk(journal.head.release.clone());
    order.options.servers.clone_from(&journal.head.only);
    order.options.skip_once = !journal.head.once;
    order.over = Over::GoOn;
    order.resumes = Some(journal.head.run.clone());
}
