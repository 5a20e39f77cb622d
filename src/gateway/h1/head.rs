//! The heads of requests and answers.

use super::{Bad, Framing};
use bytes::Bytes;
use httparse::Status;
use hyper::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};

/// More header fields than this are too many.
const FIELDS: usize = 128;

/// A request's head.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct RequestHead {
    /// What is asked for.
    pub method: Method,
    /// Path and query as they were sent; `*` for the server itself.
    pub target: PathAndQuery,
    /// The host as it was sent, from the target where that names one.
    pub authority: String,
    /// Which version the client speaks.
    pub version: Version,
    /// The fields.
    pub headers: HeaderMap,
    /// How its body ends.
    pub framing: Framing,
    /// Whether the client would send another request afterwards.
    pub keep: bool,
}

/// An answer's head.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct ResponseHead {
    /// Its status.
    pub status: StatusCode,
    /// The fields.
    pub headers: HeaderMap,
    /// How its body ends.
    pub framing: Framing,
    /// Whether the connection may be used again.
    pub keep: bool,
}

/// Where a head ends, if it does: after its first empty line. Looks from `from` on, where the last look ended.
pub(in crate::gateway) fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let start = from.saturating_sub(3);
    memchr::memchr_iter(b'\n', bytes.get(start..)?).map(|at| start + at).find_map(|at| match bytes.get(at + 1..) {
        Some([b'\n', ..]) => Some(at + 2),
        Some([b'\r', b'\n', ..]) => Some(at + 3),
        _ => None,
    })
}

/// Whether bytes can be the beginning of a request at all: an empty line before it, or a method.
pub(in crate::gateway) fn may_begin(bytes: &[u8]) -> bool {
    let line = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n')).map_or(&[][..], |at| &bytes[at..]);
    let end = line.iter().position(|b| *b == b' ').unwrap_or(line.len());
    end <= 64 && line[..end].iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

/// Reads a whole head, its empty line included.
pub(in crate::gateway) fn read_request(bytes: &Bytes) -> Result<RequestHead, Bad> {
    plain_lines(bytes)?;
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(bytes) {
        Ok(Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(Bad::Malformed),
        Err(httparse::Error::Version) => return Err(version_fault(bytes)),
        Err(httparse::Error::TooManyHeaders) => return Err(Bad::TooLong),
        Err(_) => return Err(Bad::Malformed),
    }
    let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes()).map_err(|_| Bad::Malformed)?;
    if method == Method::CONNECT || method == Method::TRACE {
        return Err(Bad::Method);
    }
    let path = parsed.path.unwrap_or_default();
    let headers = fields_of(bytes, parsed.headers)?;
    let (target, named) = target_of(&method, path)?;
    let authority = authority(&headers, named, version)?;
    let framing = request_framing(&headers, version)?;
    let keep = keeps(&headers, version);
    Ok(RequestHead { method, target, authority, version, headers, framing, keep })
}

/// Reads a whole head of an answer to `method`.
pub(in crate::gateway) fn read_response(bytes: &Bytes, method: &Method) -> Result<ResponseHead, Bad> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    match parsed.parse(bytes) {
        Ok(Status::Complete(length)) if length == bytes.len() => {}
        _ => return Err(Bad::Malformed),
    }
    let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let status = StatusCode::from_u16(parsed.code.unwrap_or(0)).map_err(|_| Bad::Malformed)?;
    let headers = fields_of(bytes, parsed.headers)?;
    let framing = response_framing(&headers, method, status)?;
    let keep = keeps(&headers, version) && framing != Framing::Close;
    Ok(ResponseHead { status, headers, framing, keep })
}

/// Every line ends with CR LF, and nothing else ends one (RFC 9112 section 2.2 lets recipients be laxer; peers differ in it).
fn plain_lines(bytes: &[u8]) -> Result<(), Bad> {
    let bare = memchr::memchr2_iter(b'\r', b'\n', bytes).any(|at| match bytes[at] {
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => at == 0 || bytes[at - 1] != b'\r',
    });
    if bare { Err(Bad::Malformed) } else { Ok(()) }
}

/// HTTP/0.9 and nonsense are malformed; a version that could be one is not understood.
fn version_fault(bytes: &[u8]) -> Bad {
    let line = bytes.split(|b| *b == b'\r').find(|line| !matches!(line, [] | [b'\n'])).unwrap_or_default();
    let parts: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let [_, _, version] = parts[..] else { return Bad::Malformed };
    match version.strip_prefix(b"HTTP/") {
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => Bad::Version,
        _ => Bad::Malformed,
    }
}

