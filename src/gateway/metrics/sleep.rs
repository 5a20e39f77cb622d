//! The numbers of a backend that may sleep; only hosts that do have these series, and they have all of them from the start.

use super::super::sleep::machine::{Parts, State};
use std::fmt::Write as _;

/// How it stands, as labels.
const STATES: [&str; 8] = ["unknown", "awake", "draining", "stopping", "asleep", "away", "waking", "failed"];

/// Which of the states, as everybody is told.
pub(in crate::gateway) fn word(state: State) -> &'static str {
    match state {
        State::Unknown => "unknown",
        State::Awake { .. } => "awake",
        State::Draining => "draining",
        State::Stopping => "stopping",
        State::Asleep => "asleep",
        State::Away => "away",
        State::Waking(_) => "waking",
        State::Failed { .. } => "failed",
    }
}

/// What a keeper says of its host.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct SleepFigures {
    pub(in crate::gateway) state: &'static str,
    pub(in crate::gateway) wanted: bool,
    pub(in crate::gateway) overdue: f64,
    /// Well, and not.
    pub(in crate::gateway) wakes: [u64; 2],
    pub(in crate::gateway) sleeps: [u64; 2],
    /// Sums of the parts of all wakes, in seconds.
    parts: [f64; 4],
}

impl SleepFigures {
    pub(in crate::gateway) fn woke(&mut self, parts: &Parts) {
        self.wakes[0] += 1;
        let of = [parts.decision, parts.container, parts.accept, parts.answer.unwrap_or_default()];
        for (sum, part) in self.parts.iter_mut().zip(of) {
            *sum += part.as_secs_f64();
        }
    }

    pub(super) fn write(&self, name: &str, short: &str, host: &str, page: &mut String) {
        let mut line = |labels: &str, value: f64| {
            let _ = writeln!(page, "{name}{{host=\"{host}\"{labels}}} {value}");
        };
        match short {
            "sleep_state" => {
                for state in STATES {
                    line(&format!(",state=\"{state}\""), f64::from(u8::from(state == self.state)));
                }
            }
            "wake_wanted" => line("", f64::from(u8::from(self.wanted))),
            "sleep_overdue_seconds" => line("", self.overdue),
            "wakes_total" => {
                line(",result=\"well\"", self.wakes[0] as f64);
                line(",result=\"failed\"", self.wakes[1] as f64);
            }
            "sleeps_total" => {
                line(",result=\"well\"", self.sleeps[0] as f64);
                line(",result=\"failed\"", self.sleeps[1] as f64);
            }
            _ => {
                for (part, sum) in ["decision", "container", "accept", "answer"].iter().zip(self.parts) {
                    line(&format!(",part=\"{part}\""), sum);
                }
            }
        }
    }
}
