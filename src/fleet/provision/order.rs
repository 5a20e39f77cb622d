//! Which orders the balancer is given, one after the other, and what it would refuse.
//!
//! A group takes two orders: its health check and its attributes. Each is one call, so that what belongs together (interval and
//! timeout, cross-zone and the fail-open numbers) changes at once and no mixture of it ever exists. Only what stands in both has
//! an order to choose: a target that comes back takes `healthy x interval` and then its slow start.

use super::{At, Row, Setting, Value};
use crate::fleet::model::{Beside, Group};
use std::fmt;
use std::time::Duration;

/// What one order may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// The health check of a group.
    Health,
    /// The attributes of a group.
    Attributes,
    /// The attributes of a load balancer.
    Front,
}

impl Setting {
    /// The order that it belongs to.
    #[must_use]
    pub fn order(self) -> Order {
        match self {
            Self::Path | Self::HealthPort | Self::Interval | Self::Timeout | Self::Unhealthy | Self::Healthy => {
                Order::Health
            }
            Self::CrossZone
            | Self::FailOpenCount
            | Self::FailOpenPercent
            | Self::DeregistrationDelay
            | Self::SlowStart => Order::Attributes,
            Self::IdleTimeout => Order::Front,
        }
    }
}

/// One order to the balancer: all of it, or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Where.
    pub at: At,
    /// Which order.
    pub order: Order,
    /// What changes: the rows as they were before.
    pub rows: Vec<Row>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.rows.iter().map(|row| format!("{} {} -> {}", row.setting.key(), row.live, row.file)).collect();
        write!(f, "{}: {}", self.at, parts.join(", "))
    }
}

/// The orders that make the balancer say what the file names, in the order in which they are given.
#[must_use]
pub fn changes(rows: &[Row]) -> Vec<Change> {
    let mut places: Vec<&At> = Vec::new();
    for row in rows.iter().filter(|row| row.is_wanted()) {
        if !places.contains(&&row.at) {
            places.push(&row.at);
        }
    }
    let mut changes = Vec::new();
    for at in places {
        let own: Vec<&Row> = rows.iter().filter(|row| row.at == *at).collect();
        let orders = if attributes_first(&own) {
            [Order::Attributes, Order::Health, Order::Front]
        } else {
            [Order::Health, Order::Attributes, Order::Front]
        };
        for order in orders {
            let rows: Vec<Row> = own
                .iter()
                .filter(|row| row.is_wanted() && row.setting.order() == order)
                .map(|row| (*row).clone())
                .collect();
            if !rows.is_empty() {
                changes.push(Change { at: at.clone(), order, rows });
            }
        }
    }
    changes
}

/// Whether the health check first would, until the attributes follow, keep a returning target longer from its full share than
/// either end does. The other order is then the shorter one in both.
fn attributes_first(rows: &[&Row]) -> bool {
    let back = |health_after: bool, attributes_after: bool| {
        let time = |setting| time_of(rows, setting, health_after);
        let healthy = count_of(rows, Setting::Healthy, health_after);
        time(Setting::Interval).saturating_mul(healthy) + time_of(rows, Setting::SlowStart, attributes_after)
    };
    back(true, false) > back(false, false).max(back(true, true))
}

fn value_of<'a>(rows: &[&'a Row], setting: Setting, after: bool) -> Option<&'a Value> {
    let row = rows.iter().find(|row| row.setting == setting)?;
    Some(if after && row.named { &row.file } else { &row.live })
}

fn time_of(rows: &[&Row], setting: Setting, after: bool) -> Duration {
    match value_of(rows, setting, after) {
        Some(Value::Time(time)) => *time,
        _ => Duration::ZERO,
    }
}

fn count_of(rows: &[&Row], setting: Setting, after: bool) -> u32 {
    match value_of(rows, setting, after) {
        Some(Value::Count(count)) => *count,
        _ => 0,
    }
}

/// Why a change is not even tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    /// The key that asks for it.
    pub key: String,
    /// What stands against it, and what to do.
    pub what: String,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)
    }
}

/// What would be refused in the middle, or leave a group that sends to targets that are not healthy: told before anything is
/// touched. `scope` is how many targets the group has in its smallest counting scope.
#[must_use]
pub fn refused_in_advance(group: &Group, rows: &[Row], beside: &Beside, scope: usize) -> Vec<Why> {
    let own: Vec<&Row> = rows.iter().filter(|row| row.at == At::Group(group.name.clone())).collect();
    let wanted = |setting: Setting| own.iter().find(|row| row.setting == setting && row.is_wanted());
    let mut why = Vec::new();
    let mut tell = |row: &Row, what: String| why.push(Why { key: row.key.clone(), what });
    if let Some(row) = wanted(Setting::CrossZone)
        && beside.sticky
        && row.file == Value::Flag(false)
    {
        tell(row, "AWS refuses cross-zone off while the group is sticky: turn `stickiness.enabled` off first".into());
    }
    if let Some(row) = wanted(Setting::SlowStart)
        && beside.algorithm.as_deref() == Some("least_outstanding_requests")
        && row.file != Value::Time(Duration::ZERO)
    {
        let what =
            "AWS refuses a slow start with `least_outstanding_requests`: set `load_balancing.algorithm.type` first";
        tell(row, what.into());
    }
    let dns = [
        (Setting::FailOpenCount, beside.dns_count, "count"),
        (Setting::FailOpenPercent, beside.dns_percent, "percentage"),
    ];
    for (setting, dns, word) in dns {
        if let (Some(row), Some(dns)) = (wanted(setting), dns)
            && let Value::Count(routing) | Value::Percent(Some(routing)) = row.file
            && routing > dns
        {
            let key = format!("target_group_health.dns_failover.minimum_healthy_targets.{word}");
            tell(row, format!("AWS refuses a threshold above that of DNS failover ({dns}): raise `{key}` first"));
        }
    }
    why.extend(always_open(&own, scope));
    why
}

/// Durations that the balancer's API cannot be told.
#[must_use]
pub fn not_in_seconds(rows: &[Row]) -> Vec<Why> {
    let told = |row: &&Row| matches!(row.file, Value::Time(time) if row.is_wanted() && time.subsec_nanos() != 0);
    let what = |row: &Row| format!("the balancer takes whole seconds only, not {}", row.file);
    rows.iter().filter(told).map(|row| Why { key: row.key.clone(), what: what(row) }).collect()
}

/// More healthy targets wanted than there are: the balancer would send to all of them for good, whatever their health.
fn always_open(rows: &[&Row], scope: usize) -> Option<Why> {
    let needed = |after: bool| {
        let percent = match value_of(rows, Setting::FailOpenPercent, after) {
            Some(Value::Percent(Some(percent))) => (scope * *percent as usize).div_ceil(100),
            _ => 0,
        };
        percent.max(count_of(rows, Setting::FailOpenCount, after) as usize)
    };
    let row = rows.iter().find(|row| row.setting.order() == Order::Attributes && row.is_wanted())?;
    let (before, after) = (needed(false), needed(true));
    (scope > 0 && after > scope && after > before).then(|| Why {
        key: row.key.clone(),
        what: format!(
            "the group would want {after} healthy targets where it has {scope} (in its smallest zone, with cross-zone off): with \
             fewer it sends to all, healthy or not"
        ),
    })
}
