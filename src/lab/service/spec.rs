//! What a service of the lab is told about itself, and what it says back.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable that holds the spec, as JSON.
pub const ENVIRONMENT: &str = "HANDOVER_LAB_SERVICE";

/// A service of the lab. Durations are fleet time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceSpec {
    pub(in crate::lab) server: String,
    pub(in crate::lab) service: String,
    /// What `{release}` means.
    pub(in crate::lab) release: String,
    /// How fast fleet time runs.
    pub(in crate::lab) speed: f64,
    pub(in crate::lab) listens: Vec<Listen>,
    pub(in crate::lab) answers: Vec<Answer>,
    /// While this file exists, health answers 503.
    pub(in crate::lab) drain_file: Option<PathBuf>,
    /// After SIGTERM health answers 503 for so long while everything else goes on.
    pub(in crate::lab) serves_on: Option<Duration>,
    /// Touched each second.
    pub(in crate::lab) heartbeat: Option<PathBuf>,
    /// From start to listening.
    pub(in crate::lab) start: Duration,
    /// From SIGTERM to the end.
    pub(in crate::lab) stop: Duration,
    /// What a request takes.
    pub(in crate::lab) latency: Duration,
    pub(in crate::lab) fault: Option<Fault>,
}

/// A port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::lab) struct Listen {
    /// The one that deploy.toml names.
    pub(in crate::lab) port: u16,
    /// Where it really is.
    pub(in crate::lab) at: SocketAddr,
}

/// What a path of a port answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::lab) struct Answer {
    /// deploy.toml's port.
    pub(in crate::lab) port: u16,
    /// With its query.
    pub(in crate::lab) path: String,
    /// Only this method; any where none is named.
    pub(in crate::lab) method: Option<String>,
    pub(in crate::lab) kind: Kind,
}

/// Kinds of answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::lab) enum Kind {
    /// 503 while drained, else 200 with this body.
    Health { body: String },
    /// What a verify expects.
    Verify { status: u16, body: String },
    /// How many real requests there were.
    Count { json: String },
    /// Who asked for health.
    Nodes,
    /// Makes health fail.
    Drain,
    /// Makes it pass again.
    Undrain,
}

/// What is wrong with a service, for rehearsing a deploy that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Its own check answers 500, or the command ends with 1.
    FailsVerify,
    /// It says that it is another release.
    WrongRelease,
    /// It ends with 3 soon after it started.
    Crashes,
    /// Only SIGKILL ends it.
    IgnoresTerm,
    /// Real requests are answered with 500.
    AnswersErrors,
}

/// What a service says on stdout, one JSON object a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::lab) enum Said {
    /// It listens, or works.
    Ready,
    /// To `check`: whether it works.
    Checked { ok: bool },
}
