//! What slept before a server was worked on sleeps again afterwards; that it does not is told, and undoes nothing.

use super::Cx;
use super::judge;
use super::track::{Cause, Progress, Track};
use crate::clock::Stamp;
use crate::fleet::model::show_duration;
use crate::server::wire::Stopped;
use std::collections::BTreeSet;

/// What SIGKILL leaves as exit code (128 + 9).
const KILLED: i32 = 137;

impl Track {
    pub(super) fn tell_who_was_killed(&self, cx: &mut Cx<'_>, stopped: &Stopped) {
        for container in stopped.stopped.iter().filter(|c| c.exit_code == KILLED) {
            let what = format!(
                "{} did not stop by itself and was killed after {}",
                container.name,
                show_duration(container.took)
            );
            cx.warn(&self.plan.name, what);
        }
    }

    /// What slept before sleeps again, but for what somebody asked for meanwhile.
    pub(super) fn slept(&mut self, cx: &mut Cx<'_>, slept: &Stopped) -> Progress {
        self.tell_who_was_killed(cx, slept);
        if let Some(alive) = judge::first_alive(&slept.left) {
            return Progress::Failed(Cause::unproved(format!("{} still runs after the stop", alive.name)));
        }
        let names: BTreeSet<&str> = slept.stopped.iter().map(|one| one.service.as_str()).collect();
        Progress::Proved((!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", ")))
    }

    /// What stays awake loses nothing, and its gateway puts it to sleep when it is idle.
    pub(super) fn stays_awake(&mut self, cx: &mut Cx<'_>, now: Stamp, cause: &Cause) {
        cx.warn(&self.plan.name, format!("what slept is awake now: {}", cause.message));
        self.steps.pop_front();
        self.enter(now);
    }
}