fn fields_of(bytes: &Bytes, parsed: &[httparse::Header<'_>]) -> Result<HeaderMap, Bad> {
    let mut headers = HeaderMap::with_capacity(parsed.len() + 4);
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Bad::Malformed)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).map_err(|_| Bad::Malformed)?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Origin form, absolute form or `*` (RFC 9112 section 3.2).
fn target_of(method: &Method, path: &str) -> Result<(PathAndQuery, Option<String>), Bad> {
    if path.contains('#') {
        return Err(Bad::Malformed);
    }
    if path.starts_with('/') || (path == "*" && *method == Method::OPTIONS) {
        return Ok((path.parse().map_err(|_| Bad::Malformed)?, None));
    }
    let uri: Uri = path.parse().map_err(|_| Bad::Malformed)?;
    let ours = uri.scheme() == Some(&Scheme::HTTP) || uri.scheme() == Some(&Scheme::HTTPS);
    let (true, Some(authority)) = (ours, uri.authority()) else { return Err(Bad::Malformed) };
    if authority.as_str().contains('@') {
        return Err(Bad::Host);
    }
    let target = match uri.path_and_query() {
        Some(target) if target.as_str().starts_with('/') => target.clone(),
        Some(target) => format!("/{}", target.as_str()).parse().map_err(|_| Bad::Malformed)?,
        None => PathAndQuery::from_static("/"),
    };
    Ok((target, Some(authority.as_str().to_owned())))
}

/// One `Host`, always in HTTP/1.1; what the target names counts before it (RFC 9112 section 3.2.2).
fn authority(headers: &HeaderMap, named: Option<String>, version: Version) -> Result<String, Bad> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Bad::Host),
        (None, None) if version == Version::HTTP_11 => return Err(Bad::Host),
        (host, None) => host.map(|host| host.to_str().map_err(|_| Bad::Host)).transpose()?,
    };
    // HTTP/1.0 knows no `Host`: HAProxy's checks have none. Whatever is not answered here without one is refused where hosts are looked up.
    Ok(named.or_else(|| host.map(ToOwned::to_owned)).unwrap_or_default())
}

fn request_framing(headers: &HeaderMap, version: Version) -> Result<Framing, Bad> {
    let coded = headers.contains_key(TRANSFER_ENCODING);
    let length = content_length(headers, Repeated::Refused)?;
    match (coded, length) {
        // RFC 9112 section 6.1: both, or a coding in HTTP/1.0, is how smuggling begins.
        (true, Some(_)) => Err(Bad::Framing),
        (true, None) if version == Version::HTTP_10 => Err(Bad::Framing),
        (true, None) => only_chunked(headers).map(|()| Framing::Chunked),
        (false, Some(length)) => Ok(Framing::Length(length)),
        (false, None) => Ok(Framing::None),
    }
}

fn response_framing(headers: &HeaderMap, method: &Method, status: StatusCode) -> Result<Framing, Bad> {
    let coded = headers.contains_key(TRANSFER_ENCODING);
    let length = content_length(headers, Repeated::Equal)?;
    let bodiless = *method == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    match (coded, length) {
        (true, Some(_)) => Err(Bad::Framing),
        _ if bodiless => Ok(Framing::None),
        (true, None) => only_chunked(headers).map(|()| Framing::Chunked),
        (false, Some(length)) => Ok(Framing::Length(length)),
        (false, None) => Ok(Framing::Close),
    }
}

fn only_chunked(headers: &HeaderMap) -> Result<(), Bad> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(one), None) if one.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b", -".contains(b)) => {
            Err(Bad::Coding)
        }
        _ => Err(Bad::Framing),
    }
}

/// What several lengths mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    /// The message is refused, even where they are equal.
    Refused,
    /// Equal ones are one, as RFC 9110 section 8.6 allows.
    Equal,
}

fn content_length(headers: &HeaderMap, repeated: Repeated) -> Result<Option<u64>, Bad> {
    let mut found = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let text = value.as_bytes();
        if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
            return Err(Bad::Framing);
        }
        let length = text.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        match found {
            None => found = Some(length),
            Some(first) if first == length && repeated == Repeated::Equal => {}
            Some(_) => return Err(Bad::Framing),
        }
    }
    Ok(found)
}

