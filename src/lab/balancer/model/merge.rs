//! How the nodes' views become the one answer of the API. It knows neither time nor traffic.

use super::{Merge, Place, Target};
use crate::fleet::health::Verdict;
use crate::fleet::model::{TargetReason, TargetState, TargetView};

/// What the API says of one target.
pub(super) fn merged(place: &Place, target: &Target, merge: Merge) -> TargetView {
    let count = |verdict| target.views.iter().filter(|view| view.checker.verdict() == verdict).count();
    let (all, healthy, unhealthy) = (target.views.len(), count(Verdict::Healthy), count(Verdict::Unhealthy));
    let failing =
        target.views.iter().any(|v| v.checker.verdict() == Verdict::Healthy && v.checker.last_failure().is_some());
    let state = match merge {
        _ if target.deregistered.is_some() => TargetState::Draining,
        _ if healthy == all => TargetState::Healthy,
        _ if unhealthy == all => TargetState::Unhealthy,
        // Between the first and the last node: going out while the healthy ones fail their checks, coming in otherwise.
        Merge::First if unhealthy > 0 && (failing || healthy == 0) => TargetState::Unhealthy,
        Merge::First if healthy > 0 => TargetState::Healthy,
        Merge::Last if unhealthy > 0 && !failing => TargetState::Unhealthy,
        Merge::Last if healthy > 0 => TargetState::Healthy,
        _ if unhealthy > 0 => TargetState::Unhealthy,
        _ => TargetState::Initial,
    };
    let failure = target
        .views
        .iter()
        .filter(|v| v.checker.verdict() == Verdict::Unhealthy)
        .find_map(|v| Some((v.checker.last_failure()?, v.last_status)));
    let (reason, description) = match &state {
        TargetState::Unhealthy => explain(failure),
        TargetState::Draining => (
            Some(TargetReason::Other("Target.DeregistrationInProgress".into())),
            Some("Target deregistration is in progress".to_owned()),
        ),
        TargetState::Initial => (
            Some(TargetReason::Other("Elb.InitialHealthChecking".into())),
            Some("Initial health checks in progress".to_owned()),
        ),
        _ => (None, None),
    };
    TargetView {
        id: place.0.clone(),
        port: place.1,
        zone: target.zone.clone(),
        state,
        reason,
        description,
        shift: target.shift.clone(),
    }
}

fn explain(failure: Option<(&TargetReason, Option<u16>)>) -> (Option<TargetReason>, Option<String>) {
    let (reason, status) = failure.map_or((TargetReason::ResponseCodeMismatch, None), |(r, s)| (r.clone(), s));
    let description = match &reason {
        TargetReason::ResponseCodeMismatch => {
            format!("Health checks failed with these codes: [{}]", status.unwrap_or(503))
        }
        TargetReason::Timeout => "Request timed out".to_owned(),
        TargetReason::FailedHealthChecks => "Health checks failed".to_owned(),
        TargetReason::Other(_) => "Health checks failed due to an internal error".to_owned(),
    };
    (Some(reason), Some(description))
}
