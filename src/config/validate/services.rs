//! `[[service]]`: names, groups that exist, and a proof that can succeed while the server is drained.

use super::{Facts, doubles, idle, stranger};
use crate::config::problem::Problem;
use crate::config::url::Url;
use crate::config::view::{Said, View};

const WAYS: [&str; 4] = ["http", "tcp", "exec", "heartbeat"];

pub(super) fn check(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    doubles(facts.services.iter().filter_map(|service| service.said("name")), "services", problems);
    run_once(facts, problems);
    let known = facts.group_names();
    // With a name that could not be read, what looks unknown may be that one.
    let sure = known.len() == facts.groups.len() && !facts.balancer.bad("group");
    for service in &facts.services {
        let groups = service.said_all("group");
        doubles(groups.iter().copied(), "groups", problems);
        for group in groups.iter().filter(|group| sure && !known.contains(&group.text)) {
            problems.push(stranger(*group, "group", &known));
        }
        if !service.bad("verify") && service.has("verify") {
            verify(facts, service.sub("verify"), problems);
        }
    }
}

/// What is run once is run in a container of a service that there is.
fn run_once(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let all = facts.root.subs("run_once");
    doubles(all.iter().filter_map(|once| once.said("name")), "`run_once` of one name:", problems);
    let known = super::names(&facts.services);
    let sure = known.len() == facts.services.len() && !facts.root.bad("service");
    let strange = all.iter().filter_map(|once| once.said("service")).filter(|said| sure && !known.contains(&said.text));
    problems.extend(strange.map(|said| stranger(said, "service", &known)));
}

fn verify(facts: &Facts<'_>, verify: View<'_>, problems: &mut Vec<Problem>) {
    let Some(place) = verify.place() else { return };
    let ways: Vec<&str> = WAYS.into_iter().filter(|way| verify.has(way)).collect();
    if ways.len() != 1 {
        let text = if ways.is_empty() {
            "`service.verify` names no way to verify".to_owned()
        } else {
            format!("`service.verify` names {} ways: {}", ways.len(), ways.join(", "))
        };
        problems.push(Problem::new(place, text).label("exactly one").hint("take one of http, tcp, exec, heartbeat"));
    }
    for (name, way) in [("status", "http"), ("json", "http"), ("host", "http"), ("age", "heartbeat")] {
        if let Some(entry) = verify.entry(name)
            && !ways.is_empty()
            && !ways.contains(&way)
        {
            problems.push(idle(&entry.key_place, &format!("service.verify.{name}"), &format!("without `{way}`")));
        }
    }
    if let (true, Some(said)) = (!verify.has("age"), verify.said("heartbeat")) {
        problems.push(
            Problem::new(said.place, "`heartbeat` needs `age`")
                .label("how old may it be?")
                .hint("add `age = \"10s\"`, longer than the time between two beats"),
        );
    }
    if let (true, Some(said)) = (facts.flips(), verify.said("http"))
        && let Some(problem) = health_hit(facts, said, "service.verify")
    {
        problems.push(problem);
    }
}

/// Whether a URL that must answer 200 during the drain is a health endpoint that then answers 503 on purpose.
pub(super) fn health_hit(facts: &Facts<'_>, said: Said<'_>, what: &str) -> Option<Problem> {
    let url = Url::parse(said.text).ok()?;
    let addresses: Vec<String> = super::servers::addresses(facts);
    let here = url.on_loopback() || addresses.contains(&url.host);
    for group in &facts.groups {
        let health = group.sub("health");
        let port = health.number::<u16>("port").or_else(|| group.number("port"));
        let by_port = here && port == Some(url.port) && health.text("path").is_some_and(|path| url.same_path(&path));
        let by_url = health.said("url").and_then(|said| Url::parse(said.text).ok()).is_some_and(|other| {
            let host = other.host == url.host || (other.on_loopback() && url.on_loopback());
            host && other.port == url.port && url.same_path(&other.path)
        });
        if !by_port && !by_url {
            continue;
        }
        let name = group.text("name").unwrap_or_default();
        let problem = Problem::new(said.place, format!("`{what}` asks the health check of group `{name}`"))
            .label("answers 503 while the server is drained")
            .hint(
                "name another path that shows the app works, e.g. its version; the same path on another port is fine",
            );
        let at = if by_port { health.at("path") } else { health.at("url") };
        return Some(match at {
            Some(at) => problem.second(at, "the health check"),
            None => problem,
        });
    }
    None
}
