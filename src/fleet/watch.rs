//! One turn of the watchdog, as a pure machine: it asks for one thing after the other and decides from what was seen.
//!
//! Nothing is changed without the server lock; the lock is looked at before and after the services, so that a look that straddles a
//! deploy counts for nothing, and before a heal everything is looked at once more under the lock. It may not know how any of it is
//! done: the watchdog carries it out on a server, the tests let it meet deploys, bootstraps and people in every order.

use super::model::{ReleaseId, ServiceName};
use super::strikes::{Rules, Seen, Strikes, Verdict};
use std::collections::BTreeMap;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Do {
    /// See who holds the server lock.
    SeeLock,
    /// Look at the server: its record, its planned absence, its services.
    Look,
    /// Take the server lock, without waiting.
    TakeLock,
    /// Under the lock: put right what a dead deploy left.
    PutRight,
    /// Under the lock: let health pass again, since everything works.
    LetBack,
    /// Under the lock: bring `current` up for these, and see whether they work.
    Heal(Vec<ServiceName>),
    /// Free the lock.
    Free,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saw {
    /// Who holds the lock, if anybody.
    Lock(Option<String>),
    /// The server.
    Server(Box<Look>),
    /// Whether the lock is ours now, and whether whoever had it before died in the middle; who has it otherwise.
    Taken(Result<bool, String>),
    /// It was done, or not, and how that showed.
    Done(Result<String, String>),
}

/// A server as the watchdog sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// `current`.
    pub release: Option<ReleaseId>,
    /// The reason of a planned absence.
    pub absent: Option<String>,
    /// The record says that somebody is in the middle of something, or that health fails since somebody was.
    pub left: Left,
    /// Each service; why they could not be looked at.
    pub services: Result<BTreeMap<ServiceName, Seen>, String>,
}

/// What the record says was left behind, while nobody holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Whoever worked here died in the middle.
    Unfinished,
    /// Health fails on purpose, and nobody says that it should.
    Drained,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Somebody holds the lock: planned work is going on.
    Busy(String),
    /// The server is absent on purpose.
    Absent(String),
    /// Nothing was ever verified here.
    NoRelease,
    /// The services could not be looked at, and why.
    Unknown(String),
    /// Looked at; [`Turn::verdicts`] says what each failure means.
    Watched,
    /// By the time that the lock was ours everything that it was taken for worked again.
    Passed,
    /// What a dead deploy left was put right, or is not as it should be even so.
    PutRight(Result<String, String>),
    /// Health passes again, or could not be made to.
    LetBack(Result<String, String>),
    /// These were healed, or it did not help.
    Healed(Vec<ServiceName>, Result<String, String>),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// This is to be done; the answer is what it saw.
    Do(Do),
    /// The turn is over.
    End(Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Before,
    Looking,
    After(Box<Look>),
    Taking(Why),
    Again(Why),
    PuttingRight,
    LettingBack,
    Healing(Vec<ServiceName>),
    Freeing(Outcome),
}

/// Why the lock is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    Unfinished,
    Drained,
    Heal(Vec<ServiceName>),
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    rules: Rules,
    phase: Phase,
    verdicts: BTreeMap<ServiceName, Verdict>,
}

impl Turn {
    /// A turn, and what is to be done first.
    #[must_use]
    pub fn begin(rules: Rules) -> (Self, Do) {
        (Self { rules, phase: Phase::Before, verdicts: BTreeMap::new() }, Do::SeeLock)
    }

    /// What the look meant for each service that failed or works again.
    #[must_use]
    pub fn verdicts(&self) -> &BTreeMap<ServiceName, Verdict> {
        &self.verdicts
    }

