//! Proofs: what was seen goes in, whether it proves a step comes out.

use super::track::{Cause, CauseKind, Track};
use super::{Cx, Protection};
use crate::clock::Stamp;
use crate::event::Course;
use crate::fleet::model::{
    Container, ContainerState, DrainBy, Fleet, GroupName, OverrideState, ReleaseOnDisk, ServiceName, TargetReason,
    TargetRef, TargetState, TargetView,
};
use crate::fleet::plan::{GroupNumbers, safety::Guard};
use crate::fleet::verify::{container_faults, excused, judge};
use crate::server::wire::{Sighting, Verified};
use std::collections::BTreeSet;
use std::time::Duration;

/// What every target is wanted to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Targets {
    Out,
    Healthy,
}

/// A target that is not as wanted.
#[derive(Debug)]
pub(super) struct NotYet {
    pub(super) what: String,
    /// It is out, but not because of us.
    pub(super) wrong: bool,
}

pub(super) fn longest(cx: &Cx<'_>, groups: &BTreeSet<GroupName>, of: impl Fn(&GroupNumbers) -> Duration) -> Duration {
    groups.iter().filter_map(|group| cx.setup.plan.groups.get(group)).map(of).max().unwrap_or_default()
}

/// Why nothing is known yet.
pub(super) fn silence(cx: &Cx<'_>, groups: &BTreeSet<GroupName>) -> String {
    let unknown = groups.iter().find_map(|group| cx.polls.get(group).and_then(|poll| poll.unknown.clone()));
    unknown
        .map_or_else(|| "the balancer has not answered yet".into(), |why| format!("the balancer gave no answer: {why}"))
}

/// May the batch be out, by the balancer's word since a moment? `None` while it has not said.
pub(super) fn guard(cx: &Cx<'_>, track: &Track, since: Stamp) -> Option<Result<(), Cause>> {
    if cx.setup.plan.unguarded {
        return Some(Ok(()));
    }
    let guard = Guard::new(&cx.setup.fleet);
    for group in track.own_groups() {
        let refused = cx.polls.get(&group).and_then(|poll| poll.refused.as_ref());
        if let Some(why) = refused.filter(|_| track.course == Course::Forward) {
            return Some(Err(Cause::unproved(format!("the balancer refused: {why}"))));
        }
        let targets = cx.polls.since(&group, since)?;
        let numbers = cx.setup.plan.groups.get(&group)?;
        if cx.setup.lacks(Protection::Guard) {
            continue;
        }
        if let Err(why) = guard.may_leave(&group, numbers, targets, cx.batch) {
            let message = why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let hint = why.first().map(crate::fleet::plan::WhyNot::hint);
            return Some(Err(Cause { hint, ..Cause::new(CauseKind::Guard, message) }));
        }
    }
    Some(Ok(()))
}

/// Whether a target is as wanted, by the balancer's word since a moment.
pub(super) fn target(
    cx: &Cx<'_>,
    track: &Track,
    target: &TargetRef,
    since: Stamp,
    wanted: Targets,
) -> Result<(), NotYet> {
    let views = cx.polls.since(&target.group, since).unwrap_or_default();
    let view = views.iter().find(|view| view.id == target.id && view.port == target.port);
    let not_yet = |what: String| Err(NotYet { what: format!("{target} is {what}"), wrong: false });
    if wanted == Targets::Out && cx.setup.lacks(Protection::Out) {
        return Ok(());
    }
    match (wanted, view) {
        // Not in the list is what deregistering leads to; after a flip it says nothing about the nodes.
        (Targets::Out, None) if cx.setup.plan.drain.by == DrainBy::Deregister => Ok(()),
        (_, None) => not_yet("not registered".into()),
        (Targets::Healthy, Some(view)) => match (&view.state, &view.shift) {
            (TargetState::Healthy, OverrideState::None) => Ok(()),
            (TargetState::Healthy, OverrideState::Shifted(word)) => not_yet(format!("shifted away ({word})")),
            _ => not_yet(words(view)),
        },
        (Targets::Out, Some(view)) if is_gone(&view.state) => Ok(()),
        (Targets::Out, Some(view))
            if view.state == TargetState::Unhealthy && cx.setup.plan.drain.by != DrainBy::Deregister =>
        {
            match &view.reason {
                Some(TargetReason::ResponseCodeMismatch) => Ok(()),
                _ if track.goes_back() || track.moments.broken_before.contains(target) => Ok(()),
                _ => Err(NotYet { what: format!("{target} is {}, not by our 503", words(view)), wrong: true }),
            }
        }
        (Targets::Out, Some(view)) => not_yet(words(view)),
    }
}

fn words(view: &TargetView) -> String {
    let state = format!("{:?}", view.state).to_lowercase();
    match (&view.reason, &view.description) {
        (_, Some(description)) => format!("{state} ({description})"),
        (Some(reason), None) => format!("{state} ({reason:?})"),
        (None, None) => state,
    }
}

/// The first target that a node may pick again; one that broke is picked by none.
pub(super) fn first_back(cx: &Cx<'_>, track: &Track, since: Stamp) -> Option<String> {
    let not_out = |t| target(cx, track, t, since, Targets::Out).err().filter(|seen| !seen.wrong);
    track.plan.targets.iter().find_map(not_out).map(|seen| seen.what)
}

