//! What is counted, and how Prometheus reads it: every series is there from the start, labels are configured names only, and a
//! gauge moves by guards alone, so that whatever ends a request also takes it off.

mod sleep;
mod table;

pub(super) use sleep::{SleepFigures, word};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use table::TABLE;

/// Upper ends of the buckets, in milliseconds.
const BUCKETS: [u64; 14] = [1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000];

/// What became of a request to a configured host. Each gets exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The backend's answer, below 500, went out whole.
    Served,
    /// The backend's own 5xx went out whole.
    AppError,
    /// The answer began and broke off.
    CutShort,
    /// The client went away while it was forwarded or answered.
    ClientGone,
    /// The client went away while it waited; nothing was forwarded.
    LeftWaiting,
    /// The connection to the backend broke before an answer.
    Unreachable,
    /// The backend did not begin its answer in time.
    TimedOut,
    /// The hold ended.
    HoldEnded,
    /// Too many were held.
    HoldFull,
    /// The backend could not be started.
    WakeFailed,
    /// A browser was shown the waiting page.
    WaitingPage,
    /// The gateway said no: not allowed, too long, malformed.
    Refused,
}

impl Outcome {
    pub(super) const ALL: [Self; 12] = [
        Self::Served,
        Self::AppError,
        Self::CutShort,
        Self::ClientGone,
        Self::LeftWaiting,
        Self::Unreachable,
        Self::TimedOut,
        Self::HoldEnded,
        Self::HoldFull,
        Self::WakeFailed,
        Self::WaitingPage,
        Self::Refused,
    ];

    /// Its label.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::AppError => "app_error",
            Self::CutShort => "cut_short",
            Self::ClientGone => "client_gone",
            Self::LeftWaiting => "left_waiting",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::HoldEnded => "hold_ended",
            Self::HoldFull => "hold_full",
            Self::WakeFailed => "wake_failed",
            Self::WaitingPage => "waiting_page",
            Self::Refused => "refused",
        }
    }
}

/// Why a request got no further than the door: it belongs to no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    /// It was no request.
    Malformed,
    /// Its host is not configured.
    UnknownHost,
    /// Its head did not come in time.
    Slow,
    /// The connection was given up to make room.
    Evicted,
    /// The TLS handshake failed.
    Handshake,
}

impl Turned {
    const ALL: [Self; 5] = [Self::Malformed, Self::UnknownHost, Self::Slow, Self::Evicted, Self::Handshake];

    fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownHost => "unknown_host",
            Self::Slow => "slow",
            Self::Evicted => "evicted",
            Self::Handshake => "handshake",
        }
    }
}

/// How many there are at a moment.
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicI64);

impl Gauge {
    pub(super) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of something that a gauge counts, for as long as it lives.
#[derive(Debug)]
pub(super) struct Counted<T: AsRef<Gauge>>(T);

impl<T: AsRef<Gauge>> Counted<T> {
    pub(super) fn new(of: T) -> Self {
        of.as_ref().0.fetch_add(1, Ordering::Relaxed);
        Self(of)
    }
}

impl<T: AsRef<Gauge>> Drop for Counted<T> {
    fn drop(&mut self) {
        self.0.as_ref().0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which gauge of a host.
macro_rules! gauge_of {
    ($($(#[$doc:meta])* $name:ident, $owner:ident, $field:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name(pub(super) Arc<$owner>);
        impl AsRef<Gauge> for $name {
            fn as_ref(&self) -> &Gauge {
                &self.0.$field
            }
        }
    )+};
}

gauge_of! {
    /// Requests that wait.
    Held, HostMetrics, held;
    /// Requests that are forwarded or answered.
    Active, HostMetrics, active;
    /// Connections that became something else.
    Tunnel, HostMetrics, tunnels;
    /// Connections of clients.
    Connections, Metrics, connections;
    /// Requests that wait, of all hosts.
    HeldInAll, Metrics, held;
}

/// How long something took.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    pub(super) fn take(&self, took: Duration) {
        let millis = u64::try_from(took.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        if let Some(at) = BUCKETS.iter().position(|end| millis <= *end) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(0), Ordering::Relaxed);
    }

    fn write(&self, name: &str, host: &str, page: &mut String) {
        let mut sum = 0;
        for (end, bucket) in BUCKETS.iter().zip(&self.buckets) {
            sum += bucket.load(Ordering::Relaxed);
            let seconds = *end as f64 / 1000.0;
            let _ = writeln!(page, "{name}_bucket{{host=\"{host}\",le=\"{seconds}\"}} {sum}");
        }
        let count = self.count.load(Ordering::Relaxed).max(sum);
        let seconds = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(page, "{name}_bucket{{host=\"{host}\",le=\"+Inf\"}} {count}");
        let _ = writeln!(page, "{name}_sum{{host=\"{host}\"}} {seconds}");
        let _ = writeln!(page, "{name}_count{{host=\"{host}\"}} {count}");
    }
}

/// One host's numbers. They outlive its configuration: a reload that keeps the name keeps them.
#[derive(Debug)]
pub(super) struct HostMetrics {
    name: String,
    pub(super) held: Gauge,
    pub(super) active: Gauge,
    pub(super) tunnels: Gauge,
    probes: AtomicU64,
    /// 1 while the backend is known to be absent.
    pub(super) absent: AtomicU64,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Wakes through the cluster's API: those that came about, and calls that failed.
    scaled: [AtomicU64; 2],
    pub(super) took: Histogram,
    pub(super) waited: Histogram,
    /// Where its backend may sleep.
    pub(super) sleep: Mutex<Option<SleepFigures>>,
}

impl HostMetrics {
    pub(super) fn outcome(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn scaled(&self, well: bool) {
        self.scaled[usize::from(!well)].fetch_add(1, Ordering::Relaxed);
    }

    fn in_flight(&self) -> i64 {
        self.held.get() + self.active.get() + self.tunnels.get()
    }

    /// Ended ones; who was refused at the door needs no backend.
    fn let_in(&self) -> u64 {
        let all = Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Refused);
        all.map(|outcome| self.outcomes[outcome as usize].load(Ordering::Relaxed)).sum()
    }

