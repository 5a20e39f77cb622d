//! What each step of the handshake asks for, and what it takes for proof.

use super::judge::{self, Targets};
use super::track::{Cause, CauseKind, Destination, Progress, Track, Wait};
use super::{Cx, Protection};
use crate::clock::Stamp;
use crate::event::Course;
use crate::fleet::model::{Container, DrainBy, ReleaseOnDisk, show_duration};
use crate::fleet::plan::{Plan, PlannedStep, StartsAs, Step};
use crate::rollout::port::ServerError;
use crate::server::wire::{Reply, Request, Sighting, Stopped, Verified};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two looks at a server.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Between two rounds of checks.
pub(super) const CHECK_AGAIN: Duration = Duration::from_secs(1);

impl Track {
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        match step.step {
            Step::Guard | Step::GuardAgain | Step::Out | Step::Settle | Step::In | Step::SettleIn => {
                self.look(cx, now, step)
            }
            Step::Lock => self.ask(cx, now, step, Request::Lock { wait: cx.setup.plan.lock_wait }),
            Step::Flip => self.flip(cx, now, step),
            Step::Stop => {
                if self.watches_its_stop(&cx.setup.plan) {
                    self.moments.flipped = Some(now);
                    self.moments.turned.clear();
                }
                self.ask(cx, now, step, Request::Stop)
            }
            Step::Start => match &self.destination {
                Destination::Nothing => Progress::Failed(Cause::unproved("there is no release to start")),
                Destination::Release(release) => {
                    self.moments.started = Some(now);
                    let release = release.manifest.id.clone();
                    self.ask(cx, now, step, Request::Start { release })
                }
            },
            Step::Verify => {
                self.moments.steady_since = None;
                self.restarts = None;
                let dies = !cx.setup.plan.drain.by.facts().survives_restart;
                self.flip_first = dies && !self.is_final_check && self.flips_for_good(&cx.setup.plan);
                self.check(cx, now, step)
            }
            Step::Switch => match self.release() {
                None => Progress::Failed(Cause::unproved("there is no release to switch to")),
                Some(release) => {
                    let release = release.manifest.id.clone();
                    self.ask(cx, now, step, Request::Switch { release })
                }
            },
            Step::Sleep => self.ask(cx, now, step, Request::Sleep),
            Step::HandOver => self.hand_over(cx, now, step),
            Step::Back => self.back(cx, now, step),
            Step::Unlock => self.unlock(cx, now, step),
            Step::RunOnce => self.run_once(cx, now, step),
            Step::PreDrain | Step::PostServer => self.hook(cx, step.step),
        }
    }

    /// Goes on without news: time went by, or the balancer said something.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        let due = matches!(self.wait, Wait::Until(at) if now >= at);
        match step.step {
            Step::Flip | Step::Out | Step::Back if due && cx.setup.plan.drain.by.hold().is_some() => {
                self.ask(cx, now, step, Request::Held)
            }
            Step::Out if cx.setup.plan.drain.by.hold().is_some() => self.wait_for_quiet(cx, now, step),
            Step::Guard => self.guard(cx),
            Step::GuardAgain => self.guard_again(cx),
            Step::Out => self.look_out(cx, now),
            Step::Settle => self.look_settle(cx, now, due),
            Step::Stop if self.watches_its_stop(&cx.setup.plan) => {
                self.watch_out(cx, now, Targets::Out);
                Progress::Stay
            }
            Step::Flip if due && cx.setup.plan.drain.by == DrainBy::Deregister => self.flip(cx, now, step),
            Step::Back if cx.setup.plan.drain.by == DrainBy::Deregister && !self.flip_ordered => {
                self.back(cx, now, step)
            }
            Step::Flip | Step::Back if due => self.ask(cx, now, step, Request::Look),
            Step::Start | Step::Verify | Step::HandOver if due => self.check(cx, now, step),
            Step::In => self.look_in(cx, now),
            Step::SettleIn => self.look_settle_in(cx, now),
            _ => Progress::Stay,
        }
    }

    pub(super) fn replied(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep, reply: Reply) -> Progress {
        match (step.step, reply) {
            (Step::Lock, Reply::Locked) => {
                self.locked = true;
                self.moments.locked = Some(now);
                Progress::Proved(None)
            }
            (Step::Lock, Reply::Held(holder)) => {
                let message = format!("the server lock is held by {} ({})", holder.who, holder.what);
                Progress::Failed(Cause {
                    hint: Some("wait for it, or see `handover lock status`".into()),
                    ..Cause::new(CauseKind::Held, message)
                })
            }
            (Step::RunOnce, Reply::Once(end)) => self.ran_once(cx, end),
            (Step::Flip, Reply::Done) => {
                self.moments.flipped = Some(now);
                if cx.setup.plan.drain.by.hold().is_some() {
                    return self.ask(cx, now, step, Request::Held);
                }
                if !(self.revert || self.course == Course::Forward) || !self.drains() {
                    // What is broken cannot show its 503; the balancer's own word follows.
                    return Progress::Proved(None);
                }
                self.ask(cx, now, step, Request::Look)
            }
            (Step::Flip, Reply::Sighting(sighting)) => self.sighted(now, &sighting, 503, true),
            (Step::Back, Reply::Done) if self.said_absent => {
                (self.said_absent, self.wait) = (false, Wait::Views);
                self.back(cx, now, step)
            }
            (Step::Back, Reply::Done) if cx.setup.plan.drain.by.hold().is_some() => {
                self.ask(cx, now, step, Request::Held)
            }
            (Step::Flip | Step::Out | Step::Back, Reply::Holding(seen)) => self.holding(now, step.step, seen),
            // What did not answer before does not answer now.
            (Step::Back, Reply::Done) if self.course == Course::FlipBack && !self.drains() => Progress::Proved(None),
            (Step::Back, Reply::Done) => self.ask(cx, now, step, Request::Look),
            (Step::Back, Reply::Sighting(sighting)) => self.sighted(now, &sighting, 200, false),
            (Step::Settle, Reply::Count(count)) => {
                self.counted(now, count);
                self.wait = Wait::Until(now + CHECK_AGAIN);
                Progress::Stay
            }
            (Step::Stop, Reply::Stopped(stopped)) => self.stopped(cx, now, &stopped),
            (Step::Start, Reply::Started(containers)) => self.started(cx, now, &containers),
            (Step::Start, Reply::Verified(verified)) => self.started(cx, now, &verified.containers),
            (Step::HandOver, Reply::Started(_)) => self.check(cx, now, step),
            (Step::HandOver, Reply::Verified(verified)) => self.handed_over(cx, now, &verified),
            (Step::Verify, Reply::Done) => {
                self.flip_first = false;
                self.check(cx, now, step)
            }
            (Step::Verify, Reply::Verified(verified)) => self.verified(cx, now, &verified),
            (Step::Switch, Reply::Switched(current)) => {
                let wanted = self.release().map(|release| &release.manifest.id);
                if wanted == Some(&current) {
                    Progress::Proved(None)
                } else {
                    Progress::Failed(Cause::unproved(format!("`current` is {} after the switch", current.short())))
                }
            }
            (Step::Sleep, Reply::Stopped(slept)) => self.slept(cx, &slept),
            (Step::Unlock, Reply::Done) if self.said_absent => {
                self.said_absent = false;
                self.free(cx, now, step)
            }
            (Step::Unlock, Reply::Done) => Progress::Proved(None),
            (step, reply) => {
                Progress::Failed(Cause::unproved(format!("an answer that does not belong to `{step}`: {reply:?}")))
            }
        }
    }

    /// A look that failed is looked again, within the deadline; an order that failed has failed.
    pub(super) fn call_failed(&mut self, now: Stamp, step: PlannedStep, error: ServerError) -> Progress {
        if matches!(error, ServerError::Failed(_)) && self.said_absent {
            // Who says no has left the record as it was.
            self.record_changed = false;
        }
        let again = self.only_looks || matches!(step.step, Step::Verify | Step::Settle);
        if again && !matches!(error, ServerError::Lost(_) | ServerError::Unreachable(_)) {
            self.seen = error.to_string();
            self.wait = Wait::Until(now + CHECK_AGAIN);
            return Progress::Stay;
        }
        Progress::Failed(error.into())
    }

    pub(super) fn targets_ordered(&mut self, now: Stamp) -> Progress {
        self.moments.flipped = Some(now);
        Progress::Proved(None)
    }

    pub(super) fn ask(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep, request: Request) -> Progress {
        self.only_looks = matches!(request, Request::Look | Request::Held | Request::Verify { .. });
        let left = (self.entered + step.deadline).since(now).max(Duration::from_secs(1));
        self.wait = Wait::Ticket(cx.call(&self.plan.name, request, left));
        Progress::Stay
    }

    /// A server that stays out by a state which dies with its process is made to fail again, first of all.
    fn flips_for_good(&self, plan: &Plan) -> bool {
        matches!(self.plan.starts_as, StartsAs::KeptOut(_))
            && plan.drain.by != DrainBy::Sigterm
            && !self.plan.targets.is_empty()
    }

    pub(super) fn check(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        if self.flip_first && step.step == Step::Verify {
            return self.ask(cx, now, step, Request::Flip { drained: true });
        }
        match self.release() {
            None => Progress::Failed(Cause::unproved("there is no release to verify")),
            Some(release) => {
                let release = release.manifest.id.clone();
                self.ask(cx, now, step, Request::Verify { release })
            }
        }
    }

    pub(super) fn release(&self) -> Option<&ReleaseOnDisk> {
        match &self.destination {
            Destination::Release(release) => Some(release),
            Destination::Nothing => None,
        }
    }

    /// Whether traffic is taken away from it on this course: always on the way back, where it may have been in.
    pub(super) fn drains(&self) -> bool {
        self.goes_back() || self.plan.starts_as.needs_drain()
    }

    pub(super) fn watches_its_stop(&self, plan: &Plan) -> bool {
        plan.drain.by == DrainBy::Sigterm
            && self.drains()
            && self.course == Course::Forward
            && !self.plan.targets.is_empty()
    }

    pub(super) fn waits_to_register(&self, plan: &Plan) -> bool {
        plan.drain.by == DrainBy::Deregister
            && !self.flip_ordered
            && self.own_groups().iter().any(|group| plan.groups.get(group).is_some_and(|numbers| numbers.by_address))
    }

    fn flip(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        if cx.setup.plan.drain.by == DrainBy::Deregister {
            self.only_looks = false;
            self.wait = Wait::Ticket(cx.register(&self.plan.name, self.plan.targets.clone(), false));
            return Progress::Stay;
        }
        self.ask(cx, now, step, Request::Flip { drained: true })
    }

    fn back(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        if let Some(absence) = self.record_before_back(&cx.setup.plan.aim) {
            self.said_absent = true;
            return self.ask(cx, now, step, Request::Absent { absence });
        }
        if cx.setup.plan.drain.by != DrainBy::Deregister {
            return self.ask(cx, now, step, Request::Flip { drained: false });
        }
        if matches!(self.wait, Wait::Ticket(_)) || matches!(self.wait, Wait::Until(at) if now < at) {
            return Progress::Stay;
        }
        if self.waits_to_register(&cx.setup.plan) && !judge::may_register(cx, &self.plan.targets, self.entered) {
            self.seen = "targets that are addresses wait the deregistration delay out".into();
            self.wait = Wait::Views;
            return Progress::Stay;
        }
        (self.flip_ordered, self.only_looks) = (true, false);
        self.wait = Wait::Ticket(cx.register(&self.plan.name, self.plan.targets.clone(), true));
        Progress::Stay
    }

    fn sighted(&mut self, now: Stamp, sighting: &Sighting, health: u16, real: bool) -> Progress {
        match judge::sighting(sighting, health, real) {
            Ok(()) => Progress::Proved(None),
            Err(seen) => {
                self.seen = seen;
                self.wait = Wait::Until(now + LOOK_AGAIN);
                Progress::Stay
            }
        }
    }

    fn guard(&mut self, cx: &Cx<'_>) -> Progress {
        if self.goes_back() && !self.revert && judge::all_broken(cx, &self.plan.targets, self.entered) {
            // It serves nobody: its stop takes nothing away.
            return Progress::Proved(None);
        }
        match judge::guard(cx, self, self.entered) {
            None => {
                self.seen = judge::silence(cx, &self.own_groups());
                Progress::Stay
            }
            Some(Err(cause)) => Progress::Failed(cause),
            Some(Ok(())) => {
                if self.step().is_some_and(|step| step.step == Step::Guard) {
                    self.moments.broken_before = judge::broken(cx, &self.plan.targets, self.entered);
                }
                Progress::Proved(None)
            }
        }
    }

    fn guard_again(&mut self, cx: &Cx<'_>) -> Progress {
        let proved = self.guard(cx);
        if let (Progress::Proved(_), Some(cause)) = (&proved, self.serves_all_the_same(cx)) {
            return Progress::Failed(cause);
        }
        let watched = self.drains() && cx.setup.plan.drain.by != DrainBy::Sigterm;
        if !matches!(proved, Progress::Proved(_)) || !watched || cx.setup.plan.unguarded {
            return proved;
        }
        match judge::first_back(cx, self, self.entered) {
            None => proved,
            Some(seen) => Progress::Failed(Cause::unproved(format!("it is back in rotation: {seen}"))),
        }
    }

    /// A record says that it is out; whether it is says the balancer.
    fn serves_all_the_same(&self, cx: &Cx<'_>) -> Option<Cause> {
        if self.drains() || self.plan.step(Step::Stop).is_none() || cx.setup.plan.unguarded {
            return None;
        }
        let target = judge::first_healthy(cx, &self.plan.targets, self.entered)?;
        let message = format!("{target} is healthy, although it was found out of rotation");
        Some(Cause {
            hint: Some("let every process behind the port fail its health when told to, then deploy again".into()),
            ..Cause::new(CauseKind::Guard, message)
        })
    }

    fn stopped(&mut self, cx: &mut Cx<'_>, now: Stamp, stopped: &Stopped) -> Progress {
        self.tell_who_was_killed(cx, stopped);
        if let Some(alive) = judge::first_alive(&stopped.left) {
            return Progress::Failed(Cause::unproved(format!("{} still runs after the stop", alive.name)));
        }
        if self.watches_its_stop(&cx.setup.plan) {
            if let Some(cause) = self.watch_out(cx, now, Targets::Out) {
                return Progress::Failed(cause);
            }
            let settled = self.plan.targets.iter().all(|target| {
                let numbers = cx.setup.plan.groups.get(&target.group);
                let turned = self.moments.turned.get(target);
                numbers.zip(turned).is_some_and(|(n, at)| now >= *at + n.settle_out(&cx.setup.plan.drain))
            });
            if !settled {
                let after = show_duration(now.since(self.entered));
                return Progress::Failed(Cause {
                    hint: Some("let the app answer 503 and serve on for longer after SIGTERM, or drain by file".into()),
                    ..Cause::unproved(format!(
                        "the app left {after} after SIGTERM, before the balancer had let go of it"
                    ))
                });
            }
        }
        self.stopped = true;
        let slowest = stopped.stopped.iter().max_by_key(|c| c.took);
        Progress::Proved(slowest.map(|c| format!("{} took {}", c.name, show_duration(c.took))))
    }

    fn started(&mut self, cx: &Cx<'_>, now: Stamp, containers: &[Container]) -> Progress {
        let Some(release) = self.release() else {
            return Progress::Failed(Cause::unproved("there is no release to start"));
        };
        let (release, containers) = self.but_for_the_gateway(cx, release, containers);
        match judge::containers(&release, &containers) {
            Ok(()) => Progress::Proved(None),
            Err(cause) if cause.kind == CauseKind::Gone => {
                self.seen = cause.message;
                self.wait = Wait::Until(now + CHECK_AGAIN);
                Progress::Stay
            }
            Err(cause) => Progress::Failed(cause),
        }
    }

    fn verified(&mut self, cx: &mut Cx<'_>, now: Stamp, verified: &Verified) -> Progress {
        let Some(release) = self.release() else {
            return Progress::Failed(Cause::unproved("there is no release to verify"));
        };
        if cx.setup.lacks(Protection::Verify) {
            return Progress::Proved(None);
        }
        let restarts: u32 = verified.containers.iter().map(|c| c.restarts).sum();
        let restarted = self.restarts.is_some_and(|before| restarts > before);
        // What was started here is verified awake; where nothing was, what sleeps is left alone.
        let started = !self.is_final_check && self.plan.step(Step::Start).is_some();
        let none = BTreeSet::new();
        let asleep = if started { &none } else { &verified.asleep };
        let sleep = asleep.iter().filter(|name| release.manifest.services.contains_key(*name)).count();
        let (release, containers) = self.but_for_the_gateway(cx, release, &verified.containers);
        let judged = judge::services(&cx.setup.fleet, &release, &Verified { containers, ..verified.clone() }, asleep);
        self.restarts = Some(restarts);
        self.wait = Wait::Until(now + CHECK_AGAIN);
        match judged {
            Err(cause) if cause.kind != CauseKind::Gone => return Progress::Failed(cause),
            Err(cause) => {
                self.moments.steady_since = None;
                self.seen = cause.message;
                self.log = cause.output;
                return Progress::Stay;
            }
            Ok(()) if restarted => {
                self.moments.steady_since = None;
                self.seen = format!("containers are restarted ({restarts} times so far)");
                return Progress::Stay;
            }
            Ok(()) => {}
        }
        let stable = if self.is_final_check { Duration::ZERO } else { cx.setup.plan.rolling.stable };
        let since = *self.moments.steady_since.get_or_insert(now);
        if now.since(since) >= stable {
            let sleep = if sleep > 0 { format!(", {sleep} of them asleep") } else { String::new() };
            return Progress::Proved(Some(format!("{} services{sleep}", verified.services.len())));
        }
        self.wait = Wait::Until((now + CHECK_AGAIN).min(since + stable));
        Progress::Stay
    }
}
