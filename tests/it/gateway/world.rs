//! A gateway that runs, and backends that come and go.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Generous: nothing here is a measurement.
pub const SOON: Duration = Duration::from_secs(20);

/// An address that no other test has: loopback is wide.
pub fn address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, 1 + high % 200, low, 1 + u8::try_from(number % 250).expect("small")), 7700))
}

/// Asks until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        pause(10);
    }
}

pub fn pause(millis: u64) {
    let (_keep, wait) = std::sync::mpsc::channel::<()>();
    let _ = wait.recv_timeout(Duration::from_millis(millis));
}

/// A gateway.
pub struct Gateway {
    pub child: Child,
    pub at: SocketAddr,
    pub metrics: SocketAddr,
    pub dir: tempfile::TempDir,
    errors: Arc<Mutex<String>>,
}

/// The shortest configuration: one host, `a.test`.
pub fn one_host(backend: SocketAddr, more: &str) -> String {
    format!("[[gateway.host]]\nname = \"a.test\"\nbackend = \"http://{backend}\"\n{more}\n")
}

impl Gateway {
    /// Starts one; `LISTEN`, `METRICS` and `DIR` are filled in.
    pub fn start(hosts: &str) -> Self {
        Self::start_with("", hosts)
    }

    pub fn start_with(more: &str, hosts: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        Self::start_in(dir, address(), address(), more, hosts)
    }

    pub fn start_in(dir: tempfile::TempDir, at: SocketAddr, metrics: SocketAddr, more: &str, hosts: &str) -> Self {
        let mut gateway =
            Self { child: Command::new("true").spawn().expect("it runs"), at, metrics, dir, errors: Arc::default() };
        drop(gateway.child.wait());
        gateway.write(more, hosts);
        gateway.spawn(&[]);
        gateway
    }

    pub fn write(&self, more: &str, hosts: &str) {
        let path = self.dir.path().display().to_string();
        let text = format!("[gateway]\nlisten = \"{}\"\nmetrics = \"{}\"\n{more}\n{hosts}", self.at, self.metrics);
        std::fs::write(self.dir.path().join("gateway.toml"), text.replace("DIR", &path)).expect("written");
    }

    /// Starts the process, and waits until it serves.
    pub fn spawn(&mut self, args: &[&str]) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_handover"))
            .arg("gateway")
            .args(args)
            .args(["-c", "gateway.toml", "--output", "plain"])
            .current_dir(self.dir.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let errors = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&errors);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().expect("kept").push_str(&(line + "\n"));
            }
        });
        self.child = child;
        self.errors = errors;
        until("it serves", || self.said().contains("serving"));
    }

    /// What it said so far.
    pub fn said(&self) -> String {
        self.errors.lock().expect("kept").clone()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(pid(&self.child), signal).expect("it runs");
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.at)
    }

    /// Sends bytes over a connection of their own and reads until it is closed.
    pub fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        read_all(&mut stream)
    }

    /// Sends a GET, whose answer ends the connection.
    pub fn get(&self, host: &str, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))
    }

    pub fn page(&self) -> String {
        let mut stream = connect(self.metrics);
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: m\r\nconnection: close\r\n\r\n").expect("sent");
        read_all(&mut stream)
    }

    /// The value of a series, without the prefix that all of them have.
    pub fn metric(&self, series: &str) -> f64 {
        let page = self.page();
        let line = page.lines().find_map(|line| line.strip_prefix("handover_gateway_")?.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series} is not in\n{page}")).trim().parse().expect("a number")
    }

    pub fn held(&self) -> usize {
        self.metric("held{host=\"a.test\"}") as usize
    }

    pub fn outcome(&self, outcome: &str) -> usize {
        self.metric(&format!("requests_total{{host=\"a.test\",outcome=\"{outcome}\"}}")) as usize
    }

    /// Every gauge is where it was before the first request.
    pub fn all_gauges_are_zero(&self) {
        until(&format!("every gauge is 0:\n{}", self.page()), || {
            ["held", "active", "tunnels", "in_flight"]
                .iter()
                .all(|gauge| self.metric(&format!("{gauge}{{host=\"a.test\"}}")) == 0.0)
                && self.metric("connections ") == 0.0
        });
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            drop(writeln!(std::io::stderr(), "the gateway said:\n{}", self.said()));
        }
    }
}

pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid")
}

pub fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&at, SOON).expect("somebody listens");
    stream.set_read_timeout(Some(SOON)).expect("set");
    stream
}

