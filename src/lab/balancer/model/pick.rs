//! Where a node sends a request: its own view, the counting scope, and the gate that opens when too few are healthy.

use super::{Model, Pick, Place, Target};
use crate::clock::Stamp;
use crate::fleet::health::Verdict;
use crate::fleet::model::{GroupName, OverrideState};
use std::time::Duration;

impl Model {
    /// Whether any node may still pick a target: the promise is that nothing stops while it is true.
    #[must_use]
    pub fn may_be_picked(&self, group: &GroupName, place: &Place, now: Stamp) -> bool {
        (0..self.nodes()).any(|node| self.candidates(node, group, now).0.contains(place))
    }

    /// The targets that a node chooses from, and whether it fails open.
    fn candidates(&self, node: usize, group: &GroupName, now: Stamp) -> (Vec<Place>, bool) {
        let Some(group) = self.groups.get(group) else { return (Vec::new(), false) };
        let zone = &self.spec.nodes[node];
        let lag = self.lag(node);
        let in_reach: Vec<(&Place, &Target)> = group
            .targets
            .iter()
            .filter(|(_, t)| t.deregistered.is_none_or(|at| now < at + lag))
            .filter(|(_, t)| t.shift == OverrideState::None)
            .filter(|(_, t)| group.spec.attributes.cross_zone || t.zone.as_ref() == Some(zone))
            .collect();
        let healthy: Vec<Place> = in_reach
            .iter()
            .filter(|(_, t)| t.views[node].checker.verdict() == Verdict::Healthy)
            .map(|(place, _)| (*place).clone())
            .collect();
        let count = u32::try_from(healthy.len()).unwrap_or(u32::MAX);
        let registered = u64::try_from(in_reach.len()).unwrap_or(u64::MAX);
        let attributes = &group.spec.attributes;
        let percent_open =
            attributes.fail_open_percent.is_some_and(|p| u64::from(count) * 100 < u64::from(p) * registered);
        if count < attributes.fail_open_count || percent_open {
            return (in_reach.into_iter().map(|(place, _)| place.clone()).collect(), true);
        }
        (healthy, false)
    }

    /// Where a node sends a request, in turn.
    pub fn pick(&mut self, node: usize, group: &GroupName, now: Stamp) -> Pick {
        let (places, fail_open) = self.candidates(node, group, now);
        let Some(group) = self.groups.get_mut(group) else { return Pick::None };
        if places.is_empty() {
            return Pick::None;
        }
        let turn = group.next[node];
        group.next[node] = turn.wrapping_add(1);
        let at = usize::try_from(turn % places.len() as u64).unwrap_or(0);
        Pick::Target { place: places[at].clone(), fail_open }
    }

    /// After so long a node has learnt of a deregistration: one node after the other, the last one when the whole lag is
    /// over.
    fn lag(&self, node: usize) -> Duration {
        let nodes = u32::try_from(self.nodes()).unwrap_or(1).max(1);
        self.spec.deregister_lag * u32::try_from(node + 1).unwrap_or(nodes) / nodes
    }

    /// When a node cuts what is still in flight to a target: the deregistration delay is over, and the node has learnt of
    /// it. `None` while the target is registered.
    #[must_use]
    pub fn cut_at(&self, node: usize, group: &GroupName, place: &Place) -> Option<Stamp> {
        let group = self.groups.get(group)?;
        let delay = group.spec.attributes.deregistration_delay.max(self.lag(node));
        Some(group.targets.get(place)?.deregistered? + delay)
    }
}
