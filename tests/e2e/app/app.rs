//! Why: the end-to-end suite needs four services that drain, stop, fail and count as real ones do, in
//! an image of one file. This program plays all of them; std only, so that a bare `rustc` builds it.
//!
//! `app` serves HTTP on $PORT. Without $PORT it is the publish worker: it touches $HEARTBEAT each second,
//! and `app --self-check` tells whether that file is fresh.
//!
//! It can be drained in every way there is: by $DRAIN_FILE, by `POST /drain` and `/undrain`, by `app --drain` and
//! `--undrain` in the container, by SIGUSR1 and SIGUSR2, and by itself after SIGTERM. All but the file die with it.
//!
//! | env | meaning |
//! | --- | --- |
//! | PORT, SERVICE, LABEL, HANDOVER_RELEASE | where it listens, what /version says |
//! | DRAIN_FILE | while this file exists, /health answers 503 |
//! | SHUTDOWN | seconds that running requests get after SIGTERM (10) |
//! | START_AFTER | seconds before it listens (0) |
//! | FAIL_VERSION=1 | /version answers 500; a worker's self-check fails |
//! | WRONG_VERSION=x | /version says x |
//! | CRASH_AFTER=s | exits 3 after s seconds |
//! | IGNORE_TERM=1 | SIGTERM does nothing: only SIGKILL ends it |
//! | SERVE_AFTER_TERM=s | after SIGTERM it serves for s seconds more, while /health answers 503 |
//! | ONCE=1 | does nothing and ends well: a one-shot |

use std::env;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const TICK: Duration = Duration::from_millis(20);
const KEEP_ALIVE: Duration = Duration::from_secs(75);
const FRESH: Duration = Duration::from_secs(3);

static TOLD_TO_STOP: AtomicBool = AtomicBool::new(false);
static STOPPING: AtomicBool = AtomicBool::new(false);
static DRAINED: AtomicBool = AtomicBool::new(false);
/// What `app --drain` leaves for the service in the same container.
const DRAIN_MARK: &str = "/tmp/drained-by-command";
/// What `app --sick` leaves: /version answers 500 from then on, until another container comes.
const SICK_MARK: &str = "/tmp/sick";

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
}
extern "C" fn on_stop(_: i32) {
    TOLD_TO_STOP.store(true, SeqCst);
}
extern "C" fn on_drain(number: i32) {
    DRAINED.store(number == 10, SeqCst);
}
extern "C" fn ignore(_: i32) {}

fn main() {
    // PID 1 of a container has no default action for SIGTERM: without a handler it would be ignored.
    let handler = if flag("IGNORE_TERM") { ignore } else { on_stop };
    unsafe {
        signal(15, handler);
        signal(2, handler);
        signal(10, on_drain);
        signal(12, on_drain);
    }
    match env::args().nth(1).as_deref() {
        Some("--self-check") => exit(if self_check() { 0 } else { 1 }),
        Some("--sick") => exit(if std::fs::write(SICK_MARK, "").is_ok() { 0 } else { 1 }),
        Some("--well") => exit(if std::fs::remove_file(SICK_MARK).is_ok() { 0 } else { 1 }),
        Some("--drain") => exit(if std::fs::write(DRAIN_MARK, "").is_ok() { 0 } else { 1 }),
        Some("--undrain") => {
            let _ = std::fs::remove_file(DRAIN_MARK);
            exit(0);
        }
        _ if flag("ONCE") => return println!("done, once"),
        _ => {}
    }
    thread::spawn(|| {
        while !TOLD_TO_STOP.load(SeqCst) {
            thread::sleep(TICK);
        }
        if let Some(serve_on) = seconds("SERVE_AFTER_TERM") {
            DRAINED.store(true, SeqCst);
            thread::sleep(serve_on);
        }
        STOPPING.store(true, SeqCst);
    });
    if let Some(after) = seconds("CRASH_AFTER") {
        thread::spawn(move || {
            thread::sleep(after);
            eprintln!("crash, as asked");
            exit(3);
        });
    }
    wait(seconds("START_AFTER").unwrap_or_default());
    match text("PORT") {
        Some(port) => serve(&port),
        None => work(),
    }
    println!("stopped in order");
}

// === the publish worker ===

fn heartbeat() -> String {
    text("HEARTBEAT").unwrap_or_else(|| "/tmp/heartbeat".into())
}

fn work() {
    println!("publish worker, release {}", release());
    while !STOPPING.load(SeqCst) {
        if let Err(error) = std::fs::write(heartbeat(), release()) {
            eprintln!("heartbeat: {error}");
        }
        wait(Duration::from_secs(1));
    }
}

fn self_check() -> bool {
    let age = std::fs::metadata(heartbeat())
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    println!("release {}, heartbeat {age:?} old", release());
    !flag("FAIL_VERSION") && age.is_some_and(|age| age < FRESH)
}

// === the HTTP services ===

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    running: AtomicUsize,
}

/// One request that is being answered; the end of the last one lets the process end.
struct Running<'a>(&'a Counts);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

