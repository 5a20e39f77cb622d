//! The steps of the handshake: one type for the shown plan, the journal and the run.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A step of the handshake, for one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Count capacity, the whole batch taken away.
    Guard,
    /// Take the server lock.
    Lock,
    /// What is run once for the release, before any server leaves rotation.
    RunOnce,
    /// The team's own command before the server leaves rotation.
    PreDrain,
    /// Make health answer 503 while real traffic goes on; with a gateway that holds, let every request wait there.
    Flip,
    /// Wait until the balancer has let go of every target; with a gateway that holds, until nothing is under way behind it.
    Out,
    /// Serve on, because the balancer's nodes decide one by one.
    Settle,
    /// Count capacity once more, just before the stop.
    GuardAgain,
    /// Stop the services, each with its own grace period.
    Stop,
    /// Start the new release.
    Start,
    /// Every service's own check.
    Verify,
    /// Make the release `current`.
    Switch,
    /// Put back to sleep what slept before.
    Sleep,
    /// Make health answer 200 again.
    Back,
    /// Wait until every target is healthy.
    In,
    /// Wait for the node that decides last.
    SettleIn,
    /// Let the gateway of the new release take the listeners over from the one that runs.
    HandOver,
    /// Write the record, free the lock.
    Unlock,
    /// The team's own command after the server.
    PostServer,
}

/// What is done when a step is not proved by its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// Nothing was touched.
    Nothing,
    /// Health answers 200 again; what ran still runs.
    FlipBack,
    /// The previous release comes back.
    RollBack,
}

impl Step {
    /// What undoes it.
    #[must_use]
    pub fn undo(self) -> Undo {
        match self {
            Self::Guard | Self::Lock | Self::RunOnce | Self::PreDrain | Self::Unlock | Self::PostServer => {
                Undo::Nothing
            }
            Self::Flip | Self::Out | Self::Settle | Self::GuardAgain => Undo::FlipBack,
            Self::Stop
            | Self::Start
            | Self::Verify
            | Self::Switch
            | Self::Sleep
            | Self::Back
            | Self::In
            | Self::SettleIn
            | Self::HandOver => Undo::RollBack,
        }
    }

    /// The word that is shown.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Lock => "lock",
            Self::RunOnce => "run once",
            Self::PreDrain => "pre drain",
            Self::Flip => "flip",
            Self::Out => "out",
            Self::Settle => "settle",
            Self::GuardAgain => "guard again",
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Verify => "verify",
            Self::Switch => "switch",
            Self::Sleep => "sleep",
            Self::Back => "back",
            Self::In => "in",
            Self::SettleIn => "settle in",
            Self::HandOver => "hand over",
            Self::Unlock => "unlock",
            Self::PostServer => "post server",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A step with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// Which.
    pub step: Step,
    /// How long it usually takes.
    pub expected: Duration,
    /// Not proved by then: undone.
    pub deadline: Duration,
}