    /// What the lock is wanted for, while it is.
    #[must_use]
    pub fn intent(&self) -> Option<String> {
        let Phase::Taking(why) = &self.phase else { return None };
        Some(match why {
            Why::Unfinished => "put right what a dead deploy left".to_owned(),
            Why::Drained => "let health pass again".to_owned(),
            Why::Heal(services) => {
                format!("heal {}", services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", "))
            }
        })
    }

    /// Goes on with what was seen; `now` is in seconds since the epoch. An answer that was not asked for ends the turn as unknown.
    pub fn step(&mut self, strikes: &mut Strikes, saw: Saw, now: u64) -> Next {
        let phase = std::mem::replace(&mut self.phase, Phase::Before);
        match (phase, saw) {
            (Phase::Before | Phase::After(_), Saw::Lock(Some(holder)))
            | (Phase::Taking(_), Saw::Taken(Err(holder))) => {
                strikes.start_again();
                Next::End(Outcome::Busy(holder))
            }
            (Phase::Before, Saw::Lock(None)) => self.then(Phase::Looking, Do::Look),
            (Phase::Looking, Saw::Server(look)) => self.then(Phase::After(look), Do::SeeLock),
            (Phase::After(look), Saw::Lock(None)) => self.decide(strikes, *look, now),
            (Phase::Taking(Why::Unfinished), Saw::Taken(Ok(_))) | (Phase::Taking(_), Saw::Taken(Ok(true))) => {
                self.then(Phase::PuttingRight, Do::PutRight)
            }
            (Phase::Taking(why), Saw::Taken(Ok(false))) => self.then(Phase::Again(why), Do::Look),
            (Phase::Again(why), Saw::Server(look)) => self.under_the_lock(why, &look),
            (Phase::PuttingRight, Saw::Done(done)) => {
                strikes.start_again();
                self.free(Outcome::PutRight(done))
            }
            (Phase::LettingBack, Saw::Done(done)) => self.free(Outcome::LetBack(done)),
            (Phase::Healing(services), Saw::Done(done)) => {
                strikes.healed(&services, now);
                self.free(Outcome::Healed(services, done))
            }
            (Phase::Freeing(outcome), Saw::Done(_)) => Next::End(outcome),
            (phase, saw) => Next::End(Outcome::Unknown(format!("{saw:?} in the middle of {phase:?}"))),
        }
    }

    fn then(&mut self, phase: Phase, todo: Do) -> Next {
        self.phase = phase;
        Next::Do(todo)
    }

    fn free(&mut self, outcome: Outcome) -> Next {
        self.then(Phase::Freeing(outcome), Do::Free)
    }

    /// The lock was free before and after the look.
    fn decide(&mut self, strikes: &mut Strikes, look: Look, now: u64) -> Next {
        // Also where it is absent: a deploy that renewed it may have died when it had stopped everything.
        if look.left == Left::Unfinished {
            return self.then(Phase::Taking(Why::Unfinished), Do::TakeLock);
        }
        if let Some(reason) = look.absent {
            strikes.start_again();
            return Next::End(Outcome::Absent(reason));
        }
        let Some(release) = look.release else { return Next::End(Outcome::NoRelease) };
        let services = match look.services {
            Ok(services) => services,
            // Neither a failure nor a success.
            Err(why) => return Next::End(Outcome::Unknown(why)),
        };
        self.verdicts = strikes.look(&self.rules, &release, &services, now);
        if look.left == Left::Drained && all_work(&services) {
            return self.then(Phase::Taking(Why::Drained), Do::TakeLock);
        }
        let heal: Vec<ServiceName> = self
            .verdicts
            .iter()
            .filter(|(_, verdict)| **verdict == Verdict::Heal)
            .map(|(name, _)| name.clone())
            .collect();
        if heal.is_empty() {
            return Next::End(Outcome::Watched);
        }
        self.then(Phase::Taking(Why::Heal(heal)), Do::TakeLock)
    }

    /// The lock is ours: whatever was done until a moment ago is seen now.
    fn under_the_lock(&mut self, why: Why, look: &Look) -> Next {
        if let Some(reason) = &look.absent {
            return self.free(Outcome::Absent(reason.clone()));
        }
        if look.release.is_none() {
            return self.free(Outcome::NoRelease);
        }
        let services = match &look.services {
            Ok(services) => services,
            Err(why) => return self.free(Outcome::Unknown(why.clone())),
        };
        match why {
            Why::Heal(wanted) => {
                let failing = |name: &ServiceName| matches!(services.get(name), Some(Seen::Failing(_)));
                let works = |name: &ServiceName| !matches!(services.get(name), Some(Seen::Failing(_) | Seen::Starting));
                if wanted.iter().all(works) {
                    return self.free(Outcome::Passed);
                }
                let heal: Vec<ServiceName> = wanted.into_iter().filter(failing).collect();
                if heal.is_empty() {
                    return self.free(Outcome::Watched);
                }
                self.then(Phase::Healing(heal.clone()), Do::Heal(heal))
            }
            Why::Drained | Why::Unfinished if !all_work(services) => self.free(Outcome::Watched),
            Why::Drained | Why::Unfinished if look.left == Left::Drained => self.then(Phase::LettingBack, Do::LetBack),
            Why::Drained | Why::Unfinished => self.free(Outcome::Passed),
        }
    }
}

