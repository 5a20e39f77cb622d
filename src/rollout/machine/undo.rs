//! What undoes a step that was not proved: the other courses of a server, and how each of them ends.

use super::Cx;
use super::track::{Cause, CauseKind, Destination, Track};
use crate::clock::Stamp;
use crate::event::{Course, Event, ServerOutcome};
use crate::fleet::model::{DrainBy, OnFailure};
use crate::fleet::plan::{PlannedStep, StartsAs, Step, Undo};
use std::time::Duration;

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
        match self.course {
            Course::Forward => self.undo_forward(cx, now, step),
            Course::RollBack if self.revert && step.step < Step::Stop => {
                let back: &[Step] =
                    if self.moments.flipped.is_some() { &[Step::Back, Step::Unlock] } else { &[Step::Unlock] };
                self.take_course(now, Course::Finish, self.pick(back));
            }
            Course::RollBack | Course::LeaveStopped => self.leave_out(cx, now),
            // Whatever of these fails, the rest is still tried: a lock that stays is worse than a step that failed.
            Course::FlipBack | Course::Finish | Course::LeaveOut => {
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
            Undo::Nothing if step.step == Step::Unlock => self.outcome = Some(ServerOutcome::Unknown),
            Undo::Nothing => {
                let steps = if self.locked { self.pick(&[Step::Unlock]) } else { Vec::new() };
                self.take_course(now, Course::FlipBack, steps);
                if self.steps.is_empty() {
                    self.finish(cx);
                }
            }
            Undo::FlipBack => {
                let back: &[Step] =
                    if self.plan.starts_as.needs_drain() { &[Step::Back, Step::Unlock] } else { &[Step::Unlock] };
                self.take_course(now, Course::FlipBack, self.pick(back));
            }
            Undo::RollBack if cx.setup.plan.rolling.on_failure == OnFailure::Halt && !self.interrupted() => {
                self.leave_out(cx, now);
            }
            Undo::RollBack => self.roll_back(cx, now, step.step),
        }
    }

    fn interrupted(&self) -> bool {
        self.causes.iter().any(|cause| cause.kind == CauseKind::Interrupted)
    }

    fn roll_back(&mut self, cx: &mut Cx<'_>, now: Stamp, failed: Step) {
        let Some(previous) = cx.setup.previous.get(&self.plan.name) else {
            self.destination = Destination::Nothing;
            let steps = self.pick(&[Step::Stop, Step::Unlock]);
            self.take_course(now, Course::LeaveStopped, steps);
            return;
        };
        self.destination = Destination::Release(Box::new(previous.clone()));
        let facts = cx.setup.plan.drain.by.facts();
        // On SIGTERM such an app drains itself once more.
        let drains_itself = cx.setup.plan.drain.by == DrainBy::Sigterm;
        let exposed = !drains_itself && (failed >= Step::Back || (failed >= Step::Verify && !facts.survives_restart));
        let mut steps: Vec<Step> = Vec::new();
        if exposed && !self.plan.targets.is_empty() && self.plan.starts_as.comes_in() {
            steps.extend([Step::Flip, Step::Out, Step::Settle]);
        }
        if failed != Step::Stop {
            steps.push(Step::Stop);
        }
        steps.extend([Step::Start, Step::Verify, Step::Switch, Step::Back, Step::In, Step::SettleIn, Step::Unlock]);
        let steps = self.pick(&steps);
        self.take_course(now, Course::RollBack, steps);
    }

    fn leave_out(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        let flip = !self.plan.targets.is_empty() && cx.setup.plan.drain.by != DrainBy::Sigterm;
        let steps = if flip { self.pick(&[Step::Flip, Step::Unlock]) } else { self.pick(&[Step::Unlock]) };
        self.take_course(now, Course::LeaveOut, steps);
    }

    /// The planned numbers of these steps; a step that this server's plan does not have gets those of a look.
    fn pick(&self, steps: &[Step]) -> Vec<PlannedStep> {
        let has_targets = !self.plan.targets.is_empty() && self.plan.starts_as.comes_in();
        steps
            .iter()
            .filter(|step| {
                has_targets || !matches!(step, Step::Back | Step::In | Step::SettleIn | Step::Out | Step::Settle)
            })
            .map(|step| {
                self.plan.step(*step).copied().unwrap_or(PlannedStep {
                    step: *step,
                    expected: Duration::from_millis(500),
                    deadline: Duration::from_secs(60),
                })
            })
            .collect()
    }

    pub(super) fn interrupt(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        let Some(step) = self.step().filter(|_| !self.is_done() && self.course == Course::Forward) else { return };
        if self.is_final_check || step.step == Step::Unlock {
            return;
        }
        let cause = Cause { step: Some(step.step), ..Cause::new(CauseKind::Interrupted, "interrupted") };
        if step.step >= Step::Back {
            self.causes.push(cause);
            let steps = self.pick(if step.step == Step::Back { &[Step::Back, Step::Unlock] } else { &[Step::Unlock] });
            self.take_course(now, Course::Finish, steps);
        } else {
            self.undo(cx, now, step, cause);
        }
    }

    pub(super) fn finish(&mut self, cx: &mut Cx<'_>) {
        let undo_failed = self.causes.len() > 1;
        let outcome = match self.course {
            _ if self.is_final_check => ServerOutcome::Deployed,
            Course::Forward | Course::Finish if !undo_failed => ServerOutcome::Deployed,
            Course::FlipBack if !self.locked => ServerOutcome::Untouched,
            Course::FlipBack if !undo_failed => ServerOutcome::FlippedBack,
            Course::RollBack => ServerOutcome::RolledBack,
            Course::LeaveStopped => ServerOutcome::LeftStopped,
            Course::LeaveOut => ServerOutcome::LeftOut,
            Course::Forward | Course::Finish | Course::FlipBack => ServerOutcome::Unknown,
        };
        self.outcome = Some(outcome);
        if !self.is_final_check {
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
            ServerOutcome::FlippedBack => format!("runs {previous}; its health answers 200 again"),
            ServerOutcome::RolledBack => format!("runs {previous} again"),
            ServerOutcome::LeftStopped => "was empty before and is left stopped".into(),
            ServerOutcome::LeftOut => "is left out of rotation, marked as a planned absence".into(),
            ServerOutcome::Unknown => "is in a state that could not be learnt".into(),
        }
    }
}
