//! What passes through: heads, bodies and everything that may happen between them.

use super::world::{Backend, Gateway, Got, one_host, pause, read_all, read_until, until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

fn up_with(handler: impl Fn(&Got, &mut TcpStream) -> bool + Send + Sync + 'static) -> Backend {
    let mut backend = Backend::new();
    backend.start_with(handler);
    backend
}

fn say(text: &'static str) -> impl Fn(&Got, &mut TcpStream) -> bool + Send + Sync {
    move |_, stream| stream.write_all(text.as_bytes()).is_ok()
}

#[test]
fn a_host_is_found_however_it_is_written_and_in_no_other_header() {
    let backend = Backend::up();
    let hosts = one_host(backend.at, "aliases = [\"bücher.example\", \"[2001:db8::1]\"]");
    let gateway = Gateway::start(&hosts);
    for host in
        ["a.test", "A.TEST", "a.test:8443", "a.test.", "a.test.:80", "xn--bcher-kva.example", "[2001:DB8::1]:80"]
    {
        assert!(gateway.get(host, "/").starts_with("HTTP/1.1 200 "), "{host}");
    }
    let absolute = gateway.ask("GET http://A.test:80/x?y HTTP/1.1\r\nhost: b.test\r\nconnection: close\r\n\r\n");
    assert!(absolute.starts_with("HTTP/1.1 200 "), "{absolute}");
    let got = backend.requests().pop().expect("one");
    assert_eq!((got.line(), got.field("host")), ("GET /x?y HTTP/1.1", Some("A.test:80")));
    assert!(gateway.get("b.test", "/").starts_with("HTTP/1.1 421 "));
    // Names of strangers are never labels.
    assert!(!gateway.page().contains("b.test") && !gateway.page().contains("8443"));
    assert_eq!(gateway.outcome("served"), 8);
}

#[test]
fn what_is_between_two_stations_stays_there_and_the_rest_goes_on() {
    let backend = up_with(say(
        "HTTP/1.1 200 OK\r\nconnection: x-own\r\nx-own: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: x\r\nset-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 2\r\n\r\nok",
    ));
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let answer = gateway.ask(concat!(
        "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close, x-mine, content-length, host\r\nx-mine: 1\r\nte: gzip, trailers\r\n",
        "proxy-authorization: x\r\nkeep-alive: 5\r\nupgrade: h2c\r\nhttp2-settings: x\r\ncookie: a=1\r\nx-stays: ä\r\n",
        "x-forwarded-for: 6.6.6.6\r\nx_forwarded_for: 6.6.6.6\r\nx-forwarded-proto: https\r\nforwarded: for=6.6.6.6\r\nx-real-ip: 6.6.6.6\r\n\r\n",
    ));
    let got = backend.requests().pop().expect("one");
    for gone in [
        "x-mine",
        "proxy-authorization",
        "keep-alive",
        "upgrade",
        "http2-settings",
        "connection",
        "forwarded",
        "x_forwarded_for",
    ] {
        assert_eq!(got.field(gone), None, "{gone}: {}", got.head);
    }
    assert!(!got.head.contains("6.6.6.6"), "{}", got.head);
    for (name, value) in [
        ("host", "a.test"),
        ("cookie", "a=1"),
        ("x-stays", "ä"),
        ("te", "trailers"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "a.test"),
        ("x-real-ip", "127.0.0.1"),
        ("via", "1.1 handover-gateway"),
    ] {
        assert_eq!(got.field(name), Some(value), "{}", got.head);
    }
    for gone in ["x-own", "keep-alive", "proxy-authenticate"] {
        assert!(!answer.contains(gone), "{answer}");
    }
    assert!(answer.contains("set-cookie: a=1\r\nset-cookie: b=2\r\n"), "{answer}");
}

#[test]
fn a_trusted_proxy_speaks_for_its_clients_and_nobody_else_does() {
    let backend = Backend::up();
    let host = one_host(backend.at, "allow = [\"203.0.113.0/24\"]");
    let gateway = Gateway::start_with("trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]", &host);
    let ask = |chain: &str| {
        gateway.ask(&format!("GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\nx-forwarded-for: {chain}\r\nx-forwarded-proto: https\r\n\r\n"))
    };
    assert!(ask("203.0.113.9").starts_with("HTTP/1.1 200 "));
    assert!(ask("6.6.6.6, 203.0.113.9, 10.1.1.1").starts_with("HTTP/1.1 200 "), "what a client claims does not count");
    assert!(ask("203.0.113.9, 6.6.6.6").starts_with("HTTP/1.1 403 "));
    assert!(ask("203.0.113.9, nonsense").starts_with("HTTP/1.1 403 "));
    let got = &backend.requests()[1];
    assert_eq!(got.field("x-forwarded-for"), Some("6.6.6.6, 203.0.113.9, 10.1.1.1, 127.0.0.1"));
    assert_eq!((got.field("x-real-ip"), got.field("x-forwarded-proto")), (Some("203.0.113.9"), Some("https")));
    let strict = Gateway::start(&host);
    assert!(
        strict
            .ask("GET / HTTP/1.1\r\nhost: a.test\r\nx-forwarded-for: 203.0.113.9\r\nconnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 403 ")
    );
    assert_eq!(strict.outcome("refused"), 1);
}

#[test]
fn requests_behind_one_another_are_answered_in_order_over_few_connections() {
    let backend = Backend::up();
    let gateway = Gateway::start_with("workers = 1", &one_host(backend.at, ""));
    let mut stream = gateway.connect();
    let many: String = (0..50).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a.test\r\n\r\n")).collect();
    stream.write_all(many.as_bytes()).expect("sent");
    for number in 0..50 {
        assert!(read_until(&mut stream, " HTTP/1.1 0").contains(&format!("GET /{number} ")), "{number}");
    }
    assert_eq!(backend.connections.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn bodies_keep_their_framing_and_trailers_in_both_directions() {
    let backend = up_with(|got, stream| {
        let answer = match got.line() {
            "GET /chunked HTTP/1.1" => {
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 6\r\ncontent-length: 9\r\n\r\n"
            }
            "GET /close HTTP/1.1" => {
                drop(stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end"));
                return false;
            }
            "HEAD / HTTP/1.1" => "HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n",
            "GET /304 HTTP/1.1" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 999\r\netag: x\r\n\r\n",
            "GET /204 HTTP/1.1" => "HTTP/1.1 204 No Content\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let chunked = gateway.get("a.test", "/chunked");
    assert!(chunked.ends_with("\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n"), "{chunked}");
    let close = gateway.get("a.test", "/close");
    assert!(
        close.contains("transfer-encoding: chunked") && close.ends_with("d\r\nuntil the end\r\n0\r\n\r\n"),
        "{close}"
    );
    let mut stream = gateway.connect();
    stream.write_all(b"HEAD / HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    assert!(read_until(&mut stream, "\r\n\r\n").contains("content-length: 999"));
    stream.write_all(b"GET /304 HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    assert!(read_until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 304 "));
    stream.write_all(b"GET /204 HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    let none = read_until(&mut stream, "\r\n\r\n");
    assert!(none.starts_with("HTTP/1.1 204 ") && !none.contains("content-length"), "{none}");
    let old = gateway.ask("GET /chunked HTTP/1.0\r\nhost: a.test\r\n\r\n");
    assert!(old.ends_with("\r\n\r\nabc") && !old.contains("transfer-encoding"), "{old}");
    // HTTP/1.0 keeps a connection only where it asks for it and is told so.
    let mut kept = gateway.connect();
    kept.write_all(b"GET / HTTP/1.0\r\nhost: a.test\r\nconnection: keep-alive\r\n\r\n").expect("sent");
    assert!(read_until(&mut kept, "\r\n\r\n").contains("connection: keep-alive"));
    kept.write_all(b"GET / HTTP/1.0\r\nhost: a.test\r\n\r\n").expect("sent");
    assert!(read_all(&mut kept).contains("connection: close"));
}

#[test]
fn a_client_that_waits_for_100_gets_it_from_the_backend_and_not_before() {
    let mut backend = Backend::new();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut stream = gateway.connect();
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\ncontent-length: 5\r\nconnection: close\r\n\r\n")
        .expect("sent");
    until("it waits", || gateway.held() == 1);
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    assert!(stream.read(&mut [0; 1]).is_err(), "nothing is said while it waits");
    stream.set_read_timeout(Some(super::world::SOON)).expect("set");
    let listener = std::net::TcpListener::bind(backend.at).expect("it listens");
    let serving = std::thread::spawn(move || {
        // Looks come before the request.
        loop {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut head = Vec::new();
            let mut byte = [0; 1];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                head.push(byte[0]);
            }
            if head.is_empty() {
                continue;
            }
            assert!(String::from_utf8_lossy(&head).contains("expect: 100-continue"));
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("sent");
            let mut body = [0; 5];
            stream.read_exact(&mut body).expect("read");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").expect("sent");
            stream.write_all(&body).expect("sent");
            return;
        }
    });
    assert_eq!(read_until(&mut stream, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").expect("sent");
    assert!(read_all(&mut stream).ends_with("hello"));
    serving.join().expect("joined");
    backend.stop();
}

#[test]
fn an_answer_may_come_before_the_request_is_whole() {
    let mut backend = Backend::new();
    let listener = std::net::TcpListener::bind(backend.at).expect("it listens");
    let serving = std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut first = [0; 64];
            if stream.read(&mut first).unwrap_or(0) == 0 {
                continue;
            }
            stream
                .write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!")
                .expect("sent");
            return stream;
        }
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut stream = gateway.connect();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 100000000\r\n\r\n").expect("sent");
    stream.write_all(&[b'x'; 10_000]).expect("sent");
    let answer = read_until(&mut stream, "no!");
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("connection: close"), "{answer}");
    drop(serving.join().expect("joined"));
    drop(stream);
    gateway.all_gauges_are_zero();
    backend.stop();
}

#[test]
fn a_client_that_is_done_sending_is_still_answered() {
    let backend = up_with(|_, stream| {
        pause(400);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").is_ok()
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut stream = gateway.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    stream.shutdown(Shutdown::Write).expect("half closed");
    assert!(read_all(&mut stream).ends_with("late"));
    assert_eq!(gateway.outcome("served"), 1);
}

#[test]
fn a_client_that_breaks_off_breaks_the_request_off() {
    let backend = up_with(|_, stream| {
        // Until the gateway closes: the app can stop working for nobody.
        let mut rest = [0; 1];
        stream.set_read_timeout(Some(super::world::SOON)).expect("set");
        assert!(!stream.read(&mut rest).is_ok_and(|count| count > 0));
        false
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut stream = gateway.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    until("it is forwarded", || gateway.metric("active{host=\"a.test\"}") == 1.0);
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("set");
    drop(stream);
    until("it is counted", || gateway.outcome("client_gone") == 1);
    gateway.all_gauges_are_zero();
}

#[test]
fn what_a_backend_breaks_off_is_seen_as_broken_off() {
    let backend = up_with(|got, stream| {
        let cut: &[u8] = match got.line() {
            "GET /length HTTP/1.1" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            "GET /chunked HTTP/1.1" => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "GET /nonsense HTTP/1.1" => b"nonsense\r\n\r\n",
            "GET /both HTTP/1.1" => {
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n"
            }
            "GET /switch HTTP/1.1" => b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            _ => b"",
        };
        drop(stream.write_all(cut));
        false
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    assert!(gateway.get("a.test", "/length").ends_with("\r\n\r\nhalf"));
    let chunked = gateway.get("a.test", "/chunked");
    assert!(chunked.ends_with("5\r\nhello\r\n"), "{chunked}");
    // Where the end of the connection is the end of the answer, only a reset says that it is none.
    let old = gateway.ask("GET /chunked HTTP/1.0\r\nhost: a.test\r\n\r\n");
    assert!(old.ends_with("<reset>"), "{old}");
    for path in ["/nothing", "/nonsense", "/both", "/switch"] {
        assert!(gateway.get("a.test", path).starts_with("HTTP/1.1 502 "), "{path}");
    }
    assert_eq!((gateway.outcome("cut_short"), gateway.outcome("unreachable")), (3, 4));
    assert_eq!(backend.lines().iter().filter(|line| line.contains("/nothing")).count(), 1, "it was sent once");
    gateway.all_gauges_are_zero();
}

#[test]
fn a_connection_that_was_idle_is_never_trusted_with_what_must_not_be_sent_twice() {
    // Every second request meets a connection that the backend closes without a word.
    let backend = up_with(|got, stream| {
        if got.line().contains("/last") {
            return false;
        }
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
        true
    });
    let gateway = Gateway::start_with("workers = 1", &one_host(backend.at, ""));
    assert!(gateway.get("a.test", "/first").starts_with("HTTP/1.1 200 "));
    // A GET goes over it, finds it closed after it was sent, and is sent once more over a fresh one, which says nothing either.
    assert!(gateway.get("a.test", "/last").starts_with("HTTP/1.1 502 "));
    let lasts = |backend: &Backend| backend.lines().iter().filter(|line| line.contains("/last")).count();
    assert_eq!(lasts(&backend), 2);
    assert!(gateway.get("a.test", "/first").starts_with("HTTP/1.1 200 "));
    let post = gateway.ask("POST /last HTTP/1.1\r\nhost: a.test\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx");
    assert!(post.starts_with("HTTP/1.1 502 "), "{post}");
    assert_eq!(lasts(&backend), 3, "a POST is sent once");
    let got = backend.requests();
    let post = got.iter().find(|got| got.line().starts_with("POST")).expect("it came");
    assert_eq!(got.iter().filter(|got| got.connection == post.connection).count(), 1, "over a connection of its own");
}

#[test]
fn a_connection_becomes_a_tunnel_where_both_sides_agree() {
    let backend = up_with(|got, stream| {
        if got.field("upgrade") != Some("websocket") {
            return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno").is_ok();
        }
        drop(stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\nhi!"));
        let mut said = [0; 5];
        drop(stream.read_exact(&mut said));
        drop(stream.write_all(&said));
        false
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nhost: a.test\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n")
        .expect("sent");
    let head = read_until(&mut stream, "\r\n\r\nhi!");
    assert!(
        head.starts_with("HTTP/1.1 101 ")
            && head.contains("upgrade: websocket")
            && head.contains("connection: upgrade"),
        "{head}"
    );
    assert!(head.contains("sec-websocket-accept: x"), "{head}");
    until("it is a tunnel", || gateway.metric("tunnels{host=\"a.test\"}") == 1.0);
    stream.write_all(b"hello").expect("sent");
    assert_eq!(read_all(&mut stream), "hello");
    drop(stream);
    gateway.all_gauges_are_zero();
    let plain = gateway.ask("GET /ws HTTP/1.1\r\nhost: a.test\r\nupgrade: websocket\r\nconnection: close\r\n\r\n");
    assert!(plain.ends_with("no"), "nobody asked in `Connection`: {plain}");
}

#[test]
fn streams_are_streamed() {
    let backend = up_with(|_, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n"));
        let mut go = [0; 1];
        stream.set_read_timeout(Some(Duration::from_millis(700))).expect("set");
        drop(stream.read(&mut go));
        drop(stream.write_all(b"data: 2\n\n"));
        false
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut stream = gateway.connect();
    stream.write_all(b"GET /events HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    let began = std::time::Instant::now();
    read_until(&mut stream, "data: 1\n\n\r\n");
    assert!(began.elapsed() < Duration::from_millis(600), "the first event came with the second");
    read_until(&mut stream, "data: 2\n\n\r\n0\r\n\r\n");
}

#[test]
fn limits_and_timeouts_end_what_takes_too_long() {
    let backend = up_with(|got, stream| {
        if got.line().contains("/slow") {
            pause(2500);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_ok()
    });
    let host = one_host(backend.at, "body_bytes = 10\nanswer_timeout = \"500ms\"");
    let gateway = Gateway::start_with("body_timeout = \"500ms\"", &host);
    let long = gateway.ask("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 11\r\n\r\nhello world");
    assert!(long.starts_with("HTTP/1.1 413 "), "{long}");
    let chunked = gateway
        .ask("POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n");
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    let slow = gateway.ask("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 9\r\n\r\nhello");
    assert!(slow.starts_with("HTTP/1.1 408 "), "{slow}");
    let late = gateway.get("a.test", "/slow");
    assert!(late.starts_with("HTTP/1.1 504 "), "{late}");
    assert_eq!((gateway.outcome("refused"), gateway.outcome("timed_out")), (3, 1));
    gateway.all_gauges_are_zero();
}

#[test]
fn monitoring_is_answered_by_the_gateway_and_counted_apart() {
    let backend = Backend::new();
    let gateway = Gateway::start(&(one_host(backend.at, "") + "[[gateway.probe]]\nuser_agent = \"blackbox\"\n"));
    let answer =
        gateway.ask("GET / HTTP/1.1\r\nhost: a.test\r\nuser-agent: Blackbox Exporter/0.2\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"host\":\"a.test\""), "{answer}");
    assert_eq!(gateway.metric("probes_total{host=\"a.test\"}"), 1.0);
    assert_eq!(gateway.metric("request_seconds_count{host=\"a.test\"}"), 0.0);
}

#[test]
fn a_request_that_goes_round_in_a_circle_ends() {
    let mut backend = Backend::new();
    let gateway = Gateway::start(
        "[[gateway.host]]\nname = \"a.test\"\nbackend = \"http://LISTEN\"\n"
            .replace("LISTEN", &backend.at.to_string())
            .as_str(),
    );
    // A backend that is the gateway itself: forwarded until it is noticed.
    let to = gateway.at;
    let listener = std::net::TcpListener::bind(backend.at).expect("it listens");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let Ok(server) = TcpStream::connect(to) else { return };
                let (mut a, mut b) = (client.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
                std::thread::spawn(move || drop(std::io::copy(&mut a, &mut b)));
                let (mut client, mut server) = (client, server);
                drop(std::io::copy(&mut server, &mut client));
            });
        }
    });
    assert!(gateway.get("a.test", "/").starts_with("HTTP/1.1 508 "));
    backend.stop();
}
