//! A gateway from its start to its end: nothing is bound before everything was read, nothing is let go before somebody else has
//! it.

use super::cluster;
use super::external;
use super::listen::{self, Listener, Predecessor, Purpose};
use super::reload::{self, Files};
use super::scrape;
use super::site::{Leaving, Shared};
use super::sleep::{self, ServerLock};
use super::worker::{self, Door};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, GatewayState, Line, Sink};
use crate::fleet::model::GatewaySpec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Between two looks at what runs and at the drain files.
const LOOK: Duration = Duration::from_millis(200);
/// Files besides connections.
const OTHER_FILES: usize = 128;

/// How a gateway begins.
#[derive(Debug, Clone)]
pub struct Start {
    /// Its configuration.
    pub files: Files,
    /// Whether it takes the listeners over from one that runs.
    pub take_over: bool,
    /// The server lock, for backends that sleep.
    pub lock: Arc<dyn ServerLock>,
}

/// A gateway that runs.
struct Running {
    shared: Arc<Shared>,
    files: Files,
    listeners: Arc<Vec<Listener>>,
    handed: mpsc::Receiver<std::io::Result<()>>,
    sink: Arc<dyn Sink>,
    clock: Clock,
    signals: Signals,
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    drain: Signal,
    undrain: Signal,
}

fn failed(what: impl Into<String>) -> Problem {
    Problem::new(Exit::Failed, what)
}

/// Reads the configuration and everything it names, and nothing else.
///
/// # Errors
/// What is wrong with it.
pub fn check(files: &Files) -> Result<Vec<String>, Problem> {
    reload::read(files).map(|(_, warnings)| warnings).map_err(unusable)
}

fn unusable(why: String) -> Problem {
    Problem::new(Exit::Usage, format!("the gateway's configuration cannot be used\n{}", why.trim_end()))
        .hint("nothing was bound; docs/gateway.md and docs/reference.md describe every key")
}

/// Runs a gateway until it is stopped, or another one took over and everything here is finished.
///
/// # Errors
/// When it cannot begin, or had to cut something short at its end.
pub async fn run(start: Start, sink: Arc<dyn Sink>) -> Result<(), Problem> {
    let clock = Clock::start();
    let (prepared, warnings) = reload::read(&start.files).map_err(unusable)?;
    let signals = Signals::listen()?;
    let spec = prepared.spec().clone();
    let (given, predecessor) = before(&start, spec.control.as_deref())?;
    let listeners = listen::open(&spec, given).map_err(|why| {
        Problem::new(Exit::Refused, why).hint("where a gateway runs already, `--take-over` takes its place")
    })?;
    let files = files_for_connections();
    let shared = Arc::new(Shared::new(prepared));
    tokio::spawn(sleep::keep(Arc::clone(&shared), start.lock, Arc::clone(&sink), clock));
    tokio::spawn(cluster::keep(Arc::clone(&shared), Arc::clone(&sink), clock));
    let (over, ended) = watch::channel(false);
    begin_threads(&spec, &shared, &listeners, files, &ended)?;
    let control =
        spec.control.as_deref().map(|path| listen::control("gateway.control", path)).transpose().map_err(failed)?;
    if let Some(predecessor) = predecessor {
        predecessor.release().map_err(|error| failed(format!("the gateway that ran does not let go: {error}")))?;
    }
    let listeners = Arc::new(listeners);
    let (tell, handed) = mpsc::channel(1);
    tokio::spawn(hand_over(control, Arc::clone(&listeners), tell));
    let mut running = Running { shared, files: start.files, listeners, handed, sink, clock, signals };
    for warning in warnings {
        running.sink.take(Line::new(clock.now(), Event::Warning { server: None, what: warning }));
    }
    running.tell(GatewayState::Serving, where_it_serves(&running.listeners, files));
    let result = running.serve().await;
    let _ = over.send(true);
    result
}

/// Begins the threads, and waits until each of them can serve.
fn begin_threads(
    spec: &GatewaySpec,
    shared: &Arc<Shared>,
    listeners: &[Listener],
    files: usize,
    ended: &watch::Receiver<bool>,
) -> Result<(), Problem> {
    let threads = spec.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (ready, begun) = std::sync::mpsc::channel();
    for number in 0..threads {
        let doors = doors(listeners).map_err(|error| failed(format!("a listener cannot be shared: {error}")))?;
        let (shared, ended, ready) = (Arc::clone(shared), ended.clone(), ready.clone());
        std::thread::Builder::new()
            .name(format!("gateway-{number}"))
            .spawn(move || worker::run(&shared, doors, files, ended, &ready))
            .map_err(|error| failed(format!("no thread: {error}")))?;
    }
    drop(ready);
    for _ in 0..threads {
        begun
            .recv()
            .unwrap_or_else(|gone| Err(std::io::Error::other(gone)))
            .map_err(|error| failed(format!("a thread cannot serve: {error}")))?;
    }
    Ok(())
}

