//! How every server stands, for people and as JSON: what is unknown is said to be.

use super::table;
use crate::fleet::model::{
    Absence, ContainerState, Fleet, Holder, Known, Server, ServerFacts, Snapshot, TargetState, TargetView,
    WatchdogState, Watched, show_duration, show_moment,
};
use crate::fleet::nodes::{NodeSeen, NodesSeen, Told};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A watchdog that has not looked for so many intervals does not look any more.
const MISSED: u32 = 3;

fn ago(then: u64, now: u64) -> String {
    format!("{} ago", show_duration(Duration::from_secs(now.saturating_sub(then))))
}

/// A table of the servers, and below it everything that is not as it should be.
#[must_use]
pub fn status_text(fleet: &Fleet, snapshot: &Snapshot, now: u64) -> String {
    let head = ["server", "release", "services", "targets", "rotation", "lock", "watchdog"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    let mut notes = Vec::new();
    for server in &fleet.servers {
        let targets = targets(server, snapshot);
        match snapshot.servers.get(&server.name) {
            Some(Known::Known(facts)) => {
                rows.push(vec![
                    server.name.to_string(),
                    release(facts),
                    services(facts),
                    targets_word(&targets),
                    rotation(fleet, facts),
                    lock(facts),
                    watchdog_word(fleet, facts, now),
                ]);
                notes.extend(noted(fleet, facts, now).into_iter().map(|note| format!("{}: {note}", server.name)));
            }
            other => {
                let mut row =
                    vec![server.name.to_string(), "unknown".to_owned(), String::new(), targets_word(&targets)];
                row.extend([String::new(), String::new(), String::new()]);
                rows.push(row);
                let why = match other {
                    Some(Known::Unknown(why)) => why.clone(),
                    _ => "it was not asked".to_owned(),
                };
                notes.push(format!("{}: unknown: {why}", server.name));
            }
        }
    }
    for (group, view) in &snapshot.groups {
        if let Known::Unknown(why) = view {
            notes.push(format!("group {group}: unknown: {why}"));
        }
    }
    let mut text = table(&rows);
    for note in notes {
        text.push('\n');
        text.push_str(&note);
    }
    text
}

fn release(facts: &ServerFacts) -> String {
    facts.current.as_ref().map_or_else(
        || if facts.containers.is_empty() { "none".to_owned() } else { "foreign".to_owned() },
        |current| {
            let id = current.manifest.id.short();
            current.manifest.label.as_ref().map_or_else(|| id.to_owned(), |label| format!("{label} ({id})"))
        },
    )
}

fn services(facts: &ServerFacts) -> String {
    if facts.engine.is_empty() {
        // It did not answer: what runs is not known.
        return "unknown".to_owned();
    }
    let running = facts.containers.iter().filter(|c| c.state == ContainerState::Running).count();
    format!("{running} of {} run", facts.containers.len())
}

fn targets<'a>(server: &Server, snapshot: &'a Snapshot) -> Vec<(String, &'a TargetView)> {
    let mut found = Vec::new();
    for (group, specs) in &server.targets {
        let Some(Known::Known(view)) = snapshot.groups.get(group) else { continue };
        let own = |target: &&TargetView| {
            specs.iter().any(|spec| spec.id == target.id && spec.port.is_none_or(|port| port == target.port))
        };
        found.extend(view.targets.iter().filter(own).map(|target| (group.to_string(), target)));
    }
    found
}

fn state(target: &TargetView) -> String {
    let word = match &target.state {
        TargetState::Other(word) => return word.clone(),
        state => json!(state),
    };
    word.as_str().unwrap_or_default().to_owned()
}

fn targets_word(targets: &[(String, &TargetView)]) -> String {
    if targets.is_empty() {
        return "-".to_owned();
    }
    let healthy = targets.iter().filter(|(_, target)| target.state == TargetState::Healthy).count();
    if healthy == targets.len() {
        return "healthy".to_owned();
    }
    let mut words: Vec<String> = targets.iter().map(|(_, target)| state(target)).collect();
    words.sort();
    words.dedup();
    words.join(", ")
}

/// It is to be out, and the file that says so to its health check is gone.
fn slipped_in(fleet: &Fleet, facts: &ServerFacts) -> bool {
    facts.absence.is_some() && fleet.drain.by.file().is_some() && !facts.drained && facts.lock.is_none()
}

