//! What a keeper does to containers: the long calls, each of which ends with one answer for the machine.
//!
//! The order is what the promises rest on: the server lock first, then the record, then the machine's last word, then the call.

use super::docker::Engine;
use super::lock::Shared as Lock;
use super::machine::{Running, Seen, Stopped};
use super::order::{Container, Wants, wanted};
use crate::clock::Clock;
use crate::event::{Event, GatewayState, Line, Sink};
use crate::fleet::model::{ServiceName, SleepPlace, SleepSpec, show_duration};
use crate::gateway::site::Standing;
use crate::server::layout::asleep::{self, Asleep, FORMAT, Off};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Beyond what a call may take itself.
const SLACK: Duration = Duration::from_secs(30);

/// How long a connection must last to be one, to a container and through whatever accepts for it.
const SOON: Duration = Duration::from_millis(5);
const LASTS: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_millis(100);

/// Why a backend is woken.
const ASKED: &str = "somebody asked for it";

/// What all keepers of a gateway share.
pub(super) struct Place {
    pub(super) spec: SleepPlace,
    pub(super) engine: Engine,
    pub(super) lock: Lock,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) clock: Clock,
    /// Something happened to a container.
    pub(super) changed: watch::Sender<u64>,
}

/// How a long call ended.
#[derive(Debug)]
pub(super) enum Done {
    Looked(u64, Option<Seen>, Option<SocketAddr>),
    /// Whether who works here knows that it is wanted.
    Deferred(u64, bool),
    /// With where the backend itself has the port that requests go to, if that is known.
    Started(u64, Result<Option<SocketAddr>, String>),
    Stopped(u64, Stopped, Slept),
    Accepts,
}

/// What is known of containers that were stopped.
#[derive(Debug, Clone, Default)]
pub(super) struct Slept {
    pub(super) memory: u64,
    pub(super) killed: Vec<String>,
    /// Those that the engine starts again when it begins, whatever stopped them.
    pub(super) always: Vec<String>,
}

pub(super) fn epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Place {
    pub(super) fn dir(&self) -> &Path {
        Path::new(&self.spec.dir)
    }

    pub(super) fn tell(&self, state: GatewayState, what: String) {
        self.sink.take(Line::new(self.clock.now(), Event::Gateway { state, what }));
    }

    fn write(&self, host: &str, spec: &SleepSpec, state: Off, most: Option<Duration>, why: String) -> io::Result<()> {
        let now = epoch().as_secs();
        let known = self.known(host)?;
        asleep::write(
            self.dir(),
            &Asleep {
                format: FORMAT,
                host: host.to_owned(),
                project: self.spec.project.clone(),
                services: spec.services.clone(),
                state,
                // Going to sleep and sleeping is one absence.
                since: known.filter(|_| state == Off::Asleep).map_or(now, |known| known.since),
                until: most.map(|most| now + (most + SLACK).as_secs()),
                who: format!("handover gateway (pid {})", std::process::id()),
                why,
            },
        )
    }
}

impl Place {
    /// What stands in its record; what cannot be understood is written anew.
    fn known(&self, host: &str) -> io::Result<Option<Asleep>> {
        match asleep::read(self.dir(), host) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            known => known,
        }
    }

    /// Writes down that it is woken, unless somebody who has the lock stops it right now: he is waited for.
    fn begin_wake(&self, host: &str, spec: &SleepSpec, locked: bool) -> io::Result<bool> {
        let _turn = asleep::turn(self.dir())?;
        let known = self.known(host)?;
        let stops = known.is_some_and(|known| known.state == Off::Stopping && known.is_meant(epoch().as_secs()));
        if stops && !locked {
            return Ok(false);
        }
        self.write(host, spec, Off::Waking, Some(spec.start), ASKED.to_owned())?;
        Ok(true)
    }

    /// Tells whoever works here that it is not to be put back to sleep; whether he will not do so, `unknown` where the disk does not
    /// take it.
    pub(super) fn say_wanted(&self, host: &str, spec: &SleepSpec, patience: Duration, unknown: bool) -> bool {
        let written = asleep::turn(self.dir()).and_then(|_turn| {
            match self.known(host)? {
                Some(known) if known.state == Off::Stopping && known.is_meant(epoch().as_secs()) => return Ok(false),
                Some(known) if known.state != Off::Waking => {
                    self.write(host, spec, Off::Waking, Some(patience + spec.start), ASKED.to_owned())?;
                }
                // What no record calls asleep is put to sleep by nobody.
                _ => {}
            }
            Ok(true)
        });
        written.unwrap_or_else(|error| {
            self.tell(GatewayState::Noticed, format!("{host}: that it is wanted cannot be written down: {error}"));
            unknown
        })
    }
}

