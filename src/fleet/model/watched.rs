//! What a server's watchdog saw and counts, as it lies on the server and is shown by `status`.

use super::ServiceName;
use crate::fleet::strikes::{Restarts, Strikes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What it saw last, and counts; it lies on the server, so that a restart forgets nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Format number of the file.
    pub format: u32,
    /// When it looked, seconds since the epoch.
    pub at: u64,
    /// What it saw, in a word.
    pub word: WatchdogState,
    /// The same as a sentence.
    pub what: String,
    /// The counts.
    pub strikes: Strikes,
    /// How often the engine had restarted which container.
    #[serde(default)]
    pub restarts: Restarts,
    /// How often each service was healed, ever.
    #[serde(default)]
    pub healed: BTreeMap<ServiceName, u64>,
    /// The last heal.
    #[serde(default)]
    pub last_heal: Option<LastHeal>,
}

/// A heal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastHeal {
    /// When it ended, seconds since the epoch.
    pub at: u64,
    /// Of which services.
    pub services: Vec<ServiceName>,
    /// Whether they passed afterwards.
    pub worked: bool,
    /// What was done, or what was wrong.
    pub what: String,
}

/// What a watchdog saw, in a word: the same in its file, its metrics and its output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchdogState {
    /// Nothing fails.
    Fine,
    /// Something fails.
    Failing,
    /// Something was made anew, and works.
    Healed,
    /// Planned work is going on.
    Busy,
    /// The server is absent on purpose.
    Absent,
    /// Nothing was ever verified there.
    NoRelease,
    /// It could not look.
    #[default]
    Unknown,
}

impl WatchdogState {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Fine, Self::Failing, Self::Healed, Self::Busy, Self::Absent, Self::NoRelease, Self::Unknown];

    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Failing => "failing",
            Self::Healed => "healed",
            Self::Busy => "busy",
            Self::Absent => "absent",
            Self::NoRelease => "no_release",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_written_as_it_is_read() {
        for state in WatchdogState::ALL {
            assert_eq!(serde_json::json!(state), state.as_str());
        }
    }
}
