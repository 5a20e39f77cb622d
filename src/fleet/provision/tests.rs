//! Every moment between two ends, what is refused in advance, and what each command needs.

use super::*;
use crate::fleet::model::{Beside, Group, GroupName, GroupView, HealthCheck, HealthSettings, Word};
use proptest::prelude::*;
use std::time::Duration;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn group() -> Group {
    Group {
        name: GroupName::new("api"),
        port: 8080,
        health: HealthCheck {
            path: "/health".into(),
            port: None,
            url: None,
            settings: HealthSettings { interval: seconds(5), timeout: seconds(2), unhealthy: 2, healthy: 2 },
        },
        deregistration_delay: seconds(30),
        cross_zone: true,
        fail_open_count: 1,
        fail_open_percent: None,
        slow_start: Duration::ZERO,
    }
}

/// A balancer that says what a file says.
fn view(group: &Group) -> GroupView {
    GroupView {
        id: "arn".into(),
        path: group.health.path.clone(),
        health_port: group.health.port,
        settings: group.health.settings,
        attributes: group.attributes(),
        beside: Beside::default(),
        fronts: Vec::new(),
        by_address: false,
        word: Word::Merged,
        targets: Vec::new(),
        notes: Vec::new(),
    }
}

fn all(_: &str) -> bool {
    true
}

/// Carries a change out on a group as the balancer has it: all of it at once.
fn carry_out(group: &mut Group, change: &Change) {
    let settings = &mut group.health.settings;
    for row in &change.rows {
        assert_eq!(row.setting.order(), change.order);
        match (row.setting, row.file.clone()) {
            (Setting::Path, Value::Text(path)) => group.health.path = path,
            (Setting::HealthPort, Value::Port(port)) => group.health.port = port,
            (Setting::Interval, Value::Time(time)) => settings.interval = time,
            (Setting::Timeout, Value::Time(time)) => settings.timeout = time,
            (Setting::Unhealthy, Value::Count(count)) => settings.unhealthy = count,
            (Setting::Healthy, Value::Count(count)) => settings.healthy = count,
            (Setting::CrossZone, Value::Flag(flag)) => group.cross_zone = flag,
            (Setting::FailOpenCount, Value::Count(count)) => group.fail_open_count = count,
            (Setting::FailOpenPercent, Value::Percent(percent)) => group.fail_open_percent = percent,
            (Setting::DeregistrationDelay, Value::Time(time)) => group.deregistration_delay = time,
            (Setting::SlowStart, Value::Time(time)) => group.slow_start = time,
            other => panic!("{other:?}"),
        }
    }
}

/// Three servers in three zones: how many healthy targets are missing before the group sends to all.
fn spare(group: &Group) -> i64 {
    let scope: u32 = if group.cross_zone { 3 } else { 1 };
    let percent = (scope * group.fail_open_percent.unwrap_or(0)).div_ceil(100);
    i64::from(scope) - i64::from(percent.max(group.fail_open_count))
}

fn out(group: &Group) -> Duration {
    group.health.settings.interval * group.health.settings.unhealthy + group.health.settings.timeout
}

fn back(group: &Group) -> Duration {
    group.health.settings.interval * group.health.settings.healthy + group.slow_start
}

/// Every moment between two ends is one that AWS takes and that is no worse than the worse end.
fn held(before: &Group, after: &Group, named: &dyn Fn(&str) -> bool) {
    let rows = group_rows(after, &view(before), named);
    let mut now = before.clone();
    let goal = {
        let mut goal = before.clone();
        for change in changes(&rows) {
            carry_out(&mut goal, &change);
        }
        goal
    };
    for change in changes(&rows) {
        carry_out(&mut now, &change);
        assert!(now.health.settings.timeout < now.health.settings.interval, "AWS refuses it: {now:?}");
        assert!(spare(&now) >= spare(before).min(spare(&goal)), "fails open in between: {before:?} {goal:?} {now:?}");
        assert!(out(&now) <= out(before).max(out(&goal)), "slower out in between: {before:?} {goal:?} {now:?}");
        assert!(back(&now) <= back(before).max(back(&goal)), "slower back in between: {before:?} {goal:?} {now:?}");
    }
    let left: Vec<_> = group_rows(after, &view(&now), named).into_iter().filter(Row::is_wanted).collect();
    assert_eq!(left, Vec::new(), "a second run has nothing to do");
    for (was, is) in group_rows(after, &view(before), named).iter().zip(group_rows(after, &view(&now), named)) {
        assert!(was.named || was.live == is.live, "{} was touched and is not named", was.key);
    }
}

/// Every pair of these ends, all of it: 144 x 144.
#[test]
fn no_moment_between_two_ends_is_refused_or_worse_than_both() {
    let mut ends = Vec::new();
    for (interval, timeout) in [(5, 2), (5, 4), (30, 2), (30, 29)] {
        for (unhealthy, healthy) in [(2, 2), (2, 10), (10, 2)] {
            for slow_start in [0, 30, 900] {
                for (cross_zone, count) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
                    let mut end = group();
                    end.health.settings =
                        HealthSettings { interval: seconds(interval), timeout: seconds(timeout), unhealthy, healthy };
                    (end.slow_start, end.cross_zone, end.fail_open_count) = (seconds(slow_start), cross_zone, count);
                    ends.push(end);
                }
            }
        }
    }
    for before in &ends {
        for after in &ends {
            held(before, after, &all);
        }
    }
}

