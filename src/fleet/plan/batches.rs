//! Which servers go together: broken ones first, then file order, spread over zones within a batch.

use super::{ServerPlan, StartsAs};
use crate::fleet::model::{Fleet, ServerName, Zone};
use std::collections::{HashMap, HashSet, VecDeque};

/// Cuts the servers into batches of `size`.
pub(super) fn batches(fleet: &Fleet, servers: Vec<ServerPlan>, size: usize) -> Vec<Vec<ServerPlan>> {
    let zones: HashMap<&ServerName, Option<&Zone>> =
        fleet.servers.iter().map(|server| (&server.name, server.zone.as_ref())).collect();
    let (first, rest): (Vec<_>, Vec<_>) =
        servers.into_iter().partition(|s| !matches!(s.starts_as, StartsAs::Serving | StartsAs::Worker));
    let mut waiting: VecDeque<ServerPlan> = first.into_iter().chain(rest).collect();
    let mut batches = Vec::new();
    while let Some(head) = waiting.pop_front() {
        let mut seen: HashSet<Option<&Zone>> = HashSet::from([zones.get(&head.name).copied().flatten()]);
        let mut batch = vec![head];
        while batch.len() < size && !waiting.is_empty() {
            let fresh = waiting.iter().position(|s| !seen.contains(&zones.get(&s.name).copied().flatten()));
            let Some(next) = waiting.remove(fresh.unwrap_or(0)) else { break };
            seen.insert(zones.get(&next.name).copied().flatten());
            batch.push(next);
        }
        batches.push(batch);
    }
    batches
}