/// Whether the connection lives on after this message.
fn keeps(headers: &HeaderMap, version: Version) -> bool {
    if version == Version::HTTP_11 {
        !names(headers, "close")
    } else {
        names(headers, "keep-alive") && !names(headers, "close")
    }
}

/// Whether `Connection` names a token.
pub(in crate::gateway) fn names(headers: &HeaderMap, token: &str) -> bool {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

impl RequestHead {
    /// Whether the client waits for `100 Continue` before it sends its body.
    pub(in crate::gateway) fn expects(&self) -> bool {
        self.version == Version::HTTP_11
            && self.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<RequestHead, Bad> {
        read_request(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_head_is_read_into_its_parts() {
        let head = read("POST /a?b HTTP/1.1\r\nHost: x.test:81\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n")
            .expect("a head");
        assert_eq!(
            (head.method.as_str(), head.target.as_str(), head.authority.as_str()),
            ("POST", "/a?b", "x.test:81")
        );
        assert_eq!((head.framing, head.keep, head.expects()), (Framing::Length(5), true, true));
        let old = read("GET / HTTP/1.0\r\nhost: a\r\n\r\n").expect("a head");
        assert_eq!((old.keep, old.framing), (false, Framing::None));
        assert!(read("GET / HTTP/1.0\r\nhost: a\r\nconnection: Keep-Alive\r\n\r\n").expect("a head").keep);
        assert!(!read("GET / HTTP/1.1\r\nhost: a\r\nconnection: x, CLOSE\r\n\r\n").expect("a head").keep);
        let absolute = read("GET http://b.test?q HTTP/1.1\r\nhost: a\r\n\r\n").expect("a head");
        assert_eq!((absolute.authority.as_str(), absolute.target.as_str()), ("b.test", "/?q"));
        assert_eq!(read("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").expect("a head").target.as_str(), "*");
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_the_pieces_end() {
        let text = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nrest";
        let mut scanned = 0;
        let found = (0..=text.len()).find_map(|end| {
            let found = end_of_head(&text[..end], scanned);
            scanned = end;
            found
        });
        assert_eq!(found, Some(text.len() - 4));
        // So that what is malformed is not waited for until its time is over.
        assert_eq!(end_of_head(b"GET / HTTP/1.1\nhost: a\n\nrest", 0), Some(24));
        assert_eq!(end_of_head(b"GET / HTTP/1.1\r\n", 0), None);
    }

    #[test]
    fn an_answer_says_where_it_ends_in_one_way() {
        let read = |text: &str, method: &Method| {
            read_response(&Bytes::copy_from_slice(text.as_bytes()), method).map(|head| head.framing)
        };
        let get = |text: &str| read(text, &Method::GET);
        assert_eq!(get("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"), Ok(Framing::Length(5)));
        assert_eq!(get("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n"), Ok(Framing::Length(5)));
        assert_eq!(get("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"), Ok(Framing::Chunked));
        assert_eq!(get("HTTP/1.1 200\r\n\r\n"), Ok(Framing::Close));
        assert_eq!(get("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n"), Ok(Framing::None));
        assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", &Method::HEAD), Ok(Framing::None));
        assert_eq!(get("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n"), Err(Bad::Framing));
        assert_eq!(
            get("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"),
            Err(Bad::Framing)
        );
        assert_eq!(get("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n"), Err(Bad::Coding));
        assert_eq!(get("HTTP/2 200\r\n\r\n"), Err(Bad::Malformed));
    }

    proptest! {
        /// Whatever comes: no panic, and what is taken is one request with one host and one framing.
        #[test]
        fn whatever_is_taken_is_plain(text in "(GET|POST) /[a-z ]{0,3} HTTP/1\\.[012](\r\n|\n)((Host|Content-Length|Transfer-Encoding|X)[ ]?: ?(a|5|chunked|x y|\t)?(\r\n|\n|\r)){0,4}\r\n") {
            if let Ok(head) = read(&text) {
                prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n']));
                prop_assert!(head.headers.get_all(HOST).iter().count() <= 1);
                prop_assert!(!(head.headers.contains_key(CONTENT_LENGTH) && head.headers.contains_key(TRANSFER_ENCODING)));
            }
        }

        #[test]
        fn nothing_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            drop(read_request(&bytes));
            drop(read_response(&bytes, &Method::GET));
            may_begin(&bytes);
        }
    }
}
