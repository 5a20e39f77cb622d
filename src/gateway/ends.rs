//! The two ends of an exchange as the relay sees them: pieces of bodies, heads, and what can go wrong at either end.

use super::h1::Bad;
use super::h1::head::ResponseHead;
use super::line::Presence;
use bytes::Bytes;
use hyper::{HeaderMap, StatusCode};
use std::task::{Context, Poll};

/// A piece of a body.
#[derive(Debug)]
pub(super) enum Piece {
    Data(Bytes),
    /// Its end, with trailers if there are any.
    End(Option<Box<HeaderMap>>),
}

/// What can go wrong at the client's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrontTrouble {
    /// The client is gone.
    Gone,
    /// What it sends is no body.
    Bad(Bad),
}

/// What can go wrong at the backend's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackTrouble {
    /// The connection ended or broke.
    Broken,
    /// The backend says that it never looked at the request, or nothing of it can have arrived.
    Untouched,
    /// What came is no answer.
    Bad,
}

/// The client's end of one exchange.
pub(super) trait Front {
    /// The next piece of the request's body.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, FrontTrouble>>;
    /// Whether anything of the body was taken.
    fn is_untouched(&self) -> bool;
    /// Answers before the answer.
    fn interim(&mut self, status: StatusCode, headers: &HeaderMap);
    /// Begins the answer.
    fn start(&mut self, head: ResponseHead, closes: bool);
    /// Goes on with it.
    fn send(&mut self, piece: Piece);
    /// Ready when more may be sent.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FrontTrouble>>;
    /// Ready when everything was sent.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FrontTrouble>>;
    /// The answer cannot be finished, and the client must see that.
    fn abort(&mut self);
    /// Whether the client is there.
    fn presence(&self) -> Presence;
    /// Gives memory back while the request waits.
    fn rest(&mut self);
    /// Gives memory back while the other side is slower.
    fn ease(&mut self);
    /// How many bytes came and went.
    fn moved(&self) -> (u64, u64);
    /// Whether something waits to be taken by the client.
    fn is_pushing(&self) -> bool;
}
