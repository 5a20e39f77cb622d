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
//!
//! `GET /anything` answers the path and how many requests came before, a body is answered with its length, `/stream` goes on
//! for ever, `/slow` takes two seconds, and an upgrade becomes an echo.

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
        thread::spawn(move || drop(serve(stream)));
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
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
    }
}
