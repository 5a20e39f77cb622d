//! The load balancer's things as the ELBv2 API shows them: their ARNs and their XML.

use super::model::GroupSpec;
use super::xml::{Node, branch, list, text, texts};
use crate::fleet::model::{GroupName, OverrideState, TargetReason, TargetState, TargetView};
use std::collections::BTreeMap;

const ACCOUNT: &str = "123456789012";
/// The load balancer's name.
const BALANCER: &str = "handover-lab";

/// The names and ARNs of one load balancer and its groups.
#[derive(Debug)]
pub(super) struct Names {
    region: String,
    groups: BTreeMap<GroupName, (String, String)>,
}

impl Names {
    pub(super) fn new(region: &str, order: &[GroupName]) -> Self {
        let groups = order.iter().map(|group| (group.clone(), name_and_arn(region, group))).collect();
        Self { region: region.to_owned(), groups }
    }

    /// The balancer as access logs name it: `app/NAME/ID`.
    pub(super) fn balancer_path(&self) -> String {
        format!("app/{BALANCER}/{}", hex(BALANCER))
    }

    fn arn(&self, what: &str) -> String {
        format!("arn:aws:elasticloadbalancing:{}:{ACCOUNT}:{what}", self.region)
    }

    pub(super) fn balancer_arn(&self) -> String {
        self.arn(&format!("loadbalancer/{}", self.balancer_path()))
    }

    pub(super) fn balancer_name(&self) -> &'static str {
        BALANCER
    }

    /// Each group has a listener of its own; the first one's is the load balancer's main one.
    pub(super) fn listener_arn(&self, group: &GroupName) -> String {
        self.arn(&format!("listener/{}/{}", self.balancer_path(), hex(group.as_str())))
    }

    pub(super) fn rule_arn(&self, group: &GroupName) -> String {
        let (listener, rule) = (hex(group.as_str()), hex(&format!("{group}/default")));
        self.arn(&format!("listener-rule/{}/{listener}/{rule}", self.balancer_path()))
    }

    pub(super) fn group_arn(&self, group: &GroupName) -> String {
        self.groups.get(group).map(|(_, arn)| arn.clone()).unwrap_or_default()
    }

    pub(super) fn group_name(&self, group: &GroupName) -> String {
        self.groups.get(group).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    pub(super) fn group_by_arn(&self, arn: &str) -> Option<GroupName> {
        self.groups.iter().find(|(_, (_, own))| own == arn).map(|(group, _)| group.clone())
    }

    pub(super) fn group_by_name(&self, name: &str) -> Option<GroupName> {
        self.groups.iter().find(|(_, (own, _))| own == name).map(|(group, _)| group.clone())
    }
}

/// deploy.toml names a group by its name or by its ARN.
fn name_and_arn(region: &str, group: &GroupName) -> (String, String) {
    let text = group.as_str();
    if text.starts_with("arn:") {
        let name = text.split('/').nth(1).unwrap_or(text);
        return (name.to_owned(), text.to_owned());
    }
    (text.to_owned(), format!("arn:aws:elasticloadbalancing:{region}:{ACCOUNT}:targetgroup/{text}/{}", hex(text)))
}

