//! How long a request may wait: the host's hold, its client's class, gRPC's own deadline, whichever ends first; and whether it is a
//! browser's page load.
//!
//! Pure.

use super::h1::Framing;
use super::h1::head::RequestHead;
use crate::fleet::model::HostSpec;
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::{HeaderMap, Method};
use std::net::IpAddr;
use std::time::Duration;

/// How long a request waits, and whether its client's own deadline is what ends it.
pub(super) fn hold_of(spec: &HostSpec, head: &RequestHead, client: IpAddr) -> (Duration, bool) {
    let agent = head.headers.get(USER_AGENT).map_or(&[][..], |value| value.as_bytes());
    let class = spec.classes.iter().find(|class| class.of.meet(head.target.path(), agent, client));
    let hold = class.map_or(spec.hold, |class| class.hold);
    match grpc_timeout(&head.headers) {
        Some(deadline) if deadline < hold => (deadline, true),
        _ => (hold, false),
    }
}

/// At most eight digits and a unit (gRPC over HTTP/2, "Requests").
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Whether a person waits for a page: only then a page may be shown in place of the answer.
pub(super) fn is_page_load(head: &RequestHead) -> bool {
    if head.method != Method::GET || head.framing != Framing::None {
        return false;
    }
    let is = |name: &str, wanted: &str| head.headers.get(name).map(|value| value.as_bytes() == wanted.as_bytes());
    match (is("sec-fetch-mode", "navigate"), is("sec-fetch-dest", "document")) {
        // Browsers say so themselves, where the connection is one that they trust.
        (Some(navigates), document) => navigates && document.unwrap_or(true),
        (None, _) => {
            let accept = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let first = accept.split(',').next().and_then(|part| part.split(';').next()).unwrap_or_default();
            first.trim().eq_ignore_ascii_case("text/html") && !head.headers.contains_key("x-requested-with")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::h1::head::read_request;
    use super::*;
    use crate::fleet::model::{Backend, ClientClass, HostName, Traits};

    fn head(text: &str) -> RequestHead {
        read_request(&text.replace('\n', "\r\n").into_bytes().into()).expect("a request")
    }

    fn spec() -> HostSpec {
        let s = Duration::from_secs;
        let of = Traits { path: Some("/mcp*".to_owned()), ..Traits::default() };
        HostSpec {
            name: HostName::parse("a").expect("a host"),
            aliases: Vec::new(),
            backend: Backend { tls: false, http2: false, host: "b".to_owned(), port: 1 },
            ca: None,
            hold: s(50),
            held: 1,
            allow: None,
            connect_interval: s(1),
            connect_timeout: s(1),
            answer_timeout: None,
            body_bytes: None,
            reuse: s(1),
            waiting_page: None,
            classes: vec![ClientClass { of, hold: s(25) }],
            sleep: None,
            workload: None,
        }
    }

    #[test]
    fn the_shortest_of_hold_class_and_grpc_deadline_counts() {
        let client = "192.0.2.1".parse().expect("an address");
        let of = |text: &str| hold_of(&spec(), &head(text), client);
        let s = Duration::from_secs;
        assert_eq!(of("GET / HTTP/1.1\nhost: a\n\n"), (s(50), false));
        assert_eq!(of("GET /mcp/x?y HTTP/1.1\nhost: a\n\n"), (s(25), false));
        assert_eq!(of("POST / HTTP/1.1\nhost: a\ngrpc-timeout: 1500m\n\n"), (Duration::from_millis(1500), true));
        assert_eq!(of("POST / HTTP/1.1\nhost: a\ngrpc-timeout: 2H\n\n"), (s(50), false));
        for wrong in ["", "5", "S", "-1S", "123456789S", "1s", "1.5S", "é"] {
            assert_eq!(of(&format!("POST / HTTP/1.1\nhost: a\ngrpc-timeout: {wrong}\n\n")), (s(50), false), "{wrong}");
        }
    }

    #[test]
    fn a_page_is_shown_to_page_loads_only() {
        let is = |text: &str| is_page_load(&head(text));
        assert!(is(
            "GET / HTTP/1.1\nhost: a\nsec-fetch-mode: navigate\nsec-fetch-dest: document\naccept: text/html\n\n"
        ));
        assert!(is("GET / HTTP/1.1\nhost: a\naccept: text/html,application/xhtml+xml,*/*;q=0.8\n\n"));
        for other in [
            "POST / HTTP/1.1\nhost: a\naccept: text/html\ncontent-length: 1\n\n",
            "POST / HTTP/1.1\nhost: a\nsec-fetch-mode: navigate\naccept: text/html\n\n",
            "HEAD / HTTP/1.1\nhost: a\naccept: text/html\n\n",
            "GET / HTTP/1.1\nhost: a\naccept: */*\n\n",
            "GET / HTTP/1.1\nhost: a\naccept: application/json, text/html\n\n",
            "GET / HTTP/1.1\nhost: a\nsec-fetch-mode: cors\naccept: text/html\n\n",
            "GET / HTTP/1.1\nhost: a\nsec-fetch-mode: navigate\nsec-fetch-dest: iframe\naccept: text/html\n\n",
            "GET / HTTP/1.1\nhost: a\naccept: text/html\nx-requested-with: XMLHttpRequest\n\n",
            "GET / HTTP/1.1\nhost: a\n\n",
        ] {
            assert!(!is(other), "{other}");
        }
    }
}