fn rotation(fleet: &Fleet, facts: &ServerFacts) -> String {
    match (&facts.absence, facts.drained) {
        (Some(_), _) if slipped_in(fleet, facts) => "in, and to be out".to_owned(),
        (Some(_), _) => "out on purpose".to_owned(),
        (None, true) => "drained".to_owned(),
        (None, false) => "in".to_owned(),
    }
}

fn lock(facts: &ServerFacts) -> String {
    let who = |holder: &Holder| holder.who.clone();
    let held = [&facts.lock, &facts.deploy_lock].into_iter().flatten().next();
    match (held, &facts.freeze) {
        (Some(holder), _) => who(holder),
        (None, Some(freeze)) => format!("freeze by {}", freeze.who),
        (None, None) => "free".to_owned(),
    }
}

fn stale(fleet: &Fleet, seen: &Watched, now: u64) -> bool {
    // Also what is dated ahead: a clock that was set back since would else let it pass for fresh.
    now.abs_diff(seen.at) > (fleet.watchdog.interval * MISSED).as_secs().max(30)
}

fn watchdog_word(fleet: &Fleet, facts: &ServerFacts, now: u64) -> String {
    match (&facts.watchdog, &facts.installed) {
        (Some(seen), _) if stale(fleet, seen, now) && seen.at > now => "ahead of the clock".to_owned(),
        (Some(seen), _) if stale(fleet, seen, now) => format!("silent, {}", ago(seen.at, now)),
        (Some(seen), _) => seen.word.as_str().replace('_', " "),
        (None, Some(_)) => "has not looked yet".to_owned(),
        (None, None) => "none".to_owned(),
    }
}

/// Everything that somebody should know, each as a sentence.
fn noted(fleet: &Fleet, facts: &ServerFacts, now: u64) -> Vec<String> {
    let mut notes = facts.missing.clone();
    notes.extend(facts.drift.iter().cloned());
    if let Some(absence @ Absence { reason, since, until, by, .. }) = &facts.absence {
        let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
        let until = until.map_or_else(String::new, |until| format!(", until {}", show_moment(until)));
        let overdue = if absence.is_overdue(now) { "; it is overdue: `handover undrain` brings it back" } else { "" };
        notes.push(format!("out on purpose since {}{by}{until}: {reason}{overdue}", show_moment(*since)));
        if slipped_in(fleet, facts) {
            notes.push(
                "its drain file is gone, so it is in rotation all the same: `handover drain` takes it out again, \
                 `handover undrain` ends the absence"
                    .to_owned(),
            );
        }
    } else if facts.by_hand {
        notes.push(
            "health is made to fail by hand, and nobody wrote down why; `handover drain` does that, `handover undrain` \
             brings it back, and until then only a deploy does"
                .to_owned(),
        );
    } else if facts.drained && facts.lock.is_none() {
        notes.push(format!("health is made to fail, and nobody works here; {}", comes_back(facts)));
    }
    let held = [("server lock", &facts.lock), ("deploy lock", &facts.deploy_lock), ("freeze", &facts.freeze)];
    for (what, holder) in held {
        if let Some(holder) = holder {
            let since = if holder.since == 0 { "unknown".to_owned() } else { show_moment(holder.since) };
            notes.push(format!("{what}: {}: {} (since {since})", holder.who, holder.what));
        }
    }
    let stopped = facts
        .containers
        .iter()
        .filter(|c| c.state != ContainerState::Running && c.exit_code != 0 && !facts.asleep.contains_key(&c.service));
    notes.extend(stopped.map(|c| format!("{} does not run (exit code {})", c.name, c.exit_code)));
    notes.extend(facts.asleep.iter().map(|(service, why)| format!("{service} sleeps: {why}")));
    match &facts.nodes {
        Some(Known::Known(seen)) => notes.extend(checkers(seen)),
        Some(Known::Unknown(why)) => notes.push(format!("who checks its health is unknown: {why}")),
        None => {}
    }
    if let Some(incoming) = &facts.incoming {
        notes.push(format!("release {} was being tried and is not verified", incoming.short()));
    }
    if let Some(seen) = &facts.watchdog {
        notes.extend(watched(fleet, seen, now));
    }
    notes
}

