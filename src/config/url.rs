//! URLs as far as deploy.toml needs them: what is asked, on which port, under which path.
//!
//! It may know no key. Two URLs that reach the same endpoint must compare equal however they are written: a check of the
//! health path that was overlooked because of a slash would fail every deploy while the server is drained.

use super::keys::port_of;
use std::net::{IpAddr, Ipv6Addr};

/// A URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Without brackets, in small letters.
    pub host: String,
    /// The one given, or the scheme's own.
    pub port: u16,
    /// As written, with its query; `/` where none is given.
    pub path: String,
}

impl Url {
    /// Takes a URL apart, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest, port) = if let Some(rest) = text.strip_prefix("http://") {
            ("http", rest, 80)
        } else if let Some(rest) = text.strip_prefix("https://") {
            ("https", rest, 443)
        } else {
            return Err("it does not begin with http:// or https://".to_owned());
        };
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("it has a space in it".to_owned());
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err("it has a user or password in it, which would be printed".to_owned());
        }
        let (host, port) = split_authority(authority, port)?;
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { scheme, host, port, path })
    }

    /// Whether the host is the machine itself.
    pub fn on_loopback(&self) -> bool {
        is_loopback(&self.host)
    }

    /// Whether the path is the same endpoint as `path`: query, empty parts and a slash at the end do not count.
    pub fn same_path(&self, path: &str) -> bool {
        plain_path(&self.path) == plain_path(path)
    }
}

fn split_authority(authority: &str, default: u16) -> Result<(String, u16), String> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("a `[` is never closed")?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err("what stands in brackets is no IPv6 address".to_owned());
        }
        let port = if after.is_empty() { None } else { Some(after.strip_prefix(':').unwrap_or("")) };
        (host, port)
    } else {
        authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
    };
    if host.is_empty() {
        return Err("it has no host".to_owned());
    }
    let port = match port {
        None => default,
        Some(text) => port_of(text).ok_or_else(|| format!("`{text}` is no port"))?,
    };
    Ok((host.to_lowercase(), port))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    host.parse::<IpAddr>().is_ok_and(|address| {
        // An unspecified address reaches this machine too when it is connected to.
        let address = address.to_canonical();
        address.is_loopback() || address.is_unspecified()
    })
}

fn plain_path(path: &str) -> Vec<String> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    for part in path.split('/').map(decoded) {
        match part.as_str() {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts
}

/// `%68ealth` is `health`; what is no code stays as it is.
fn decoded(part: &str) -> String {
    let mut out = Vec::new();
    let bytes = part.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = part.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if bytes[at] == b'%'
            && let Some(code) = code
        {
            out.push(code);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_port_has_its_schemes_own() {
        let port = |text| Url::parse(text).map(|url| url.port);
        assert_eq!(port("http://a/x"), Ok(80));
        assert_eq!(port("https://a"), Ok(443));
        assert_eq!(port("http://[::1]:8080/x"), Ok(8080));
    }

    #[test]
    fn what_is_no_url_is_refused_with_the_reason() {
        for (text, part) in [
            ("ftp://a", "http://"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http://a:0/", "no port"),
            ("http://a:99999/", "no port"),
            ("http://user:word@a/", "password"),
            ("http://[zz]/", "IPv6"),
            ("http://a b/", "space"),
        ] {
            let fault = Url::parse(text).expect_err(text);
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }

    #[test]
    fn one_endpoint_is_the_same_however_it_is_written() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        for path in ["/health", "/health/", "//health", "/health?full=1", "/./health", "/x/../health", "/%68ealth"] {
            assert!(url(&format!("http://localhost:8080{path}")).same_path("/health"), "{path}");
        }
        assert!(!url("http://localhost/healthz").same_path("/health"));
        assert!(url("http://localhost?x=1").same_path("/"));
    }

    #[test]
    fn every_name_of_the_machine_itself_is_loopback() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.8.0.1", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"] {
            assert!(Url::parse(&format!("http://{host}/")).expect(host).on_loopback(), "{host}");
        }
        assert!(!Url::parse("http://10.0.0.1/").expect("url").on_loopback());
    }
}
