//! The actions that change settings, refused the way AWS refuses.

use super::actions::Refusal;
use super::core::Core;
use super::model::{GroupSpec, Matcher};
use super::query::Query;
use super::xml::{Node, list};
use super::{lock, views};
use std::ops::RangeInclusive;
use std::time::Duration;

type Result<T> = std::result::Result<T, Refusal>;

/// `ModifyTargetGroup`: only what is named changes.
pub(super) fn target_group(core: &Core, spec: &GroupSpec, query: &Query) -> Result<Vec<Node>> {
    let mut changed = spec.clone();
    let settings = &mut changed.settings;
    let least = |aws: u64| if core.strict_ranges { aws } else { 1 };
    if let Some(seconds) = number(query, "HealthCheckIntervalSeconds", least(5)..=300, "Health check interval")? {
        settings.interval = Duration::from_secs(seconds);
    }
    if let Some(seconds) = number(query, "HealthCheckTimeoutSeconds", least(2)..=120, "Health check timeout")? {
        settings.timeout = Duration::from_secs(seconds);
    }
    if let Some(count) = number(query, "UnhealthyThresholdCount", 2..=10, "Unhealthy threshold count")? {
        settings.unhealthy = u32::try_from(count).unwrap_or(2);
    }
    if let Some(count) = number(query, "HealthyThresholdCount", 2..=10, "Healthy threshold count")? {
        settings.healthy = u32::try_from(count).unwrap_or(2);
    }
    if settings.timeout >= settings.interval {
        let (timeout, interval) = (settings.timeout.as_secs(), settings.interval.as_secs());
        return Err(Refusal::validation(format!(
            "Health check timeout '{timeout}' must be smaller than the interval '{interval}'"
        )));
    }
    if let Some(path) = query.get("HealthCheckPath") {
        if !path.starts_with('/') || path.len() > 1024 {
            return Err(Refusal::validation(format!(
                "Health check path '{path}' must begin with '/' and be between 1 and 1024 characters"
            )));
        }
        path.clone_into(&mut changed.path);
    }
    if let Some(port) = query.get("HealthCheckPort") {
        changed.health_port = match port {
            "traffic-port" => None,
            port => Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
                Refusal::validation(format!("Health check port '{port}' must be 'traffic-port' or between 1 and 65535"))
            })?),
        };
    }
    if let Some(codes) = query.get("Matcher.HttpCode") {
        changed.matcher = Matcher::parse(codes).ok_or_else(|| {
            Refusal::validation(format!("Health check matcher HTTP code '{codes}' must be within '200-499' inclusive"))
        })?;
    }
    if query.get("HealthCheckEnabled") == Some("false") {
        let kind = if spec.by_address { "ip" } else { "instance" };
        return Err(Refusal::new(
            "InvalidConfigurationRequest",
            format!("Health check enabled must be true for target groups with target type '{kind}'"),
        ));
    }
    let settings = changed.settings;
    let mut model = lock(&core.model);
    if settings != spec.settings {
        model.change_settings(&spec.name, settings);
    }
    if let Some(own) = model.group_mut(&spec.name) {
        *own = changed.clone();
    }
    drop(model);
    core.changed();
    Ok(vec![list("TargetGroups", [views::group(&core.names, &changed)])])
}

fn number(query: &Query, name: &str, range: RangeInclusive<u64>, words: &str) -> Result<Option<u64>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.map(Some).ok_or_else(|| {
        Refusal::validation(format!("{words} '{text}' must be between {} and {}", range.start(), range.end()))
    })
}

/// `ModifyTargetGroupAttributes`: all of them are answered.
pub(super) fn attributes(core: &Core, spec: &GroupSpec, query: &Query) -> Result<Vec<Node>> {
    let pairs = query.objects("Attributes");
    if pairs.is_empty() {
        return Err(Refusal::validation("1 validation error detected: Attributes must not be null"));
    }
    let mut changed = spec.clone();
    // Their defaults are what was shown until now.
    changed.others = views::others(spec);
    for pair in &pairs {
        let (key, value) =
            (pair.get("Key").copied().unwrap_or_default(), pair.get("Value").copied().unwrap_or_default());
        attribute(&mut changed, key, value)?;
    }
    together(&changed)?;
    if let Some(own) = lock(&core.model).group_mut(&spec.name) {
        own.attributes = changed.attributes;
        own.others.clone_from(&changed.others);
    }
    core.changed();
    Ok(vec![views::attributes(&changed)])
}

