//! `handover init`: from nothing to a checked deploy.toml. What the compose file, the balancer and ~/.ssh/config say is proposed,
//! what they do not say is asked on a terminal, and without one named with the option that says it.

mod balancer;
mod ssh;

use super::args::{CheckArgs, Global, InitArgs, Kind, Way};
use super::session::asks_for;
use super::{check, finish};
use crate::config::{ComposeFiles, ComposeOffer, Proposal, ServerOffer, Source, from_sources, proposal};
use crate::diag::{Exit, Problem};
use crate::fleet::model::{BalancerKind, GroupView, TargetId};
use crate::report::Reporter;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Those that Compose looks for, in its order.
const NAMES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];
/// A mounted folder of more files is no part of a release.
const MOST_FILES: usize = 50;

pub(super) async fn run(global: &Global, args: &InitArgs, reporter: &Reporter) -> u8 {
    if let Err(problem) = Box::pin(written(global, args, reporter)).await {
        return finish::refused(reporter, &problem);
    }
    reporter.note(&format!("{} is written; this is what `handover check` says of it:", global.config.display()));
    check::run(global, &CheckArgs { live: false, mutate: false, format: None }, reporter).await
}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem::new(Exit::Usage, message).hint(hint)
}

async fn written(global: &Global, args: &InitArgs, reporter: &Reporter) -> Result<(), Problem> {
    let path = &global.config;
    let there =
        || usage(format!("{} is there already, and stays as it is", path.display()), "`-c FILE` names another one");
    if path.exists() {
        return Err(there());
    }
    let dir = path.parent().unwrap_or_else(|| Path::new(""));
    let (compose, offer) = compose(dir, args)?;
    let kind = kind(args)?;
    let (groups, views) = balancer::groups(args, kind, &offer, reporter).await?;
    let servers = servers(args, kind, &views, reporter)?;
    let known = Proposal {
        app: args.app.clone().or_else(|| offer.name.clone()).unwrap_or_else(|| folder(dir)),
        compose,
        kind,
        region: balancer::region(args).filter(|_| kind == BalancerKind::Alb),
        endpoint: args.endpoint.clone().filter(|_| kind == BalancerKind::Alb),
        nodes: args.nodes.clone(),
        by_file: args.drain == Way::File,
        real: real(args, &groups),
        offer,
        groups,
        servers,
    };
    let text = proposal(&known);
    from_sources(&Source::new(path.display().to_string(), text.as_str()), None).map_err(|problems| {
        let found = problems.render(false);
        usage(
            format!("what was said makes no deploy.toml; nothing was written\n{}", found.trim_end()),
            "say it otherwise",
        )
    })?;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => there(),
        _ => usage(format!("{}: {error}", path.display()), "nothing was written"),
    })
}

/// The compose file, with what of it is there.
fn compose(dir: &Path, args: &InitArgs) -> Result<(String, ComposeOffer), Problem> {
    let found = || NAMES.iter().find(|name| dir.join(name).is_file()).map(|name| (*name).to_owned());
    let name = args.compose.clone().or_else(found).ok_or_else(|| {
        usage(
            format!("there is no compose file here ({})", NAMES.join(", ")),
            "`--compose FILE` names it; it lies beside deploy.toml",
        )
    })?;
    let files = ComposeFiles::gather(&name, |name| {
        let path = dir.join(name);
        let text = std::fs::read(&path).ok()?;
        Some(Source::new(path.display().to_string(), String::from_utf8_lossy(&text)))
    });
    let mut offer = files.offer().map_err(|why| usage(format!("{name}: {why}"), "mend the compose file first"))?;
    if offer.services.is_empty() {
        return Err(usage(format!("{name} has no services"), "a service that a profile switches off is none"));
    }
    offer.files = offer.files.iter().flat_map(|file| regular(dir, Path::new(file))).collect();
    offer.files.truncate(MOST_FILES);
    Ok((name, offer))
}

/// A file, or the files of a folder.
fn regular(dir: &Path, name: &Path) -> Vec<String> {
    let path = dir.join(name);
    if path.is_file() {
        return vec![name.display().to_string()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries.map(|entry| name.join(entry.file_name())).collect();
    names.sort();
    names.iter().take(MOST_FILES).flat_map(|name| regular(dir, name)).collect()
}

fn kind(args: &InitArgs) -> Result<BalancerKind, Problem> {
    let said = args.balancer.or_else(|| (!args.nodes.is_empty()).then_some(Kind::Haproxy));
    let said = said.or_else(|| (args.endpoint.is_some() || balancer::may_ask(args)).then_some(Kind::Alb));
    let word = || asks_for("who sends the traffic: [a]lb, [h]aproxy or [n]one?").unwrap_or_default();
    let answer = match said {
        Some(kind) => Some(kind),
        None => match word().to_lowercase().chars().next() {
            Some('a') => Some(Kind::Alb),
            Some('h') => Some(Kind::Haproxy),
            Some('n') => Some(Kind::None),
            _ => None,
        },
    };
    match answer {
        Some(Kind::Alb) => Ok(BalancerKind::Alb),
        Some(Kind::Haproxy) => Ok(BalancerKind::Haproxy),
        Some(Kind::None) => Ok(BalancerKind::None),
        None => Err(usage("who sends the traffic is not known", "`--balancer alb`, `haproxy` or `none` says it")),
    }
}

/// A path that is not the health check's own.
fn real(args: &InitArgs, groups: &[(crate::fleet::model::Group, bool)]) -> String {
    let checked = groups.iter().any(|(group, _)| group.health.path == "/");
    let default = if checked { "/version" } else { "/" };
    let asked = || asks_for(&format!("a path of real traffic, not the health check [{default}]:"));
    args.real
        .clone()
        .or_else(|| (!groups.is_empty()).then(asked).flatten())
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| default.into())
}

/// A name for the app from that of its folder.
fn folder(dir: &Path) -> String {
    let dir = std::path::absolute(if dir.as_os_str().is_empty() { Path::new(".") } else { dir }).unwrap_or_default();
    let name = dir.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "app".to_owned() } else { plain.to_owned() }
}

