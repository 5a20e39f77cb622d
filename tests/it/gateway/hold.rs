//! A request that finds nobody waits: its body stays where it is, it goes once, and who leaves is gone.

use super::world::{Backend, Gateway, SOON, one_host, pause, read_all, read_until, until};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn post(stream: &mut TcpStream, path: &str, length: usize) {
    let head = format!("POST {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
}

fn wait_for(gateway: &Gateway, count: usize) {
    until(&format!("{count} are held"), || gateway.held() == count);
}

#[test]
fn every_kind_of_request_waits_and_arrives_whole_and_once() {
    let mut backend = Backend::new();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut get = gateway.connect();
    get.write_all(b"GET /get HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").expect("sent");
    let mut small = gateway.connect();
    post(&mut small, "/small", 3);
    small.write_all(b"abc").expect("sent");
    let mut large = gateway.connect();
    let body: Vec<u8> = (0..300_000_u32).map(|n| b'a' + u8::try_from(n % 23).expect("small")).collect();
    post(&mut large, "/large", body.len());
    let (rest, mut pushing) = (body.clone(), large.try_clone().expect("cloned"));
    let pushed = std::thread::spawn(move || pushing.write_all(&rest));
    let mut chunked = gateway.connect();
    chunked
        .write_all(b"POST /chunked HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        .expect("sent");
    wait_for(&gateway, 4);
    assert_eq!(gateway.metric("backend_absent{host=\"a.test\"}"), 1.0);
    backend.start();
    chunked.write_all(b"6\r\n world\r\n0\r\nx-sum: 1\r\n\r\n").expect("sent");
    for (stream, line, length) in [
        (&mut get, "GET /get", 0),
        (&mut small, "POST /small", 3),
        (&mut large, "POST /large", 300_000),
        (&mut chunked, "POST /chunked", 11),
    ] {
        let answer = read_all(stream);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("{line} HTTP/1.1 {length}")), "{answer}");
    }
    pushed.join().expect("joined").expect("sent");
    let got = backend.requests();
    assert_eq!(got.len(), 4);
    assert_eq!(got.iter().find(|one| one.line().starts_with("POST /large")).expect("there").body, body);
    assert_eq!(got.iter().find(|one| one.line().starts_with("POST /chunked")).expect("there").trailers, "x-sum: 1\r\n");
    gateway.all_gauges_are_zero();
    assert_eq!(gateway.outcome("served"), 4);
    assert_eq!(gateway.metric("held_seconds_count{host=\"a.test\"}"), 4.0);
}

#[test]
fn the_hold_ends_with_a_503_that_says_when_to_come_again() {
    let backend = Backend::new();
    let gateway = Gateway::start(&one_host(backend.at, "hold = \"300ms\""));
    let began = Instant::now();
    let answer = gateway.get("a.test", "/");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: "), "{answer}");
    assert!(began.elapsed() >= Duration::from_millis(300));
    // The connection goes on, where nothing of a body is left on it.
    let mut stream = gateway.connect();
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
        assert!(read_until(&mut stream, "in time.\n").starts_with("HTTP/1.1 503 "));
    }
    until("each is counted", || gateway.outcome("hold_ended") == 3);
}

#[test]
fn who_leaves_is_gone_within_a_second_and_is_never_delivered() {
    let mut backend = Backend::new();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let leave = |send: &dyn Fn(&mut TcpStream), reset: bool| {
        let mut stream = gateway.connect();
        send(&mut stream);
        if reset {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("set");
        }
        stream
    };
    let get = |stream: &mut TcpStream| stream.write_all(b"GET /gone HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    let small = |stream: &mut TcpStream| {
        post(stream, "/gone", 5);
        stream.write_all(b"hello").expect("sent");
    };
    let unread = |stream: &mut TcpStream| {
        post(stream, "/gone", 60_000);
        stream.write_all(&[b'x'; 60_000]).expect("sent");
    };
    let half = |stream: &mut TcpStream| {
        post(stream, "/gone", 60_000);
        stream.write_all(&[b'x'; 30_000]).expect("sent");
    };
    let kinds: [&dyn Fn(&mut TcpStream); 4] = [&get, &small, &unread, &half];
    let streams: Vec<TcpStream> = kinds.iter().flat_map(|send| [leave(*send, false), leave(*send, true)]).collect();
    let mut stays = gateway.connect();
    stays.write_all(b"GET /stays HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").expect("sent");
    wait_for(&gateway, 9);
    drop(streams);
    let left = Instant::now();
    wait_for(&gateway, 1);
    assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
    assert_eq!(gateway.outcome("left_waiting"), 8);
    backend.start();
    assert!(read_all(&mut stays).starts_with("HTTP/1.1 200 "));
    pause(100);
    assert_eq!(backend.lines(), ["GET /stays HTTP/1.1"]);
    gateway.all_gauges_are_zero();
}

