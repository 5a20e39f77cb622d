//! Looks at services, health and real traffic, and says what was seen. Judges nothing.

use super::compose::{self, Inspected};
use super::run::{last_lines, run};
use super::wire::Sighting;
use crate::fleet::held::HeldSeen;
use crate::fleet::model::{Counter, DrainBy, Fleet, Group, HoldBy, Known, Service, ServiceName, Verify};
use crate::fleet::nodes::NodesSeen;
use crate::fleet::verify::Evidence;
use crate::http;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// One answer of a service: it is on this machine.
const ANSWER: Duration = Duration::from_secs(4);
/// A command in a container: a self-check may do a little work.
const COMMAND: Duration = Duration::from_secs(15);
/// A look asks so often: several workers behind one port may each have their own mind.
const LOOKS: usize = 8;
/// So much of a body is kept as evidence.
const BODY_KEPT: usize = 4096;

/// Gathers the evidence of every service, all at the same time.
pub async fn services(services: &[Service], containers: &[Inspected]) -> BTreeMap<ServiceName, Evidence> {
    let mut running = JoinSet::new();
    for service in services.iter().cloned() {
        let own: Vec<Inspected> = containers.iter().filter(|c| c.container.service == service.name).cloned().collect();
        running.spawn(async move { (service.name.clone(), evidence(&service.verify, &own).await) });
    }
    running.join_all().await.into_iter().collect()
}

async fn evidence(verify: &Verify, containers: &[Inspected]) -> Evidence {
    match verify {
        Verify::Http { url, host, .. } => match http::get(url, host.as_deref(), "GET", ANSWER).await {
            Ok(answer) => {
                let end = answer.body.len().min(BODY_KEPT);
                Evidence::Http {
                    status: answer.status,
                    body: String::from_utf8_lossy(&answer.body[..end]).into_owned(),
                }
            }
            Err(error) => Evidence::Nothing(error.to_string()),
        },
        Verify::Tcp { address } => match tokio::time::timeout(ANSWER, TcpStream::connect(address)).await {
            Ok(Ok(_)) => Evidence::Connected,
            Ok(Err(error)) => Evidence::Nothing(format!("{address} does not accept connections: {error}")),
            Err(_) => Evidence::Nothing(format!("{address} did not accept a connection within {ANSWER:?}")),
        },
        Verify::Exec { argv } => in_containers(argv, containers).await,
        Verify::Heartbeat { path, .. } => touched(path, containers),
    }
}

/// The command must end well in every container of the service; the first that does not is what is reported.
async fn in_containers(argv: &[String], containers: &[Inspected]) -> Evidence {
    let mut last = Evidence::Nothing("no container of it runs".to_owned());
    for container in containers.iter().filter(|c| c.is_alive()) {
        last = match run(&compose::exec(&container.id, argv), COMMAND).await {
            Ok(output) => {
                let said = last_lines(&format!("{}\n{}", output.text(), output.stderr), 5).join("\n");
                Evidence::Exec { code: output.code, output: said }
            }
            Err(failure) => Evidence::Nothing(failure.message),
        };
        if !matches!(last, Evidence::Exec { code: 0, .. }) {
            return last;
        }
    }
    last
}

fn touched(path: &str, containers: &[Inspected]) -> Evidence {
    let modified = match std::fs::metadata(path).and_then(|meta| meta.modified()) {
        Ok(modified) => modified,
        Err(error) => return Evidence::Nothing(format!("{path}: {error}")),
    };
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    let after_start = !containers.is_empty() && containers.iter().all(|c| c.started.is_some_and(|at| modified >= at));
    Evidence::Touched { age, after_start }
}

/// Looks at the health of every group that this server is in, and at real traffic, each over several fresh connections.
pub async fn look(fleet: &Fleet) -> Sighting {
    let mut health = JoinSet::new();
    let is_in = |group: &&Group| fleet.servers.first().is_none_or(|server| server.targets.contains_key(&group.name));
    for group in fleet.balancer.groups.iter().filter(is_in) {
        let (name, url) = (group.name.clone(), group.local_health_url());
        health.spawn(async move { (name, statuses(url).await) });
    }
    let real = match &fleet.drain.real {
        Some(url) => statuses(url.clone()).await,
        None => Vec::new(),
    };
    Sighting { health: health.join_all().await.into_iter().collect(), real }
}

async fn statuses(url: String) -> Vec<u16> {
    let mut running = JoinSet::new();
    for _ in 0..LOOKS {
        let url = url.clone();
        running.spawn(async move { http::get(&url, None, "GET", ANSWER).await.map_or(0, |answer| answer.status) });
    }
    running.join_all().await
}

/// Reads the server's own count of real requests.
pub async fn count(counter: &Counter) -> Option<u64> {
    let answer = http::get(&counter.http, None, "GET", ANSWER).await.ok()?;
    let json: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    counter.json.split('.').try_fold(&json, |at, key| at.get(key))?.as_u64()
}

/// Asks the gateway what it holds.
pub async fn held(hold: &HoldBy) -> Known<HeldSeen> {
    match http::get(&hold.told, None, "GET", ANSWER).await {
        Ok(answer) if answer.status == 200 => match serde_json::from_slice(&answer.body) {
            Ok(seen) => Known::Known(seen),
            Err(error) => Known::Unknown(format!("{}: what it answers says nothing of a hold: {error}", hold.told)),
        },
        Ok(answer) => Known::Unknown(format!("{} answers {}", hold.told, answer.status)),
        Err(error) => Known::Unknown(format!("the gateway does not say what it holds: {error}")),
    }
}

/// Reads who checks the server's health, as the gateway counted it.
pub async fn nodes(by: &DrainBy) -> Known<NodesSeen> {
    let Some(count) = by.nodes() else {
        return Known::Unknown(format!("with `drain.by = \"{}\"` nobody counts", by.word()));
    };
    match http::get(&count.count, None, "GET", ANSWER).await {
        Ok(answer) if answer.status == 200 => match serde_json::from_slice(&answer.body) {
            Ok(seen) => Known::Known(seen),
            Err(error) => Known::Unknown(format!("{}: what it answers is no count of nodes: {error}", count.count)),
        },
        Ok(answer) => Known::Unknown(format!("{} answers {}", count.count, answer.status)),
        Err(error) => Known::Unknown(error.to_string()),
    }
}
