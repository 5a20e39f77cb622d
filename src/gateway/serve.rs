//! A client's connection from its first byte: TLS or not, HTTP/1.1 or HTTP/2, request after request.

use super::answer::Answer;
use super::exchange::{self, After, Peer};
use super::front::H1Front;
use super::h1::Bad;
use super::h1::head::{RequestHead, end_of_head, may_begin, read_request};
use super::line::{Line, Stream};
use super::metrics::{Connections, Counted, Turned};
use super::own;
use super::serve_h2;
use super::tunnel;
use super::worker::{Seat, Worker};
use hyper::StatusCode;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// How HTTP/2 begins where nothing was agreed before.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Serves one connection to its end.
pub(super) async fn connection(socket: TcpStream, peer: Peer, worker: Rc<Worker>) {
    let metrics = &worker.shared.metrics;
    let _counted = Counted::new(Connections(metrics.clone()));
    let seat = worker.seat();
    let stream = if peer.tls {
        let site = worker.shared.site();
        let Some(config) = site.tls.clone() else { return };
        seat.idles();
        // Boxed, as is everything large that not every connection needs: thousands of them may only wait.
        let shake = Box::pin(tokio::time::timeout(site.spec.head_timeout, TlsAcceptor::from(config).accept(socket)));
        let shaken = tokio::select! {
            shaken = shake => shaken,
            () = seat.given_up() => return metrics.turned_away(Turned::Evicted),
        };
        let Ok(Ok(stream)) = shaken else { return metrics.turned_away(Turned::Handshake) };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let line = Line::new(Stream::Server(Box::new(stream)));
            return Box::pin(serve_h2::connection(line, peer, &worker, &seat)).await;
        }
        Stream::Server(Box::new(stream))
    } else {
        Stream::Plain(socket)
    };
    let mut front = H1Front::new(Line::new(stream));
    loop {
        match next(&mut front, &worker, &seat).await {
            Next::Request(head) => {
                seat.works();
                front.begin(&head, worker.shared.is_leaving());
                match exchange::run(&mut front, *head, peer, &worker).await {
                    After::AsItIs => {}
                    After::Tunnel(opened) => {
                        let patience = worker.shared.site().spec.send_timeout;
                        return Box::pin(tunnel::carry(front, *opened, patience)).await;
                    }
                }
                if !front.goes_on() {
                    break;
                }
            }
            Next::Http2 => return Box::pin(serve_h2::connection(front.line, peer, &worker, &seat)).await,
            Next::Bad(bad) => {
                metrics.turned_away(Turned::Malformed);
                front.begin_badly();
                own::say(&mut front, Answer::text(bad.status(), &bad.to_string()).closing()).await;
                break;
            }
            Next::Slow => {
                metrics.turned_away(Turned::Slow);
                front.begin_badly();
                let answer = Answer::text(StatusCode::REQUEST_TIMEOUT, "The request did not come in time.").closing();
                own::say(&mut front, answer).await;
                break;
            }
            Next::Evicted => return metrics.turned_away(Turned::Evicted),
            Next::End => return,
        }
    }
    if front.ends_in_doubt() {
        front.line.reset();
    } else {
        Box::pin(front.line.linger()).await;
    }
}

/// What comes next on a connection.
enum Next {
    Request(Box<RequestHead>),
    Http2,
    Bad(Bad),
    /// A request began and did not come to the end of its head in time.
    Slow,
    /// The connection is given up to make room.
    Evicted,
    /// It is over, between two requests.
    End,
}

async fn next(front: &mut H1Front, worker: &Worker, seat: &Seat) -> Next {
    let spec = &worker.shared.site().spec;
    let line = &mut front.line;
    seat.idles();
    if line.inbox.is_empty() {
        line.rest();
        match waits(line, spec.keep_alive, seat).await {
            Filled::Some => {}
            Filled::Evicted => return Next::Evicted,
            Filled::End | Filled::Late => return Next::End,
        }
    }
    let late = tokio::time::Instant::now() + spec.head_timeout;
    let mut scanned = 0;
    loop {
        if !may_begin(&line.inbox) {
            return Next::Bad(Bad::Malformed);
        }
        if let Some(end) = end_of_head(&line.inbox, scanned) {
            if end > spec.head_bytes {
                return Next::Bad(Bad::TooLong);
            }
            if &line.inbox[..end] == PREFACE {
                return Next::Http2;
            }
            // A copy of its own length: a request that waits keeps nothing else alive.
            let bytes = bytes::Bytes::copy_from_slice(&line.inbox[..end]);
            bytes::Buf::advance(&mut line.inbox, end);
            if bytes.iter().all(|b| matches!(b, b'\r' | b'\n')) {
                scanned = 0;
                continue;
            }
            return match read_request(&bytes) {
                Ok(head) => Next::Request(Box::new(head)),
                Err(bad) => Next::Bad(bad),
            };
        }
        scanned = line.inbox.len();
        if scanned >= spec.head_bytes {
            return Next::Bad(Bad::TooLong);
        }
        let left = late.saturating_duration_since(tokio::time::Instant::now());
        match waits(line, left, seat).await {
            Filled::Some => {}
            Filled::Evicted => return Next::Evicted,
            Filled::Late => return Next::Slow,
            Filled::End => return Next::End,
        }
    }
}

enum Filled {
    Some,
    End,
    Late,
    Evicted,
}

async fn waits(line: &mut Line, most: Duration, seat: &Seat) -> Filled {
    let filled = tokio::time::timeout(most, poll_fn(|cx| line.poll_fill(cx)));
    tokio::select! {
        biased;
        filled = filled => match filled {
            Ok(Ok(0) | Err(_)) => Filled::End,
            Ok(Ok(_)) => Filled::Some,
            Err(_) => Filled::Late,
        },
        () = seat.given_up() => Filled::Evicted,
    }
}

#[cfg(test)]
mod tests {
    use super::super::site::{Shared, prepare};
    use super::*;
    use std::sync::Arc;

    /// Thousands of connections may wait at a time, each with this.
    #[test]
    fn what_every_connection_has_is_small() {
        let text = "[gateway]\nlisten = \"127.0.0.1:1\"\n[[gateway.host]]\nname = \"a\"\nbackend = \"http://b\"\n";
        let source = crate::config::Source::new("g.toml", text);
        let (spec, _) = crate::config::gateway_from(&source, None).expect("a configuration");
        let shared = Arc::new(Shared::new(prepare(spec).unwrap_or_else(|wrong| panic!("{wrong:?}"))));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
            let address = listener.local_addr().expect("an address");
            let socket = TcpStream::connect(address).await.expect("connected");
            let worker = Worker::new(shared);
            let size = size_of_val(&connection(socket, Peer { address, local: address, tls: false }, worker));
            assert!(size <= 3000, "{size} bytes");
        });
    }
}
