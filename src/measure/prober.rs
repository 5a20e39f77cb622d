//! The prober: requests at a fixed rate that never waits for answers, and what became of each of them.
//!
//! It decides nothing: it counts, and whoever listens draws conclusions.

use super::classify::{self, Class, Outcome, Who};
use super::connect::{Connections, Exchange, Site};
use crate::clock::{Clock, Stamp};
use crate::event::{Requests, seconds};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST, SERVER, USER_AGENT};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// So many losses are kept with their moments.
const KEPT: usize = 100;
/// The least time between two requests on the wall; a rate beyond it is not kept.
const CLOSEST: Duration = Duration::from_micros(100);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The URL; its host is what stands in the `Host` header and in the certificate.
    pub url: String,
    /// Where to connect to, in turn; the host's own addresses, resolved each time, where none are named.
    pub addresses: Option<Vec<SocketAddr>>,
}

/// How the prober asks.
#[derive(Debug, Clone, PartialEq)]
pub struct ProberOptions {
    /// Requests per second of fleet time.
    pub rate: f64,
    /// No whole answer by then counts as reached nowhere; fleet time.
    pub timeout: Duration,
    /// Paths that answer 503 on purpose while their server is drained.
    pub health_paths: Vec<String>,
}

/// A request that was lost.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// When it was sent.
    #[serde(serialize_with = "in_seconds")]
    pub at: Stamp,
    /// How it was lost.
    #[serde(serialize_with = "in_words")]
    pub class: Class,
    /// The status or the error.
    pub what: String,
    /// To which address.
    pub address: Option<SocketAddr>,
}

fn in_words<S: serde::Serializer>(class: &Class, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *class == Class::CutShort { "cut_short" } else { "nowhere" })
}

fn in_seconds<S: serde::Serializer>(at: &Stamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds(at.since_start()))
}

#[derive(Debug)]
struct Shared {
    connections: Connections,
    addresses: Option<Vec<SocketAddr>>,
    next: AtomicUsize,
    timeout: Duration,
    health: bool,
    counts: watch::Sender<Requests>,
    lost: watch::Sender<u64>,
    mark: Mutex<Requests>,
    marked: Mutex<Option<Stamp>>,
    losses: Mutex<Vec<Loss>>,
    clock: Clock,
}

/// A running prober; dropping it gives the outstanding requests up.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Prober {
    /// Begins to send.
    ///
    /// # Errors
    /// When the URL cannot be asked, or no root certificates are found for an https one.
    pub fn start(target: Target, options: &ProberOptions, clock: Clock) -> io::Result<Self> {
        let site = Site::parse(&target.url)?;
        let path = site.path.split('?').next().unwrap_or_default().to_owned();
        let shared = Arc::new(Shared {
            connections: Connections::new(site)?,
            addresses: target.addresses.filter(|addresses| !addresses.is_empty()),
            next: AtomicUsize::new(0),
            timeout: clock.wall(options.timeout),
            health: options.health_paths.contains(&path),
            counts: watch::channel(Requests::default()).0,
            lost: watch::channel(0).0,
            mark: Mutex::default(),
            marked: Mutex::default(),
            losses: Mutex::default(),
            clock,
        });
        let (stop, stopped) = watch::channel(false);
        let gap = clock.wall(Duration::from_secs_f64(1.0 / options.rate.max(0.001))).max(CLOSEST);
        let task = tokio::spawn(send_all(Arc::clone(&shared), gap, stopped));
        Ok(Self { shared, stop, task: Some(task) })
    }

    /// The counts, as they grow.
    #[must_use]
    pub fn counts(&self) -> watch::Receiver<Requests> {
        self.shared.counts.subscribe()
    }

    /// How many were lost since the mark, as they grow.
    #[must_use]
    pub fn lost(&self) -> watch::Receiver<u64> {
        self.shared.lost.subscribe()
    }

    /// Ends the baseline: what is lost from now on is the deploy's. The baseline's counts.
    pub fn mark(&self) -> Requests {
        let counts = *self.shared.counts.borrow();
        *lock(&self.shared.mark) = counts;
        *lock(&self.shared.marked) = Some(self.shared.clock.now());
        self.shared.lost.send_replace(0);
        counts
    }

    /// The counts up to the mark.
    #[must_use]
    pub fn baseline(&self) -> Requests {
        *lock(&self.shared.mark)
    }

    /// The counts since the mark.
    #[must_use]
    pub fn since_mark(&self) -> Requests {
        classify::since(*self.shared.counts.borrow(), self.baseline())
    }

    /// The first hundred losses.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        lock(&self.shared.losses).clone()
    }

    /// Sends no more, waits for what is outstanding, and says what became of all.
    pub async fn stop(mut self) -> Requests {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take() {
            // A task that panicked has counted what it counted.
            drop(task.await);
        }
        *self.shared.counts.borrow()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn send_all(shared: Arc<Shared>, gap: Duration, mut stopped: watch::Receiver<bool>) {
    let mut outstanding = JoinSet::new();
    let start = tokio::time::Instant::now();
    let mut due = start;
    let mut number: u32 = 0;
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            () = tokio::time::sleep_until(due) => {}
        }
        outstanding.spawn(one(Arc::clone(&shared), number.is_multiple_of(2)));
        number = number.wrapping_add(1);
        due += gap;
        while outstanding.try_join_next().is_some() {}
    }
    while outstanding.join_next().await.is_some() {}
}