/// The targets that the balancer calls unhealthy for another reason than a 503.
pub(super) fn broken(cx: &Cx<'_>, targets: &[TargetRef], since: Stamp) -> BTreeSet<TargetRef> {
    let is_broken = |target: &&TargetRef| {
        let views = cx.polls.since(&target.group, since).unwrap_or_default();
        views.iter().any(|view| {
            (&view.id, view.port) == (&target.id, target.port)
                && view.state == TargetState::Unhealthy
                && !matches!(view.reason, Some(TargetReason::ResponseCodeMismatch) | None)
        })
    };
    targets.iter().filter(is_broken).cloned().collect()
}

/// The first target that the balancer calls healthy.
pub(super) fn first_healthy<'a>(cx: &Cx<'_>, targets: &'a [TargetRef], since: Stamp) -> Option<&'a TargetRef> {
    targets.iter().find(|target| {
        let views = cx.polls.since(&target.group, since).unwrap_or_default();
        views.iter().any(|v| (&v.id, v.port) == (&target.id, target.port) && v.state == TargetState::Healthy)
    })
}

/// Whether the balancer calls all of them so.
pub(super) fn all_broken(cx: &Cx<'_>, targets: &[TargetRef], since: Stamp) -> bool {
    broken(cx, targets, since).len() == targets.len()
}

/// Whether targets that are addresses are gone for good, so that they can be registered again.
pub(super) fn may_register(cx: &Cx<'_>, targets: &[TargetRef], since: Stamp) -> bool {
    targets.iter().all(|target| {
        cx.polls.since(&target.group, since).is_some_and(|views| {
            !views.iter().any(|v| v.id == target.id && v.port == target.port && v.state == TargetState::Draining)
        })
    })
}

/// Whether every answer of health, and of real traffic where it counts, is as wanted.
pub(super) fn sighting(sighting: &Sighting, health: u16, real: bool) -> Result<(), String> {
    let word = |status: u16| if status == 0 { "nothing".to_owned() } else { status.to_string() };
    for (group, answers) in &sighting.health {
        if answers.is_empty() {
            return Err(format!("the health check of {group} was not seen"));
        }
        let others: BTreeSet<String> = answers.iter().filter(|status| **status != health).map(|s| word(*s)).collect();
        if !others.is_empty() {
            let others = others.into_iter().collect::<Vec<_>>().join(", ");
            return Err(format!("the health check of {group} answers {others} where {health} is wanted"));
        }
    }
    match sighting.real.iter().find(|status| **status != 200) {
        Some(status) if real => Err(format!("real traffic is answered with {}", word(*status))),
        _ => Ok(()),
    }
}

/// The first container that was to be stopped and still does something.
pub(super) fn first_alive(containers: &[Container]) -> Option<&Container> {
    containers.iter().find(|c| !matches!(c.state, ContainerState::Exited | ContainerState::Created))
}

/// Judges containers alone. A cause of kind `Gone` means: not yet, look again.
pub(super) fn containers(release: &ReleaseOnDisk, containers: &[Container]) -> Result<(), Cause> {
    let faults = container_faults(&release.manifest, &release.image_ids, containers);
    if faults.is_empty() {
        return Ok(());
    }
    let lasting = faults.iter().any(|fault| fault.lasting);
    let message = faults.into_iter().map(|fault| fault.what).collect::<Vec<_>>().join("; ");
    Err(Cause::new(if lasting { CauseKind::Unproved } else { CauseKind::Gone }, message))
}

/// Judges containers and every service's own check; what sleeps is only to be of the release. A cause of kind `Gone` means: not yet,
/// look again.
pub(super) fn services(
    fleet: &Fleet,
    release: &ReleaseOnDisk,
    verified: &Verified,
    asleep: &BTreeSet<ServiceName>,
) -> Result<(), Cause> {
    let seen = ReleaseOnDisk { manifest: release.manifest.clone(), image_ids: verified.image_ids.clone() };
    let mut faults = Vec::new();
    let mut output = Vec::new();
    let counts = |name: &ServiceName| release.manifest.services.contains_key(name) && !asleep.contains(name);
    for service in fleet.services.iter().filter(|s| counts(&s.name)) {
        let judged = match verified.services.get(&service.name) {
            None => Err("its check did not run".to_owned()),
            Some(evidence) => judge(&service.verify, evidence, &release.manifest.id),
        };
        if let Err(why) = judged {
            faults.push(format!("{}: {why}", service.name));
            let log = verified.logs.get(&service.name).into_iter().flatten();
            output.extend(log.map(|line| format!("{} | {line}", service.name)));
        }
    }
    let own = containers(&seen, &excused(&verified.containers, asleep));
    if let Err(cause) = &own {
        if cause.kind != CauseKind::Gone {
            return own;
        }
        faults.push(cause.message.clone());
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(Cause { output, ..Cause::new(CauseKind::Gone, faults.join("; ")) })
}

/// Whether a state means that the balancer sends nothing there on purpose.
fn is_gone(state: &TargetState) -> bool {
    matches!(state, TargetState::Unused)
}
