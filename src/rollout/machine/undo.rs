//! What undoes a step that was not proved: the other courses of a server, and how each of them ends.

use super::track::{Cause, CauseKind, Destination, Track, Wait};
use super::{Cx, Machine};
use crate::clock::Stamp;
use crate::event::{Course, Event, ServerOutcome};
use crate::fleet::model::{DrainBy, OnFailure};
use crate::fleet::plan::{Aim, PlannedStep, ServerPlan, StartsAs, Step, Undo};
use std::time::Duration;

impl Machine {
    /// Plans the way back of every server that was deployed before the one that failed, last one first.
    pub(super) fn revert(&mut self) {
        self.reverting = true;
        let deployed = self.finished.iter().filter(|t| t.outcome == Some(ServerOutcome::Deployed));
        let mut back: Vec<Vec<ServerPlan>> = Vec::new();
        for track in deployed.rev() {
            let mut plan = track.plan.clone();
            if plan.previous.is_some() {
                // One that stays out goes back as it came; every other one serves by now.
                if !matches!(plan.starts_as, StartsAs::KeptOut(_)) {
                    plan.steps = self.steps_of_a_serving_server(&plan);
                    plan.starts_as = if plan.targets.is_empty() { StartsAs::Worker } else { StartsAs::Serving };
                }
                back.push(vec![plan]);
            }
        }
        self.batches = back;
        self.at_batch = 0;
    }

    fn steps_of_a_serving_server(&self, plan: &ServerPlan) -> Vec<PlannedStep> {
        crate::fleet::plan::steps_back(&self.setup.fleet, &self.setup.plan, plan)
    }
}

impl Track {
    pub(super) fn take_course(&mut self, now: Stamp, course: Course, steps: Vec<PlannedStep>) {
        self.course = course;
        self.steps = steps.into();
        self.enter(now);
    }

    /// What undoes a step that was not proved.
    pub(super) fn undo(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep, cause: Cause) {
        self.causes.push(cause);
        if self.is_final_check {
            self.outcome = Some(ServerOutcome::Unknown);
            return;
        }
        let said_absent = std::mem::take(&mut self.said_absent);
        if matches!(cx.setup.plan.aim, Aim::Drain(_))
            && step.step == Step::Unlock
            && said_absent
            && self.course == Course::Forward
        {
            // Nobody would know that it is to stay out.
            let back = self.way_back_from_a_drain(cx);
            return self.take_course(now, Course::FlipBack, self.pick(cx, &back));
        }
        if step.step == Step::Unlock && said_absent {
            // The record could not be written; the lock is freed all the same.
            self.undo_failed = true;
            self.free(cx, now, step);
            return;
        }
        match self.course {
            Course::Forward => self.undo_forward(cx, now, step),
            Course::RollBack | Course::LeaveStopped
                if step.step < Step::Stop && (self.revert || step.step == Step::Guard) =>
            {
                let mut back = self.way_back_in(cx);
                if self.moments.flipped.is_none() || step.step == Step::Guard {
                    back = vec![Step::Unlock];
                }
                self.take_course(now, Course::Finish, self.pick(cx, &back));
            }
            // What is behind it serves; holding everything would lose more than an old gateway does.
            Course::RollBack if step.step == Step::HandOver => {
                self.undo_failed = true;
                self.steps.pop_front();
                self.enter(now);
            }
            Course::RollBack | Course::LeaveStopped => self.leave_out(cx, now),
            // Whatever of these fails, the rest is still tried: a lock that stays is worse than a step that failed.
            Course::FlipBack | Course::Finish | Course::LeaveOut => {
                self.undo_failed = true;
                self.steps.pop_front();
                self.enter(now);
                if self.steps.is_empty() {
                    self.finish(cx);
                }
            }
        }
    }

    fn undo_forward(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) {
        match step.step.undo() {
            Undo::RollBack if cx.setup.plan.aim == Aim::Undrain => self.stay_out(cx, now, step.step),
            Undo::Nothing if step.step == Step::Unlock => self.outcome = Some(ServerOutcome::Unknown),
            Undo::Nothing => {
                // A lock that was asked for may yet be given: an unlock calls the waiting off.
                let asked = step.step == Step::Lock && matches!(self.wait, Wait::Ticket(_));
                let steps = if self.locked || asked { self.pick(cx, &[Step::Unlock]) } else { Vec::new() };
                self.take_course(now, Course::FlipBack, steps);
                if self.steps.is_empty() {
                    self.finish(cx);
                }
            }
            Undo::FlipBack => {
                let back = self.way_back_from_a_drain(cx);
                self.take_course(now, Course::FlipBack, self.pick(cx, &back));
            }
            Undo::RollBack if cx.setup.plan.rolling.on_failure == OnFailure::Halt && !self.interrupted() => {
                self.leave_out(cx, now);
            }
            Undo::RollBack => self.roll_back(cx, now, step.step),
        }
    }

