//! Ways to backends: connections that are kept and used again, fresh ones, and the bare connect that shows whether anybody accepts.
//!
//! One pool a thread, so no lock stands between a request and its connection. A request that must not be sent twice never goes
//! over a connection that was idle: its backend may have closed it in the same moment.

use super::back::H1Back;
use super::line::{Line, Stream};
use super::pipe::Reader;
use super::site::{Host, Standing};
use super::spawn::Local;
use crate::fleet::model::{Backend, HostName};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// More idle connections to one backend are not kept.
const IDLE: usize = 1024;
/// What resolves a name is asked again after so long.
const RESOLVED: Duration = Duration::from_secs(1);
/// What accepts for somebody else and finds nobody there (Docker's proxy) closes within this time.
const DOUBT: Duration = Duration::from_millis(5);
/// A backend that answered so lately is there, and no doubt is needed.
const SURE: Duration = Duration::from_secs(1);
/// So many looks may be under way at a time: some networks let a connect hang.
const LOOKS: usize = 8;

struct Idle {
    line: Line,
    since: Instant,
}

#[derive(Default)]
struct Ways {
    to: Option<Backend>,
    idle: Vec<Idle>,
    streams: Option<http2::SendRequest<Reader>>,
    resolved: Option<(Instant, Vec<SocketAddr>)>,
}

/// The ways of one thread.
#[derive(Default)]
pub(super) struct Pool(RefCell<HashMap<HostName, Ways>>);

/// Why there is no way: nothing was sent in any case.
#[derive(Debug)]
pub(super) struct NoWay;

/// Which connections will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Any.
    Any,
    /// One that nothing was sent over yet.
    Fresh,
}

impl Pool {
    fn ways<T>(&self, host: &Host, look: impl FnOnce(&mut Ways) -> T) -> T {
        let mut ways = self.0.borrow_mut();
        if !ways.contains_key(&host.spec.name) {
            ways.insert(host.spec.name.clone(), Ways::default());
        }
        let Some(ways) = ways.get_mut(&host.spec.name) else { unreachable!("it was put there") };
        if ways.to.as_ref() != Some(&host.spec.backend) {
            *ways = Ways { to: Some(host.spec.backend.clone()), ..Ways::default() };
        }
        look(ways)
    }

    /// A kept connection that is still good.
    pub(super) fn kept(&self, host: &Host, now: Instant) -> Option<H1Back> {
        let reuse = host.spec.reuse;
        self.ways(host, |ways| {
            while let Some(idle) = ways.idle.pop() {
                if now.saturating_duration_since(idle.since) >= reuse {
                    // The ones below it are older still.
                    ways.idle.clear();
                    return None;
                }
                if is_quiet(&idle.line) {
                    return Some(H1Back::new(idle.line, true));
                }
            }
            None
        })
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, host: &Host, mut line: Line, now: Instant) {
        if host.spec.reuse.is_zero() {
            return;
        }
        line.rest();
        self.ways(host, |ways| {
            if ways.idle.len() < IDLE {
                ways.idle.push(Idle { line, since: now });
            }
        });
    }

    /// Closes what was idle for too long, so that backends need not.
    pub(super) fn sweep(&self, reuse_of: impl Fn(&HostName) -> Option<Duration>, now: Instant) {
        self.0.borrow_mut().retain(|name, ways| {
            let reuse = reuse_of(name);
            ways.idle.retain(|idle| reuse.is_some_and(|reuse| now.saturating_duration_since(idle.since) < reuse));
            reuse.is_some() || ways.streams.is_some()
        });
    }

    /// A fresh connection to an HTTP/1.1 backend.
    pub(super) async fn fresh(&self, host: &Host, standing: &Standing) -> Result<H1Back, NoWay> {
        let connect = async {
            let stream = self.connect(host).await?;
            if !standing.has_answered_within(SURE, Instant::now()) && !is_held_open(&stream).await {
                return Err(NoWay);
            }
            encrypted(host, stream).await
        };
        let stream = tokio::time::timeout(host.spec.connect_timeout, connect).await.map_err(|_| NoWay)??;
        Ok(H1Back::new(Line::new(stream), false))
    }

