//! Brings the release to every server before anything is touched, or finds it there.

use super::ask::{Answers, on_each, server_problem};
use super::driver::Ports;
use super::port::{Balancer, Server};
use super::preflight::{Files, Order};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Fleet, Known, ReleaseId, ReleaseOnDisk, ServerName, Snapshot};
use crate::fleet::release::DEFINITION;
use crate::server::wire::{Blob, Listed, Reply, Request, Resolved};
use std::collections::BTreeMap;
use std::time::Duration;

/// Resolving and pinning ask a registry.
const RESOLVE: Duration = Duration::from_secs(120);
/// Big images over a slow line.
const PULL: Duration = Duration::from_secs(900);
/// Files over a slow line.
const STAGE: Duration = Duration::from_secs(300);
/// Reading every release and asking for its images.
const LIST: Duration = Duration::from_secs(60);

/// Has the definition resolved, once, by the first server that is meant.
///
/// # Errors
/// What Compose or the registry says against it.
pub async fn resolve<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    fleet: &Fleet,
    files: &Files,
    clock: &Clock,
    selected: &[ServerName],
) -> Result<Resolved, Problem> {
    let Some(first) = selected.first() else {
        return Err(Problem::new(Exit::Usage, "no server is meant").hint("see --servers"));
    };
    let request = |_: &ServerName| Request::Resolve {
        files: files.files.clone(),
        compose: fleet.release.compose.clone(),
        vars: files.vars.clone(),
    };
    let answer = on_each(ports, vec![first.clone()], clock, RESOLVE, request).await.into_values().next();
    match answer {
        Some(Ok(Reply::Resolved(mut resolved))) => {
            resolved.manifest.label.clone_from(&files.label);
            Ok(*resolved)
        }
        Some(Err(error)) => Err(server_problem(first, error, "the definition could not be resolved")),
        other => Err(Problem::new(Exit::Failed, format!("{first}: an answer that was not asked for: {other:?}"))),
    }
}

/// Everything beside the compose file, and the definition instead of it.
fn staged_files(order: &Order, files: &Files, resolved: &Resolved) -> Vec<Blob> {
    let beside = files.files.iter().filter(|file| file.name != order.fleet.release.compose);
    beside.cloned().chain([Blob::text(DEFINITION, &resolved.definition)]).collect()
}

/// Puts a resolved release on every server, with its images.
pub(super) async fn stage_and_pull<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    order: &Order,
    files: &Files,
    clock: &Clock,
    selected: &[ServerName],
    resolved: &Resolved,
) -> Result<BTreeMap<ServerName, ReleaseOnDisk>, Problem> {
    let manifest = &resolved.manifest;
    let files = staged_files(order, files, resolved);
    let stage = |_: &ServerName| Request::Stage { manifest: manifest.clone(), files: files.clone() };
    all_did(on_each(ports, selected.to_vec(), clock, STAGE, stage).await, "the release could not be staged")?;
    let pull = |_: &ServerName| Request::Pull { release: manifest.id.clone() };
    let pulled = all_did(on_each(ports, selected.to_vec(), clock, PULL, pull).await, "its images could not be pulled")?;
    let mut there = BTreeMap::new();
    for name in selected {
        match pulled.get(name) {
            Some(Reply::Pulled(image_ids)) => {
                let on_disk = ReleaseOnDisk { manifest: manifest.clone(), image_ids: image_ids.clone() };
                there.insert(name.clone(), on_disk);
            }
            other => {
                let message = format!("{name}: what it pulled is not known: {other:?}");
                return Err(Problem::new(Exit::Refused, message).on(name).hint("nothing was touched; try again"));
            }
        }
    }
    Ok(there)
}

/// Asks every server which releases lie there.
///
/// # Errors
/// When one of them does not say.
pub async fn releases<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    clock: &Clock,
    servers: &[ServerName],
) -> Result<BTreeMap<ServerName, Vec<Listed>>, Problem> {
    let answers = on_each(ports, servers.to_vec(), clock, LIST, |_| Request::Releases).await;
    let mut listed = BTreeMap::new();
    for (name, reply) in all_did(answers, "which releases lie there is not known")? {
        if let Reply::Releases(releases) = reply {
            listed.insert(name, releases);
        }
    }
    Ok(listed)
}

/// Finds a release that lies whole on every server, with its images: no registry is asked.
pub(super) async fn find<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    clock: &Clock,
    servers: &[ServerName],
    id: &ReleaseId,
) -> Result<BTreeMap<ServerName, ReleaseOnDisk>, Problem> {
    let listed = releases(ports, clock, servers).await?;
    let (mut there, mut why) = (BTreeMap::new(), Vec::new());
    for name in servers {
        let found = listed.get(name).into_iter().flatten().find(|listed| listed.release.manifest.id == *id);
        match found.map(|found| (found, &found.broken)) {
            None => why.push(format!("{name}: release {} does not lie there (any more)", id.short())),
            Some((_, Some(broken))) => why.push(format!("{name}: release {} is not whole: {broken}", id.short())),
            Some((found, None)) => drop(there.insert(name.clone(), found.release.clone())),
        }
    }
    if why.is_empty() {
        return Ok(there);
    }
    let hint = "`handover rollback --list` shows what lies where; `handover deploy` with the release's own files and variables brings it";
    Err(Problem::new(Exit::Refused, why.join("\n")).hint(hint))
}

/// Saves what runs by other means before anything of it is stopped.
pub(super) async fn adopt<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    clock: &Clock,
    snapshot: &Snapshot,
    selected: &[ServerName],
) -> Result<(), Problem> {
    let foreign = |name: &&ServerName| {
        snapshot
            .servers
            .get(*name)
            .and_then(Known::get)
            .is_some_and(|facts| facts.current.is_none() && !facts.containers.is_empty())
    };
    let names: Vec<ServerName> = selected.iter().filter(foreign).cloned().collect();
    all_did(
        on_each(ports, names, clock, STAGE, |_| Request::Adopt).await,
        "what runs there cannot be saved as a release to go back to",
    )?;
    Ok(())
}

fn all_did(answers: Answers, what: &str) -> Result<BTreeMap<ServerName, Reply>, Problem> {
    let mut done = BTreeMap::new();
    let mut problems: Vec<Problem> = Vec::new();
    for (name, answer) in answers {
        match answer {
            Ok(reply) => drop(done.insert(name, reply)),
            Err(error) => problems.push(server_problem(&name, error, what)),
        }
    }
    if problems.is_empty() {
        return Ok(done);
    }
    let message = problems.iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n");
    let mut first = problems.swap_remove(0);
    first.message = message;
    Err(first)
}