/// Sixteen hex digits that are always the same for a text (FNV-1a).
fn hex(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

pub(super) fn group(names: &Names, spec: &GroupSpec) -> Vec<Node> {
    let settings = spec.settings;
    let health_port = spec.health_port.map_or_else(|| "traffic-port".to_owned(), |port| port.to_string());
    vec![
        text("TargetGroupArn", names.group_arn(&spec.name)),
        text("TargetGroupName", names.group_name(&spec.name)),
        text("Protocol", "HTTP"),
        text("Port", spec.port),
        text("VpcId", "vpc-0000000000000lab0"),
        text("HealthCheckProtocol", "HTTP"),
        text("HealthCheckPort", health_port),
        text("HealthCheckEnabled", true),
        text("HealthCheckIntervalSeconds", settings.interval.as_secs()),
        text("HealthCheckTimeoutSeconds", settings.timeout.as_secs()),
        text("HealthyThresholdCount", settings.healthy),
        text("UnhealthyThresholdCount", settings.unhealthy),
        text("HealthCheckPath", &spec.path),
        branch("Matcher", vec![text("HttpCode", &spec.matcher)]),
        texts("LoadBalancerArns", [names.balancer_arn()]),
        text("TargetType", if spec.by_address { "ip" } else { "instance" }),
        text("ProtocolVersion", "HTTP1"),
        text("IpAddressType", "ipv4"),
    ]
}

pub(super) fn attributes(spec: &GroupSpec) -> Node {
    let own = &spec.attributes;
    let percent = own.fail_open_percent.map_or_else(|| "off".to_owned(), |percent| percent.to_string());
    let mut pairs = others(spec);
    let cross_zone = if own.cross_zone { "use_load_balancer_configuration" } else { "false" };
    let own = [
        ("deregistration_delay.timeout_seconds", own.deregistration_delay.as_secs().to_string()),
        ("slow_start.duration_seconds", own.slow_start.as_secs().to_string()),
        ("load_balancing.cross_zone.enabled", cross_zone.to_owned()),
        ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.count", own.fail_open_count.to_string()),
        ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage", percent),
    ];
    pairs.extend(own.map(|(key, value)| (key.to_owned(), value)));
    attribute_list(pairs.iter().map(|(key, value)| (key.as_str(), value.clone())))
}

/// The attributes that have no effect here: what was said, else AWS's defaults.
pub(super) fn others(spec: &GroupSpec) -> BTreeMap<String, String> {
    // A threshold of DNS failover is never below that of routing (AWS user guide).
    let dns = spec.attributes.fail_open_count.max(1).to_string();
    let dns_percent = spec.attributes.fail_open_percent.map_or_else(|| "off".to_owned(), |percent| percent.to_string());
    let defaults = [
        ("load_balancing.algorithm.type", "round_robin"),
        ("load_balancing.algorithm.anomaly_mitigation", "off"),
        ("stickiness.enabled", "false"),
        ("stickiness.type", "lb_cookie"),
        ("stickiness.lb_cookie.duration_seconds", "86400"),
        ("target_group_health.dns_failover.minimum_healthy_targets.count", &dns),
        ("target_group_health.dns_failover.minimum_healthy_targets.percentage", &dns_percent),
    ];
    let mut others: BTreeMap<String, String> =
        defaults.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
    others.extend(spec.others.clone());
    others
}

pub(super) fn attribute_list<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Node {
    list("Attributes", pairs.into_iter().map(|(key, value)| vec![text("Key", key), text("Value", value)]))
}

/// One target's health. AWS names the zone only for targets that are addresses.
pub(super) fn health(spec: &GroupSpec, view: &TargetView) -> Vec<Node> {
    let mut target = vec![text("Id", &view.id), text("Port", view.port)];
    if let (true, Some(zone)) = (spec.by_address, &view.zone) {
        target.push(text("AvailabilityZone", zone));
    }
    let (state, reason) = words(&view.state, view.reason.as_ref());
    let mut health = vec![text("State", state)];
    health.extend(reason.map(|reason| text("Reason", reason)));
    health.extend(view.description.as_ref().map(|description| text("Description", description)));
    let (shift, why) = match &view.shift {
        OverrideState::None => ("no_override", "AdministrativeOverride.NoOverride"),
        OverrideState::Shifted(word) if word == "zonal_shift_delegated_to_dns" => {
            ("zonal_shift_delegated_to_dns", "AdministrativeOverride.ZonalShiftDelegatedToDns")
        }
        OverrideState::Shifted(_) => ("zonal_shift_active", "AdministrativeOverride.ZonalShiftActive"),
    };
    vec![
        branch("Target", target),
        text("HealthCheckPort", spec.health_port.unwrap_or(view.port)),
        branch("TargetHealth", health),
        branch("AdministrativeOverride", vec![text("State", shift), text("Reason", why)]),
    ]
}

/// A target that was asked for and is not there.
pub(super) fn not_registered(id: &str, port: u16) -> Vec<Node> {
    let health = vec![
        text("State", "unused"),
        text("Reason", "Target.NotRegistered"),
        text("Description", "Target is not registered to the target group"),
    ];
    vec![branch("Target", vec![text("Id", id), text("Port", port)]), branch("TargetHealth", health)]
}

fn words<'a>(state: &'a TargetState, reason: Option<&'a TargetReason>) -> (&'a str, Option<&'a str>) {
    let state = match state {
        TargetState::Initial => "initial",
        TargetState::Healthy => "healthy",
        TargetState::Unhealthy => "unhealthy",
        TargetState::Unused => "unused",
        TargetState::Draining => "draining",
        TargetState::Unavailable => "unavailable",
        TargetState::Other(word) => word,
    };
    let reason = reason.map(|reason| match reason {
        TargetReason::ResponseCodeMismatch => "Target.ResponseCodeMismatch",
        TargetReason::Timeout => "Target.Timeout",
        TargetReason::FailedHealthChecks => "Target.FailedHealthChecks",
        TargetReason::Other(word) => word,
    });
    (state, reason)
}
