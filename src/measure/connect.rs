//! Connections of the prober: plain or TLS, HTTP/1.1 or HTTP/2, and never a request twice.
//!
//! hyper-util's pooled client is not used: it repeats by itself what a dead connection did not start, and what is to be
//! measured would not be seen.

use super::site::Site;
use super::tls::{NoTls, Tls};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;

type Body = Empty<Bytes>;
type One = http1::SendRequest<Body>;

/// So many requests share an HTTP/2 connection at the most: what servers allow at the least. A further one would wait
/// in our own queue, and nothing here may wait.
const STREAMS: usize = 100;

/// An HTTP/2 connection with what is under way on it.
#[derive(Debug)]
pub(super) struct Two {
    sender: http2::SendRequest<Body>,
    under_way: AtomicUsize,
    /// A request got no answer on it in time: it may be a way to nowhere, and gets no more.
    silent: AtomicBool,
}

/// The connection of one exchange.
#[derive(Debug)]
pub(super) enum Line {
    One(One),
    Two(Place),
}

/// One request's place on an HTTP/2 connection. One that is given up before its request ended means silence.
#[derive(Debug)]
pub(super) struct Place {
    two: Arc<Two>,
    ended: bool,
}

impl Place {
    fn on(two: &Arc<Two>) -> Self {
        two.under_way.fetch_add(1, Ordering::Relaxed);
        Self { two: Arc::clone(two), ended: false }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.two.under_way.fetch_sub(1, Ordering::Relaxed);
        if !self.ended {
            self.two.silent.store(true, Ordering::Relaxed);
        }
    }
}

impl Line {
    async fn try_send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Body>>)> {
        let sent = match self {
            Self::One(sender) => sender.try_send_request(request).await,
            Self::Two(place) => {
                let sent = place.two.sender.clone().try_send_request(request).await;
                // An error is an end as well.
                place.ended = sent.is_err();
                sent
            }
        };
        sent.map_err(|mut error| (error.take_message(), error)).map_err(|(unsent, error)| (error.into_error(), unsent))
    }
}

/// An answer whose body is still to come, and the connection that it comes on.
pub(super) struct Exchange {
    pub(super) response: Response<Incoming>,
    pub(super) line: Line,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// As the network or the server would have it.
    Server(String),
    /// This machine could not even begin.
    Here(String),
    /// The certificate does not verify.
    Untrusted(String),
    /// The server does not speak HTTP/2.
    NoHttp2(String),
}

/// Opens connections and keeps those that may be used again.
#[derive(Debug)]
pub(super) struct Connections {
    tls: Option<Tls>,
    http2: bool,
    uri: Uri,
    kept_headers: HeaderMap,
    fresh_headers: HeaderMap,
    ones: Mutex<HashMap<SocketAddr, Vec<One>>>,
    twos: Mutex<HashMap<SocketAddr, Vec<Arc<Two>>>>,
}