/// Who asks for its health, and what he was told.
fn checkers(seen: &NodesSeen) -> Vec<String> {
    let one = |node: &NodeSeen| {
        let told = match node.told {
            Told::In => "may send",
            Told::Out => "may not send",
        };
        let ago = show_duration(Duration::from_secs(node.age.as_secs()));
        format!("{} asks for {} and was told {} times that it {told}, {ago} ago", node.address, node.path, node.row)
    };
    // What we ask ourselves is nobody's check.
    seen.nodes.iter().filter(|node| !node.agent.starts_with("handover")).map(one).collect()
}

/// What a server that is out for nobody waits for.
fn comes_back(facts: &ServerFacts) -> String {
    // A watchdog knows nothing better than what was verified.
    let watches = |seen: &&Watched| facts.installed.is_some() && seen.word != WatchdogState::NoRelease;
    let Some(seen) = facts.watchdog.as_ref().filter(watches) else {
        return "the next deploy puts it right".to_owned();
    };
    let counts = || seen.strikes.services().iter().filter(|(_, count)| count.failures > 0 || count.given_up);
    let names = |given_up: bool| {
        let of = counts().filter(|(_, count)| count.given_up == given_up).map(|(name, _)| name.as_str());
        of.collect::<Vec<_>>().join(", ")
    };
    match (names(false).as_str(), names(true).as_str()) {
        ("", "") => "the watchdog lets it back once every service passes".to_owned(),
        (failing, "") => format!("it comes back once {failing} passes"),
        ("", given_up) => format!("it comes back once {given_up} passes; given up: mend it or deploy"),
        (failing, given_up) => {
            format!("it comes back once {failing} and {given_up} pass; {given_up} is given up: mend it or deploy")
        }
    }
}

fn watched(fleet: &Fleet, seen: &Watched, now: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if stale(fleet, seen, now) {
        let ahead = if seen.at > now { ", which is yet to come by the clock here" } else { "" };
        notes.push(format!("the watchdog looked last at {}{ahead}", show_moment(seen.at)));
    } else if !matches!(seen.word, WatchdogState::Fine | WatchdogState::Busy | WatchdogState::Absent) {
        notes.push(format!("watchdog: {}", seen.what));
    }
    for (service, count) in seen.strikes.services() {
        if count.given_up {
            notes.push(format!("watchdog: {service} was healed too often and is given up: {}", count.why));
        } else if count.failures > 0 {
            let strikes = fleet.watchdog.strikes;
            notes.push(format!("watchdog: {service}: strike {} of {strikes}: {}", count.failures, count.why));
        }
    }
    if let Some(heal) = &seen.last_heal {
        let services: Vec<&str> = heal.services.iter().map(crate::fleet::model::ServiceName::as_str).collect();
        let how = if heal.worked { "healed" } else { "could not heal" };
        notes.push(format!("watchdog: {how} {} {}: {}", services.join(", "), ago(heal.at, now), heal.what));
    }
    notes
}

/// The same for machines.
#[must_use]
pub fn status_json(fleet: &Fleet, snapshot: &Snapshot, now: u64) -> Value {
    let servers = fleet.servers.iter().map(|server| {
        let mut one = Map::new();
        one.insert("name".into(), json!(server.name));
        let targets: Vec<Value> = targets(server, snapshot)
            .into_iter()
            .map(|(group, target)| {
                json!({"group": group, "id": target.id, "port": target.port, "state": state(target),
                    "description": target.description})
            })
            .collect();
        one.insert("targets".into(), json!(targets));
        match snapshot.servers.get(&server.name) {
            Some(Known::Known(facts)) => one.extend(known(fleet, facts, now)),
            Some(Known::Unknown(why)) => drop(one.insert("unknown".into(), json!(why))),
            None => drop(one.insert("unknown".into(), json!("it was not asked"))),
        }
        Value::Object(one)
    });
    let unknown = snapshot.groups.iter().filter_map(|(name, view)| match view {
        Known::Unknown(why) => Some(json!({"group": name, "unknown": why})),
        Known::Known(_) => None,
    });
    json!({"servers": servers.collect::<Vec<_>>(), "unknown_groups": unknown.collect::<Vec<_>>()})
}

