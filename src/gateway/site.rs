//! What the configuration says, made ready to serve: hosts by name, what their files hold, the queues and numbers that outlive a
//! reload.

use super::gate::{Gate, Turn};
use super::here::{Here, Let};
use super::hold::{Phase, Ticket};
use super::metrics::{HostMetrics, Metrics};
use super::sleep::{
    self,
    machine::{Entered, Sleep},
};
use super::tls;
use crate::fleet::model::{GatewaySpec, HostName, HostSpec};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot, watch};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

/// A host as it is configured now, with what its files hold.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) spec: HostSpec,
    /// How its backend's TLS is spoken.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) waiting_page: Option<Bytes>,
    /// Its sleep as it begins, where it may sleep.
    sleep: Mutex<Option<Sleep>>,
}

/// What of a host outlives a reload.
#[derive(Debug)]
pub(super) struct Standing {
    host: RwLock<Arc<Host>>,
    pub(super) metrics: Arc<HostMetrics>,
    queue: Mutex<Queue>,
    began: Instant,
    /// When the backend last answered anything, in milliseconds since `began`.
    answered: AtomicU64,
    /// When a byte was last carried for somebody, the same way.
    moved: AtomicU64,
    /// Something is to be done for its sleep.
    pub(super) nudge: Notify,
}

#[derive(Debug)]
struct Queue {
    gate: Gate,
    wakers: HashMap<Ticket, oneshot::Sender<Told>>,
    watched: bool,
}

/// What somebody who waits is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Go.
    Go,
    /// The backend cannot be started; not before that.
    No(Duration),
}

/// What somebody who found nobody is to do.
#[derive(Debug)]
pub(super) enum Place {
    Go,
    /// Wait for this.
    Wait(Waiting),
    Full,
    /// The backend cannot be started; not before that.
    No(Duration),
}

/// A place in the queue, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    standing: Arc<Standing>,
    pub(super) ticket: Ticket,
    pub(super) released: oneshot::Receiver<Told>,
    /// Its release was noticed: whoever has that says when it is finished.
    goes: bool,
}

/// One that waited and was released, until it is finished.
#[derive(Debug)]
pub(super) struct Going(Arc<Standing>);

impl Drop for Going {
    fn drop(&mut self) {
        self.0.queue().gate.hold.finished();
    }
}

impl Waiting {
    /// It was released.
    pub(super) fn going(&mut self) -> Going {
        self.goes = true;
        Going(Arc::clone(&self.standing))
    }

    /// Its time is over; it goes all the same where the backend is there by now.
    pub(super) fn hurry(&self) -> bool {
        self.standing.queue().gate.hurry(self.ticket)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut queue = self.standing.queue();
        // Released in the moment in which its client was found to be gone: nobody else would say that it is finished.
        if !queue.gate.hold.leave(self.ticket) && !self.goes {
            queue.gate.hold.finished();
        }
        queue.wakers.remove(&self.ticket);
    }
}

impl Standing {
    fn new(host: Host, metrics: &Metrics) -> Self {
        let standing = Self {
            metrics: metrics.host(host.spec.name.as_str()),
            host: RwLock::new(Arc::new(host)),
            queue: Mutex::new(Queue { gate: Gate::new(), wakers: HashMap::new(), watched: false }),
            began: Instant::now(),
            answered: AtomicU64::new(u64::MAX),
            moved: AtomicU64::new(0),
            nudge: Notify::new(),
        };
        standing.begin_sleep();
        standing
    }

    /// A host that may sleep and did not is looked at from now on; one that did goes on as it is, by the numbers of now.
    fn begin_sleep(&self) {
        let host = self.host();
        let Some(sleep) = host.sleep.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let mut queue = self.queue();
        match &mut queue.gate.sleep {
            Some(known) => known.obey(sleep.rules()),
            None => queue.gate.sleep = Some(sleep),
        }
    }

