//! deploy.toml says, the balancer says.

use super::{At, Setting, Value};
use crate::fleet::model::{FrontView, Group, GroupView, Known};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// One setting, as the file has it and as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The key in deploy.toml: `balancer.group.NAME.health.interval`.
    pub key: String,
    /// Where it is.
    #[serde(skip)]
    pub at: At,
    /// Which setting.
    #[serde(skip)]
    pub setting: Setting,
    /// What the file says, or the default that holds where it says nothing.
    pub file: Value,
    /// What is so.
    #[serde(rename = "balancer")]
    pub live: Value,
    /// Whether the file names it: only then it is changed.
    pub named: bool,
}

impl Row {
    /// Whether the balancer says otherwise.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.file != self.live
    }

    /// Whether it is to be changed.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.named && self.differs()
    }
}

/// Every setting of a group; `named` says which keys stand in the file.
#[must_use]
pub fn group_rows(group: &Group, view: &GroupView, named: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let (file, now, own) = (&group.health, view.settings, view.attributes);
    let time = Value::Time;
    // A number that is the traffic port's own is the same as none.
    let port = |port: Option<u16>| Value::Port(port.filter(|port| *port != group.port));
    let rows = [
        (Setting::Path, Value::Text(file.path.clone()), Value::Text(view.path.clone())),
        (Setting::HealthPort, port(file.port), port(view.health_port)),
        (Setting::Interval, time(file.settings.interval), time(now.interval)),
        (Setting::Timeout, time(file.settings.timeout), time(now.timeout)),
        (Setting::Unhealthy, Value::Count(file.settings.unhealthy), Value::Count(now.unhealthy)),
        (Setting::Healthy, Value::Count(file.settings.healthy), Value::Count(now.healthy)),
        (Setting::CrossZone, Value::Flag(group.cross_zone), Value::Flag(own.cross_zone)),
        (Setting::FailOpenCount, Value::Count(group.fail_open_count), Value::Count(own.fail_open_count)),
        (Setting::FailOpenPercent, Value::Percent(group.fail_open_percent), Value::Percent(own.fail_open_percent)),
        (Setting::DeregistrationDelay, time(group.deregistration_delay), time(own.deregistration_delay)),
        (Setting::SlowStart, time(group.slow_start), time(own.slow_start)),
    ];
    let row = |(setting, file, live): (Setting, Value, Value)| {
        let key = format!("balancer.group.{}.{}", group.name, setting.key());
        let named = named(&key);
        Row { key, at: At::Group(group.name.clone()), setting, file, live, named }
    };
    rows.into_iter().map(row).collect()
}

/// The setting of a load balancer.
#[must_use]
pub fn front_row(idle_timeout: Duration, front: &FrontView, named: &dyn Fn(&str) -> bool) -> Row {
    let key = format!("balancer.{}", Setting::IdleTimeout.key());
    Row {
        named: named(&key),
        key,
        at: At::Front(front.id.clone()),
        setting: Setting::IdleTimeout,
        file: Value::Time(idle_timeout),
        live: Value::Time(front.idle_timeout),
    }
}

/// Load balancers by their ids, as far as they are known.
pub type Fronts = BTreeMap<String, Known<FrontView>>;
