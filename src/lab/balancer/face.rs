//! The ELBv2 API over HTTP, for the real AWS SDK and boto3: the query protocol in, XML out. Beside it `/lab/faults`,
//! `/lab/asked` and `/lab/truth`, for who plays with the lab.

use super::actions::{self, Refusal};
use super::core::Core;
use super::faults::{Fault, FaultKind};
use super::query::Query;
use super::{lock, loopback, xml};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// More than any call needs.
const BODY_LIMIT: usize = 1 << 20;

/// Begins to answer.
pub(super) async fn listen(core: &Arc<Core>, wanted: Option<SocketAddr>) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(wanted.unwrap_or_else(loopback)).await?;
    let address = listener.local_addr()?;
    let core = Arc::clone(core);
    let task = tokio::spawn(async move {
        let mut clients = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let core = Arc::clone(&core);
            clients.spawn(async move {
                let service = service_fn(move |request| {
                    let core = Arc::clone(&core);
                    async move { Ok::<_, Infallible>(answer(&core, address, request).await) }
                });
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
            });
            while clients.try_join_next().is_some() {}
        }
    });
    Ok((address, task))
}

async fn answer(core: &Core, api: SocketAddr, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let Ok(body) = Limited::new(request.into_body(), BODY_LIMIT).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body cannot be read");
    };
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    match (method, path.as_str()) {
        (Method::POST, "/") => call(core, api, &body).await,
        (Method::POST, "/lab/faults") => match serde_json::from_str::<Fault>(&body) {
            Ok(fault) => {
                core.faults.add(fault);
                plain(StatusCode::NO_CONTENT, "")
            }
            Err(error) => plain(StatusCode::BAD_REQUEST, &format!("{error}\n")),
        },
        (Method::DELETE, "/lab/faults") => {
            core.faults.clear();
            plain(StatusCode::NO_CONTENT, "")
        }
        (Method::GET, "/lab/truth") => {
            core.log.flush();
            match serde_json::to_string(&core.log.truth()) {
                Ok(json) => typed(StatusCode::OK, "application/json", json),
                Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            }
        }
        (Method::GET, "/lab/asked") => match serde_json::to_string(&*lock(&core.asked)) {
            Ok(json) => typed(StatusCode::OK, "application/json", json),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        (Method::DELETE, "/lab/asked") => {
            lock(&core.asked).clear();
            plain(StatusCode::NO_CONTENT, "")
        }
        (Method::GET, "/lab/healthy") => {
            let json = format!("{{\"healthy\": {}}}\n", lock(&core.model).all_healthy());
            typed(StatusCode::OK, "application/json", json)
        }
        _ => plain(
            StatusCode::NOT_FOUND,
            "POST / is the ELBv2 API; POST or DELETE /lab/faults; GET or DELETE /lab/asked; GET /lab/truth, GET \
             /lab/healthy\n",
        ),
    }
}

async fn call(core: &Core, api: SocketAddr, body: &str) -> Response<Full<Bytes>> {
    let query = Query::parse(body);
    let action = query.get("Action").unwrap_or_default().to_owned();
    lock(&core.asked).insert(action.clone());
    let fault = core.faults.take(&action);
    if fault == Some(FaultKind::Hang) {
        return std::future::pending().await;
    }
    let result = match fault.and_then(|fault| refusal(fault, &action)) {
        Some(refusal) => Err(refusal),
        None if !lock(&core.model).may_ask(core.clock.now()) => Err(throttled()),
        None => actions::answer(core, api, &action, &query),
    };
    let id = core.log.trace().replace("Root=1-", "");
    let (status, written) = match result {
        Ok(nodes) => (200, xml::response(&action, &nodes, &id)),
        Err(why) => {
            (why.status, xml::error(if why.status < 500 { "Sender" } else { "Receiver" }, why.code, &why.message, &id))
        }
    };
    let mut written = match written {
        Ok(written) => written,
        Err(error) => return plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    if fault == Some(FaultKind::Truncated) {
        let half = (0..=written.len() / 2).rev().find(|at| written.is_char_boundary(*at));
        written.truncate(half.unwrap_or(0));
    }
    let mut response = typed(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), "text/xml", written);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-amzn-requestid", id);
    }
    response
}

fn throttled() -> Refusal {
    Refusal::new("Throttling", "Rate exceeded")
}

fn refusal(fault: FaultKind, action: &str) -> Option<Refusal> {
    match fault {
        FaultKind::Throttle => Some(throttled()),
        FaultKind::AccessDenied => Some(Refusal::with_status(
            403,
            "AccessDenied",
            format!(
                "User: arn:aws:iam::123456789012:user/lab is not authorized to perform: elasticloadbalancing:{action} because \
                 no identity-based policy allows the elasticloadbalancing:{action} action"
            ),
        )),
        FaultKind::ExpiredToken => {
            Some(Refusal::with_status(403, "ExpiredToken", "The security token included in the request is expired"))
        }
        FaultKind::HealthUnavailable => Some(Refusal::with_status(
            500,
            "HealthUnavailable",
            "The health of the specified targets could not be retrieved due to an internal error",
        )),
        FaultKind::Hang | FaultKind::Truncated => None,
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    typed(status, "text/plain", text.to_owned())
}

fn typed(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
