//! What the gateway answers of its own accord: the balancer's health checks, and monitoring.
//!
//! Health says whether the balancer may send requests here, and nothing of any backend: while requests are only held it stays
//! 200, or the balancer would take away the very gateway that holds them.

use super::answer::Answer;
use super::ends::{Front, Piece};
use super::exchange::Peer;
use super::fields::Origin;
use super::h1::Framing;
use super::h1::head::{RequestHead, ResponseHead};
use super::metrics::word;
use super::site::{Shared, Site, Standing};
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, StatusCode};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn is_asked(head: &RequestHead) -> bool {
    head.method == Method::GET || head.method == Method::HEAD
}

/// The answer to a health check, where this is one.
pub(super) fn health(shared: &Shared, site: &Site, head: &RequestHead, peer: Peer) -> Option<Answer> {
    let path = head.target.path();
    let check = site.spec.health.iter().find(|check| check.path == path).filter(|_| is_asked(head))?;
    let well = !shared.is_draining(site) && !shared.is_there(check.drain_file.as_ref());
    shared.metrics.health(well);
    shared.nodes.told(head, peer, well);
    let group = check.group.as_deref().unwrap_or("gateway");
    Some(if well {
        Answer::text(StatusCode::OK, &format!("{group}: ok"))
    } else {
        Answer::text(StatusCode::SERVICE_UNAVAILABLE, &format!("{group}: draining"))
    })
}

/// The answer to monitoring, where this is it: what the gateway knows of the host, without asking its backend.
pub(super) fn probe(
    shared: &Shared,
    site: &Site,
    standing: &Arc<Standing>,
    head: &RequestHead,
    origin: Origin,
) -> Option<Answer> {
    let agent = head.headers.get(USER_AGENT).map_or(&[][..], HeaderValue::as_bytes);
    let is_probe = |traits: &crate::fleet::model::Traits| traits.meet(head.target.path(), agent, origin.client);
    if !is_asked(head) || !site.spec.probes.iter().any(is_probe) {
        return None;
    }
    let host = standing.host();
    let allowed = host.spec.allow.as_ref().is_none_or(|allow| allow.iter().any(|network| network.holds(origin.client)));
    let sleep = standing.sleeping(|sleep| word(sleep.state()));
    let backend = match sleep {
        Some("asleep") => "asleep, would wake",
        Some(state) if state != "awake" => state,
        _ if standing.is_absent() => "absent",
        _ => "not known to be absent",
    };
    let verdict = json!({
        "host": host.spec.name.as_str(),
        "tls": origin.tls,
        "allowed": allowed,
        "backend": backend,
        "held": standing.waiting(),
        "draining": shared.is_draining(site),
    });
    // A backend that sleeps is no outage: whoever asked for it would wait and be served.
    let status = if allowed { StatusCode::OK } else { StatusCode::FORBIDDEN };
    let mut answer = Answer::text(status, &verdict.to_string());
    answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(answer)
}

/// Sends an answer of the gateway's own.
pub(super) async fn say<F: Front>(front: &mut F, answer: Answer) {
    let framing = match answer.body.len() {
        0 if answer.status == StatusCode::NO_CONTENT => Framing::None,
        length => Framing::Length(length as u64),
    };
    let head = ResponseHead { status: answer.status, headers: answer.headers, framing, keep: true };
    front.start(head, answer.close);
    if !answer.body.is_empty() {
        front.send(Piece::Data(answer.body));
    }
    front.send(Piece::End(None));
    let sent = std::future::poll_fn(|cx| front.poll_flush(cx));
    // Whoever does not take a line of text is not there.
    if !matches!(tokio::time::timeout(Duration::from_secs(10), sent).await, Ok(Ok(()))) {
        front.abort();
    }
}
