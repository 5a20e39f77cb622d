//! What is asked: a URL taken apart, or why it cannot be asked.

use hyper::Uri;
use std::io;

/// A URL that requests go to.
#[derive(Debug, Clone)]
pub struct Site {
    /// The host, without brackets.
    pub host: String,
    /// The port, the scheme's own where none is named.
    pub port: u16,
    /// What stands in the `Host` header.
    pub authority: String,
    /// The path with its query.
    pub path: String,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

impl Site {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// When it is none that can be asked.
    pub fn parse(url: &str) -> io::Result<Self> {
        // Neither a password nor a query string is repeated: whatever reads the output must not read them.
        let end = url.find(['@', '?', '#']).unwrap_or(url.len());
        let shown = if end < url.len() { "the URL".to_owned() } else { format!("`{url}`") };
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{shown} cannot be asked: {why}"));
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it does not begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("it names a user; give credentials as a header"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let named = authority.as_str().strip_prefix(authority.host()).is_some_and(|rest| rest.len() > 1);
        let port = match authority.port_u16() {
            Some(0) => return Err(wrong("nobody listens on port 0")),
            Some(port) => port,
            None if named => return Err(wrong("its port is no number up to 65535")),
            None if tls => 443,
            None => 80,
        };
        let path = uri.path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
        Ok(Self { host, port, authority: authority.to_string(), path, tls })
    }

    /// The path without its query.
    pub(super) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let rows = [
            ("http://shop.example", "shop.example", 80, "shop.example", "/", false),
            ("https://shop.example/v?q=1#part", "shop.example", 443, "shop.example", "/v?q=1", true),
            ("http://[::1]:8080/x", "::1", 8080, "[::1]:8080", "/x", false),
            ("https://[2001:db8::1]/", "2001:db8::1", 443, "[2001:db8::1]", "/", true),
        ];
        for (url, host, port, authority, path, tls) in rows {
            let site = Site::parse(url).expect(url);
            assert_eq!(
                (site.host.as_str(), site.port, site.authority.as_str(), site.path.as_str(), site.tls),
                (host, port, authority, path, tls),
                "{url}"
            );
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_the_reason() {
        let rows = [
            ("ftp://x/", "begin with http"),
            ("nothing", "begin with http"),
            ("http:///x", "cannot be asked"),
            ("http://x:99999/", "cannot be asked"),
            ("http://x:0/", "port 0"),
            ("http://x:port/", "cannot be asked"),
            ("http://me:secret@x/", "names a user"),
            ("me:secret@x", "cannot be asked"),
            ("ftp://x/?token=secret", "begin with http"),
            ("http://x:99999/?token=secret", "cannot be asked"),
            ("", "cannot be asked"),
        ];
        for (url, why) in rows {
            let error = Site::parse(url).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
