//! `handover rollback`: a guarded deploy of a whole release that lies on the servers already; `--list` shows them.

use super::args::{Global, RollbackArgs};
use super::session::{self, Session};
use super::{check, connect, finish, input, plan, team};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Fleet, Hook, ReleaseId, ServerName};
use crate::fleet::plan::Options;
use crate::fleet::release::{OnServer, one_back};
use crate::report::{Format, Reporter, releases_json, releases_text};
use crate::rollout::{Order, Over, Source, deploys, releases, selected};
use crate::server::wire::Listed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(global: &Global, args: &RollbackArgs, reporter: &Arc<Reporter>) -> u8 {
    let (fleet, options) = match Box::pin(ready(global, args, reporter)).await {
        Ok(ready) => ready,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 0, problem),
    };
    let session = match Box::pin(Session::open(global, &fleet, "handover rollback", reporter)).await {
        Ok(session) => session,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 0, problem),
    };
    let names = selected(&fleet, &options);
    let listed = session.unless_interrupted(releases(&session.ports, &session.clock, &names)).await;
    let listed = match listed {
        Ok(listed) => listed,
        Err(problem) => return session.refuse(problem).await,
    };
    if args.list {
        connect::close(session.ports).await;
        if reporter.format() != Format::Json {
            reporter.result(&releases_text(&listed));
        }
        return finish::ended(reporter, None, &releases_json(&listed));
    }
    let chosen = match &args.release {
        Some(name) => named(&listed, name),
        None => session.unless_interrupted(before(&session, &listed)).await,
    };
    let id = match chosen {
        Ok(id) => id,
        Err(problem) => return session.refuse(problem).await,
    };
    let order = Order {
        run: session.run.clone(),
        fleet,
        source: Source::OnDisk(id),
        options,
        wait: args.wait.unwrap_or(Duration::ZERO),
        // Whoever goes back says what is to become of a deploy that broke off.
        over: Over::GoOn,
        resumes: None,
        without: None,
    };
    Box::pin(session.carry_out(global, order)).await
}

async fn ready(global: &Global, args: &RollbackArgs, reporter: &Reporter) -> Result<(Fleet, Options), Problem> {
    let mut loaded = input::load(global)?;
    team::hooks(&mut loaded, &args.team)?;
    if args.list {
        // It only looks.
        loaded.fleet.hooks = loaded.fleet.hooks.only(Hook::PreConnect);
    }
    // What is run once for a release was run when it was brought.
    let options = Options { skip_once: true, ..input::options(global, &loaded.fleet, args.allow)? };
    if !args.list {
        plan::say_warnings(reporter, check::gate(global, &loaded).await?);
        team::confirmed(global, &loaded.fleet, &args.team.confirm)?;
        if options.allow_downtime {
            session::confirm(global, "requests will be lost where the guard would refuse; go on?")?;
        }
    }
    Ok((loaded.fleet, options))
}

/// The release that a person means by a label or by the first digits of its name.
fn named(listed: &BTreeMap<ServerName, Vec<Listed>>, name: &str) -> Result<ReleaseId, Problem> {
    let manifests = || listed.values().flatten().map(|listed| &listed.release.manifest);
    let mut found: Vec<ReleaseId> = manifests()
        .filter(|manifest| manifest.label.as_deref() == Some(name) || manifest.id.as_str() == name)
        .map(|manifest| manifest.id.clone())
        .collect();
    if found.is_empty() && name.len() >= 4 {
        found = manifests().map(|m| m.id.clone()).filter(|id| id.as_str().starts_with(name)).collect();
    }
    found.sort();
    found.dedup();
    let hint = "`handover rollback --list` shows what lies where";
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Problem::new(Exit::Usage, format!("no server has a release that is called {name}")).hint(hint)),
        several => {
            let several: Vec<&str> = several.iter().map(ReleaseId::short).collect();
            Err(Problem::new(Exit::Usage, format!("{name} may mean {}", several.join(" or "))).hint(hint))
        }
    }
}

/// The release that ran before.
async fn before(session: &Session, listed: &BTreeMap<ServerName, Vec<Listed>>) -> Result<ReleaseId, Problem> {
    let called = |releases: &[Listed], name: &str| {
        let found = releases.iter().find(|listed| listed.names.iter().any(|own| own == name));
        found.map(|listed| listed.release.manifest.id.clone())
    };
    let servers: Vec<OnServer> = listed
        .iter()
        .map(|(name, releases)| OnServer {
            name: name.clone(),
            current: called(releases, "current"),
            previous: called(releases, "previous"),
        })
        .collect();
    let youngest = deploys(&session.ports, &session.clock).await?.into_iter().next();
    let went_back = youngest
        .filter(|journal| journal.head.what.starts_with("handover rollback") && journal.is_deployed())
        .map(|journal| journal.head.release);
    let hint = "`handover rollback --list` shows what lies where; name one";
    one_back(&servers, went_back.as_ref()).map_err(|why| Problem::new(Exit::Refused, why.to_string()).hint(hint))
}
