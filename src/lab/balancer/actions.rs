//! What the ELBv2 API answers: each action with its result, or AWS's own refusal.

use super::core::Core;
use super::model::GroupSpec;
use super::query::Query;
use super::xml::{Node, branch, list, text};
use super::{lock, modify, views};
use crate::fleet::model::{GroupName, TargetId, Zone};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: 400, code, message: message.into() }
    }

    pub(super) fn with_status(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(super) fn validation(message: impl Into<String>) -> Self {
        Self::new("ValidationError", message)
    }
}

/// The most ARNs that one call may name.
const ARNS_PER_CALL: usize = 20;
/// The largest page, and the one when none is asked for.
const PAGE: usize = 400;

type Result<T> = std::result::Result<T, Refusal>;

/// Answers one call.
pub(super) fn answer(core: &Core, api: SocketAddr, action: &str, query: &Query) -> Result<Vec<Node>> {
    match action {
        "DescribeTargetGroups" => target_groups(core, query),
        "DescribeTargetHealth" => target_health(core, query),
        "DescribeTargetGroupAttributes" => Ok(vec![views::attributes(&group(core, query)?)]),
        "DescribeLoadBalancers" => load_balancers(core, api, query),
        "DescribeLoadBalancerAttributes" => {
            of_balancer(core, query)?;
            Ok(vec![load_balancer_attributes(core)])
        }
        "DescribeListeners" => listeners(core, query),
        "DescribeRules" => rules(core, query),
        "RegisterTargets" => register(core, query),
        "DeregisterTargets" => deregister(core, query),
        "ModifyTargetGroup" => modify::target_group(core, &group(core, query)?, query),
        "ModifyLoadBalancerAttributes" => {
            of_balancer(core, query)?;
            modify::balancer(core, query)?;
            Ok(vec![load_balancer_attributes(core)])
        }
        "ModifyTargetGroupAttributes" => modify::attributes(core, &group(core, query)?, query),
        other => Err(Refusal::new("InvalidAction", format!("The action {other} is not valid for this web service."))),
    }
}

/// The group that the call is about.
fn group(core: &Core, query: &Query) -> Result<GroupSpec> {
    let arn = query
        .get("TargetGroupArn")
        .ok_or_else(|| Refusal::validation("1 validation error detected: TargetGroupArn must not be null"))?;
    if !arn.starts_with("arn:") {
        return Err(Refusal::validation(format!("'{arn}' is not a valid target group ARN")));
    }
    core.names.group_by_arn(arn).and_then(|name| core.group(&name)).ok_or_else(no_group)
}

fn no_group() -> Refusal {
    Refusal::new("TargetGroupNotFound", "One or more target groups not found")
}

fn no_balancer() -> Refusal {
    Refusal::new("LoadBalancerNotFound", "One or more load balancers not found")
}

fn target_groups(core: &Core, query: &Query) -> Result<Vec<Node>> {
    let (arns, names, balancer) = (query.list("TargetGroupArns"), query.list("Names"), query.get("LoadBalancerArn"));
    if arns.len() > ARNS_PER_CALL {
        return Err(Refusal::validation(format!(
            "You cannot describe more than '{ARNS_PER_CALL}' target groups at a time"
        )));
    }
    let wanted: Vec<GroupName> = match (arns.is_empty(), names.is_empty(), balancer) {
        (true, true, None) => core.order.clone(),
        (true, true, Some(arn)) if arn == core.names.balancer_arn() => core.order.clone(),
        (true, true, Some(_)) => return Err(no_balancer()),
        (false, true, None) => all(arns.iter().map(|arn| core.names.group_by_arn(arn)))?,
        (true, false, None) => all(names.iter().map(|name| core.names.group_by_name(name)))?,
        _ => {
            return Err(Refusal::validation(
                "Only one of target group ARNs, names or a load balancer ARN can be specified",
            ));
        }
    };
    let (page, next) = page(&wanted, query)?;
    let groups = page.iter().filter_map(|name| core.group(name));
    let mut out = vec![list("TargetGroups", groups.map(|spec| views::group(&core.names, &spec)))];
    out.extend(next);
    Ok(out)
}

fn all(found: impl Iterator<Item = Option<GroupName>>) -> Result<Vec<GroupName>> {
    let unique: Option<BTreeSet<GroupName>> = found.collect();
    Ok(unique.ok_or_else(no_group)?.into_iter().collect())
}

