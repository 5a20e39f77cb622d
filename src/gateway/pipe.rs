//! A body handed from one task of a thread to another, with room for little: whoever writes waits for whoever reads.
//!
//! HTTP/2 streams are driven by hyper's own tasks; this is how the relay, which is one task, gives them what they send.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// So many bytes may wait.
const ROOM: usize = 64 * 1024;

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    ended: bool,
    broken: bool,
    unread: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl State {
    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

/// The end that is written to. Dropped before its end was said, it is broken off.
#[derive(Debug)]
pub(super) struct Writer(Rc<RefCell<State>>);

/// The end that is read, as hyper wants a body.
#[derive(Debug)]
pub(super) struct Reader(Rc<RefCell<State>>);

/// Both ends.
pub(super) fn pipe() -> (Writer, Reader) {
    let state = Rc::new(RefCell::new(State::default()));
    (Writer(Rc::clone(&state)), Reader(state))
}

/// A body without anything in it.
pub(super) fn nothing() -> Reader {
    let (mut writer, reader) = pipe();
    writer.end(None);
    reader
}

impl Writer {
    /// Ready when more may be written; an error where nobody reads any more.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let mut state = self.0.borrow_mut();
        if state.unread {
            return Poll::Ready(Err(()));
        }
        if state.bytes < ROOM {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready when all of it was read.
    pub(super) fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let mut state = self.0.borrow_mut();
        if state.unread && !(state.ended && state.frames.is_empty()) {
            return Poll::Ready(Err(()));
        }
        if state.frames.is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether something waits to be read.
    pub(super) fn is_waiting(&self) -> bool {
        !self.0.borrow().frames.is_empty()
    }

    pub(super) fn data(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let mut state = self.0.borrow_mut();
        state.bytes += data.len();
        state.frames.push_back(Frame::data(data));
        state.wake_reader();
    }

    pub(super) fn end(&mut self, trailers: Option<HeaderMap>) {
        let mut state = self.0.borrow_mut();
        state.frames.extend(trailers.map(Frame::trailers));
        state.ended = true;
        state.wake_reader();
    }

    /// Says that the rest will not come.
    pub(super) fn abort(&mut self) {
        let mut state = self.0.borrow_mut();
        state.broken = !state.ended;
        state.wake_reader();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.abort();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.unread = true;
        state.wake_writer();
    }
}

impl Body for Reader {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut state = self.0.borrow_mut();
        if let Some(frame) = state.frames.pop_front() {
            state.bytes -= frame.data_ref().map_or(0, Bytes::len);
            state.wake_writer();
            return Poll::Ready(Some(Ok(frame)));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        if state.broken {
            return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.borrow();
        state.ended && state.frames.is_empty()
    }
}
