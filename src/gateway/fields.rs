//! Which header fields go on to the other side, and what they say about the client.
//!
//! Pure. What a client says about where it comes from is passed on only where the sender is a proxy that was named as trusted.

use super::h1::Framing;
use super::h1::head::{RequestHead, names};
use crate::fleet::model::Network;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::{HeaderMap, Method};
use std::net::IpAddr;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What the gateway calls itself in `Via`.
const PSEUDONYM: &str = "handover-gateway";
/// A request that came through a gateway so often goes round in a circle.
const ROUNDS: usize = 10;

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// Who connected.
    pub peer: IpAddr,
    /// Who is behind it.
    pub client: IpAddr,
    /// Whether who connected may speak for others.
    pub trusted: bool,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

impl Origin {
    /// Reads the client's address: the last one in `X-Forwarded-For` that is no trusted proxy, and only through trusted ones.
    pub(super) fn of(peer: IpAddr, tls: bool, headers: &HeaderMap, proxies: &[Network]) -> Self {
        let peer = peer.to_canonical();
        let is_proxy = |address: IpAddr| proxies.iter().any(|network| network.holds(address));
        let trusted = is_proxy(peer);
        let mut client = peer;
        if trusted {
            let told: Vec<&str> = headers
                .get_all(FORWARDED_FOR)
                .iter()
                .filter_map(|v| v.to_str().ok())
                .flat_map(|v| v.split(','))
                .collect();
            for text in told.iter().rev() {
                // What is no address was not written by a proxy that can be believed: nothing before it counts.
                let Some(address) = address(text.trim()) else { break };
                client = address;
                if !is_proxy(address) {
                    break;
                }
            }
        }
        Self { peer, client, trusted, tls }
    }
}

/// An address as proxies write it: alone, with a port, in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(address, _)| address);
    let alone = || text.rsplit_once(':').and_then(|(address, _)| address.parse().ok());
    bare.unwrap_or(text).parse::<IpAddr>().ok().or_else(alone).map(|address| address.to_canonical())
}

/// What a request would turn its connection into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upgrade(pub HeaderValue);

/// Takes out of a request what is only between the client and us, and writes down where it comes from.
pub(super) fn for_backend(head: &mut RequestHead, origin: Origin) -> Option<Upgrade> {
    let upgrade = upgrade_of(head);
    let trailers = head
        .headers
        .get_all(TE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"));
    strip(&mut head.headers);
    if trailers {
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if head.headers.contains_key(EXPECT) && (!head.expects() || head.framing == Framing::None) {
        // HTTP/1.0 has no such thing, and nobody waits for a body that is not there.
        head.headers.remove(EXPECT);
    }
    tell_origin(head, origin);
    upgrade
}

/// Takes out of an answer, or of trailers, what is only between the backend and us.
pub(super) fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|b| *b == b','))
            .filter_map(|part| HeaderName::from_bytes(part.trim_ascii()).ok())
            // These say where the message ends; whoever names them would have it end elsewhere.
            .filter(|name| name != CONTENT_LENGTH && name != TRANSFER_ENCODING)
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in
        [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TE, UPGRADE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, HTTP2_SETTINGS]
    {
        headers.remove(name);
    }
}

/// Takes out of trailers what may not stand there: framing, routing, everything that is read before the body (RFC 9110 section 6.5.1).
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    strip(trailers);
    let banned = [
        "content-length",
        "transfer-encoding",
        "host",
        "trailer",
        "content-encoding",
        "content-type",
        "content-range",
        "authorization",
        "cookie",
        "set-cookie",
        "cache-control",
        "expect",
        "max-forwards",
        "pragma",
        "range",
        "via",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip",
    ];
    for name in banned {
        trailers.remove(name);
    }
}

fn upgrade_of(head: &RequestHead) -> Option<Upgrade> {
    if !names(&head.headers, "upgrade") || head.framing != Framing::None {
        return None;
    }
    let mut wanted = head.headers.get_all(UPGRADE).iter();
    let (Some(protocol), None) = (wanted.next(), wanted.next()) else { return None };
    // HTTP/2 by upgrade would carry requests past every rule here.
    let carries_requests =
        protocol.as_bytes().to_ascii_lowercase().windows(3).any(|part| part == b"h2c" || part == b"tls")
            || protocol.as_bytes().to_ascii_lowercase().starts_with(b"http");
    (!carries_requests).then(|| Upgrade(protocol.clone()))
}

fn tell_origin(head: &mut RequestHead, origin: Origin) {
    let headers = &mut head.headers;
    let told = if origin.trusted { joined(headers, &FORWARDED_FOR) } else { None };
    if !origin.trusted {
        forget_origin(headers);
    }
    let peer = origin.peer.to_string();
    let chain = told.map_or_else(|| peer.clone(), |told| format!("{told}, {peer}"));
    if let Ok(value) = HeaderValue::try_from(chain) {
        headers.insert(FORWARDED_FOR, value);
    }
    if let Ok(value) = HeaderValue::try_from(origin.client.to_string()) {
        headers.insert(REAL_IP, value);
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(if origin.tls { "https" } else { "http" }));
    }
    if !headers.contains_key(FORWARDED_HOST)
        && let Ok(value) = HeaderValue::try_from(head.authority.as_str())
    {
        headers.insert(FORWARDED_HOST, value);
    }
    headers.append(VIA, HeaderValue::from_static("1.1 handover-gateway"));
}

