//! `[balancer]` and its groups: what fits the kind, and what AWS would refuse (facts: AWS API model, HealthCheck settings and
//! target group attributes).

use super::{Facts, doubles, idle};
use crate::config::problem::Problem;
use crate::config::view::View;
use crate::fleet::model::show_duration;
use std::time::Duration;

/// AWS's range of a duration, in seconds.
const SECONDS: [(&str, u64, u64); 2] = [("interval", 5, 300), ("timeout", 2, 120)];
/// AWS's range of both thresholds.
const THRESHOLD: (u32, u32) = (2, 10);

pub(super) fn check(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let balancer = facts.balancer;
    if let (true, Some(entry)) = (facts.kind_is("none"), balancer.entry("group")) {
        problems.push(
            Problem::new(&entry.node.place, "`balancer.kind = \"none\"` has no target groups")
                .label("groups need a balancer")
                .hint("write `kind = \"alb\"`, or take the groups out"),
        );
    }
    if facts.kind_is("none") {
        for name in ["region", "endpoint"] {
            if let Some(entry) = balancer.entry(name) {
                problems.push(idle(&entry.key_place, &format!("balancer.{name}"), "with `kind = \"none\"`"));
            }
        }
    }
    let empty = facts.groups.is_empty() && !balancer.bad("group");
    if let (true, true, Some(kind)) = (facts.kind_is("alb"), empty, balancer.said("kind")) {
        problems.push(
            Problem::new(kind.place, "`balancer.kind = \"alb\"` needs at least one `[[balancer.group]]`")
                .label("no group in this file")
                .hint("servers without targets have `kind = \"none\"`"),
        );
    }
    doubles(facts.groups.iter().filter_map(|group| group.said("name")), "groups", problems);
    for group in &facts.groups {
        let health = group.sub("health");
        interval_above_timeout(health, problems);
        if facts.is_aws() {
            aws_ranges(*group, health, problems);
        }
    }
}

fn interval_above_timeout(health: View<'_>, problems: &mut Vec<Problem>) {
    let (Some(interval), Some(timeout)) = (health.duration("interval"), health.duration("timeout")) else { return };
    let (Some(at), Some(other)) = (health.at("interval"), health.at("timeout")) else { return };
    if interval <= timeout {
        let text = format!(
            "the health check's interval ({}) must be longer than its timeout ({})",
            show_duration(interval),
            show_duration(timeout)
        );
        problems
            .push(Problem::new(at, text).label("the interval").second(other, "the timeout").hint("AWS refuses it too"));
    }
}

fn aws_ranges(group: View<'_>, health: View<'_>, problems: &mut Vec<Problem>) {
    for (name, min, max) in SECONDS {
        seconds(health, name, min, max, problems);
    }
    seconds(group, "deregistration_delay", 0, 3600, problems);
    for name in ["unhealthy", "healthy"] {
        let (min, max) = THRESHOLD;
        if let (Some(number), Some(at)) = (health.number::<u32>(name), health.at(name))
            && !(min..=max).contains(&number)
        {
            problems.push(refused(at, &format!("`{name}` must be from {min} to {max} with AWS, not {number}")));
        }
    }
}

fn seconds(view: View<'_>, name: &str, min: u64, max: u64, problems: &mut Vec<Problem>) {
    let (Some(time), Some(at)) = (view.duration(name), view.at(name)) else { return };
    let shown = show_duration(time);
    let (low, high) = (Duration::from_secs(min), Duration::from_secs(max));
    if time < low || time > high {
        problems.push(refused(at, &format!("`{name}` must be from {min}s to {max}s with AWS, not {shown}")));
    } else if time.subsec_nanos() != 0 {
        problems.push(refused(at, &format!("`{name}` must be whole seconds with AWS, not {shown}")));
    }
}

fn refused(at: &crate::config::Place, text: &str) -> Problem {
    Problem::new(at, text)
        .label("out of AWS's range")
        .hint("only with `balancer.endpoint`, e.g. of a lab, any number is taken")
}
