//! What is run once before the first server is touched: asked for like every other step, with no other server begun before its end.

use super::Cx;
use super::track::{Cause, CauseKind, Progress, Track};
use crate::clock::Stamp;
use crate::fleet::model::{Once, show_duration};
use crate::fleet::plan::{PlannedStep, Step};
use crate::server::wire::{OnceEnd, Request};

impl Track {
    /// That it is no server's way to the release.
    pub(super) fn once(mut self) -> Self {
        self.is_once = true;
        self
    }

    /// Beside the servers' own ways: it neither begins nor ends one.
    pub(super) fn is_aside(&self) -> bool {
        self.is_final_check || self.is_once
    }

    fn due<'a>(&self, cx: &Cx<'a>) -> Option<&'a Once> {
        let left = self.steps.iter().filter(|step| step.step == Step::RunOnce).count();
        cx.setup.plan.once.as_ref()?.with_left(left)
    }

    pub(super) fn run_once(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        match (self.due(cx).cloned(), cx.setup.plan.release.clone()) {
            (Some(once), Some(release)) => self.ask(cx, now, step, Request::Once { release, once }),
            _ => Progress::Failed(Cause::unproved("there is nothing to run once")),
        }
    }

    pub(super) fn ran_once(&self, cx: &Cx<'_>, end: OnceEnd) -> Progress {
        let name = self.due(cx).map_or("", |once| &once.name);
        let how = match end.code {
            Some(0) => return Progress::Proved(Some(format!("{name} took {}", show_duration(end.took)))),
            Some(code) => format!("ended with exit code {code}"),
            None => "was not over by its limit and was ended by force".to_owned(),
        };
        Progress::Failed(Cause { output: end.output, ..self.of_once(cx, format!("run_once `{name}` {how}")) })
    }

    /// A cause that stands for what cannot be taken back.
    pub(super) fn of_once(&self, cx: &Cx<'_>, message: String) -> Cause {
        let name = self.due(cx).map_or("", |once| &once.name);
        let hint = format!(
            "no server was drained. What `{name}` changed before its end it did change; mend it, and the next deploy of this release runs it again"
        );
        Cause { hint: Some(hint), ..Cause::new(CauseKind::Once, message) }
    }
}
