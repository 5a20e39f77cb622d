//! The settings of groups and load balancers in AWS's own words, both ways.
//!
//! What is not told is unknown, but for attributes whose default AWS documents.

use crate::fleet::model::{Beside, FrontView, GroupAttributes, GroupName, HealthSettings};
use crate::fleet::provision::{Change, Setting, Value};
use crate::rollout::port::BalancerError;
use aws_sdk_elasticloadbalancingv2::operation::modify_target_group::builders::ModifyTargetGroupFluentBuilder;
use aws_sdk_elasticloadbalancingv2::types::{LoadBalancerAttribute, TargetGroup, TargetGroupAttribute};
use std::collections::BTreeMap;
use std::time::Duration;

const DELAY: &str = "deregistration_delay.timeout_seconds";
const SLOW_START: &str = "slow_start.duration_seconds";
const CROSS_ZONE: &str = "load_balancing.cross_zone.enabled";
const FAIL_OPEN_COUNT: &str = "target_group_health.unhealthy_state_routing.minimum_healthy_targets.count";
const FAIL_OPEN_PERCENT: &str = "target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage";
const DNS_COUNT: &str = "target_group_health.dns_failover.minimum_healthy_targets.count";
const DNS_PERCENT: &str = "target_group_health.dns_failover.minimum_healthy_targets.percentage";
const IDLE_TIMEOUT: &str = "idle_timeout.timeout_seconds";

/// The numbers of a group's health check.
pub(super) fn health(name: &GroupName, group: &TargetGroup) -> Result<HealthSettings, BalancerError> {
    let missing = |what: &str| BalancerError::Unknown(format!("{name} came without its {what}"));
    let number = |value: Option<i32>, what| value.and_then(|v| u32::try_from(v).ok()).ok_or_else(|| missing(what));
    Ok(HealthSettings {
        interval: Duration::from_secs(number(group.health_check_interval_seconds(), "health check interval")?.into()),
        timeout: Duration::from_secs(number(group.health_check_timeout_seconds(), "health check timeout")?.into()),
        unhealthy: number(group.unhealthy_threshold_count(), "unhealthy threshold")?,
        healthy: number(group.healthy_threshold_count(), "healthy threshold")?,
    })
}

/// The port of a group's health check; `None` is each target's own.
pub(super) fn health_port(name: &GroupName, group: &TargetGroup) -> Result<Option<u16>, BalancerError> {
    match group.health_check_port() {
        None | Some("traffic-port") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| BalancerError::Unknown(format!("{name}: its health check port is `{text}`, no number"))),
    }
}

/// Attributes by their keys.
#[derive(Debug)]
pub(super) struct Attributes(BTreeMap<String, String>);

impl Attributes {
    pub(super) fn of_group(list: &[TargetGroupAttribute]) -> Result<Self, BalancerError> {
        Self::of(list.iter().map(|attribute| (attribute.key(), attribute.value())))
    }

    pub(super) fn of_front(list: &[LoadBalancerAttribute]) -> Result<Self, BalancerError> {
        Self::of(list.iter().map(|attribute| (attribute.key(), attribute.value())))
    }

    /// An answer without a single attribute is none: every group and load balancer has some.
    fn of<'a>(list: impl Iterator<Item = (Option<&'a str>, Option<&'a str>)>) -> Result<Self, BalancerError> {
        let all: BTreeMap<String, String> =
            list.filter_map(|(key, value)| Some((key?.to_owned(), value?.to_owned()))).collect();
        if all.is_empty() {
            return Err(BalancerError::Unknown("the balancer told no attributes at all".into()));
        }
        Ok(Self(all))
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn number(&self, key: &str) -> Result<Option<u32>, BalancerError> {
        match self.get(key) {
            None | Some("off") => Ok(None),
            Some(text) => {
                text.parse().map(Some).map_err(|_| BalancerError::Unknown(format!("{key} is `{text}`, no number")))
            }
        }
    }

