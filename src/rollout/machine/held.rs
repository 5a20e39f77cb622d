//! A server whose gateway holds what arrives: what is asked of it and taken for proof, and its own renewal.

use super::Cx;
use super::judge;
use super::steps::{CHECK_AGAIN, LOOK_AGAIN};
use super::track::{Cause, CauseKind, Progress, Track, Wait};
use crate::clock::Stamp;
use crate::fleet::held::HeldSeen;
use crate::fleet::model::{Container, Known, ReleaseOnDisk, show_duration};
use crate::fleet::plan::{PlannedStep, Step};
use crate::server::wire::{Request, Verified};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two looks at what is still under way: whoever came meanwhile waits for it.
const QUIET_AGAIN: Duration = Duration::from_millis(100);

impl Track {
    pub(super) fn wait_for_quiet(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        // Asked once; after each answer, again when that is due.
        if self.wait == Wait::Views { self.ask(cx, now, step, Request::Held) } else { Progress::Stay }
    }

    /// What the gateway said, for the step that asked.
    pub(super) fn holding(&mut self, now: Stamp, step: Step, seen: Known<HeldSeen>) -> Progress {
        let seen = match seen {
            Known::Known(seen) => seen,
            Known::Unknown(why) => return self.again(now, LOOK_AGAIN, why),
        };
        match step {
            Step::Flip if seen.holding => Progress::Proved(None),
            Step::Flip => {
                self.again(now, LOOK_AGAIN, "the gateway lets requests through: is its hold_file drain.file?".into())
            }
            Step::Out => match seen.quiet() {
                Ok(()) => {
                    Progress::Proved((seen.tunnels > 0).then(|| format!("{} tunnels end with the stop", seen.tunnels)))
                }
                Err(what) => self.again(now, QUIET_AGAIN, what),
            },
            _ if seen.holding => self.again(now, QUIET_AGAIN, "the gateway still holds every request".into()),
            _ => {
                let since = self.moments.flipped.map(|at| show_duration(now.since(at)));
                Progress::Proved(since.map(|since| format!("no request waited longer than {since}")))
            }
        }
    }

    fn again(&mut self, now: Stamp, pause: Duration, seen: String) -> Progress {
        self.seen = seen;
        self.wait = Wait::Until(now + pause);
        Progress::Stay
    }

    pub(super) fn hand_over(&mut self, cx: &mut Cx<'_>, now: Stamp, step: PlannedStep) -> Progress {
        match self.release() {
            None => Progress::Proved(None),
            Some(release) => {
                let release = release.manifest.id.clone();
                self.ask(cx, now, step, Request::HandOver { release })
            }
        }
    }

    /// With the gateway's own turn over, everything must be of the release and pass.
    pub(super) fn handed_over(&mut self, cx: &Cx<'_>, now: Stamp, verified: &Verified) -> Progress {
        let Some(release) = self.release() else { return Progress::Proved(None) };
        let none = BTreeSet::new();
        match judge::services(&cx.setup.fleet, release, verified, if self.sleeps() { &verified.asleep } else { &none })
        {
            Ok(()) => Progress::Proved(None),
            Err(cause) if cause.kind == CauseKind::Gone => {
                self.log.clone_from(&cause.output);
                self.again(now, CHECK_AGAIN, cause.message)
            }
            Err(cause) => Progress::Failed(Cause { output: self.log.clone(), ..cause }),
        }
    }

    /// Whether something was put back to sleep on this way.
    fn sleeps(&self) -> bool {
        self.plan.step(Step::Sleep).is_some()
    }

    /// A release and its containers as they are judged before the gateway's own turn has come.
    pub(super) fn but_for_the_gateway(
        &self,
        cx: &Cx<'_>,
        release: &ReleaseOnDisk,
        containers: &[Container],
    ) -> (ReleaseOnDisk, Vec<Container>) {
        let (mut release, mut containers) = (release.clone(), containers.to_vec());
        let to_come = self.steps.iter().any(|one| one.step == Step::HandOver);
        if let (true, Some(gateway)) = (to_come, cx.setup.plan.drain.by.hands_over()) {
            release.manifest.services.remove(gateway);
            containers.retain(|one| &one.service != gateway);
        }
        (release, containers)
    }
}
