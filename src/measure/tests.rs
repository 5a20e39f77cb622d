//! The prober against small servers that misbehave in one way each.

use super::*;
use crate::clock::Clock;
use crate::event::Requests;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that gives each request of a connection one of these answers in turn, and closes after the last.
async fn server(answers: &'static [&'static str]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                for answer in answers {
                    let Ok(1..) = stream.read(&mut buffer).await else { return };
                    count.fetch_add(1, Ordering::SeqCst);
                    drop(stream.write_all(answer.as_bytes()).await);
                }
            });
        }
    });
    (address, requests)
}

async fn probe(address: SocketAddr, wall: Duration) -> (Requests, Vec<Loss>) {
    let target = Target { url: "http://shop.example/version".into(), addresses: Some(vec![address]) };
    let options = ProberOptions { rate: 100.0, timeout: Duration::from_millis(300), ..ProberOptions::default() };
    let prober = Prober::start(target, &options, Clock::start()).expect("a prober");
    tokio::time::sleep(wall).await;
    let losses = prober.losses();
    (prober.stop().await, losses)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn every_request_is_sent_once_and_counted_once() {
    let (address, requests) = server(&[OK; 1000]).await;
    let (counts, _) = probe(address, Duration::from_millis(500)).await;
    assert_eq!(counts.total, requests.load(Ordering::SeqCst) as u64);
    assert_eq!(counts.served, counts.total);
    assert!(counts.total > 30, "{counts:?}");
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_while_idle_costs_nothing() {
    let (address, _) = server(&[OK]).await;
    let (counts, losses) = probe(address, Duration::from_millis(500)).await;
    assert_eq!(counts.lost(), 0, "{losses:?}");
    assert!(counts.served > 30, "{counts:?}");
}

#[tokio::test]
async fn a_connection_that_dies_after_the_request_was_written_counts_and_is_not_repeated() {
    let (address, requests) = server(&[OK, ""]).await;
    let (counts, losses) = probe(address, Duration::from_millis(500)).await;
    assert_eq!(counts.total, requests.load(Ordering::SeqCst) as u64);
    assert!(counts.nowhere > 0 && counts.served > 0, "{counts:?} {losses:?}");
}

#[tokio::test]
async fn silence_is_nowhere_after_the_timeout_and_holds_nothing_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (counts, losses) = probe(listener.local_addr().expect("an address"), Duration::from_millis(600)).await;
    assert_eq!(counts.nowhere, counts.total);
    assert!(counts.total > 40, "an open arrival rate: {counts:?}");
    assert!(losses.iter().all(|loss| loss.what == "no answer in time"), "{losses:?}");
}

#[tokio::test]
async fn a_closed_port_is_nowhere_and_a_broken_body_is_cut_short() {
    // Kept, and not listened at: nobody else gets it meanwhile.
    let closed = tokio::net::TcpSocket::new_v4().expect("a socket");
    closed.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = closed.local_addr().expect("an address");
    let (counts, _) = probe(address, Duration::from_millis(100)).await;
    assert!(counts.nowhere > 0 && counts.nowhere == counts.total, "{counts:?}");
    let (address, _) = server(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]).await;
    let (counts, _) = probe(address, Duration::from_millis(100)).await;
    assert!(counts.cut_short > 0 && counts.cut_short == counts.total, "{counts:?}");
}

#[tokio::test]
async fn what_was_lost_before_the_mark_is_the_baseline() {
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = closed.local_addr().expect("an address");
    drop(closed);
    let target = Target { url: "http://shop.example/".into(), addresses: Some(vec![address]) };
    let options = ProberOptions { rate: 100.0, timeout: Duration::from_secs(1), ..ProberOptions::default() };
    let prober = Prober::start(target, &options, Clock::start()).expect("a prober");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let baseline = prober.mark();
    assert!(baseline.nowhere > 0);
    assert_eq!(*prober.lost().borrow(), 0);
    let mut lost = prober.lost();
    lost.wait_for(|lost| *lost > 2).await.expect("counts on");
    let since = prober.since_mark();
    assert!(since.nowhere >= 3 && since.nowhere < prober.counts().borrow().nowhere, "{since:?}");
}

#[test]
fn what_is_no_url_is_refused_before_anything_is_sent() {
    for url in ["ftp://x/", "nothing", "http:///x"] {
        let target = Target { url: url.into(), addresses: None };
        let options = ProberOptions { rate: 1.0, timeout: Duration::from_secs(1), ..ProberOptions::default() };
        assert!(Prober::start(target, &options, Clock::start()).is_err(), "{url}");
    }
}
