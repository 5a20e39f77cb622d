//! Encrypted connections: whom to trust, and which HTTP to speak over them.

use rustls_native_certs::load_native_certs;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{AlertDescription, ClientConfig, Error, RootCertStore};

/// How HTTP/2 is called in the handshake.
const H2: &[u8] = b"h2";

/// Encrypts connections to one host.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    http2: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).field("http2", &self.http2).finish_non_exhaustive()
    }
}

/// Why there is no encrypted connection.
#[derive(Debug)]
pub(super) enum NoTls {
    /// The certificate does not verify.
    Untrusted(String),
    /// The server does not speak HTTP/2.
    NoHttp2(String),
    /// Anything else.
    Broken(String),
}

impl Tls {
    /// Trusts the certificates of `ca` only, or the machine's own root certificates.
    pub(super) fn new(host: &str, ca: Option<&[u8]>, http2: bool) -> io::Result<Self> {
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(ca.map_or_else(machine_roots, roots_of)?)
            .with_no_client_auth();
        if http2 {
            config.alpn_protocols = vec![H2.to_vec()];
        }
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name, http2 })
    }

    pub(super) async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, NoTls> {
        let stream = self.connector.connect(self.name.clone(), stream).await.map_err(|error| why(&error))?;
        if self.http2 && stream.get_ref().1.alpn_protocol() != Some(H2) {
            return Err(NoTls::NoHttp2("it chose none of the protocols that were offered, which was h2".to_owned()));
        }
        Ok(stream)
    }
}

fn why(error: &io::Error) -> NoTls {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(_)) => NoTls::Untrusted(error.to_string()),
        Some(Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            NoTls::NoHttp2(error.to_string())
        }
        _ => NoTls::Broken(error.to_string()),
    }
}

/// Whether a PEM file can be trusted: it holds certificates, and nothing that only looks like one.
///
/// # Errors
/// When it does not.
pub fn check_ca(pem: &[u8]) -> io::Result<()> {
    roots_of(pem).map(drop)
}

fn roots_of(pem: &[u8]) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::other("it holds no certificate (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(roots)
}

fn machine_roots() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return Err(io::Error::other(format!("the machine's root certificates cannot be read: {why}")));
    }
    Ok(roots)
}
