//! One thread of the gateway: it accepts, serves and keeps its own connections to backends.

use super::exchange::Peer;
use super::metrics::Turned;
use super::serve;
use super::site::{Leaving, Shared, Standing};
use super::upstream::{Pool, tuned};
use std::cell::{Cell, RefCell};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// What a thread has.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Pool,
    seats: RefCell<Vec<Rc<Place>>>,
}

#[derive(Debug)]
struct Place {
    /// Since when nothing happens on it, if so.
    idle: Cell<Option<Instant>>,
    up: Notify,
    /// Where it stands among the seats.
    at: Cell<usize>,
}

/// A connection's place, which it may have to give up while it does nothing.
pub(super) struct Seat {
    place: Rc<Place>,
    worker: Rc<Worker>,
}

impl Seat {
    /// Nothing happens from now on, unless nothing did already.
    pub(super) fn idles(&self) {
        if self.place.idle.get().is_none() {
            self.place.idle.set(Some(Instant::now()));
        }
    }

    /// A request is under way.
    pub(super) fn works(&self) {
        self.place.idle.set(None);
    }

    /// Waits until the place is needed for somebody else.
    pub(super) async fn given_up(&self) {
        self.place.up.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.worker.seats.borrow_mut();
        let at = self.place.at.get();
        seats.swap_remove(at);
        if let Some(moved) = seats.get(at) {
            moved.at.set(at);
        }
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Rc<Self> {
        Rc::new(Self { shared, pool: Pool::default(), seats: RefCell::new(Vec::new()) })
    }

    /// A place for one more connection.
    pub(super) fn seat(self: &Rc<Self>) -> Seat {
        let mut seats = self.seats.borrow_mut();
        let place = Rc::new(Place { idle: Cell::new(None), up: Notify::new(), at: Cell::new(seats.len()) });
        seats.push(Rc::clone(&place));
        Seat { place, worker: Rc::clone(self) }
    }

    /// Looks for an absent backend from this thread.
    pub(super) fn watch(self: &Rc<Self>, standing: Arc<Standing>) {
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move { worker.pool.watch(standing).await });
    }

    /// Makes room: those that did nothing for the longest time go first. Tells whether there was any.
    fn make_room(&self) -> bool {
        let seats = self.seats.borrow();
        let mut idle: Vec<&Rc<Place>> = seats.iter().filter(|place| place.idle.get().is_some()).collect();
        // Some at once, so that a flood does not sort all of them for each connection.
        let count = (idle.len() / 64).max(1).min(idle.len());
        idle.sort_unstable_by_key(|place| place.idle.get());
        for place in idle.iter().take(count) {
            // Not idle twice: whoever is told once is on its way.
            place.idle.set(None);
            place.up.notify_one();
        }
        count > 0
    }

    /// Accepts until the gateway leaves.
    async fn accept(self: Rc<Self>, listener: tokio::net::TcpListener, tls: bool, files: usize) {
        let mut leaving = self.shared.leaving.subscribe();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = leaving.wait_for(|leaving| *leaving != Leaving::No) => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, address)) => {
                    let limit = self.shared.site().spec.connections.min(files);
                    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                    if self.shared.metrics.connections.get() >= limit && !self.make_room() {
                        self.shared.metrics.turned_away(Turned::Evicted);
                        continue;
                    }
                    tuned(&socket);
                    // What has no end here any more is found out by whoever reads from it.
                    let local = socket.local_addr().unwrap_or(address);
                    let peer = Peer { address, local, tls };
                    tokio::task::spawn_local(serve::connection(socket, peer, Rc::clone(&self)));
                }
                Err(_) => {
                    // Out of files, or a client that was gone before it was accepted.
                    self.make_room();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
}

/// Where connections come from: a socket that several threads share, and whether TLS is spoken there.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) socket: TcpListener,
    pub(super) tls: bool,
}

/// Serves on this thread until `over` says so. `ready` is told once whether it can.
pub(super) fn run(
    shared: &Arc<Shared>,
    doors: Vec<Door>,
    files: usize,
    mut over: watch::Receiver<bool>,
    ready: &mpsc::Sender<std::io::Result<()>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let worker = Worker::new(Arc::clone(shared));
        for door in doors {
            match tokio::net::TcpListener::from_std(door.socket) {
                Ok(listener) => drop(tokio::task::spawn_local(Rc::clone(&worker).accept(listener, door.tls, files))),
                Err(error) => return drop(ready.send(Err(error))),
            }
        }
        drop(ready.send(Ok(())));
        let sweep = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let site = worker.shared.site();
                worker.pool.sweep(|name| site.host(name).map(|standing| standing.host().spec.reuse), Instant::now());
            }
        };
        tokio::select! {
            () = sweep => {}
            _ = over.wait_for(|over| *over) => {}
        }
    });
}
