//! The server as a value: its lock, its record, what runs on it, and what must never be done to it.

use handover::fleet::recovery::{PutRight, State, flipped_out, freed, put_right, taken_over};
use std::collections::{BTreeMap, BTreeSet};

pub const SERVICES: [&str; 2] = ["api", "gateway"];

/// Faults that we, or the story, once had, each by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Old {
    #[default]
    None,
    /// One failed look, and it heals without the lock, as in the story.
    OneStrikeNoLock,
    /// It does not look at the lock, but takes it, and does not look again.
    Blind,
    /// Who takes the lock forgets how far somebody dead had come, and what was out comes back unverified.
    Forgets,
    /// What is up and does not pass is put right again and again, and never healed.
    PutsRightForEver,
    /// Where a server is left out, what a dead deploy had stopped stays so.
    LetsAbsentLie,
    /// The look under the lock is held against the one before it.
    CountsEachLook,
}

/// Left out of rotation; whether a verified deploy ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absent {
    pub ends_when_verified: bool,
}

/// What came of putting right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Righted {
    /// It is up, and to be verified now; whether it is let back then.
    Verify(bool),
    /// Nothing more is to be done: it is well, or what is wrong shows in its services.
    Done(bool),
    /// It could not be brought up.
    Again,
}

#[derive(Default)]
pub struct Machine {
    pub now: u64,
    /// Who holds the lock, since when its holder is dead.
    pub lock: Option<(u64, Option<u64>)>,
    state: Option<State>,
    untouched: bool,
    /// The record says that health is made to fail.
    pub recorded: bool,
    /// It is.
    pub flag: bool,
    pub absent: Option<Absent>,
    pub current: u64,
    /// Which release each service runs; none where it is down.
    pub services: BTreeMap<&'static str, Option<u64>>,
    /// Nobody brings it back by himself.
    pub sick: bool,
    /// The api ends and is started again and again.
    pub flaps: bool,
    pub crashes: u32,
    /// What was started while health failed, and nobody has verified since.
    unverified: BTreeSet<&'static str>,
    /// Nothing can be brought up.
    pub up_fails: bool,
    /// What is brought up does not work.
    pub made_sick: bool,
    /// Something broke since everything was brought up last.
    pub hurt: bool,
    pub old: Old,
    pub faults: Vec<String>,
}

impl Machine {
    pub fn new(old: Old) -> Self {
        let services = SERVICES.iter().map(|name| (*name, Some(1))).collect();
        Self { current: 1, services, old, ..Self::default() }
    }

    pub fn state(&self) -> State {
        self.state.clone().unwrap_or(State::Idle)
    }

    pub fn enter(&mut self, state: State) {
        (self.state, self.untouched) = (Some(state), false);
    }

    /// Whoever changes something must hold the lock.
    pub fn act(&mut self, who: u64, what: &str) {
        let holder = self.lock.map(|(holder, _)| holder);
        if holder != Some(who) {
            self.faults.push(format!("{who} did `{what}` while {holder:?} holds the lock"));
        }
    }

    /// As `flock(1)` does: the record is none of its business.
    pub fn take_flock(&mut self, who: u64) -> bool {
        let free = self.lock.is_none();
        if free {
            self.lock = Some((who, None));
        }
        free
    }

    /// As one of ours does; how far whoever had it before had come.
    pub fn take(&mut self, who: u64) -> Option<State> {
        if !self.take_flock(who) {
            return None;
        }
        let left = self.state();
        self.state = Some(if self.old == Old::Forgets { State::Locked } else { taken_over(&left) });
        self.untouched = true;
        Some(left)
    }

    pub fn free_flock(&mut self, who: u64) {
        if self.lock.is_some_and(|(holder, _)| holder == who) {
            self.lock = None;
        }
    }

    pub fn free(&mut self, who: u64, state: State) {
        self.enter(state);
        self.free_flock(who);
    }

    pub fn is_out(&self) -> bool {
        self.recorded || self.flag
    }

    pub fn flip_out(&mut self, who: u64) {
        self.act(who, "flip out");
        self.state = Some(flipped_out(self.state(), self.is_out()));
        (self.recorded, self.flag) = (true, true);
    }

    pub fn let_in(&mut self, who: u64) {
        self.act(who, "let in");
        if self.flag && !self.unverified.is_empty() {
            self.faults.push(format!("{who} let {:?} in, which nobody had verified", self.unverified));
        }
        (self.recorded, self.flag) = (false, false);
        if matches!(self.state(), State::Drained | State::Switched) {
            self.state = Some(State::Locked);
        }
    }

    pub fn start(&mut self, name: &'static str, release: u64) {
        self.services.insert(name, Some(release));
        if self.flag {
            self.unverified.insert(name);
        }
    }

