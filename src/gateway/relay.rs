//! One exchange under way: the request's body one way, the answer the other, both at once, at the pace of the slower side.
//!
//! It may know neither hosts nor holds. An answer may come before the request is whole, and a client may stop sending and still
//! read: what ends one direction does not end the other.

use super::answer::Fault;
use super::back::H1Back;
use super::ends::{BackTrouble, Front, FrontTrouble, Piece};
use super::fields;
use super::h1::head::ResponseHead;
use super::h2_back::H2Back;
use super::here::Here;
use super::line::Presence;
use hyper::StatusCode;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Between two looks at the clock.
const LOOK: Duration = Duration::from_secs(1);

/// The backend's end.
#[derive(Debug)]
pub(super) enum Back {
    H1(Box<H1Back>),
    H2(Box<H2Back>),
}

/// What each side may take its time for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For the client to go on sending.
    pub(super) body: Duration,
    /// For the client to take what is sent.
    pub(super) send: Duration,
    /// For the backend to begin its answer.
    pub(super) answer: Option<Duration>,
    /// How long the body may be.
    pub(super) body_bytes: Option<u64>,
}

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The answer went out whole.
    Whole(StatusCode),
    /// The connection becomes something else; nothing of the answer to that was sent yet.
    Upgraded(Box<ResponseHead>),
    /// Nothing was answered yet: the gateway answers.
    Fault(Fault),
    /// The backend never looked at the request, and nothing of its body was taken.
    Untouched,
    /// The answer broke off.
    CutShort,
    /// The client is gone.
    ClientGone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Sending,
    Sent,
    /// The backend takes no more of it; what it answers still counts.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Awaited,
    Body(StatusCode),
    Finishing(StatusCode),
}

/// An exchange under way.
pub(super) struct Relay<'a, F> {
    front: &'a mut F,
    back: &'a mut Back,
    patience: Patience,
    request: Request,
    answer: Answer,
    body: u64,
    began: Instant,
    /// When the whole request was with the backend.
    fed: Instant,
    moved: (u64, u64),
    silent: (Instant, Instant),
    /// Whether it is the client whose next piece is waited for.
    hungry: bool,
    look: Pin<&'a mut Sleep>,
    /// What counts it, where the backend may sleep.
    here: Option<&'a Here>,
}

