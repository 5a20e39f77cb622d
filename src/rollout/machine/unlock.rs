//! The end of a server's way: the record of its absence written or ended, the lock freed.

use super::Cx;
use super::track::{Progress, Track};
use crate::clock::Stamp;
use crate::event::Course;
use crate::fleet::model::Absence;
use crate::fleet::plan::{PlannedStep, StartsAs, Step};
use crate::server::wire::Request;

impl Track {
    pub(super) fn unlock(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        let comes_in = self.plan.starts_as.comes_in();
        let absence = match (self.course, &self.plan.starts_as) {
            // A person's own word stays.
            (Course::LeaveOut, StartsAs::KeptOut(_)) => None,
            (Course::LeaveOut, _) => Some(Some(self.absence())),
            // It has a `current` already, which nobody is to bring up.
            (Course::LeaveStopped, _) if self.causes.first().is_some_and(|cause| cause.step > Some(Step::Switch)) => {
                Some(Some(self.absence()))
            }
            (Course::Forward | Course::RollBack | Course::Finish, _) if comes_in && self.plan.absent => Some(None),
            _ => None,
        };
        match absence {
            Some(absence) => {
                self.said_absent = true;
                self.ask(cx, now, step, Request::Absent { absence })
            }
            None => self.free(cx, now, step),
        }
    }

    fn absence(&self) -> Absence {
        let reason = self.causes.first().map_or_else(String::new, |cause| cause.message.clone());
        Absence { reason, ends_when_verified: true, since: 0 }
    }

    pub(super) fn free(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        let record = match self.causes.first() {
            None => "deployed".to_owned(),
            Some(cause) => format!("{:?}: {}", self.course, cause.message),
        };
        self.ask(cx, now, step, Request::Unlock { record })
    }
}
