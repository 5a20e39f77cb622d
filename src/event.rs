//! The one vocabulary of what happens. Whoever acts says it here; nothing else prints.

pub mod journal;
mod measured;

pub use measured::{Gap, Latency, Lost, Mark, Measured, Part, Punctuality, Rate, Second, Window};

use crate::clock::Stamp;
use crate::fleet::model::{GroupName, Hook, ReleaseId, ServerName, ServiceName};
use crate::fleet::nodes::{Reading, Told};
use crate::fleet::plan::{Purpose, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Format number of every output line.
pub const FORMAT: u32 = 1;

/// What happens.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A lab is up: everything listens and every node sees every target healthy.
    Lab {
        /// Where the balancer's API answers.
        control_plane: String,
        /// Where its nodes take requests.
        nodes: Vec<String>,
        /// The services that run in it.
        services: Vec<LabService>,
    },
    /// Something of the preflight was done.
    Preflight {
        /// On which server; all of them where none is named.
        server: Option<ServerName>,
        /// What.
        what: String,
    },
    /// The first step is about to begin.
    Began {
        /// What will run afterwards.
        release: ReleaseId,
        /// Its label.
        label: Option<String>,
        /// How many servers are worked on.
        servers: usize,
        /// On how many nothing would change.
        unchanged: usize,
        /// How long it is expected to take, in seconds.
        expected_seconds: f64,
        /// What for.
        #[serde(skip_serializing_if = "Purpose::is_deploy")]
        purpose: Purpose,
    },
    /// A step of a server began, was proved or failed.
    Step {
        /// Which server.
        server: ServerName,
        /// Which step.
        step: Step,
        /// Why the step is taken.
        course: Course,
        /// How it stands.
        state: StepState,
        /// How long it took, or is expected to take when it begins, in seconds.
        seconds: f64,
        /// What proved it, or why it failed.
        detail: Option<String>,
    },
    /// What the balancer's nodes were told by the one who answers their checks.
    Nodes {
        /// On which server.
        server: ServerName,
        /// How the balancer reads its thresholds.
        reading: Reading,
        /// Each of them.
        nodes: Vec<NodeTold>,
    },
    /// A step still waits, and for what.
    Waiting {
        /// Which server.
        server: ServerName,
        /// Which step.
        step: Step,
        /// For what.
        what: String,
    },
    /// A command of the team's began, printed a line or ended.
    Hook {
        /// For which moment it is.
        hook: Hook,
        /// About which server, where it is about one; then its step tells the beginning and the end.
        server: Option<ServerName>,
        /// How it stands.
        state: HookState,
        /// How long it has run, in seconds.
        seconds: f64,
        /// The line, without secrets; or why it failed.
        what: Option<String>,
    },
    /// A container had to be killed, an app answered otherwise than expected, a number does not fit.
    Warning {
        /// Which server.
        server: Option<ServerName>,
        /// What.
        what: String,
    },
    /// A server is finished, one way or the other.
    ServerDone {
        /// Which.
        server: ServerName,
        /// How.
        outcome: ServerOutcome,
        /// How long each part took.
        took: Took,
        /// A sentence for people.
        what: String,
    },
    /// What became of the requests so far.
    Requests {
        /// The counts.
        counts: Requests,
    },
    /// What became of the requests that ended in the last second of a measurement.
    Second(Box<Second>),
    /// Somebody marked the beginning or the end of a deploy during a measurement.
    Mark {
        /// Which of them.
        mark: Mark,
        /// The deploy's label.
        label: Option<String>,
    },
    /// Settings of the balancer were changed, and the balancer says so.
    Provisioned {
        /// Where.
        at: String,
        /// Each with its key, what it was and what it is.
        settings: Vec<(String, String, String)>,
    },
    /// Something happened to a gateway that whoever runs it should know.
    Gateway {
        /// What kind of thing.
        state: GatewayState,
        /// A sentence.
        what: String,
    },
    /// What a watchdog saw and did.
    Watchdog(Box<serde_json::Value>),
    /// How it ended.
    Summary(Box<Summary>),
}

/// One node of the balancer, as it was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeTold {
    /// For which group it checks.
    pub group: GroupName,
    /// From where.
    pub address: IpAddr,
    /// What it is to be told.
    pub told: Told,
    /// How often in a row it was.
    pub times: u32,
    /// How often it must be.
    pub needed: u32,
}

/// What happens to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayState {
    /// It serves, and where.
    Serving,
    /// Another configuration is used from now on.
    Reloaded,
    /// Another configuration was not taken; nothing changed.
    ReloadRefused,
    /// Health checks are answered 503 from now on.
    Draining,
    /// And 200 again.
    Undrained,
    /// Every request waits from now on, because somebody changes what is behind.
    Holding,
    /// And goes again.
    LetGo,
    /// Another process has the listeners; what runs and waits here is finished.
    HandedOver,
    /// Nothing new is taken; what runs and waits is finished.
    Stopping,
    /// A backend that nobody needs was stopped.
    Slept,
    /// It was due, and did not come to be.
    NotSlept,
    /// A backend was started for somebody who asked.
    Woke,
    /// It could not be.
    WakeFailed,
    /// A backend was started or stopped by somebody else.
    Noticed,
}

