//! How messages are framed on a byte stream: four bytes of length, then JSON.
//!
//! Knows nothing of what is said. The agent's stream begins with a marker, so that whatever a login shell prints
//! before it does no harm.

use super::wire::MAGIC;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A larger frame is nonsense on the line, or a release with files that belong into an image.
pub const MAX_FRAME: usize = 64 * 1024 * 1024;

/// So much of other people's banner is skipped.
const MAX_BANNER: usize = 256 * 1024;

/// Why no message could be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream ended between two messages.
    #[error("the stream ended")]
    Ended,
    /// The stream ended in the middle of one.
    #[error("the stream ended in the middle of a message")]
    Truncated,
    /// The length is absurd.
    #[error("a message of {0} bytes, which is more than any may have")]
    TooLarge(usize),
    /// It is no message that we know.
    #[error("a message that is not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// The marker never came.
    #[error("the agent did not answer; instead came: {0}")]
    NoMarker(String),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Writes one message.
///
/// # Errors
/// When it is too large or the stream is closed.
pub async fn write<W: AsyncWrite + Unpin, M: Serialize>(to: &mut W, message: &M) -> Result<(), FrameError> {
    let json = serde_json::to_vec(message)?;
    if json.len() > MAX_FRAME {
        return Err(FrameError::TooLarge(json.len()));
    }
    let length = u32::try_from(json.len()).map_err(|_| FrameError::TooLarge(json.len()))?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(&json).await?;
    to.flush().await?;
    Ok(())
}

/// Reads messages; every byte that arrives is told to `heard`, so that a long one on a slow line is a sign of life.
#[derive(Debug)]
pub struct Reader<R, F> {
    from: R,
    heard: F,
}

impl<R: AsyncRead + Unpin, F: FnMut()> Reader<R, F> {
    /// Reads from a stream.
    pub fn new(from: R, heard: F) -> Self {
        Self { from, heard }
    }

    /// Skips everything up to and including the marker.
    ///
    /// # Errors
    /// When it does not come; what came instead is said.
    pub async fn skip_banner(&mut self) -> Result<(), FrameError> {
        let mut seen = Vec::new();
        let said = |seen: &[u8]| {
            let text = String::from_utf8_lossy(seen);
            let text: String = text.trim().chars().take(500).collect();
            FrameError::NoMarker(if text.is_empty() { "nothing".to_owned() } else { text })
        };
        while !seen.ends_with(MAGIC) {
            // Byte by byte: what follows the marker belongs to the first frame.
            let mut byte = [0];
            if self.from.read(&mut byte).await? == 0 || seen.len() >= MAX_BANNER {
                return Err(said(&seen));
            }
            (self.heard)();
            seen.push(byte[0]);
        }
        Ok(())
    }

    /// Reads one message.
    ///
    /// # Errors
    /// When the stream ends, or what comes is none.
    pub async fn next<M: DeserializeOwned>(&mut self) -> Result<M, FrameError> {
        let mut length = [0; 4];
        self.fill(&mut length, true).await?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLarge(length));
        }
        let mut json = vec![0; length];
        self.fill(&mut json, false).await?;
        Ok(serde_json::from_slice(&json)?)
    }

    async fn fill(&mut self, buffer: &mut [u8], between: bool) -> Result<(), FrameError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let n = self.from.read(&mut buffer[filled..]).await?;
            if n == 0 {
                return Err(if between && filled == 0 { FrameError::Ended } else { FrameError::Truncated });
            }
            filled += n;
            (self.heard)();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::wire::{AgentHello, FromAgent, Request, ToAgent};
    use std::io::Cursor;

    async fn framed<M: Serialize>(message: &M) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).await.expect("a Vec takes everything");
        bytes
    }

    #[tokio::test]
    async fn a_noisy_login_shell_does_no_harm() {
        let mut bytes = b"Welcome!\n\x01HANDOVER-\r\nYou have mail.\n".to_vec();
        bytes.extend_from_slice(MAGIC);
        let hello = FromAgent::Hello(AgentHello::own());
        bytes.extend(framed(&hello).await);
        let mut reader = Reader::new(Cursor::new(bytes), || {});
        reader.skip_banner().await.expect("the marker");
        assert_eq!(reader.next::<FromAgent>().await.expect("hello"), hello);
        assert!(matches!(reader.next::<FromAgent>().await, Err(FrameError::Ended)));
    }

    #[tokio::test]
    async fn what_came_instead_of_an_agent_is_said() {
        let mut reader = Reader::new(Cursor::new(b"This account is currently not available.\n".to_vec()), || {});
        let error = reader.skip_banner().await.expect_err("no marker");
        assert!(error.to_string().contains("currently not available"), "{error}");
    }

    #[tokio::test]
    async fn a_message_cut_anywhere_is_never_taken_for_a_whole_one() {
        let whole = framed(&ToAgent::Request { id: 7, request: Request::Observe }).await;
        for cut in 1..whole.len() {
            let mut reader = Reader::new(Cursor::new(whole[..cut].to_vec()), || {});
            let error = reader.next::<ToAgent>().await.expect_err("cut");
            assert!(matches!(error, FrameError::Truncated), "{cut}: {error}");
        }
    }

    #[tokio::test]
    async fn an_absurd_length_is_refused_before_anything_is_made_room_for() {
        let mut reader = Reader::new(Cursor::new(vec![0xff; 8]), || {});
        assert!(matches!(reader.next::<ToAgent>().await, Err(FrameError::TooLarge(_))));
    }

    #[tokio::test]
    async fn every_byte_is_a_sign_of_life() {
        let bytes = framed(&ToAgent::Heartbeat).await;
        let (mut far, near) = tokio::io::duplex(3);
        tokio::spawn(async move { far.write_all(&bytes).await });
        let mut signs = 0;
        let mut reader = Reader::new(near, || signs += 1);
        reader.next::<ToAgent>().await.expect("a heartbeat");
        assert!(signs > 3, "{signs}");
    }
}
