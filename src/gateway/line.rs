//! A connection with what was read of it and not yet used, and what is written and not yet sent.
//!
//! Everything polls: one task moves both directions of an exchange without a lock or a second task. What is not asked for stays
//! in the socket, so whoever sends faster than the other side reads is slowed down by TCP itself.

use bytes::{Buf, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

/// A read asks for so much at first; a request's head rarely needs more, and thousands may wait with what they have.
const FIRST_READ: usize = 2 * 1024;
/// And for so much where more keeps coming.
const MOST_READ: usize = 32 * 1024;
/// While so much is still to be sent nothing more is taken.
const OUTBOX: usize = 8 * 1024;
/// A buffer that is empty and larger than this is given back: what is under way in great numbers mostly waits.
const KEPT: usize = 8 * 1024;
/// How long and how much is read of a client that is being closed on: an answer is lost if the socket closes over unread data.
const LINGER: (Duration, usize) = (Duration::from_secs(2), 4 * 1024 * 1024);

/// The bytes of a connection, encrypted or not.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Server(Box<server::TlsStream<TcpStream>>),
    Client(Box<client::TlsStream<TcpStream>>),
}

/// Whether the other side is still there, as the kernel knows without reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Here,
    /// It will send nothing more (FIN); it may still read.
    Half,
    /// The connection is dead.
    Gone,
}

impl Stream {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Server(tls) => tls.get_ref().0,
            Self::Client(tls) => tls.get_ref().0,
        }
    }

    /// Unread data hides nothing from this look, and it reads none.
    pub(super) fn presence(&self) -> Presence {
        let mut fds = [PollFd::new(self.socket(), PollFlags::RDHUP)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) | Err(_) => Presence::Here,
            Ok(_) if fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) => Presence::Gone,
            Ok(_) => Presence::Half,
        }
    }
}

macro_rules! to_inner {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Plain($stream) => $call,
            Self::Server($stream) => $call,
            Self::Client($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        to_inner!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        to_inner!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        to_inner!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        to_inner!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// A connection and its two buffers.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) stream: Stream,
    /// What was read and not used.
    pub(super) inbox: BytesMut,
    /// What is to be sent.
    pub(super) outbox: BytesMut,
    step: usize,
    flushed: bool,
    /// Whether the other side's end was read.
    pub(super) ended: bool,
    /// How many bytes came.
    pub(super) came: u64,
    /// How many went.
    pub(super) went: u64,
}

impl Line {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            step: FIRST_READ,
            flushed: true,
            ended: false,
            came: 0,
            went: 0,
        }
    }

    /// Reads more. `Ok(0)` is the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        self.inbox.reserve(self.step);
        let room = self.inbox.capacity() - self.inbox.len();
        let read = pin!(self.stream.read_buf(&mut self.inbox)).poll(cx);
        if let Poll::Ready(Ok(count)) = &read {
            self.came += *count as u64;
            self.ended = *count == 0;
            if *count == room {
                self.step = (self.step * 2).min(MOST_READ);
            }
        }
        read
    }

    /// Sends what is to be sent.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.outbox) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.outbox.advance(count);
                    self.went += count as u64;
                    self.flushed = false;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.outbox.capacity() > KEPT {
            self.outbox = BytesMut::new();
        }
        if !self.flushed {
            if !matches!(self.stream, Stream::Plain(_)) {
                std::task::ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            }
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when more may be written.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.outbox.len() < OUTBOX { Poll::Ready(Ok(())) } else { self.poll_flush(cx) }
    }

    /// Whether everything written was sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && self.flushed
    }

    /// Nothing more is read for now.
    pub(super) fn ease(&mut self) {
        if self.inbox.is_empty() && self.inbox.capacity() > FIRST_READ {
            self.inbox = BytesMut::new();
        }
        self.step = FIRST_READ;
    }

    /// Gives memory back while nothing moves.
    pub(super) fn rest(&mut self) {
        if self.inbox.is_empty() {
            self.inbox = BytesMut::new();
        } else {
            let exact = BytesMut::from(self.inbox.as_ref());
            self.inbox = exact;
        }
        if self.outbox.is_empty() {
            self.outbox = BytesMut::new();
        }
        self.step = FIRST_READ;
    }

    /// Closes so that what was sent arrives, although the client may still be sending.
    pub(super) async fn linger(mut self) {
        let farewell = async {
            std::future::poll_fn(|cx| self.poll_flush(cx)).await?;
            self.stream.shutdown().await?;
            let mut left = LINGER.1;
            while left > 0 {
                self.inbox.clear();
                let count = std::future::poll_fn(|cx| self.poll_fill(cx)).await?;
                if count == 0 {
                    break;
                }
                left = left.saturating_sub(count);
            }
            Ok::<(), io::Error>(())
        };
        // Whoever does not take it by then is not there.
        drop(tokio::time::timeout(LINGER.0, farewell).await);
    }

    /// Makes the other side see that something broke: a reset instead of an orderly end.
    pub(super) fn reset(self) {
        // Where this fails the connection ends in order, short of what was promised all the same.
        let _ = rustix::net::sockopt::set_socket_linger(self.stream.socket(), Some(Duration::ZERO));
    }
}
