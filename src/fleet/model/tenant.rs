//! Tenants on Kubernetes as their files describe them, after validation: what they share, and whose backend sleeps how.

use super::gateway::{HostName, Network};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// All of them, by the name of their file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenants {
    /// `tenants/defaults.toml`.
    pub shared: Shared,
    /// The others, in the order of their names.
    pub tenants: Vec<Tenant>,
}

/// Who measures, and who scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The edge is scraped, an adapter shows that to the HPA.
    K1,
    /// The gateway is the HPA's external metric.
    K2,
    /// The same, and the gateway wakes by itself what is held for.
    K2Plus,
    /// The gateway alone, no HPA.
    K3,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::K1, Self::K2, Self::K2Plus, Self::K3];

    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::K1 => "k1",
            Self::K2 => "k2",
            Self::K2Plus => "k2+",
            Self::K3 => "k3",
        }
    }

    /// Reads it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == text)
    }
}

/// What every tenant shares.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// How it is done.
    pub mode: Mode,
    /// Who waits in front.
    pub clients: ClientSpec,
    /// The proxy in front (K1).
    pub edge: EdgeSpec,
    /// Who asks it (K1).
    pub prometheus: PrometheusSpec,
    /// Who shows that to the HPA (K1).
    pub adapter: AdapterSpec,
    /// The gateway (every other mode).
    pub waker: WakerSpec,
    /// The cluster.
    pub cluster: ClusterSpec,
    /// The alarms.
    pub alarms: AlarmSpec,
    /// What must not sleep.
    pub never: Vec<Never>,
}

/// `[clients]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSpec {
    /// How long the balancer before the edge waits for a byte.
    pub balancer: Duration,
    /// How long the least patient client waits.
    pub patience: Duration,
}

/// `[edge]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeSpec {
    /// Caddy's version.
    pub version: Version,
    /// Where it listens.
    pub port: u16,
    /// Whether TLS is spoken there.
    pub tls: bool,
    /// Through whom alone a client's address is read from a header.
    pub trusted_proxies: Vec<Network>,
    /// `HOST:PORT` of each replica's metrics.
    pub metrics: Vec<String>,
    /// Between two tries.
    pub retry: Duration,
    /// How long a try waits for a connection.
    pub dial: Duration,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// How long a restart takes.
    pub restart: Duration,
}

/// `[prometheus]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusSpec {
    /// Between two scrapes.
    pub scrape: Duration,
    /// How long one may take.
    pub timeout: Duration,
    /// Between two evaluations.
    pub evaluate: Duration,
    /// Of the rate.
    pub window: Duration,
    /// How long a request that was seen is shown.
    pub latch: Duration,
}

/// `[adapter]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSpec {
    /// How long a question takes.
    pub query: Duration,
    /// How often names are looked up.
    pub relist: Duration,
    /// How long a name is remembered.
    pub max_age: Duration,
}

/// `[gateway]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakerSpec {
    /// What its pods run.
    pub image: Option<String>,
    /// Where they run.
    pub namespace: String,
    /// Through whom alone a client's address is read from a header.
    pub trusted_proxies: Vec<Network>,
    /// Between two looks.
    pub interval: Duration,
    /// How long a look waits.
    pub connect: Duration,
    /// How long a request is shown after its end.
    pub latch: Duration,
}

/// `[cluster]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Of the control plane.
    pub version: Version,
    /// The HPA's period.
    pub sync: Duration,
}

/// `[alarms]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlarmSpec {
    /// `for` of what is called stuck.
    pub stuck: Duration,
    /// `for` of an HPA without its metric.
    pub inactive: Duration,
    /// How often kube-state-metrics is asked.
    pub scrape: Duration,
}

/// `[[never]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Never {
    /// Which.
    pub workload: Workload,
    /// Why.
    pub reason: String,
}

/// One tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its file's name without `.toml`.
    pub name: String,
    /// Whether its backend may sleep.
    pub sleep: bool,
    /// Never empty; its metrics are called by the first.
    pub hosts: Vec<HostName>,
    /// Where its objects are.
    pub namespace: String,
    /// What is scaled.
    pub workload: Workload,
    /// How the edge reaches it.
    pub service: String,
    /// Where that listens.
    pub port: u16,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Quiet for so long, and it sleeps.
    pub after: Duration,
    /// How long a request waits.
    pub hold: Duration,
    /// The p99 of a start.
    pub start: Duration,
    /// What the edge answers itself.
    pub probes: Vec<ProbeSpec>,
    /// Who may ask; `None` is everybody.
    pub allow: Option<Vec<Network>>,
}

