//! What a run reads before it begins: deploy.toml, the release's files, the variables.

use super::args::{Allow, Global};
use crate::config::{self, Loaded};
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Fleet, Server, ServerName};
use crate::fleet::plan::Options;
use crate::server::wire::Blob;
use globset::Glob;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads deploy.toml, whole.
pub(super) fn load(global: &Global) -> Result<Loaded, Problem> {
    config::load(&global.config, global.destination.as_deref()).map_err(|problems| {
        let count = problems.iter().count();
        let things = if count == 1 { "problem" } else { "problems" };
        Problem::new(
            Exit::Usage,
            format!("{count} {things} in the configuration\n{}", problems.render(false).trim_end()),
        )
        .hint("nothing was touched; `handover schema` describes every key")
    })
}

/// The servers that `--servers` means, by name or as `tag:TAG`, in file order; `None` without it.
pub(super) fn selection(global: &Global, fleet: &Fleet) -> Result<Option<Vec<ServerName>>, Problem> {
    let Some(pattern) = &global.servers else { return Ok(None) };
    let tag = pattern.strip_prefix("tag:");
    let glob = Glob::new(tag.unwrap_or(pattern))
        .map_err(|error| Problem::new(Exit::Usage, format!("--servers: {error}")))?
        .compile_matcher();
    let meant = |server: &&Server| match tag {
        Some(_) => server.tags.iter().any(|tag| glob.is_match(tag)),
        None => glob.is_match(server.name.as_str()),
    };
    let names: Vec<ServerName> = fleet.servers.iter().filter(meant).map(|server| server.name.clone()).collect();
    if !names.is_empty() {
        return Ok(Some(names));
    }
    let (what, hint) = match tag {
        Some(_) => {
            let all: BTreeSet<&str> = fleet.servers.iter().flat_map(|s| &s.tags).map(String::as_str).collect();
            let all = all.into_iter().collect::<Vec<_>>().join(", ");
            let all = if all.is_empty() { "no server has a tag".to_owned() } else { format!("there are {all}") };
            ("no server has such a tag", all)
        }
        None => {
            let all = fleet.servers.iter().map(|s| s.name.to_string()).collect::<Vec<_>>().join(", ");
            ("no server is called so", format!("there are {all}"))
        }
    };
    Err(Problem::new(Exit::Usage, format!("--servers {pattern}: {what}")).hint(hint))
}

/// What the operator said besides deploy.toml.
pub(super) fn options(global: &Global, fleet: &Fleet, allow: Allow) -> Result<Options, Problem> {
    let (allow_downtime, first) = (allow.allow_downtime, allow.first);
    Ok(Options { servers: selection(global, fleet)?, allow_downtime, first, ..Options::default() })
}

/// The variables that the compose file asks for: from `--set`, else from the environment.
pub(super) fn variables(global: &Global, fleet: &Fleet) -> Result<BTreeMap<String, String>, Problem> {
    let mut given = BTreeMap::new();
    for pair in &global.set {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(
                Problem::new(Exit::Usage, format!("--set {pair}: there is no `=` in it")).hint("write --set VAR=VALUE")
            );
        };
        if !fleet.release.vars.iter().any(|var| var == name) {
            return Err(Problem::new(Exit::Usage, format!("--set {name}: release.vars does not name it"))
                .hint("add it to release.vars in deploy.toml"));
        }
        given.insert(name.to_owned(), value.to_owned());
    }
    let mut missing = Vec::new();
    for name in &fleet.release.vars {
        if given.contains_key(name) {
            continue;
        }
        match std::env::var(name) {
            Ok(value) => drop(given.insert(name.clone(), value)),
            Err(_) => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(given);
    }
    Err(Problem::new(Exit::Usage, format!("not given: {}", missing.join(", ")))
        .hint(format!("give it with --set {}=VALUE or in the environment", missing[0])))
}

/// The compose file and all that is published beside it.
pub(super) fn files(loaded: &Loaded) -> Result<Vec<Blob>, Problem> {
    let release = &loaded.fleet.release;
    let plain = std::iter::once(&release.compose).chain(&release.files).map(|name| (name, false));
    let mut blobs = Vec::new();
    let mut missing = Vec::new();
    for (name, secret) in plain.chain(release.env.iter().map(|name| (name, true))) {
        match std::fs::read(loaded.dir.join(name)) {
            Ok(bytes) => blobs.push(Blob::bytes(name, &bytes, secret)),
            Err(error) => missing.push(format!("{}: {error}", show(&loaded.dir, name))),
        }
    }
    if !missing.is_empty() {
        return Err(
            Problem::new(Exit::Usage, missing.join("\n")).hint("paths in [release] are relative to deploy.toml")
        );
    }
    compose_problems(loaded)?;
    Ok(blobs)
}

fn compose_problems(loaded: &Loaded) -> Result<(), Problem> {
    let name = &loaded.fleet.release.compose;
    let text = std::fs::read_to_string(loaded.dir.join(name))
        .map_err(|error| Problem::new(Exit::Usage, format!("{}: {error}", show(&loaded.dir, name))))?;
    let problems = config::compose_text_problems(&text, &show(&loaded.dir, name));
    if problems.is_empty() {
        return Ok(());
    }
    let message = problems.iter().map(|problem| problem.render(false)).collect::<Vec<_>>().join("\n");
    Err(Problem::new(Exit::Usage, message))
}

fn show(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}
