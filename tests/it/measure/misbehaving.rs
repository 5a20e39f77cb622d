//! A server that misbehaves in one way, exactly so many times, and counts what it answered.

use hyper::Response;
use hyper::body::Bytes;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    One,
    Two,
    TlsOne,
    TlsTwo,
}

/// What goes wrong, so many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A connection is reset as soon as it is there.
    Refuse,
    /// A request is read, and its connection or stream reset.
    Reset,
    /// Half a body.
    Cut,
    /// The balancer has nobody to ask.
    Balancer503,
    /// The app says 503 itself.
    App503,
    /// A request ends its HTTP/2 connection for all that is on it.
    GoAway,
    /// Nothing goes wrong, but each connection takes five requests only and ends in good order.
    FewToAConnection,
    /// Nothing is answered for a second, one second after the first request.
    Freeze,
}

struct State {
    http: Http,
    fault: Fault,
    left: AtomicUsize,
    answered: AtomicUsize,
    connections: AtomicUsize,
    heads: Mutex<Vec<String>>,
    first: Mutex<Option<Instant>>,
    tls: Option<TlsAcceptor>,
}

pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    accepting: Option<(Runtime, JoinHandle<()>)>,
}

impl Server {
    pub fn start(http: Http, fault: Fault, times: usize) -> Self {
        Self::start_at("127.0.0.1:0", http, fault, times)
    }

    pub fn start_at(at: &str, http: Http, fault: Fault, times: usize) -> Self {
        let state = Arc::new(State {
            http,
            fault,
            left: AtomicUsize::new(times),
            answered: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            heads: Mutex::default(),
            first: Mutex::default(),
            tls: matches!(http, Http::TlsOne | Http::TlsTwo).then(|| acceptor(http)),
        });
        let mut server = Self { address: at.parse().expect("an address"), state, accepting: None };
        server.up();
        server
    }

    /// Listens, where it listened before.
    pub fn up(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind(self.address)).expect("a port");
        self.address = listener.local_addr().expect("an address");
        let accepting = runtime.spawn(accept(listener, Arc::clone(&self.state)));
        self.accepting = Some((runtime, accepting));
    }

    /// Ends everything, connections included, at once.
    pub fn down(&mut self) {
        if let Some((runtime, _)) = self.accepting.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        let scheme = if self.state.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    pub fn answered(&self) -> usize {
        self.state.answered.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub fn heads(&self) -> Vec<String> {
        self.state.heads.lock().expect("no panic").clone()
    }
}

fn acceptor(http: Http) -> TlsAcceptor {
    let pem = |name: &str| format!("{}/tests/it/tls/{name}.pem", env!("CARGO_MANIFEST_DIR"));
    let chain =
        CertificateDer::pem_file_iter(pem("server")).expect("a file").map(|c| c.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_file(pem("server-key")).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a pair");
    let protocol: &[u8] = if http == Http::TlsTwo { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a client");
        state.connections.fetch_add(1, Ordering::SeqCst);
        if state.fault == Fault::Refuse && state.spoils() {
            reset(stream);
            continue;
        }
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            match (state.http, state.tls.clone()) {
                (Http::One, _) => one(stream, &state).await,
                (Http::Two, _) => two(stream, &state).await,
                (http, Some(tls)) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    if http == Http::TlsOne { one(stream, &state).await } else { two(stream, &state).await }
                }
                (_, None) => unreachable!("TLS has an acceptor"),
            }
        });
    }
}

fn reset(stream: TcpStream) {
    stream.set_zero_linger().expect("set");
    drop(stream);
}

impl State {
    /// Whether this one is spoilt.
    fn spoils(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    async fn freeze(&self) {
        if self.fault != Fault::Freeze {
            return;
        }
        let first = *self.first.lock().expect("no panic").get_or_insert_with(Instant::now);
        let (from, to) = (first + Duration::from_secs(1), first + Duration::from_secs(2));
        if (from..to).contains(&Instant::now()) {
            tokio::time::sleep_until(to).await;
        }
    }
}

/// A stream that can be reset, where it is a bare one.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    fn end(self);
}

impl Stream for TcpStream {
    fn end(self) {
        reset(self);
    }
}

impl Stream for tokio_rustls::server::TlsStream<TcpStream> {
    fn end(self) {
        reset(self.into_inner().0);
    }
}

async fn one(mut stream: impl Stream, state: &State) {
    let mut head = Vec::new();
    let mut served = 0;
    while let Ok(byte) = stream.read_u8().await {
        head.push(byte);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        head.clear();
        let close = text.contains("connection: close");
        state.heads.lock().expect("no panic").push(text);
        state.freeze().await;
        let spoilt = !matches!(state.fault, Fault::FewToAConnection | Fault::Freeze) && state.spoils();
        let answer = match state.fault {
            Fault::Reset if spoilt => return stream.end(),
            Fault::Cut if spoilt => {
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await);
                drop(stream.shutdown().await);
                return;
            }
            Fault::Balancer503 if spoilt => "HTTP/1.1 503 X\r\nServer: awselb/2.0\r\nContent-Length: 2\r\n\r\nno",
            Fault::App503 if spoilt => "HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\nno",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        };
        if !spoilt {
            state.answered.fetch_add(1, Ordering::SeqCst);
        }
        served += 1;
        let written = stream.write_all(answer.as_bytes()).await.is_ok();
        if !written || close || state.fault == Fault::FewToAConnection && served == 5 {
            drop(stream.shutdown().await);
            return;
        }
    }
}

async fn two(stream: impl Stream, state: &State) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut served = 0;
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let spoilt = state.fault != Fault::FewToAConnection && state.spoils();
        let answer = |status: u16| Response::builder().status(status);
        let mut said = answer(200);
        match state.fault {
            Fault::GoAway if spoilt => {
                connection.abrupt_shutdown(h2::Reason::INTERNAL_ERROR);
                continue;
            }
            Fault::Reset if spoilt => {
                respond.send_reset(h2::Reason::INTERNAL_ERROR);
                continue;
            }
            Fault::Balancer503 if spoilt => said = answer(503).header("server", "awselb/2.0"),
            Fault::App503 if spoilt => said = answer(503),
            _ => {}
        }
        let Ok(mut body) = respond.send_response(said.body(()).expect("an answer"), false) else { continue };
        if state.fault == Fault::Cut && spoilt {
            drop(body.send_data(Bytes::from_static(b"half"), false));
            // Later, or it would take the place of what is still to be written.
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                body.send_reset(h2::Reason::INTERNAL_ERROR);
            });
            continue;
        }
        if !spoilt {
            state.answered.fetch_add(1, Ordering::SeqCst);
        }
        drop(body.send_data(Bytes::from_static(b"ok"), true));
        served += 1;
        if state.fault == Fault::FewToAConnection && served == 5 {
            connection.graceful_shutdown();
        }
    }
}
