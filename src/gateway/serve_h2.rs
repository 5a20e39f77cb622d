//! A client's connection over HTTP/2: hyper drives it, every stream is an exchange of its own.

use super::answer::Answer;
use super::exchange::{self, Peer};
use super::h2_front::{H2Front, NoHead, head_of};
use super::line::Line;
use super::metrics::Turned;
use super::own;
use super::pipe::Reader;
use super::site::Leaving;
use super::spawn::Local;
use super::worker::{Seat, Worker};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// A client may have so many streams at a time: each may be a request that waits.
const STREAMS: u32 = 1000;

/// What was read already comes first.
struct Rewound(Line);

impl AsyncRead for Rewound {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let line = &mut self.get_mut().0;
        if line.inbox.is_empty() {
            return Pin::new(&mut line.stream).poll_read(cx, buf);
        }
        let count = line.inbox.len().min(buf.remaining());
        buf.put_slice(&line.inbox.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().0.stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0.stream).poll_shutdown(cx)
    }
}

/// How many streams are open, and since when none is.
struct Streams {
    open: Cell<usize>,
    idle: Cell<Instant>,
}

struct Open(Rc<Streams>);

impl Open {
    fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        Self(Rc::clone(streams))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.idle.set(Instant::now());
    }
}

/// Serves one connection to its end.
pub(super) async fn connection(line: Line, peer: Peer, worker: &Rc<Worker>, seat: &Seat) {
    let site = worker.shared.site();
    let streams = Rc::new(Streams { open: Cell::new(0), idle: Cell::new(Instant::now()) });
    let (own, counted) = (Rc::clone(worker), Rc::clone(&streams));
    let service = service_fn(move |request| stream(request, peer, Rc::clone(&own), Open::new(&counted)));
    let connection = hyper::server::conn::http2::Builder::new(Local)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(site.spec.head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .serve_connection(TokioIo::new(Rewound(line)), service);
    let mut connection = std::pin::pin!(connection);
    let mut leaving = worker.shared.leaving.subscribe();
    let mut told = false;
    let mut look = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        tokio::select! {
            // How it ended concerns its client alone.
            _ = connection.as_mut() => return,
            _ = look.tick() => {}
            () = seat.given_up() => return worker.shared.metrics.turned_away(Turned::Evicted),
            Ok(()) = leaving.changed(), if !told => {}
        }
        if streams.open.get() == 0 {
            seat.idles();
        } else {
            seat.works();
        }
        let idle = streams.open.get() == 0 && streams.idle.get().elapsed() > site.spec.keep_alive;
        if (idle || *leaving.borrow() != Leaving::No) && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
    }
}

async fn stream(
    request: Request<Incoming>,
    peer: Peer,
    worker: Rc<Worker>,
    open: Open,
) -> Result<Response<Reader>, Infallible> {
    let (parts, body) = request.into_parts();
    let head_only = parts.method == Method::HEAD;
    let head = head_of(parts, &body);
    let (reply, answer) = oneshot::channel();
    let mut front = H2Front::new(body, reply, head_only);
    // A task of its own: the answer's body is still being sent after its head was given to hyper.
    tokio::task::spawn_local(async move {
        let _open = open;
        match head {
            Ok(head) => drop(exchange::run(&mut front, head, peer, &worker).await),
            Err(why) => {
                worker.shared.metrics.turned_away(Turned::Malformed);
                let answer = match why {
                    NoHead::Host => Answer::text(StatusCode::BAD_REQUEST, "A request names exactly one host."),
                    NoHead::Method => Answer::text(StatusCode::METHOD_NOT_ALLOWED, "This method is not served here."),
                };
                own::say(&mut front, answer).await;
            }
        }
    });
    match answer.await {
        Ok(response) => Ok(response),
        // The exchange ended without an answer: its client is gone, so nobody reads this.
        Err(_) => {
            let mut response = Response::new(super::pipe::nothing());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            Ok(response)
        }
    }
}
