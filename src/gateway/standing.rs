//! A host while it is served: how it is configured now, and what of it outlives a reload. Who waits, and whether its backend sleeps,
//! is decided by its gate, here behind one lock and with those who are woken.

use super::gate::{Gate, Turn};
use super::here::{Here, Let};
use super::hold::{Phase, Ticket};
use super::metrics::{HostMetrics, Metrics};
use super::sleep::machine::{Entered, Sleep};
use crate::fleet::model::HostSpec;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio_rustls::rustls::ClientConfig;

/// A host as it is configured now, with what its files hold.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) spec: HostSpec,
    /// How its backend's TLS is spoken.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) waiting_page: Option<Bytes>,
    /// Its sleep as it begins, where it may sleep.
    pub(super) sleep: Mutex<Option<Sleep>>,
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
    /// How many went without having waited, and are not finished.
    claims: AtomicUsize,
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
    /// Go; it counts as long as this lives.
    Go(Claim),
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

/// One that went at once, until it is finished.
#[derive(Debug)]
pub(super) struct Claim(Arc<Standing>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.claims.fetch_sub(1, Ordering::Release);
    }
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
    pub(super) fn new(host: Host, metrics: &Metrics) -> Self {
        let standing = Self {
            metrics: metrics.host(host.spec.name.as_str()),
            host: RwLock::new(Arc::new(host)),
            queue: Mutex::new(Queue { gate: Gate::new(), wakers: HashMap::new(), watched: false }),
            began: Instant::now(),
            answered: AtomicU64::new(u64::MAX),
            moved: AtomicU64::new(0),
            claims: AtomicUsize::new(0),
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

    pub(super) fn replace(&self, host: Host) {
        *self.host.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(host);
        self.begin_sleep();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody goes now. Counted behind the lock that closes the gate: whoever closes it sees everybody who has passed.
    fn claim(self: &Arc<Self>, _behind: &Queue) -> Claim {
        self.claims.fetch_add(1, Ordering::Relaxed);
        Claim(Arc::clone(self))
    }

    /// A request goes at once, where the backend is not known to be absent.
    pub(super) fn pass(self: &Arc<Self>) -> Option<Claim> {
        let queue = self.queue();
        (!queue.gate.is_shut()).then(|| self.claim(&queue))
    }

    /// Closes the gate on purpose, or opens it again.
    pub(super) fn close(&self, closed: bool) {
        self.queue().gate.close(closed);
    }

    /// How many were let through to the backend and are not finished; tunnels are not among them.
    pub(super) fn forwarded(&self) -> usize {
        let waited = self.queue().gate.hold.under_way();
        waited + self.claims.load(Ordering::Acquire)
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
            Turn::Go => Place::Go(self.claim(queue)),
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