fn known(fleet: &Fleet, facts: &ServerFacts, now: u64) -> Map<String, Value> {
    let watchdog = facts.watchdog.as_ref().map(|seen| {
        json!({"state": seen.word, "what": seen.what, "at": seen.at, "silent": stale(fleet, seen, now),
            "services": seen.strikes.services(), "healed": seen.healed, "last_heal": seen.last_heal})
    });
    let value = json!({
        "release": facts.current.as_ref().map(|current| &current.manifest.id),
        "label": facts.current.as_ref().and_then(|current| current.manifest.label.as_ref()),
        "previous": facts.previous.as_ref().map(|previous| &previous.manifest.id),
        "incoming": facts.incoming,
        "containers": facts.containers,
        "drained": facts.drained,
        "by_hand": facts.by_hand,
        "absence": facts.absence,
        "lock": facts.lock,
        "deploy_lock": facts.deploy_lock,
        "freeze": facts.freeze,
        "missing": facts.missing,
        "asleep": facts.asleep,
        "drift": facts.drift,
        "installed": facts.installed,
        "nodes": facts.nodes,
        "watchdog": watchdog,
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::model::LastHeal;
    use crate::fleet::strikes::{Rules, Seen};
    use std::collections::BTreeMap;

    fn fleet() -> Fleet {
        let text = include_str!("../../deploy.toml");
        let source = crate::config::Source::new("deploy.toml", text);
        crate::config::from_sources(&source, None).unwrap_or_else(|problem| panic!("{problem}")).fleet
    }

    fn facts(change: impl FnOnce(&mut ServerFacts)) -> ServerFacts {
        let value = json!({"compose": "2.40.3", "engine": "20", "missing": [], "disk_free": 1, "current": null, "previous": null,
            "incoming": null, "containers": [], "drained": false, "absence": null, "lock": null, "deploy_lock": null,
            "freeze": null});
        let mut facts: ServerFacts = serde_json::from_value(value).expect("facts of an agent that knows no watchdog");
        change(&mut facts);
        facts
    }

    fn shown(change: impl FnOnce(&mut ServerFacts)) -> String {
        let fleet = fleet();
        let servers = BTreeMap::from([(fleet.servers[0].name.clone(), Known::Known(facts(change)))]);
        status_text(&fleet, &Snapshot { groups: BTreeMap::new(), servers }, 100_000)
    }

    fn watched(at: u64) -> Watched {
        Watched { format: 1, at, word: WatchdogState::Fine, what: "every service works".into(), ..Watched::default() }
    }

    #[test]
    fn what_was_not_learnt_is_unknown_and_never_fine() {
        let fleet = fleet();
        let unknown = Known::Unknown("no route to host".to_owned());
        let servers = BTreeMap::from([(fleet.servers[0].name.clone(), unknown)]);
        let snapshot = Snapshot { groups: BTreeMap::new(), servers };
        let text = status_text(&fleet, &snapshot, 0);
        assert!(text.contains("web-1: unknown: no route to host"), "{text}");
        assert!(text.contains("web-2: unknown: it was not asked"), "{text}");
        assert_eq!(status_json(&fleet, &snapshot, 0)["servers"][0]["unknown"], "no route to host");
    }

    #[test]
    fn who_is_to_be_out_and_is_not_is_not_told_to_be_out() {
        let absence = json!({"reason": "a new disk", "ends_when_verified": false, "since": 5});
        let text = |drained| {
            shown(|facts| {
                facts.absence = serde_json::from_value(absence.clone()).ok();
                facts.drained = drained;
            })
        };
        assert!(text(true).contains("out on purpose  ") && !text(true).contains("is gone"), "{}", text(true));
        assert!(
            text(false).contains("in, and to be out") && text(false).contains("its drain file is gone"),
            "{}",
            text(false)
        );
    }

    #[test]
    fn what_runs_under_an_engine_that_does_not_answer_is_unknown() {
        assert!(shown(|facts| facts.engine.clear()).contains("unknown"));
        assert!(shown(|_| {}).contains("0 of 0 run"));
    }

    #[test]
    fn a_record_with_a_stamp_that_no_calendar_has_is_shown_all_the_same() {
        let text = shown(|facts| {
            facts.watchdog = Some(watched(u64::MAX));
            let absence =
                json!({"reason": "a new disk", "ends_when_verified": false, "since": u64::MAX, "until": 1_u64 << 40});
            facts.absence = serde_json::from_value(absence).ok();
        });
        assert!(text.contains("until the year 10000 or later: a new disk"), "{text}");
    }

    #[test]
    fn a_watchdog_that_looks_no_more_is_silent_whatever_it_said_last() {
        let text = shown(|facts| facts.watchdog = Some(watched(100_000 - 181)));
        assert!(text.contains("silent, 3m1s ago") && text.contains("the watchdog looked last at 1970-01-02"), "{text}");
        let text = shown(|facts| facts.watchdog = Some(watched(100_000 - 60)));
        assert!(text.contains("fine") && !text.contains("silent"), "{text}");
        let text = shown(|facts| facts.watchdog = Some(watched(100_000 + 181)));
        assert!(text.contains("ahead of the clock") && text.contains("yet to come"), "{text}");
    }

    #[test]
    fn strikes_heals_drift_and_absences_are_told() {
        let rules = Rules { interval: Duration::from_secs(1), strikes: 2, heals: 1, window: Duration::from_secs(60) };
        let text = shown(|facts| {
            let mut seen = watched(99_990);
            let looks = BTreeMap::from([("api".into(), Seen::Failing("answered 500".into()))]);
            seen.strikes.look(&rules, &"ab".into(), &looks, 99_980);
            seen.last_heal = Some(LastHeal {
                at: 99_940,
                services: vec!["api".into()],
                worked: false,
                what: "the image is gone".into(),
            });
            facts.watchdog = Some(seen);
            facts.drift = vec!["compose.json was changed".into()];
            facts.asleep = BTreeMap::from([("cms".into(), "nobody needs it (cms.example.org)".into())]);
            facts.absence =
                serde_json::from_value(json!({"reason": "a new disk", "ends_when_verified": false, "since": 5})).ok();
        });
        for part in [
            "api: strike 1 of 4: answered 500",
            "could not heal api 1m ago: the image is gone",
            "web-1: compose.json was changed",
            "web-1: cms sleeps: nobody needs it (cms.example.org)",
            "out on purpose since 1970-01-01T00:00:05Z: a new disk",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn what_a_server_that_nobody_left_out_waits_for_is_said() {
        let rules = Rules { interval: Duration::from_secs(1), strikes: 1, heals: 0, window: Duration::from_secs(60) };
        let seen = |fails: &[&str], looks: u64| {
            let mut seen = watched(99_990);
            let fails = fails.iter().map(|name| ((*name).into(), Seen::Failing("answered 500".into()))).collect();
            (0..looks).for_each(|look| drop(seen.strikes.look(&rules, &"ab".into(), &fails, 99_980 + look)));
            Some(seen)
        };
        let text = |installed: Option<&str>, watchdog: Option<Watched>| {
            shown(|facts| {
                (facts.drained, facts.watchdog) = (true, watchdog);
                facts.installed = installed.map(ToOwned::to_owned);
            })
        };
        for (text, part) in [
            (text(None, None), "nobody works here; the next deploy puts it right"),
            (text(None, seen(&["api"], 1)), "the next deploy puts it right"),
            (
                text(Some("1"), Some(Watched { word: WatchdogState::NoRelease, ..watched(99_990) })),
                "the next deploy puts",
            ),
            (text(Some("1"), seen(&[], 1)), "nobody works here; the watchdog lets it back once every service passes"),
            (text(Some("1"), seen(&["api"], 1)), "it comes back once api passes; given up: mend it or deploy"),
            (shown(|facts| (facts.drained, facts.by_hand) = (true, true)), "`handover undrain` brings it back"),
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let patient = Rules { strikes: 4, ..rules };
        let mut striking = watched(99_990);
        let looks = BTreeMap::from([("api".into(), Seen::Failing("answered 500".into()))]);
        striking.strikes.look(&patient, &"ab".into(), &looks, 99_980);
        let text = text(Some("1"), Some(striking));
        assert!(text.contains("it comes back once api passes\n") || text.ends_with("api passes"), "{text}");
    }
}
