//! One HTTP request over a fresh connection: health checks, and a server's looks at itself.

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// More of a body is not read.
const BODY_LIMIT: usize = 64 * 1024;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    /// Where to connect to.
    pub at: SocketAddr,
    /// How.
    pub method: &'a Method,
    /// Which path.
    pub path: &'a str,
    /// The `Host` header.
    pub host: &'a str,
    /// The `User-Agent` header.
    pub agent: &'a str,
    /// From which address; any where none is named.
    pub from: Option<IpAddr>,
}

/// Connects, from an address of its own where one is named.
pub(super) async fn connect(at: SocketAddr, from: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let Some(from) = from.filter(|from| from.is_ipv4() == at.is_ipv4()) else { return TcpStream::connect(at).await };
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(at).await
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// Not in time.
    Late,
    /// Refused, reset, malformed.
    Broken(String),
}

/// Asks once; the status and the beginning of the body.
pub(super) async fn fetch(ask: Ask<'_>, timeout: Duration) -> Result<(u16, Bytes), NoAnswer> {
    tokio::time::timeout(timeout, once(ask)).await.unwrap_or(Err(NoAnswer::Late))
}

async fn once(ask: Ask<'_>) -> Result<(u16, Bytes), NoAnswer> {
    let stream = connect(ask.at, ask.from).await.map_err(|error| broken(&error))?;
    stream.set_nodelay(true).map_err(|error| broken(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let request = Request::builder()
        .method(ask.method)
        .uri(ask.path)
        .header(HOST, ask.host)
        .header(USER_AGENT, ask.agent)
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| broken(&error))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_LIMIT).collect().await;
        // The answer counts, whatever became of its body.
        Ok((status, body.map(http_body_util::Collected::to_bytes).unwrap_or_default()))
    };
    // The connection is driven here, not by a task of its own: a check that is late leaves nothing behind.
    let driven = async {
        drop(connection.await);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        answer = exchange => answer,
        () = driven => Err(NoAnswer::Broken("the connection ended".into())),
    }
}

fn broken(error: &dyn std::error::Error) -> NoAnswer {
    let mut text = error.to_string();
    if let Some(source) = error.source() {
        text = format!("{text}: {source}");
    }
    NoAnswer::Broken(text)
}