fn names(services: &[ServiceName]) -> Vec<String> {
    services.iter().map(|name| name.as_str().to_owned()).collect()
}

/// Looks at the engine and at the lock.
pub(super) async fn look(place: Arc<Place>, standing: Arc<Standing>, spec: SleepSpec, epoch: u64) -> Done {
    // Before and after: what was seen running while somebody worked here says nothing about when he is gone.
    let planned = place.lock.is_others();
    let Ok(all) = place.engine.containers().await else { return Done::Looked(epoch, None, None) };
    // What was to complete and did is not missing.
    let over = |one: &Container| !one.running && one.exit == Some(0) && wanted(&all, &one.service) == Wants::Completed;
    let ours = all.iter().filter(|one| spec.services.iter().any(|name| name.as_str() == one.service) && !over(one));
    let (running, off): (Vec<&Container>, Vec<&Container>) = ours.partition(|one| one.running);
    let running = match (running.is_empty(), off.is_empty()) {
        (false, true) => Running::All,
        (false, false) => Running::Some,
        (true, _) => Running::None,
    };
    let seen = Seen { running, planned: planned || place.lock.is_others() };
    Done::Looked(epoch, Some(seen), inner(&standing, &all))
}

/// Where the port that requests go to is in the container itself, where Docker carries it there.
fn inner(standing: &Standing, all: &[Container]) -> Option<SocketAddr> {
    let host = standing.host();
    let backend = &host.spec.backend;
    let here = backend.host == "localhost" || backend.host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let mut ports = all.iter().filter(|one| one.running).flat_map(|one| &one.ports);
    ports.find(|(port, _)| here && *port == backend.port).map(|(_, inner)| *inner)
}

/// Starts the backend; `force`: also while somebody else works here.
pub(super) async fn start(place: Arc<Place>, standing: Arc<Standing>, spec: SleepSpec, turn: u64, force: bool) -> Done {
    let host = standing.host().spec.name.to_string();
    let held = match place.lock.take() {
        Ok(None) if !force => {
            return Done::Deferred(turn, place.say_wanted(&host, &spec, standing.host().spec.hold / 2, false));
        }
        Ok(held) => held,
        Err(error) => {
            // Who waits is not to suffer from a lock that cannot be made.
            place.tell(GatewayState::Noticed, format!("{host} is woken without the server lock: {error}"));
            None
        }
    };
    match place.begin_wake(&host, &spec, held.is_some()) {
        Ok(true) => {}
        Ok(false) => return Done::Deferred(turn, false),
        Err(error) => {
            place.tell(GatewayState::Noticed, format!("{host}: that it is woken cannot be written down: {error}"));
        }
    }
    standing.sleeping(|sleep| sleep.calls(turn, Instant::now()));
    let result = match place.engine.start(&names(&spec.services), spec.start).await {
        Ok(()) => Ok(place.engine.containers().await.ok().and_then(|all| inner(&standing, &all))),
        Err(why) => Err(why),
    };
    drop(held);
    Done::Started(turn, result)
}

