//! Messages written down: every head anew from its parts, every body in one framing.

use super::Framing;
use super::head::RequestHead;
use bytes::{BufMut, BytesMut};
use hyper::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use hyper::{HeaderMap, StatusCode};

/// Writes a request's head for a backend. Fields of the connection are not in `headers`; `upgrade` is what it is to become.
pub(in crate::gateway) fn request(head: &RequestHead, upgrade: Option<&[u8]>, to: &mut BytesMut) {
    to.reserve(512);
    to.put_slice(head.method.as_str().as_bytes());
    to.put_u8(b' ');
    to.put_slice(head.target.as_str().as_bytes());
    to.put_slice(b" HTTP/1.1\r\nhost: ");
    to.put_slice(head.authority.as_bytes());
    to.put_slice(b"\r\n");
    fields(&head.headers, to);
    framing(head.framing, to);
    if let Some(protocol) = upgrade {
        to.put_slice(b"connection: upgrade\r\nupgrade: ");
        to.put_slice(protocol);
        to.put_slice(b"\r\n");
    }
    to.put_slice(b"\r\n");
}

/// What an answer says of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Connection {
    /// Nothing: it stays, as HTTP/1.1 has it.
    Stays,
    /// It stays, which HTTP/1.0 must be told.
    StaysTold,
    /// It is closed afterwards.
    Closes,
}

/// Writes an answer's head for a client. Fields of the connection are not in `headers`.
pub(in crate::gateway) fn response(
    status: StatusCode,
    headers: &HeaderMap,
    body: Framing,
    connection: Connection,
    to: &mut BytesMut,
) {
    to.reserve(512);
    to.put_slice(b"HTTP/1.1 ");
    to.put_slice(status.as_str().as_bytes());
    to.put_u8(b' ');
    to.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    to.put_slice(b"\r\n");
    fields(headers, to);
    if body == Framing::None
        && status != StatusCode::NO_CONTENT
        && let Some(length) = headers.get(CONTENT_LENGTH)
    {
        // The length that a GET would have had (RFC 9110 sections 9.3.2 and 15.4.5).
        to.put_slice(b"content-length: ");
        to.put_slice(length.as_bytes());
        to.put_slice(b"\r\n");
    }
    framing(body, to);
    match connection {
        Connection::Stays => {}
        Connection::StaysTold => to.put_slice(b"connection: keep-alive\r\n"),
        Connection::Closes => to.put_slice(b"connection: close\r\n"),
    }
    to.put_slice(b"\r\n");
}

/// Writes an answer that comes before the answer, or the one that makes a connection something else.
pub(in crate::gateway) fn interim(status: StatusCode, headers: &HeaderMap, upgrade: Option<&[u8]>, to: &mut BytesMut) {
    to.put_slice(b"HTTP/1.1 ");
    to.put_slice(status.as_str().as_bytes());
    to.put_u8(b' ');
    to.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    to.put_slice(b"\r\n");
    fields(headers, to);
    if let Some(protocol) = upgrade {
        to.put_slice(b"connection: upgrade\r\nupgrade: ");
        to.put_slice(protocol);
        to.put_slice(b"\r\n");
    }
    to.put_slice(b"\r\n");
}

fn fields(headers: &HeaderMap, to: &mut BytesMut) {
    for (name, value) in headers {
        // These are written from what they mean, below.
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING || name == HOST {
            continue;
        }
        to.put_slice(name.as_str().as_bytes());
        to.put_slice(b": ");
        to.put_slice(value.as_bytes());
        to.put_slice(b"\r\n");
    }
}

fn framing(framing: Framing, to: &mut BytesMut) {
    match framing {
        Framing::None | Framing::Close => {}
        Framing::Length(length) => {
            to.put_slice(b"content-length: ");
            to.put_slice(length.to_string().as_bytes());
            to.put_slice(b"\r\n");
        }
        Framing::Chunked => to.put_slice(b"transfer-encoding: chunked\r\n"),
    }
}

/// Writes a piece of a body.
pub(in crate::gateway) fn data(framing: Framing, data: &[u8], to: &mut BytesMut) {
    if data.is_empty() {
        return;
    }
    if framing == Framing::Chunked {
        to.put_slice(format!("{:x}\r\n", data.len()).as_bytes());
        to.put_slice(data);
        to.put_slice(b"\r\n");
    } else {
        to.put_slice(data);
    }
}

/// Writes the end of a body.
pub(in crate::gateway) fn end(framing: Framing, trailers: Option<&HeaderMap>, to: &mut BytesMut) {
    if framing == Framing::Chunked {
        to.put_slice(b"0\r\n");
        if let Some(trailers) = trailers {
            fields(trailers, to);
        }
        to.put_slice(b"\r\n");
    }
}