/// One page of a list, and the marker of the next one.
fn page<'a, T>(all: &'a [T], query: &Query) -> Result<(&'a [T], Option<Node>)> {
    let size = match query.get("PageSize") {
        None => PAGE,
        Some(text) => text
            .parse()
            .ok()
            .filter(|size| (1..=PAGE).contains(size))
            .ok_or_else(|| Refusal::validation(format!("Page size '{text}' must be between 1 and {PAGE}")))?,
    };
    let from = match query.get("Marker") {
        None => 0,
        Some(text) => {
            text.parse().ok().filter(|at| *at <= all.len()).ok_or_else(|| Refusal::validation("Invalid marker"))?
        }
    };
    let to = (from + size).min(all.len());
    Ok((&all[from..to], (to < all.len()).then(|| text("NextMarker", to))))
}

fn target_health(core: &Core, query: &Query) -> Result<Vec<Node>> {
    let spec = group(core, query)?;
    let views = lock(&core.model).describe(&spec.name, core.clock.now()).ok_or_else(no_group)?;
    let asked = targets(query, false)?;
    let shown: Vec<Vec<Node>> = if asked.is_empty() {
        views.iter().map(|view| views::health(&spec, view)).collect()
    } else {
        let mut shown = Vec::new();
        for (id, port, _) in asked {
            let port = port.unwrap_or(spec.port);
            let found = views.iter().find(|view| view.id == id && view.port == port);
            shown.push(
                found.map_or_else(|| views::not_registered(id.as_str(), port), |view| views::health(&spec, view)),
            );
        }
        shown
    };
    Ok(vec![list("TargetHealthDescriptions", shown)])
}

type Asked = (TargetId, Option<u16>, Option<Zone>);

fn targets(query: &Query, needed: bool) -> Result<Vec<Asked>> {
    let objects = query.objects("Targets");
    if needed && objects.is_empty() {
        return Err(Refusal::validation("1 validation error detected: Targets must not be null"));
    }
    let read = objects.into_iter().map(|object| {
        let id = object
            .get("Id")
            .filter(|id| !id.is_empty())
            .ok_or_else(|| Refusal::validation("A target ID must be specified"))?;
        let port = match object.get("Port") {
            None => None,
            Some(port) => Some(
                port.parse()
                    .ok()
                    .filter(|port| *port > 0)
                    .ok_or_else(|| Refusal::validation(format!("Port '{port}' must be between 1 and 65535")))?,
            ),
        };
        Ok((TargetId::from(*id), port, object.get("AvailabilityZone").map(|zone| Zone::from(*zone))))
    });
    read.collect()
}

fn register(core: &Core, query: &Query) -> Result<Vec<Node>> {
    let spec = group(core, query)?;
    let asked = targets(query, true)?;
    for (id, port, _) in &asked {
        let is_address = id.as_str().parse::<std::net::IpAddr>().is_ok();
        if is_address != spec.by_address {
            let message = if spec.by_address {
                format!("The IP address '{id}' is not a valid IPv4 address")
            } else {
                format!("The following targets are not valid instance IDs: '{id}'")
            };
            return Err(Refusal::validation(message));
        }
        if spec.by_address && lock(&core.model).is_draining(&spec.name, id, *port, core.clock.now()) {
            return Err(Refusal::new(
                "InvalidTarget",
                format!(
                    "The following targets are being deregistered and cannot be registered until that is over: '{id}'"
                ),
            ));
        }
    }
    for (id, port, zone) in asked {
        let known = lock(&core.model).zone_of(&id);
        core.register(&spec.name, id, port, zone.or(known));
    }
    Ok(Vec::new())
}

/// A target that is not registered at this port is a success that does nothing: the silent no-op of AWS.
fn deregister(core: &Core, query: &Query) -> Result<Vec<Node>> {
    let spec = group(core, query)?;
    for (id, port, _) in targets(query, true)? {
        core.deregister(&spec.name, &id, port);
    }
    Ok(Vec::new())
}

