//! What became of every sleep and wake, one JSON object a line, for whoever wants to know later whether it pays.
//!
//! Kept beside the record, and cut to its newer half when it grows beyond a limit.

use crate::server::layout::{asleep, write_atomic};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

/// Format number of a line.
pub const FORMAT: u32 = 1;
/// Beyond this the older half goes.
const MOST: u64 = 4 * 1024 * 1024;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// `FORMAT`.
    pub format: u32,
    /// When, seconds since the epoch.
    pub at: f64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// It went to sleep.
    Slept {
        /// How much memory its containers used.
        memory_bytes: u64,
        /// Those that did not stop within their grace period.
        killed: Vec<String>,
    },
    /// It was woken.
    Woke {
        /// From the first who asked to the call, in seconds.
        decision: f64,
        /// Until the containers ran.
        container: f64,
        /// Until a connection was accepted.
        accept: f64,
        /// Until the first answer began; `None` where nobody waited for one.
        answer: Option<f64>,
    },
    /// It could not be woken.
    WakeFailed {
        /// Why.
        why: String,
    },
    /// A sleep that was due did not come to be.
    NotSlept {
        /// Why.
        why: String,
    },
    /// Somebody else started it.
    Adopted,
    /// It ended, and not by a sleep.
    Gone,
}

impl What {
    /// How long the first who asked waited until his answer began, in seconds.
    #[must_use]
    pub fn whole(&self) -> Option<f64> {
        match self {
            Self::Woke { decision, container, accept, answer } => {
                Some(decision + container + accept + answer.unwrap_or(0.0))
            }
            _ => None,
        }
    }
}

/// Writes a line.
pub(super) fn write(dir: &Path, host: &str, entry: &Entry) -> io::Result<()> {
    let path = asleep::log(dir, host);
    if fs::metadata(&path).is_ok_and(|meta| meta.len() > MOST) {
        let text = fs::read(&path)?;
        let middle = text.len() / 2;
        let from = text[middle..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| middle + at + 1);
        write_atomic(&path, &text[from..], 0o644)?;
    }
    fs::create_dir_all(asleep::folder(dir))?;
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    OpenOptions::new().create(true).append(true).open(&path)?.write_all(&line)
}

/// Everything that a host's log says; lines that are not understood are counted.
///
/// # Errors
/// When it is there and cannot be read.
pub fn entries(dir: &Path, host: &str) -> io::Result<(Vec<Entry>, usize)> {
    let text = match fs::read_to_string(asleep::log(dir, host)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter(|line| !line.is_empty());
    let read: Vec<Option<Entry>> = lines.map(|line| serde_json::from_str(line).ok()).collect();
    let strange = read.iter().filter(|line| line.is_none()).count();
    Ok((read.into_iter().flatten().filter(|entry| entry.format == FORMAT).collect(), strange))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_a_broken_line_hides_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(entries(dir.path(), "a").expect("none"), (vec![], 0));
        let woke = What::Woke { decision: 0.25, container: 0.5, accept: 3.0, answer: Some(0.25) };
        assert_eq!(woke.whole(), Some(4.0));
        let entry = |what: &What| Entry { format: FORMAT, at: 1.5, what: what.clone() };
        write(dir.path(), "a", &entry(&woke)).expect("written");
        let path = asleep::log(dir.path(), "a");
        let mut text = fs::read_to_string(&path).expect("read");
        text.push_str("{\"format\":1,\"at\n");
        fs::write(&path, text).expect("written");
        write(dir.path(), "a", &entry(&What::Gone)).expect("written");
        assert_eq!(entries(dir.path(), "a").expect("read"), (vec![entry(&woke), entry(&What::Gone)], 1));
    }

    #[test]
    fn a_log_that_grew_too_long_keeps_its_newer_half() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(asleep::folder(dir.path())).expect("made");
        let line = "{\"format\":1,\"at\":1.0,\"what\":\"gone\"}\n";
        let many = line.repeat(usize::try_from(MOST).expect("small") / line.len() + 10);
        fs::write(asleep::log(dir.path(), "a"), &many).expect("written");
        write(dir.path(), "a", &Entry { format: FORMAT, at: 2.0, what: What::Adopted }).expect("written");
        let (read, strange) = entries(dir.path(), "a").expect("read");
        assert!(read.len() < many.len() / line.len() / 2 + 20 && strange == 0);
        assert_eq!(read.last().map(|entry| entry.at), Some(2.0));
    }
}
