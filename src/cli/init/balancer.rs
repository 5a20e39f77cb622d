//! The groups of a proposal: as the balancer says that they are set, where it can be asked; else with its kind's own defaults.

use super::{InitArgs, usage};
use crate::adapters::alb::Alb;
use crate::adapters::haproxy::Haproxy;
use crate::adapters::ssh;
use crate::cli::session::asks_for;
use crate::config::{ComposeOffer, Proposal, ServerOffer, Source, from_sources, proposal};
use crate::diag::Problem;
use crate::fleet::model::{BalancerKind, Group, GroupName, GroupView, HealthCheck, HealthSettings};
use crate::report::Reporter;
use crate::rollout::port::Balancer;
use std::collections::BTreeMap;
use std::time::Duration;

type Groups = (Vec<(Group, bool)>, Vec<GroupView>);

/// The region that is said here or by the environment.
pub(super) fn region(args: &InitArgs) -> Option<String> {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    args.region.clone().or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"))
}

/// Whether somebody has given what AWS is asked with.
pub(super) fn may_ask(args: &InitArgs) -> bool {
    let given = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let credentials = ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"].into_iter().any(given);
    credentials && (args.endpoint.is_some() || region(args).is_some())
}

/// The groups, each with whether the balancer said so itself, and what it said.
pub(super) async fn groups(
    args: &InitArgs,
    kind: BalancerKind,
    offer: &ComposeOffer,
    reporter: &Reporter,
) -> Result<Groups, Problem> {
    match kind {
        BalancerKind::None => Ok((Vec::new(), Vec::new())),
        BalancerKind::Alb if may_ask(args) => {
            let alb = Box::pin(Alb::connect(region(args).as_deref(), args.endpoint.as_deref())).await;
            let ports = match alb.groups().await {
                Ok(found) => found,
                Err(error) => {
                    reporter.note(&format!("the balancer was asked in vain: {error}"));
                    return Ok((unasked(args, kind, offer)?, Vec::new()));
                }
            };
            let names = chosen(args, offer, &ports)?;
            seen(&alb, args, kind, offer, &names, &ports, reporter).await
        }
        BalancerKind::Haproxy if !args.nodes.is_empty() => {
            let groups = unasked(args, kind, offer)?;
            let names: Vec<GroupName> = groups.iter().map(|(group, _)| group.name.clone()).collect();
            let Some(haproxy) = haproxy(args, &groups, offer) else { return Ok((groups, Vec::new())) };
            seen(&haproxy, args, kind, offer, &names, &BTreeMap::new(), reporter).await
        }
        _ => Ok((unasked(args, kind, offer)?, Vec::new())),
    }
}

/// Looks at each.
async fn seen(
    balancer: &impl Balancer,
    args: &InitArgs,
    kind: BalancerKind,
    offer: &ComposeOffer,
    names: &[GroupName],
    ports: &BTreeMap<GroupName, u16>,
    reporter: &Reporter,
) -> Result<Groups, Problem> {
    let (mut groups, mut views) = (Vec::new(), Vec::new());
    for name in names {
        match balancer.observe(name).await {
            Ok(view) => {
                let port = ports.get(name).copied().or_else(|| view.targets.first().map(|target| target.port));
                groups.push((as_seen(name, port.unwrap_or_else(|| served(offer).0), &view), true));
                views.push(view);
            }
            Err(error) => {
                reporter.note(&format!("{name}: the balancer was asked in vain: {error}"));
                groups.push((default_group(args, kind, offer, name), false));
            }
        }
    }
    Ok((groups, views))
}

fn as_seen(name: &GroupName, port: u16, view: &GroupView) -> Group {
    let attributes = view.attributes;
    Group {
        name: name.clone(),
        port,
        health: HealthCheck { path: view.path.clone(), port: view.health_port, url: None, settings: view.settings },
        deregistration_delay: attributes.deregistration_delay,
        cross_zone: attributes.cross_zone,
        fail_open_count: attributes.fail_open_count,
        fail_open_percent: attributes.fail_open_percent,
        slow_start: attributes.slow_start,
    }
}

