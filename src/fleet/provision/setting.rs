//! The settings of a balancer that deploy.toml can name, and their values.

use crate::fleet::model::{GroupName, front_name, show_duration};
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// Where a setting is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// In a target group.
    Group(GroupName),
    /// In a load balancer, by the balancer's own id of it.
    Front(String),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "target group {name}"),
            Self::Front(id) => write!(f, "load balancer {}", front_name(id)),
        }
    }
}

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// `health.path`.
    Path,
    /// `health.port`.
    HealthPort,
    /// `health.interval`.
    Interval,
    /// `health.timeout`.
    Timeout,
    /// `health.unhealthy`.
    Unhealthy,
    /// `health.healthy`.
    Healthy,
    /// `cross_zone`.
    CrossZone,
    /// `fail_open_count`.
    FailOpenCount,
    /// `fail_open_percent`.
    FailOpenPercent,
    /// `deregistration_delay`.
    DeregistrationDelay,
    /// `slow_start`.
    SlowStart,
    /// `idle_timeout`, of the load balancer.
    IdleTimeout,
}

impl Setting {
    /// Its key below its group, or below `balancer`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Path => "health.path",
            Self::HealthPort => "health.port",
            Self::Interval => "health.interval",
            Self::Timeout => "health.timeout",
            Self::Unhealthy => "health.unhealthy",
            Self::Healthy => "health.healthy",
            Self::CrossZone => "cross_zone",
            Self::FailOpenCount => "fail_open_count",
            Self::FailOpenPercent => "fail_open_percent",
            Self::DeregistrationDelay => "deregistration_delay",
            Self::SlowStart => "slow_start",
            Self::IdleTimeout => "idle_timeout",
        }
    }
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A path.
    Text(String),
    /// A port; `None` is each target's own.
    Port(Option<u16>),
    /// A duration.
    Time(Duration),
    /// So many.
    Count(u32),
    /// So many of a hundred; `None` is off.
    Percent(Option<u32>),
    /// On or off.
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Port(None) => f.write_str("the target's own"),
            Self::Port(Some(port)) => write!(f, "{port}"),
            Self::Time(time) => f.write_str(&show_duration(*time)),
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(None) => f.write_str("off"),
            Self::Percent(Some(percent)) => write!(f, "{percent}%"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
