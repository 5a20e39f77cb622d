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
    /// Health passes again, if what ran before still runs; if not, it stays drained.
    FlipBackIfItRuns,
    /// `current` is brought up, verified, and only then let back.
    BringCurrentUp,
}

/// Decides it.
#[must_use]
pub fn put_right(state: &State, drained: bool, left_out: bool) -> PutRight {
    match state {
        _ if left_out => PutRight::StaysOut,
        State::Idle | State::Locked if !drained => PutRight::Nothing,
        State::Idle | State::Locked | State::Drained => PutRight::FlipBackIfItRuns,
        State::Stopped | State::Started(_) | State::Switched => PutRight::BringCurrentUp,
    }
}

/// Whether whoever frees the lock in order lets a drained server back: nothing may stay drained that nobody said was to
/// stay out.
#[must_use]
pub fn lets_back(state: &State, drained: bool, left_out: bool) -> bool {
    drained && !left_out && matches!(state, State::Idle | State::Locked | State::Drained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stopped_is_brought_up_and_what_still_runs_is_let_back() {
        let started = State::Started("new".into());
        let all = [State::Idle, State::Locked, State::Drained, State::Stopped, started, State::Switched];
        for state in &all {
            for drained in [false, true] {
                let stopped = matches!(state, State::Stopped | State::Started(_) | State::Switched);
                let wanted = match (stopped, drained || *state == State::Drained) {
                    (true, _) => PutRight::BringCurrentUp,
                    (false, true) => PutRight::FlipBackIfItRuns,
                    (false, false) => PutRight::Nothing,
                };
                assert_eq!(put_right(state, drained, false), wanted, "{state:?} {drained}");
                assert_eq!(put_right(state, drained, true), PutRight::StaysOut);
                assert_eq!(lets_back(state, drained, false), drained && !stopped);
                assert!(!lets_back(state, drained, true));
            }
        }
    }
}
