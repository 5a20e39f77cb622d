//! The end of a server's way: the record of its absence written or ended, the lock freed.

use super::Cx;
use super::track::{Progress, Track};
use crate::clock::Stamp;
use crate::event::Course;
use crate::fleet::model::Absence;
use crate::fleet::plan::{Aim, PlannedStep, StartsAs, Step};
use crate::server::wire::Request;

impl Track {
    pub(super) fn unlock(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        let absence = match &cx.setup.plan.aim {
            Aim::Deploy => self.absence_of_a_deploy(),
            Aim::Drain(absence) => self.absence_of_a_drain(absence),
            Aim::Undrain => self.absence_of_an_undrain(),
        };
        match absence {
            Some(absence) => {
                (self.said_absent, self.record_changed) = (true, true);
                self.ask(cx, now, step, Request::Absent { absence })
            }
            None => self.free(cx, now, step),
        }
    }

    /// What the record is to say of an absence; the outer `None` leaves it as it is.
    fn absence_of_a_deploy(&self) -> Option<Option<Absence>> {
        let comes_in = self.plan.starts_as.comes_in();
        let ends = self.plan.absence.as_ref().is_some_and(|absence| absence.ends_when_verified);
        match (self.course, &self.plan.starts_as) {
            // A person's own word stays.
            (Course::LeaveOut, StartsAs::KeptOut(_)) => None,
            (Course::LeaveOut, _) => Some(Some(self.absence())),
            // It has a `current` already, which nobody is to bring up.
            (Course::LeaveStopped, _) if self.causes.first().is_some_and(|cause| cause.step > Some(Step::Switch)) => {
                Some(Some(self.absence()))
            }
            (Course::Forward | Course::RollBack | Course::Finish, _) if comes_in && ends => Some(None),
            _ => None,
        }
    }

    /// Whoever could not be told apart from absent is written down as before.
    fn absence_of_a_drain(&self, absence: &Absence) -> Option<Option<Absence>> {
        match self.course {
            Course::Forward => Some(Some(absence.clone())),
            _ => self.record_changed.then(|| self.plan.absence.clone()),
        }
    }

    /// The record comes before the flip: whoever puts the server right from here on lets it in too.
    pub(super) fn record_before_back(&mut self, aim: &Aim) -> Option<Option<Absence>> {
        let due = match aim {
            Aim::Deploy => false,
            Aim::Drain(_) => self.record_changed,
            Aim::Undrain => self.plan.absence.is_some() && !self.record_changed,
        };
        if !due {
            return None;
        }
        self.record_changed = *aim == Aim::Undrain;
        Some(self.plan.absence.clone().filter(|_| *aim != Aim::Undrain))
    }

    /// What is not verified stays out, by the record that there was, or by one that says why.
    fn absence_of_an_undrain(&self) -> Option<Option<Absence>> {
        let before = self.plan.absence.as_ref();
        match self.course {
            Course::LeaveOut if before.is_some() && !self.record_changed => None,
            Course::LeaveOut => Some(Some(before.cloned().unwrap_or_else(|| self.absence()))),
            Course::Forward | Course::Finish if before.is_some() && !self.record_changed => Some(None),
            _ => None,
        }
    }

    fn absence(&self) -> Absence {
        let reason = self.causes.first().map_or_else(String::new, |cause| cause.message.clone());
        Absence::of_a_failure(reason)
    }

    pub(super) fn free(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        let record = match self.causes.first() {
            None => match &cx.setup.plan.aim {
                Aim::Deploy => "deployed".to_owned(),
                Aim::Drain(absence) => format!("drained: {}", absence.reason),
                Aim::Undrain => "undrained".to_owned(),
            },
            Some(cause) => format!("{:?}: {}", self.course, cause.message),
        };
        self.ask(cx, now, step, Request::Unlock { record })
    }
}
