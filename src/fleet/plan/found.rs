//! How each server is found: its targets as the balancer has them, and what that makes of it.

use super::planner::Maker;
use super::{StartsAs, WhyNot};
use crate::fleet::model::{
    Container, ContainerState, DrainBy, GroupName, Known, Server, ServerFacts, ServiceName, TargetReason, TargetRef,
    TargetState, TargetView,
};
use std::collections::HashMap;

/// The targets of each group, by their ids.
pub(super) type ById<'a> = HashMap<&'a GroupName, HashMap<&'a str, Vec<&'a TargetView>>>;

impl<'a> Maker<'a> {
    pub(super) fn by_id(&self) -> ById<'a> {
        let ids = |targets: &'a [TargetView]| {
            let mut ids: HashMap<&str, Vec<&TargetView>> = HashMap::new();
            for target in targets {
                ids.entry(target.id.as_str()).or_default().push(target);
            }
            ids
        };
        self.views.iter().map(|(name, view)| (*name, ids(&view.targets))).collect()
    }

    /// Targets that are not registered, or in no use, where deregistering is the way to drain: a deploy that vanished leaves
    /// them so, and the next one registers them.
    pub(super) fn deregistered(&self, server: &Server, views: &[(GroupName, &TargetView)]) -> Vec<TargetRef> {
        if self.fleet.drain.by != DrainBy::Deregister {
            return Vec::new();
        }
        let groups = self.fleet.balancer.groups.iter().filter(|group| self.views.contains_key(&group.name));
        let specs =
            groups.flat_map(|group| server.targets.get(&group.name).into_iter().flatten().map(move |t| (group, t)));
        specs
            .filter(|(group, spec)| {
                let own = |(name, view): &&(GroupName, &TargetView)| *name == group.name && view.id == spec.id;
                views.iter().filter(own).all(|(_, view)| view.state == TargetState::Unused)
            })
            .map(|(group, spec)| TargetRef {
                group: group.name.clone(),
                id: spec.id.clone(),
                port: spec.port.unwrap_or(group.port),
            })
            .collect()
    }

    pub(super) fn targets_of(&mut self, server: &Server, by_id: &ById<'a>) -> Vec<(GroupName, &'a TargetView)> {
        let mut found = Vec::new();
        for (group, specs) in &server.targets {
            let Some(ids) = by_id.get(group) else { continue };
            for spec in specs {
                let views: Vec<_> = ids
                    .get(spec.id.as_str())
                    .into_iter()
                    .flatten()
                    .filter(|view| spec.port.is_none_or(|port| port == view.port))
                    .collect();
                if views.is_empty() && self.fleet.drain.by != DrainBy::Deregister {
                    let port = spec.port.map(|port| format!(":{port}")).unwrap_or_default();
                    self.why.push(WhyNot::NotRegistered {
                        server: server.name.clone(),
                        target: format!("{}{port}", spec.id),
                        group: group.clone(),
                    });
                }
                found.extend(views.into_iter().map(|view| (group.clone(), *view)));
            }
        }
        found
    }

    pub(super) fn starts_as(
        &mut self,
        server: &Server,
        facts: Option<&ServerFacts>,
        views: &[(GroupName, &TargetView)],
    ) -> StartsAs {
        // What takes traffic is drained before it is stopped, whatever a record says of it.
        let serves = views.iter().any(|(_, view)| view.state == TargetState::Healthy);
        if let Some(facts) = facts {
            if let Some(absence) = facts.absence.as_ref().filter(|absence| !serves || !absence.ends_when_verified) {
                return if absence.ends_when_verified {
                    StartsAs::LeftOut(absence.reason.clone())
                } else {
                    StartsAs::KeptOut(absence.reason.clone())
                };
            }
            if facts.containers.is_empty() {
                return StartsAs::Empty;
            }
            let is_up = |one: &Container| one.state == ContainerState::Running;
            // One that was to hand over to the next may have no container of its service's own, and holds all the same.
            let answers = matches!(facts.held, Some(Known::Known(_)));
            let runs = |gateway: &ServiceName| {
                answers || facts.containers.iter().any(|one| one.service == *gateway && is_up(one))
            };
            if let Some(gateway) = self.fleet.drain.by.hands_over().filter(|gateway| !runs(gateway)) {
                return StartsAs::NoGateway(gateway.clone());
            }
            if facts.drained && !serves {
                return StartsAs::LeftOut("health fails on purpose, and nobody says why".into());
            }
        }
        if server.targets.is_empty() {
            return StartsAs::Worker;
        }
        if let Some(gone) = self.deregistered(server, views).first() {
            return StartsAs::LeftOut(format!("{gone} is not registered, or in no use"));
        }
        for (group, view) in views {
            let target = || TargetRef { group: group.clone(), id: view.id.clone(), port: view.port };
            match &view.state {
                TargetState::Healthy | TargetState::Unhealthy | TargetState::Unused => {}
                TargetState::Initial if self.options.first || self.options.allow_downtime => {}
                other => self.why.push(WhyNot::WrongState {
                    server: server.name.clone(),
                    target: target(),
                    state: format!("{other:?}").to_lowercase(),
                }),
            }
        }
        let broken = views.iter().all(|(_, view)| matches!(view.state, TargetState::Unhealthy | TargetState::Unused));
        match views.iter().find(|(_, view)| view.state == TargetState::Unhealthy) {
            Some((group, view)) if broken => {
                StartsAs::Broken(format!("{} in {group} is unhealthy: {}", view.id, reason(view)))
            }
            _ => StartsAs::Serving,
        }
    }
}

fn reason(view: &TargetView) -> String {
    match &view.reason {
        Some(TargetReason::ResponseCodeMismatch) => {
            view.description.clone().unwrap_or_else(|| "its answer does not match".into())
        }
        Some(TargetReason::Timeout) => "no answer in time".into(),
        Some(TargetReason::FailedHealthChecks) => "nobody listens".into(),
        Some(TargetReason::Other(word)) => word.clone(),
        None => "the balancer does not say why".into(),
    }
}
