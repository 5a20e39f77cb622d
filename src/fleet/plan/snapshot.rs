//! Snapshots that are made, not taken: the fleet as the file alone says it is; and what a snapshot says runs where.

use crate::fleet::model::{
    BalancerKind, Beside, Fleet, GroupView, Known, OverrideState, ReleaseId, ServerName, Snapshot, TargetState,
    TargetView, Word,
};
use std::collections::BTreeMap;

/// The fleet as the file alone says it is: every target healthy, every number as written, nothing known of servers.
#[must_use]
pub fn offline_snapshot(fleet: &Fleet) -> Snapshot {
    let mut groups = BTreeMap::new();
    for group in &fleet.balancer.groups {
        let mut targets = Vec::new();
        for server in &fleet.servers {
            for spec in server.targets.get(&group.name).into_iter().flatten() {
                targets.push(TargetView {
                    id: spec.id.clone(),
                    port: spec.port.unwrap_or(group.port),
                    zone: server.zone.clone(),
                    state: TargetState::Healthy,
                    reason: None,
                    description: None,
                    shift: OverrideState::None,
                });
            }
        }
        let view = GroupView {
            id: group.name.to_string(),
            path: group.health.path.clone(),
            health_port: group.health.port,
            settings: group.health.settings,
            attributes: group.attributes(),
            beside: Beside::default(),
            fronts: Vec::new(),
            by_address: false,
            word: match fleet.balancer.kind {
                BalancerKind::Haproxy => Word::EachNode,
                BalancerKind::Alb | BalancerKind::None => Word::Merged,
            },
            targets,
            notes: Vec::new(),
        };
        groups.insert(group.name.clone(), Known::Known(view));
    }
    Snapshot { groups, servers: BTreeMap::new() }
}

/// What a fleet runs, by release: for partial deploys, which must say so.
#[must_use]
pub fn releases_in_fleet(snapshot: &Snapshot) -> BTreeMap<ReleaseId, Vec<ServerName>> {
    let mut releases: BTreeMap<ReleaseId, Vec<ServerName>> = BTreeMap::new();
    for (name, facts) in &snapshot.servers {
        if let Some(current) = facts.get().and_then(|facts| facts.current.as_ref()) {
            releases.entry(current.manifest.id.clone()).or_default().push(name.clone());
        }
    }
    releases
}
