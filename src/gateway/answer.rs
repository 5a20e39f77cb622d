//! What the gateway itself answers, all of it in this one place: which status, which words, whether the connection goes on.
//!
//! Pure. gRPC clients read a status of their own, so where a request is gRPC's, the answer is too.

use super::metrics::Outcome;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};

/// Why a request to a configured host is answered by the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The client's address is not allowed.
    NotAllowed,
    /// The request cannot be forwarded: this and why.
    Refused(StatusCode, &'static str),
    /// The body is longer than allowed.
    BodyTooLong,
    /// The client stopped sending its body.
    SlowBody,
    /// The hold ended.
    HoldEnded,
    /// The client's own deadline ended before the backend came.
    DeadlineOver,
    /// Too many wait.
    HoldFull,
    /// The connection to the backend broke before an answer.
    Broken,
    /// The backend's answer is none.
    BadAnswer,
    /// The backend did not begin an answer in time.
    NoAnswer,
    /// The request goes round in a circle.
    Circle,
    /// The backend cannot be started; not before that.
    NotStarted(std::time::Duration),
    /// The waiting page, with its text.
    WaitingPage(bytes::Bytes),
}

/// An answer of the gateway's own.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: bytes::Bytes,
    /// Whether the connection ends: what follows on it may not be a request.
    pub(super) close: bool,
}

impl Answer {
    /// A short text.
    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
        }
        Self { status, headers, body: format!("{text}\n").into(), close: false }
    }

    pub(super) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        self
    }
}

impl Fault {
    /// How it is counted.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::NotAllowed | Self::Refused(..) | Self::BodyTooLong | Self::SlowBody | Self::Circle => {
                Outcome::Refused
            }
            Self::HoldEnded | Self::DeadlineOver => Outcome::HoldEnded,
            Self::HoldFull => Outcome::HoldFull,
            Self::NotStarted(_) => Outcome::WakeFailed,
            Self::Broken | Self::BadAnswer => Outcome::Unreachable,
            Self::NoAnswer => Outcome::TimedOut,
            Self::WaitingPage(_) => Outcome::WaitingPage,
        }
    }

    /// What the client is answered.
    pub(super) fn answer(&self, grpc: bool) -> Answer {
        if grpc {
            return self.grpc();
        }
        match self {
            Self::NotAllowed => Answer::text(StatusCode::FORBIDDEN, "This host is not for you."),
            Self::Refused(status, why) => Answer::text(*status, why).closing(),
            Self::BodyTooLong => Answer::text(StatusCode::PAYLOAD_TOO_LARGE, "The body is too long.").closing(),
            Self::SlowBody => Answer::text(StatusCode::REQUEST_TIMEOUT, "The body did not come in time.").closing(),
            Self::HoldEnded | Self::DeadlineOver => {
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "The backend did not come back in time.").retry_after(5)
            }
            Self::HoldFull => {
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "Too many requests wait for the backend.").retry_after(10)
            }
            Self::NotStarted(after) => {
                let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "The backend cannot be started.").retry_after(seconds)
            }
            Self::Broken => Answer::text(StatusCode::BAD_GATEWAY, "The backend broke off before it answered."),
            Self::BadAnswer => Answer::text(StatusCode::BAD_GATEWAY, "The backend's answer is not HTTP."),
            Self::NoAnswer => Answer::text(StatusCode::GATEWAY_TIMEOUT, "The backend did not answer in time."),
            Self::Circle => Answer::text(StatusCode::LOOP_DETECTED, "This request goes round in a circle."),
            Self::WaitingPage(page) => {
                let mut answer = Answer::text(StatusCode::SERVICE_UNAVAILABLE, "").retry_after(2);
                answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
                answer.headers.insert("refresh", HeaderValue::from_static("2"));
                answer.body = page.clone();
                answer
            }
        }
    }

    /// Trailers only: HTTP says 200, gRPC says why (gRPC over HTTP/2, "Responses").
    fn grpc(&self) -> Answer {
        let (code, message) = match self {
            Self::NotAllowed => ("7", "not allowed"),
            Self::BodyTooLong => ("8", "the message is too long"),
            Self::HoldFull => ("8", "too many requests wait for the backend"),
            Self::SlowBody | Self::Refused(..) => ("13", "the request cannot be forwarded"),
            Self::Circle => ("13", "this request goes round in a circle"),
            Self::DeadlineOver | Self::NoAnswer => ("4", "the deadline is over"),
            Self::HoldEnded | Self::WaitingPage(_) => ("14", "the backend did not come back in time"),
            Self::NotStarted(_) => ("14", "the backend cannot be started"),
            Self::Broken | Self::BadAnswer => ("14", "the backend broke off before it answered"),
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from_static(code));
        headers.insert("grpc-message", HeaderValue::from_static(message));
        Answer { status: StatusCode::OK, headers, body: bytes::Bytes::new(), close: false }
    }
}

/// Whether a request is gRPC's.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waited_in_vain_is_told_when_to_come_again() {
        for fault in [
            Fault::HoldEnded,
            Fault::HoldFull,
            Fault::NotStarted(std::time::Duration::from_millis(1)),
            Fault::WaitingPage("x".into()),
        ] {
            let answer = fault.answer(false);
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(answer.headers.contains_key(RETRY_AFTER), "{fault:?}");
            assert!(!answer.close, "{fault:?}");
        }
    }

    #[test]
    fn grpc_is_told_in_its_own_words() {
        for (fault, code) in [(Fault::HoldEnded, "14"), (Fault::DeadlineOver, "4"), (Fault::HoldFull, "8")] {
            let answer = fault.answer(true);
            assert_eq!((answer.status, answer.headers["grpc-status"].as_bytes()), (StatusCode::OK, code.as_bytes()));
        }
    }
}
