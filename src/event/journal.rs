//! A run as it is written down, line by line, and read back by whoever finishes it, rolls it back or asks what happened.
//!
//! A journal may break off anywhere, because its writer was killed; what a later version added is passed over.

use super::{Course, Requests, ServerOutcome, StepState};
use crate::fleet::model::{ReleaseId, ServerName};
use crate::fleet::plan::{Purpose, Step};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Format number of every line.
pub const FORMAT: u32 = 1;

/// What is written before the first step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The run's id.
    pub run: String,
    /// User and machine.
    pub who: String,
    /// The command.
    pub what: String,
    /// The version that wrote it.
    #[serde(default)]
    pub version: String,
    /// When, seconds since the epoch.
    pub began: u64,
    /// Which app.
    pub app: String,
    /// What is to run afterwards.
    pub release: ReleaseId,
    /// Its label.
    #[serde(default)]
    pub label: Option<String>,
    /// The servers that are worked on, in order.
    pub servers: Vec<ServerName>,
    /// The servers that were meant, where not all were.
    #[serde(default)]
    pub only: Option<Vec<ServerName>>,
    /// The run that this one goes on with.
    #[serde(default)]
    pub resumes: Option<String>,
    /// Whether what is run once for the release belongs to it, whoever goes on with it.
    #[serde(default)]
    pub once: bool,
    /// What for.
    #[serde(default)]
    pub purpose: Purpose,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "journal", rename_all = "snake_case")]
pub enum Entry {
    /// The first one.
    Head(Head),
    /// A step began, was proved or failed.
    Step {
        /// Fleet time since the run began, in seconds.
        at: f64,
        /// Which server.
        server: ServerName,
        /// Which step.
        step: Step,
        /// Why it is taken.
        course: Course,
        /// How it stands.
        state: StepState,
        /// What proved it, or why it failed.
        #[serde(default)]
        detail: Option<String>,
    },
    /// A server is finished.
    Server {
        /// Fleet time since the run began, in seconds.
        at: f64,
        /// Which.
        server: ServerName,
        /// How.
        outcome: ServerOutcome,
        /// A sentence for people.
        #[serde(default)]
        what: String,
    },
    /// The run is over, and nobody works on any server.
    End {
        /// Fleet time since the run began, in seconds.
        at: f64,
        /// In one word.
        outcome: String,
        /// The exit code, as far as it was known before the traffic was counted.
        exit: u8,
        /// What went wrong.
        #[serde(default)]
        message: Option<String>,
        /// From the first server's lock to the last `in`, in seconds.
        seconds: f64,
    },
    /// What became of the requests.
    Measured {
        /// The counts.
        requests: Requests,
    },
    /// What this version does not know.
    #[serde(other)]
    Other,
}

#[derive(Serialize, Deserialize)]
struct Written {
    format: u32,
    #[serde(flatten)]
    entry: Entry,
}

impl Entry {
    /// As it is written.
    #[must_use]
    pub fn line(&self) -> String {
        let written = Written { format: FORMAT, entry: self.clone() };
        // Strings and numbers only: there is nothing in it that JSON could not hold.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    /// How it began.
    pub head: Head,
    /// Everything else.
    pub entries: Vec<Entry>,
}

/// How far a run had come on a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Reached {
    /// Nothing of it was begun.
    Nothing,
    /// This step began, and nothing is known of its end.
    Began(Step, Course),
    /// This step was proved, or failed, and no other began.
    Ended(Step, Course, StepState),
    /// It was finished.
    Done(ServerOutcome),
}

impl Journal {
    /// Reads a journal; `None` where there is no head. Lines that are cut short or not understood are passed over.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut head = None;
        let mut entries = Vec::new();
        for line in text.lines() {
            match serde_json::from_str::<Written>(line).map(|written| written.entry) {
                Ok(Entry::Head(found)) => head = head.or(Some(found)),
                Ok(Entry::Other) | Err(_) => {}
                Ok(entry) => entries.push(entry),
            }
        }
        Some(Self { head: head?, entries })
    }

    /// Puts together what several places know of the same runs; the youngest run first.
    #[must_use]
    pub fn merge(found: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut runs: BTreeMap<(u64, String), (Self, BTreeSet<String>)> = BTreeMap::new();
        for journal in found {
            let key = (journal.head.began, journal.head.run.clone());
            match runs.get_mut(&key) {
                None => {
                    let lines = journal.entries.iter().map(Entry::line).collect();
                    runs.insert(key, (journal, lines));
                }
                // By what is written: a journal as long as a server pleases is not compared entry by entry.
                Some((known, lines)) => {
                    known.entries.extend(journal.entries.into_iter().filter(|entry| lines.insert(entry.line())));
                }
            }
        }
        runs.into_values().rev().map(|(journal, _)| journal).collect()
    }

    /// How it ended; `None` where its writer was killed, or goes on.
    #[must_use]
    pub fn end(&self) -> Option<(&str, u8, Option<&str>, f64)> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::End { outcome, exit, message, seconds, .. } => {
                Some((outcome.as_str(), *exit, message.as_deref(), *seconds))
            }
            _ => None,
        })
    }

    /// What became of the requests, where somebody measured.
    #[must_use]
    pub fn requests(&self) -> Option<Requests> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Measured { requests } => Some(*requests),
            _ => None,
        })
    }

    /// How far it had come on a server.
    #[must_use]
    pub fn reached(&self, name: &ServerName) -> Reached {
        let mut reached = Reached::Nothing;
        for entry in &self.entries {
            match entry {
                Entry::Server { server, outcome, .. } if server == name => reached = Reached::Done(*outcome),
                Entry::Step { server, step, course, state, .. } if server == name => {
                    reached = match state {
                        StepState::Began => Reached::Began(*step, *course),
                        ended => Reached::Ended(*step, *course, *ended),
                    };
                }
                _ => {}
            }
        }
        reached
    }

    /// Whether it broke off after it had begun to change a server.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.end().is_none() && self.entries.iter().any(changes)
    }

    /// Whether every server runs the release, as far as the journal knows.
    #[must_use]
    pub fn is_deployed(&self) -> bool {
        self.end().is_some_and(|(outcome, ..)| matches!(outcome, "deployed" | "unchanged"))
    }
}

