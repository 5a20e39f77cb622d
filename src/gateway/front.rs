//! The client's end over HTTP/1.1.

use super::ends::{Front, FrontTrouble, Piece};
use super::fields;
use super::h1::Framing;
use super::h1::body::{Decoder, Taken};
use super::h1::head::{RequestHead, ResponseHead};
use super::h1::write::{self, Connection};
use super::line::{Line, Presence};
use hyper::{HeaderMap, Method, StatusCode, Version};
use std::task::{Context, Poll, ready};

/// One client's connection, and how its present exchange stands.
#[derive(Debug)]
pub(super) struct H1Front {
    pub(super) line: Line,
    decoder: Decoder,
    untouched: bool,
    version: Version,
    head_only: bool,
    client_keeps: bool,
    framing: Framing,
    closes: bool,
    /// The answer ended short of what its head promised.
    broken: bool,
    /// The gateway leaves: every answer is the last one of its connection.
    last: bool,
}

impl H1Front {
    pub(super) fn new(line: Line) -> Self {
        Self {
            line,
            decoder: Decoder::Done,
            untouched: true,
            version: Version::HTTP_11,
            head_only: false,
            client_keeps: true,
            framing: Framing::None,
            closes: false,
            broken: false,
            last: false,
        }
    }

    /// A request was read.
    pub(super) fn begin(&mut self, head: &RequestHead, last: bool) {
        self.last = last;
        self.decoder = Decoder::new(head.framing);
        self.untouched = true;
        self.version = head.version;
        self.head_only = head.method == Method::HEAD;
        self.client_keeps = head.keep;
        self.closes = false;
    }

    /// Something came that is no request: the answer is the last one.
    pub(super) fn begin_badly(&mut self) {
        self.decoder = Decoder::Close;
        self.head_only = false;
    }

    /// Whether another request may follow.
    pub(super) fn goes_on(&self) -> bool {
        !self.closes && !self.broken && self.decoder.is_done()
    }

    /// Whether an orderly end would look like the end of the answer, which it is not.
    pub(super) fn ends_in_doubt(&self) -> bool {
        self.broken && self.framing == Framing::Close
    }
}

impl Front for H1Front {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, FrontTrouble>> {
        loop {
            match self.decoder.take(&mut self.line.inbox) {
                Ok(Taken::Data(data)) => {
                    self.untouched = false;
                    return Poll::Ready(Ok(Piece::Data(data)));
                }
                Ok(Taken::End(trailers)) => {
                    self.line.ease();
                    return Poll::Ready(Ok(Piece::End(trailers)));
                }
                Ok(Taken::More) => {}
                Err(bad) => return Poll::Ready(Err(FrontTrouble::Bad(bad))),
            }
            match ready!(self.line.poll_fill(cx)) {
                // The client ends before its body does: it cannot want what this would become.
                Ok(0) | Err(_) => return Poll::Ready(Err(FrontTrouble::Gone)),
                Ok(_) => self.untouched = false,
            }
        }
    }

    fn is_untouched(&self) -> bool {
        self.untouched
    }

    fn interim(&mut self, status: StatusCode, headers: &HeaderMap) {
        if self.version == Version::HTTP_11 {
            write::interim(status, headers, None, &mut self.line.outbox);
        }
    }

    fn start(&mut self, head: ResponseHead, closes: bool) {
        let old = self.version == Version::HTTP_10;
        self.framing = match head.framing {
            _ if self.head_only => Framing::None,
            Framing::Chunked | Framing::Close if old => Framing::Close,
            Framing::Close => Framing::Chunked,
            framing => framing,
        };
        // Of a body that is not read by now the rest may never be: nothing after it could be told apart.
        self.closes =
            closes || self.last || !self.client_keeps || self.framing == Framing::Close || !self.decoder.is_done();
        let connection = match (self.closes, old) {
            (true, _) => Connection::Closes,
            (false, true) => Connection::StaysTold,
            (false, false) => Connection::Stays,
        };
        write::response(head.status, &head.headers, self.framing, connection, &mut self.line.outbox);
    }

    fn send(&mut self, piece: Piece) {
        if self.head_only {
            return;
        }
        match piece {
            Piece::Data(data) => write::data(self.framing, &data, &mut self.line.outbox),
            Piece::End(mut trailers) => {
                if let Some(trailers) = &mut trailers {
                    fields::strip_trailers(trailers);
                }
                write::end(self.framing, trailers.as_deref(), &mut self.line.outbox);
            }
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FrontTrouble>> {
        self.line.poll_room(cx).map_err(|_| FrontTrouble::Gone)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FrontTrouble>> {
        self.line.poll_flush(cx).map_err(|_| FrontTrouble::Gone)
    }

    fn abort(&mut self) {
        self.closes = true;
        self.broken = true;
    }

    fn presence(&self) -> Presence {
        self.line.stream.presence()
    }

    fn rest(&mut self) {
        self.line.rest();
    }

    fn ease(&mut self) {
        self.line.ease();
    }

    fn moved(&self) -> (u64, u64) {
        (self.line.came, self.line.went)
    }

    fn is_pushing(&self) -> bool {
        !self.line.is_flushed()
    }
}