    /// Made anew, these; whether it could be done.
    pub fn up(&mut self, names: &[&'static str], release: u64) -> bool {
        if self.up_fails {
            self.services.insert("api", None);
            self.hurt = true;
            return false;
        }
        names.iter().for_each(|name| self.start(name, release));
        (self.sick, self.flaps) = (self.made_sick, false);
        // What was made anew in part may lack the rest still.
        self.hurt = self.made_sick || (self.hurt && names.len() < SERVICES.len());
        true
    }

    pub fn runs(&self, release: u64) -> bool {
        !self.sick && !self.flaps && self.services.values().all(|runs| *runs == Some(release))
    }

    pub fn serves(&self) -> bool {
        self.runs(self.current)
    }

    pub fn verify(&mut self) -> bool {
        let serves = self.serves();
        if serves {
            self.unverified.clear();
        }
        serves
    }

    /// The same of some; whether everything that was started is verified now.
    pub fn verify_some(&mut self, names: &[&'static str]) -> (bool, bool) {
        let fine = !self.sick && !self.flaps && names.iter().all(|name| self.services[name] == Some(self.current));
        if fine {
            names.iter().for_each(|name| {
                self.unverified.remove(name);
            });
        }
        (fine, self.unverified.is_empty())
    }

    /// The engine was restarted: it revives what it had, or not.
    pub fn revive(&mut self, lost: Option<&'static str>) {
        for (name, runs) in self.services.clone() {
            match runs {
                Some(_) if lost == Some(name) => {
                    self.services.insert(name, None);
                    self.hurt = true;
                }
                Some(release) => self.start(name, release),
                None => {}
            }
        }
    }

    /// What whoever finds a dead one's record does; what it says before he begins is how far that one had come.
    pub fn put_right(&mut self, who: u64) -> Righted {
        let forgets = self.old == Old::Forgets;
        match put_right(&self.state(), self.is_out(), self.absent.is_some()) {
            PutRight::Nothing | PutRight::StaysOut => Righted::Done(true),
            PutRight::FlipBackIfItRuns if self.unverified.is_empty() || forgets => self.flip_back(who),
            PutRight::LetBackIfVerified if forgets => self.flip_back(who),
            PutRight::FlipBackIfItRuns | PutRight::LetBackIfVerified => Righted::Verify(true),
            PutRight::UpButOut if self.old == Old::LetsAbsentLie => Righted::Done(true),
            PutRight::UpButOut => {
                if self.recorded {
                    self.flip_out(who);
                }
                self.bring_up(who, false)
            }
            PutRight::BringCurrentUp => self.bring_up(who, true),
        }
    }

    fn flip_back(&mut self, who: u64) -> Righted {
        let runs = self.services.values().any(Option::is_some);
        if runs {
            self.let_in(who);
        }
        Righted::Done(runs)
    }

    fn bring_up(&mut self, who: u64, lets_back: bool) -> Righted {
        self.act(who, "bring current up");
        let current = self.current;
        if self.services.values().any(|runs| *runs != Some(current)) && !self.up(&SERVICES, current) {
            let lasting = self.services.values().flatten().any(|runs| *runs != current);
            return if lasting { Righted::Again } else { Righted::Done(false) };
        }
        Righted::Verify(lets_back)
    }

    pub fn verified(&mut self, who: u64, lets_back: bool) -> Righted {
        let verified = self.verify();
        if verified && lets_back && self.is_out() {
            self.let_in(who);
        }
        Righted::Done(verified)
    }

    /// What the record says after that.
    pub fn after(&self, righted: Righted, left: State) -> State {
        match righted {
            Righted::Again => left,
            Righted::Done(false) if self.old == Old::PutsRightForEver && left != State::Drained => left,
            _ => State::Idle,
        }
    }

    pub fn unlock(&mut self, who: u64) {
        match put_right(&self.state(), self.is_out(), self.absent.is_some()) {
            PutRight::FlipBackIfItRuns if self.unverified.is_empty() => drop(self.flip_back(who)),
            PutRight::LetBackIfVerified if self.old == Old::Forgets => drop(self.flip_back(who)),
            PutRight::FlipBackIfItRuns | PutRight::LetBackIfVerified => drop(self.verified(who, true)),
            PutRight::Nothing | PutRight::StaysOut | PutRight::UpButOut | PutRight::BringCurrentUp => {}
        }
        let state = freed(self.state(), self.untouched);
        self.free(who, state);
    }

    /// Once nobody disturbs any more.
    pub fn at_rest(&self) -> Option<String> {
        let stands = || {
            format!(
                "in the end: {:?}, current {}, sick {}, flaps {}, flag {}, {:?}",
                self.services, self.current, self.sick, self.flaps, self.flag, self.absent
            )
        };
        let right = match self.absent {
            None => self.serves() && !self.is_out(),
            // Nobody heals what is left out, but nobody leaves it stopped either.
            Some(_) => self.flag && (self.hurt || self.services.values().all(|runs| *runs == Some(self.current))),
        };
        (!right).then(stands)
    }
}
