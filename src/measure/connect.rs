//! Connections of the prober: plain or TLS, one request at a time, and never a request twice.
//!
//! hyper-util's pooled client is not used: it repeats by itself what a dead connection did not start, and what is to be
//! measured would not be seen.

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls_native_certs::load_native_certs;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

type Sender = SendRequest<Empty<Bytes>>;

/// A URL that requests go to.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) host: String,
    pub(super) port: u16,
    /// What stands in the `Host` header.
    pub(super) authority: String,
    pub(super) path: String,
    pub(super) tls: bool,
}

impl Site {
    pub(super) fn parse(url: &str) -> io::Result<Self> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("`{url}` cannot be asked: {why}"));
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it does not begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
        Ok(Self { host, port, authority: authority.to_string(), path, tls })
    }
}

/// Opens connections and keeps those that may be used again.
#[derive(Debug)]
pub(super) struct Connections {
    site: Site,
    tls: Option<(TlsConnectorDebug, ServerName<'static>)>,
    kept: Mutex<HashMap<SocketAddr, Vec<Sender>>>,
}

/// `TlsConnector` does not say how it is made; neither do we.
pub(super) struct TlsConnectorDebug(TlsConnector);

impl std::fmt::Debug for TlsConnectorDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsConnector")
    }
}

/// An answer whose body is still to come, and the connection that it comes on.
pub(super) struct Exchange {
    pub(super) response: Response<Incoming>,
    pub(super) sender: Sender,
}

impl Connections {
    pub(super) fn new(site: Site) -> io::Result<Self> {
        let tls = if site.tls {
            let name = ServerName::try_from(site.host.clone()).map_err(io::Error::other)?;
            Some((TlsConnectorDebug(connector()?), name))
        } else {
            None
        };
        Ok(Self { site, tls, kept: Mutex::default() })
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, Vec<Sender>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept connection that is open and free.
    fn take(&self, address: SocketAddr) -> Option<Sender> {
        let mut kept = self.kept();
        let own = kept.get_mut(&address)?;
        own.retain(|sender| !sender.is_closed());
        let at = own.iter().rposition(SendRequest::is_ready)?;
        Some(own.swap_remove(at))
    }

    /// Keeps a connection whose answer was read to the end.
    pub(super) fn keep(&self, address: SocketAddr, sender: Sender) {
        if !sender.is_closed() {
            self.kept().entry(address).or_default().push(sender);
        }
    }

    async fn open(&self, address: SocketAddr) -> Result<Sender, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| format!("no connection: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        match &self.tls {
            None => drive(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                let stream =
                    connector.0.connect(name.clone(), stream).await.map_err(|error| format!("no TLS: {error}"))?;
                drive(TokioIo::new(stream)).await
            }
        }
    }

    /// Sends one request. A kept connection that had ended before a byte was written is opened again; one that ends
    /// afterwards counts.
    pub(super) async fn send(
        &self,
        address: SocketAddr,
        request: Request<Empty<Bytes>>,
        reuse: bool,
    ) -> Result<Exchange, String> {
        let mut request = request;
        while let Some(mut sender) = reuse.then(|| self.take(address)).flatten() {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(Exchange { response, sender }),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(words(&error.into_error())),
                },
            }
        }
        let mut sender = self.open(address).await?;
        let response = sender.send_request(request).await.map_err(|error| words(&error))?;
        Ok(Exchange { response, sender })
    }

    pub(super) fn site(&self) -> &Site {
        &self.site
    }
}

async fn drive<T>(io: TokioIo<T>) -> Result<Sender, String>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(io).await.map_err(|error| words(&error))?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

pub(super) fn words(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn connector() -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let found = load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return Err(io::Error::other(format!("the machine's root certificates cannot be read: {why}")));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
