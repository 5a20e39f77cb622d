//! HTTP/2 on either side, with trailers as gRPC has them; TLS; and clients that break off at every point.

use super::world::{Backend, Gateway, address, one_host, until};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

fn tls(name: &str) -> String {
    format!("{}/tests/it/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn whole(text: &str) -> Body {
    Full::new(Bytes::from(text.to_owned())).boxed()
}

async fn client(at: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(at).await.expect("it listens");
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

fn request(method: &str, path: &str, body: Body) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(format!("http://a.test{path}"))
        .version(Version::HTTP_2)
        .header("te", "trailers")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(body)
        .expect("a request")
}

/// A gRPC-like backend: answers a POST's body and ends with trailers.
async fn grpc(at: SocketAddr) {
    let listener = tokio::net::TcpListener::bind(at).await.expect("it listens");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accepted");
            let service = service_fn(|request: Request<Incoming>| async move {
                assert_eq!(request.version(), Version::HTTP_2);
                assert_eq!(request.headers()["te"], "trailers");
                let path = request.uri().path().to_owned();
                let collected = request.into_body().collect().await.expect("a body");
                let sent = collected.trailers().map_or(0, HeaderMap::len);
                let body = collected.to_bytes();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().expect("a value"));
                trailers.insert("sent-trailers", sent.to_string().parse().expect("a value"));
                let frames = [Ok::<_, Infallible>(Frame::data(body)), Ok(Frame::trailers(trailers))];
                let mut response = Response::new(StreamBody::new(futures_util::stream::iter(frames)));
                response.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
                response.headers_mut().insert("asked", path.parse().expect("a value"));
                Ok::<_, Infallible>(response)
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_reaches_an_http1_backend() {
    let backend = Backend::up();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut client = client(gateway.at).await;
    let response = client.send_request(request("POST", "/x?y", whole("hello"))).await.expect("an answer");
    assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 200));
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "POST /x?y HTTP/1.1 5");
    let got = backend.requests().pop().expect("one");
    assert_eq!(
        (got.field("host"), got.field("cookie"), got.field("content-length")),
        (Some("a.test"), Some("a=1; b=2"), Some("5"))
    );
    // A hundred at a time over one connection.
    let many = (0..100).map(|n| client.send_request(request("GET", &format!("/{n}"), whole(""))));
    for response in futures_util::future::join_all(many.collect::<Vec<_>>()).await {
        assert_eq!(response.expect("an answer").status().as_u16(), 200);
    }
    let unknown = Request::builder().uri("http://b.test/").version(Version::HTTP_2).body(whole("")).expect("a request");
    assert_eq!(client.send_request(unknown).await.expect("an answer").status().as_u16(), 421);
    assert_eq!(gateway.outcome("served"), 101);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_waits_for_its_backend_and_gets_its_trailers() {
    let at = address();
    let gateway = Gateway::start(&one_host(at, "protocol = \"http2\""));
    let mut client = client(gateway.at).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().expect("a value"));
    let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"ping"))), Ok(Frame::trailers(trailers))];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed();
    let answer = tokio::spawn(client.send_request(request("POST", "/s/m", body)));
    until("it waits", || gateway.held() == 1);
    grpc(at).await;
    let response = answer.await.expect("joined").expect("an answer");
    assert_eq!(response.headers()["asked"], "/s/m");
    let collected = response.into_body().collect().await.expect("a body");
    let got = collected.trailers().expect("trailers").clone();
    assert_eq!((got["grpc-status"].as_bytes(), got["sent-trailers"].as_bytes()), (&b"0"[..], &b"1"[..]));
    assert_eq!(collected.to_bytes(), "ping");
    // Over the same connection to the backend, from HTTP/1.1 as well.
    let old = gateway.ask(
        "POST /s/old HTTP/1.1\r\nhost: a.test\r\nte: trailers\r\nconnection: close\r\ncontent-length: 4\r\n\r\npong",
    );
    assert!(old.starts_with("HTTP/1.1 200 ") && old.contains("grpc-status: 0"), "{old}");
    drop(client);
    gateway.all_gauges_are_zero();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_reset_while_it_waits_is_never_delivered() {
    let mut backend = Backend::new();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let mut client = client(gateway.at).await;
    let gone = tokio::spawn(client.send_request(request("POST", "/gone", whole("hello"))));
    let stays = tokio::spawn(client.send_request(request("POST", "/stays", whole("hello"))));
    until("both wait", || gateway.held() == 2);
    gone.abort();
    until("one is gone", || gateway.held() == 1);
    backend.start();
    assert_eq!(stays.await.expect("joined").expect("an answer").status().as_u16(), 200);
    assert_eq!(backend.lines(), ["POST /stays HTTP/1.1"]);
    assert_eq!(gateway.outcome("left_waiting"), 1);
    drop(client);
    gateway.all_gauges_are_zero();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_both_versions_are_offered_and_the_backend_is_told() {
    let backend = Backend::up();
    let mut gateway = Gateway::start(&one_host(backend.at, ""));
    let secure = address();
    let more = format!(
        "listen_tls = \"{secure}\"\n[[gateway.certificate]]\ncert = \"{}\"\nkey = \"{}\"",
        tls("server.pem"),
        tls("server-key.pem")
    );
    gateway.signal(rustix::process::Signal::TERM);
    drop(gateway.child.wait());
    gateway.write(
        &more,
        &(one_host(backend.at, "")
            + "[[gateway.host]]\nname = \"localhost\"\nbackend = \"http://BACKEND\"\n"
                .replace("BACKEND", &backend.at.to_string())
                .as_str()),
    );
    gateway.spawn(&[]);
    for (alpn, version) in [(&b"h2"[..], Version::HTTP_2), (b"http/1.1", Version::HTTP_11)] {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(tls("ca.pem")).expect("a file") {
            roots.add(certificate.expect("a certificate")).expect("added");
        }
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(secure).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
        let request = Request::builder().uri("https://localhost/tls").header("host", "localhost").version(version);
        let status = if version == Version::HTTP_2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .expect("HTTP/2");
            tokio::spawn(connection);
            sender.send_request(request.body(whole("")).expect("a request")).await.expect("an answer").status()
        } else {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
            tokio::spawn(connection);
            sender.send_request(request.body(whole("")).expect("a request")).await.expect("an answer").status()
        };
        assert_eq!(status.as_u16(), 200);
        let got = backend.requests().pop().expect("one");
        assert_eq!(got.field("x-forwarded-proto"), Some("https"));
    }
    // What is no TLS is turned away and counted.
    let mut plain = super::world::connect(secure);
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
    super::world::read_all(&mut plain);
    until("it is counted", || gateway.metric("turned_away_total{reason=\"handshake\"}") == 1.0);
}