fn serve(port: &str) {
    let listener = TcpListener::bind(format!("0.0.0.0:{port}")).unwrap_or_else(|error| {
        eprintln!("port {port}: {error}");
        exit(1);
    });
    listener.set_nonblocking(true).expect("a listener can be polled");
    println!("{} listens on {port}, release {}", service(), release());
    let counts = Arc::new(Counts::default());
    while !STOPPING.load(SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                let counts = Arc::clone(&counts);
                thread::spawn(move || drop(converse(&stream, &counts)));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TICK / 10),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
    drop(listener);
    let end = Instant::now() + seconds("SHUTDOWN").unwrap_or(Duration::from_secs(10));
    // Two looks: a request may have been read just before the first.
    let mut quiet = 0;
    while Instant::now() < end && quiet < 2 {
        thread::sleep(TICK * 2);
        quiet = if counts.running.load(SeqCst) == 0 { quiet + 1 } else { 0 };
    }
}

fn converse(stream: &TcpStream, counts: &Counts) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        if !request_comes(stream, &reader)? {
            return Ok(());
        }
        counts.running.fetch_add(1, SeqCst);
        let running = Running(counts);
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let Some((path, keep)) = read_request(&mut reader)? else { return Ok(()) };
        let (status, body) = answer(&path, counts);
        let keep = keep && !STOPPING.load(SeqCst);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: {}\r\n\r\n",
            body.len(),
            if keep { "keep-alive" } else { "close" },
        );
        let mut out = stream;
        out.write_all((head + &body).as_bytes())?;
        drop(running);
        if !keep {
            return Ok(());
        }
    }
}

/// Waits for the next request's first byte; false: the connection is to be closed (peer gone, idle, stopping).
fn request_comes(stream: &TcpStream, reader: &BufReader<&TcpStream>) -> std::io::Result<bool> {
    let idle_since = Instant::now();
    stream.set_read_timeout(Some(TICK))?;
    while reader.buffer().is_empty() {
        match stream.peek(&mut [0]) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        if STOPPING.load(SeqCst) || idle_since.elapsed() > KEEP_ALIVE {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The path, and whether the client wants to go on; a body is read and forgotten.
fn read_request(reader: &mut BufReader<&TcpStream>) -> std::io::Result<Option<(String, bool)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or("/").to_string();
    let (mut keep, mut length) = (!line.contains("HTTP/1.0"), 0u64);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "connection" => keep = !value.trim().eq_ignore_ascii_case("close"),
            "content-length" => length = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    std::io::copy(&mut std::io::Read::take(reader, length), &mut std::io::sink())?;
    Ok(Some((path, keep)))
}

fn answer(target: &str, counts: &Counts) -> (&'static str, String) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path == "/health" {
        let draining = DRAINED.load(SeqCst)
            || Path::new(DRAIN_MARK).exists()
            || text("DRAIN_FILE").is_some_and(|file| Path::new(&file).exists());
        return if draining {
            ("503 Service Unavailable", r#"{"health": "draining"}"#.into())
        } else {
            ("200 OK", r#"{"health": "ok"}"#.into())
        };
    }
    if let "/drain" | "/undrain" = path {
        DRAINED.store(path == "/drain", SeqCst);
        return ("204 No Content", String::new());
    }
    let requests = counts.requests.fetch_add(1, SeqCst) + 1;
    match path {
        "/version" if flag("FAIL_VERSION") || Path::new(SICK_MARK).exists() => ("500 Internal Server Error", r#"{"error": "as asked"}"#.into()),
        "/version" => {
            let version = text("WRONG_VERSION").unwrap_or_else(release);
            let label = text("LABEL").unwrap_or_default();
            let body = format!(r#"{{"version": {version:?}, "service": {:?}, "label": {label:?}}}"#, service());
            ("200 OK", body)
        }
        "/stats" => ("200 OK", format!(r#"{{"requests": {requests}}}"#)),
        "/slow" => {
            let ms = query.strip_prefix("ms=").and_then(|ms| ms.parse().ok()).unwrap_or(1000);
            thread::sleep(Duration::from_millis(ms));
            ("200 OK", format!(r#"{{"slept_ms": {ms}}}"#))
        }
        _ => ("404 Not Found", r#"{"error": "no such path"}"#.into()),
    }
}

// === the environment ===

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn flag(name: &str) -> bool {
    text(name).is_some_and(|value| value == "1")
}

fn seconds(name: &str) -> Option<Duration> {
    text(name).and_then(|value| value.parse().ok()).map(Duration::from_secs_f64)
}

fn release() -> String {
    text("HANDOVER_RELEASE").unwrap_or_default()
}

fn service() -> String {
    text("SERVICE").unwrap_or_else(|| "publish-worker".into())
}

/// Sleeps, but not through a SIGTERM.
fn wait(duration: Duration) {
    let end = Instant::now() + duration;
    while Instant::now() < end && !STOPPING.load(SeqCst) {
        thread::sleep(TICK);
    }
}
