//! What relations are read off: the fleet, and what was learnt of it elsewhere. A side of a relation is a number or unknown.

use crate::fleet::model::{Fleet, Group, Known, ServiceName};
use std::collections::BTreeMap;
use std::time::Duration;

/// One side of a relation.
#[derive(Debug, Clone, PartialEq)]
pub enum Side {
    /// So much, in seconds or pieces.
    Known(f64),
    /// Not known, and why.
    Unknown(String),
}

impl Side {
    /// How much, where it is known.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Unknown(_) => None,
        }
    }

    /// Why it is not known.
    #[must_use]
    pub fn unknown(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(why) => Some(why),
        }
    }

    /// A duration, or why there is none.
    #[must_use]
    pub fn of(time: Option<Duration>, why: &str) -> Self {
        time.map_or_else(|| Self::Unknown(why.to_owned()), |time| Self::Known(time.as_secs_f64()))
    }
}

/// The numbers of a service in the compose file.
#[derive(Debug, Clone, PartialEq)]
pub struct ComposeService {
    /// `stop_grace_period`; Compose's own default where the file says nothing.
    pub grace: Known<Duration>,
    /// `healthcheck.start_period`; none where there is no check, or it is off.
    pub start_period: Known<Option<Duration>>,
}

/// Everything that relations are read off.
#[derive(Debug, Clone)]
pub struct Basis<'a> {
    /// The fleet; live numbers stand in it where they were asked for.
    pub fleet: &'a Fleet,
    /// The compose file's services, or why they are not known.
    pub compose: &'a Known<BTreeMap<ServiceName, ComposeService>>,
}

impl Basis<'_> {
    /// The grace period of a service.
    #[must_use]
    pub fn grace(&self, service: &ServiceName) -> Side {
        match self.compose {
            Known::Unknown(why) => Side::Unknown(why.clone()),
            Known::Known(services) => match services.get(service).map(|service| &service.grace) {
                None => Side::Unknown(format!("the compose file has no service {service}")),
                Some(Known::Known(grace)) => Side::Known(grace.as_secs_f64()),
                Some(Known::Unknown(why)) => Side::Unknown(why.clone()),
            },
        }
    }

    /// The start period of a service's own health check; zero where it has none.
    #[must_use]
    pub fn start_period(&self, service: &ServiceName) -> Side {
        match self.compose {
            Known::Unknown(why) => Side::Unknown(why.clone()),
            Known::Known(services) => match services.get(service).map(|service| &service.start_period) {
                None => Side::Unknown(format!("the compose file has no service {service}")),
                Some(Known::Known(period)) => Side::Known(period.unwrap_or_default().as_secs_f64()),
                Some(Known::Unknown(why)) => Side::Unknown(why.clone()),
            },
        }
    }

    /// How many targets a group has in its smallest counting scope, by the file.
    #[must_use]
    pub fn smallest_scope(&self, group: &Group) -> usize {
        let mut scopes: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for server in self.fleet.servers.iter().filter(|server| server.targets.contains_key(&group.name)) {
            let zone = server.zone.as_ref().map(|zone| zone.as_str()).filter(|_| !group.cross_zone);
            *scopes.entry(zone).or_default() += 1;
        }
        scopes.into_values().min().unwrap_or(0)
    }
}
