//! Certificates: what is shown to clients by the name they ask for, and whom a backend must be.

use crate::fleet::model::{CertificateFiles, ExternalMetrics, HostSpec};
use std::sync::Arc;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The certificates in the order of the file.
#[derive(Debug)]
struct Shown(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name.to_owned()).ok());
        let valid = |key: &&Arc<CertifiedKey>| {
            let Some(name) = &name else { return false };
            let parsed = key.cert.first().and_then(|cert| ParsedCertificate::try_from(cert).ok());
            parsed.is_some_and(|cert| verify_server_name(&cert, name).is_ok())
        };
        self.0.iter().find(valid).or_else(|| self.0.first()).cloned()
    }
}

/// What clients are shown.
pub(super) fn server(files: &[CertificateFiles]) -> Result<Arc<ServerConfig>, Vec<String>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut wrong = Vec::new();
    let mut shown = Vec::new();
    for file in files {
        match key_of(file, &provider) {
            Ok(key) => shown.push(Arc::new(key)),
            Err(why) => wrong.push(format!("gateway.certificate: {why}")),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| vec![error.to_string()])?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(Shown(shown)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What the API server of a cluster is shown; it must show a certificate of its front proxy's authority, and nobody without one is heard.
pub(super) fn external(spec: &ExternalMetrics) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&spec.client_ca)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", spec.client_ca))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| format!("{}: {error}", spec.client_ca))?;
    let key = key_of(&spec.certificate, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let shown = Arc::new(Shown(vec![Arc::new(key)]));
    let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(shown);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn key_of(file: &CertificateFiles, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = certificates(&file.cert)?;
    let read = std::fs::read(&file.key).map_err(|error| format!("{}: {error}", file.key))?;
    let key = PrivateKeyDer::from_pem_slice(&read).map_err(|error| format!("{}: {error}", file.key))?;
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| format!("{}: {error}", file.cert))?;
    key.keys_match().map_err(|_| format!("{} is not the key of {}", file.key, file.cert))?;
    Ok(key)
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read).collect();
    match found {
        Ok(found) if found.is_empty() => Err(format!("{path}: it holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{path}: {error}")),
    }
}

/// Whom a backend must be.
pub(super) fn client(host: &HostSpec) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match &host.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("ca: {path}: {error}"))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if roots.is_empty() {
        return Err("the machine has no root certificates: name the backend's with `ca`".to_owned());
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![if host.backend.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Arc::new(config))
}
