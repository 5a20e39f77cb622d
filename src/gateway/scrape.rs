//! Answers `/metrics`, and `/nodes` and `/hold` for whoever deploys to this server; nothing else.

use super::site::Shared;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &shared);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(socket), service);
            // A scraper that goes away concerns nobody else; one that stays asks often.
            drop(tokio::time::timeout(Duration::from_secs(600), connection).await);
        });
    }
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let asked = request.method() == Method::GET || request.method() == Method::HEAD;
    match request.uri().path() {
        "/metrics" if asked => metrics(shared),
        "/nodes" if asked => json(&shared.nodes.seen()),
        "/hold" if asked => json(&shared.held_seen()),
        _ => {
            let mut answer =
                Response::new(Full::new(Bytes::from_static(b"here are /metrics, /nodes and /hold only\n")));
            *answer.status_mut() = StatusCode::NOT_FOUND;
            answer
        }
    }
}

fn json(said: &impl serde::Serialize) -> Response<Full<Bytes>> {
    // Numbers and texts under names are JSON always.
    let page = serde_json::to_vec(said).unwrap_or_default();
    let mut answer = Response::new(Full::new(Bytes::from(page)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn metrics(shared: &Shared) -> Response<Full<Bytes>> {
    shared.look_at_drain_files();
    let page = shared.metrics.page(shared.is_draining(&shared.site()));
    let mut answer = Response::new(Full::new(Bytes::from(page)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