/// Which of an account's groups are meant: those that were named, else the one that takes traffic on a port of the compose file.
fn chosen(args: &InitArgs, offer: &ComposeOffer, all: &BTreeMap<GroupName, u16>) -> Result<Vec<GroupName>, Problem> {
    if !args.groups.is_empty() {
        return Ok(args.groups.iter().map(GroupName::new).collect());
    }
    let published =
        |port: &u16| offer.services.iter().any(|service| service.ports.iter().any(|(here, _)| here == port));
    let fitting: Vec<&GroupName> = all.iter().filter(|(_, port)| published(port)).map(|(name, _)| name).collect();
    if let [one] = fitting.as_slice() {
        return Ok(vec![(*one).clone()]);
    }
    let names = |groups: &[&GroupName]| groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let some = if fitting.is_empty() { all.keys().collect() } else { fitting };
    let said =
        asks_for(&format!("which target group? there is {}:", names(&some))).map(|word| GroupName::new(word.trim()));
    match said.filter(|said| all.contains_key(said)) {
        Some(group) => Ok(vec![group]),
        None => Err(usage(
            "which target group is meant is not clear",
            format!("`--group NAME` says it; there is {}", names(&some)),
        )),
    }
}

/// With the defaults of their kind.
fn unasked(args: &InitArgs, kind: BalancerKind, offer: &ComposeOffer) -> Result<Vec<(Group, bool)>, Problem> {
    let mut names: Vec<String> = args.groups.clone();
    if names.is_empty() {
        names.extend(asks_for("what is the target group (or backend) called?").filter(|name| !name.is_empty()));
    }
    if names.is_empty() {
        return Err(usage(
            "what the balancer calls the group is not known",
            "`--group NAME` says it; with AWS credentials and a region, or `--node`, the balancer itself is asked for the rest",
        ));
    }
    Ok(names.iter().map(|name| (default_group(args, kind, offer, &GroupName::new(name)), false)).collect())
}

/// AWS's own defaults (API reference, CreateTargetGroup), or HAProxy's (`inter`, `fall`, `rise`).
fn default_group(_: &InitArgs, kind: BalancerKind, offer: &ComposeOffer, name: &GroupName) -> Group {
    let (port, path) = served(offer);
    let seconds = Duration::from_secs;
    let aws = kind == BalancerKind::Alb;
    let settings = match aws {
        true => HealthSettings { interval: seconds(30), timeout: seconds(5), unhealthy: 2, healthy: 5 },
        false => HealthSettings { interval: seconds(2), timeout: seconds(1), unhealthy: 3, healthy: 2 },
    };
    Group {
        name: name.clone(),
        port,
        health: HealthCheck { path, port: None, url: None, settings },
        deregistration_delay: seconds(if aws { 300 } else { 30 }),
        cross_zone: true,
        fail_open_count: u32::from(aws),
        fail_open_percent: None,
        slow_start: Duration::ZERO,
    }
}

/// The port and the health check of the service that takes traffic, as far as the compose file tells.
fn served(offer: &ComposeOffer) -> (u16, String) {
    let checked = offer.services.iter().find_map(|service| service.checked());
    let first = offer.services.iter().find_map(|service| service.ports.first()).map_or(80, |(here, _)| *here);
    checked.map_or_else(|| (first, "/health".to_owned()), |(port, path)| (port, path.to_owned()))
}

/// HAProxy is asked by a fleet's own nodes.
fn haproxy(args: &InitArgs, groups: &[(Group, bool)], offer: &ComposeOffer) -> Option<Haproxy> {
    let server = ServerOffer {
        name: "server".into(),
        ssh: "server".into(),
        targets: vec!["server".into()],
        zone: None,
        why: String::new(),
    };
    let known = Proposal {
        app: "app".into(),
        compose: "compose.yaml".into(),
        offer: offer.clone(),
        kind: BalancerKind::Haproxy,
        region: None,
        endpoint: None,
        nodes: args.nodes.clone(),
        groups: groups.to_vec(),
        servers: vec![server],
        by_file: false,
        real: "/".into(),
    };
    let loaded = from_sources(&Source::new("deploy.toml", proposal(&known)), None).ok()?;
    Some(Haproxy::new(&loaded.fleet, ssh::Options::from_env()))
}