fn load_balancers(core: &Core, api: SocketAddr, query: &Query) -> Result<Vec<Node>> {
    let (arns, names) = (query.list("LoadBalancerArns"), query.list("Names"));
    let (arn, name) = (core.names.balancer_arn(), core.names.balancer_name());
    if arns.iter().any(|asked| *asked != arn) || names.iter().any(|asked| *asked != name) {
        return Err(no_balancer());
    }
    let zones: BTreeSet<Zone> = lock(&core.model).zones().into_iter().collect();
    let zones = zones.into_iter().enumerate().map(|(at, zone)| {
        vec![text("ZoneName", zone), text("SubnetId", format!("subnet-{at:017x}")), list("LoadBalancerAddresses", [])]
    });
    let balancer = vec![
        text("LoadBalancerArn", arn),
        text("DNSName", api.ip()),
        text("CanonicalHostedZoneId", "ZLAB0000000000"),
        text("CreatedTime", "2026-01-01T00:00:00.000000Z"),
        text("LoadBalancerName", name),
        text("Scheme", "internal"),
        text("VpcId", "vpc-0000000000000lab0"),
        branch("State", vec![text("Code", "active")]),
        text("Type", "application"),
        list("AvailabilityZones", zones),
        text("IpAddressType", "ipv4"),
    ];
    Ok(vec![list("LoadBalancers", [balancer])])
}

/// Whether the call is about our load balancer.
fn of_balancer(core: &Core, query: &Query) -> Result<()> {
    if query.get("LoadBalancerArn") == Some(core.names.balancer_arn().as_str()) { Ok(()) } else { Err(no_balancer()) }
}

fn load_balancer_attributes(core: &Core) -> Node {
    let idle_timeout = core.idle_timeout_said().as_secs().to_string();
    let pairs = [
        ("idle_timeout.timeout_seconds", idle_timeout.as_str()),
        ("client_keep_alive.seconds", "3600"),
        ("load_balancing.cross_zone.enabled", "true"),
        ("zonal_shift.config.enabled", "false"),
        ("deletion_protection.enabled", "false"),
        ("access_logs.s3.enabled", "false"),
        ("routing.http2.enabled", "true"),
    ];
    views::attribute_list(pairs.map(|(key, value)| (key, value.to_owned())))
}

fn forward(core: &Core, group: &GroupName) -> Vec<Node> {
    let arn = core.names.group_arn(group);
    let weighted = vec![text("TargetGroupArn", &arn), text("Weight", 1)];
    vec![
        text("Type", "forward"),
        text("TargetGroupArn", arn),
        branch("ForwardConfig", vec![list("TargetGroups", [weighted])]),
    ]
}

fn listeners(core: &Core, query: &Query) -> Result<Vec<Node>> {
    let arns = query.list("ListenerArns");
    if query.get("LoadBalancerArn").is_some_and(|arn| arn != core.names.balancer_arn()) {
        return Err(no_balancer());
    }
    if arns.is_empty() && query.get("LoadBalancerArn").is_none() {
        return Err(Refusal::validation("Either listener ARNs or a load balancer ARN must be specified"));
    }
    let own: Vec<&GroupName> =
        core.order.iter().filter(|g| arns.is_empty() || arns.contains(&core.names.listener_arn(g).as_str())).collect();
    if own.len() < arns.len() {
        return Err(Refusal::new("ListenerNotFound", "One or more listeners not found"));
    }
    let (page, next) = page(&own, query)?;
    let shown = page.iter().map(|group| {
        vec![
            text("ListenerArn", core.names.listener_arn(group)),
            text("LoadBalancerArn", core.names.balancer_arn()),
            text("Port", core.group(group).map_or(80, |spec| spec.port)),
            text("Protocol", "HTTP"),
            list("DefaultActions", [forward(core, group)]),
        ]
    });
    let mut out = vec![list("Listeners", shown)];
    out.extend(next);
    Ok(out)
}

fn rules(core: &Core, query: &Query) -> Result<Vec<Node>> {
    let (listener, arns) = (query.get("ListenerArn"), query.list("RuleArns"));
    let own: Vec<&GroupName> = core
        .order
        .iter()
        .filter(|group| listener.is_none_or(|arn| arn == core.names.listener_arn(group)))
        .filter(|group| arns.is_empty() || arns.contains(&core.names.rule_arn(group).as_str()))
        .collect();
    if own.is_empty() && listener.is_some() {
        return Err(Refusal::new("ListenerNotFound", "One or more listeners not found"));
    }
    if own.len() < arns.len() {
        return Err(Refusal::new("RuleNotFound", "One or more rules not found"));
    }
    let (page, next) = page(&own, query)?;
    let shown = page.iter().map(|group| {
        vec![
            text("RuleArn", core.names.rule_arn(group)),
            text("Priority", "default"),
            list("Conditions", []),
            list("Actions", [forward(core, group)]),
            text("IsDefault", true),
        ]
    });
    let mut out = vec![list("Rules", shown)];
    out.extend(next);
    Ok(out)
}
