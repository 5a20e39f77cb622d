//! The prober: requests at a fixed rate that never waits for answers, and what became of each of them.
//!
//! One engine for a deploy's own measuring and for `handover measure`. It decides nothing: it counts, and whoever listens
//! draws conclusions.

use super::classify::{Class, Outcome, Who, since};
use super::connect::{Connections, Exchange, Failure};
use super::resolve::Addresses;
use super::schedule::{Pace, Schedule};
use super::site::Site;
use super::tally::{Done, Loss, Tally, Trouble, loss_word};
use crate::clock::{Clock, Stamp};
use crate::event::{Lost, Measured, Rate, Requests, Second, seconds};
use http_body_util::BodyExt;
use hyper::header::{HeaderMap, SERVER};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// More requests a second, on the wall, are not sent: one machine cannot keep their times.
pub const MOST_A_SECOND: f64 = 10_000.0;
/// So many connections are opened in a second at the most, on the wall: each one occupies a port for a minute, and there
/// are 28,000. Below twice that, every second request opens its own.
const FRESH_A_SECOND: f64 = 200.0;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The URL; its host is what stands in the `Host` header and in the certificate.
    pub url: String,
    /// Where to connect to, in turn; the host's own addresses, looked up again and again, where none are named.
    pub addresses: Option<Vec<SocketAddr>>,
}

/// How the prober asks.
#[derive(Debug, Clone, PartialEq)]
pub struct ProberOptions {
    /// Requests per second of fleet time.
    pub rate: f64,
    /// No whole answer by then counts as lost; fleet time.
    pub timeout: Duration,
    /// Paths that answer 503 on purpose while their server is drained.
    pub health_paths: Vec<String>,
    /// Whether HTTP/2 is spoken, and nothing else.
    pub http2: bool,
    /// PEM certificates that are trusted instead of the machine's own.
    pub ca: Option<Vec<u8>>,
    /// Headers of each request besides its own.
    pub headers: HeaderMap,
    /// For how long; without an end where nothing is said.
    pub length: Option<Duration>,
    /// More requests than this are not under way at a time; a further one is not sent, and said.
    pub most_under_way: usize,
}

impl Default for ProberOptions {
    fn default() -> Self {
        Self {
            rate: 20.0,
            timeout: Duration::from_secs(10),
            health_paths: Vec::new(),
            http2: false,
            ca: None,
            headers: HeaderMap::new(),
            length: None,
            most_under_way: 20_000,
        }
    }
}

/// How far a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Requests are sent.
    Sends,
    /// No more are sent.
    Waits,
    /// What is under way is given up.
    GivesUp,
}

#[derive(Debug)]
struct Shared {
    connections: Connections,
    addresses: Addresses,
    /// Every so manieth request opens its own connection.
    fresh: u64,
    timeout: Duration,
    health: bool,
    counts: watch::Sender<Requests>,
    lost: watch::Sender<u64>,
    sent: watch::Sender<u64>,
    tally: Arc<Mutex<Tally>>,
    clock: Clock,
}

/// A running prober; dropping it gives the outstanding requests up.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    target: Target,
    options: ProberOptions,
    start: Stamp,
    stage: watch::Sender<Stage>,
    stopped: Mutex<Option<Stamp>>,
    ended: watch::Receiver<bool>,
    task: Option<JoinHandle<()>>,
}