type Before = (Vec<Listener>, Option<Predecessor>);

fn before(start: &Start, control: Option<&str>) -> Result<Before, Problem> {
    if !start.take_over {
        return Ok((Vec::new(), None));
    }
    let Some(path) = control else {
        return Err(Problem::new(Exit::Usage, "--take-over needs `gateway.control`: the socket at which both meet"));
    };
    match listen::ask(path).map_err(|why| Problem::new(Exit::Refused, why))? {
        Some((listeners, predecessor)) => Ok((listeners, Some(predecessor))),
        None => Ok((Vec::new(), None)),
    }
}

fn doors(listeners: &[Listener]) -> std::io::Result<Vec<Door>> {
    let of_clients = listeners.iter().filter(|one| matches!(one.purpose, Purpose::Plain | Purpose::Tls));
    of_clients.map(|one| Ok(Door { socket: one.socket.try_clone()?, tls: one.purpose == Purpose::Tls })).collect()
}

fn where_it_serves(listeners: &[Listener], files: usize) -> String {
    let at = |purpose| {
        let found = listeners.iter().filter(move |one| one.purpose == purpose).map(|one| one.address.to_string());
        found.collect::<Vec<_>>().join(", ")
    };
    let (plain, tls) = (at(Purpose::Plain), at(Purpose::Tls));
    let both = [("http", plain), ("https", tls)];
    let served: Vec<String> =
        both.into_iter().filter(|(_, at)| !at.is_empty()).map(|(what, at)| format!("{what} at {at}")).collect();
    format!("serving {}, metrics at {}; {files} connections at most", served.join(", "), at(Purpose::Metrics))
}

/// How many connections the limit of open files allows, raised as far as it can be.
fn files_for_connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, it stays what it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let now = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    // Most connections wait or are idle: a backend is reached for those that do not, and where no file is left they wait on.
    (now.saturating_sub(OTHER_FILES) / 8 * 7).max(16)
}