async fn one(shared: Arc<Shared>, reuse: bool) {
    let at = shared.clock.now();
    let mut address = None;
    let asked = tokio::time::timeout(shared.timeout, ask(&shared, reuse, &mut address)).await;
    let (outcome, what) = match asked {
        Ok(answered) => answered,
        Err(_) => (Outcome::NoAnswer, "no answer in time".to_owned()),
    };
    shared.note(at, outcome, what, address);
}

/// One request: the outcome, and in words what was seen.
async fn ask(shared: &Shared, reuse: bool, to: &mut Option<SocketAddr>) -> (Outcome, String) {
    let site = shared.connections.site();
    let address = match shared.address().await {
        Ok(address) => address,
        Err(why) => return (Outcome::NoAnswer, why),
    };
    *to = Some(address);
    let mut request =
        Request::builder().uri(&site.path).header(HOST, &site.authority).header(USER_AGENT, "handover-prober");
    if !reuse {
        request = request.header(CONNECTION, "close");
    }
    let request = match request.body(Empty::<Bytes>::new()) {
        Ok(request) => request,
        Err(error) => return (Outcome::NoAnswer, error.to_string()),
    };
    let Exchange { response, sender } = match shared.connections.send(address, request, reuse).await {
        Ok(exchange) => exchange,
        Err(why) => return (Outcome::NoAnswer, why),
    };
    let status = response.status().as_u16();
    let who = Who::by_server_header(response.headers().get(SERVER).map(|value| value.as_bytes()));
    let mut body = response.into_body();
    let mut whole = true;
    while let Some(frame) = body.frame().await {
        whole &= frame.is_ok();
    }
    if reuse && whole {
        shared.connections.keep(address, sender);
    }
    let what = if whole { status.to_string() } else { format!("{status}, and the body broke off") };
    (Outcome::Answer { status, who, health: shared.health, whole }, what)
}

impl Shared {
    async fn address(&self) -> Result<SocketAddr, String> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) / 2;
        let resolved;
        let addresses = match &self.addresses {
            Some(addresses) => addresses,
            None => {
                let site = self.connections.site();
                let found = tokio::net::lookup_host((site.host.as_str(), site.port)).await;
                resolved =
                    found.map_err(|error| format!("{} does not resolve: {error}", site.host))?.collect::<Vec<_>>();
                &resolved
            }
        };
        // Two requests to each in turn, so that every address gets both kept and fresh connections.
        addresses.get(turn % addresses.len().max(1)).copied().ok_or_else(|| "the host has no address".to_owned())
    }

    fn note(&self, at: Stamp, outcome: Outcome, what: String, address: Option<SocketAddr>) {
        let class = classify::classify(outcome);
        self.counts.send_modify(|counts| classify::count(counts, class));
        let marked = *lock(&self.marked);
        if marked.is_some_and(|marked| at < marked) {
            // Sent before the deploy began: the network's own noise, however late it shows.
            classify::count(&mut lock(&self.mark), class);
            return;
        }
        if !matches!(class, Class::Nowhere | Class::CutShort) {
            return;
        }
        self.lost.send_modify(|lost| *lost += 1);
        let mut losses = lock(&self.losses);
        if losses.len() < KEPT {
            losses.push(Loss { at, class, what, address });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
