//! `handover verify`: every service's own check on every server, and nothing else.

use super::args::Global;
use super::{connect, finish, input};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Fleet, ReleaseOnDisk, ServerName};
use crate::fleet::verify::{container_faults, excused, judge};
use crate::report::{Format, Reporter, table};
use crate::rollout::on_each;
use crate::server::wire::{Reply, Request, Verified};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Every check of a server together.
const WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn run(global: &Global, reporter: &Reporter) -> u8 {
    match Box::pin(look(global)).await {
        Err(problem) => finish::refused(reporter, &problem),
        Ok(found) => {
            let problem = problem(&found);
            if reporter.format() != Format::Json {
                reporter.result(&text(&found));
            }
            finish::ended(reporter, problem.as_ref(), &json!({"servers": found}))
        }
    }
}

type Found = BTreeMap<ServerName, Seen>;

/// What was seen of one server.
#[derive(Debug, Default, serde::Serialize)]
struct Seen {
    release: Option<String>,
    services: BTreeMap<String, Option<String>>,
    faults: Vec<String>,
    logs: Vec<String>,
}

async fn look(global: &Global) -> Result<Found, Problem> {
    let mut fleet = input::load(global)?.fleet;
    if let Some(names) = input::selection(global, &fleet)? {
        fleet.servers.retain(|server| names.contains(&server.name));
    }
    let clock = Clock::start();
    let ports = connect::fleet(&fleet, &connect::run("handover verify")).await?;
    let names: Vec<ServerName> = ports.servers.keys().cloned().collect();
    let facts = on_each(&ports, names.clone(), &clock, WITHIN, |_| Request::Observe).await;
    let mut found = Found::new();
    for (name, answer) in facts {
        let seen = found.entry(name.clone()).or_default();
        let current = match answer {
            Ok(Reply::Facts(facts)) => facts.current,
            Ok(_) => None,
            Err(error) => {
                seen.faults.push(error.to_string());
                continue;
            }
        };
        let Some(current) = current else {
            seen.faults.push("no release of ours runs here".into());
            continue;
        };
        seen.release = Some(current.manifest.id.to_string());
        let request = |_: &ServerName| Request::Verify { release: current.manifest.id.clone() };
        match on_each(&ports, vec![name.clone()], &clock, WITHIN, request).await.into_values().next() {
            Some(Ok(Reply::Verified(verified))) => judged(&fleet, &current, &verified, seen),
            Some(Err(error)) => seen.faults.push(error.to_string()),
            _ => seen.faults.push("an answer that was not asked for".into()),
        }
    }
    connect::close(ports).await;
    Ok(found)
}

fn judged(fleet: &Fleet, current: &ReleaseOnDisk, verified: &Verified, seen: &mut Seen) {
    let counts = |name| current.manifest.services.contains_key(name) && !verified.asleep.contains(name);
    for service in fleet.services.iter().filter(|s| counts(&s.name)) {
        let why = match verified.services.get(&service.name) {
            None => Some("its check did not run".to_owned()),
            Some(evidence) => judge(&service.verify, evidence, &current.manifest.id).err(),
        };
        if why.is_some() {
            seen.logs.extend(
                verified.logs.get(&service.name).into_iter().flatten().map(|line| format!("{} | {line}", service.name)),
            );
        }
        seen.services.insert(service.name.to_string(), why);
    }
    let faults =
        container_faults(&current.manifest, &verified.image_ids, &excused(&verified.containers, &verified.asleep));
    seen.faults.extend(faults.into_iter().map(|fault| fault.what));
}

impl Seen {
    fn is_well(&self) -> bool {
        self.faults.is_empty() && self.services.values().all(Option::is_none)
    }
}

fn text(found: &Found) -> String {
    let mut rows = vec![vec!["server".to_owned(), "release".to_owned(), "verified".to_owned()]];
    for (name, seen) in found {
        let release = seen.release.as_ref().map_or("-", |release| release.get(..12).unwrap_or(release));
        let passed = seen.services.values().filter(|why| why.is_none()).count();
        rows.push(vec![name.to_string(), release.to_owned(), format!("{passed} of {}", seen.services.len())]);
    }
    table(&rows)
}

fn problem(found: &Found) -> Option<Problem> {
    let bad: Vec<(&ServerName, &Seen)> = found.iter().filter(|(_, seen)| !seen.is_well()).collect();
    let mut lines = Vec::new();
    let mut logs = Vec::new();
    for (name, seen) in &bad {
        lines.extend(seen.faults.iter().map(|fault| format!("{name}: {fault}")));
        lines.extend(
            seen.services
                .iter()
                .filter_map(|(service, why)| why.as_ref().map(|why| format!("{name}: {service}: {why}"))),
        );
        logs.extend(seen.logs.iter().map(|line| format!("{name}: {line}")));
    }
    if bad.is_empty() {
        return None;
    }
    let problem = Problem::new(Exit::Failed, lines.join("\n"))
        .output(logs)
        .hint("nothing was changed; `handover deploy` puts it right");
    Some(match bad.first() {
        Some((name, _)) => problem.on(name),
        None => problem,
    })
}