    pub(super) fn host(&self) -> Arc<Host> {
        Arc::clone(&self.host.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, host: Host) {
        *self.host.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(host);
        self.begin_sleep();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request arrives.
    pub(super) fn arrive(self: &Arc<Self>, now: Instant, limit: usize) -> Place {
        let mut queue = self.queue();
        let turn = queue.gate.arrive(now, limit);
        self.place(&mut queue, turn)
    }

    /// A request that went found nobody.
    pub(super) fn turned_away(self: &Arc<Self>, now: Instant, ticket: Option<Ticket>, limit: usize) -> Place {
        self.metrics.absent.store(1, Ordering::Relaxed);
        let mut queue = self.queue();
        let turn = queue.gate.turned_away(now, ticket, limit);
        if queue.gate.sleep.is_some() {
            self.nudge.notify_one();
        }
        self.place(&mut queue, turn)
    }

    /// A request begins.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> Let {
        let mut queue = self.queue();
        let sleeps = queue.gate.sleep.is_some();
        let entered = queue.gate.enter(now);
        drop(queue);
        if entered != Entered::Go {
            self.nudge.notify_one();
        }
        let here = sleeps.then(|| Here::new(Arc::clone(self)));
        match entered {
            Entered::Go | Entered::Wait => Let::In(here),
            Entered::No(after) => Let::No(after),
        }
    }

    /// Somebody's answer began.
    pub(super) fn is_answered(&self, now: Instant) {
        self.moved(now);
        self.sleeping(|sleep| sleep.answered(now));
    }

    /// Somebody who was here left.
    pub(super) fn left(&self, answered: bool, now: Instant) {
        self.sleeping(|sleep| sleep.left(answered, now));
    }

    /// A byte was carried for somebody.
    pub(super) fn moved(&self, now: Instant) {
        self.moved.fetch_max(self.since_began(now), Ordering::Relaxed);
    }

    /// Something with its sleep, if it sleeps; what that leads to is done soon.
    pub(super) fn sleeping<T>(&self, what: impl FnOnce(&mut Sleep) -> T) -> Option<T> {
        let mut queue = self.queue();
        let sleep = queue.gate.sleep.as_mut()?;
        sleep.moved(self.began + Duration::from_millis(self.moved.load(Ordering::Relaxed)));
        let done = what(sleep);
        let waits = sleep.is_waiting_to_be_done();
        drop(queue);
        if waits {
            self.nudge.notify_one();
        }
        Some(done)
    }

    /// How it sleeps from now on; `None` ends that.
    pub(super) fn sleep_by(&self, sleep: Option<Sleep>) {
        self.queue().gate.sleep = sleep;
        self.nudge.notify_one();
    }

    /// Whoever waits is told that the backend cannot be started.
    pub(super) fn send_away(&self, after: Duration) {
        let mut queue = self.queue();
        for ticket in queue.gate.send_away() {
            if let Some(waker) = queue.wakers.remove(&ticket) {
                let _ = waker.send(Told::No(after));
            }
        }
    }

    fn place(self: &Arc<Self>, queue: &mut Queue, turn: Turn) -> Place {
        match turn {
            Turn::Go => Place::Go,
            Turn::Full => Place::Full,
            Turn::Failed(after) => Place::No(after),
            Turn::Wait(ticket) => {
                let (sender, released) = oneshot::channel();
                queue.wakers.insert(ticket, sender);
                Place::Wait(Waiting { standing: Arc::clone(self), ticket, released, goes: false })
            }
        }
    }

    /// Somebody is shown that the backend is absent, and waits elsewhere.
    pub(super) fn asked(&self, now: Instant) {
        self.queue().gate.hold.asked(now);
    }

    /// Whether the backend is known to be absent.
    pub(super) fn is_absent(&self) -> bool {
        self.queue().gate.is_shut()
    }

    /// Whether somebody must begin to watch the backend; whoever is told so does.
    pub(super) fn needs_watching(&self, now: Instant) -> bool {
        let mut queue = self.queue();
        let needed = !queue.watched && queue.gate.hold.is_watched(now);
        queue.watched |= needed;
        needed
    }

    /// The backend accepted a connection.
    pub(super) fn accepted(&self, now: Instant) {
        self.queue().gate.accepted(now);
    }

    /// Its keeper found that it accepts.
    pub(super) fn reached(&self, now: Instant) {
        self.queue().gate.reached(now);
        self.nudge.notify_one();
    }

    /// Lets go who may go, and tells whether the watch is over.
    pub(super) fn release(&self, now: Instant) -> bool {
        let mut queue = self.queue();
        for ticket in queue.gate.release(now) {
            if let Some(waker) = queue.wakers.remove(&ticket) {
                // Whoever has a ticket listens: it leaves the queue before it stops.
                let _ = waker.send(Told::Go);
            }
        }
        let over = !queue.gate.hold.is_watched(now);
        if over {
            queue.watched = false;
            self.metrics.absent.store(0, Ordering::Relaxed);
        }
        over
    }

    /// Whether it is letting go right now.
    pub(super) fn is_releasing(&self) -> bool {
        matches!(self.queue().gate.hold.phase(), Phase::Releasing { .. })
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue().gate.hold.len()
    }

    /// The backend answered.
    pub(super) fn answered(&self, now: Instant) {
        self.answered.store(self.since_began(now), Ordering::Relaxed);
    }

    /// Whether it answered anything within `time`.
    pub(super) fn has_answered_within(&self, time: Duration, now: Instant) -> bool {
        let last = self.answered.load(Ordering::Relaxed);
        last != u64::MAX && self.since_began(now).saturating_sub(last) < u64::try_from(time.as_millis()).unwrap_or(0)
    }

    fn since_began(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(0)
    }
}

/// A configuration that serves.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) spec: GatewaySpec,
    hosts: HashMap<HostName, Arc<Standing>>,
    pub(super) tls: Option<Arc<ServerConfig>>,
}

impl Site {
    /// Whom a name means.
    pub(super) fn host(&self, name: &HostName) -> Option<&Arc<Standing>> {
        self.hosts.get(name)
    }
}

/// Whether a gateway goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It does.
    No,
    /// Another process has its listeners: whoever asks for its health means that one.
    HandedOver,
    /// It is being stopped.
    Stopping,
}

