//! The backend's end over HTTP/1.1.

use super::ends::{BackTrouble, Piece};
use super::fields::{self, Upgrade};
use super::h1::body::{Decoder, Taken};
use super::h1::head::{RequestHead, ResponseHead, end_of_head, read_response};
use super::h1::{Framing, write};
use super::line::Line;
use hyper::{Method, StatusCode};
use std::task::{Context, Poll, ready};

/// The head of an answer may be so long.
const HEAD: usize = 256 * 1024;
/// So many answers may come before the answer.
const INTERIM: u32 = 32;

/// One connection to a backend and how its present exchange stands.
#[derive(Debug)]
pub(super) struct H1Back {
    pub(super) line: Line,
    method: Method,
    upgrade: bool,
    request: Framing,
    request_sent: bool,
    scanned: usize,
    decoder: Decoder,
    keep: bool,
    interim: u32,
    /// Whether it served before: then its end before any answer may only mean that it was idle for too long.
    pub(super) reused: bool,
    begun: u64,
}

impl H1Back {
    pub(super) fn new(line: Line, reused: bool) -> Self {
        Self {
            begun: line.came,
            line,
            method: Method::GET,
            upgrade: false,
            request: Framing::None,
            request_sent: false,
            scanned: 0,
            decoder: Decoder::Done,
            keep: true,
            interim: 0,
            reused,
        }
    }

    /// Writes the request's head.
    pub(super) fn start(&mut self, head: &RequestHead, upgrade: Option<&Upgrade>) {
        self.method.clone_from(&head.method);
        self.upgrade = upgrade.is_some();
        self.request = head.framing;
        write::request(head, upgrade.map(|upgrade| upgrade.0.as_bytes()), &mut self.line.outbox);
    }

    pub(super) fn send(&mut self, piece: Piece) {
        match piece {
            Piece::Data(data) => write::data(self.request, &data, &mut self.line.outbox),
            Piece::End(mut trailers) => {
                if let Some(trailers) = &mut trailers {
                    fields::strip_trailers(trailers);
                }
                write::end(self.request, trailers.as_deref(), &mut self.line.outbox);
                self.request_sent = true;
            }
        }
    }

    /// The next head: an interim one (1xx), or the answer's.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, BackTrouble>> {
        loop {
            if let Some(end) = end_of_head(&self.line.inbox, self.scanned) {
                self.scanned = 0;
                let bytes = self.line.inbox.split_to(end).freeze();
                let head = read_response(&bytes, &self.method).map_err(|_| BackTrouble::Bad)?;
                return Poll::Ready(self.judge(head));
            }
            self.scanned = self.line.inbox.len();
            if self.scanned > HEAD {
                return Poll::Ready(Err(BackTrouble::Bad));
            }
            match ready!(self.line.poll_fill(cx)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(self.trouble())),
                Ok(_) => {}
            }
        }
    }

    fn judge(&mut self, head: ResponseHead) -> Result<ResponseHead, BackTrouble> {
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            // What nobody asked for would make a tunnel out of a connection of requests.
            return if self.upgrade { Ok(head) } else { Err(BackTrouble::Bad) };
        }
        if head.status.is_informational() {
            self.interim += 1;
            return if self.interim > INTERIM { Err(BackTrouble::Bad) } else { Ok(head) };
        }
        self.decoder = Decoder::new(head.framing);
        self.keep = head.keep;
        Ok(head)
    }

    /// Nothing came on a connection that served before: the request met its end.
    fn trouble(&self) -> BackTrouble {
        if self.line.went == 0 || (self.reused && self.line.came == self.begun) {
            BackTrouble::Untouched
        } else {
            BackTrouble::Broken
        }
    }

    /// The next piece of the answer's body.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, BackTrouble>> {
        loop {
            match self.decoder.take(&mut self.line.inbox) {
                Ok(Taken::Data(data)) => return Poll::Ready(Ok(Piece::Data(data))),
                Ok(Taken::End(trailers)) => return Poll::Ready(Ok(Piece::End(trailers))),
                Ok(Taken::More) => {}
                Err(_) => return Poll::Ready(Err(BackTrouble::Bad)),
            }
            match ready!(self.line.poll_fill(cx)) {
                Ok(0) if self.decoder.ends_with_connection() => {
                    self.decoder = Decoder::Done;
                    return Poll::Ready(Ok(Piece::End(None)));
                }
                Ok(0) | Err(_) => return Poll::Ready(Err(BackTrouble::Broken)),
                Ok(_) => {}
            }
        }
    }

    /// Whether the next request may go this way.
    pub(super) fn is_reusable(&self) -> bool {
        self.keep && self.request_sent && self.decoder.is_done() && self.line.is_flushed() && self.line.inbox.is_empty()
    }
}
