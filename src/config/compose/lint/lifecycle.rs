//! Hazards of starting and stopping: grace periods, restart policies, what others wait for.

use super::Cx;
use super::service::health;
use crate::config::compose::duration::Fault;
use crate::config::compose::files::{Found, Service};
use crate::config::compose::numbers::duration_of;
use crate::config::problem::{Place, Severity};
use crate::fleet::model::{DrainBy, Known, show_duration};
use crate::fleet::release::DEFAULT_GRACE;
use std::time::Duration;

pub(super) fn look(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    durations(cx, name, service);
    grace(cx, name, service);
    signal(cx, name, service);
    restart(cx, name, service);
    waits(cx, name, service);
}

const DURATIONS: [&[&str]; 5] = [
    &["stop_grace_period"],
    &["healthcheck", "interval"],
    &["healthcheck", "timeout"],
    &["healthcheck", "start_period"],
    &["healthcheck", "start_interval"],
];

fn durations(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    for path in DURATIONS {
        let Some((scalar, place)) = cx.text(service, path) else { continue };
        let (key, text) = (path.join("."), &scalar.text);
        let why = match duration_of(&scalar) {
            Ok(_) => continue,
            Err(Fault::NoUnit) => {
                format!("{name}: `{key}: {text}` has no unit, Compose refuses the file; write `{text}s`")
            }
            Err(Fault::Negative) => format!("{name}: `{key}: {text}` is less than nothing"),
            Err(Fault::Other) => format!("{name}: `{key}: {text}` is no duration, Compose refuses the file"),
        };
        cx.say("duration-refused", place, why);
    }
}

/// Compose hands whole seconds to the engine, cut off, not rounded (its `utils.DurationSecondToInt`).
fn grace(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    if service.unknown.is_some() {
        return;
    }
    let written = cx.text(service, &["stop_grace_period"]);
    let (grace, place) = match &written {
        Some((scalar, place)) => match duration_of(scalar) {
            Ok(grace) => (grace, Some(place.clone())),
            Err(_) => return,
        },
        None if matches!(service.find(&["stop_grace_period"]), Found::Nothing) => (DEFAULT_GRACE, service.place()),
        None => return,
    };
    let Some(place) = place else { return };
    if grace.subsec_nanos() > 0 {
        let text = format!(
            "{name}: of a grace period of {} the engine gets whole seconds: {}s",
            show_duration(grace),
            grace.as_secs()
        );
        cx.say("grace-cut", place.clone(), text);
    }
    let Some(spec) = cx.fleet.services.iter().find(|spec| spec.name.as_str() == name) else { return };
    let drains = cx.fleet.drain.by == DrainBy::Sigterm && !spec.groups.is_empty();
    let (needed, what) = if drains {
        (spec.shutdown + cx.fleet.drain.serve, "`drain.serve` and its `shutdown`")
    } else {
        (spec.shutdown, "its `shutdown`")
    };
    if Duration::from_secs(grace.as_secs()) < needed {
        let by = if written.is_some() { "" } else { ", Compose's default" };
        let text = format!(
            "{name}: is killed {} after it was told to stop{by}; {what} in deploy.toml need {}",
            show_duration(grace),
            show_duration(needed)
        );
        cx.say("grace-below-shutdown", place, text);
    }
}

fn signal(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    let Some((signal, place)) = cx.text(service, &["stop_signal"]) else { return };
    if ["KILL", "9", "STOP", "19"].contains(&signal.text.to_uppercase().trim_start_matches("SIG")) {
        let text = format!("{name}: `stop_signal: {}` gives it no chance to finish what it answers", signal.text);
        cx.say("stop-signal-kills", place, text);
    }
}

/// The policy that counts: `deploy.restart_policy`, where there is one, lies over `restart` (Compose's `getRestartPolicy`).
fn policy(cx: &Cx<'_>, service: &Service<'_>) -> Option<(String, Place)> {
    if let Found::Here(layer, entry) = service.find(&["deploy", "restart_policy"]) {
        let place = layer.place(&entry.key_span);
        return match service.find(&["deploy", "restart_policy", "condition"]) {
            Found::Nothing => Some((String::new(), place)),
            _ => {
                cx.text(service, &["deploy", "restart_policy", "condition"]).map(|(scalar, place)| (scalar.text, place))
            }
        };
    }
    match service.find(&["restart"]) {
        Found::Nothing => service.place().map(|place| (String::new(), place)),
        _ => cx.text(service, &["restart"]).map(|(scalar, place)| (scalar.text, place)),
    }
}

