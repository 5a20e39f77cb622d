//! What the file says against what the balancer and the servers say, and the fleet with the live numbers in it.

use crate::fleet::model::{Fleet, Group, GroupView, Known, Snapshot, show_duration};
use serde::Serialize;
use std::time::Duration;

/// A number that is not what the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The number, by its key.
    pub key: String,
    /// What deploy.toml says.
    pub file: String,
    /// What is so.
    pub live: String,
    /// Who says so: the balancer, or a server.
    pub says: String,
}

/// What a look at everything brought.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// The fleet with the balancer's numbers in it.
    pub fleet: Fleet,
    /// Where the file says otherwise.
    pub differences: Vec<Difference>,
    /// What could not be learnt, each as a sentence.
    pub unknown: Vec<String>,
}

/// Lays what was observed over the file.
#[must_use]
pub fn live(fleet: &Fleet, snapshot: &Snapshot) -> Live {
    let mut live = Live { fleet: fleet.clone(), differences: Vec::new(), unknown: Vec::new() };
    for group in &mut live.fleet.balancer.groups {
        match snapshot.groups.get(&group.name) {
            Some(Known::Known(view)) => live.differences.extend(take(group, view)),
            Some(Known::Unknown(why)) => live.unknown.push(format!("{}: {why}", group.name)),
            None => live.unknown.push(format!("{}: it was not looked at", group.name)),
        }
    }
    for (name, known) in &snapshot.servers {
        match known {
            Known::Unknown(why) => live.unknown.push(format!("{name}: {why}")),
            Known::Known(facts) => {
                let Some(current) = &facts.current else {
                    live.unknown.push(format!("{name}: no release was verified there yet"));
                    continue;
                };
                for service in &fleet.services {
                    let Some(pin) = current.manifest.services.get(&service.name) else { continue };
                    if pin.grace < service.shutdown {
                        live.differences.push(Difference {
                            key: format!("service.{}.shutdown", service.name),
                            file: show_duration(service.shutdown),
                            live: format!("a grace period of {}", show_duration(pin.grace)),
                            says: name.to_string(),
                        });
                    }
                }
            }
        }
    }
    live
}

/// Takes a group's live numbers over, and says which were others.
fn take(group: &mut Group, view: &GroupView) -> Vec<Difference> {
    let key = |name: &str| format!("balancer.group.{}.{name}", group.name);
    let time = |time: Duration| show_duration(time);
    let percent = |percent: Option<u32>| percent.map_or_else(|| "off".to_owned(), |percent| format!("{percent}%"));
    let (file, now, attributes) = (group.health.settings, view.settings, view.attributes);
    let rows = [
        ("health.path", group.health.path.clone(), view.path.clone()),
        ("health.interval", time(file.interval), time(now.interval)),
        ("health.timeout", time(file.timeout), time(now.timeout)),
        ("health.unhealthy", file.unhealthy.to_string(), now.unhealthy.to_string()),
        ("health.healthy", file.healthy.to_string(), now.healthy.to_string()),
        ("cross_zone", group.cross_zone.to_string(), attributes.cross_zone.to_string()),
        ("fail_open_count", group.fail_open_count.to_string(), attributes.fail_open_count.to_string()),
        ("fail_open_percent", percent(group.fail_open_percent), percent(attributes.fail_open_percent)),
        ("deregistration_delay", time(group.deregistration_delay), time(attributes.deregistration_delay)),
        ("slow_start", time(group.slow_start), time(attributes.slow_start)),
    ];
    let differing = rows.into_iter().filter(|(_, file, live)| file != live);
    let differences = differing
        .map(|(name, file, live)| Difference { key: key(name), file, live, says: "the balancer".to_owned() })
        .collect();
    group.health.settings = now;
    (group.cross_zone, group.fail_open_count) = (attributes.cross_zone, attributes.fail_open_count);
    (group.fail_open_percent, group.slow_start) = (attributes.fail_open_percent, attributes.slow_start);
    group.deregistration_delay = attributes.deregistration_delay;
    differences
}
