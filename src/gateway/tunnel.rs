//! A connection that became something else, a WebSocket for one: bytes both ways until both sides are done.

use super::exchange::Opened;
use super::fields;
use super::front::H1Front;
use super::h1::write;
use super::metrics::{Counted, Tunnel};
use hyper::header::{HeaderMap, UPGRADE};
use std::future::poll_fn;

/// Tells the client that the backend agreed, and carries bytes until the end.
pub(super) async fn carry(mut front: H1Front, opened: Opened) {
    let Opened { head, mut back, metrics } = opened;
    let _tunnel = Counted::new(Tunnel(metrics));
    let protocol = head.headers.get(UPGRADE).cloned();
    let mut headers: HeaderMap = head.headers;
    fields::strip(&mut headers);
    let protocol = protocol.as_ref().map_or(&b""[..], |value| value.as_bytes());
    write::interim(head.status, &headers, Some(protocol), &mut front.line.outbox);
    // What either side sent ahead of the agreement belongs to the tunnel.
    front.line.outbox.extend_from_slice(&back.inbox);
    back.outbox.extend_from_slice(&front.line.inbox);
    let mut line = front.line;
    let sent = async {
        poll_fn(|cx| line.poll_flush(cx)).await?;
        poll_fn(|cx| back.poll_flush(cx)).await
    };
    if sent.await.is_ok() {
        line.rest();
        back.rest();
        // How a tunnel ends is between its two ends.
        drop(tokio::io::copy_bidirectional(&mut line.stream, &mut back.stream).await);
    }
}
