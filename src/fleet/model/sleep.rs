//! A backend that may sleep, as the gateway's tables describe it after validation.

use super::ids::ServiceName;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `gateway.host.sleep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepSpec {
    /// What is stopped and started.
    pub services: Vec<ServiceName>,
    /// What never is.
    pub stay: Vec<ServiceName>,
    /// How long nobody must have needed it.
    pub after: Duration,
    /// For how long an answer under way or a tunnel is use, after its last byte.
    pub quiet: Duration,
    /// How long a start may take until a connection is accepted.
    pub start: Duration,
    /// How long it stays awake after a wake, at least.
    pub awake: Duration,
    /// How many failed starts in a row are enough.
    pub tries: u32,
    /// How long it is then left alone.
    pub again: Duration,
    /// The file that work in the background touches.
    pub busy: Option<String>,
}

/// `gateway.sleep`: where the containers of those who sleep are found, and where it is written down that they do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepPlace {
    /// Their Compose project.
    pub project: String,
    /// The release folder, as deploys know it.
    pub dir: String,
    /// The server lock.
    pub lock: String,
    /// The engine's socket.
    pub docker: String,
}
