//! Bodies: taken out of their framing piece by piece, whatever pieces the network makes of them.

use super::{Bad, Framing};
use bytes::{Buf, Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// A line of a chunk's size may be so long, extensions included.
const SIZE_LINE: usize = 512;
/// Trailers may be so long.
const TRAILERS: usize = 16 * 1024;

/// What could be taken out.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Taken {
    /// A piece of the body.
    Data(Bytes),
    /// Its end, and what came after it.
    End(Option<Box<HeaderMap>>),
    /// More must be read first.
    More,
}

/// Takes one body out of its framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) enum Decoder {
    /// So many bytes are left.
    Length(u64),
    /// The size of a chunk comes next.
    Size,
    /// So many bytes of a chunk are left.
    Chunk(u64),
    /// The line end after a chunk comes next.
    ChunkEnd,
    /// Trailers come next.
    Trailers,
    /// Everything until the end of the connection.
    Close,
    /// It is over.
    Done,
}

impl Decoder {
    /// For a body with this framing.
    pub(in crate::gateway) fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Size,
            Framing::Close => Self::Close,
        }
    }

    /// Whether nothing of the body is left.
    pub(in crate::gateway) fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// Whether the end of the connection is the end of the body.
    pub(in crate::gateway) fn ends_with_connection(&self) -> bool {
        matches!(self, Self::Close | Self::Done)
    }

    /// Takes the next piece.
    pub(in crate::gateway) fn take(&mut self, from: &mut BytesMut) -> Result<Taken, Bad> {
        loop {
            match self {
                Self::Done => return Ok(Taken::End(None)),
                Self::Close if from.is_empty() => return Ok(Taken::More),
                Self::Close => return Ok(Taken::Data(from.split().freeze())),
                Self::Length(left) => {
                    let Some(data) = cut(from, left) else { return Ok(Taken::More) };
                    if *left == 0 {
                        *self = Self::Done;
                    }
                    return Ok(Taken::Data(data));
                }
                Self::Chunk(left) => {
                    let Some(data) = cut(from, left) else { return Ok(Taken::More) };
                    if *left == 0 {
                        *self = Self::ChunkEnd;
                    }
                    return Ok(Taken::Data(data));
                }
                Self::ChunkEnd => match from.as_ref() {
                    [b'\r', b'\n', ..] => {
                        from.advance(2);
                        *self = Self::Size;
                    }
                    [] | [b'\r'] => return Ok(Taken::More),
                    _ => return Err(Bad::Malformed),
                },
                Self::Size => {
                    let Some(line) = line(from, SIZE_LINE)? else { return Ok(Taken::More) };
                    let size = size(&from[..line])?;
                    from.advance(line + 2);
                    *self = if size == 0 { Self::Trailers } else { Self::Chunk(size) };
                }
                Self::Trailers => {
                    let Some(trailers) = trailers(from)? else { return Ok(Taken::More) };
                    *self = Self::Done;
                    return Ok(Taken::End(trailers));
                }
            }
        }
    }
}

fn cut(from: &mut BytesMut, left: &mut u64) -> Option<Bytes> {
    let size = usize::try_from(*left).unwrap_or(usize::MAX).min(from.len());
    if size == 0 {
        return None;
    }
    *left -= size as u64;
    Some(from.split_to(size).freeze())
}

/// The length of the first line without its CR LF.
fn line(bytes: &[u8], limit: usize) -> Result<Option<usize>, Bad> {
    let Some(at) = memchr::memchr(b'\n', &bytes[..bytes.len().min(limit)]) else {
        return if bytes.len() >= limit { Err(Bad::Malformed) } else { Ok(None) };
    };
    if at == 0 || bytes[at - 1] != b'\r' {
        return Err(Bad::Malformed);
    }
    Ok(Some(at - 1))
}

/// A chunk's size; extensions are read over, but only where they look like some.
fn size(line: &[u8]) -> Result<u64, Bad> {
    let end = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    let extension = rest.trim_ascii_start();
    let fine = extension.is_empty() && rest.is_empty()
        || extension.first() == Some(&b';') && extension.iter().all(|b| *b == b'\t' || (*b >= b' ' && *b != 0x7f));
    if digits.is_empty() || digits.len() > 15 || !fine {
        return Err(Bad::Malformed);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Bad::Malformed)?;
    u64::from_str_radix(text, 16).map_err(|_| Bad::Malformed)
}

