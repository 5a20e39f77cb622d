//! One HAProxy node's runtime API: a line goes in, text comes back, bounded in size and time.

use super::stats::{self, Fault, Look};
use crate::adapters::ssh::{self, Tunnel};
use crate::fleet::model::{AdminState, HostKeys, RuntimeSocket};
use crate::rollout::port::BalancerError;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;

/// One question, connecting included; a tunnel takes longer to open.
const ANSWER: Duration = Duration::from_secs(5);
/// Thousands of servers say less.
const LONGEST: u64 = 16 << 20;

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) socket: RuntimeSocket,
    host_keys: HostKeys,
    options: ssh::Options,
    tunnel: Mutex<Option<Tunnel>>,
}

impl Node {
    pub(super) fn new(socket: RuntimeSocket, host_keys: HostKeys, options: ssh::Options) -> Self {
        Self { socket, host_keys, options, tunnel: Mutex::new(None) }
    }

    /// What the process says of itself and of every server.
    pub(super) async fn look(&self) -> Result<Look, BalancerError> {
        let text = self.ask("show info;show stat").await?;
        stats::read(&text).map_err(|fault| self.says(fault))
    }

    /// Changes a server's administrative state; `None` is ready.
    pub(super) async fn set(
        &self,
        backend: &str,
        server: &str,
        state: Option<AdminState>,
    ) -> Result<(), BalancerError> {
        let word = state.map_or("ready", AdminState::word);
        let answer = self.ask(&format!("set server {backend}/{server} state {word}")).await?;
        // Success is an empty line; no line at all is a process that went away before it did it.
        if answer == "\n" { Ok(()) } else { Err(self.says(stats::refusal(&answer))) }
    }

    fn says(&self, fault: Fault) -> BalancerError {
        let text = format!("{}: {fault}", self.socket);
        match fault {
            Fault::Unclear(_) => BalancerError::Unknown(text),
            Fault::Final(_) => BalancerError::Refused(text),
        }
    }

    async fn ask(&self, line: &str) -> Result<String, BalancerError> {
        let asked = match &self.socket {
            RuntimeSocket::File(path) => in_time(over_file(Path::new(path), line)).await,
            RuntimeSocket::Tcp(address) => in_time(over_tcp(address, line)).await,
            RuntimeSocket::Ssh { destination, path } => self.over_ssh(destination, path, line).await?,
        };
        asked.map_err(|error| self.unreached(&error))
    }

    /// A tunnel that ended while nobody asked is opened again.
    async fn over_ssh(&self, destination: &str, path: &str, line: &str) -> Result<io::Result<String>, BalancerError> {
        let mut held = self.tunnel.lock().await;
        if let Some(tunnel) = held.as_ref()
            && let Ok(answer) = in_time(over_file(tunnel.path(), line)).await
            && !answer.is_empty()
        {
            return Ok(Ok(answer));
        }
        // A change may have been made although its (empty) answer was lost: each may be repeated.
        let opened = Tunnel::open(&self.options, self.host_keys, destination, path).await;
        let tunnel = opened.map_err(|error| BalancerError::Unknown(format!("{}: {error}", self.socket)))?;
        let answer = in_time(over_file(tunnel.path(), line)).await;
        *held = Some(tunnel);
        Ok(answer)
    }

    fn unreached(&self, error: &io::Error) -> BalancerError {
        let text = format!("HAProxy's runtime socket {}: {error}", self.socket);
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                BalancerError::Refused(format!("{text} (see `mode`, `user` and `group` of its `stats socket` line)"))
            }
            _ => BalancerError::Unknown(text),
        }
    }
}

async fn in_time(asked: impl Future<Output = io::Result<String>>) -> io::Result<String> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", ANSWER.as_secs()));
    tokio::time::timeout(ANSWER, asked).await.unwrap_or_else(|_| Err(late()))
}

async fn over_file(path: &Path, line: &str) -> io::Result<String> {
    exchange(UnixStream::connect(path).await?, line).await
}

async fn over_tcp(address: &str, line: &str) -> io::Result<String> {
    exchange(TcpStream::connect(address).await?, line).await
}

/// Without a prompt HAProxy answers one line and closes (HAProxy management guide, "Unix Socket commands").
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, line: &str) -> io::Result<String> {
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    if answer.len() as u64 == LONGEST {
        return Err(io::Error::other("the answer is longer than any that is known"));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