/// Whether nothing fails and nothing is only starting.
fn all_work(services: &BTreeMap<ServiceName, Seen>) -> bool {
    services.values().all(|seen| matches!(seen, Seen::Fine | Seen::Excused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RULES: Rules =
        Rules { interval: Duration::from_secs(60), strikes: 1, heals: 3, window: Duration::from_secs(3600) };

    fn look(change: impl FnOnce(&mut Look)) -> Saw {
        let services = Ok(BTreeMap::from([("api".into(), Seen::Failing("no answer".into()))]));
        let mut look = Look { release: Some("one".into()), absent: None, left: Left::Nothing, services };
        change(&mut look);
        Saw::Server(Box::new(look))
    }

    /// Takes the lock because of `first`, and ends with what is seen under it.
    fn under_the_lock(first: Saw, then: Saw) -> Outcome {
        let mut strikes = Strikes::default();
        let (mut turn, todo) = Turn::begin(RULES);
        assert_eq!(todo, Do::SeeLock);
        for (saw, wanted) in [
            (Saw::Lock(None), Do::Look),
            (first, Do::SeeLock),
            (Saw::Lock(None), Do::TakeLock),
            (Saw::Taken(Ok(false)), Do::Look),
            (then, Do::Free),
        ] {
            assert_eq!(turn.step(&mut strikes, saw, 0), Next::Do(wanted));
        }
        match turn.step(&mut strikes, Saw::Done(Ok(String::new())), 0) {
            Next::End(outcome) => outcome,
            Next::Do(more) => panic!("{more:?} without the lock"),
        }
    }

    #[test]
    fn what_is_seen_under_the_lock_is_never_told_as_better_than_it_is() {
        let services =
            |seen: Seen| move |look: &mut Look| look.services = Ok(BTreeMap::from([("api".into(), seen.clone())]));
        let drained = || {
            look(|look| {
                services(Seen::Fine)(look);
                look.left = Left::Drained;
            })
        };
        for first in [look(|_| {}), drained()] {
            let then = |change: &dyn Fn(&mut Look)| under_the_lock(first.clone(), look(change));
            assert_eq!(then(&|look| look.services = Err("no engine".into())), Outcome::Unknown("no engine".into()));
            assert_eq!(then(&|look| look.absent = Some("a disk".into())), Outcome::Absent("a disk".into()));
            assert_eq!(then(&|look| look.release = None), Outcome::NoRelease);
            assert_eq!(then(&services(Seen::Starting)), Outcome::Watched);
            assert_eq!(then(&services(Seen::Fine)), Outcome::Passed);
        }
        assert_eq!(
            under_the_lock(drained(), look(|look| look.left = Left::Drained)),
            Outcome::Watched,
            "it fails by now"
        );
    }

    #[test]
    fn an_absent_server_that_somebody_left_unfinished_is_put_right() {
        for left in [Left::Unfinished, Left::Drained, Left::Nothing] {
            let (mut turn, _) = Turn::begin(RULES);
            let mut strikes = Strikes::default();
            turn.step(&mut strikes, Saw::Lock(None), 0);
            let absent = look(|look| (look.absent, look.left) = (Some("a disk".into()), left));
            turn.step(&mut strikes, absent, 0);
            let next = turn.step(&mut strikes, Saw::Lock(None), 0);
            let wanted = match left {
                Left::Unfinished => Next::Do(Do::TakeLock),
                _ => Next::End(Outcome::Absent("a disk".into())),
            };
            assert_eq!(next, wanted, "{left:?}");
        }
    }
}