impl Prober {
    /// Begins to send.
    ///
    /// # Errors
    /// When the URL cannot be asked, or no root certificates are found for an https one.
    pub fn start(target: Target, options: &ProberOptions, clock: Clock) -> io::Result<Self> {
        let site = Site::parse(&target.url)?;
        let connections = Connections::new(&site, options.http2, options.ca.as_deref(), &options.headers)?;
        let rate = options.rate.clamp(0.001, MOST_A_SECOND / clock.speed());
        let start = clock.now();
        let tally = Arc::new(Mutex::new(Tally::new(start)));
        let addresses = match &target.addresses {
            Some(addresses) if !addresses.is_empty() => Addresses::named(addresses),
            _ => Addresses::of(&site.host, site.port, Arc::clone(&tally)),
        };
        let shared = Arc::new(Shared {
            connections,
            addresses,
            fresh: every(rate * clock.speed()),
            timeout: clock.wall(options.timeout),
            health: options.health_paths.iter().any(|path| path == site.bare_path()),
            counts: watch::channel(Requests::default()).0,
            lost: watch::channel(0).0,
            sent: watch::channel(0).0,
            tally,
            clock,
        });
        let schedule = Schedule::new(start, rate, options.length);
        let (pace, due) = Pace::start(schedule, clock)?;
        let (stage, staged) = watch::channel(Stage::Sends);
        let (end, ended) = watch::channel(false);
        let sending = send_all(Arc::clone(&shared), schedule, due, staged, options.most_under_way);
        let task = tokio::spawn(async move {
            sending.await;
            drop(pace);
            end.send_replace(true);
        });
        let options = options.clone();
        let stopped = Mutex::default();
        Ok(Self { shared, target, options, start, stage, stopped, ended, task: Some(task) })
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
        self.begin(None);
        self.shared.lost.send_replace(0);
        *self.shared.counts.borrow()
    }

    /// A deploy begins; one that ran ends with it. False where there were too many to be told apart.
    pub fn begin(&self, label: Option<String>) -> bool {
        self.shared.tally().begin(self.shared.clock.now(), label)
    }

    /// The deploy that runs ends; false where none does.
    pub fn end(&self) -> bool {
        self.shared.tally().end(self.shared.clock.now())
    }

    /// The counts of what was sent before the mark.
    #[must_use]
    pub fn baseline(&self) -> Requests {
        self.shared.tally().before()
    }

    /// The counts since the mark.
    #[must_use]
    pub fn since_mark(&self) -> Requests {
        let tally = self.shared.tally();
        since(tally.requests(), tally.before())
    }

