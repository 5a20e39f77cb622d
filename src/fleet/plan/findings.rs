//! Numbers that do not fit each other, and a balancer or a compose file that says otherwise than deploy.toml.

use super::planner::Maker;
use super::{ServerPlan, WhyNot};
use crate::fleet::model::{DrainBy, Group, GroupName, GroupView, HealthSettings, show_duration};
use crate::fleet::timing;
use std::collections::HashSet;
use std::time::Duration;

impl Maker<'_> {
    pub(super) fn compare_group(&mut self, group: &Group, view: &GroupView) {
        let (file, live) = (&group.health.settings, &view.settings);
        let numbers = |h: &HealthSettings| {
            format!(
                "interval {}, timeout {}, unhealthy {}, healthy {}",
                show_duration(h.interval),
                show_duration(h.timeout),
                h.unhealthy,
                h.healthy
            )
        };
        if file != live {
            self.warnings.push(format!(
                "{}: the balancer is set to {}, deploy.toml says {}; the balancer's own numbers are used",
                group.name,
                numbers(live),
                numbers(file)
            ));
        }
        if group.health.path != view.path {
            self.warnings.push(format!(
                "{}: the balancer checks {}, deploy.toml says {}",
                group.name, view.path, group.health.path
            ));
        }
        self.warnings.extend(view.notes.iter().map(|note| format!("{}: {note}", group.name)));
        if group.cross_zone != view.attributes.cross_zone {
            let word = |on: bool| if on { "on" } else { "off" };
            self.warnings.push(format!(
                "{}: cross-zone is {}, deploy.toml says {}",
                group.name,
                word(view.attributes.cross_zone),
                word(group.cross_zone)
            ));
        }
    }

    pub(super) fn compare_services(&mut self) {
        let Some(release) = self.release else { return };
        let configured: HashSet<_> = self.fleet.services.iter().map(|s| &s.name).collect();
        for service in &self.fleet.services {
            match release.services.get(&service.name) {
                None => self.why.push(WhyNot::ServiceMismatch {
                    service: service.name.clone(),
                    missing_in: "the compose file".into(),
                }),
                Some(pin) if pin.grace < service.shutdown && self.fleet.drain.by != DrainBy::Sigterm => {
                    self.why.push(WhyNot::GraceTooShort {
                        service: service.name.clone(),
                        needed: service.shutdown,
                        grace: pin.grace,
                    });
                }
                Some(_) => {}
            }
        }
        for (name, pin) in &release.services {
            if !configured.contains(name) && !pin.one_shot {
                self.why.push(WhyNot::ServiceMismatch { service: name.clone(), missing_in: "deploy.toml".into() });
            }
        }
    }

    pub(super) fn timing(&mut self, batches: &[Vec<ServerPlan>]) {
        let drain = &self.fleet.drain;
        if drain.by.hold().is_some()
            || !batches.iter().flatten().any(|s| s.starts_as.needs_drain() && !s.targets.is_empty())
        {
            return;
        }
        let flips = !matches!(drain.by, DrainBy::Deregister);
        for (name, view) in self.views.clone() {
            let bound = timing::out_bound(&view.settings, drain.margin);
            if flips && drain.by != DrainBy::Sigterm && bound > drain.max {
                self.why.push(WhyNot::DrainTooShort { group: name.clone(), bound, max: drain.max });
            }
            if !drain.by.facts().survives_restart && !drain.unverified_return {
                let after = timing::in_earliest(&view.settings);
                let deadline = self.fleet.services.iter().map(|s| s.deadline).max().unwrap_or_default();
                if deadline > after {
                    self.why.push(WhyNot::UnverifiedReturn { by: drain.by.word().into(), after, deadline });
                }
            }
            if drain.by == DrainBy::Sigterm {
                self.sigterm_fits(bound + timing::settle(&view.settings, drain.margin), name);
            }
        }
    }

    fn sigterm_fits(&mut self, bound: Duration, group: &GroupName) {
        let Some(release) = self.release else { return };
        for service in self.fleet.services.iter().filter(|s| s.groups.contains(group)) {
            let needed = bound + service.shutdown;
            if let Some(pin) = release.services.get(&service.name).filter(|pin| pin.grace < needed) {
                self.why.push(WhyNot::GraceTooShort { service: service.name.clone(), needed, grace: pin.grace });
            }
        }
    }
}
