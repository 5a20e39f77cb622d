//! What became of the calls to the engine: each ends with one word, and what belongs to an earlier turn says nothing.

use super::{DEFERRED, Effect, Guard, NOT_NOW, Sleep, State, Stopped, Wait, Written};
use std::time::Instant;

impl Sleep {
    /// The call returned.
    pub(in crate::gateway) fn started(&mut self, turn: u64, result: Result<(), String>, now: Instant) {
        self.starting = false;
        self.follow();
        if turn != self.turn || self.state != State::Waking(Wait::Call) {
            return;
        }
        match result {
            Ok(()) => {
                if let Some(wake) = &mut self.wake {
                    wake.ran = Some(now);
                }
                self.turn_to(State::Waking(Wait::Accept), now);
            }
            Err(why) => self.fail(why, now),
        }
    }

    /// The call is made in this moment.
    pub(in crate::gateway) fn calls(&mut self, turn: u64, now: Instant) {
        if let (true, Some(wake)) = (turn == self.turn, &mut self.wake) {
            wake.called.get_or_insert(now);
            self.told = None;
        }
    }

    /// The call was not made: somebody else works here. `told`: he knows that it is wanted, and does not put it to sleep any more.
    pub(in crate::gateway) fn deferred(&mut self, turn: u64, told: bool, now: Instant) {
        self.starting = false;
        self.follow();
        if turn == self.turn && self.state == State::Waking(Wait::Call) {
            self.state = State::Waking(Wait::Work { look: now + DEFERRED });
            let knew = self.told.replace(told) == Some(true);
            // What was seen before he knew may have been about to end.
            self.epoch += u64::from(!(knew && told));
            if told && !knew {
                self.effects.push(Effect::Look);
            }
        }
    }

    /// It was written down that what somebody else has started is not to be stopped, or could not be: `told`, as with `deferred`.
    pub(in crate::gateway) fn adopted(&mut self, epoch: u64, told: bool, now: Instant) {
        if epoch == self.epoch && (told || !self.has(Guard::Adopts)) {
            self.wake = None;
            self.turn_to(State::Waking(Wait::Accept), now);
            self.effects.push(Effect::Adopted);
        }
    }

    /// Whether the stop may begin now: the last moment in which somebody could have come.
    pub(in crate::gateway) fn commit(&mut self, turn: u64, now: Instant) -> bool {
        match self.state {
            State::Draining if turn == self.turn && !self.leaving => self.turn_to(State::Stopping, now),
            // What the gateway before this one began is ended.
            State::Stopping if turn == self.turn => {}
            _ => return !self.has(Guard::LastWord),
        }
        true
    }

    /// A stop ended.
    pub(in crate::gateway) fn stopped(&mut self, turn: u64, ended: Stopped, now: Instant) {
        self.stopping = false;
        self.follow();
        if turn != self.turn {
            return;
        }
        match (self.state, ended) {
            (State::Draining, Stopped::NotBegun(why)) => {
                self.not_before = now + NOT_NOW;
                self.effects.push(Effect::NotSlept(why));
                self.stays(now);
            }
            (State::Stopping, Stopped::Done) => {
                self.effects.push(Effect::Slept);
                self.turn_to(State::Asleep, now);
                if self.has(Guard::WakeAfterStop) {
                    self.wake_if_wanted(now);
                }
            }
            (State::Stopping, Stopped::NotBegun(why)) => {
                self.effects.extend([Effect::NotSlept(why), Effect::Look]);
                self.written = Written::Stopping;
                self.turn_to(State::Unknown, now);
            }
            (State::Stopping, Stopped::Broken(why)) => {
                self.effects.extend([Effect::NotSlept(why), Effect::Clear, Effect::Look]);
                self.not_before = now + NOT_NOW;
                self.written = Written::Nothing;
                self.turn_to(State::Unknown, now);
            }
            _ => {}
        }
    }
}
