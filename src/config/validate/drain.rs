//! `[drain]`: one way, whole, with its proof, and nothing of another way.

use super::services::health_hit;
use super::{Facts, idle, names, stranger};
use crate::config::problem::Problem;

const WAYS: [&str; 4] = ["file", "http", "exec", "signal"];

pub(super) fn check(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    if !facts.drain.bad("by") {
        way(facts, problems);
    }
    for name in ["exec", "signal"] {
        if let Some(said) = facts.drain.sub(name).said("service")
            && !names(&facts.services).contains(&said.text)
        {
            problems.push(stranger(said, "service", &names(&facts.services)));
        }
    }
    both_alike(facts, problems);
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
    for name in WAYS {
        match facts.drain.entry(name) {
            Some(entry) if name != by.text => {
                problems.push(
                    idle(&entry.key_place, &format!("drain.{name}"), &format!("with `by = \"{}\"`", by.text))
                        .second(by.place, "the way that is taken"),
                );
            }
            None if name == by.text => problems.push(
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
