//! A gateway that holds everything on purpose, because somebody changes what is behind it.

use super::world::{Backend, Gateway, one_host, pause, pid, read_all, until};
use handover::fleet::held::HeldSeen;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const FILE: &str = "hold_file = \"DIR/hold\"\ncontrol = \"DIR/control\"";

fn seen_at(metrics: SocketAddr) -> HeldSeen {
    let mut stream = TcpStream::connect(metrics).expect("it listens");
    stream.write_all(b"GET /hold HTTP/1.1\r\nhost: m\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("what it holds")
}

fn seen(gateway: &Gateway) -> HeldSeen {
    seen_at(gateway.metrics)
}

fn hold(gateway: &Gateway, held: bool) {
    let file = gateway.dir.path().join("hold");
    if held { std::fs::write(file, "").expect("written") } else { std::fs::remove_file(file).expect("removed") }
}

fn sent(gateway: &Gateway, path: &str) -> TcpStream {
    let mut stream = gateway.connect();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

fn is_served(mut stream: TcpStream) -> bool {
    read_all(&mut stream).starts_with("HTTP/1.1 200 ")
}

#[test]
fn while_the_file_is_there_everybody_waits_although_the_backend_accepts_and_what_runs_is_finished() {
    let mut backend = Backend::new();
    let (slow, answer) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let go = Arc::clone(&answer);
    backend.start_with(move |got, stream| {
        while got.line().contains("/slow") && !go.load(Ordering::Relaxed) {
            pause(5);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
    });
    let gateway = Gateway::start_with(FILE, &(one_host(backend.at, "") + "[[gateway.health]]\npath = \"/health\"\n"));
    let before = seen(&gateway);
    assert_eq!((before.holding, before.forwarded, before.hands_over), (false, 0, true));
    assert_eq!(before.file, Some(gateway.dir.path().join("hold").display().to_string()));
    let runs = sent(&gateway, "/slow");
    until("it is forwarded", || seen(&gateway).forwarded == 1);
    hold(&gateway, true);
    assert!(seen(&gateway).holding, "whoever asks is told by what is there now");
    let waits: Vec<TcpStream> = (0..20).map(|_| sent(&gateway, "/waits")).collect();
    until("they wait", || seen(&gateway).waiting == 20);
    assert_eq!(seen(&gateway).forwarded, 1, "what was let through before goes on");
    assert!(gateway.get("10.0.0.1", "/health").starts_with("HTTP/1.1 200 "), "it serves, and is to stay in rotation");
    until("it says so", || gateway.said().contains("every request waits"));
    answer.store(slow.load(Ordering::Relaxed), Ordering::Relaxed);
    assert!(is_served(runs));
    until("nothing is under way", || seen(&gateway).quiet().is_ok());
    assert_eq!(backend.lines(), ["GET /slow HTTP/1.1"], "nobody else got there");
    hold(&gateway, false);
    assert!(waits.into_iter().all(is_served));
    assert!(!seen(&gateway).holding);
    until("it says so", || gateway.said().contains("who waited is let go"));
    gateway.all_gauges_are_zero();
}

/// What is quiet stays so: nobody slips through between the last look and the stop, however many arrive.
#[test]
fn once_it_is_quiet_nothing_arrives_behind_it_whoever_comes() {
    let mut backend = Backend::new();
    let (closed, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_closed, found) = (Arc::clone(&closed), Arc::clone(&late));
    backend.start_with(move |_, stream| {
        found.fetch_add(usize::from(is_closed.load(Ordering::SeqCst)), Ordering::SeqCst);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
    });
    let gateway = Gateway::start_with(FILE, &one_host(backend.at, "hold = \"60s\""));
    let over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (at, over, served) = (gateway.at, Arc::clone(&over), Arc::clone(&served));
            std::thread::spawn(move || {
                let mut stream = super::world::connect(at);
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
                while !over.load(Ordering::Relaxed) {
                    stream.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
                    assert!(super::world::read_until(&mut stream, "ok").starts_with("HTTP/1.1 200 "));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..20 {
        pause(20);
        hold(&gateway, true);
        until("it is quiet", || seen(&gateway).quiet().is_ok());
        closed.store(true, Ordering::SeqCst);
        pause(30);
        assert_eq!(seen(&gateway).forwarded, 0);
        closed.store(false, Ordering::SeqCst);
        hold(&gateway, false);
    }
    over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("every request was answered"));
    assert_eq!(late.load(Ordering::SeqCst), 0);
    assert!(served.load(Ordering::Relaxed) > 100);
}

#[test]
fn a_host_that_a_reload_brings_is_held_too_and_one_that_starts_beside_the_file_holds_from_the_first_request() {
    let backend = Backend::up();
    let gateway = Gateway::start_with(FILE, &one_host(backend.at, ""));
    hold(&gateway, true);
    assert!(seen(&gateway).holding);
    let more = one_host(backend.at, "").replace("a.test", "b.test");
    gateway.write(FILE, &(one_host(backend.at, "") + &more));
    gateway.signal(Signal::HUP);
    until("it was read again", || gateway.said().contains("2 hosts"));
    let mut new = gateway.connect();
    new.write_all(b"GET / HTTP/1.1\r\nhost: b.test\r\nconnection: close\r\n\r\n").expect("sent");
    until("it waits", || seen(&gateway).waiting == 1);
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("hold"), "").expect("written");
    let other =
        Gateway::start_in(dir, super::world::address(), super::world::address(), FILE, &one_host(backend.at, ""));
    let first = sent(&other, "/first");
    until("it waits", || seen(&other).waiting == 1);
    assert!(backend.lines().is_empty());
    hold(&gateway, false);
    hold(&other, false);
    assert!(is_served(new) && is_served(first));
}

#[test]
fn who_is_held_for_longer_than_the_hold_is_told_and_so_is_the_balancer() {
    let backend = Backend::up();
    let health = "[[gateway.health]]\npath = \"/health\"\n";
    let gateway = Gateway::start_with(FILE, &(one_host(backend.at, "hold = \"400ms\"") + health));
    hold(&gateway, true);
    assert!(seen(&gateway).holding);
    let answer = gateway.get("a.test", "/");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.to_lowercase().contains("retry-after"), "{answer}");
    let health = |wanted: &str| gateway.get("10.0.0.1", "/health").starts_with(&format!("HTTP/1.1 {wanted} "));
    until("others are better asked", || health("503"));
    hold(&gateway, false);
    until("it serves again", || health("200"));
    assert!(gateway.get("a.test", "/").starts_with("HTTP/1.1 200 "));
}

/// The file is obeyed by whoever holds somebody, also after another process has the listeners; and a stop gives it time.
#[test]
fn who_waits_in_a_process_that_handed_over_is_let_go_with_all_others_also_when_it_is_stopped() {
    let backend = Backend::up();
    let mut gateway = Gateway::start_with(FILE, &one_host(backend.at, ""));
    hold(&gateway, true);
    let old_one = seen(&gateway).process;
    let early = sent(&gateway, "/early");
    until("it waits", || seen(&gateway).waiting == 1);
    let mut old = std::mem::replace(&mut gateway.child, Command::new("true").spawn().expect("it runs"));
    drop(gateway.child.wait());
    gateway.spawn(&["--take-over"]);
    until("another process answers", || seen(&gateway).process != old_one);
    assert!(seen(&gateway).holding, "it saw the file before its first request");
    rustix::process::kill_process(pid(&old), Signal::TERM).expect("it runs");
    let late = sent(&gateway, "/late");
    until("it waits here", || seen(&gateway).waiting == 1);
    pause(300);
    assert!(old.try_wait().expect("asked").is_none(), "somebody waits there");
    hold(&gateway, false);
    assert!(is_served(early) && is_served(late));
    until("the old one ended", || old.try_wait().expect("asked").is_some());
    assert_eq!(old.wait().expect("ended").code(), Some(0), "nothing was cut");
}
