//! The data plane: every node takes requests, picks a target by its own view and passes on what it answers.
//!
//! Which status stands for which failure is the table of the AWS user guide (load-balancer-troubleshooting).

use super::body::{Answer, Passed};
use super::core::Core;
use super::lock;
use super::log::Ticket;
use super::model::Pick;
use super::pool::{NoAnswer, Pool};
use crate::fleet::model::GroupName;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, SERVER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What ends at every hop (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 5] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const TRACE_ID: HeaderName = HeaderName::from_static("x-amzn-trace-id");

/// One node's listener for one group.
#[derive(Debug)]
struct Door {
    core: Arc<Core>,
    node: usize,
    group: GroupName,
    port: u16,
    pool: Pool,
}

/// Begins to take requests.
pub(super) async fn listen(
    core: &Arc<Core>,
    node: usize,
    group: &GroupName,
    wanted: SocketAddr,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(wanted).await?;
    let address = listener.local_addr()?;
    let (core, group) = (Arc::clone(core), group.clone());
    let door = Arc::new(Door { core, node, group, port: address.port(), pool: Pool::new(node) });
    Ok((address, tokio::spawn(accept(listener, door))))
}

async fn accept(listener: TcpListener, door: Arc<Door>) {
    let mut clients = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                clients.spawn(serve(stream, peer, Arc::clone(&door)));
            }
            // Out of descriptors: what is open goes on, what is new waits.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while clients.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, door: Arc<Door>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { Ok::<_, Infallible>(door.answer(peer, request).await) }
    });
    // A client that breaks off is in the log already.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

impl Door {
    async fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> Response<Answer> {
        let trace = request.headers().get(TRACE_ID).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let trace = trace.unwrap_or_else(|| self.core.log.trace());
        let mut ticket = Ticket::open(&self.core, self.node, &self.group, peer, trace.clone(), &request);
        let now = self.core.clock.now();
        let picked = lock(&self.core.model).pick(self.node, &self.group, now);
        let Pick::Target { place, fail_open } = picked else {
            ticket.own(503, "no target");
            return own(StatusCode::SERVICE_UNAVAILABLE);
        };
        let address = self.core.address(&place);
        ticket.target(place.clone(), address, fail_open);
        let Some(address) = address else {
            // Packets to a machine that is not there are dropped.
            tokio::time::sleep(self.core.connect_timeout()).await;
            ticket.own(504, "connect timeout");
            return own(StatusCode::GATEWAY_TIMEOUT);
        };
        let mut cut = Box::pin(self.core.cut(self.node, &self.group, &place));
        let idle = self.core.idle_timeout();
        let upstream =
            self.pool.send(&self.core, &place, address, onward(request, peer, self.port, &trace), || ticket.sent());
        let result = tokio::select! {
            biased;
            result = tokio::time::timeout(idle, upstream) => result,
            () = &mut cut => {
                ticket.own(502, "the deregistration delay was over");
                return own(StatusCode::BAD_GATEWAY);
            }
        };
        match result {
            Ok(Ok(response)) => {
                ticket.headers(response.status().as_u16());
                let (mut head, body) = response.into_parts();
                strip(&mut head.headers);
                head.version = Version::HTTP_11;
                Response::from_parts(head, Answer::Passed(Box::new(Passed::new(body, ticket, cut, idle))))
            }
            Ok(Err(why)) => self.failed(ticket, why),
            Err(_) => {
                ticket.own(504, "no answer within the idle timeout");
                own(StatusCode::GATEWAY_TIMEOUT)
            }
        }
    }

    fn failed(&self, ticket: Ticket, why: NoAnswer) -> Response<Answer> {
        let (status, cause) = match why {
            NoAnswer::Refused => (StatusCode::BAD_GATEWAY, "the target refused the connection"),
            NoAnswer::Closed => {
                (StatusCode::BAD_GATEWAY, "the target closed the connection with a request outstanding")
            }
            NoAnswer::ConnectTimeout => (StatusCode::GATEWAY_TIMEOUT, "connect timeout"),
            NoAnswer::Client => (StatusCode::BAD_REQUEST, "the client did not send its whole body"),
        };
        ticket.own(status.as_u16(), cause);
        own(status)
    }
}

/// The request as the target gets it.
fn onward(mut request: Request<Incoming>, peer: SocketAddr, port: u16, trace: &str) -> Request<Incoming> {
    strip(request.headers_mut());
    *request.version_mut() = Version::HTTP_11;
    let before = request.headers().get(FORWARDED_FOR).and_then(|v| v.to_str().ok());
    let chain = before.map_or_else(|| peer.ip().to_string(), |before| format!("{before}, {}", peer.ip()));
    let port = port.to_string();
    for (name, value) in
        [(FORWARDED_FOR, chain.as_str()), (FORWARDED_PROTO, "http"), (FORWARDED_PORT, &port), (TRACE_ID, trace)]
    {
        if let Ok(value) = HeaderValue::from_str(value) {
            request.headers_mut().insert(name, value);
        }
    }
    request
}

fn strip(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP.iter().chain([&KEEP_ALIVE]) {
        headers.remove(name);
    }
}

/// An answer of the balancer's own.
fn own(status: StatusCode) -> Response<Answer> {
    let reason = match status {
        StatusCode::SERVICE_UNAVAILABLE => "Service Temporarily Unavailable",
        StatusCode::GATEWAY_TIMEOUT => "Gateway Time-out",
        other => other.canonical_reason().unwrap_or("Error"),
    };
    let title = format!("{} {reason}", status.as_u16());
    let page = format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n</body>\r\n</html>\r\n"
    );
    let mut response = Response::new(Answer::Own(Full::new(Bytes::from(page))));
    *response.status_mut() = status;
    response.headers_mut().insert(SERVER, HeaderValue::from_static("awselb/2.0"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}