    pub(super) fn probe(&self) {
        self.probes.fetch_add(1, Ordering::Relaxed);
    }
}

/// All numbers of a gateway.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    hosts: Mutex<Vec<Arc<HostMetrics>>>,
    pub(super) held: Gauge,
    pub(super) connections: Gauge,
    turned: [AtomicU64; Turned::ALL.len()],
    health: [AtomicU64; 2],
    reloads: [AtomicU64; 2],
}

impl Metrics {
    /// The numbers of a host, those it has already if it was there before.
    pub(super) fn host(&self, name: &str) -> Arc<HostMetrics> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.iter().find(|host| host.name == name) {
            return Arc::clone(known);
        }
        let host = Arc::new(HostMetrics {
            name: name.to_owned(),
            held: Gauge::default(),
            active: Gauge::default(),
            tunnels: Gauge::default(),
            probes: AtomicU64::new(0),
            absent: AtomicU64::new(0),
            outcomes: Default::default(),
            scaled: Default::default(),
            took: Histogram::default(),
            waited: Histogram::default(),
            sleep: Mutex::new(None),
        });
        hosts.push(Arc::clone(&host));
        host
    }

    pub(super) fn turned_away(&self, why: Turned) {
        self.turned[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn health(&self, well: bool) {
        self.health[usize::from(!well)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reload(&self, taken: bool) {
        self.reloads[usize::from(!taken)].fetch_add(1, Ordering::Relaxed);
    }

    /// Of every host that was ever configured: its name, what is under way, and how many requests it has had that were let in.
    pub(super) fn use_of_hosts(&self) -> Vec<(String, i64, u64)> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.iter().map(|host| (host.name.clone(), host.in_flight(), host.let_in())).collect()
    }

    /// How many requests are under way in any way.
    pub(super) fn under_way(&self) -> i64 {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.iter().map(|host| host.in_flight()).sum()
    }

    /// The page that Prometheus reads.
    pub(super) fn page(&self, draining: bool) -> String {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut page = String::new();
        for (name, kind, _, help) in TABLE {
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            match name.trim_start_matches("handover_gateway_") {
                "turned_away_total" => {
                    for why in Turned::ALL {
                        let count = self.turned[why as usize].load(Ordering::Relaxed);
                        let _ = writeln!(page, "{name}{{reason=\"{}\"}} {count}", why.word());
                    }
                }
                "health_checks_total" => pair(&mut page, name, "status", ["200", "503"], &self.health),
                "reloads_total" => pair(&mut page, name, "result", ["taken", "refused"], &self.reloads),
                "connections" => drop(writeln!(page, "{name} {}", self.connections.get())),
                "draining" => drop(writeln!(page, "{name} {}", u8::from(draining))),
                short => {
                    for host in &hosts {
                        host.write(name, short, &mut page);
                    }
                }
            }
        }
        page
    }
}

fn pair(page: &mut String, name: &str, label: &str, words: [&str; 2], counts: &[AtomicU64; 2]) {
    for (word, count) in words.iter().zip(counts) {
        let _ = writeln!(page, "{name}{{{label}=\"{word}\"}} {}", count.load(Ordering::Relaxed));
    }
}

impl HostMetrics {
    fn write(&self, name: &str, short: &str, page: &mut String) {
        let host = &self.name;
        let value = match short {
            "in_flight" => self.in_flight(),
            "held" => self.held.get(),
            "active" => self.active.get(),
            "tunnels" => self.tunnels.get(),
            "backend_absent" => i64::from(self.absent.load(Ordering::Relaxed) > 0),
            "probes_total" => i64::try_from(self.probes.load(Ordering::Relaxed)).unwrap_or(i64::MAX),
            "request_seconds" => return self.took.write(name, host, page),
            "held_seconds" => return self.waited.write(name, host, page),
            "scaled_total" => {
                for (word, count) in ["well", "failed"].iter().zip(&self.scaled) {
                    let _ =
                        writeln!(page, "{name}{{host=\"{host}\",result=\"{word}\"}} {}", count.load(Ordering::Relaxed));
                }
                return;
            }
            "requests_total" => {
                for outcome in Outcome::ALL {
                    let count = self.outcomes[outcome as usize].load(Ordering::Relaxed);
                    let _ = writeln!(page, "{name}{{host=\"{host}\",outcome=\"{}\"}} {count}", outcome.word());
                }
                return;
            }
            _ => {
                let sleep = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
                return sleep.iter().for_each(|sleep| sleep.write(name, short, host, page));
            }
        };
        let _ = writeln!(page, "{name}{{host=\"{host}\"}} {value}");
    }
}

#[cfg(test)]
mod tests;