fn trailers(from: &mut BytesMut) -> Result<Option<Option<Box<HeaderMap>>>, Bad> {
    if from.starts_with(b"\r\n") {
        from.advance(2);
        return Ok(Some(None));
    }
    let Some(end) = memchr::memmem::find(from, b"\r\n\r\n") else {
        return if from.len() > TRAILERS { Err(Bad::TooLong) } else { Ok(None) };
    };
    if end > TRAILERS {
        return Err(Bad::TooLong);
    }
    let bytes = from.split_to(end + 4).freeze();
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let parsed = match httparse::parse_headers(&bytes, &mut fields) {
        Ok(httparse::Status::Complete((length, parsed))) if length == bytes.len() => parsed,
        _ => return Err(Bad::Malformed),
    };
    let mut headers = HeaderMap::with_capacity(parsed.len());
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Bad::Malformed)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| Bad::Malformed)?;
        headers.append(name, value);
    }
    Ok(Some(Some(Box::new(headers))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a body that arrives in pieces of `step` bytes; what is left over is given back.
    fn decode(framing: Framing, text: &[u8], step: usize) -> Result<(Vec<u8>, Option<HeaderMap>, usize), Bad> {
        let mut decoder = Decoder::new(framing);
        let (mut inbox, mut body, mut pieces) = (BytesMut::new(), Vec::new(), text.chunks(step));
        loop {
            match decoder.take(&mut inbox)? {
                Taken::Data(data) => body.extend_from_slice(&data),
                Taken::End(trailers) => {
                    return Ok((body, trailers.map(|t| *t), inbox.len() + pieces.map(<[u8]>::len).sum::<usize>()));
                }
                Taken::More => inbox.extend_from_slice(pieces.next().ok_or(Bad::Framing)?),
            }
        }
    }

    #[test]
    fn a_body_is_the_same_however_it_is_cut() {
        let chunked = b"5\r\nhello\r\n6;x=\"y\"\r\n world\r\n0\r\nx-sum: 7\r\n\r\nGET /";
        for step in 1..=chunked.len() {
            let (body, trailers, left) = decode(Framing::Chunked, chunked, step).expect("a body");
            assert_eq!((body.as_slice(), left), (&b"hello world"[..], 5), "{step}");
            assert_eq!(trailers.expect("trailers")["x-sum"], "7");
            let (body, _, left) = decode(Framing::Length(5), b"helloGET /", step).expect("a body");
            assert_eq!((body.as_slice(), left), (&b"hello"[..], 5), "{step}");
        }
    }

    #[test]
    fn what_another_server_could_read_differently_is_refused() {
        for text in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5\r\nhello0\r\n\r\n",
            b"5\r\nhelloX\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"-1\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b"5;a\nb\r\nhello\r\n0\r\n\r\n",
            b"5;\x00\r\nhello\r\n0\r\n\r\n",
            b"5;a\rb\r\nhello\r\n0\r\n\r\n",
            b"\r\nhello\r\n",
            b"ffffffffffffffff1\r\n",
            b"fffffffffffffffff\r\n",
            b"0\r\nbad header\r\n\r\n",
            b"0\r\n x: y\r\n\r\n",
        ] {
            for step in [1, text.len()] {
                assert!(decode(Framing::Chunked, text, step).is_err(), "{:?}", String::from_utf8_lossy(text));
            }
        }
    }

    #[test]
    fn a_size_line_without_an_end_is_refused_before_it_fills_memory() {
        let text = [b"5;".to_vec(), vec![b'a'; 2000]].concat();
        assert_eq!(decode(Framing::Chunked, &text, 100), Err(Bad::Malformed));
        let text = [b"0\r\na: ".to_vec(), vec![b'a'; 20_000]].concat();
        assert_eq!(decode(Framing::Chunked, &text, 100), Err(Bad::TooLong));
    }
}
