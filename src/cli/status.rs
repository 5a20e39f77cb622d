//! `handover status`: how every server and every target stands, from their own words, changing nothing.

use super::args::{Global, StatusArgs};
use super::{connect, finish, input};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::FORMAT;
use crate::fleet::model::{Fleet, Known, Snapshot};
use crate::report::{Format, Reporter, status_json, status_text};
use crate::rollout::observe;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) async fn run(global: &Global, args: &StatusArgs, reporter: &Reporter) -> u8 {
    match Box::pin(show(global, args, reporter)).await {
        Err(problem) => finish::refused(reporter, &problem),
        Ok((fleet, snapshot)) => {
            let now = now();
            if args.watch.is_none() && reporter.format() != Format::Json {
                reporter.result(&status_text(&fleet, &snapshot, now));
            }
            finish::ended(reporter, silent(&snapshot).as_ref(), &status_json(&fleet, &snapshot, now))
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

async fn show(global: &Global, args: &StatusArgs, reporter: &Reporter) -> Result<(Fleet, Snapshot), Problem> {
    let mut fleet = input::load(global)?.fleet;
    if let Some(names) = input::selection(global, &fleet)? {
        fleet.servers.retain(|server| names.contains(&server.name));
    }
    let clock = Clock::start();
    let ports = connect::fleet(&fleet, &connect::run("handover status")).await?;
    let mut snapshot = observe(&ports, &fleet, &clock).await;
    if let Some(pause) = args.watch {
        let mut ended = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            again(&fleet, &snapshot, reporter);
            tokio::select! {
                () = tokio::time::sleep(pause.max(Duration::from_secs(1))) => {}
                _ = &mut ended => break,
            }
            snapshot = observe(&ports, &fleet, &clock).await;
        }
    }
    connect::close(ports).await;
    Ok((fleet, snapshot))
}

/// One more picture: a line of JSON, or the table under the moment it was taken.
fn again(fleet: &Fleet, snapshot: &Snapshot, reporter: &Reporter) {
    let now = now();
    if reporter.format() == Format::Json {
        let mut line = json!({"format": FORMAT, "event": "status", "at": now});
        if let (Value::Object(line), Value::Object(status)) = (&mut line, status_json(fleet, snapshot, now)) {
            line.extend(status);
        }
        reporter.result(&line.to_string());
    } else {
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(now));
        reporter.result(&format!("{at}\n{}", status_text(fleet, snapshot, now)));
    }
}

/// What could not be learnt is not fine.
fn silent(snapshot: &Snapshot) -> Option<Problem> {
    let servers = snapshot.servers.iter().filter_map(|(name, facts)| match facts {
        Known::Unknown(why) => Some(format!("{name}: {why}")),
        Known::Known(_) => None,
    });
    let groups = snapshot.groups.iter().filter_map(|(name, view)| match view {
        Known::Unknown(why) => Some(format!("{name}: {why}")),
        Known::Known(_) => None,
    });
    let silent: Vec<String> = servers.chain(groups).collect();
    (!silent.is_empty()).then(|| {
        Problem::new(Exit::Failed, silent.join("\n")).hint("of these nothing is known; the others stand as shown")
    })
}