/// Everything that the threads share.
#[derive(Debug)]
pub(super) struct Shared {
    site: RwLock<Arc<Site>>,
    pub(super) metrics: Arc<Metrics>,
    /// Health says 503 because a signal asked for it.
    pub(super) draining: AtomicBool,
    /// Which drain files are there, as it was last looked.
    drained: RwLock<Vec<String>>,
    /// Whether and why nothing new is taken any more.
    pub(super) leaving: watch::Sender<Leaving>,
    /// Another configuration is used.
    pub(super) reloaded: watch::Sender<u64>,
}

/// A configuration whose files were read, before anything of it is used.
pub(super) struct Prepared {
    spec: GatewaySpec,
    hosts: Vec<Host>,
    tls: Option<Arc<ServerConfig>>,
}

impl Prepared {
    pub(super) fn spec(&self) -> &GatewaySpec {
        &self.spec
    }
}

/// Reads everything that the configuration names.
///
/// # Errors
/// Every file that cannot be used, with the reason.
pub(super) fn prepare(spec: GatewaySpec) -> Result<Prepared, Vec<String>> {
    let mut wrong = Vec::new();
    let mut hosts = Vec::new();
    for host in &spec.hosts {
        let tls = if host.backend.tls {
            tls::client(host).map(Some).unwrap_or_else(|why| {
                wrong.push(format!("gateway.host.{}: {why}", host.name));
                None
            })
        } else {
            None
        };
        let waiting_page = host.waiting_page.as_deref().and_then(|path| match std::fs::read(Path::new(path)) {
            Ok(page) => Some(Bytes::from(page)),
            Err(error) => {
                wrong.push(format!("gateway.host.{}.waiting_page: {path}: {error}", host.name));
                None
            }
        });
        let sleep = Mutex::new(sleep::begin(spec.sleep.as_ref(), host).unwrap_or_else(|why| {
            wrong.push(why);
            None
        }));
        hosts.push(Host { spec: host.clone(), tls, waiting_page, sleep });
    }
    let tls = if spec.listen_tls.is_empty() {
        None
    } else {
        tls::server(&spec.certificates).map_err(|why| wrong.extend(why)).ok()
    };
    if wrong.is_empty() { Ok(Prepared { spec, hosts, tls }) } else { Err(wrong) }
}

impl Shared {
    pub(super) fn new(prepared: Prepared) -> Self {
        let metrics = Arc::new(Metrics::default());
        let site = assemble(prepared, &HashMap::new(), &metrics);
        Self {
            site: RwLock::new(Arc::new(site)),
            metrics,
            draining: AtomicBool::new(false),
            drained: RwLock::new(Vec::new()),
            leaving: watch::Sender::new(Leaving::No),
            reloaded: watch::Sender::new(0),
        }
    }

    pub(super) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses another configuration from now on. Hosts that keep their name keep their queue.
    pub(super) fn replace(&self, prepared: Prepared) {
        let mut site = self.site.write().unwrap_or_else(PoisonError::into_inner);
        *site = Arc::new(assemble(prepared, &site.hosts, &self.metrics));
        drop(site);
        self.reloaded.send_modify(|count| *count += 1);
    }

    /// Looks whether the drain files are there.
    pub(super) fn look_at_drain_files(&self) {
        let spec = &self.site().spec;
        let files = spec.drain_file.iter().chain(spec.health.iter().filter_map(|health| health.drain_file.as_ref()));
        // What cannot be looked at is not there: a drain is begun by a file that can be seen.
        let found: Vec<String> = files.filter(|path| Path::new(path).exists()).cloned().collect();
        *self.drained.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Whether every health check says 503.
    pub(super) fn is_draining(&self, site: &Site) -> bool {
        self.draining.load(Ordering::Relaxed)
            || *self.leaving.borrow() == Leaving::Stopping
            || self.is_there(site.spec.drain_file.as_ref())
    }

    /// Whether a drain file was there.
    pub(super) fn is_there(&self, file: Option<&String>) -> bool {
        file.is_some_and(|file| self.drained.read().unwrap_or_else(PoisonError::into_inner).contains(file))
    }

    pub(super) fn is_leaving(&self) -> bool {
        *self.leaving.borrow() != Leaving::No
    }
}

fn assemble(prepared: Prepared, old: &HashMap<HostName, Arc<Standing>>, metrics: &Metrics) -> Site {
    let mut hosts = HashMap::new();
    for host in prepared.hosts {
        let name = host.spec.name.clone();
        let aliases = host.spec.aliases.clone();
        // The queue of a host belongs to its own name: an alias that became a host begins anew.
        let known = old.get(&name).filter(|standing| standing.host().spec.name == name);
        let standing = match known {
            Some(standing) => {
                standing.replace(host);
                Arc::clone(standing)
            }
            None => Arc::new(Standing::new(host, metrics)),
        };
        hosts.extend(aliases.into_iter().map(|alias| (alias, Arc::clone(&standing))));
        hosts.insert(name, standing);
    }
    Site { spec: prepared.spec, hosts, tls: prepared.tls }
}
