//! What the file says against what the balancer and the servers say, and the fleet with the live numbers in it.

use crate::fleet::model::{BalancerKind, Fleet, Group, GroupView, Known, Snapshot, front_name, show_duration};
use crate::fleet::provision::{Fronts, Row, front_row, group_rows};
use serde::Serialize;

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
pub fn live(fleet: &Fleet, snapshot: &Snapshot, fronts: &Fronts) -> Live {
    let mut live = Live { fleet: fleet.clone(), differences: Vec::new(), unknown: Vec::new() };
    for group in &mut live.fleet.balancer.groups {
        match snapshot.groups.get(&group.name) {
            Some(Known::Known(view)) => {
                if view.fronts.is_empty() && fleet.balancer.kind == BalancerKind::Alb {
                    live.unknown.push(format!(
                        "{}: it is attached to no load balancer, which has its idle timeout",
                        group.name
                    ));
                }
                live.differences.extend(take(group, view));
            }
            Some(Known::Unknown(why)) => live.unknown.push(format!("{}: {why}", group.name)),
            None => live.unknown.push(format!("{}: it was not looked at", group.name)),
        }
    }
    live.take_fronts(fronts);
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

impl Live {
    /// Takes the load balancers' own numbers over: of several idle timeouts the longest is what an app must outlast.
    fn take_fronts(&mut self, fronts: &Fronts) {
        let file = self.fleet.balancer.idle_timeout;
        let mut longest = None;
        for (id, known) in fronts {
            match known {
                Known::Unknown(why) => self.unknown.push(format!("load balancer {}: {why}", front_name(id))),
                Known::Known(front) => {
                    longest = longest.max(Some(front.idle_timeout));
                    let row = front_row(file, front, &|_| true);
                    let says = format!("load balancer {}", front.name());
                    self.differences.extend(Some(row).filter(Row::differs).map(|row| difference(row, &says)));
                }
            }
        }
        self.fleet.balancer.idle_timeout = longest.unwrap_or(file);
    }
}

fn difference(row: Row, says: &str) -> Difference {
    Difference { key: row.key, file: row.file.to_string(), live: row.live.to_string(), says: says.to_owned() }
}

/// Takes a group's live numbers over, and says which were others.
fn take(group: &mut Group, view: &GroupView) -> Vec<Difference> {
    let rows = group_rows(group, view, &|_| true);
    let differences = rows.into_iter().filter(Row::differs).map(|row| difference(row, "the balancer")).collect();
    let attributes = view.attributes;
    group.health.path.clone_from(&view.path);
    (group.health.settings, group.health.port) = (view.settings, view.health_port);
    (group.cross_zone, group.fail_open_count) = (attributes.cross_zone, attributes.fail_open_count);
    (group.fail_open_percent, group.slow_start) = (attributes.fail_open_percent, attributes.slow_start);
    group.deregistration_delay = attributes.deregistration_delay;
    differences
}