fn changes(entry: &Entry) -> bool {
    matches!(entry, Entry::Step { step, .. } if !matches!(step, Step::Guard | Step::Lock | Step::PreDrain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(run: &str, began: u64) -> Head {
        Head {
            run: run.into(),
            who: "ci@runner".into(),
            what: "handover deploy".into(),
            version: "0.1.0".into(),
            began,
            app: "shop".into(),
            release: "abcdef".into(),
            label: None,
            servers: vec!["web-1".into(), "web-2".into()],
            only: None,
            resumes: None,
            once: false,
            purpose: Purpose::Deploy,
        }
    }

    fn step(server: &str, step: Step, state: StepState) -> Entry {
        Entry::Step { at: 1.5, server: server.into(), step, course: Course::Forward, state, detail: None }
    }

    fn text(entries: &[Entry]) -> String {
        entries.iter().map(|entry| entry.line() + "\n").collect()
    }

    #[test]
    fn what_was_written_is_read_wherever_it_broke_off() {
        let all = [
            Entry::Head(head("1", 10)),
            step("web-1", Step::Flip, StepState::Began),
            step("web-1", Step::Flip, StepState::Proved),
            Entry::Server {
                at: 60.0,
                server: "web-1".into(),
                outcome: ServerOutcome::Deployed,
                what: "runs the release".into(),
            },
            Entry::End { at: 61.0, outcome: "deployed".into(), exit: 0, message: None, seconds: 60.0 },
        ];
        let whole = text(&all);
        for cut in 0..=whole.len() {
            let Some(journal) = Journal::read(&whole[..cut]) else {
                assert!(cut < all[0].line().len());
                continue;
            };
            let complete = whole[..cut].matches('\n').count().max(1);
            assert!(journal.entries.len() == complete - 1 || journal.entries.len() == complete, "{cut}");
            assert_eq!(journal.is_unfinished(), journal.end().is_none() && !journal.entries.is_empty());
        }
        let journal = Journal::read(&whole).expect("a journal");
        assert_eq!(journal.reached(&"web-1".into()), Reached::Done(ServerOutcome::Deployed));
        assert_eq!(journal.reached(&"web-2".into()), Reached::Nothing);
        assert!(journal.is_deployed());
    }

    #[test]
    fn what_a_later_version_added_and_what_is_no_journal_is_passed_over() {
        let mut lines = text(&[Entry::Head(head("1", 10))]);
        lines.push_str("{\"format\":9,\"journal\":\"weather\",\"rain\":true}\nnonsense\n{\"a\":\n\u{0}\n");
        lines.push_str(&text(&[step("web-1", Step::Stop, StepState::Began)]));
        let journal = Journal::read(&lines).expect("a journal");
        assert_eq!(journal.reached(&"web-1".into()), Reached::Began(Step::Stop, Course::Forward));
        assert!(journal.is_unfinished());
        assert_eq!(Journal::read("nonsense"), None);
    }

    #[test]
    fn who_was_killed_before_the_first_change_has_left_nothing_unfinished() {
        let lines = text(&[Entry::Head(head("1", 10)), step("web-1", Step::Lock, StepState::Proved)]);
        assert!(!Journal::read(&lines).expect("a journal").is_unfinished());
    }

    #[test]
    fn what_several_servers_know_is_put_together() {
        let one = text(&[Entry::Head(head("1", 10)), step("web-1", Step::Flip, StepState::Proved)]);
        let end = Entry::End { at: 61.0, outcome: "deployed".into(), exit: 0, message: None, seconds: 60.0 };
        let two = text(&[Entry::Head(head("1", 10)), step("web-2", Step::Flip, StepState::Proved), end]);
        let later = text(&[Entry::Head(head("2", 20))]);
        let merged = Journal::merge([&one, &two, &later, &two].into_iter().filter_map(|text| Journal::read(text)));
        assert_eq!(merged.iter().map(|journal| journal.head.run.as_str()).collect::<Vec<_>>(), ["2", "1"]);
        assert_eq!(merged[1].entries.len(), 3);
        assert!(merged[1].is_deployed());
    }
}
