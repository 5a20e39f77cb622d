//! `[balancer]` and its groups: what fits the kind, and what AWS would refuse (facts: AWS API model, HealthCheck settings and
//! target group attributes).

use super::{Facts, doubles, idle};
use crate::config::keys::split_target;
use crate::config::problem::Problem;
use crate::config::view::{View, said_in};
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
    idle_keys(facts, problems);
    let empty = facts.groups.is_empty() && !balancer.bad("group");
    if let (true, Some(kind)) = (empty, balancer.said("kind").filter(|kind| kind.text != "none")) {
        problems.push(
            Problem::new(
                kind.place,
                format!("`balancer.kind = \"{}\"` needs at least one `[[balancer.group]]`", kind.text),
            )
            .label("no group in this file")
            .hint("servers without targets have `kind = \"none\"`"),
        );
    }
    haproxy(facts, problems);
    doubles(facts.groups.iter().filter_map(|group| group.said("name")), "groups", problems);
    if facts.is_aws() {
        seconds(balancer, "idle_timeout", 1, 4000, problems);
    }
    for group in &facts.groups {
        let health = group.sub("health");
        interval_above_timeout(health, problems);
        if facts.is_aws() {
            aws_ranges(*group, health, problems);
        }
    }
}

/// Keys of another kind of balancer.
fn idle_keys(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let balancer = facts.balancer;
    let Some(kind) = balancer.said("kind") else { return };
    let with = format!("with `kind = \"{}\"`", kind.text);
    let own: &[&str] = match kind.text {
        "alb" => &["region", "endpoint"],
        "haproxy" => &["nodes"],
        _ => &[],
    };
    for name in ["region", "endpoint", "nodes"].iter().filter(|name| !own.contains(name)) {
        if let Some(entry) = balancer.entry(name) {
            problems.push(idle(&entry.key_place, &format!("balancer.{name}"), &with));
        }
    }
    let lets_go = facts.drain.said("by").is_some_and(|by| by.text == "deregister");
    let group_keys: &[&str] = match (kind.text, lets_go) {
        ("haproxy", true) => &["cross_zone", "fail_open_count", "fail_open_percent"],
        ("haproxy", false) => &["cross_zone", "fail_open_count", "fail_open_percent", "deregistration_delay"],
        _ => &[],
    };
    for entry in facts.groups.iter().flat_map(|group| group_keys.iter().filter_map(|name| group.entry(name))) {
        problems.push(idle(&entry.key_place, &format!("balancer.group.{}", entry.key), &with));
    }
    if let Some(entry) = facts.drain.entry("state").filter(|_| kind.text != "haproxy" || !lets_go) {
        let with = "without `kind = \"haproxy\"` and `by = \"deregister\"`";
        problems.push(idle(&entry.key_place, "drain.state", with));
    }
}

/// HAProxy's names are letters, digits and `-_.:` (HAProxy configuration manual, "Proxies"); any other would end a command.
fn is_haproxy_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
}

fn haproxy(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let balancer = facts.balancer;
    let Some(kind) = balancer.said("kind").filter(|kind| kind.text == "haproxy") else { return };
    if !balancer.has("nodes") {
        problems.push(
            Problem::new(kind.place, "`balancer.kind = \"haproxy\"` needs `balancer.nodes`")
                .label("where are its runtime sockets?")
                .hint("add `nodes = [\"/run/haproxy/admin.sock\"]`, one for every node that sends traffic"),
        );
    }
    doubles(balancer.said_all("nodes"), "nodes", problems);
    let targets = facts.servers.iter().flat_map(|server| {
        let plain = server.said_all("target");
        plain.into_iter().chain(server.fields("target").iter().flat_map(|entry| said_in(&entry.node)))
    });
    let ids = targets.filter_map(|said| Some((said, split_target(said.text).ok()?.0)));
    let names = facts.groups.iter().filter_map(|group| group.said("name")).map(|said| (said, said.text.to_owned()));
    for (said, name) in names.chain(ids).filter(|(_, name)| !is_haproxy_name(name)) {
        problems.push(
            Problem::new(said.place, format!("HAProxy has no backend or server `{name}`"))
                .label("letters, digits, `-`, `_`, `.` and `:` only"),
        );
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
    if group.duration("slow_start").is_some_and(|time| !time.is_zero()) {
        seconds(group, "slow_start", 30, 900, problems);
    }
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