    pub(super) fn own(&self) -> Result<GroupAttributes, BalancerError> {
        Ok(GroupAttributes {
            // `use_load_balancer_configuration` is always on for an ALB (AWS user guide).
            cross_zone: self.get(CROSS_ZONE) != Some("false"),
            fail_open_count: self.number(FAIL_OPEN_COUNT)?.unwrap_or(1),
            fail_open_percent: self.number(FAIL_OPEN_PERCENT)?,
            deregistration_delay: Duration::from_secs(self.number(DELAY)?.unwrap_or(300).into()),
            slow_start: Duration::from_secs(self.number(SLOW_START)?.unwrap_or(0).into()),
        })
    }

    pub(super) fn beside(&self) -> Result<Beside, BalancerError> {
        Ok(Beside {
            sticky: self.get("stickiness.enabled") == Some("true"),
            algorithm: self.get("load_balancing.algorithm.type").map(ToOwned::to_owned),
            dns_count: self.number(DNS_COUNT)?,
            dns_percent: self.number(DNS_PERCENT)?,
        })
    }

    pub(super) fn front(&self, id: &str) -> Result<FrontView, BalancerError> {
        // AWS's own default where it is not told (AWS API reference).
        let idle = self.number(IDLE_TIMEOUT)?.unwrap_or(60);
        Ok(FrontView { id: id.to_owned(), idle_timeout: Duration::from_secs(idle.into()) })
    }
}

/// `ModifyTargetGroup`: only what is named changes.
pub(super) fn health_order(
    mut order: ModifyTargetGroupFluentBuilder,
    change: &Change,
) -> Result<ModifyTargetGroupFluentBuilder, BalancerError> {
    for row in &change.rows {
        let wrong = || BalancerError::Refused(format!("{} cannot be {}", row.key, row.file));
        let number = || number(&row.file).and_then(|number| i32::try_from(number).ok()).ok_or_else(wrong);
        order = match (row.setting, &row.file) {
            (Setting::Path, Value::Text(path)) => order.health_check_path(path),
            (Setting::HealthPort, Value::Port(port)) => {
                order.health_check_port(port.map_or_else(|| "traffic-port".to_owned(), |port| port.to_string()))
            }
            (Setting::Interval, _) => order.health_check_interval_seconds(number()?),
            (Setting::Timeout, _) => order.health_check_timeout_seconds(number()?),
            (Setting::Unhealthy, _) => order.unhealthy_threshold_count(number()?),
            (Setting::Healthy, _) => order.healthy_threshold_count(number()?),
            _ => return Err(wrong()),
        };
    }
    Ok(order)
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Time(time) => Some(time.as_secs()),
        Value::Count(count) => Some(u64::from(*count)),
        _ => None,
    }
}

/// `ModifyTargetGroupAttributes`.
pub(super) fn group_attributes(change: &Change) -> Vec<TargetGroupAttribute> {
    pairs(change).map(|(key, value)| TargetGroupAttribute::builder().key(key).value(value).build()).collect()
}

/// `ModifyLoadBalancerAttributes`.
pub(super) fn front_attributes(change: &Change) -> Vec<LoadBalancerAttribute> {
    pairs(change).map(|(key, value)| LoadBalancerAttribute::builder().key(key).value(value).build()).collect()
}

fn pairs(change: &Change) -> impl Iterator<Item = (&'static str, String)> {
    change.rows.iter().filter_map(|row| Some((attribute(row.setting)?, words(&row.file))))
}

fn attribute(setting: Setting) -> Option<&'static str> {
    Some(match setting {
        Setting::DeregistrationDelay => DELAY,
        Setting::SlowStart => SLOW_START,
        Setting::CrossZone => CROSS_ZONE,
        Setting::FailOpenCount => FAIL_OPEN_COUNT,
        Setting::FailOpenPercent => FAIL_OPEN_PERCENT,
        Setting::IdleTimeout => IDLE_TIMEOUT,
        _ => return None,
    })
}

/// A value the way AWS writes it.
fn words(value: &Value) -> String {
    match value {
        Value::Time(time) => time.as_secs().to_string(),
        Value::Percent(Some(percent)) => percent.to_string(),
        other => other.to_string(),
    }
}
