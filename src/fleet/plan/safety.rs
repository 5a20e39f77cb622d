//! May this server go? Capacity is counted where the balancer counts it, so that the answer is the balancer's own.

use super::{GroupNumbers, WhyNot};
use crate::fleet::model::{
    Fleet, GroupAttributes, GroupName, OverrideState, TargetId, TargetRef, TargetState, TargetView, Zone,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// Where the balancer counts healthy targets: a whole group, or one zone of it when cross-zone is off.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The group.
    pub group: GroupName,
    /// The zone, where each counts for itself.
    pub zone: Option<Zone>,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "{} in {zone}", self.group),
            None => write!(f, "{}", self.group),
        }
    }
}

/// The capacity of one scope at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Which scope.
    pub scope: Scope,
    /// Registered and not being deregistered.
    pub registered: u32,
    /// Healthy, with no zonal shift.
    pub healthy: u32,
    /// Healthy ones that leave.
    pub leaving: u32,
    /// So many must stay.
    pub needed: u32,
}

impl Capacity {
    /// How many stay.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.healthy.saturating_sub(self.leaving)
    }

    /// Whether enough stay, or nobody leaves.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.remaining() >= self.needed
    }
}

/// How many healthy targets a scope needs: the fail-open count, the fail-open percentage of the registered ones
/// (AWS user guide: either one triggers), `rolling.min_healthy`, and at least one.
#[must_use]
pub fn needed(attributes: &GroupAttributes, registered: u32, min_healthy: u32) -> u32 {
    let percent = attributes.fail_open_percent.unwrap_or(0);
    let share = (u64::from(percent) * u64::from(registered)).div_ceil(100);
    attributes.fail_open_count.max(u32::try_from(share).unwrap_or(u32::MAX)).max(min_healthy).max(1)
}

/// What the guard needs to know besides the balancer's own word.
#[derive(Debug, Clone)]
pub struct Guard<'a> {
    /// The zone that deploy.toml names for an id, where the balancer does not say.
    zones: HashMap<&'a TargetId, &'a Zone>,
    /// `rolling.min_healthy`.
    min_healthy: u32,
}

impl<'a> Guard<'a> {
    /// A guard for a fleet.
    #[must_use]
    pub fn new(fleet: &'a Fleet) -> Self {
        let zones = fleet
            .servers
            .iter()
            .filter_map(|server| server.zone.as_ref().map(|zone| (server, zone)))
            .flat_map(|(server, zone)| server.targets.values().flatten().map(move |target| (&target.id, zone)))
            .collect();
        Self { zones, min_healthy: fleet.rolling.min_healthy }
    }

    /// The capacity of each scope of a group when `leaving` go.
    #[must_use]
    pub fn capacities(
        &self,
        group: &GroupName,
        attributes: &GroupAttributes,
        targets: &[TargetView],
        leaving: &HashSet<(&TargetId, u16)>,
    ) -> Vec<Capacity> {
        let mut scopes: BTreeMap<Option<Zone>, (u32, u32, u32)> = BTreeMap::new();
        for target in targets {
            let zone = if attributes.cross_zone { None } else { self.zone_of(target) };
            let (registered, healthy, gone) = scopes.entry(zone).or_default();
            if !matches!(target.state, TargetState::Draining | TargetState::Unused) {
                *registered += 1;
            }
            if target.state == TargetState::Healthy && target.shift == OverrideState::None {
                *healthy += 1;
                *gone += u32::from(leaving.contains(&(&target.id, target.port)));
            }
        }
        scopes
            .into_iter()
            .map(|(zone, (registered, healthy, leaving))| Capacity {
                scope: Scope { group: group.clone(), zone },
                registered,
                healthy,
                leaving,
                needed: needed(attributes, registered, self.min_healthy),
            })
            .collect()
    }

    fn zone_of(&self, target: &TargetView) -> Option<Zone> {
        target.zone.clone().or_else(|| self.zones.get(&target.id).map(|zone| (*zone).clone()))
    }

    /// Whether a batch may be out of a group; `batch` are all targets of the batch in it.
    ///
    /// # Errors
    /// Every reason why not.
    pub fn may_leave(
        &self,
        group: &GroupName,
        numbers: &GroupNumbers,
        targets: &[TargetView],
        batch: &[TargetRef],
    ) -> Result<(), Vec<WhyNot>> {
        let leaving: HashSet<(&TargetId, u16)> =
            batch.iter().filter(|t| &t.group == group).map(|t| (&t.id, t.port)).collect();
        let mut why = Vec::new();
        for target in targets {
            let own = leaving.contains(&(&target.id, target.port));
            let name = || TargetRef { group: group.clone(), id: target.id.clone(), port: target.port };
            if let OverrideState::Shifted(word) = &target.shift {
                why.push(WhyNot::ZonalShift { target: name(), word: word.clone() });
            }
            if !own && target.state == TargetState::Draining {
                why.push(WhyNot::SomebodyDraining { target: name() });
            }
        }
        let touched: HashSet<Option<Zone>> = targets
            .iter()
            .filter(|t| leaving.contains(&(&t.id, t.port)))
            .map(|t| if numbers.attributes.cross_zone { None } else { self.zone_of(t) })
            .collect();
        for capacity in self.capacities(group, &numbers.attributes, targets, &leaving) {
            if touched.contains(&capacity.scope.zone) && !capacity.holds() {
                why.push(WhyNot::Capacity {
                    scope: capacity.scope,
                    healthy: capacity.healthy,
                    leaving: capacity.leaving,
                    needed: capacity.needed,
                });
            }
        }
        if why.is_empty() { Ok(()) } else { Err(why) }
    }
}