impl Signals {
    fn listen() -> Result<Self, Problem> {
        let listen = |kind| signal(kind).map_err(|error| failed(format!("signals cannot be listened for: {error}")));
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            drain: listen(SignalKind::user_defined1())?,
            undrain: listen(SignalKind::user_defined2())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Running {
    fn tell(&self, state: GatewayState, what: impl Into<String>) {
        self.sink.take(Line::new(self.clock.now(), Event::Gateway { state, what: what.into() }));
    }

    async fn serve(&mut self) -> Result<(), Problem> {
        let metrics = self.listeners.iter().find(|listener| listener.purpose == Purpose::Metrics);
        let socket = metrics.map(|one| one.socket.try_clone()).transpose();
        let socket = socket.map_err(|error| failed(format!("metrics cannot be served: {error}")))?;
        let scrape = socket.map(|socket| tokio::spawn(scrape::serve(socket, Arc::clone(&self.shared))));
        let external = self.listeners.iter().find(|listener| listener.purpose == Purpose::External);
        let socket = external.map(|one| one.socket.try_clone()).transpose();
        let socket = socket.map_err(|error| failed(format!("external metrics cannot be served: {error}")))?;
        let external = socket.map(|socket| tokio::spawn(external::serve(socket, Arc::clone(&self.shared))));
        let leaving = self.until_it_leaves().await;
        self.shared.leaving.send_replace(leaving);
        // Whoever listens now is somebody else, or nobody.
        self.listeners = Arc::new(Vec::new());
        if leaving == Leaving::HandedOver {
            scrape.iter().chain(&external).for_each(tokio::task::JoinHandle::abort);
        }
        self.finish(leaving).await
    }

    /// Signals, changes and successors, until one of them means the end.
    async fn until_it_leaves(&mut self) -> Leaving {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut known = reload::fingerprint(&self.files, &self.shared.site().spec);
        let mut looked = Instant::now();
        let (mut draining, mut held) = (false, false);
        loop {
            tokio::select! {
                _ = self.signals.terminate.recv() => return Leaving::Stopping,
                _ = self.signals.interrupt.recv() => return Leaving::Stopping,
                _ = self.signals.hangup.recv() => {
                    self.reload();
                    known = reload::fingerprint(&self.files, &self.shared.site().spec);
                }
                _ = self.signals.drain.recv() => self.shared.draining.store(true, Ordering::Relaxed),
                _ = self.signals.undrain.recv() => self.shared.draining.store(false, Ordering::Relaxed),
                Some(handed) = self.handed.recv() => match handed {
                    Ok(()) => return Leaving::HandedOver,
                    Err(error) => {
                        let what = format!("a successor asked for the listeners and did not come to serve: {error}");
                        self.sink.take(Line::new(self.clock.now(), Event::Warning { server: None, what }));
                    }
                },
                _ = look.tick() => {}
            }
            self.shared.look_at_drain_files();
            self.shared.look_at_hold_file();
            self.tell_of_the_hold(&mut held);
            let now = self.shared.is_draining(&self.shared.site());
            if now != draining {
                draining = now;
                match now {
                    true => self.tell(
                        GatewayState::Draining,
                        "draining: health checks are answered 503, everything else goes on",
                    ),
                    false => self.tell(GatewayState::Undrained, "health checks are answered 200 again"),
                }
            }
            if let Some(every) = self.shared.site().spec.watch
                && looked.elapsed() >= every
            {
                looked = Instant::now();
                let found = reload::fingerprint(&self.files, &self.shared.site().spec);
                if found != known {
                    self.reload();
                    known = reload::fingerprint(&self.files, &self.shared.site().spec);
                }
            }
        }
    }

    fn tell_of_the_hold(&self, before: &mut bool) {
        let now = self.shared.closing.is_closed();
        if now != std::mem::replace(before, now) {
            let (state, what) = match now {
                true => (GatewayState::Holding, "the hold file is there: every request waits"),
                false => (GatewayState::LetGo, "the hold file is gone: who waited is let go"),
            };
            self.tell(state, what);
        }
    }

    fn reload(&self) {
        let (state, what) = reload::reload(&self.files, &self.shared);
        self.tell(state, what);
    }

    /// Waits for what runs and waits.
    async fn finish(&mut self, leaving: Leaving) -> Result<(), Problem> {
        let spec = self.shared.site().spec.clone();
        let (state, most) = match leaving {
            Leaving::HandedOver => (GatewayState::HandedOver, spec.finish),
            Leaving::Stopping | Leaving::No => (GatewayState::Stopping, spec.shutdown),
        };
        let metrics = Arc::clone(&self.shared.metrics);
        let left = || match leaving {
            // Its clients' idle connections may bring a request at any moment, and nobody else can answer it there.
            Leaving::HandedOver => metrics.connections.get().max(metrics.under_way()),
            Leaving::Stopping | Leaving::No => metrics.under_way(),
        };
        let what = match leaving {
            Leaving::HandedOver => "another gateway serves from now on; what runs and waits here is finished",
            Leaving::Stopping | Leaving::No => "stopping: nothing new is taken; what runs and waits is finished",
        };
        self.tell(state, what);
        if leaving == Leaving::Stopping
            && let Some(path) = &spec.control
        {
            // A successor is not to wait for somebody who is gone; a missing file is what it should find.
            drop(std::fs::remove_file(path));
        }
        let mut until = Instant::now() + most;
        let mut told = leaving != Leaving::HandedOver;
        while (if told { metrics.under_way() } else { left() }) > 0 && Instant::now() < until {
            // Who waits here because somebody holds everything is let go here, too.
            self.shared.look_at_hold_file();
            tokio::select! {
                () = tokio::time::sleep(LOOK / 4) => {}
                () = self.signals.stop() => match std::mem::replace(&mut told, true) {
                    true => break,
                    // Whoever handed over and is stopped as well has as much time as anybody who is stopped.
                    false => until = until.min(Instant::now() + spec.shutdown),
                },
            }
        }
        match metrics.under_way() {
            0 => Ok(()),
            cut => Err(Problem::new(
                Exit::Lost,
                format!("{cut} requests and tunnels were cut short: they did not end in time"),
            )
            .hint("`gateway.shutdown` and `gateway.finish` say how long they may take")),
        }
    }
}

/// Gives the listeners to whoever asks for them, and tells how each time ended. A task of its own, which nothing interrupts: a
/// successor that was told yes must not be forgotten.
async fn hand_over(
    control: Option<tokio::net::UnixListener>,
    listeners: Arc<Vec<Listener>>,
    tell: mpsc::Sender<std::io::Result<()>>,
) {
    let Some(control) = control else { return std::future::pending().await };
    loop {
        let handed = match control.accept().await {
            Ok((stream, _)) => {
                let listeners = Arc::clone(&listeners);
                let offered = tokio::task::spawn_blocking(move || listen::offer(stream.into_std()?, &listeners)).await;
                offered.map_err(std::io::Error::other).flatten()
            }
            Err(error) => Err(error),
        };
        let over = handed.is_ok();
        if tell.send(handed).await.is_err() || over {
            return;
        }
    }
}
