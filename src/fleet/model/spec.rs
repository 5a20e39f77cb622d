//! The fleet as deploy.toml describes it, after validation: every default filled in, every name resolved.

use super::{GroupAttributes, GroupName, Network, ServerName, ServiceName, TargetId, Zone};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that deploy.toml says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// The app, and always the Compose project's name too.
    pub app: String,
    /// Whether whoever changes this fleet must name it.
    #[serde(default)]
    pub confirm: bool,
    /// What is published and where it lies on every server.
    pub release: ReleaseSpec,
    /// How servers are reached.
    pub ssh: Ssh,
    /// How a deploy rolls.
    pub rolling: Rolling,
    /// The server lock.
    pub lock: LockSpec,
    /// Who sends the traffic.
    pub balancer: Balancer,
    /// How a server leaves rotation.
    pub drain: Drain,
    /// The services, in file order.
    pub services: Vec<Service>,
    /// The servers, in file order.
    pub servers: Vec<Server>,
    /// The watchdog's numbers (they take part in the plan's checks).
    pub watchdog: Watchdog,
    /// The prober, where one is wanted.
    pub measure: Option<Measure>,
    /// The team's own commands, run where the deploy is run from.
    #[serde(default)]
    pub hooks: super::Hooks,
    /// What is run once for a release, before its first server.
    #[serde(default)]
    pub run_once: Vec<super::Once>,
    /// The gateway, where its tables stand in this file.
    #[serde(default)]
    pub gateway: Option<super::GatewaySpec>,
}

pub use super::super::release::ReleaseSpec;

/// `[ssh]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssh {
    /// Whether the agent is started through `sudo -n`.
    pub sudo: bool,
    /// What to do with a host key that is not known.
    pub host_keys: HostKeys,
    /// How many connections are opened at a time.
    pub parallel: usize,
}

/// What to do with a host key that is not known; a changed one is always refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostKeys {
    /// Refuse.
    Strict,
    /// Learn it the first time.
    AcceptNew,
}

/// `[rolling]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rolling {
    /// How many servers at a time.
    pub batch: Batch,
    /// How many must stay healthy in every counting scope, at any moment.
    pub min_healthy: u32,
    /// The wait between batches.
    pub pause: Duration,
    /// How long a verified server must stay so.
    pub stable: Duration,
    /// What a failed server means for the others.
    pub on_failure: OnFailure,
    /// What a lost request means.
    pub on_loss: OnLoss,
}

/// A number of servers, or a share of them (at least one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Batch {
    /// So many.
    Count(u32),
    /// So many of a hundred.
    Percent(u32),
}

impl Batch {
    /// How many of `servers` that is: at least one.
    #[must_use]
    pub fn of(self, servers: usize) -> usize {
        match self {
            Self::Count(count) => (count as usize).max(1),
            Self::Percent(percent) => (servers * percent as usize / 100).max(1),
        }
    }
}

/// `rolling.on_failure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The failed server goes back to its previous release.
    Rollback,
    /// So do the ones before it.
    RollbackAll,
    /// The failed server is left out of rotation as it is.
    Halt,
}

/// `rolling.on_loss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoss {
    /// A lost request stops the deploy before the next server.
    Halt,
    /// It is reported only.
    Continue,
}

/// `[lock]`: the file that bootstrap, watchdog and people's scripts take too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSpec {
    /// Made once, never removed.
    pub path: String,
    /// How long the server lock is waited for.
    pub wait: Duration,
    /// A deploy not heard from for so long is dead.
    pub lease: Duration,
    /// How long a server's bootstrap takes at most, where the team says so.
    pub bootstrap: Option<Duration>,
}

/// `[balancer]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Balancer {
    /// Which kind.
    pub kind: BalancerKind,
    /// The AWS region; the SDK's own order (environment, profile) where none is named.
    pub region: Option<String>,
    /// Another address for the API: a lab, a VPC endpoint.
    pub endpoint: Option<String>,
    /// HAProxy's runtime sockets, one a node.
    pub nodes: Vec<RuntimeSocket>,
    /// How long the balancer keeps an idle connection.
    pub idle_timeout: Duration,
    /// The target groups, in file order.
    pub groups: Vec<Group>,
}

