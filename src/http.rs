//! The smallest HTTP client: one request over a fresh connection, no redirects followed, nothing retried.
//!
//! A floor that knows nothing else: probes ask with it, and whoever asks again decides that himself.

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper::{HeaderMap, Request, Uri};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// More of a body than this is not read: answers of probes are small.
const BODY_LIMIT: usize = 64 * 1024;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as far as it is read.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The URL is not one that can be asked.
    #[error("`{0}` is no http:// URL")]
    Url(String),
    /// Nobody listens, or the way there is closed.
    #[error("{0} cannot be connected to: {1}")]
    Connect(String, String),
    /// The connection broke.
    #[error("{0} broke off: {1}")]
    Broken(String, String),
    /// Nothing came in time.
    #[error("{0} gave no answer within {1:?}")]
    Late(String, Duration),
}

/// Asks a URL once.
///
/// # Errors
/// When there is no whole answer within `timeout`.
pub async fn get(url: &str, host: Option<&str>, method: &str, timeout: Duration) -> Result<Answer, HttpError> {
    match tokio::time::timeout(timeout, ask(url, host, method)).await {
        Ok(answer) => answer,
        Err(_) => Err(HttpError::Late(url.to_owned(), timeout)),
    }
}

async fn ask(url: &str, host: Option<&str>, method: &str) -> Result<Answer, HttpError> {
    let no_url = || HttpError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| no_url())?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(no_url)?;
    let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, host.unwrap_or(authority.as_str()))
        .header(USER_AGENT, "handover")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| no_url())?;
    let stream = TcpStream::connect(&address).await.map_err(|e| HttpError::Connect(url.to_owned(), e.to_string()))?;
    let broken = |e: hyper::Error| HttpError::Broken(url.to_owned(), e.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let running = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: read(body).await? })
    };
    let answer = answer.await.map_err(broken);
    running.abort();
    answer
}

async fn read<B: Body<Data = Bytes, Error = hyper::Error> + Unpin>(mut body: B) -> Result<Vec<u8>, hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            bytes.extend_from_slice(data);
        }
        if bytes.len() >= BODY_LIMIT {
            bytes.truncate(BODY_LIMIT);
            break;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn served(answer: &'static [u8]) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/path?q=1", listener.local_addr().expect("an address"));
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut bytes = vec![0; 4096];
            let n = stream.read(&mut bytes).await.expect("a request");
            stream.write_all(answer).await.expect("an answer");
            String::from_utf8_lossy(&bytes[..n]).into_owned()
        });
        (url, asked)
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_is_not_followed() {
        let (url, asked) =
            served(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\nhi").await;
        let answer = get(&url, Some("app.example"), "GET", Duration::from_secs(5)).await.expect("an answer");
        assert_eq!((answer.status, answer.body.as_slice()), (302, b"hi".as_slice()));
        let asked = asked.await.expect("served");
        assert!(asked.starts_with("GET /path?q=1 HTTP/1.1\r\nhost: app.example\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_answer() {
        let (url, _) = served(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi").await;
        let error = get(&url, None, "GET", Duration::from_secs(5)).await.expect_err("cut");
        assert!(matches!(error, HttpError::Broken(..)), "{error:?}");
    }

    #[tokio::test]
    async fn nobody_listens_and_https_are_told_apart() {
        let refused = get("http://127.0.0.1:1/", None, "GET", Duration::from_secs(5)).await.expect_err("refused");
        assert!(matches!(refused, HttpError::Connect(..)), "{refused:?}");
        let https = get("https://127.0.0.1/", None, "GET", Duration::from_secs(5)).await.expect_err("https");
        assert!(matches!(https, HttpError::Url(_)), "{https:?}");
    }
}