impl Connections {
    pub(super) fn new(site: &Site, http2: bool, ca: Option<&[u8]>, more: &HeaderMap) -> io::Result<Self> {
        let tls = site.tls.then(|| Tls::new(&site.host, ca, http2)).transpose()?;
        let mut kept_headers = HeaderMap::new();
        kept_headers.insert(USER_AGENT, HeaderValue::from_static("handover-prober"));
        kept_headers.extend(more.clone());
        let uri = if http2 {
            let scheme = if site.tls { "https" } else { "http" };
            format!("{scheme}://{}{}", site.authority, site.path)
        } else {
            kept_headers.insert(HOST, HeaderValue::from_str(&site.authority).map_err(io::Error::other)?);
            site.path.clone()
        };
        let mut fresh_headers = kept_headers.clone();
        if !http2 {
            fresh_headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let uri = uri.parse().map_err(io::Error::other)?;
        Ok(Self { tls, http2, uri, kept_headers, fresh_headers, ones: Mutex::default(), twos: Mutex::default() })
    }

    /// A kept connection that is open and free.
    fn one(&self, address: SocketAddr) -> Option<One> {
        let mut kept = lock(&self.ones);
        let own = kept.get_mut(&address)?;
        own.retain(|sender| !sender.is_closed());
        let at = own.iter().rposition(One::is_ready)?;
        Some(own.swap_remove(at))
    }

    /// A place on a kept connection that is open and not full.
    fn two(&self, address: SocketAddr) -> Option<Place> {
        let mut kept = lock(&self.twos);
        let own = kept.get_mut(&address)?;
        own.retain(|two| !two.sender.is_closed() && !two.silent.load(Ordering::Relaxed));
        own.iter().find(|two| two.under_way.load(Ordering::Relaxed) < STREAMS).map(Place::on)
    }

    /// Takes a connection back whose answer has ended. One for single requests is kept where the answer came `whole`; an
    /// HTTP/2 one is kept since it was opened, and stays.
    pub(super) fn ended(&self, address: SocketAddr, line: Line, whole: bool) {
        match line {
            Line::One(sender) if whole && !sender.is_closed() => {
                lock(&self.ones).entry(address).or_default().push(sender);
            }
            Line::One(_) => {}
            Line::Two(mut place) => place.ended = true,
        }
    }

    fn kept(&self, address: SocketAddr) -> Option<Line> {
        if self.http2 { self.two(address).map(Line::Two) } else { self.one(address).map(Line::One) }
    }

    async fn open(&self, address: SocketAddr, keep: bool) -> Result<Line, Failure> {
        let stream = TcpStream::connect(address).await.map_err(|error| {
            let what = format!("no connection: {error}");
            if ours(&error) { Failure::Here(what) } else { Failure::Server(what) }
        })?;
        stream.set_nodelay(true).map_err(|error| Failure::Server(error.to_string()))?;
        match &self.tls {
            None => self.speak(TokioIo::new(stream), address, keep).await,
            Some(tls) => {
                let stream = tls.connect(stream).await.map_err(|error| match error {
                    NoTls::Untrusted(what) => Failure::Untrusted(format!("no TLS: {what}")),
                    NoTls::NoHttp2(what) => Failure::NoHttp2(format!("no HTTP/2: {what}")),
                    NoTls::Broken(what) => Failure::Server(format!("no TLS: {what}")),
                })?;
                self.speak(TokioIo::new(stream), address, keep).await
            }
        }
    }

    async fn speak<T>(&self, io: TokioIo<T>, address: SocketAddr, keep: bool) -> Result<Line, Failure>
    where
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |error: hyper::Error| Failure::Server(words(&error));
        if !self.http2 {
            let (sender, connection) = http1::handshake(io).await.map_err(broken)?;
            tokio::spawn(async move { drop(connection.await) });
            return Ok(Line::One(sender));
        }
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(broken)?;
        tokio::spawn(async move { drop(connection.await) });
        let two = Arc::new(Two { sender, under_way: AtomicUsize::new(0), silent: AtomicBool::new(false) });
        if keep {
            lock(&self.twos).entry(address).or_default().push(Arc::clone(&two));
        }
        Ok(Line::Two(Place::on(&two)))
    }

    fn request(&self, reuse: bool) -> Request<Body> {
        let mut request = Request::new(Body::new());
        request.uri_mut().clone_from(&self.uri);
        let headers = if reuse { &self.kept_headers } else { &self.fresh_headers };
        request.headers_mut().clone_from(headers);
        request
    }

    /// Sends one request. A kept connection that had ended before a byte was written is opened again, and so is one that
    /// said in good order that it takes no more, this request included; one that ends afterwards counts.
    pub(super) async fn send(&self, address: SocketAddr, reuse: bool) -> Result<Exchange, Failure> {
        let mut request = self.request(reuse);
        while let Some(mut line) = reuse.then(|| self.kept(address)).flatten() {
            match line.try_send(request).await {
                Ok(response) => return Ok(Exchange { response, line }),
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) if turned_away(&error) => request = self.request(reuse),
                Err((error, None)) => return Err(Failure::Server(words(&error))),
            }
        }
        let mut line = self.open(address, reuse).await?;
        let response = line.try_send(request).await.map_err(|(error, _)| Failure::Server(words(&error)))?;
        Ok(Exchange { response, line })
    }
}

/// Whether the server ended an HTTP/2 connection in good order and says that it did not look at this request: every client
/// sends such a request again.
fn turned_away(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    source.is_some_and(|error| error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR))
}

/// What this machine lacks says nothing of the server: files, ports, memory.
fn ours(error: &io::Error) -> bool {
    let here = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| here.contains(&errno))
}

fn words(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