/// `balancer.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalancerKind {
    /// An AWS Application Load Balancer.
    Alb,
    /// One or several HAProxy nodes.
    Haproxy,
    /// Servers without targets.
    None,
}

/// Where an HAProxy node's runtime API (`stats socket`) is reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeSocket {
    /// A socket file on this machine.
    File(String),
    /// `HOST:PORT`.
    Tcp(String),
    /// A socket file on another machine, reached by SSH.
    Ssh {
        /// Whatever `ssh` accepts.
        destination: String,
        /// The socket file there.
        path: String,
    },
}

impl RuntimeSocket {
    /// Reads `/PATH`, `HOST:PORT` or `ssh://DESTINATION/PATH`; `None` where it is none of them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return None;
        }
        if let Some(rest) = text.strip_prefix("ssh://") {
            let (destination, path) = rest.split_once('/')?;
            let fine = !destination.is_empty() && !destination.starts_with('-') && !path.is_empty();
            return fine.then(|| Self::Ssh { destination: destination.to_owned(), path: format!("/{path}") });
        }
        if text.starts_with('/') {
            return (text.len() > 1 && !text.ends_with('/')).then(|| Self::File(text.to_owned()));
        }
        let (host, port) = text.rsplit_once(':')?;
        let fine = !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0);
        fine.then(|| Self::Tcp(text.to_owned()))
    }
}

impl std::fmt::Display for RuntimeSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Tcp(address) => f.write_str(address),
            Self::Ssh { destination, path } => write!(f, "ssh://{destination}{path}"),
        }
    }
}

/// `[[balancer.group]]`: what the file says of a target group; the live group has the last word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Name or ARN.
    pub name: GroupName,
    /// The port that targets take traffic on.
    pub port: u16,
    /// The health check.
    pub health: HealthCheck,
    /// `deregistration_delay.timeout_seconds`.
    pub deregistration_delay: Duration,
    /// Whether healthy targets are counted over all zones together (AWS user guide: on by default).
    pub cross_zone: bool,
    /// Below so many healthy targets the balancer routes to all (AWS user guide: default 1).
    pub fail_open_count: u32,
    /// Likewise as a percentage of the registered ones; `None` is off.
    pub fail_open_percent: Option<u32>,
    /// `slow_start.duration_seconds`; zero is off.
    pub slow_start: Duration,
}

/// The health check of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// The path that is asked.
    pub path: String,
    /// The port, where it is not the traffic port.
    pub port: Option<u16>,
    /// Where the server itself asks for it, where that is not `http://127.0.0.1:PORT/PATH`.
    pub url: Option<String>,
    /// The numbers.
    pub settings: HealthSettings,
}

/// The numbers of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthSettings {
    /// From the start of one check to the start of the next.
    pub interval: Duration,
    /// An answer must come within.
    pub timeout: Duration,
    /// So many failures in a row take a target out.
    pub unhealthy: u32,
    /// So many successes in a row bring it back.
    pub healthy: u32,
}

impl Group {
    /// The attributes that the file says or implies.
    #[must_use]
    pub fn attributes(&self) -> GroupAttributes {
        GroupAttributes {
            cross_zone: self.cross_zone,
            fail_open_count: self.fail_open_count,
            fail_open_percent: self.fail_open_percent,
            deregistration_delay: self.deregistration_delay,
            slow_start: self.slow_start,
        }
    }

    /// Where the server itself can see its health endpoint: by what the balancer asks, on loopback.
    #[must_use]
    pub fn local_health_url(&self) -> String {
        self.health.url.clone().unwrap_or_else(|| {
            format!("http://127.0.0.1:{}{}", self.health.port.unwrap_or(self.port), self.health.path)
        })
    }
}

/// `[drain]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    /// How health is made to fail on purpose.
    pub by: DrainBy,
    /// A URL on the server that answers 200 while health answers 503.
    pub real: Option<String>,
    /// Real traffic is served at least this long after health began to fail.
    pub serve: Duration,
    /// Not out by then: flip back, give up.
    pub max: Duration,
    /// Allowed for the balancer's own lag.
    pub margin: Duration,
    /// Not back in rotation by then: rolled back; where nothing is said, the bound of the numbers and half as much again.
    pub back: Option<Duration>,
    /// The server's own count of real requests.
    pub counter: Option<Counter>,
    /// Consent to a server that may be back in rotation before it is verified.
    pub unverified_return: bool,
    /// In which state HAProxy is told to let go.
    pub state: AdminState,
}

