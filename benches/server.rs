//! What `benches/measure.sh` measures against: answers `ok` at once, HTTP/1.1 on the first port that it prints, HTTP/2 on
//! the second.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::io::Write;
use tokio::net::TcpListener;

async fn answer<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let (one, two) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} {}", one.local_addr()?, two.local_addr()?)?;
    out.flush()?;
    loop {
        tokio::select! {
            Ok((stream, _)) = one.accept() => {
                stream.set_nodelay(true)?;
                drop(tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer))));
            }
            Ok((stream, _)) = two.accept() => {
                stream.set_nodelay(true)?;
                let http = http2::Builder::new(TokioExecutor::new());
                drop(tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(answer))));
            }
        }
    }
}
