//! What is run once for a release, before its first server: migrations and their like.

use super::{ReleaseId, ServiceName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[[run_once]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Once {
    /// What it is called.
    pub name: String,
    /// In a container of this service, as the new release defines it.
    pub service: ServiceName,
    /// Program and arguments; no shell reads them.
    pub run: Vec<String>,
    /// Ended by force after so long.
    pub limit: Duration,
}

/// How far it came, as its server wrote it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnceState {
    /// It was begun, and nobody wrote down how it ended.
    Began,
    /// It ended with 0.
    Done,
    /// It did not.
    Failed,
}

/// One step on one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnceRecord {
    /// For which release.
    pub release: ReleaseId,
    /// Which step.
    pub name: String,
    /// How far.
    pub state: OnceState,
    /// Since when, seconds since the epoch.
    pub at: u64,
}

/// So many records stay on a server.
const KEPT: usize = 100;

/// Writes one down: it takes the place of what was known of the same step before.
pub fn note(records: &mut Vec<OnceRecord>, record: OnceRecord) {
    records.retain(|old| old.release != record.release || old.name != record.name);
    records.push(record);
    let surplus = records.len().saturating_sub(KEPT);
    records.drain(..surplus);
}