/// The states in which HAProxy sends a server nothing new (HAProxy management guide: `set server state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdminState {
    /// Nothing at all; checks stop, running sessions end by themselves.
    #[default]
    Maint,
    /// Nothing but what belongs to a persistent session; checks go on.
    Drain,
}

impl AdminState {
    /// HAProxy's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Maint => "maint",
            Self::Drain => "drain",
        }
    }
}

/// `drain.counter`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The URL.
    pub http: String,
    /// The field of its JSON answer, dots for nesting.
    pub json: String,
}

/// The ways to drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrainBy {
    /// A file that the app looks for.
    File {
        /// Its path on the server.
        path: String,
    },
    /// Two calls to the app.
    Http {
        /// Makes health fail.
        drain: HttpCall,
        /// Makes it pass again.
        undrain: HttpCall,
    },
    /// Two commands.
    Exec {
        /// In this service's container; on the server itself where none is named.
        service: Option<ServiceName>,
        /// Makes health fail.
        drain: Vec<String>,
        /// Makes it pass again.
        undrain: Vec<String>,
    },
    /// Two signals to a service's containers.
    Signal {
        /// Whose containers.
        service: ServiceName,
        /// Makes health fail, e.g. `SIGUSR1`.
        drain: String,
        /// Makes it pass again.
        undrain: String,
    },
    /// The app itself answers 503 for a while when it is told to stop: the stop is the flip, there is no way back.
    Sigterm,
    /// The balancer is told to let the target go.
    Deregister,
    /// A file that the gateway looks for, which sees every node that asks for its health.
    Gateway {
        /// The file's path on the server.
        path: String,
        /// Where and whom it counts.
        nodes: NodeCount,
    },
    /// A file that the gateway looks for: while it is there every request waits, and health goes on passing.
    Hold {
        /// The file's path on the server.
        path: String,
        /// Who holds.
        hold: HoldBy,
    },
}

/// `drain.hold`: the gateway that holds what arrives while the services behind it are changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldBy {
    /// Where it tells what it holds, on the server.
    pub told: String,
    /// Which service of the fleet it is; none: it is no part of a release.
    pub service: Option<ServiceName>,
}

/// `drain.nodes`: the gateway's own count of who checks its health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCount {
    /// Where the gateway tells it, on the server.
    pub count: String,
    /// Where the balancer's nodes are; nothing: anywhere but on the server itself.
    pub from: Vec<Network>,
    /// How the `User-Agent` of the balancer's checks begins, where it has one of its own.
    pub agent: Option<String>,
}

/// The two facts in which the ways to drain differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainFacts {
    /// The state survives a restart of the containers.
    pub survives_restart: bool,
    /// It can be undone on the server, without the deploying side.
    pub undone_on_server: bool,
}

impl DrainBy {
    /// What plan, engine and dead-man need to know of it.
    #[must_use]
    pub fn facts(&self) -> DrainFacts {
        match self {
            Self::File { .. } | Self::Gateway { .. } | Self::Hold { .. } => {
                DrainFacts { survives_restart: true, undone_on_server: true }
            }
            Self::Http { .. } | Self::Exec { .. } | Self::Signal { .. } => {
                DrainFacts { survives_restart: false, undone_on_server: true }
            }
            Self::Sigterm => DrainFacts { survives_restart: false, undone_on_server: false },
            Self::Deregister => DrainFacts { survives_restart: true, undone_on_server: false },
        }
    }

