//! One request from its head to its end: who it is for, whether it may, where it waits, over which connection it goes, and what is
//! answered where it cannot.

use super::answer::{Answer, Fault, is_grpc};
use super::deadline;
use super::ends::Front;
use super::fields::{self, Origin, Upgrade};
use super::h1::Framing;
use super::h1::head::{RequestHead, ResponseHead};
use super::h2_back::H2Back;
use super::here::{Here, Let};
use super::line::{Line, Presence};
use super::metrics::{Active, Counted, Held, HeldInAll, HostMetrics, Outcome, Turned};
use super::own::{self, say};
use super::relay::{Back, Ended, Patience, Relay};
use super::site::{Claim, Going, Host, Place, Site, Standing, Told, Waiting};
use super::upstream::{NoWay, Wish};
use super::worker::Worker;
use crate::fleet::model::HostName;
use hyper::StatusCode;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks whether a client that waits is still there: it is to be gone within a second.
const LOOK: Duration = Duration::from_millis(400);

/// Who connected, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// Where it connected to.
    pub(super) local: SocketAddr,
    pub(super) tls: bool,
}

/// What becomes of the connection.
pub(super) enum After {
    /// Whatever the front says of itself.
    AsItIs,
    /// It becomes a tunnel to this.
    Tunnel(Box<Opened>),
}

/// A backend that agreed to speak something else.
pub(super) struct Opened {
    pub(super) head: ResponseHead,
    pub(super) back: Line,
    pub(super) metrics: Arc<HostMetrics>,
    pub(super) here: Option<Here>,
}

/// Counts a request's outcome, whatever ends it.
struct Counting {
    metrics: Arc<HostMetrics>,
    began: Instant,
    outcome: Outcome,
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.metrics.outcome(self.outcome);
        self.metrics.took.take(self.began.elapsed());
    }
}

/// One request to a configured host.
struct Exchange<'a, F> {
    front: &'a mut F,
    worker: &'a Rc<Worker>,
    site: Arc<Site>,
    standing: Arc<Standing>,
    head: RequestHead,
    upgrade: Option<Upgrade>,
    deadline: Instant,
    /// Whether it is the client's own deadline.
    clients: bool,
    waited: bool,
    going: Option<Going>,
    claim: Option<Claim>,
    here: Option<Here>,
}

/// Carries out a request.
pub(super) async fn run<F: Front>(front: &mut F, head: RequestHead, peer: Peer, worker: &Rc<Worker>) -> After {
    let shared = &worker.shared;
    let site = shared.site();
    if let Some(answer) = own::health(shared, &site, &head, peer) {
        say(front, answer).await;
        return After::AsItIs;
    }
    if !site.spec.health.is_empty() {
        shared.nodes.real(peer.address.ip());
    }
    let origin = Origin::of(peer.address.ip(), peer.tls, &head.headers, &site.spec.trusted_proxies);
    let Ok(name) = HostName::parse(&head.authority) else {
        shared.metrics.turned_away(Turned::Malformed);
        say(front, Answer::text(StatusCode::BAD_REQUEST, "A request names exactly one host.").closing()).await;
        return After::AsItIs;
    };
    let Some(standing) = site.host(&name).cloned() else {
        shared.metrics.turned_away(Turned::UnknownHost);
        say(front, Answer::text(StatusCode::MISDIRECTED_REQUEST, "This host is not served here.")).await;
        return After::AsItIs;
    };
    if let Some(answer) = own::probe(shared, &site, &standing, &head, origin) {
        standing.metrics.probe();
        say(front, answer).await;
        return After::AsItIs;
    }
    let began = Instant::now();
    let mut counting = Counting { metrics: Arc::clone(&standing.metrics), began, outcome: Outcome::ClientGone };
    let host = standing.host();
    let grpc = is_grpc(&head.headers);
    if let Some(fault) = refused(&host, &head, origin) {
        counting.outcome = fault.outcome();
        say(front, fault.answer(grpc)).await;
        return After::AsItIs;
    }
    let here = match standing.enter(began) {
        Let::In(here) => here,
        Let::No(after) => {
            let fault = Fault::NotStarted(after);
            counting.outcome = fault.outcome();
            standing.left(false, Instant::now());
            say(front, fault.answer(grpc)).await;
            return After::AsItIs;
        }
    };
    let (hold, clients) = deadline::hold_of(&host.spec, &head, origin.client);
    let page = deadline::is_page_load(&head);
    let mut head = head;
    let upgrade = fields::for_backend(&mut head, origin);
    let mut exchange = Exchange {
        front,
        worker,
        site,
        standing,
        head,
        upgrade,
        deadline: began + hold,
        clients,
        waited: false,
        going: None,
        claim: None,
        here,
    };
    exchange.carry(page, grpc, &mut counting).await
}