impl Back {
    fn send(&mut self, piece: Piece) {
        match self {
            Self::H1(back) => back.send(piece),
            Self::H2(back) => back.send(piece),
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        match self {
            Self::H1(back) => back.line.poll_room(cx).map_err(drop),
            Self::H2(back) => back.poll_room(cx),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<(), ()> {
        match self {
            Self::H1(back) => match back.line.poll_flush(cx) {
                Poll::Ready(Err(_)) => Err(()),
                _ => Ok(()),
            },
            Self::H2(_) => Ok(()),
        }
    }

    fn ease(&mut self) {
        if let Self::H1(back) = self {
            back.line.ease();
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, BackTrouble>> {
        match self {
            Self::H1(back) => back.poll_head(cx),
            Self::H2(back) => back.poll_head(cx),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, BackTrouble>> {
        match self {
            Self::H1(back) => back.poll_piece(cx),
            Self::H2(back) => back.poll_piece(cx),
        }
    }
}

impl<'a, F: Front> Relay<'a, F> {
    pub(super) fn new(
        front: &'a mut F,
        back: &'a mut Back,
        patience: Patience,
        look: Pin<&'a mut Sleep>,
        here: Option<&'a Here>,
    ) -> Self {
        let now = Instant::now();
        Self {
            moved: front.moved(),
            front,
            back,
            patience,
            request: Request::Sending,
            answer: Answer::Awaited,
            body: 0,
            began: now,
            fed: now,
            silent: (now, now),
            hungry: false,
            look,
            here,
        }
    }

    /// Carries the exchange to its end.
    pub(super) async fn carry(mut self) -> Ended {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// How long to wait between two looks.
    pub(super) fn pace() -> Duration {
        LOOK
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            let mut moved = false;
            match self.push_request(cx) {
                Ok(some) => moved |= some,
                Err(ended) => return Poll::Ready(ended),
            }
            match self.pull_answer(cx) {
                Ok(some) => moved |= some,
                Err(ended) => return Poll::Ready(ended),
            }
            if moved {
                if let Some(here) = self.here {
                    here.moved();
                }
                continue;
            }
            match self.front.poll_flush(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Ended::ClientGone),
                Poll::Ready(Ok(())) => {
                    if let Answer::Finishing(status) = self.answer {
                        return Poll::Ready(Ended::Whole(status));
                    }
                }
                Poll::Pending => {}
            }
            if self.look.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if let Some(ended) = self.look_around() {
                return Poll::Ready(ended);
            }
            self.look.as_mut().reset(tokio::time::Instant::now() + LOOK);
        }
    }

    /// One direction: what the client sends goes to the backend.
    fn push_request(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let mut moved = false;
        self.hungry = false;
        while self.request == Request::Sending {
            match self.back.poll_room(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(())) => {
                    self.request = Request::Refused;
                    break;
                }
                Poll::Pending => {
                    self.front.ease();
                    break;
                }
            }
            match self.front.poll_piece(cx) {
                Poll::Ready(Ok(Piece::End(trailers))) => {
                    self.back.send(Piece::End(trailers));
                    self.request = Request::Sent;
                    self.fed = self.silent.0.max(self.fed);
                    moved = true;
                }
                Poll::Ready(Ok(Piece::Data(data))) => {
                    self.body += data.len() as u64;
                    if self.patience.body_bytes.is_some_and(|most| self.body > most) {
                        return Err(self.fail(Fault::BodyTooLong));
                    }
                    self.back.send(Piece::Data(data));
                    moved = true;
                }
                Poll::Ready(Err(FrontTrouble::Gone)) => return Err(Ended::ClientGone),
                Poll::Ready(Err(FrontTrouble::Bad(bad))) => {
                    let fault = Fault::Refused(bad.status(), "The body is not framed as HTTP/1.1 says.");
                    return Err(self.fail(fault));
                }
                Poll::Pending => {
                    self.hungry = true;
                    break;
                }
            }
        }
        if self.back.poll_flush(cx).is_err() && self.request != Request::Refused {
            self.request = Request::Refused;
            moved = true;
        }
        Ok(moved)
    }

    /// The other direction: what the backend answers goes to the client.
    fn pull_answer(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let mut moved = false;
        loop {
            match self.answer {
                Answer::Awaited => match self.back.poll_head(cx) {
                    Poll::Ready(Ok(head)) => self.begin(head)?,
                    Poll::Ready(Err(trouble)) => return Err(self.no_answer(trouble)),
                    Poll::Pending => return Ok(moved),
                },
                Answer::Body(status) => {
                    match self.front.poll_room(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Err(Ended::ClientGone),
                        Poll::Pending => {
                            self.back.ease();
                            return Ok(moved);
                        }
                    }
                    match self.back.poll_piece(cx) {
                        Poll::Ready(Ok(piece)) => {
                            if matches!(piece, Piece::End(_)) {
                                self.answer = Answer::Finishing(status);
                            }
                            self.front.send(piece);
                        }
                        Poll::Ready(Err(_)) => {
                            self.front.abort();
                            return Err(Ended::CutShort);
                        }
                        Poll::Pending => return Ok(moved),
                    }
                }
                Answer::Finishing(_) => return Ok(moved),
            }
            moved = true;
        }
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Ended> {
        let upgrades = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(here) = self.here.filter(|_| upgrades || !head.status.is_informational()) {
            here.answered();
        }
        if upgrades {
            return Err(Ended::Upgraded(Box::new(head)));
        }
        fields::strip(&mut head.headers);
        if head.status.is_informational() {
            self.front.interim(head.status, &head.headers);
            return Ok(());
        }
        self.answer = Answer::Body(head.status);
        self.front.start(head, false);
        Ok(())
    }

    fn no_answer(&self, trouble: BackTrouble) -> Ended {
        match trouble {
            BackTrouble::Untouched if self.front.is_untouched() => Ended::Untouched,
            BackTrouble::Untouched | BackTrouble::Broken => Ended::Fault(Fault::Broken),
            BackTrouble::Bad => Ended::Fault(Fault::BadAnswer),
        }
    }

    /// The gateway answers where it still can.
    fn fail(&mut self, fault: Fault) -> Ended {
        if self.answer == Answer::Awaited {
            return Ended::Fault(fault);
        }
        self.front.abort();
        Ended::CutShort
    }

    /// Once a second: whether somebody takes too long, and whether the client is still there.
    fn look_around(&mut self) -> Option<Ended> {
        let now = Instant::now();
        if self.front.presence() == Presence::Gone {
            return Some(Ended::ClientGone);
        }
        let moved = self.front.moved();
        if moved.0 != self.moved.0 || self.request != Request::Sending {
            self.silent.0 = now;
        }
        if moved.1 != self.moved.1 || !self.front.is_pushing() {
            self.silent.1 = now;
        }
        self.moved = moved;
        let silent = now.duration_since(self.silent.0);
        if self.hungry && silent > self.patience.body {
            return Some(self.fail(Fault::SlowBody));
        }
        if now.duration_since(self.silent.1) > self.patience.send {
            self.front.abort();
            return Some(Ended::ClientGone);
        }
        // A backend that is still fed owes no answer yet; one that neither takes nor answers does.
        let fed = self.request == Request::Sending;
        let waited = if fed { silent } else { now.duration_since(self.began.max(self.fed)) };
        let late = self.patience.answer.is_some_and(|most| waited > most);
        (late && !self.hungry && self.answer == Answer::Awaited).then_some(Ended::Fault(Fault::NoAnswer))
    }
}
