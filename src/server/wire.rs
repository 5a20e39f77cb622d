//! The operations of a server, as values: what the deploying side asks for and what a server answers.
//!
//! The same values are framed over SSH to the agent, carried out by the lab and by the tests' pretended servers. An
//! answer says what was *seen*; whether that proves the step is judged by who asked.

use crate::fleet::held::HeldSeen;
use crate::fleet::model::{
    Absence, Container, Fleet, GroupName, Holder, Known, Once, ReleaseId, ReleaseOnDisk, ServerFacts, ServerName,
    ServiceName,
};
use crate::fleet::nodes::NodesSeen;
use crate::fleet::release::Manifest;
use crate::fleet::verify::Evidence;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Format number of the messages; both sides must speak the same one.
pub const FORMAT: u32 = 6;

/// What the agent prints before its first frame; whatever stands before it is somebody else's banner.
pub const MAGIC: &[u8] = b"\x01HANDOVER-AGENT\x02\n";

/// What the deploying side sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// First of all.
    Hello(Box<Context>),
    /// An operation.
    Request {
        /// Comes back with the answer.
        id: u64,
        /// Which.
        request: Request,
    },
    /// Still there.
    Heartbeat,
    /// Nobody will ask anything more, and nobody comes back: whatever is held is to be freed now.
    Goodbye,
}

/// What the agent sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// First of all, unasked.
    Hello(AgentHello),
    /// The answer to a request.
    Reply {
        /// To which.
        id: u64,
        /// The answer.
        result: Result<Reply, Failure>,
    },
    /// Still there.
    Heartbeat,
}

/// Who the agent is. Fields are only ever added, so that any two versions understand each other's hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// Format number of the messages it speaks.
    pub format: u32,
    /// Its version.
    pub version: String,
    /// Its architecture.
    pub arch: String,
    /// Its process.
    pub pid: u32,
}

impl AgentHello {
    /// This build.
    #[must_use]
    pub fn own() -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            pid: std::process::id(),
        }
    }
}

/// Who runs and what for, as it is shown to whoever finds the lock held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Unique.
    pub id: String,
    /// User and machine.
    pub who: String,
    /// The command.
    pub what: String,
}

/// What a server needs to know of the fleet in order to carry operations out; sent once, first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Format number of the messages that follow.
    pub format: u32,
    /// Who asks.
    pub run: Run,
    /// Which server this is.
    pub server: ServerName,
    /// The fleet, with this server only.
    pub fleet: Fleet,
}

/// A file to be put on a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// Relative to the release's folder.
    pub name: String,
    /// Its bytes, in base64.
    pub base64: String,
    /// Whether it is secret: mode 0600, never printed.
    pub secret: bool,
}

impl Blob {
    /// A file that is not secret.
    #[must_use]
    pub fn text(name: &str, text: &str) -> Self {
        Self::bytes(name, text.as_bytes(), false)
    }

    /// A file of these bytes.
    #[must_use]
    pub fn bytes(name: &str, bytes: &[u8], secret: bool) -> Self {
        use base64::Engine;
        Self { name: name.to_owned(), base64: base64::engine::general_purpose::STANDARD.encode(bytes), secret }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// When what came over the wire is no base64.
    pub fn decode(&self) -> Result<Vec<u8>, Failure> {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.decode(&self.base64).map_err(|error| Failure {
            kind: FailureKind::Internal,
            message: format!("{}: its bytes did not arrive whole ({error})", self.name),
            hint: None,
            output: Vec::new(),
        })
    }
}

/// An operation of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What is there? Changes nothing.
    Observe,
    /// Take the deploy lock, without waiting.
    LockDeploy,
    /// Free the deploy lock.
    UnlockDeploy,
    /// Resolve the definition with this server's Compose and pin its images; nothing stays behind.
    Resolve {
        /// The compose file and all that lies beside it.
        files: Vec<Blob>,
        /// Which of them is the compose file.
        compose: String,
        /// The variables.
        vars: BTreeMap<String, String>,
    },
    /// Write a release whole, check it, rename it into place.
    Stage {
        /// What it is.
        manifest: Manifest,
        /// Its files.
        files: Vec<Blob>,
    },
    /// Pull a staged release's images.
    Pull {
        /// Which.
        release: ReleaseId,
    },
    /// Save what runs by other means as a release `adopted-...`.
    Adopt,
    /// Take the server lock.
    Lock {
        /// Wait for it so long.
        wait: Duration,
    },
    /// Free the server lock and write down why.
    Unlock {
        /// What was done, as a sentence.
        record: String,
    },
    /// Make health fail on purpose, or no more.
    Flip {
        /// Whether it is to fail.
        drained: bool,
    },
    /// Look at health and at real traffic, several times over fresh connections.
    Look,
    /// Read the server's own count of real requests.
    Count,
    /// Read who checks the server's health, node by node, as the gateway counted it.
    Nodes,
    /// Ask the gateway what it holds and what is under way behind it.
    Held,
    /// Run something once for a staged release, in a container of its own beside what serves.
    Once {
        /// Which release.
        release: ReleaseId,
        /// What.
        once: Once,
    },
    /// Stop the project's services, each with its own grace period, and remove the containers; a gateway that hands over stays.
    Stop,
    /// Bring a staged release up; nothing is pulled, nothing is built.
    Start {
        /// Which.
        release: ReleaseId,
    },
    /// Gather the evidence of every service's own check.
    Verify {
        /// Against which release.
        release: ReleaseId,
    },
    /// Make a release `current`.
    Switch {
        /// Which.
        release: ReleaseId,
    },
    /// Let the gateway of this release take the listeners over from the one that runs; nothing where it is that one. Answered like `Start`.
    HandOver {
        /// Which.
        release: ReleaseId,
    },
    /// Stop again what a gateway had put to sleep before the start, unless somebody asked for it since. Answered like `Stop`.
    Sleep,
    /// Mark, or unmark, a planned absence.
    Absent {
        /// The absence; `None` ends it.
        absence: Option<Absence>,
    },
    /// Put a freeze on.
    Freeze {
        /// Why.
        reason: String,
    },
    /// Take it off.
    Unfreeze,
    /// Which releases lie here, and are they whole?
    Releases,
    /// Add lines to this run's journal here.
    Journal {
        /// One JSON object each.
        lines: Vec<String>,
    },
    /// The journals that lie here.
    Journals {
        /// So many of the youngest.
        newest: u32,
    },
    /// Put bootstrap and watchdog here.
    Install,
    /// Take them away.
    Uninstall,
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `Observe`.
    Facts(Box<ServerFacts>),
    /// The lock is ours.
    Locked,
    /// The lock is somebody else's.
    Held(Holder),
    /// Done; there is nothing to say about it.
    Done,
    /// To `Resolve`.
    Resolved(Box<Resolved>),
    /// To `Pull`: the local image ids, by service.
    Pulled(BTreeMap<ServiceName, String>),
    /// To `Adopt`.
    Adopted(Box<Manifest>),
    /// To `Look`.
    Sighting(Sighting),
    /// To `Count`; `None` where it could not be read.
    Count(Option<u64>),
    /// To `Nodes`.
    Nodes(Known<NodesSeen>),
    /// To `Held`.
    Holding(Known<HeldSeen>),
    /// To `Once`.
    Once(OnceEnd),
    /// To `Stop` and `Sleep`.
    Stopped(Stopped),
    /// To `Start` and `HandOver`: every container of the project afterwards.
    Started(Vec<Container>),
    /// To `Verify`.
    Verified(Box<Verified>),
    /// To `Switch`: what is `current` now, read back.
    Switched(ReleaseId),
    /// To `Releases`, the youngest first.
    Releases(Vec<Listed>),
    /// To `Journals`: the text of each, the youngest first.
    Journals(Vec<String>),
    /// To `Install` and `Uninstall`: what was changed, each as a sentence.
    Installed(Vec<String>),
}

