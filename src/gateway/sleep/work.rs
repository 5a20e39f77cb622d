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
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Beyond what a call may take itself.
const SLACK: Duration = Duration::from_secs(30);

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
    Looked(u64, Option<Seen>),
    Deferred(u64),
    Started(u64, Result<(), String>),
    Stopped(u64, Stopped, Slept),
    Accepts(bool),
}

/// What is known of containers that were stopped.
#[derive(Debug, Clone, Default)]
pub(super) struct Slept {
    pub(super) memory: u64,
    pub(super) killed: Vec<String>,
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
        let known = asleep::read(self.dir(), host)?;
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

fn names(services: &[ServiceName]) -> Vec<String> {
    services.iter().map(|name| name.as_str().to_owned()).collect()
}

/// Looks at the engine and at the lock.
pub(super) async fn look(place: Arc<Place>, spec: SleepSpec, epoch: u64) -> Done {
    let Ok(all) = place.engine.containers().await else { return Done::Looked(epoch, None) };
    // What was to complete and did is not missing.
    let over = |one: &Container| !one.running && one.exit == Some(0) && wanted(&all, &one.service) == Wants::Completed;
    let ours = all.iter().filter(|one| spec.services.iter().any(|name| name.as_str() == one.service) && !over(one));
    let (running, off): (Vec<&Container>, Vec<&Container>) = ours.partition(|one| one.running);
    let running = match (running.is_empty(), off.is_empty()) {
        (false, true) => Running::All,
        (false, false) => Running::Some,
        (true, _) => Running::None,
    };
    Done::Looked(epoch, Some(Seen { running, planned: place.lock.is_others() }))
}

/// Starts the backend; `force`: also while somebody else works here.
pub(super) async fn start(place: Arc<Place>, standing: Arc<Standing>, spec: SleepSpec, turn: u64, force: bool) -> Done {
    let host = standing.host().spec.name.to_string();
    let held = match place.lock.take() {
        Ok(None) if !force => return Done::Deferred(turn),
        Ok(held) => held,
        Err(error) => {
            // Who waits is not to suffer from a lock that cannot be made.
            place.tell(GatewayState::Noticed, format!("{host} is woken without the server lock: {error}"));
            None
        }
    };
    let why = "somebody asked for it".to_owned();
    if let Err(error) = place.write(&host, &spec, Off::Waking, Some(spec.start), why) {
        place.tell(GatewayState::Noticed, format!("{host}: that it is woken cannot be written down: {error}"));
    }
    standing.sleeping(|sleep| sleep.calls(turn, Instant::now()));
    let result = place.engine.start(&names(&spec.services), spec.start).await;
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
    Ok(Slept { memory, killed })
}

/// Whether the backend accepts a connection and keeps it for a moment.
pub(super) async fn accepts(standing: Arc<Standing>) -> Done {
    let host = standing.host();
    let at = (host.spec.backend.host.as_str(), host.spec.backend.port);
    let look = async {
        let stream = tokio::net::TcpStream::connect(at).await.ok()?;
        let mut byte = [0_u8; 1];
        // Docker's proxy accepts for whoever does not listen yet, and closes at once.
        match tokio::time::timeout(Duration::from_millis(5), stream.peek(&mut byte)).await {
            Err(_) => Some(()),
            Ok(peeked) => peeked.ok().filter(|count| *count > 0).map(drop),
        }
    };
    let found = tokio::time::timeout(host.spec.connect_timeout, look).await;
    if found.is_err() || matches!(found, Ok(None)) {
        tokio::time::sleep(host.spec.connect_interval).await;
    }
    Done::Accepts(matches!(found, Ok(Some(()))))
}