#[test]
fn whatever_clients_break_off_nothing_is_left_over() {
    let mut backend = Backend::new();
    backend.start_with(|got, stream| {
        let text = "x".repeat(100_000);
        drop(stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()).as_bytes()));
        got.whole
    });
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let requests = [
        "GET /g HTTP/1.1\r\nhost: a.test\r\n\r\n".to_owned(),
        format!("POST /p HTTP/1.1\r\nhost: a.test\r\ncontent-length: 20000\r\n\r\n{}", "y".repeat(20_000)),
        "POST /c HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned(),
    ];
    let mut seed = 7_u64;
    for round in 0..600 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = usize::try_from(seed >> 33).expect("small");
        let request = &requests[round % 3];
        let mut stream = gateway.connect();
        let cut = random % (request.len() + 1);
        drop(stream.write_all(&request.as_bytes()[..cut]));
        if random.is_multiple_of(2) {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("set");
        }
        if random.is_multiple_of(5) {
            std::thread::yield_now();
        }
    }
    gateway.all_gauges_are_zero();
    let total: usize = gateway
        .page()
        .lines()
        .filter(|line| line.contains("requests_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(gateway.metric("request_seconds_count{host=\"a.test\"}"), total as f64, "each has one outcome");
    assert_eq!(gateway.metric("backend_absent{host=\"a.test\"}"), 0.0);
}
