//! `[drain]`: one way, whole, with its proof, and nothing of another way.

use super::services::health_hit;
use super::{Facts, idle, names, stranger};
use crate::config::problem::Problem;
use crate::config::url::Url;
use crate::config::view::View;

/// What belongs to which way.
const WAYS: [(&str, &[&str]); 8] = [
    ("file", &["file", "gateway", "hold"]),
    ("http", &["http"]),
    ("exec", &["exec"]),
    ("signal", &["signal"]),
    ("nodes", &["gateway"]),
    ("hold", &["hold"]),
    ("real", &["file", "http", "exec", "signal", "sigterm", "gateway", "deregister"]),
    ("counter", &["file", "http", "exec", "signal", "sigterm", "gateway", "deregister"]),
];

pub(super) fn check(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    if !facts.drain.bad("by") {
        way(facts, problems);
    }
    for name in ["exec", "signal", "hold"] {
        if let Some(said) = facts.drain.sub(name).said("service")
            && !names(&facts.services).contains(&said.text)
        {
            problems.push(stranger(said, "service", &names(&facts.services)));
        }
    }
    both_alike(facts, problems);
    if facts.drain.said("by").is_some_and(|by| by.text == "gateway") {
        told_apart(facts, problems);
    }
    if facts.drain.said("by").is_some_and(|by| by.text == "hold") {
        verified_behind(facts, problems);
    }
    let flips = facts.flips();
    if let (true, Some(real)) = (flips, facts.drain.said("real"))
        && let Some(problem) = health_hit(facts, real, "drain.real")
    {
        problems.push(problem);
    }
    if let (true, false, false, Some(by)) =
        (flips, facts.groups.is_empty(), facts.drain.has("real"), facts.drain.said("by"))
    {
        problems.push(
            Problem::new(by.place, format!("`drain.by = \"{}\"` needs `drain.real`", by.text))
                .label("health fails on purpose, so something else must show that the app goes on")
                .hint("name a URL on the server that answers 200 meanwhile, like `real = \"http://127.0.0.1:8080/version\"`"),
        );
    }
}

fn way(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let by = facts.drain.said("by");
    let Some(by) = by else {
        let place = facts.drain.place().or_else(|| facts.balancer.at("group"));
        if let (false, Some(place)) = (facts.groups.is_empty(), place) {
            problems.push(
                Problem::new(place, "`drain.by` is missing")
                    .label("how does a server leave these groups?")
                    .hint("add `[drain]` with a line like `by = \"file\"`"),
            );
        }
        return;
    };
    for (name, ways) in WAYS {
        match facts.drain.entry(name) {
            Some(entry) if !ways.contains(&by.text) => {
                problems.push(
                    idle(&entry.key_place, &format!("drain.{name}"), &format!("with `by = \"{}\"`", by.text))
                        .second(by.place, "the way that is taken"),
                );
            }
            // The gateway's own defaults stand for a hold that says nothing more.
            None if name == by.text && name != "hold" => problems.push(
                Problem::new(by.place, format!("`drain.by = \"{name}\"` needs `drain.{name}`"))
                    .label(format!("no `{name}` beside it"))
                    .hint(match crate::config::keys::find("drain", name) {
                        Some(key) => format!("add `{name} = {}`", key.example),
                        None => format!("add `{name}`"),
                    }),
            ),
            _ => {}
        }
    }
}

/// A drain and an undrain that are the same call cannot both be right: either may be repeated after a broken connection.
fn both_alike(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    for name in ["http", "exec", "signal"] {
        let way = facts.drain.sub(name);
        let (Some(drain), Some(undrain)) = (way.texts("drain"), way.texts("undrain")) else { continue };
        let other_method = way.text("undrain_method").is_some_and(|other| Some(other) != way.text("method"));
        if let (Some(at), Some(other)) = (way.at("undrain"), way.at("drain"))
            && drain == undrain
            && !drain.is_empty()
            && !other_method
        {
            problems.push(
                Problem::new(at, format!("`drain.{name}.undrain` is the same as `drain`"))
                    .label("must make health pass")
                    .second(other, "must make health fail")
                    .hint("each may be repeated after a broken connection, so one that toggles is not safe"),
            );
        }
    }
}

/// Whoever counts checks by their path cannot tell two groups apart that ask the same of one server.
fn told_apart(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let check = |group: &View<'_>| {
        let health = group.sub("health");
        Some((health.number::<u16>("port").or_else(|| group.number("port"))?, health.text("path")?))
    };
    for (at, group) in facts.groups.iter().enumerate() {
        let Some(own) = check(group) else { continue };
        let twin = facts.groups[..at].iter().find(|other| {
            check(other).as_ref() == Some(&own)
                && facts.servers.iter().any(|server| takes(server, other) && takes(server, group))
        });
        let (Some(twin), Some(place)) = (twin, group.sub("health").at("path").or_else(|| group.at("name"))) else {
            continue;
        };
        let (port, path) = own;
        let name = group.text("name").unwrap_or_default();
        let problem =
            Problem::new(place, "the checks of two groups cannot be told apart with `drain.by = \"gateway\"`")
                .label(format!("port {port}, `{path}`"))
                .hint(format!(
                    "add a query to the health check of one of them, here and at the balancer: `{path}?g={name}`"
                ));
        problems.push(match twin.sub("health").at("path").or_else(|| twin.at("name")) {
            Some(other) => problem.second(other, "asks the same"),
            None => problem,
        });
    }
}

/// What is held cannot show that it works: everything but the gateway is verified at a port of its own.
fn verified_behind(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let gateway = facts.drain.sub("hold").text("service");
    let ports: Vec<u16> = facts.groups.iter().filter_map(|group| group.number("port")).collect();
    for service in facts.services.iter().filter(|service| service.text("name") != gateway) {
        let Some(said) = service.sub("verify").said("http") else { continue };
        if Url::parse(said.text).is_ok_and(|url| url.on_loopback() && ports.contains(&url.port)) {
            problems.push(
                Problem::new(said.place, "`service.verify` asks the port at which the gateway holds every request meanwhile")
                    .label("waits like everybody else")
                    .hint("name the service's own port, behind the gateway; where this service is the gateway, say `hold = { service = ... }` in [drain]"),
            );
        }
    }
}

/// Whether a server is a target of a group.
fn takes(server: &View<'_>, group: &View<'_>) -> bool {
    let fields = server.fields("target");
    fields.is_empty() || group.text("name").is_some_and(|name| fields.iter().any(|entry| entry.key == name))
}
