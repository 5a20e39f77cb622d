//! What changes while it runs: the numbers of a group's checks.

use super::Model;
use crate::fleet::health::{Check, Checker, Verdict};
use crate::fleet::model::{GroupName, HealthSettings, TargetReason};

impl Model {
    /// Gives a group's checks other numbers. What the nodes think stays; their counts begin again (not documented by
    /// AWS, so the worse reading is taken).
    pub fn change_settings(&mut self, name: &GroupName, settings: HealthSettings) {
        let Some(group) = self.groups.get_mut(name) else { return };
        group.spec.settings = settings;
        for view in group.targets.values_mut().flat_map(|target| &mut target.views) {
            let (verdict, failure) = (view.checker.verdict(), view.checker.last_failure().cloned());
            view.checker = Checker::new(settings.unhealthy, settings.healthy);
            let reason = failure.unwrap_or(TargetReason::FailedHealthChecks);
            match verdict {
                Verdict::Initial => {}
                Verdict::Healthy => {
                    view.checker.record(Check::Pass);
                }
                Verdict::Unhealthy => {
                    while view.checker.verdict() != Verdict::Unhealthy {
                        view.checker.record(Check::Fail(reason.clone()));
                    }
                }
            }
        }
    }
}
