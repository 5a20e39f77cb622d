//! The balancer's part of deploy.toml, written: what is read back from it is what was written.

use crate::fleet::model::{Balancer, BalancerKind, Group, show_duration};
use toml::Value;

/// `[balancer]` and its groups with every number, to be put in the place of those in the file.
#[must_use]
pub fn balancer_lines(balancer: &Balancer) -> String {
    let kind = match balancer.kind {
        BalancerKind::Alb => "alb",
        BalancerKind::Haproxy => "haproxy",
        BalancerKind::None => "none",
    };
    let mut out = format!("[balancer]\nkind = {}\n", quoted(kind));
    for (key, text) in [("region", &balancer.region), ("endpoint", &balancer.endpoint)] {
        if let Some(text) = text {
            out.push_str(&format!("{key} = {}\n", quoted(text)));
        }
    }
    out.push_str(&format!("idle_timeout = {}\n", quoted(&show_duration(balancer.idle_timeout))));
    for group in &balancer.groups {
        out.push_str(&group_lines(group));
    }
    out
}

fn group_lines(group: &Group) -> String {
    let (health, settings) = (&group.health, group.health.settings);
    let time = |time| quoted(&show_duration(time));
    let port = health.port.map(|port| format!(", port = {port}")).unwrap_or_default();
    let url = health.url.as_ref().map(|url| format!(", url = {}", quoted(url))).unwrap_or_default();
    let health = format!(
        "{{ path = {}{port}{url}, interval = {}, timeout = {}, unhealthy = {}, healthy = {} }}",
        quoted(&health.path),
        time(settings.interval),
        time(settings.timeout),
        settings.unhealthy,
        settings.healthy
    );
    let rows = [
        ("name", quoted(group.name.as_str())),
        ("port", group.port.to_string()),
        ("health", health),
        ("deregistration_delay", time(group.deregistration_delay)),
        ("cross_zone", group.cross_zone.to_string()),
        ("fail_open_count", group.fail_open_count.to_string()),
        ("fail_open_percent", group.fail_open_percent.unwrap_or(0).to_string()),
        ("slow_start", time(group.slow_start)),
    ];
    let lines: String = rows.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    format!("\n[[balancer.group]]\n{lines}")
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Source, from_sources};
    use crate::fleet::model::{Fleet, GroupName};
    use proptest::prelude::*;
    use std::time::Duration;

    const EXAMPLE: &str = include_str!("../../deploy.toml");

    fn read(text: &str) -> Fleet {
        from_sources(&Source::new("deploy.toml", text), None)
            .unwrap_or_else(|problems| panic!("{}\n{text}", problems.render(false)))
            .fleet
    }

    /// The example with other lines for its balancer.
    fn with_balancer(lines: &str) -> String {
        let (before, rest) = EXAMPLE.split_once("[balancer]").expect("a balancer");
        let (_, after) = rest.split_once("\n[drain]").expect("a drain");
        format!("{before}{lines}\n[drain]{after}")
    }

    #[test]
    fn the_example_is_written_as_it_was_read() {
        let fleet = read(EXAMPLE);
        assert_eq!(read(&with_balancer(&balancer_lines(&fleet.balancer))), fleet);
    }

    proptest! {
        #[test]
        fn whatever_a_balancer_says_is_read_back_as_it_was_written(
            interval in 6u64..300, timeout in 2u64..6, unhealthy in 2u32..10, healthy in 2u32..10,
            delay in 0u64..3600, cross_zone: bool, count in 1u32..50, percent in proptest::option::of(1u32..=100),
            slow in prop_oneof![Just(0u64), 30u64..900], idle in 1u64..4000, port in proptest::option::of(1u16..),
            path in "/[a-z0-9._~-]{0,12}(\\?[a-z]=[a-z\"\\\\']{0,3})?",
        ) {
            let mut fleet = read(EXAMPLE);
            let balancer = &mut fleet.balancer;
            balancer.idle_timeout = Duration::from_secs(idle);
            let group = &mut balancer.groups[0];
            let settings = &mut group.health.settings;
            (settings.interval, settings.timeout) = (Duration::from_secs(interval), Duration::from_secs(timeout));
            (settings.unhealthy, settings.healthy) = (unhealthy, healthy);
            (group.health.path, group.health.port) = (path, port);
            (group.cross_zone, group.fail_open_count, group.fail_open_percent) = (cross_zone, count, percent);
            (group.deregistration_delay, group.slow_start) = (Duration::from_secs(delay), Duration::from_secs(slow));
            // Two groups, the second by its ARN.
            let mut second = group.clone();
            second.name = GroupName::new("arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/other/0123456789abcdef");
            balancer.groups.push(second);
            let text = with_balancer(&balancer_lines(&fleet.balancer));
            let back = from_sources(&Source::new("deploy.toml", text.as_str()), None);
            // A path that the file's own rules refuse is told, never changed.
            if let Ok(back) = back {
                prop_assert_eq!(back.fleet.balancer, fleet.balancer);
            } else {
                prop_assert!(fleet.balancer.groups[0].health.path.contains(['"', '\\', '\'']), "{}", text);
            }
        }
    }
}