/// How something that was run once ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnceEnd {
    /// Its exit code; `None` where it was ended by force.
    pub code: Option<i32>,
    /// The last lines that it printed, without secrets.
    pub output: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// A release that lies on a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// It, with the images that are there.
    pub release: ReleaseOnDisk,
    /// `current`, `previous`, `incoming`.
    pub names: Vec<String>,
    /// When it was staged last, seconds since the epoch.
    pub staged: u64,
    /// Why it could not be brought up as it lies there; `None` where it is whole.
    pub broken: Option<String>,
}

/// A definition as Compose resolved it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// The canonical JSON, images pinned, with the placeholder where `HANDOVER_RELEASE` stands.
    pub definition: String,
    /// What it pins.
    pub manifest: Manifest,
    /// Things worth saying.
    pub warnings: Vec<String>,
}

/// What health and real traffic answered, each asked several times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// By group: the status of each answer, or 0 where none came.
    pub health: BTreeMap<GroupName, Vec<u16>>,
    /// Likewise for `drain.real`.
    pub real: Vec<u16>,
}

/// What a stop left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Each container that was stopped.
    pub stopped: Vec<StoppedContainer>,
    /// Those that are still there.
    pub left: Vec<Container>,
}

/// One container's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedContainer {
    /// Of which service.
    pub service: ServiceName,
    /// Its name.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// Its exit code; 137 means that it had to be killed.
    pub exit_code: i32,
}

/// The evidence of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// Every container of the project.
    pub containers: Vec<Container>,
    /// The local ids of the release's images, by service.
    pub image_ids: BTreeMap<ServiceName, String>,
    /// What each service's own check saw.
    pub services: BTreeMap<ServiceName, Evidence>,
    /// The last log lines of services whose check does not look well.
    pub logs: BTreeMap<ServiceName, Vec<String>>,
    /// The services that are off because a gateway put them to sleep, or that are woken right now.
    pub asleep: BTreeSet<ServiceName>,
}

/// Why a server did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Which kind, for who decides on it.
    pub kind: FailureKind,
    /// What happened.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
    /// The last lines that the failing command printed.
    pub output: Vec<String>,
}

/// Kinds of failure that somebody decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A right or a tool is missing.
    Missing,
    /// The input is wrong (a compose file that does not resolve).
    Input,
    /// A command failed.
    Command,
    /// The server lock is not ours.
    NotLocked,
    /// Our own fault.
    Internal,
}

impl Failure {
    /// A failure with nothing but its message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, output: Vec::new() }
    }

    /// What happened and what to do about it, in one line.
    #[must_use]
    pub fn with_hint(&self) -> String {
        self.hint.as_ref().map_or_else(|| self.message.clone(), |hint| format!("{} ({hint})", self.message))
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the last lines that the failing command printed.
    #[must_use]
    pub fn output(mut self, lines: Vec<String>) -> Self {
        self.output = lines;
        self
    }
}