impl Tenant {
    /// How many probes come in a second.
    #[must_use]
    pub fn probe_rate(&self) -> f64 {
        self.probes.iter().map(|probe| 1.0 / probe.every.as_secs_f64()).sum()
    }

    /// The least rate, in requests a second, that probes alone cannot reach: of each as many as fit into the window at worst, over
    /// what Prometheus sees of the window at least (`rate()` extrapolates over one scrape at either end).
    #[must_use]
    pub fn floor(&self, window: Duration, scrape: Duration) -> f64 {
        let seen = window.saturating_sub(scrape * 2).max(scrape).as_secs_f64();
        let most = |probe: &ProbeSpec| (window.as_secs_f64() / probe.every.as_secs_f64()).floor() + 1.0;
        let floor: f64 = self.probes.iter().map(|probe| most(probe) / seen).sum();
        // Written with four digits, and never below what it must stand above.
        if self.probes.is_empty() { 0.0 } else { (floor * 10_000.0).ceil() / 10_000.0 }
    }
}

/// A check that the edge answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSpec {
    /// What is asked for.
    pub path: String,
    /// How often.
    pub every: Duration,
}

/// What Kubernetes scales.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

impl Workload {
    /// Reads `deployment/NAME`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once('/')?;
        Some(Self { kind: WorkloadKind::parse(kind)?, name: name.to_owned() })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.name)
    }
}

/// A workload with its namespace: `tenant-example/deployment/app-backend`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterWorkload {
    /// Where it is.
    pub namespace: String,
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

impl ClusterWorkload {
    /// Reads it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, rest) = text.split_once('/')?;
        let Workload { kind, name } = Workload::parse(rest)?;
        Some(Self { namespace: namespace.to_owned(), kind, name })
    }
}

impl fmt::Display for ClusterWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.kind.word(), self.name)
    }
}

/// The kinds that have a scale and keep nothing in their pods' names that a wake would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
}

impl WorkloadKind {
    /// Reads it as `kubectl` would take it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "deployment" => Some(Self::Deployment),
            "statefulset" => Some(Self::StatefulSet),
            _ => None,
        }
    }

    /// As it is written, and in the names of metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::StatefulSet => "statefulset",
        }
    }

    /// As manifests name it.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }
}

/// Two or three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Reads `1.37`, `v2.11.7`, and what stands behind the numbers is left.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let numbers: Vec<u32> = text[..end].split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        match numbers[..] {
            [major, minor] => Some(Self(major, minor, 0)),
            [major, minor, patch] => Some(Self(major, minor, patch)),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}")?;
        if *patch > 0 { write!(f, ".{patch}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(every: &[u64]) -> Tenant {
        let probes = every.iter().map(|s| ProbeSpec { path: "/".into(), every: Duration::from_secs(*s) }).collect();
        let time = Duration::from_secs(1);
        Tenant {
            name: "t".into(),
            sleep: true,
            hosts: vec![HostName::parse("a").expect("a host")],
            namespace: "n".into(),
            workload: Workload::parse("deployment/w").expect("a workload"),
            service: "w".into(),
            port: 1,
            tls: false,
            after: time,
            hold: time,
            start: time,
            probes,
            allow: None,
        }
    }

    #[test]
    fn the_floor_is_above_every_count_of_probes_that_fits_into_a_window() {
        let (window, scrape) = (Duration::from_secs(120), Duration::from_secs(5));
        assert_eq!(tenant(&[]).floor(window, scrape), 0.0);
        for every in 1..=300 {
            let one = tenant(&[every]);
            // So many fit into what lies between the first and the last sample of the window.
            let within = |seconds: u64| (seconds / every + 1) as f64;
            let seen = (110..=120).map(|seconds| within(seconds) / seconds as f64);
            let worst = seen.fold(0.0, f64::max);
            assert!(one.floor(window, scrape) >= worst, "every {every}s");
            assert!(one.floor(window, scrape) > one.probe_rate(), "every {every}s");
        }
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        assert!(Version::parse("2.9.1") < Version::parse("v2.11.2"));
        assert_eq!(Version::parse("1.37.0+k3s1"), Some(Version(1, 37, 0)));
        assert_eq!(Version::parse("2"), None);
        assert_eq!(Version(1, 37, 0).to_string(), "1.37");
    }
}
