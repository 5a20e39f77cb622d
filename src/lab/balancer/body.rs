//! A target's body on its way to the client: it streams through, and what becomes of it is what the log says.

use super::log::Ticket;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The body of an answer of a node.
pub(super) enum Answer {
    /// The balancer's own.
    Own(Full<Bytes>),
    /// A target's.
    Passed(Box<Passed>),
}

/// A body that broke off.
#[derive(Debug)]
pub(super) struct BrokeOff(&'static str);

impl fmt::Display for BrokeOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BrokeOff {}

/// A target's body that is watched.
pub(super) struct Passed {
    inner: Incoming,
    ticket: Ticket,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    idle: Pin<Box<Sleep>>,
    idle_timeout: Duration,
    over: bool,
}

impl Passed {
    pub(super) fn new(
        inner: Incoming,
        ticket: Ticket,
        cut: Pin<Box<dyn Future<Output = ()> + Send>>,
        idle_timeout: Duration,
    ) -> Self {
        let idle = Box::pin(tokio::time::sleep(idle_timeout));
        let mut passed = Self { inner, ticket, cut, idle, idle_timeout, over: false };
        passed.note_end();
        passed
    }

    /// hyper stops asking when a body of known length is whole, so the end has to be seen here.
    fn note_end(&mut self) {
        if self.inner.is_end_stream() {
            self.over(true, "");
        }
    }

    fn over(&mut self, whole: bool, cause: &'static str) {
        self.over = true;
        self.ticket.passed(whole, cause);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.ticket.bytes(frame.data_ref().map_or(0, Bytes::len));
                self.idle.as_mut().reset(Instant::now() + self.idle_timeout);
                self.note_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_))) => self.break_off("the target broke its answer off"),
            Poll::Ready(None) => {
                self.over(true, "");
                Poll::Ready(None)
            }
            Poll::Pending => {
                if self.cut.as_mut().poll(cx).is_ready() {
                    return self.break_off("the deregistration delay was over");
                }
                ready!(self.idle.as_mut().poll(cx));
                self.break_off("the target was silent for the idle timeout")
            }
        }
    }

    fn break_off(&mut self, cause: &'static str) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        self.over(false, cause);
        Poll::Ready(Some(Err(BrokeOff(cause))))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        match &mut *self {
            Self::Own(own) => Pin::new(own).poll_frame(cx).map_err(|never| match never {}),
            Self::Passed(passed) if passed.over => Poll::Ready(None),
            Self::Passed(passed) => passed.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(own) => own.is_end_stream(),
            Self::Passed(passed) => passed.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(own) => own.size_hint(),
            Self::Passed(passed) => passed.inner.size_hint(),
        }
    }
}