    /// The first hundred losses since the mark; of all where there was none.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.shared.tally().losses_since()
    }

    /// What ended since this was asked last.
    #[must_use]
    pub fn second(&self) -> Second {
        self.shared.tally().second(*self.shared.sent.borrow())
    }

    /// What a person is to be told and was not yet.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        self.shared.tally().tell()
    }

    /// Why it is no use to go on, where it is not.
    #[must_use]
    pub fn hopeless(&self) -> Option<String> {
        self.shared.tally().hopeless().map(ToOwned::to_owned)
    }

    /// Sends no more; what is under way goes on.
    pub fn close(&self) {
        lock(&self.stopped).get_or_insert_with(|| self.shared.clock.now());
        self.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Sends;
            if first {
                *stage = Stage::Waits;
            }
            first
        });
    }

    /// Gives up what is under way: it counts as `client_gone`.
    pub fn give_up(&self) {
        self.close();
        self.stage.send_replace(Stage::GivesUp);
    }

    /// Waits until the last request has ended.
    pub async fn ended(&self) {
        // A task that panicked has counted what it counted.
        drop(self.ended.clone().wait_for(|ended| *ended).await);
    }

    /// Sends no more, waits for what is outstanding, and says what became of all.
    pub async fn stop(mut self) -> Requests {
        self.close();
        if let Some(task) = self.task.take() {
            drop(task.await);
        }
        self.shared.tally().requests()
    }

    /// All that was measured so far.
    #[must_use]
    pub fn measured(&self) -> Measured {
        let now = self.shared.clock.now();
        let tally = self.shared.tally();
        let ran = match (*lock(&self.stopped), self.options.length) {
            // The last request is due before the end, and may have been sent after it.
            (None, Some(length)) if *self.ended.borrow() => length.max(tally.last_sent().since(self.start)),
            (stopped, _) => stopped.unwrap_or(now).since(self.start),
        };
        let (gaps, gaps_total) = tally.gaps();
        let sent = *self.shared.sent.borrow();
        Measured {
            url: self.target.url.clone(),
            http: if self.options.http2 { "HTTP/2" } else { "HTTP/1.1" }.to_owned(),
            seconds: seconds(ran),
            requests: tally.requests(),
            latency: tally.latency(),
            rate: Rate { requested: self.options.rate, achieved: a_second(sent, ran) },
            schedule: tally.punctuality(),
            gaps,
            gaps_total,
            losses: tally.losses().iter().map(lost).collect(),
            windows: tally.windows(now),
            warnings: tally.warnings(),
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn lost(loss: &Loss) -> Lost {
    Lost {
        at: seconds(loss.at.since_start()),
        class: loss_word(loss.class).to_owned(),
        what: loss.what.clone(),
        address: loss.address,
    }
}

#[expect(clippy::cast_precision_loss, reason = "so many requests are never sent")]
fn a_second(requests: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { (requests as f64 / time.as_secs_f64() * 1000.0).round() / 1000.0 }
}

/// Every so manieth request opens a connection of its own, at a rate on the wall.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is small and positive")]
fn every(rate: f64) -> u64 {
    ((rate / FRESH_A_SECOND).ceil() as u64).max(2)
}

async fn send_all(
    shared: Arc<Shared>,
    schedule: Schedule,
    mut due: watch::Receiver<u64>,
    mut stage: watch::Receiver<Stage>,
    most: usize,
) {
    let mut under_way = JoinSet::new();
    let mut next = 0;
    loop {
        let over = tokio::select! {
            biased;
            _ = stage.changed() => break,
            changed = due.changed() => changed.is_err(),
        };
        let due = *due.borrow_and_update();
        for number in next..due {
            let when = schedule.due(number);
            if under_way.len() < most {
                under_way.spawn(one(Arc::clone(&shared), number, when, stage.clone()));
            } else {
                shared.unsent(number, when, &format!("{most} are under way already"));
            }
        }
        next = due;
        shared.sent.send_replace(next);
        while under_way.try_join_next().is_some() {}
        if over {
            break;
        }
    }
    while under_way.join_next().await.is_some() {}
}

async fn one(shared: Arc<Shared>, number: u64, due: Stamp, mut stage: watch::Receiver<Stage>) {
    let sent = shared.clock.now();
    shared.tally().sending(due, sent);
    let mut seen = Seen::default();
    let asked = tokio::select! {
        asked = patiently(shared.timeout, ask(&shared, number, &mut seen)) => asked,
        _ = stage.wait_for(|stage| *stage == Stage::GivesUp) => Some(Ok((Outcome::Stopped, "given up".to_owned()))),
    };
    let address = seen.address;
    let (outcome, what) = match asked {
        Some(Ok(ended)) => ended,
        Some(Err(Failure::Here(why))) => return shared.unsent(number, due, &why),
        Some(Err(failure)) => (Outcome::NoAnswer, shared.told(failure)),
        None => seen.silence(shared.health),
    };
    shared.note(Done { number, due, sent, ended: shared.clock.now(), outcome, what, address });
}

/// A timer that goes off later than this was held up itself.
const HELD_UP: Duration = Duration::from_millis(50);
/// How long is looked for what came while this machine stood still.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Waits for the answer, not longer than the timeout. Where this machine stood still (it was stopped, or had no processor), the
/// answer may have come meanwhile and only wait to be read: that it was late must not be said of the server.
async fn patiently<T>(timeout: Duration, asked: impl Future<Output = T>) -> Option<T> {
    let mut asked = std::pin::pin!(asked);
    let mut deadline = tokio::time::Instant::now() + timeout;
    loop {
        if let Ok(answer) = tokio::time::timeout_at(deadline, &mut asked).await {
            return Some(answer);
        }
        let now = tokio::time::Instant::now();
        if now.saturating_duration_since(deadline) <= HELD_UP {
            return None;
        }
        deadline = now + LOOK_AGAIN;
    }
}

/// How far a request came.
#[derive(Debug, Default)]
struct Seen {
    address: Option<SocketAddr>,
    head: Option<(u16, Who)>,
}

impl Seen {
    /// What a request is whose time is over.
    fn silence(&self, health: bool) -> (Outcome, String) {
        match self.head {
            Some((status, who)) => {
                let outcome = Outcome::Answer { status, who, health, whole: false };
                (outcome, format!("{status}, and the body did not end in time"))
            }
            None => (Outcome::NoAnswer, "no answer in time".to_owned()),
        }
    }
}

/// A balancer's own page is shorter.
const LONGEST_PAGE: usize = 1024;

/// One request: the outcome, and in words what was seen.
async fn ask(shared: &Shared, number: u64, seen: &mut Seen) -> Result<(Outcome, String), Failure> {
    // All requests of a turn go to one address, so that each gets both kept and fresh connections.
    let (turn, place) = (number / shared.fresh, number % shared.fresh);
    let reuse = place + 1 < shared.fresh;
    let address = match shared.addresses.at(turn).await {
        Ok(address) => address,
        Err(why) => return Ok((Outcome::NoAnswer, why)),
    };
    seen.address = Some(address);
    let Exchange { response, line } = shared.connections.send(address, reuse).await?;
    let status = response.status().as_u16();
    let server = response.headers().get(SERVER);
    let nameless = server.is_none() && matches!(status, 502..=504);
    let mut who = Who::by_server_header(server.map(|value| value.as_bytes()));
    seen.head = Some((status, who));
    let mut body = response.into_body();
    let (mut whole, mut page) = (true, Vec::new());
    // A stream that was reset says so for ever.
    while whole && let Some(frame) = body.frame().await {
        whole = frame.is_ok();
        if let (true, Some(data)) = (nameless, frame.ok().as_ref().and_then(|frame| frame.data_ref())) {
            page.extend(data.iter().take(LONGEST_PAGE - page.len().min(LONGEST_PAGE)));
        }
    }
    if nameless {
        who = Who::by_page(status, &page);
    }
    shared.connections.ended(address, line, reuse && whole);
    let what = if whole { status.to_string() } else { format!("{status}, and the body broke off") };
    Ok((Outcome::Answer { status, who, health: shared.health, whole }, what))
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    /// A failure in words; what explains all losses is told once.
    fn told(&self, failure: Failure) -> String {
        let (trouble, what) = match failure {
            Failure::Server(what) | Failure::Here(what) => return what,
            Failure::Untrusted(what) => (Trouble::Untrusted, what),
            Failure::NoHttp2(what) => (Trouble::NoHttp2, what),
        };
        self.tally().trouble(trouble, || what.clone());
        what
    }

    fn unsent(&self, number: u64, due: Stamp, why: &str) {
        let mut tally = self.tally();
        tally.unsent(number, due, why);
        self.counts.send_replace(tally.requests());
    }

    fn note(&self, done: Done) {
        let mut tally = self.tally();
        let before = tally.is_before(done.sent);
        let class = tally.note(done);
        self.counts.send_replace(tally.requests());
        if !before && matches!(class, Class::Nowhere | Class::CutShort) {
            self.lost.send_modify(|lost| *lost += 1);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn an_answer_that_came_while_this_machine_stood_still_is_no_silence() {
        let (answer, answered) = oneshot::channel();
        let (_open, never) = mpsc::channel::<()>();
        let sends = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            // One thread runs everything here, timers included.
            assert!(never.recv_timeout(Duration::from_millis(400)).is_err());
            tokio::time::sleep(Duration::from_millis(5)).await;
            answer.send(7)
        });
        let seen = patiently(Duration::from_millis(50), answered).await;
        assert_eq!((seen, sends.await.ok()), (Some(Ok(7)), Some(Ok(()))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_waited_for_until_the_timeout() {
        let began = tokio::time::Instant::now();
        let seen = patiently(Duration::from_secs(10), std::future::pending::<()>()).await;
        assert_eq!((seen, began.elapsed().as_secs()), (None, 10));
    }
}