    fn way_back_from_a_drain(&self, cx: &Cx<'_>) -> Vec<Step> {
        let was_out = matches!(self.plan.starts_as, StartsAs::LeftOut(_) | StartsAs::KeptOut(_));
        let flips = self.plan.step(Step::Flip).is_some();
        if flips && !was_out { self.way_back_in(cx) } else { vec![Step::Unlock] }
    }

    /// Who was out and did not come back: whatever was told to pass is told to fail again.
    fn stay_out(&mut self, cx: &mut Cx<'_>, now: Stamp, failed: Step) {
        let told = failed >= Step::Back && !self.plan.targets.is_empty();
        let steps: &[Step] = if told { &[Step::Flip, Step::Unlock] } else { &[Step::Unlock] };
        self.take_course(now, Course::LeaveOut, self.pick(cx, steps));
    }

    /// Registering is believed only when the balancer says so; health that answers 200 is seen on the server.
    fn way_back_in(&self, cx: &Cx<'_>) -> Vec<Step> {
        if cx.setup.plan.drain.by == DrainBy::Deregister && self.plan.starts_as.needs_drain() {
            vec![Step::Back, Step::In, Step::Unlock]
        } else {
            vec![Step::Back, Step::Unlock]
        }
    }

    /// The gateway's own turn, where the plan has one: its release follows that of what is behind it.
    fn own_turn(&self) -> Vec<Step> {
        self.plan.step(Step::HandOver).map(|one| one.step).into_iter().collect()
    }

    fn interrupted(&self) -> bool {
        self.causes.iter().any(|cause| cause.kind == CauseKind::Interrupted)
    }

    fn roll_back(&mut self, cx: &mut Cx<'_>, now: Stamp, failed: Step) {
        let facts = cx.setup.plan.drain.by.facts();
        // On SIGTERM such an app drains itself once more.
        let drains_itself = cx.setup.plan.drain.by == DrainBy::Sigterm;
        let exposed = !drains_itself && (failed >= Step::Back || (failed >= Step::Verify && !facts.survives_restart));
        let mut steps: Vec<Step> = Vec::new();
        let holds = cx.setup.plan.drain.by.hold().is_some();
        if exposed && holds && !matches!(self.plan.starts_as, StartsAs::KeptOut(_)) {
            steps.extend([Step::Flip, Step::Out]);
        } else if exposed && !self.plan.targets.is_empty() && self.plan.starts_as.comes_in() {
            steps.extend([Step::Guard, Step::Flip, Step::Out, Step::Settle]);
        }
        let Some(previous) = cx.setup.previous.get(&self.plan.name) else {
            self.destination = Destination::Nothing;
            steps.extend([Step::Stop, Step::Unlock]);
            let steps = self.pick(cx, &steps);
            self.take_course(now, Course::LeaveStopped, steps);
            return;
        };
        self.destination = Destination::Release(Box::new(previous.clone()));
        if failed != Step::Stop {
            steps.push(Step::Stop);
        }
        steps.extend([Step::Start, Step::Verify, Step::Switch]);
        if self.plan.step(Step::Sleep).is_some() {
            steps.push(Step::Sleep);
        }
        steps.extend([Step::Back, Step::In]);
        steps.extend(if holds { self.own_turn() } else { vec![Step::SettleIn] });
        steps.push(Step::Unlock);
        let steps = self.pick(cx, &steps);
        self.take_course(now, Course::RollBack, steps);
    }

    fn leave_out(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        let takes_nothing = self.plan.targets.is_empty() && cx.setup.plan.drain.by.hold().is_none();
        let out: &[Step] = match (takes_nothing, cx.setup.plan.drain.by == DrainBy::Sigterm) {
            (true, _) => &[Step::Unlock],
            (false, false) => &[Step::Flip, Step::Unlock],
            // The stop is the flip: only what is stopped is out.
            (false, true) => &[Step::Stop, Step::Unlock],
        };
        self.take_course(now, Course::LeaveOut, self.pick(cx, out));
    }

    /// The planned numbers of these steps; a step that this server's plan does not have gets those of a look.
    fn pick(&self, cx: &Cx<'_>, steps: &[Step]) -> Vec<PlannedStep> {
        let grace: Duration = cx.setup.plan.services.values().map(|service| service.grace).sum();
        let has_targets = !self.plan.targets.is_empty() && self.plan.starts_as.comes_in();
        // A gateway holds whatever arrives, from a balancer or not.
        let held = cx.setup.plan.drain.by.hold().is_some() && !matches!(self.plan.starts_as, StartsAs::KeptOut(_));
        steps
            .iter()
            .filter(|step| match step {
                Step::Back | Step::Out => has_targets || held,
                Step::In | Step::SettleIn | Step::Settle => has_targets,
                _ => true,
            })
            .map(|step| {
                self.plan.step(*step).copied().unwrap_or(PlannedStep {
                    step: *step,
                    expected: Duration::from_millis(500),
                    deadline: Duration::from_secs(60) + if *step == Step::Stop { grace } else { Duration::ZERO },
                })
            })
            .collect()
    }

