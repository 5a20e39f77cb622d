//! A connection that became something else, a WebSocket for one: bytes both ways until both sides are done.

use super::exchange::Opened;
use super::fields;
use super::front::H1Front;
use super::h1::write;
use super::line::Line;
use super::metrics::{Counted, Tunnel};
use hyper::header::UPGRADE;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep};

/// Tells the client that the backend agreed, and carries bytes until the end. Once one side is done, the other may be silent for
/// `patience`: who is only half there may as well be gone, and nothing else would ever say so.
pub(super) async fn carry(front: H1Front, opened: Opened, patience: Duration) {
    let Opened { mut head, mut back, metrics, here } = opened;
    let _tunnel = Counted::new(Tunnel(metrics));
    let mut line = front.line;
    let protocol = head.headers.get(UPGRADE).cloned();
    fields::strip(&mut head.headers);
    let protocol = protocol.as_ref().map_or(&b""[..], |value| value.as_bytes());
    write::interim(head.status, &head.headers, Some(protocol), &mut line.outbox);
    line.rest();
    back.rest();
    let mut over = (false, false);
    let mut quiet = pin!(tokio::time::sleep(patience));
    let mut moved = 0;
    let mut counted = 0;
    // How a tunnel ends is between its two ends.
    let carried = poll_fn(|cx| {
        let polled = poll(&mut line, &mut back, &mut over, &mut moved, quiet.as_mut(), patience, cx);
        let now = line.came + line.went + back.came + back.went;
        if let (Some(here), true) = (&here, now != counted) {
            counted = now;
            here.moved();
        }
        polled
    })
    .await;
    drop(carried);
}

fn poll(
    line: &mut Line,
    back: &mut Line,
    over: &mut (bool, bool),
    moved: &mut u64,
    mut quiet: Pin<&mut Sleep>,
    patience: Duration,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if let Poll::Ready(Err(error)) = poll_way(line, back, &mut over.0, cx) {
        return Poll::Ready(Err(error));
    }
    if let Poll::Ready(Err(error)) = poll_way(back, line, &mut over.1, cx) {
        return Poll::Ready(Err(error));
    }
    match *over {
        (true, true) => return Poll::Ready(Ok(())),
        (false, false) => return Poll::Pending,
        _ => {}
    }
    let now = line.came + line.went + back.came + back.went;
    if now != *moved {
        *moved = now;
        quiet.as_mut().reset(Instant::now() + patience);
    }
    quiet.poll(cx).map(Ok)
}

/// One direction; `over` once its end was passed on.
fn poll_way(from: &mut Line, to: &mut Line, over: &mut bool, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        ready!(to.poll_flush(cx))?;
        if !from.inbox.is_empty() {
            // Whatever came ahead of the agreement belongs to the tunnel, too.
            to.outbox.unsplit(from.inbox.split());
        } else if from.ended {
            if !*over {
                ready!(Pin::new(&mut to.stream).poll_shutdown(cx))?;
                *over = true;
            }
            return Poll::Ready(Ok(()));
        } else {
            ready!(from.poll_fill(cx))?;
        }
    }
}