/// Removes whatever speaks of a client's origin, also in the letters that CGI and WSGI take for the same name.
fn forget_origin(headers: &mut HeaderMap) {
    let speaks = |name: &HeaderName| {
        let name = name.as_str();
        let alike = |known: &str| {
            name.len() == known.len()
                && name.bytes().zip(known.bytes()).all(|(a, b)| a == b || (a == b'_' && b == b'-'))
        };
        name.starts_with("x-forwarded-")
            || name.starts_with('x') && ["x-real-ip", "x-client-ip"].iter().any(|known| alike(known))
            || name.contains('_') && name.replace('_', "-").starts_with("x-forwarded-")
            || name == FORWARDED.as_str()
    };
    let found: Vec<HeaderName> = headers.keys().filter(|name| speaks(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let parts: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    if parts.is_empty() { None } else { Some(parts.join(", ")) }
}

/// Whether a request came through a gateway so often that it goes round in a circle.
pub(super) fn goes_round(headers: &HeaderMap) -> bool {
    let stations =
        headers.get_all(VIA).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    stations.filter(|station| station.contains(PSEUDONYM)).count() >= ROUNDS
}

/// HTTP/2 clients may send cookies in crumbs; HTTP/1.1 has one field (RFC 9113 section 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(value) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(COOKIE, value);
    }
}

/// Whether sending a request twice is the same as sending it once (RFC 9110 section 9.2.2).
pub(super) fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE].contains(method)
}

#[cfg(test)]
mod tests {
    use super::super::h1::head::read_request;
    use super::*;

    fn head(text: &str) -> RequestHead {
        read_request(&text.replace('\n', "\r\n").into_bytes().into()).expect("a request")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_client_is_whom_the_last_trusted_proxy_saw() {
        let proxies =
            [Network::parse("10.0.0.0/8").expect("a network"), Network::parse("fd00::/8").expect("a network")];
        let client = |peer: &str, chain: &str| {
            let head = head(&format!("GET / HTTP/1.1\nhost: a\n{chain}\n"));
            Origin::of(ip(peer), false, &head.headers, &proxies).client
        };
        assert_eq!(client("203.0.113.9", "x-forwarded-for: 6.6.6.6\n"), ip("203.0.113.9"));
        assert_eq!(client("10.0.0.1", "x-forwarded-for: 6.6.6.6, 203.0.113.9\n"), ip("203.0.113.9"));
        assert_eq!(
            client("10.0.0.1", "x-forwarded-for: 6.6.6.6\nx-forwarded-for: 203.0.113.9, 10.0.0.2\n"),
            ip("203.0.113.9")
        );
        assert_eq!(client("::ffff:10.0.0.1", "x-forwarded-for: 203.0.113.9:4711\n"), ip("203.0.113.9"));
        assert_eq!(client("fd00::1", "x-forwarded-for: [2001:db8::1]:4711\n"), ip("2001:db8::1"));
        assert_eq!(client("10.0.0.1", "x-forwarded-for: 203.0.113.9, unknown\n"), ip("10.0.0.1"));
        assert_eq!(client("10.0.0.1", ""), ip("10.0.0.1"));
    }

    #[test]
    fn an_upgrade_is_asked_for_in_both_fields_and_never_to_http() {
        let upgrade = |text: &str| {
            for_backend(
                &mut head(text),
                Origin { peer: ip("10.0.0.1"), client: ip("10.0.0.1"), trusted: false, tls: false },
            )
        };
        let wanted = Some(Upgrade(HeaderValue::from_static("websocket")));
        assert_eq!(upgrade("GET / HTTP/1.1\nhost: a\nconnection: Upgrade\nupgrade: websocket\n\n"), wanted);
        for text in [
            "GET / HTTP/1.1\nhost: a\nupgrade: websocket\n\n",
            "GET / HTTP/1.1\nhost: a\nconnection: upgrade\nupgrade: h2c\n\n",
            "GET / HTTP/1.1\nhost: a\nconnection: upgrade\nupgrade: websocket, H2C\n\n",
            "GET / HTTP/1.1\nhost: a\nconnection: upgrade\nupgrade: HTTP/2.0\n\n",
            "GET / HTTP/1.1\nhost: a\nconnection: upgrade\nupgrade: TLS/1.0\n\n",
            "GET / HTTP/1.1\nhost: a\nconnection: upgrade\nupgrade: websocket\nupgrade: x\n\n",
            "POST / HTTP/1.1\nhost: a\nconnection: upgrade\nupgrade: websocket\ncontent-length: 1\n\n",
        ] {
            assert_eq!(upgrade(text), None, "{text}");
        }
    }

    #[test]
    fn nobody_can_have_a_field_removed_that_says_where_the_message_ends() {
        let mut head = head("POST / HTTP/1.1\nhost: a\nconnection: content-length, x-a\ncontent-length: 1\nx-a: 1\n\n");
        strip(&mut head.headers);
        assert!(head.headers.contains_key(CONTENT_LENGTH));
        assert!(!head.headers.contains_key("x-a") && !head.headers.contains_key(CONNECTION));
    }
}