/// Stops the backend, unless somebody comes before that begins.
pub(super) async fn stop(place: Arc<Place>, standing: Arc<Standing>, spec: SleepSpec, turn: u64, begun: bool) -> Done {
    let (ended, slept) = match stop_it(&place, &standing, &spec, turn, begun).await {
        Ok(slept) => (Stopped::Done, slept),
        Err(ended) => (ended, Slept::default()),
    };
    Done::Stopped(turn, ended, slept)
}

async fn stop_it(
    place: &Place,
    standing: &Standing,
    spec: &SleepSpec,
    turn: u64,
    begun: bool,
) -> Result<Slept, Stopped> {
    let not = |why: String| Stopped::NotBegun(why);
    let host = standing.host().spec.name.to_string();
    let held = match place.lock.take() {
        Ok(Some(held)) => Some(held),
        _ if begun => None,
        Ok(None) => return Err(not("somebody else works on this server".to_owned())),
        Err(error) => return Err(not(format!("the server lock: {error}"))),
    };
    let all = place.engine.containers().await.map_err(not)?;
    let services = names(&spec.services);
    let ours: Vec<Container> = all.into_iter().filter(|one| services.contains(&one.service)).collect();
    let memory = place.engine.memory(&ours).await;
    let why = format!("nobody needed it for {}", show_duration(spec.after));
    let grace = ours.iter().map(|one| one.grace).sum();
    let cannot = |error: io::Error| not(format!("it cannot be written down: {error}"));
    place.write(&host, spec, Off::Stopping, Some(grace), why.clone()).map_err(cannot)?;
    if standing.sleeping(|sleep| sleep.commit(turn, Instant::now())) != Some(true) {
        asleep::clear(place.dir(), &host).map_err(cannot)?;
        return Err(not("somebody came".to_owned()));
    }
    let killed = place.engine.stop(&services).await.map_err(Stopped::Broken)?;
    if let Err(error) = place.write(&host, spec, Off::Asleep, None, why) {
        place.tell(GatewayState::Noticed, format!("{host}: that it sleeps cannot be written down: {error}"));
    }
    drop(held);
    let always = ours.iter().filter(|one| one.always).map(|one| one.service.clone()).collect();
    Ok(Slept { memory, killed, always })
}

/// Looks whether the backend accepts connections, until it does or this is given up.
///
/// Docker's own proxy accepts for a container that does not listen, and may hold such a connection for a second or more before
/// it closes it. So the container itself is asked where that can be; where it cannot be reached, a connection must last.
pub(super) async fn accepts(standing: Arc<Standing>, inner: Option<SocketAddr>) -> Done {
    let host = standing.host();
    let pause = host.spec.connect_interval;
    let outer = (host.spec.backend.host.clone(), host.spec.backend.port);
    match inner {
        Some(inner) => tokio::select! {
            () = until_open(pause, move || open(inner, SOON)) => {}
            () = until_open(pause, move || open(outer.clone(), LASTS)) => {}
        },
        None => until_open(pause, move || open(outer.clone(), SOON)).await,
    }
    Done::Accepts
}

async fn until_open<T: Future<Output = bool>>(pause: Duration, look: impl Fn() -> T) {
    while !look().await {
        tokio::time::sleep(pause).await;
    }
}

/// Whether a connection is accepted and open for so long.
async fn open(at: impl tokio::net::ToSocketAddrs, least: Duration) -> bool {
    // A network that was made just now loses the first packet; the next try is sooner than its repetition.
    let connected = tokio::time::timeout(CONNECT, tokio::net::TcpStream::connect(at)).await;
    let Ok(Ok(stream)) = connected else { return false };
    let mut byte = [0_u8; 1];
    match tokio::time::timeout(least, stream.peek(&mut byte)).await {
        Err(_) => true,
        Ok(peeked) => peeked.is_ok_and(|count| count > 0),
    }
}