#[test]
fn limits_turn_the_next_one_away_at_once() {
    let backend = Backend::new();
    let other = Backend::new();
    let hosts = format!(
        "{}[[gateway.host]]\nname = \"b.test\"\nbackend = \"http://{}\"\n",
        one_host(backend.at, "held = 2"),
        other.at
    );
    let gateway = Gateway::start_with("held = 3", &hosts);
    let hold = |host: &str| {
        let mut stream = gateway.connect();
        write!(stream, "GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").expect("sent");
        stream
    };
    let _first = (hold("a.test"), hold("a.test"));
    wait_for(&gateway, 2);
    assert!(gateway.get("a.test", "/").contains("Too many requests wait"), "the host's own limit");
    let _third = hold("b.test");
    until("b waits", || gateway.metric("held{host=\"b.test\"}") == 1.0);
    assert!(gateway.get("b.test", "/").contains("Too many requests wait"), "the limit of all");
    assert_eq!(gateway.outcome("hold_full"), 1);
    assert_eq!(gateway.held(), 2);
}

#[test]
fn a_page_load_is_shown_the_page_and_nothing_else_is() {
    let mut backend = Backend::new();
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("page.html"), "<h1>Back in a moment</h1>").expect("written");
    let page = dir.path().join("page.html").display().to_string();
    let gateway = Gateway::start(&one_host(backend.at, &format!("hold = \"400ms\"\nwaiting_page = \"{page}\"")));
    let ask = |method: &str| {
        gateway.ask(&format!(
            "{method} / HTTP/1.1\r\nhost: a.test\r\naccept: text/html\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        ))
    };
    let load = || gateway.ask("GET / HTTP/1.1\r\nhost: a.test\r\naccept: text/html\r\nconnection: close\r\n\r\n");
    let shown = load();
    assert!(shown.starts_with("HTTP/1.1 503 ") && shown.contains("Back in a moment"), "{shown}");
    assert!(shown.contains("refresh: 2") && shown.contains("text/html"), "{shown}");
    assert!(ask("POST").contains("did not come back"));
    assert!(gateway.get("a.test", "/").contains("did not come back"));
    assert_eq!(gateway.outcome("waiting_page"), 1);
    backend.start();
    // Whoever was shown the page is why the backend is looked for.
    until("the page is gone", || load().starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_clients_own_deadline_and_its_class_end_the_hold_sooner() {
    let backend = Backend::new();
    let class = "[[gateway.host.class]]\nuser_agent = \"mcp\"\nhold = \"100ms\"\n";
    let gateway = Gateway::start(&one_host(backend.at, &format!("hold = \"1m\"\n{class}")));
    let began = Instant::now();
    let answer = gateway.ask(
        "POST /s/m HTTP/1.1\r\nhost: a.test\r\ncontent-type: application/grpc\r\ngrpc-timeout: 200m\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("grpc-status: 4"), "{answer}");
    let answer = gateway.ask("GET / HTTP/1.1\r\nhost: a.test\r\nuser-agent: Some-MCP/1\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(began.elapsed() < SOON);
}

#[test]
fn health_stays_well_while_requests_are_only_held() {
    let backend = Backend::new();
    let health = "[[gateway.health]]\npath = \"/health\"\ngroup = \"app\"\n";
    let gateway = Gateway::start(&(one_host(backend.at, "") + health));
    let mut waits = gateway.connect();
    waits.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    wait_for(&gateway, 1);
    let answer = gateway.get("10.0.0.7:8000", "/health");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("app: ok\n"), "{answer}");
    assert_eq!(gateway.held(), 1);
}

#[test]
fn what_accepts_for_somebody_who_is_not_there_is_not_a_backend() {
    // Docker's proxy accepts before the app listens, and closes at once.
    let mut proxy = Backend::new();
    let listener = std::net::TcpListener::bind(proxy.at).expect("it listens");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let accepting = std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            drop(stream);
            if stopped.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
        }
    });
    let gateway = Gateway::start(&one_host(proxy.at, ""));
    let mut waits = gateway.connect();
    post(&mut waits, "/once", 5);
    waits.write_all(b"hello").expect("sent");
    wait_for(&gateway, 1);
    pause(300);
    assert_eq!(gateway.held(), 1, "it still waits");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    accepting.join().expect("joined");
    proxy.start();
    assert!(read_all(&mut waits).starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.lines(), ["POST /once HTTP/1.1"]);
}

#[test]
fn a_thousand_that_wait_are_let_go_in_their_order_and_soon() {
    let mut backend = Backend::new();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut streams = Vec::new();
    for number in 0..1000 {
        let mut stream = gateway.connect();
        write!(stream, "GET /{number} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").expect("sent");
        streams.push(stream);
    }
    wait_for(&gateway, 1000);
    backend.start();
    let began = Instant::now();
    let first = read_until(&mut streams[0], "\r\n");
    // The figure is measured elsewhere; here it is only not seconds.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(first, "HTTP/1.1 200 OK\r\n");
    for stream in &mut streams[1..] {
        assert!(read_all(stream).starts_with("HTTP/1.1 200 "));
    }
    let mut lines = backend.lines();
    assert_eq!(lines.len(), 1000);
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 1000, "somebody was delivered twice");
    gateway.all_gauges_are_zero();
}
