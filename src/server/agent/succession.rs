//! From one agent to the next of the same run: a connection that broke in the middle of a step is no reason to undo it.
//!
//! The next one says who it is in a file; the one before finishes the command that runs, frees its locks without putting
//! anything right, and ends; the next one takes them, and the record says how far they had come.

use super::record::{Record, State};
use super::site::Site;
use crate::server::flock::{holder, taken_by};
use crate::server::layout::{read_json, remove, write_json};
use crate::server::process::ProcessId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The command that the one before runs may be a stop with a long grace period.
const PATIENCE: Duration = Duration::from_secs(900);

/// Who comes after whom.
#[derive(Debug, Clone)]
pub(super) struct Succession {
    path: PathBuf,
    own: Successor,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Successor {
    format: u32,
    run: String,
    process: ProcessId,
    /// Tells agents of one process apart.
    number: u64,
}

impl Succession {
    pub(super) fn new(path: PathBuf, run: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let process = ProcessId::of(std::process::id());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { path, own: Successor { format: 1, run: run.to_owned(), process, number } }
    }

    /// Whether another agent of the same run wants to go on here.
    pub(super) fn has_come(&self) -> bool {
        // What cannot be read names nobody.
        let Ok(Some(other)) = read_json::<Successor>(&self.path) else { return false };
        other.run == self.own.run && other != self.own && other.process.is_alive()
    }

    /// Waits for it.
    pub(super) async fn within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            if self.has_come() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Site {
    pub(super) fn holds_a_lock(&self) -> bool {
        self.server_lock.is_some() || self.deploy_lock.is_some()
    }

    /// Another agent of the same run goes on: the record stays as it is, and tells it how far this one had come.
    pub(super) fn yields(&mut self) {
        (self.server_lock, self.deploy_lock) = (None, None);
    }

    /// Goes on where an earlier agent of the same run was: nothing of it where there was none, or where it has put the
    /// server right already.
    pub(super) async fn succeed(&mut self) {
        let (lock, note) = (self.layout.deploy_lock(), self.layout.deploy_lock_note());
        let (server, server_note) = (self.layout.server_lock().to_owned(), self.layout.server_lock_note());
        let ours = |note: &PathBuf| taken_by(note).ok().flatten().as_deref() == Some(self.run.id.as_str());
        let had = (ours(&note), ours(&server_note));
        if had == (false, false) {
            return;
        }
        if write_json(&self.succession.path, &self.succession.own).is_err() {
            return;
        }
        let end = Instant::now() + PATIENCE;
        let held = |lock: &PathBuf, note: &PathBuf| {
            let holder = holder(lock, note).ok().flatten();
            holder.is_some_and(|holder| holder.run.as_deref() == Some(self.run.id.as_str()))
        };
        while (held(&lock, &note) || held(&server, &server_note)) && Instant::now() < end {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        if had.0 {
            // Somebody else's by now: whoever changes something next is told.
            drop(self.lock_deploy());
        }
        let unfinished = Record::read(&self.layout.record()).is_ok_and(|record| record.state != State::Idle);
        if had.1 && unfinished {
            drop(self.hold().await);
        }
        drop(remove(&self.succession.path));
    }
}
