//! The record: what is being done on this server and what was, on disk before each change.
//!
//! Whoever takes the lock after a killed agent learns from it what was left how.

pub use crate::fleet::recovery::State;
use crate::server::layout::{read_json, write_json};
use crate::server::process::{ProcessId, boot_id};
use crate::server::wire::Run;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Format number of the record.
const FORMAT: u32 = 1;
/// So many sentences are kept.
const ENTRIES: usize = 100;

/// A sentence about something that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, seconds since the epoch.
    pub at: u64,
    /// By which run.
    pub run: String,
    /// What.
    pub what: String,
}

/// The record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Format number of the record.
    pub format: u32,
    /// How far it has come.
    pub state: State,
    /// Whether we have made health fail and not yet pass again.
    pub drained: bool,
    /// Who works here, or did last.
    pub run: Option<Run>,
    /// The agent that works here, or did last.
    pub agent: Option<ProcessId>,
    /// The changing command that runs now, by the leader of its process group.
    pub command: Option<ProcessId>,
    /// What was done, the latest last.
    pub entries: Vec<Entry>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            format: FORMAT,
            state: State::Idle,
            drained: false,
            run: None,
            agent: None,
            command: None,
            entries: Vec::new(),
        }
    }
}

impl Record {
    /// Reads it; where there is none, nothing was ever done.
    ///
    /// # Errors
    /// When it is there and not understood.
    pub fn read(path: &Path) -> io::Result<Self> {
        let record = read_json::<Self>(path)?.unwrap_or_default();
        if record.format == FORMAT {
            return Ok(record);
        }
        let what = format!("{} has the format {}, and this handover knows {FORMAT}", path.display(), record.format);
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_json(path, self)
    }

    /// Whether what it says was written before the machine was booted.
    #[must_use]
    pub fn is_of_another_boot(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.boot != boot_id())
    }

    /// Adds a sentence.
    pub fn say(&mut self, what: impl Into<String>) {
        let run = self.run.as_ref().map_or_else(String::new, |run| run.id.clone());
        self.entries.push(Entry { at: now(), run, what: what.into() });
        self.entries.drain(..self.entries.len().saturating_sub(ENTRIES));
    }
}

/// Seconds since the epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::model::ReleaseId;

    #[test]
    fn what_was_written_is_what_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record.json");
        assert_eq!(Record::read(&path).expect("none"), Record::default());
        let mut record = Record { state: State::Started(ReleaseId::from("ab")), drained: true, ..Record::default() };
        for n in 0..ENTRIES + 5 {
            record.say(format!("{n}"));
        }
        record.write(&path).expect("written");
        let read = Record::read(&path).expect("read");
        assert_eq!(read, record);
        assert_eq!((read.entries.len(), read.entries[0].what.as_str()), (ENTRIES, "5"));
    }

    #[test]
    fn a_record_of_another_format_is_not_read_as_if_it_were_ours() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record.json");
        Record { format: FORMAT + 1, ..Record::default() }.write(&path).expect("written");
        let error = Record::read(&path).expect_err("another format");
        assert!(error.to_string().contains("has the format 2"), "{error}");
        let failure = crate::server::agent::disk(&path, &error);
        assert_eq!(failure.message.matches("record.json").count(), 1, "{failure}");
        assert!(failure.hint.is_some_and(|hint| hint.contains(&format!("rm {}", path.display()))));
    }

    #[test]
    fn half_a_record_is_an_error_and_not_idle() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record.json");
        std::fs::write(&path, "{\"format\":1,\"state\":\"dra").expect("written");
        assert!(Record::read(&path).is_err());
    }
}