    pub(super) fn interrupt(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        let Some(step) = self.step().filter(|_| !self.is_done() && self.course == Course::Forward) else { return };
        if self.is_final_check || step.step >= Step::Unlock {
            return;
        }
        if matches!(self.wait, Wait::Ticket(_)) && step.step != Step::Lock && !self.only_looks {
            self.interrupt_waits = true;
            return;
        }
        let cause = Cause { step: Some(step.step), ..Cause::new(CauseKind::Interrupted, "interrupted") };
        if step.step >= Step::Back {
            self.causes.push(cause);
            let mut steps = if step.step == Step::Back { vec![Step::Back] } else { Vec::new() };
            steps.extend(self.own_turn());
            steps.push(Step::Unlock);
            let steps = self.pick(cx, &steps);
            self.take_course(now, Course::Finish, steps);
        } else {
            self.undo(cx, now, step, cause);
        }
    }

    /// The order that an interrupt waited for is answered: now it is taken up.
    pub(super) fn interrupt_that_waits(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        if self.interrupt_waits && (self.only_looks || !matches!(self.wait, Wait::Ticket(_))) {
            self.interrupt_waits = false;
            self.interrupt(cx, now);
        }
    }

    pub(super) fn finish(&mut self, cx: &mut Cx<'_>) {
        let undo_failed = self.undo_failed || (self.causes.len() > 1 && self.course == Course::Finish);
        let outcome = match self.course {
            _ if self.is_final_check => ServerOutcome::Deployed,
            _ if self.is_once => ServerOutcome::Untouched,
            Course::Forward | Course::Finish if !undo_failed => match &cx.setup.plan.aim {
                Aim::Deploy => ServerOutcome::Deployed,
                Aim::Drain(_) => ServerOutcome::Drained,
                Aim::Undrain => ServerOutcome::Undrained,
            },
            Course::FlipBack if !self.locked => ServerOutcome::Untouched,
            Course::FlipBack if !undo_failed => ServerOutcome::FlippedBack,
            Course::RollBack if !undo_failed => ServerOutcome::RolledBack,
            Course::LeaveStopped if !undo_failed => ServerOutcome::LeftStopped,
            Course::LeaveOut if !undo_failed && cx.setup.plan.aim == Aim::Undrain => ServerOutcome::StaysOut,
            Course::LeaveOut if !undo_failed => ServerOutcome::LeftOut,
            _ => ServerOutcome::Unknown,
        };
        self.outcome = Some(outcome);
        if !self.is_aside() {
            let what = self.sentence(outcome);
            cx.say(Event::ServerDone { server: self.plan.name.clone(), outcome, took: self.took, what });
        }
    }

    /// What became of the server, for people.
    pub(super) fn sentence(&self, outcome: ServerOutcome) -> String {
        let previous = self.plan.previous.as_ref().map_or("what it ran before", |id| id.short());
        match outcome {
            ServerOutcome::Deployed if matches!(self.plan.starts_as, StartsAs::KeptOut(_)) => {
                "runs the release and stays out of rotation".into()
            }
            ServerOutcome::Deployed => "runs the release".into(),
            ServerOutcome::Unchanged => "ran the release already".into(),
            ServerOutcome::Untouched => "was not touched".into(),
            ServerOutcome::FlippedBack => match &self.plan.starts_as {
                StartsAs::Empty => "is empty as before".into(),
                StartsAs::Broken(_) | StartsAs::LeftOut(_) | StartsAs::KeptOut(_) => "is as it was before".into(),
                StartsAs::Worker => format!("runs {previous} on"),
                StartsAs::Serving if self.moments.flipped.is_none() => {
                    format!("was not drained and runs {previous} on")
                }
                StartsAs::Serving if self.plan.step(Step::Settle).is_none() && self.plan.step(Step::Flip).is_some() => {
                    format!("runs {previous}; requests go through again")
                }
                StartsAs::Serving => format!("runs {previous}; its health answers 200 again"),
            },
            ServerOutcome::RolledBack => format!("runs {previous} again"),
            ServerOutcome::LeftStopped => "was empty before and is left stopped".into(),
            ServerOutcome::LeftOut => "is left out of rotation, marked as a planned absence".into(),
            ServerOutcome::Drained if self.plan.targets.is_empty() => {
                "takes no traffic, and is marked as a planned absence".into()
            }
            ServerOutcome::Drained => "is out of rotation, marked as a planned absence, and runs on".into(),
            ServerOutcome::Undrained if self.plan.targets.is_empty() => {
                format!("runs {previous}, verified, and is absent no more")
            }
            ServerOutcome::Undrained => format!("runs {previous}, verified, and is back in rotation"),
            ServerOutcome::StaysOut => "stays out of rotation".into(),
            ServerOutcome::Unknown if self.course == Course::Finish && !self.undo_failed => {
                "was verified with the new release, which it goes on serving".into()
            }
            ServerOutcome::Unknown => "is in a state that could not be learnt".into(),
        }
    }
}