    /// The word in `drain.by`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Http { .. } => "http",
            Self::Exec { .. } => "exec",
            Self::Signal { .. } => "signal",
            Self::Sigterm => "sigterm",
            Self::Deregister => "deregister",
            Self::Gateway { .. } => "gateway",
            Self::Hold { .. } => "hold",
        }
    }

    /// The file that takes the server out of use while it is there, where that is the way.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::File { path } | Self::Gateway { path, .. } | Self::Hold { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Who holds requests meanwhile, where the server does not leave rotation at all.
    #[must_use]
    pub fn hold(&self) -> Option<&HoldBy> {
        match self {
            Self::Hold { hold, .. } => Some(hold),
            _ => None,
        }
    }

    /// The service that is never stopped with the others, but hands over to its successor.
    #[must_use]
    pub fn hands_over(&self) -> Option<&ServiceName> {
        self.hold()?.service.as_ref()
    }

    /// The count of who checks, where there is one.
    #[must_use]
    pub fn nodes(&self) -> Option<&NodeCount> {
        match self {
            Self::Gateway { nodes, .. } => Some(nodes),
            _ => None,
        }
    }
}

/// A call to the app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpCall {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// Where.
    pub url: String,
}

/// `[[service]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name in the compose file.
    pub name: ServiceName,
    /// The groups whose traffic it takes.
    pub groups: Vec<GroupName>,
    /// How it is proved to work.
    pub verify: Verify,
    /// How long it needs to shut down; its grace period in the compose file must be longer.
    pub shutdown: Duration,
    /// From start to verified.
    pub deadline: Duration,
    /// How long one of its requests may take, where the team says so.
    pub longest_request: Option<Duration>,
    /// How long it keeps an idle connection, where the team says so.
    pub keep_alive: Option<Duration>,
}

/// How a service is proved to work, on the server itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// A URL answers.
    Http {
        /// Where.
        url: String,
        /// With this status.
        status: u16,
        /// With these fields (dots for nesting); `{release}` is the release's first twelve digits.
        json: BTreeMap<String, String>,
        /// Sent as `Host`, where the app insists on one.
        host: Option<String>,
    },
    /// A port accepts.
    Tcp {
        /// `HOST:PORT`.
        address: String,
    },
    /// A command in the service's container ends with 0.
    Exec {
        /// The command and its arguments.
        argv: Vec<String>,
    },
    /// A file on the server was touched not long ago, and after the service was started.
    Heartbeat {
        /// The file.
        path: String,
        /// Not longer ago than this.
        age: Duration,
    },
}

/// `[[server]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its name.
    pub name: ServerName,
    /// Whatever `ssh` accepts.
    pub ssh: String,
    /// What the balancer calls it, by group; a port where it is not the group's.
    pub targets: BTreeMap<GroupName, Vec<TargetSpec>>,
    /// Its availability zone.
    pub zone: Option<Zone>,
    /// Words of the team's own, to select it by.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// One entry of `server.target`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TargetSpec {
    /// Instance id or address.
    pub id: TargetId,
    /// Only this port; without one every port that the balancer knows for the id.
    pub port: Option<u16>,
}

/// `[watchdog]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchdog {
    /// Between two looks.
    pub interval: Duration,
    /// So many failures in a row before it heals.
    pub strikes: u32,
    /// So many heals of one service within `window`, then a person is called.
    pub heals: u32,
    /// For so long a heal is remembered.
    pub window: Duration,
    /// Run after a heal; nothing where it is empty.
    pub on_heal: Vec<String>,
    /// Run when healing a service is given up; nothing where it is empty.
    pub on_give_up: Vec<String>,
    /// Where metrics are written for Prometheus' node exporter.
    pub textfile: Option<String>,
}

impl Watchdog {
    /// The numbers by which it counts.
    #[must_use]
    pub fn rules(&self) -> crate::fleet::strikes::Rules {
        crate::fleet::strikes::Rules {
            interval: self.interval,
            strikes: self.strikes,
            heals: self.heals,
            window: self.window,
        }
    }
}

/// `[measure]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What is asked, through the balancer.
    pub url: String,
    /// Requests per second.
    pub rate: f64,
    /// No answer by then counts as reached nowhere.
    pub timeout: Duration,
}

impl Fleet {
    /// The server of that name.
    #[must_use]
    pub fn server(&self, name: &ServerName) -> Option<&Server> {
        self.servers.iter().find(|server| &server.name == name)
    }

    /// The group of that name.
    #[must_use]
    pub fn group(&self, name: &GroupName) -> Option<&Group> {
        self.balancer.groups.iter().find(|group| &group.name == name)
    }

    /// The service of that name.
    #[must_use]
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.services.iter().find(|service| &service.name == name)
    }
}