    /// A connection to an HTTP/2 backend, which many requests share.
    pub(super) async fn streams(&self, host: &Host, standing: &Standing) -> Result<http2::SendRequest<Reader>, NoWay> {
        let kept = self.ways(host, |ways| {
            ways.streams.take_if(|streams| streams.is_closed()).map_or_else(|| ways.streams.clone(), |_| None)
        });
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let connect = async {
            let stream = self.connect(host).await?;
            if !standing.has_answered_within(SURE, Instant::now()) && !is_held_open(&stream).await {
                return Err(NoWay);
            }
            let stream = encrypted(host, stream).await?;
            let (sender, connection) = http2::Builder::new(Local)
                .timer(TokioTimer::new())
                .initial_stream_window_size(1024 * 1024)
                .initial_connection_window_size(4 * 1024 * 1024)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|_| NoWay)?;
            tokio::task::spawn_local(async move { drop(connection.await) });
            Ok(sender)
        };
        let sender = tokio::time::timeout(host.spec.connect_timeout, connect).await.map_err(|_| NoWay)??;
        self.ways(host, |ways| ways.streams = Some(sender.clone()));
        Ok(sender)
    }

    /// No stream goes over the shared connection any more.
    pub(super) fn forget_streams(&self, host: &Host) {
        self.ways(host, |ways| ways.streams = None);
    }

    async fn connect(&self, host: &Host) -> Result<TcpStream, NoWay> {
        let addresses = self.resolve(host).await?;
        for address in addresses {
            if let Ok(stream) = TcpStream::connect(address).await {
                tuned(&stream);
                return Ok(stream);
            }
        }
        // A name may mean another address by now.
        self.ways(host, |ways| ways.resolved = None);
        Err(NoWay)
    }

    async fn resolve(&self, host: &Host) -> Result<Vec<SocketAddr>, NoWay> {
        let backend = &host.spec.backend;
        if let Ok(address) = backend.host.parse() {
            return Ok(vec![SocketAddr::new(address, backend.port)]);
        }
        let now = Instant::now();
        let known = self.ways(host, |ways| ways.resolved.clone());
        if let Some((at, addresses)) = known
            && now.saturating_duration_since(at) < RESOLVED
        {
            return Ok(addresses);
        }
        let found = tokio::net::lookup_host((backend.host.as_str(), backend.port)).await.map_err(|_| NoWay)?;
        let found: Vec<SocketAddr> = found.collect();
        self.ways(host, |ways| ways.resolved = Some((now, found.clone())));
        Ok(found)
    }

    /// Whether anybody accepts a connection; nothing is sent over it.
    async fn accepts(&self, host: &Host) -> bool {
        let look = async {
            match self.connect(host).await {
                Ok(stream) => is_held_open(&stream).await,
                Err(NoWay) => false,
            }
        };
        tokio::time::timeout(host.spec.connect_timeout, look).await.unwrap_or(false)
    }

    /// Looks until nobody needs to know any more, and lets those who wait go.
    pub(super) async fn watch(&self, standing: Arc<Standing>) {
        let mut looks = FuturesUnordered::new();
        loop {
            let host = standing.host();
            if looks.len() < LOOKS {
                let own = Arc::clone(&host);
                looks.push(async move { self.accepts(&own).await });
            }
            let pause = tokio::time::sleep(host.spec.connect_interval);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    biased;
                    look = looks.next(), if !looks.is_empty() => {
                        if look == Some(true) {
                            // What other looks find out is older than this.
                            looks.clear();
                            standing.accepted(Instant::now());
                            break;
                        }
                    }
                    () = &mut pause => break,
                }
            }
            loop {
                let over = standing.release(Instant::now());
                if over {
                    return;
                }
                if !standing.is_releasing() {
                    break;
                }
                tokio::time::sleep(super::hold::STEP).await;
            }
        }
    }
}

async fn encrypted(host: &Host, stream: TcpStream) -> Result<Stream, NoWay> {
    let Some(config) = &host.tls else { return Ok(Stream::Plain(stream)) };
    let name = ServerName::try_from(host.spec.backend.host.clone()).map_err(|_| NoWay)?;
    let connector = TlsConnector::from(Arc::clone(config));
    let stream = connector.connect(name, stream).await.map_err(|_| NoWay)?;
    Ok(Stream::Client(Box::new(stream)))
}

/// Small answers are not held back, and a peer that vanished is noticed some day.
pub(super) fn tuned(stream: &TcpStream) {
    // Both only make things better; a socket that refuses them is already dead.
    drop(stream.set_nodelay(true));
    let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
}

/// Whether nothing came on an idle connection: neither its end nor an answer to nothing.
fn is_quiet(line: &Line) -> bool {
    let socket = line.stream.socket();
    match socket.poll_read_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => true,
        Poll::Ready(Err(_)) => false,
        // Readiness may be older than the last read: the socket itself is asked.
        Poll::Ready(Ok(())) => {
            let peeked = socket.try_io(Interest::READABLE, || peek(socket));
            peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        }
    }
}

fn peek(socket: &TcpStream) -> io::Result<usize> {
    use rustix::net::{RecvFlags, recv};
    let mut byte = [0_u8; 1];
    let (count, _) = recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    Ok(count)
}

/// Whether a fresh connection stays open for a moment.
async fn is_held_open(stream: &TcpStream) -> bool {
    let mut byte = [0_u8; 1];
    match tokio::time::timeout(DOUBT, stream.peek(&mut byte)).await {
        Err(_) => true,
        Ok(peeked) => peeked.is_ok_and(|count| count > 0),
    }
}