/// A service of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabService {
    /// On which server.
    pub server: ServerName,
    /// Which.
    pub service: ServiceName,
    /// Its process.
    pub pid: u32,
    /// Where it listens, if it does.
    pub address: Option<String>,
}

/// Why a step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Course {
    /// Towards the new release.
    Forward,
    /// Health goes back to 200; what ran still runs.
    FlipBack,
    /// Back to the previous release.
    RollBack,
    /// A server that was empty is left stopped.
    LeaveStopped,
    /// The server is left out of rotation, as it is.
    LeaveOut,
    /// The run was interrupted after this server was verified: only what is needed to leave it serving.
    Finish,
}

/// How a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// It began.
    Began,
    /// It was proved.
    Proved,
    /// It failed.
    Failed,
}

/// How a command of the team's stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookState {
    /// It began.
    Began,
    /// It printed a line.
    Said,
    /// It ended with 0.
    Done,
    /// It did not.
    Failed,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerOutcome {
    /// It runs the new release.
    Deployed,
    /// It ran it already.
    Unchanged,
    /// Nothing was done to it.
    Untouched,
    /// Its health was flipped back; it runs what it ran.
    FlippedBack,
    /// It runs the previous release again.
    RolledBack,
    /// It was empty and is left stopped.
    LeftStopped,
    /// It is left out of rotation.
    LeftOut,
    /// It was taken out of rotation on purpose, and runs on.
    Drained,
    /// It was out, is verified, and is back in rotation.
    Undrained,
    /// It was out, was not verified, and is out still.
    StaysOut,
    /// Nobody knows.
    Unknown,
}

/// How long the parts of a server's deploy took, in seconds; a part that did not take place is missing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Took {
    /// From the flip until the balancer said that every target is out.
    pub out: Option<f64>,
    /// The settle after it.
    pub settle_out: Option<f64>,
    /// Stopping.
    pub stop: Option<f64>,
    /// Starting, until every check passed for the first time.
    pub start: Option<f64>,
    /// Staying so.
    pub stable: Option<f64>,
    /// Putting back to sleep what slept before.
    pub sleep: Option<f64>,
    /// Until the balancer said that every target is healthy.
    #[serde(rename = "in")]
    pub in_: Option<f64>,
    /// The settle after it.
    pub settle_in: Option<f64>,
}

/// What became of requests, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// All of them.
    pub total: u64,
    /// Answered by the app, or on purpose by the balancer.
    pub served: u64,
    /// The app's own 5xx.
    pub app_errors: u64,
    /// Reached nowhere.
    pub nowhere: u64,
    /// Headers came, the body broke off.
    pub cut_short: u64,
    /// The 503 of a draining health endpoint.
    pub drain_signals: u64,
    /// The client went away.
    pub client_gone: u64,
}

impl Requests {
    /// How many were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.nowhere + self.cut_short
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The exit code.
    pub exit: u8,
    /// What went wrong.
    pub error: Option<ErrorLine>,
    /// In one word.
    pub outcome: String,
    /// Which release.
    pub release: Option<ReleaseId>,
    /// How many servers.
    pub servers: usize,
    /// How each of them ended.
    pub each: BTreeMap<ServerName, ServerOutcome>,
    /// How long each server's parts took, in the order in which they were worked on.
    pub took: Vec<(ServerName, Took)>,
    /// What became of the requests; null where nobody measured.
    pub requests: Option<Requests>,
    /// From the first server's lock to the last `in`, in fleet time.
    pub seconds: f64,
    /// What it takes at the least.
    pub floor_seconds: f64,
    /// The terms of that.
    pub floor: Floor,
    /// What else a caller adds: the lab its speed and truth.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// What went wrong, in the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorLine {
    /// The kind.
    pub kind: String,
    /// The message.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// On which server.
    pub server: Option<ServerName>,
    /// In which step.
    pub step: Option<Step>,
    /// What was printed where it failed, or what to run by hand: line by line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
}

/// The terms of the floor, in seconds, summed over batches.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Floor {
    /// `U x I`, or what `drain.serve` adds to it.
    pub out: f64,
    /// The settle.
    pub settle_out: f64,
    /// Stopping, as observed.
    pub stop: f64,
    /// Starting, as observed.
    pub start: f64,
    /// `rolling.stable`.
    pub stable: f64,
    /// Putting back to sleep what slept before, as observed.
    pub sleep: f64,
    /// `H x I`.
    #[serde(rename = "in")]
    pub in_: f64,
    /// The settle.
    pub settle_in: f64,
}

impl Floor {
    /// Their sum.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.out + self.settle_out + self.stop + self.start + self.stable + self.sleep + self.in_ + self.settle_in
    }
}

/// An event with its moment, as it is printed and written down.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Format number.
    pub format: u32,
    /// Fleet time since the run began, in seconds.
    pub at: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Line {
    /// An event at a moment.
    #[must_use]
    pub fn new(at: Stamp, event: Event) -> Self {
        Self { format: FORMAT, at: seconds(at.since_start()), event }
    }
}

/// Seconds, to the millisecond.
#[must_use]
pub fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Where events go.
pub trait Sink: Send + Sync {
    /// Takes one.
    fn take(&self, line: Line);
}
