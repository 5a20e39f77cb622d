//! The backend's end over HTTP/2: one stream of a connection that hyper drives.

use super::ends::{BackTrouble, Piece};
use super::fields;
use super::h1::Framing;
use super::h1::head::{RequestHead, ResponseHead};
use super::pipe::{self, Reader, Writer};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, StatusCode, Uri, Version};
use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

type Sent = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BackTrouble>>>>;

/// One stream.
pub(super) struct H2Back {
    response: Option<Sent>,
    writer: Option<Writer>,
    body: Option<Incoming>,
}

impl std::fmt::Debug for H2Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H2Back").field("body", &self.body).finish_non_exhaustive()
    }
}

impl H2Back {
    /// Sends the request's head; `None` where it cannot be said in HTTP/2.
    pub(super) fn start(mut sender: SendRequest<Reader>, head: &RequestHead, tls: bool) -> Option<Self> {
        let (writer, reader) = match head.framing {
            Framing::None | Framing::Length(0) => (None, pipe::nothing()),
            _ => {
                let (writer, reader) = pipe::pipe();
                (Some(writer), reader)
            }
        };
        let mut request = Request::new(reader);
        *request.method_mut() = head.method.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = Uri::builder()
            .scheme(if tls { Scheme::HTTPS } else { Scheme::HTTP })
            .authority(head.authority.parse::<Authority>().ok()?)
            .path_and_query(head.target.clone())
            .build()
            .ok()?;
        *request.headers_mut() = head.headers.clone();
        request.headers_mut().remove(HOST);
        match head.framing {
            Framing::Length(length) => drop(request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length))),
            _ => drop(request.headers_mut().remove(CONTENT_LENGTH)),
        }
        let response: Sent = Box::pin(async move {
            sender.try_send_request(request).await.map_err(|mut error| {
                let unsent = error.take_message().is_some();
                let error = error.into_error();
                let refused =
                    error.source().and_then(|source| source.downcast_ref::<h2::Error>()).is_some_and(|error| {
                        // GOAWAY before the stream, or REFUSED_STREAM: it was not processed (RFC 9113 section 8.7).
                        error.reason() == Some(h2::Reason::REFUSED_STREAM)
                            || error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)
                    });
                if unsent || refused { BackTrouble::Untouched } else { BackTrouble::Broken }
            })
        });
        Some(Self { response: Some(response), writer, body: None })
    }

    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        self.writer.as_mut().map_or(Poll::Ready(Ok(())), |writer| writer.poll_room(cx))
    }

    pub(super) fn send(&mut self, piece: Piece) {
        match (piece, &mut self.writer) {
            (Piece::Data(data), Some(writer)) => writer.data(data),
            (Piece::End(mut trailers), Some(writer)) => {
                if let Some(trailers) = &mut trailers {
                    fields::strip_trailers(trailers);
                }
                writer.end(trailers.map(|trailers| *trailers));
                // The stream goes on without us; to drop it here would break it off.
            }
            (_, None) => {}
        }
    }

    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, BackTrouble>> {
        let Some(sent) = &mut self.response else { return Poll::Ready(Err(BackTrouble::Broken)) };
        let response = ready!(sent.as_mut().poll(cx));
        self.response = None;
        let (parts, body) = response?.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Poll::Ready(Err(BackTrouble::Bad));
        }
        let told = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let bodiless = parts.status == StatusCode::NO_CONTENT || parts.status == StatusCode::NOT_MODIFIED;
        let framing = match told {
            _ if bodiless => Framing::None,
            Some(length) if !body.is_end_stream() => Framing::Length(length),
            // An answer to HEAD tells a length and has none.
            Some(length) if length > 0 => Framing::None,
            _ if body.is_end_stream() => Framing::Length(0),
            _ => Framing::Chunked,
        };
        self.body = Some(body);
        Poll::Ready(Ok(ResponseHead { status: parts.status, headers: parts.headers, framing, keep: true }))
    }

    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, BackTrouble>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(Piece::End(None))) };
        let piece = match ready!(Pin::new(body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Poll::Ready(Ok(Piece::Data(data))),
                Err(frame) => Piece::End(frame.into_trailers().ok().map(Box::new)),
            },
            Some(Err(_)) => return Poll::Ready(Err(BackTrouble::Broken)),
            None => Piece::End(None),
        };
        self.body = None;
        Poll::Ready(Ok(piece))
    }
}
