//! What becomes of a server whose deploy died: decided here, carried out by its agent, and by the simulation alike.
//!
//! Only `current` is ever brought up, and a server is let back into rotation only with what ran before or with what was
//! verified.

use crate::fleet::model::ReleaseId;
use serde::{Deserialize, Serialize};

/// How far a run has come on a server, as it is written down before each change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody works here.
    Idle,
    /// Somebody holds the lock; nothing was changed yet, or everything is as it should be again.
    Locked,
    /// Health fails on purpose; what ran still runs.
    Drained,
    /// The containers are being stopped, or are.
    Stopped,
    /// A release is being brought up, or is, and nobody has verified it yet.
    Started(ReleaseId),
    /// The release was verified and is `current`.
    Switched,
}

/// What puts a server right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutRight {
    /// Nothing had been changed.
    Nothing,
    /// It was left out on purpose, and stays so.
    StaysOut,
    /// The same, but `current` is brought up: what is left out is not meant to lie still.
    UpButOut,
    /// Health passes again, if what ran before still runs; if not, it stays drained.
    FlipBackIfItRuns,
    /// It was out before, and nobody knows why: health passes again only once everything is verified.
    LetBackIfVerified,
    /// `current` is brought up, verified, and only then let back.
    BringCurrentUp,
}

/// Decides it.
#[must_use]
pub fn put_right(state: &State, drained: bool, left_out: bool) -> PutRight {
    match state {
        State::Stopped | State::Started(_) | State::Switched if left_out => PutRight::UpButOut,
        State::Stopped | State::Started(_) | State::Switched => PutRight::BringCurrentUp,
        _ if left_out => PutRight::StaysOut,
        State::Idle | State::Locked if !drained => PutRight::Nothing,
        State::Idle | State::Locked => PutRight::LetBackIfVerified,
        State::Drained => PutRight::FlipBackIfItRuns,
    }
}

/// What the record says once somebody else has taken the lock: how far the dead one had come is still so until the new one
/// changes something.
#[must_use]
pub fn taken_over(left: &State) -> State {
    match left {
        State::Idle => State::Locked,
        left => left.clone(),
    }
}

/// What it says once health was made to fail. Only what was in rotation until then may come back without being verified.
#[must_use]
pub fn flipped_out(state: State, was_out: bool) -> State {
    match state {
        State::Locked if !was_out => State::Drained,
        state => state,
    }
}

/// What it says once the lock was freed in order. `untouched`: nothing was done to what somebody else left.
#[must_use]
pub fn freed(state: State, untouched: bool) -> State {
    match state {
        State::Stopped | State::Started(_) | State::Switched if untouched => state,
        _ => State::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [State; 6] {
        let started = State::Started("new".into());
        [State::Idle, State::Locked, State::Drained, State::Stopped, started, State::Switched]
    }

    fn stopped(state: &State) -> bool {
        matches!(state, State::Stopped | State::Started(_) | State::Switched)
    }

    #[test]
    fn what_was_stopped_is_brought_up_and_what_still_runs_is_let_back() {
        for state in &all() {
            for drained in [false, true] {
                let wanted = match (stopped(state), drained || *state == State::Drained) {
                    (true, _) => PutRight::BringCurrentUp,
                    (false, true) if *state == State::Drained => PutRight::FlipBackIfItRuns,
                    (false, true) => PutRight::LetBackIfVerified,
                    (false, false) => PutRight::Nothing,
                };
                assert_eq!(put_right(state, drained, false), wanted, "{state:?} {drained}");
                let wanted = if stopped(state) { PutRight::UpButOut } else { PutRight::StaysOut };
                assert_eq!(put_right(state, drained, true), wanted, "{state:?}");
            }
        }
    }

    /// Whoever comes between and changes nothing leaves what he found: the way back of an unverified server never becomes shorter.
    #[test]
    fn taking_the_lock_and_freeing_it_forgets_nothing_that_is_to_be_put_right() {
        for state in &all() {
            for (drained, left_out) in [(false, false), (true, false), (false, true), (true, true)] {
                let before = put_right(state, drained, left_out);
                assert_eq!(put_right(&taken_over(state), drained, left_out), before, "{state:?}");
                let after = put_right(&flipped_out(taken_over(state), drained), true, left_out);
                if drained {
                    assert_eq!(after, before, "{state:?} flipped once more");
                }
                if stopped(state) {
                    assert_eq!(freed(taken_over(state), true), *state);
                    assert_eq!(freed(taken_over(state), false), State::Idle, "it was somebody's own work");
                } else {
                    assert_eq!(freed(taken_over(state), true), State::Idle);
                }
            }
        }
        assert_eq!(flipped_out(State::Locked, false), State::Drained);
    }
}
