//! HTTP/1.1 as bytes: heads and bodies of messages, read strictly and written plainly.
//!
//! Pure: it may know no socket and no clock. Two servers that read one message differently are how requests are smuggled, so
//! what RFC 9112 lets a recipient repair is refused here instead, and what goes out is written anew, never passed on.

pub(super) mod body;
pub(super) mod head;
pub(super) mod write;

use hyper::StatusCode;

/// Why a message cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Bad {
    /// It is no HTTP/1.1 message.
    #[error("this is not a well-formed HTTP/1.1 message")]
    Malformed,
    /// No host, several, or one that is none.
    #[error("a request names exactly one host")]
    Host,
    /// Where its body ends is not said, or said twice.
    #[error("where the body ends must be said in exactly one way")]
    Framing,
    /// Another transfer coding than chunked.
    #[error("no transfer coding but chunked is understood")]
    Coding,
    /// HTTP/2 under another name, HTTP/0.9, HTTP/3.
    #[error("no version but HTTP/1.0 and HTTP/1.1 is understood here")]
    Version,
    /// Its head is too long.
    #[error("the head of the request is too long")]
    TooLong,
    /// CONNECT and TRACE are not for a gateway.
    #[error("this method is not served here")]
    Method,
}

impl Bad {
    /// What a client is answered.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Malformed | Self::Host | Self::Framing => StatusCode::BAD_REQUEST,
            Self::Coding => StatusCode::NOT_IMPLEMENTED,
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
        }
    }
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// By its last chunk.
    Chunked,
    /// By the end of the connection.
    Close,
}