/// The servers that were named, else those that the balancer knows, else those of ~/.ssh/config that a person means.
fn servers(
    args: &InitArgs,
    kind: BalancerKind,
    views: &[GroupView],
    reporter: &Reporter,
) -> Result<Vec<ServerOffer>, Problem> {
    let hosts = hosts();
    let mut zones: BTreeMap<TargetId, Option<String>> = BTreeMap::new();
    for target in views.iter().flat_map(|view| &view.targets) {
        zones.entry(target.id.clone()).or_insert_with(|| target.zone.as_ref().map(ToString::to_string));
    }
    let named =
        |id: &TargetId| hosts.iter().find(|h| h.name == id.as_str() || h.hostname.as_deref() == Some(id.as_str()));
    let zone = |targets: &[TargetId]| targets.first().and_then(|id| zones.get(id).cloned().flatten());
    if !args.own_servers.is_empty() {
        let mut servers = Vec::new();
        for text in &args.own_servers {
            let mut one = said(text);
            let at = |id: &&TargetId| named(id).is_some_and(|host| host.name == one.ssh || host.name == one.name);
            if one.targets.is_empty() {
                one.targets = zones.keys().filter(at).cloned().collect();
            }
            one.zone = zone(&one.targets);
            servers.push(one);
        }
        let strange = zones.keys().filter(|id| !servers.iter().any(|server| server.targets.contains(id)));
        strange
            .for_each(|id| reporter.note(&format!("the balancer knows {id}, which no server here has for a target")));
        return Ok(servers);
    }
    let mut servers = Vec::new();
    for id in zones.keys() {
        let ask = || asks_for(&format!("what does ssh call {id}? [{id}]")).filter(|answer| !answer.is_empty());
        let (ssh, why) = match named(id) {
            Some(host) => (host.name.clone(), format!("The balancer knows {id}, and ~/.ssh/config calls it so.")),
            None => match ask() {
                Some(said) => (said, format!("The balancer knows {id}.")),
                None => (
                    id.to_string(),
                    format!("The balancer knows {id}; ~/.ssh/config does not: write what `ssh` accepts."),
                ),
            },
        };
        let name = ssh.rsplit('@').next().unwrap_or(&ssh).to_owned();
        servers.push(ServerOffer { name, ssh, targets: vec![id.clone()], zone: zone(std::slice::from_ref(id)), why });
    }
    if servers.is_empty() {
        servers = picked(&hosts, kind)?;
    }
    Ok(servers)
}

/// `NAME[=SSH][,TARGET...]`.
fn said(text: &str) -> ServerOffer {
    let mut parts = text.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let (name, ssh) = first.split_once('=').unwrap_or((first, first));
    let targets = parts.filter(|target| !target.is_empty()).map(TargetId::new).collect();
    ServerOffer { name: name.to_owned(), ssh: ssh.to_owned(), targets, zone: None, why: String::new() }
}

fn hosts() -> Vec<ssh::Host> {
    let own = std::env::var_os("HANDOVER_SSH_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".ssh/config"));
    let text = own.or_else(home).and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    ssh::hosts(&String::from_utf8_lossy(&text))
}

/// Nobody said which: a person may, by a pattern.
fn picked(hosts: &[ssh::Host], kind: BalancerKind) -> Result<Vec<ServerOffer>, Problem> {
    let names = hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
    let pattern = asks_for(&format!("which are the servers, as a pattern? ssh knows {names}:")).unwrap_or_default();
    let glob =
        globset::Glob::new(&pattern).map_err(|error| usage(error.to_string(), "write it as web-*"))?.compile_matcher();
    let meant = hosts.iter().filter(|host| glob.is_match(&host.name));
    let offer = |host: &ssh::Host| ServerOffer {
        name: host.name.clone(),
        ssh: host.name.clone(),
        targets: Vec::new(),
        zone: None,
        why: "From ~/.ssh/config.".to_owned(),
    };
    let servers: Vec<ServerOffer> = meant.map(offer).collect();
    if !servers.is_empty() {
        return Ok(servers);
    }
    let target = if kind == BalancerKind::None { "" } else { ",TARGET" };
    let known = if names.is_empty() { String::new() } else { format!("; ~/.ssh/config names {names}") };
    Err(usage("no server is known", format!("name each with `--server NAME=SSH{target}`{known}")))
}