/// Everything until the connection ends, however it ends.
pub fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                text.extend_from_slice(b"<reset>");
                break;
            }
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&text)),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads until the text that was read ends with this.
pub fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let mut byte = [0; 1];
    while !text.ends_with(end.as_bytes()) {
        match stream.read(&mut byte) {
            Ok(1) => text.push(byte[0]),
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&text)),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A request as a backend got it.
#[derive(Debug, Clone, Default)]
pub struct Got {
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: String,
    /// Whether the body came to its end.
    pub whole: bool,
    /// Which connection it came over.
    pub connection: usize,
}

impl Got {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

type Handler = dyn Fn(&Got, &mut TcpStream) -> bool + Send + Sync;

/// A backend: it listens when told so, and writes down what it gets.
pub struct Backend {
    pub at: SocketAddr,
    pub got: Arc<Mutex<Vec<Got>>>,
    pub connections: Arc<AtomicU32>,
    up: Option<Arc<AtomicBool>>,
}

impl Backend {
    pub fn new() -> Self {
        Self { at: address(), got: Arc::default(), connections: Arc::default(), up: None }
    }

    /// One that answers everything with 200 and the length of the body.
    pub fn up() -> Self {
        let mut backend = Self::new();
        backend.start();
        backend
    }

    pub fn start(&mut self) {
        self.start_with(|got, stream| {
            let text = format!("{} {}", got.line(), got.body.len());
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
            stream.write_all(answer.as_bytes()).is_ok()
        });
    }

    /// Answers by `handler`, which says whether the connection goes on.
    pub fn start_with(&mut self, handler: impl Fn(&Got, &mut TcpStream) -> bool + Send + Sync + 'static) {
        let listener = TcpListener::bind(self.at).expect("it listens");
        let up = Arc::new(AtomicBool::new(true));
        self.up = Some(Arc::clone(&up));
        let (got, connections, handler) = (Arc::clone(&self.got), Arc::clone(&self.connections), Arc::new(handler));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { continue };
                if !up.load(Ordering::Relaxed) {
                    break;
                }
                connections.fetch_add(1, Ordering::Relaxed);
                let (got, handler) = (Arc::clone(&got), Arc::clone(&handler));
                std::thread::spawn(move || serve(stream, number, &got, handler.as_ref()));
            }
        });
    }

    /// Accepts nothing any more.
    pub fn stop(&mut self) {
        if let Some(up) = self.up.take() {
            up.store(false, Ordering::Relaxed);
            drop(TcpStream::connect(self.at));
            until("it stopped", || TcpStream::connect(self.at).is_err());
        }
    }

    pub fn requests(&self) -> Vec<Got> {
        self.got.lock().expect("kept").clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.requests().iter().map(|got| got.line().to_owned()).collect()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(up) = self.up.take() {
            up.store(false, Ordering::Relaxed);
            drop(TcpStream::connect(self.at));
        }
    }
}

fn serve(stream: TcpStream, number: usize, all: &Mutex<Vec<Got>>, handler: &Handler) {
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    let mut stream = stream;
    while let Some(got) = read_request(&mut reader, number) {
        let whole = got.whole;
        all.lock().expect("kept").push(got.clone());
        if !whole || !handler(&got, &mut stream) {
            break;
        }
    }
    drop(stream.shutdown(Shutdown::Both));
}

fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    (reader.read_line(&mut line).ok()? > 0).then_some(line)
}

fn read_request(reader: &mut impl BufRead, connection: usize) -> Option<Got> {
    let mut got = Got { connection, ..Got::default() };
    loop {
        let line = line(reader)?;
        if line == "\r\n" {
            break;
        }
        got.head.push_str(&line);
    }
    got.head = got.head.replace('\r', "");
    let length = got.field("content-length").map(|length| length.parse().expect("a length"));
    if got.field("transfer-encoding").is_some() {
        got.whole = read_chunks(reader, &mut got).is_some();
    } else if let Some(length) = length {
        let mut body = reader.take(length);
        drop(body.read_to_end(&mut got.body));
        got.whole = got.body.len() as u64 == length;
    } else {
        got.whole = true;
    }
    Some(got)
}

fn read_chunks(reader: &mut impl BufRead, got: &mut Got) -> Option<()> {
    loop {
        let size = usize::from_str_radix(line(reader)?.trim_end(), 16).ok()?;
        if size == 0 {
            loop {
                match line(reader)?.as_str() {
                    "\r\n" => return Some(()),
                    trailer => got.trailers.push_str(trailer),
                }
            }
        }
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).ok()?;
        got.body.extend_from_slice(&chunk[..size]);
    }
}
