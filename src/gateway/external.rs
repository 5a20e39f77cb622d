//! `external.metrics.k8s.io`: the HPA of a cluster reads here, by way of its API server, whose backend is wanted.
//!
//! Asked only over TLS and only by who shows a certificate of the cluster's front proxy; nothing can be changed here. What is answered is
//! decided by `say` (pure); this file listens, and looks at the counters often enough that no request is over unseen.

mod latch;
mod say;
mod selector;

use super::site::Shared;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use latch::Latches;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// Between two looks at the counters.
const LOOK: Duration = Duration::from_millis(500);
/// A handshake takes no longer.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The API server keeps its connections; one that is idle for longer is given up.
const IDLE: Duration = Duration::from_secs(600);

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let latches = Arc::new(Mutex::new(Latches::default()));
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = look.tick() => drop(looked(&shared, &latches)),
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => drop(tokio::spawn(connection(socket, Arc::clone(&shared), Arc::clone(&latches)))),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
        }
    }
}

async fn connection(socket: tokio::net::TcpStream, shared: Arc<Shared>, latches: Arc<Mutex<Latches>>) {
    let Some(config) = shared.site().external.clone() else { return };
    // Whoever shows no certificate of the front proxy gets no further than this.
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(socket)).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &shared, &latches);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    // The API server that goes away concerns nobody else.
    drop(connection.await);
}

/// What each configured host shows now.
fn looked(shared: &Shared, latches: &Mutex<Latches>) -> Vec<say::Shown> {
    let site = shared.site();
    let latch = site.spec.external_metrics.as_ref().map(|one| one.latch).unwrap_or_default();
    let mut latches = latches.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let mut shown = Vec::new();
    for (name, under_way, ended) in shared.metrics.use_of_hosts() {
        // Who was configured once is counted on, and shown no more.
        if let Some(host) = site.spec.hosts.iter().find(|host| host.name.as_str() == name) {
            let value = latches.look(&name, under_way, ended, latch, now);
            shown.push(say::Shown { label: host.name.label(), value });
        }
    }
    shown
}

fn answer(request: &Request<Incoming>, shared: &Shared, latches: &Mutex<Latches>) -> Response<Full<Bytes>> {
    let uri = request.uri();
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let shown = looked(shared, latches);
    let (status, body) = say::say(request.method().as_str(), uri.path(), uri.query().unwrap_or_default(), &shown, &now);
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
