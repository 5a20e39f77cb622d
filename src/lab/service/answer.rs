//! What a service of the lab answers.

use super::CRASHED;
use super::spec::{Answer, Fault, Kind, ServiceSpec};
use crate::fleet::nodes::{Asked, Counts, Origin, Told};
use crate::lab::lock;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Who asks on purpose and is no real traffic.
const NO_TRAFFIC: [&str; 2] = ["ELB-HealthChecker", "handover-lab"];

/// A running service.
#[derive(Debug)]
pub(super) struct App {
    pub(super) spec: ServiceSpec,
    began: Instant,
    nodes: Mutex<Counts>,
    drained: AtomicBool,
    requests: AtomicU64,
}

impl App {
    pub(super) fn new(spec: ServiceSpec) -> Self {
        Self {
            spec,
            began: Instant::now(),
            nodes: Mutex::default(),
            drained: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }

    pub(super) fn drain(&self, drained: bool) {
        self.drained.store(drained, Ordering::SeqCst);
    }

    /// Waits for a fleet-time duration.
    pub(super) fn sleep(&self, fleet: Duration) -> impl Future<Output = ()> + Send + use<> {
        tokio::time::sleep(fleet.div_f64(self.spec.speed))
    }

    /// Ends when a crash was ordered, soon after the start.
    pub(super) fn crash(&self) -> impl Future<Output = i32> + Send + use<> {
        let soon =
            (self.spec.fault == Some(Fault::Crashes)).then(|| self.sleep(self.spec.start + Duration::from_secs(1)));
        async move {
            match soon {
                Some(soon) => soon.await,
                None => std::future::pending().await,
            }
            CRASHED
        }
    }

    fn is_drained(&self) -> bool {
        self.drained.load(Ordering::SeqCst) || self.spec.drain_file.as_ref().is_some_and(|file| file.exists())
    }

    /// Fleet time since it started.
    fn up(&self) -> Duration {
        self.began.elapsed().mul_f64(self.spec.speed)
    }

    fn told(&self, (address, port): (IpAddr, u16), path: &str, agent: &str, told: Told) {
        let asked = Asked { address, origin: Origin::Itself, path, port, agent };
        lock(&self.nodes).told(asked, told, self.up());
    }

    pub(super) async fn answer(&self, ends: (IpAddr, u16), request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (address, port) = ends;
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let found = self.spec.answers.iter().find(|answer| fits(answer, port, path, request.method().as_str()));
        let kind = found.map(|answer| &answer.kind);
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let real =
            !NO_TRAFFIC.iter().any(|other| agent.starts_with(other)) && !matches!(kind, Some(Kind::Health { .. }));
        if real {
            self.requests.fetch_add(1, Ordering::SeqCst);
            lock(&self.nodes).real(address, self.up());
            self.sleep(self.spec.latency).await;
        }
        match kind {
            Some(Kind::Health { .. }) if self.is_drained() => {
                self.told(ends, path, agent, Told::Out);
                answer(503, "{\"status\":\"draining\"}")
            }
            Some(Kind::Health { body }) => {
                self.told(ends, path, agent, Told::In);
                answer(200, body)
            }
            Some(Kind::Verify { .. }) if self.spec.fault == Some(Fault::FailsVerify) => {
                answer(500, "{\"error\":\"it does not work, as ordered\"}")
            }
            _ if real && self.spec.fault == Some(Fault::AnswersErrors) => answer(500, "{\"error\":\"as ordered\"}"),
            Some(Kind::Verify { status, body }) => answer(*status, body),
            Some(Kind::Count { json }) => answer(200, &nested(json, self.requests.load(Ordering::SeqCst))),
            Some(Kind::Nodes) => {
                let seen = lock(&self.nodes).seen(self.up(), |_| Origin::Itself);
                answer(200, &serde_json::to_string(&seen).unwrap_or_default())
            }
            Some(Kind::Drain) => {
                self.drain(true);
                answer(200, "{}")
            }
            Some(Kind::Undrain) => {
                self.drain(false);
                answer(200, "{}")
            }
            None => {
                answer(200, &format!("{{\"service\":\"{}\",\"server\":\"{}\"}}", self.spec.service, self.spec.server))
            }
        }
    }
}

fn fits(answer: &Answer, port: u16, path: &str, method: &str) -> bool {
    answer.port == port && answer.path == path && answer.method.as_ref().is_none_or(|only| only == method)
}

fn answer(status: u16, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_owned())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `a.b` with 7 is `{"a":{"b":7}}`.
fn nested(path: &str, count: u64) -> String {
    let object = |inner: serde_json::Value, key: &str| serde_json::json!({ key: inner });
    path.rsplit('.').fold(serde_json::Value::from(count), object).to_string()
}

#[cfg(test)]
mod tests {
    use super::nested;

    #[test]
    fn dots_in_a_field_s_name_nest() {
        assert_eq!(nested("requests", 7), "{\"requests\":7}");
        assert_eq!(nested("http.requests.total", 0), "{\"http\":{\"requests\":{\"total\":0}}}");
    }
}
