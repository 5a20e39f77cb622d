//! Kinds of failure, hints and exit codes: what a person is told when something ends otherwise than planned.

use crate::fleet::model::ServerName;
use crate::fleet::plan::Step;
use serde::Serialize;
use std::fmt;

/// The exit codes, which are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "u8")]
pub enum Exit {
    /// Done.
    Done,
    /// Failed in a way not listed.
    Failed,
    /// Wrong arguments or configuration; nothing touched.
    Usage,
    /// Somebody else holds the lock, or a freeze is on.
    Held,
    /// Refused by check, guard or preflight; nothing touched.
    Refused,
    /// Failed and undone.
    Undone,
    /// A server needs a hand.
    NeedsHand,
    /// Requests were lost.
    Lost,
    /// SIGINT, undone.
    Interrupted,
    /// SIGTERM, undone.
    Terminated,
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Held => 3,
            Exit::Refused => 4,
            Exit::Undone => 5,
            Exit::NeedsHand => 6,
            Exit::Lost => 7,
            Exit::Interrupted => 130,
            Exit::Terminated => 143,
        }
    }
}

impl Exit {
    /// The word for it in JSON.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Undone => "undone",
            Self::NeedsHand => "needs_hand",
            Self::Lost => "lost_requests",
            Self::Interrupted | Self::Terminated => "interrupted",
        }
    }
}

/// A failure as a person is told of it: what failed, on which server, in which step, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How the process ends because of it.
    pub exit: Exit,
    /// What failed, and what was left how.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// On which server.
    pub server: Option<ServerName>,
    /// In which step.
    pub step: Option<Step>,
    /// The last lines of what failed.
    pub output: Vec<String>,
}

impl Problem {
    /// A problem with nothing but its message.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, server: None, step: None, output: Vec::new() }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says on which server.
    #[must_use]
    pub fn on(mut self, server: &ServerName) -> Self {
        self.server = Some(server.clone());
        self
    }

    /// Says in which step.
    #[must_use]
    pub fn during(mut self, step: Step) -> Self {
        self.step = Some(step);
        self
    }

    /// Adds the last lines of what failed.
    #[must_use]
    pub fn output(mut self, lines: Vec<String>) -> Self {
        self.output = lines;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}