fn attribute(spec: &mut GroupSpec, key: &str, value: &str) -> Result<()> {
    let wrong = || Refusal::validation(format!("'{value}' is not a valid value for attribute '{key}'"));
    let within =
        |range: RangeInclusive<u32>| value.parse().ok().filter(|value| range.contains(value)).ok_or_else(wrong);
    let own = &mut spec.attributes;
    match key {
        "deregistration_delay.timeout_seconds" => {
            own.deregistration_delay = Duration::from_secs(within(0..=3600)?.into());
        }
        "slow_start.duration_seconds" => {
            own.slow_start = Duration::from_secs(if value == "0" { 0 } else { within(30..=900)?.into() });
        }
        "load_balancing.cross_zone.enabled" => {
            own.cross_zone = match value {
                "true" | "use_load_balancer_configuration" => true,
                "false" => false,
                _ => return Err(wrong()),
            };
        }
        "target_group_health.unhealthy_state_routing.minimum_healthy_targets.count" => {
            own.fail_open_count = within(1..=1000)?;
        }
        "target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage" => {
            own.fail_open_percent = if value == "off" { None } else { Some(within(1..=100)?) };
        }
        "load_balancing.algorithm.type" => {
            let known = ["round_robin", "least_outstanding_requests", "weighted_random"].contains(&value);
            keep(spec, key, value, known)?;
        }
        "stickiness.enabled" => keep(spec, key, value, ["true", "false"].contains(&value))?,
        DNS_COUNT | DNS_PERCENT => keep(spec, key, value, value == "off" || within(1..=1000).is_ok())?,
        "stickiness.type" | "stickiness.lb_cookie.duration_seconds" => keep(spec, key, value, true)?,
        _ => {
            return Err(Refusal::validation(format!(
                "Target group attribute key '{key}' is not recognized, or not built in this lab"
            )));
        }
    }
    Ok(())
}

fn keep(spec: &mut GroupSpec, key: &str, value: &str, fine: bool) -> Result<()> {
    if !fine {
        return Err(Refusal::validation(format!("'{value}' is not a valid value for attribute '{key}'")));
    }
    spec.others.insert(key.to_owned(), value.to_owned());
    Ok(())
}

const DNS_COUNT: &str = "target_group_health.dns_failover.minimum_healthy_targets.count";
const DNS_PERCENT: &str = "target_group_health.dns_failover.minimum_healthy_targets.percentage";

/// What does not go together (AWS user guide; the words are ours).
fn together(spec: &GroupSpec) -> Result<()> {
    let refuse = |text: &str| Err(Refusal::new("InvalidConfigurationRequest", text));
    let other = |key: &str| spec.others.get(key).map(String::as_str);
    let own = &spec.attributes;
    if other("stickiness.enabled") == Some("true") && !own.cross_zone {
        return refuse("Stickiness cannot be enabled while cross-zone load balancing is off");
    }
    if other("load_balancing.algorithm.type") == Some("least_outstanding_requests") && !own.slow_start.is_zero() {
        return refuse("Slow start cannot be enabled with the least outstanding requests algorithm");
    }
    let below = |key: &str, routing: Option<u32>| {
        let dns = other(key).and_then(|value| value.parse::<u32>().ok());
        dns.zip(routing).is_some_and(|(dns, routing)| dns < routing)
    };
    if below(DNS_COUNT, Some(own.fail_open_count)) || below(DNS_PERCENT, own.fail_open_percent) {
        return refuse("The DNS failover threshold must be at least the unhealthy state routing threshold");
    }
    Ok(())
}

/// `ModifyLoadBalancerAttributes`, as far as the lab has them.
pub(super) fn balancer(core: &Core, query: &Query) -> Result<()> {
    let pairs = query.objects("Attributes");
    if pairs.is_empty() {
        return Err(Refusal::validation("1 validation error detected: Attributes must not be null"));
    }
    let mut idle_timeout = None;
    for pair in &pairs {
        let (key, value) =
            (pair.get("Key").copied().unwrap_or_default(), pair.get("Value").copied().unwrap_or_default());
        if key != "idle_timeout.timeout_seconds" {
            return Err(Refusal::validation(format!(
                "Load balancer attribute key '{key}' is not recognized, or not built in this lab"
            )));
        }
        let seconds = value.parse().ok().filter(|seconds| (1..=4000).contains(seconds)).ok_or_else(|| {
            Refusal::validation(format!("'{value}' is not a valid value for attribute '{key}': 1 to 4000"))
        })?;
        idle_timeout = Some(Duration::from_secs(seconds));
    }
    if let Some(idle_timeout) = idle_timeout {
        core.say_idle_timeout(idle_timeout);
    }
    Ok(())
}
