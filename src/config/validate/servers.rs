//! `[[server]]` and `[rolling]`: every server once, every target once, and enough of them to take one out.

use super::{Facts, doubles, stranger};
use crate::config::keys::split_target;
use crate::config::problem::Problem;
use crate::config::view::{Said, View, said_in};
use crate::config::{build, tree::Value};
use std::net::IpAddr;

/// One target as it was written; without a group it stands for every group.
struct Written<'a> {
    group: Option<&'a str>,
    id: String,
    port: Option<u16>,
    said: Said<'a>,
}

pub(super) fn check(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    doubles(facts.servers.iter().filter_map(|server| server.said("name")), "servers", problems);
    doubles(facts.servers.iter().filter_map(|server| server.said("ssh")), "servers reached by ssh as", problems);
    let mut seen: Vec<Written<'_>> = Vec::new();
    for server in &facts.servers {
        if let Some(said) = server.said("name").filter(|said| said.text.starts_with("tag:")) {
            let what = format!("a server cannot be called `{}`", said.text);
            problems.push(Problem::new(said.place, what).label("`--servers tag:...` means servers with a tag"));
        }
        target_groups(facts, *server, problems);
        for one in written(*server) {
            strange_id(facts, &one, problems);
            match seen.iter().find(|first| first.clashes(&one)) {
                Some(first) => problems.push(
                    Problem::new(one.said.place, format!("target `{}` is named twice", one.said.text))
                        .label("again here")
                        .second(first.said.place, "first here"),
                ),
                None => seen.push(one),
            }
        }
    }
    unreached(facts, &seen, problems);
}

impl Written<'_> {
    /// No port means every port of the id, no group every group.
    fn clashes(&self, other: &Self) -> bool {
        let group = self.group.is_none() || other.group.is_none() || self.group == other.group;
        let port = self.port.is_none() || other.port.is_none() || self.port == other.port;
        group && port && self.id == other.id
    }
}

fn written(server: View<'_>) -> Vec<Written<'_>> {
    let by_group = server.fields("target").iter().flat_map(|entry| {
        said_in(&entry.node).into_iter().map(|said| (Some(entry.key.as_str()), said)).collect::<Vec<_>>()
    });
    let plain = server.said_all("target").into_iter().map(|said| (None, said));
    plain
        .chain(by_group)
        .filter_map(|(group, said)| {
            let (id, port) = split_target(said.text).ok()?;
            Some(Written { group, id, port, said })
        })
        .collect()
}

/// The addresses among the targets: a URL with one of them reaches a server as loopback does.
pub(super) fn addresses(facts: &Facts<'_>) -> Vec<String> {
    facts.servers.iter().flat_map(|server| written(*server)).map(|one| one.id).collect()
}

fn target_groups(facts: &Facts<'_>, server: View<'_>, problems: &mut Vec<Problem>) {
    let Some(entry) = server.entry("target") else {
        if let (true, Some(place)) = (!facts.kind_is("none"), server.at("name")) {
            problems.push(
                Problem::new(place, "this server has no target: the balancer sends it nothing, and nothing is drained")
                    .label("no `target`")
                    .hint("a worker is meant so; else add what the balancer calls it")
                    .warning(),
            );
        }
        return;
    };
    if facts.kind_is("none") {
        problems.push(
            Problem::new(&entry.key_place, "a server has no targets with `balancer.kind = \"none\"`")
                .label("no balancer to know it")
                .hint("write `kind = \"alb\"` and its groups, or take the target out"),
        );
        return;
    }
    let known = facts.group_names();
    let sure = known.len() == facts.groups.len() && !facts.balancer.bad("group");
    if let Value::Table(table) = &entry.node.value {
        for group in table.entries.iter().filter(|group| sure && !known.contains(&group.key.as_str())) {
            problems.push(stranger(Said { text: &group.key, place: &group.key_place }, "group", &known));
        }
    }
}

fn strange_id(facts: &Facts<'_>, one: &Written<'_>, problems: &mut Vec<Problem>) {
    let instance = one.id.strip_prefix("i-").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if facts.is_aws() && !instance && one.id.parse::<IpAddr>().is_err() {
        problems.push(
            Problem::new(one.said.place, format!("`{}` is neither an instance id nor an IP address", one.id))
                .label("AWS knows no such target")
                .warning(),
        );
    }
}

fn unreached(facts: &Facts<'_>, seen: &[Written<'_>], problems: &mut Vec<Problem>) {
    for group in &facts.groups {
        let Some(name) = group.said("name") else { continue };
        let reached = |one: &Written<'_>| one.group.is_none_or(|group| group == name.text);
        if !seen.is_empty() && !seen.iter().any(reached) {
            problems.push(
                Problem::new(name.place, format!("no server is a target in group `{}`", name.text))
                    .label("nothing to drain here")
                    .warning(),
            );
        }
        let Some(zones) = group.entry("cross_zone").filter(|_| group.flag("cross_zone") == Some(false)) else {
            continue;
        };
        for server in facts.servers.iter().filter(|server| server.has("target") && !server.has("zone")) {
            if let Some(place) = server.at("name") {
                problems.push(
                    Problem::new(place, "this server has no `zone`, and a group counts its targets by zone")
                        .label("which zone?")
                        .second(&zones.node.place, "by zone")
                        .warning(),
                );
            }
        }
    }
}

/// `[rolling]` against the number of servers that have targets.
pub(super) fn check_rolling(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let rolling = facts.root.sub("rolling");
    let servers = facts.servers.iter().filter(|server| server.has("target")).count();
    if facts.groups.is_empty() || servers == 0 || facts.root.bad("server") {
        return;
    }
    let Some(min) = rolling.number::<u32>("min_healthy").map(|min| min as usize) else { return };
    // A single server cannot keep one healthy: the plan says so, and `--allow-downtime` may answer.
    if let (true, Some(entry)) = (min >= servers.max(2), rolling.entry("min_healthy")) {
        problems.push(
            Problem::new(
                &entry.node.place,
                format!("`rolling.min_healthy` is {min}, with {servers} servers that have targets"),
            )
            .label("no server could ever be taken out")
            .hint(format!("at most {}", servers.saturating_sub(1))),
        );
        return;
    }
    let Some((batch, entry)) = build::batch(rolling).zip(rolling.entry("batch")) else { return };
    let out = batch.of(servers);
    if servers > 1 && out + min.max(1) > servers {
        problems.push(
            Problem::new(&entry.node.place, format!("a batch takes {out} of {servers} servers out"))
                .label(format!("`min_healthy` is {min}"))
                .hint("the deploy will be refused; take a smaller batch")
                .warning(),
        );
    }
}