/// Why a request is not even tried.
fn refused(host: &Host, head: &RequestHead, origin: Origin) -> Option<Fault> {
    if host.spec.allow.as_ref().is_some_and(|allow| !allow.iter().any(|network| network.holds(origin.client))) {
        return Some(Fault::NotAllowed);
    }
    if fields::goes_round(&head.headers) {
        return Some(Fault::Circle);
    }
    match (head.framing, host.spec.body_bytes) {
        (Framing::Length(length), Some(most)) if length > most => Some(Fault::BodyTooLong),
        _ => None,
    }
}

/// How a wait ended without a connection.
enum NotForwarded {
    Left,
    Fault(Fault),
}

impl<F: Front> Exchange<'_, F> {
    async fn carry(&mut self, page: bool, grpc: bool, counting: &mut Counting) -> After {
        let mut again = false;
        let mut wish = if self.is_repeatable() { Wish::Any } else { Wish::Fresh };
        loop {
            // Boxed, so that thousands of connections that do nothing are small.
            let obtained = match self.at_hand(wish) {
                Some(back) => Ok(back),
                None => Box::pin(self.obtain(wish, page)).await,
            };
            let mut back = match obtained {
                Ok(back) => back,
                Err(NotForwarded::Left) => {
                    counting.outcome = Outcome::LeftWaiting;
                    self.front.abort();
                    return After::AsItIs;
                }
                Err(NotForwarded::Fault(fault)) => return self.give_up(&fault, grpc, counting).await,
            };
            match self.forward(&mut back).await {
                Ended::Whole(status) => {
                    self.standing.answered(Instant::now());
                    counting.outcome = if status.is_server_error() { Outcome::AppError } else { Outcome::Served };
                    self.keep(back);
                    return After::AsItIs;
                }
                Ended::Upgraded(head) => {
                    counting.outcome = Outcome::Served;
                    let Back::H1(back) = back else { return After::AsItIs };
                    let metrics = Arc::clone(&self.standing.metrics);
                    let here = self.here.take();
                    return After::Tunnel(Box::new(Opened { head: *head, back: back.line, metrics, here }));
                }
                Ended::Untouched if self.front.is_untouched() && !again => {
                    // Once is enough: what is fresh and still untouched is a backend that refuses.
                    again = true;
                    wish = Wish::Fresh;
                    self.worker.pool.forget_streams(&self.standing.host());
                }
                Ended::Untouched => return self.give_up(&Fault::Broken, grpc, counting).await,
                Ended::Fault(fault) => return self.give_up(&fault, grpc, counting).await,
                Ended::CutShort => {
                    counting.outcome = Outcome::CutShort;
                    return After::AsItIs;
                }
                Ended::ClientGone => {
                    self.front.abort();
                    return After::AsItIs;
                }
            }
        }
    }

    /// Whether sending it over a connection that turns out dead, and then again, does no harm.
    fn is_repeatable(&self) -> bool {
        self.head.framing == Framing::None && self.upgrade.is_none() && fields::is_idempotent(&self.head.method)
    }

    /// A connection that is there and may be used.
    fn at_hand(&mut self, wish: Wish) -> Option<Back> {
        let host = self.standing.host();
        if wish == Wish::Fresh || host.spec.backend.http2 {
            return None;
        }
        // Kept by whoever is let through already.
        let claim = self.standing.pass()?;
        let kept = self.worker.pool.kept(&host, Instant::now())?;
        self.claim = Some(claim);
        Some(Back::H1(Box::new(kept)))
    }

    /// A connection to the backend, however long that takes within the hold.
    /// Whoever waits, waits in here: what is large and not needed for that is boxed.
    async fn obtain(&mut self, wish: Wish, page: bool) -> Result<Back, NotForwarded> {
        (self.going, self.claim) = (None, None);
        let now = Instant::now();
        let host = self.standing.host();
        let mut ticket = None;
        let mut place = self.standing.arrive(now, host.spec.held);
        let mut page = if page { host.waiting_page.clone() } else { None };
        loop {
            if let Place::No(after) = place {
                return Err(NotForwarded::Fault(Fault::NotStarted(after)));
            }
            if !matches!(place, Place::Go(_))
                && let Some(page) = page.take()
            {
                drop(place);
                self.standing.asked(now);
                self.begin_watch();
                return Err(NotForwarded::Fault(Fault::WaitingPage(page)));
            }
            match place {
                Place::Full => {
                    self.begin_watch();
                    return Err(NotForwarded::Fault(Fault::HoldFull));
                }
                Place::Wait(waiting) => ticket = Some(self.wait(waiting).await?),
                Place::Go(claim) => self.claim = Some(claim),
                Place::No(_) => {}
            }
            // The configuration may have changed while it waited.
            let host = self.standing.host();
            match self.connect(&host, wish).await {
                Ok(back) if self.waited && self.front.presence() != Presence::Here => {
                    self.keep(back);
                    return Err(NotForwarded::Left);
                }
                Ok(back) => return Ok(back),
                Err(NotForwarded::Fault(Fault::Broken)) => {
                    (self.going, self.claim) = (None, None);
                    place = self.standing.turned_away(Instant::now(), ticket.take(), host.spec.held);
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// `Fault::Broken` is nobody there; anything else is final.
    async fn connect(&mut self, host: &Arc<Host>, wish: Wish) -> Result<Back, NotForwarded> {
        let pool = &self.worker.pool;
        if !host.spec.backend.http2
            && wish == Wish::Any
            && let Some(kept) = pool.kept(host, Instant::now())
        {
            return Ok(Back::H1(Box::new(kept)));
        }
        let standing = Arc::clone(&self.standing);
        if host.spec.backend.http2 {
            let way = self.while_present(Box::pin(pool.streams(host, &standing))).await?;
            let sender = way.map_err(|NoWay| NotForwarded::Fault(Fault::Broken))?;
            let back = H2Back::start(sender, &self.head, host.spec.backend.tls);
            let fault = Fault::Refused(StatusCode::BAD_REQUEST, "This request cannot be said in HTTP/2.");
            return Ok(Back::H2(Box::new(back.ok_or(NotForwarded::Fault(fault))?)));
        }
        let way = self.while_present(Box::pin(pool.fresh(host, &standing))).await?;
        Ok(Back::H1(Box::new(way.map_err(|NoWay| NotForwarded::Fault(Fault::Broken))?)))
    }

    fn begin_watch(&self) {
        if self.standing.needs_watching(Instant::now()) {
            self.worker.watch(Arc::clone(&self.standing));
        }
    }

    async fn wait(&mut self, mut waiting: Waiting) -> Result<super::hold::Ticket, NotForwarded> {
        self.begin_watch();
        let metrics = &self.worker.shared.metrics;
        let in_all = Counted::new(HeldInAll(Arc::clone(metrics)));
        if metrics.held.get() > i64::try_from(self.site.spec.held).unwrap_or(i64::MAX) {
            return Err(NotForwarded::Fault(Fault::HoldFull));
        }
        let held = Counted::new(Held(Arc::clone(&self.standing.metrics)));
        let began = Instant::now();
        self.front.rest();
        self.waited = true;
        let over = if self.clients { Fault::DeadlineOver } else { Fault::HoldEnded };
        let waited = loop {
            let now = Instant::now();
            if now >= self.deadline {
                if waiting.hurry() {
                    self.going = Some(waiting.going());
                    break Ok(waiting.ticket);
                }
                break Err(NotForwarded::Fault(over));
            }
            let pause = tokio::time::sleep(LOOK.min(self.deadline - now));
            tokio::select! {
                biased;
                told = &mut waiting.released => {
                    if let Ok(Told::No(after)) = told {
                        break Err(NotForwarded::Fault(Fault::NotStarted(after)));
                    }
                    self.going = Some(waiting.going());
                    break Ok(waiting.ticket);
                }
                () = pause => {}
            }
            // While it waits, a client that ends its side means that it left.
            if self.front.presence() != Presence::Here {
                break Err(NotForwarded::Left);
            }
        };
        self.standing.metrics.waited.take(began.elapsed());
        drop((held, in_all));
        waited
    }

    /// A connect that takes long is a wait like any other: the client may leave, and the hold may end.
    async fn while_present<T>(&mut self, work: impl Future<Output = T>) -> Result<T, NotForwarded> {
        let mut work = pin!(work);
        let deadline = self.deadline.max(Instant::now() + LOOK);
        loop {
            match tokio::time::timeout(LOOK, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) if self.front.presence() != Presence::Here => return Err(NotForwarded::Left),
                Err(_) if Instant::now() >= deadline => {
                    let over = if self.clients { Fault::DeadlineOver } else { Fault::HoldEnded };
                    return Err(NotForwarded::Fault(over));
                }
                Err(_) => self.waited = true,
            }
        }
    }

    async fn forward(&mut self, back: &mut Back) -> Ended {
        let _active = Counted::new(Active(Arc::clone(&self.standing.metrics)));
        if let Back::H1(back) = back {
            back.start(&self.head, self.upgrade.as_ref());
        }
        let host = self.standing.host();
        let spec = &self.site.spec;
        let patience = Patience {
            body: spec.body_timeout,
            send: spec.send_timeout,
            answer: host.spec.answer_timeout,
            body_bytes: host.spec.body_bytes,
        };
        let look = pin!(tokio::time::sleep(Relay::<F>::pace()));
        Relay::new(self.front, back, patience, look, self.here.as_ref()).carry().await
    }

    fn keep(&self, back: Back) {
        if let Back::H1(back) = back
            && back.is_reusable()
        {
            self.worker.pool.keep(&self.standing.host(), back.line, Instant::now());
        }
    }

    async fn give_up(&mut self, fault: &Fault, grpc: bool, counting: &mut Counting) -> After {
        counting.outcome = fault.outcome();
        say(self.front, fault.answer(grpc)).await;
        After::AsItIs
    }
}
