//! Why: a backend that sleeps is stopped and started for real, so it must be a real container; no image can be pulled, so this
//! is one of a single static file. std only, so that a bare `rustc` builds it.
//!
//! | env | meaning |
//! | --- | --- |
//! | PORT | where it listens |
//! | START_AFTER | milliseconds before it listens |
//! | MEMORY | MiB that it keeps busy |
//! | CRASH | ends with 3 instead of listening |
//! | STOP_AFTER | milliseconds that it goes on accepting and answering after SIGTERM |
//! | ONCE | does nothing and ends with this code |
//! | GRPC | speaks HTTP/2 and gives every gRPC message back |
//!
//! `GET /anything` answers the path and how many requests came before, a body is answered with its length, `/stream` goes on
//! for ever, `/slow` takes two seconds, `/missing` is not there, and an upgrade becomes an echo.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use std::{env, process, thread};

static STOP: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
}
extern "C" fn on_stop(_: i32) {
    STOP.store(true, SeqCst);
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

fn main() {
    // PID 1 has no default action for SIGTERM.
    unsafe { signal(15, on_stop) };
    println!("begins");
    if let Some(code) = number("ONCE") {
        process::exit(i32::try_from(code).unwrap_or(1));
    }
    thread::spawn(|| {
        while !STOP.load(SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        println!("told to stop");
        thread::sleep(Duration::from_millis(number("STOP_AFTER").unwrap_or(0)));
        process::exit(0);
    });
    let memory = vec![1_u8; usize::try_from(number("MEMORY").unwrap_or(0)).unwrap_or(0) * 1024 * 1024];
    thread::sleep(Duration::from_millis(number("START_AFTER").unwrap_or(0)));
    if env::var("CRASH").is_ok() {
        process::exit(3);
    }
    let port = number("PORT").expect("PORT");
    let listener = TcpListener::bind(("0.0.0.0", u16::try_from(port).expect("a port"))).expect("it listens");
    println!("listens with {} bytes", memory.len());
    for stream in listener.incoming().flatten() {
        thread::spawn(move || drop(if env::var("GRPC").is_ok() { grpc(stream) } else { serve(stream) }));
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (mut length, mut chunked, mut upgrade) = (0_u64, false, false);
        loop {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            let field = field.trim_end().to_ascii_lowercase();
            match field.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap_or(0),
                Some(("transfer-encoding", _)) => chunked = true,
                Some(("upgrade", _)) => upgrade = true,
                _ => {}
            }
            if field.is_empty() {
                break;
            }
        }
        if STOP.load(SeqCst) {
            println!("a request after the stop began");
        }
        let before = COUNT.fetch_add(1, SeqCst);
        let mut body = Vec::new();
        if chunked {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size)?;
                let size = u64::from_str_radix(size.trim_end(), 16).unwrap_or(0);
                reader.by_ref().take(size).read_to_end(&mut body)?;
                reader.read_line(&mut String::new())?;
                if size == 0 {
                    break;
                }
            }
        } else {
            reader.by_ref().take(length).read_to_end(&mut body)?;
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        if upgrade {
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")?;
            return std::io::copy(&mut reader, &mut stream).map(drop);
        }
        if path == "/stream" {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhey\n\r\n")?;
            loop {
                thread::sleep(Duration::from_secs(60));
            }
        }
        if path == "/slow" {
            thread::sleep(Duration::from_secs(2));
        }
        let text = format!("{path} {before} {}", body.len());
        let status = if path == "/missing" { "404 Not Found" } else { "200 OK" };
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
    }
}

/// A frame of HTTP/2 (RFC 9113, 4.1).
fn frame(stream: &mut TcpStream, kind: u8, flags: u8, id: u32, payload: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut head = length[1..].to_vec();
    head.extend([kind, flags]);
    head.extend(id.to_be_bytes());
    stream.write_all(&[head.as_slice(), payload].concat())
}

/// A field that is put into no table (RFC 7541, 6.2.2), both texts shorter than 127 bytes.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// As much of HTTP/2 as one unary call needs: whatever is asked, its message comes back.
fn grpc(mut stream: TcpStream) -> std::io::Result<()> {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    let mut reader = BufReader::new(stream.try_clone()?);
    reader.read_exact(&mut [0; 24])?;
    frame(&mut stream, SETTINGS, 0, 0, &[])?;
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head)?;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        reader.read_exact(&mut payload)?;
        match head[3] {
            SETTINGS if head[4] & 1 == 0 => frame(&mut stream, SETTINGS, 1, 0, &[])?,
            PING if head[4] & 1 == 0 => frame(&mut stream, PING, 1, 0, &payload)?,
            DATA => bodies.entry(id).or_default().extend(payload),
            _ => {}
        }
        if matches!(head[3], DATA | HEADERS) && head[4] & 1 == 1 {
            COUNT.fetch_add(1, SeqCst);
            // 0x88 is `:status: 200`; 4 ends the fields, 1 the stream.
            let fields = [vec![0x88], field("content-type", "application/grpc")].concat();
            frame(&mut stream, HEADERS, 4, id, &fields)?;
            frame(&mut stream, DATA, 0, id, &bodies.remove(&id).unwrap_or_default())?;
            frame(&mut stream, HEADERS, 5, id, &field("grpc-status", "0"))?;
        }
    }
}