fn restart(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    if service.unknown.is_some() {
        return;
    }
    over_restart(cx, name, service);
    let Some((policy, place)) = policy(cx, service) else { return };
    let word = policy.split(':').next().unwrap_or_default();
    let awaited = cx.ends.contains(name);
    match word {
        "always" | "any" | "unless-stopped" if awaited => {
            let text = format!("{name}: others wait for it to end, and `{policy}` starts it again each time it does");
            cx.say("one-shot-restarts", place, text);
        }
        "always" | "any" if cx.sleeps(name) => {
            let text = format!("{name}: sleeps behind the gateway, and `{policy}` wakes it whenever the engine starts");
            cx.say("sleeper-restarts", place, text);
        }
        "always" | "any" => {
            let text =
                format!("{name}: `{policy}` also brings back what was stopped on purpose when the engine restarts");
            cx.say("restart-always", place, text);
        }
        "" | "no" | "none" if cx.expected(name) && !awaited => {
            let text = format!(
                "{name}: has no restart policy: once it ends, or its server boots, it stays down until somebody looks"
            );
            cx.say("restart-missing", place, text);
        }
        "" | "no" | "none" | "on-failure" | "unless-stopped" => {}
        other => cx.say("restart-refused", place, format!("{name}: the engine knows no restart policy `{other}`")),
    }
}

fn over_restart(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    let Found::Here(layer, entry) = service.find(&["deploy", "restart_policy"]) else { return };
    let place = layer.place(&entry.key_span);
    if matches!(service.find(&["restart"]), Found::Here(..)) {
        let text = format!("{name}: `deploy.restart_policy` lies over `restart`, which has no effect beside it");
        cx.say("deploy-restart-policy", place, text);
    }
    for key in ["delay", "window"] {
        if let Found::Here(layer, entry) = service.find(&["deploy", "restart_policy", key]) {
            let text = format!(
                "{name}: plain Compose honours `condition` and `max_attempts` of a restart policy and ignores `{key}`"
            );
            cx.say("deploy-restart-policy", layer.place(&entry.key_span), text);
        }
    }
}

/// What a service waits for.
struct Wait {
    name: String,
    condition: String,
    required: bool,
    place: Place,
}

/// The services that this one waits for to end.
pub(super) fn awaited_ends(service: &Service<'_>) -> Vec<String> {
    let ends = |wait: &Wait| wait.condition == "service_completed_successfully";
    dependencies(service).into_iter().filter(ends).map(|wait| wait.name).collect()
}

fn dependencies(service: &Service<'_>) -> Vec<Wait> {
    let mut all: Vec<Wait> = Vec::new();
    for (layer, entry) in service.all("depends_on") {
        let listed = entry.node.items().iter().filter_map(|item| {
            let place = layer.place(&item.span);
            Some(Wait { name: item.text()?.to_owned(), condition: "service_started".into(), required: true, place })
        });
        let mapped = entry.node.entries().iter().map(|inner| Wait {
            name: inner.key.clone(),
            condition: inner.node.get("condition").and_then(|node| node.text()).unwrap_or("service_started").to_owned(),
            required: inner.node.get("required").and_then(|node| node.text()) != Some("false"),
            place: layer.place(&inner.key_span),
        });
        // What lies over it has said so already.
        let fresh: Vec<Wait> =
            listed.chain(mapped).filter(|wait| all.iter().all(|over| over.name != wait.name)).collect();
        all.extend(fresh);
    }
    all
}

fn waits(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    if cx.project.unknown.is_some() || service.unknown.is_some() {
        return;
    }
    for wait in dependencies(service) {
        let other = &wait.name;
        let Some(awaited) = cx.get(other) else {
            if wait.required {
                let off = cx.project.services.contains_key(other);
                let why = if off { "which a profile switches off" } else { "which is not here" };
                cx.say(
                    "depends-on-missing",
                    wait.place,
                    format!("{name}: waits for `{other}`, {why}: Compose refuses the file"),
                );
            }
            continue;
        };
        if wait.condition != "service_healthy" || awaited.unknown.is_some() {
            continue;
        }
        match health(cx, awaited) {
            Known::Known(true) => {}
            Known::Known(false) => {
                let text = format!("{name}: waits until `{other}` is healthy, and its health check is switched off");
                cx.say("health-missing", wait.place, text);
                if let Some(last) = cx.found.last_mut() {
                    last.severity = Severity::Error;
                }
            }
            Known::Unknown(_) => {
                let text = format!(
                    "{name}: waits until `{other}` is healthy, which has no health check; unless its image has one, the start fails"
                );
                cx.say("health-missing", wait.place, text);
            }
        }
    }
}
