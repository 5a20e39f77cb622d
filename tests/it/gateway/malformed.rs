//! What is no request, or could be two: answered as RFC 9112 says, and no backend ever sees any of it.

use super::world::{Backend, Gateway, one_host, read_all};
use std::io::Write;

/// (what is wrong, what is sent, the status).
const CORPUS: &[(&str, &str, u16)] = &[
    (
        "length and coding",
        "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "coding and length",
        "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("two lengths", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcd", 400),
    ("two equal lengths", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\nabcd", 400),
    ("a list of lengths", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4, 4\r\n\r\nabcd", 400),
    ("a length with a sign", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: +4\r\n\r\nabcd", 400),
    ("a negative length", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: -4\r\n\r\nabcd", 400),
    ("a hexadecimal length", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0x4\r\n\r\nabcd", 400),
    ("an empty length", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: \r\n\r\n", 400),
    (
        "a length beyond all bounds",
        "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 99999999999999999999\r\n\r\n",
        400,
    ),
    ("another coding", "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: gzip\r\n\r\n", 501),
    (
        "a coding before chunked",
        "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    (
        "chunked twice",
        "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("a coding in disguise", "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    ("a coding in quotes", "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400),
    (
        "a coding with more letters",
        "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    ("no host in HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", 400),
    ("a coding in HTTP/1.0", "POST / HTTP/1.0\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("a space before the colon", "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length : 4\r\n\r\nabcd", 400),
    ("a space before the name", "GET / HTTP/1.1\r\nhost: a.test\r\n x: y\r\n\r\n", 400),
    ("a folded line", "GET / HTTP/1.1\r\nhost: a.test\r\nx: y\r\n\tz\r\n\r\n", 400),
    ("a space before the first field", "GET / HTTP/1.1\r\n host: a.test\r\n\r\n", 400),
    ("no colon", "GET / HTTP/1.1\r\nhost: a.test\r\nnonsense\r\n\r\n", 400),
    ("no name", "GET / HTTP/1.1\r\nhost: a.test\r\n: x\r\n\r\n", 400),
    ("a zero byte", "GET / HTTP/1.1\r\nhost: a.test\r\nx: a\0b\r\n\r\n", 400),
    ("a bare CR", "GET / HTTP/1.1\r\nhost: a.test\r\nx: a\rcontent-length: 4\r\n\r\n", 400),
    ("a bare LF", "GET / HTTP/1.1\nhost: a.test\r\n\r\n", 400),
    ("bare LFs", "GET / HTTP/1.1\nhost: a.test\n\n", 400),
    ("a bare LF at the end", "GET / HTTP/1.1\r\nhost: a.test\r\n\n", 400),
    ("no host", "GET / HTTP/1.1\r\n\r\n", 400),
    ("two hosts", "GET / HTTP/1.1\r\nhost: a.test\r\nhost: b.test\r\n\r\n", 400),
    ("two equal hosts", "GET / HTTP/1.1\r\nhost: a.test\r\nhost: a.test\r\n\r\n", 400),
    ("an empty host", "GET / HTTP/1.1\r\nhost: \r\n\r\n", 400),
    ("a host with a path", "GET / HTTP/1.1\r\nhost: a.test/x\r\n\r\n", 400),
    ("a host with a user", "GET / HTTP/1.1\r\nhost: x@a.test\r\n\r\n", 400),
    ("a host with a space", "GET / HTTP/1.1\r\nhost: a.test b.test\r\n\r\n", 400),
    ("a list of hosts", "GET / HTTP/1.1\r\nhost: a.test, b.test\r\n\r\n", 400),
    ("an unknown host", "GET / HTTP/1.1\r\nhost: b.test\r\n\r\n", 421),
    (
        "an unknown host, a known forwarded one",
        "GET / HTTP/1.1\r\nhost: b.test\r\nx-forwarded-host: a.test\r\n\r\n",
        421,
    ),
    ("an unknown host in the target", "GET http://b.test/ HTTP/1.1\r\nhost: a.test\r\n\r\n", 421),
    ("a user in the target", "GET http://x@a.test/ HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("another scheme", "GET ftp://a.test/ HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("no slash", "GET x HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("a star for GET", "GET * HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("a fragment", "GET /#x HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("a space in the target", "GET /a b HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("two spaces", "GET  / HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("a control character in the target", "GET /\x01 HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("no target", "GET HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("HTTP/0.9", "GET /\r\n\r\n", 400),
    ("a later minor version", "GET / HTTP/1.2\r\nhost: a.test\r\n\r\n", 505),
    ("another major version", "GET / HTTP/3.0\r\nhost: a.test\r\n\r\n", 505),
    ("small letters", "GET / http/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("a method that is none", "G(T / HTTP/1.1\r\nhost: a.test\r\n\r\n", 400),
    ("TLS to a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\u{7f}", 400),
    ("a tunnel for somebody", "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n", 405),
    ("a trace", "TRACE / HTTP/1.1\r\nhost: a.test\r\n\r\n", 405),
];

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn what_is_no_request_is_answered_so_and_no_backend_sees_it() {
    let backend = Backend::up();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut wrong = Vec::new();
    for (what, request, wanted) in CORPUS {
        let mut stream = gateway.connect();
        // A second request behind the first: whoever mistakes where that ends would see it.
        let behind = "GET /behind HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("sent");
        drop(stream.write_all(behind.as_bytes()));
        let answer = read_all(&mut stream);
        let found = status(&answer);
        // An unknown host is a whole request: what follows it is one as well.
        let answers = answer.split("HTTP/1.1 ").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())).count();
        if found != *wanted || (answers != 1 && *wanted != 421) {
            wrong.push(format!("{what}: {found} instead of {wanted}, {answers} answers"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let seen: Vec<String> = backend.lines().into_iter().filter(|line| line != "GET /behind HTTP/1.1").collect();
    assert_eq!(seen, Vec::<String>::new());
    let unknown = CORPUS.iter().filter(|(_, _, status)| *status == 421).count();
    assert_eq!(backend.lines().len(), unknown);
    gateway.all_gauges_are_zero();
}

#[test]
fn a_head_that_is_too_long_is_refused_and_one_that_never_ends_is_too() {
    let backend = Backend::up();
    let gateway = Gateway::start_with("head_bytes = 4096\nhead_timeout = \"300ms\"", &one_host(backend.at, ""));
    let long = format!("GET / HTTP/1.1\r\nhost: a.test\r\nx: {}\r\n\r\n", "y".repeat(5000));
    assert_eq!(status(&gateway.ask(&long)), 431);
    let endless = format!("GET / HTTP/1.1\r\nhost: a.test\r\nx: {}", "y".repeat(50_000));
    assert_eq!(status(&gateway.ask(&endless)), 431);
    let many: String = (0..200).map(|number| format!("x{number}: y\r\n")).collect();
    assert_eq!(status(&gateway.ask(&format!("GET / HTTP/1.1\r\nhost: a.test\r\n{many}\r\n"))), 431);
    assert_eq!(status(&gateway.ask("GET / HTTP/1.1\r\nhost: a.te")), 408);
    assert_eq!(gateway.metric("turned_away_total{reason=\"slow\"}"), 1.0);
    assert_eq!(backend.requests().len(), 0);
}

#[test]
fn a_body_that_is_framed_badly_reaches_no_backend_as_a_whole_one() {
    let backend = Backend::up();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    for body in [
        "5\r\nhelloX\r\n0\r\n\r\n",
        "x\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n",
    ] {
        let answer =
            gateway.ask(&format!("POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n{body}"));
        assert_eq!(status(&answer), 400, "{body:?}");
    }
    assert!(backend.requests().iter().all(|got| !got.whole), "{:?}", backend.requests());
    // A length that the client does not keep.
    let mut stream = gateway.connect();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 10\r\n\r\nhello").expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("half closed");
    read_all(&mut stream);
    assert!(backend.requests().iter().all(|got| !got.whole));
    gateway.all_gauges_are_zero();
}
