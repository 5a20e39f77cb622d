//! The client's end over HTTP/2: one stream of a connection that hyper drives.

use super::ends::{Front, FrontTrouble, Piece};
use super::fields;
use super::h1::Framing;
use super::h1::head::{RequestHead, ResponseHead};
use super::line::Presence;
use super::pipe::{self, Reader, Writer};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, EXPECT, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, Response, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// One stream.
#[derive(Debug)]
pub(super) struct H2Front {
    body: Option<Incoming>,
    untouched: bool,
    reply: Option<oneshot::Sender<Response<Reader>>>,
    writer: Option<Writer>,
    moved: (u64, u64),
    head_only: bool,
}

/// Why a stream's request cannot be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHead {
    /// It names no host, or two different ones.
    Host,
    /// CONNECT and TRACE are not served.
    Method,
}

/// A stream's head in the words of HTTP/1.1.
pub(super) fn head_of(parts: Parts, body: &Incoming) -> Result<RequestHead, NoHead> {
    let Parts { method, uri, version, mut headers, .. } = parts;
    if method == Method::CONNECT || method == Method::TRACE {
        return Err(NoHead::Method);
    }
    let host =
        headers.remove(HOST).map(|host| host.to_str().map(ToOwned::to_owned).map_err(|_| NoHead::Host)).transpose()?;
    let named = uri.authority().map(|authority| authority.as_str().to_owned());
    let authority = match (named, host) {
        (Some(named), Some(host)) if !named.eq_ignore_ascii_case(&host) => return Err(NoHead::Host),
        (named, host) => named.or(host).ok_or(NoHead::Host)?,
    };
    fields::join_cookies(&mut headers);
    // hyper sends no 100; whoever waits for it sends the body after a while all the same.
    headers.remove(EXPECT);
    let told = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let framing = match told {
        Some(length) => Framing::Length(length),
        None if body.is_end_stream() => Framing::None,
        None => Framing::Chunked,
    };
    let target = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Ok(RequestHead { method, target, authority, version, headers, framing, keep: true })
}

impl H2Front {
    pub(super) fn new(body: Incoming, reply: oneshot::Sender<Response<Reader>>, head_only: bool) -> Self {
        Self { head_only, body: Some(body), untouched: true, reply: Some(reply), writer: None, moved: (0, 0) }
    }
}

impl Front for H2Front {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, FrontTrouble>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(Piece::End(None))) };
        loop {
            let piece = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => {
                        self.untouched = false;
                        self.moved.0 += data.len() as u64;
                        return Poll::Ready(Ok(Piece::Data(data)));
                    }
                    Err(frame) => Piece::End(frame.into_trailers().ok().map(Box::new)),
                },
                Some(Err(_)) => return Poll::Ready(Err(FrontTrouble::Gone)),
                None => Piece::End(None),
            };
            self.body = None;
            return Poll::Ready(Ok(piece));
        }
    }

    fn is_untouched(&self) -> bool {
        self.untouched
    }

    fn interim(&mut self, _: StatusCode, _: &HeaderMap) {
        // hyper cannot send them over HTTP/2; nothing depends on them (RFC 9110 section 15.2).
    }

    fn start(&mut self, head: ResponseHead, _: bool) {
        let (mut writer, reader) = pipe::pipe();
        if self.head_only {
            writer.end(None);
        }
        let mut response = Response::new(reader);
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        match head.framing {
            // Trailers alone are an answer of gRPC: no length is added to them.
            Framing::None | Framing::Length(0) => writer.end(None),
            Framing::Length(length) => {
                drop(response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length)));
            }
            Framing::Chunked | Framing::Close => drop(response.headers_mut().remove(CONTENT_LENGTH)),
        }
        if let Some(reply) = self.reply.take() {
            drop(reply.send(response));
        }
        self.writer = Some(writer);
    }

    fn send(&mut self, piece: Piece) {
        let Some(writer) = self.writer.as_mut().filter(|_| !self.head_only) else { return };
        match piece {
            Piece::Data(data) => {
                self.moved.1 += data.len() as u64;
                writer.data(data);
            }
            Piece::End(mut trailers) => {
                if let Some(trailers) = &mut trailers {
                    fields::strip_trailers(trailers);
                }
                writer.end(trailers.map(|trailers| *trailers));
            }
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FrontTrouble>> {
        match &mut self.writer {
            Some(writer) => writer.poll_room(cx).map_err(|()| FrontTrouble::Gone),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FrontTrouble>> {
        if let Some(writer) = &mut self.writer {
            return writer.poll_empty(cx).map_err(|()| FrontTrouble::Gone);
        }
        // While no answer began, this is where a stream that was reset is noticed.
        match self.reply.as_mut().map(|reply| reply.poll_closed(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(FrontTrouble::Gone)),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn abort(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.abort();
        }
    }

    fn presence(&self) -> Presence {
        if self.reply.as_ref().is_some_and(oneshot::Sender::is_closed) { Presence::Gone } else { Presence::Here }
    }

    fn rest(&mut self) {}

    fn ease(&mut self) {}

    fn moved(&self) -> (u64, u64) {
        self.moved
    }

    fn is_pushing(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::is_waiting)
    }
}