fn some_group() -> impl Strategy<Value = Group> {
    let health = (6u64..300, 2u64..6, 2u32..=10, 2u32..=10, prop_oneof![Just(None), (1u16..).prop_map(Some)]);
    let rest = (0u64..3600, any::<bool>(), 1u32..5, proptest::option::of(1u32..=100));
    (health, rest, prop_oneof![Just(0u64), 30u64..900], "/[a-c]{1,2}").prop_map(|(health, rest, slow, path)| {
        let (interval, timeout, unhealthy, healthy, port) = health;
        let (delay, cross_zone, count, percent) = rest;
        let settings = HealthSettings { interval: seconds(interval), timeout: seconds(timeout), unhealthy, healthy };
        Group {
            health: HealthCheck { path, port, url: None, settings },
            deregistration_delay: seconds(delay),
            cross_zone,
            fail_open_count: count,
            fail_open_percent: percent,
            slow_start: seconds(slow),
            ..group()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn whatever_is_named_is_reached_and_nothing_else_is_touched(
        before in some_group(), after in some_group(), optional in 0u8..32,
    ) {
        // What stands in a health check is always named; each of the others may be.
        let keys = ["cross_zone", "fail_open_count", "fail_open_percent", "deregistration_delay", "slow_start"];
        let named = |key: &str| match keys.iter().position(|optional| key.ends_with(optional)) {
            Some(at) => optional & (1 << at) != 0,
            None => true,
        };
        held(&before, &after, &named);
    }
}

#[test]
fn a_group_takes_at_most_one_order_of_each_kind_and_none_where_nothing_differs() {
    let mut after = group();
    assert_eq!(changes(&group_rows(&after, &view(&group()), &all)), Vec::new());
    after.health.settings.interval = seconds(10);
    after.health.settings.timeout = seconds(9);
    after.deregistration_delay = seconds(60);
    after.cross_zone = false;
    let orders = changes(&group_rows(&after, &view(&group()), &all));
    let shape: Vec<(Order, usize)> = orders.iter().map(|change| (change.order, change.rows.len())).collect();
    assert_eq!(shape, [(Order::Health, 2), (Order::Attributes, 2)]);
    assert_eq!(
        orders[0].to_string(),
        "target group api: health.interval 5s -> 10s, health.timeout 2s -> 9s",
        "a person reads it"
    );
}

/// A slow start that ends goes first where the checks become slower, and last where they become quicker.
#[test]
fn the_way_back_is_never_longer_than_at_both_ends() {
    let order = |healthy: (u32, u32), slow: (u64, u64)| {
        let (mut before, mut after) = (group(), group());
        (before.health.settings.healthy, after.health.settings.healthy) = healthy;
        (before.slow_start, after.slow_start) = (seconds(slow.0), seconds(slow.1));
        let orders = changes(&group_rows(&after, &view(&before), &all));
        orders.iter().map(|change| change.order).collect::<Vec<_>>()
    };
    assert_eq!(order((2, 10), (30, 0)), [Order::Attributes, Order::Health]);
    assert_eq!(order((10, 2), (0, 30)), [Order::Health, Order::Attributes]);
}

#[test]
fn the_traffic_port_by_its_number_is_the_traffic_port() {
    let (mut file, mut live) = (group(), view(&group()));
    file.health.port = Some(8080);
    live.health_port = None;
    assert!(group_rows(&file, &live, &all).iter().all(|row| !row.differs()));
    live.health_port = Some(8081);
    let differing: Vec<_> = group_rows(&file, &live, &all).into_iter().filter(Row::differs).collect();
    assert_eq!(differing.len(), 1);
    assert_eq!((&differing[0].file, &differing[0].live), (&Value::Port(None), &Value::Port(Some(8081))));
}

/// What AWS says does not go together is told before anything is touched, and only where it is asked for.
#[test]
fn what_would_be_refused_is_told_in_advance() {
    type Case = (fn(&mut Group), fn(&mut Beside), usize, &'static str);
    let rows: [Case; 8] = [
        (|g| g.cross_zone = false, |b| b.sticky = true, 1, "sticky"),
        (
            |g| g.slow_start = seconds(30),
            |b| b.algorithm = Some("least_outstanding_requests".into()),
            3,
            "least_outstanding_requests",
        ),
        (|g| g.fail_open_count = 2, |b| b.dns_count = Some(1), 3, "DNS failover (1)"),
        (|g| g.fail_open_percent = Some(50), |b| b.dns_percent = Some(49), 3, "percentage"),
        (|g| g.fail_open_count = 4, |_| {}, 3, "4 healthy targets where it has 3"),
        (|g| g.fail_open_percent = Some(67), |_| {}, 3, ""),
        (|g| g.fail_open_count = 2, |b| b.dns_count = Some(2), 3, ""),
        (|g| g.fail_open_count = 3, |_| {}, 3, ""),
    ];
    for (change, beside, scope, word) in rows {
        let (mut file, mut around) = (group(), Beside::default());
        change(&mut file);
        beside(&mut around);
        let why = refused_in_advance(&file, &group_rows(&file, &view(&group()), &all), &around, scope);
        let told = why.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert_eq!(why.len(), usize::from(!word.is_empty()), "{word}: {told}");
        assert!(told.contains(word), "{word}: {told}");
        // The same, where it is so already or not named: nobody asks for it.
        let none: &dyn Fn(&str) -> bool = &|_| false;
        assert_eq!(refused_in_advance(&file, &group_rows(&file, &view(&group()), none), &around, scope), Vec::new());
        assert_eq!(refused_in_advance(&file, &group_rows(&file, &view(&file), &all), &around, scope), Vec::new());
    }
}

#[test]
fn parts_of_a_second_are_refused_not_cut_off() {
    let mut file = group();
    file.health.settings.timeout = Duration::from_millis(2500);
    let why = not_in_seconds(&group_rows(&file, &view(&group()), &all));
    assert_eq!(why.len(), 1);
    assert!(why[0].to_string().starts_with("balancer.group.api.health.timeout: "), "{}", why[0]);
}
