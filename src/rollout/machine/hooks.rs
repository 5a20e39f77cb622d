//! The team's own commands on a server's way: asked for like every other order, and what their failure means.

use super::track::{Cause, Progress, Track, Wait};
use super::{Cx, Effect};
use crate::clock::Stamp;
use crate::event::Course;
use crate::fleet::model::Hook;
use crate::fleet::plan::{Aim, Step};
use crate::rollout::hooks::{self, HookFailed};

impl Track {
    /// Asks for a command; where deploy.toml has none, there is nothing to wait for.
    pub(super) fn hook(&mut self, cx: &mut Cx<'_>, step: Step) -> Progress {
        let hook = if step == Step::PreDrain { Hook::PreDrain } else { Hook::PostServer };
        let outcome = match (&cx.setup.plan.aim, self.course) {
            (Aim::Drain(_), _) => "drained",
            (Aim::Undrain, _) => "undrained",
            (Aim::Deploy, Course::RollBack) => "rolled_back",
            (Aim::Deploy, _) => "deployed",
        };
        let mut besides = vec![("HANDOVER_SERVER", self.plan.name.as_str())];
        besides.extend((hook == Hook::PostServer).then_some(("HANDOVER_OUTCOME", outcome)));
        let Some(mut command) = hooks::command(&cx.setup.fleet, hook, &cx.setup.told, &besides) else {
            return Progress::Proved(None);
        };
        command.server = Some(self.plan.name.clone());
        // It changes nothing that we would have to undo: an interrupt does not wait for it.
        self.only_looks = true;
        *cx.ticket += 1;
        self.wait = Wait::Ticket(*cx.ticket);
        cx.out.push(Effect::Hook { server: self.plan.name.clone(), ticket: *cx.ticket, command });
        Progress::Stay
    }

    pub(super) fn on_hook(&mut self, cx: &mut Cx<'_>, now: Stamp, result: Result<(), HookFailed>) {
        let progress = match result {
            Ok(()) => Progress::Proved(None),
            Err(HookFailed { message, output }) => {
                let hint = Some("mend it, or leave every hook out with `--skip-hooks`".to_owned());
                Progress::Failed(Cause { output, hint, ..Cause::unproved(message) })
            }
        };
        self.settle_progress(cx, now, progress);
    }

    /// What failed here is told and stops nothing: all was done by then, or it is on its way back.
    pub(super) fn only_told(&self, step: Step) -> bool {
        step == Step::PostServer || (step == Step::PreDrain && self.course != Course::Forward)
    }

    pub(super) fn goes_on_all_the_same(&mut self, cx: &mut Cx<'_>, now: Stamp) {
        self.steps.pop_front();
        self.enter(now);
        if self.steps.is_empty() {
            self.finish(cx);
        }
    }
}
