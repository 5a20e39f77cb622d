//! Listeners: bound here, or handed over by the process that had them, so that no connection falls between two processes.
//!
//! A listener is passed as an open file over a socket in the file system, which only its own user may reach. The old process
//! goes on accepting until the new one says that it serves; both accept from one queue meanwhile.

use crate::fleet::model::GatewaySpec;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Format number of what is said at the control socket.
const FORMAT: u32 = 1;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// More listeners are not passed in one message.
const MOST: usize = 32;
/// How long the other process may take for its part.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a successor says when it serves.
const READY: &[u8] = b"ready";

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Purpose {
    Plain,
    Tls,
    Metrics,
    External,
}

/// A listener.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) purpose: Purpose,
    pub(super) address: SocketAddr,
}

#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    format: u32,
    listeners: Vec<(Purpose, SocketAddr)>,
}

/// The connection to the process that had the listeners; it goes on until it is told.
#[derive(Debug)]
pub(super) struct Predecessor(UnixStream);

impl Predecessor {
    /// Tells it that its successor serves.
    pub(super) fn release(mut self) -> io::Result<()> {
        self.0.write_all(READY)
    }
}

/// What the configuration listens at.
pub(super) fn wanted(spec: &GatewaySpec) -> Vec<(Purpose, SocketAddr)> {
    let plain = spec.listen.iter().map(|address| (Purpose::Plain, *address));
    let tls = spec.listen_tls.iter().map(|address| (Purpose::Tls, *address));
    let external = spec.external_metrics.iter().map(|one| (Purpose::External, one.listen));
    plain.chain(tls).chain([(Purpose::Metrics, spec.metrics)]).chain(external).collect()
}

/// Every listener of the configuration: from `given` where it is among them, else bound now.
pub(super) fn open(spec: &GatewaySpec, mut given: Vec<Listener>) -> Result<Vec<Listener>, String> {
    let mut open = Vec::new();
    for (purpose, address) in wanted(spec) {
        // Plain and TLS may change places: what is spoken is no property of the socket.
        if let Some(at) = given.iter().position(|listener| listener.address == address) {
            open.push(Listener { purpose, ..given.swap_remove(at) });
            continue;
        }
        let socket = bind(address).map_err(|error| format!("{address} cannot be listened at: {error}"))?;
        open.push(Listener { socket, purpose, address });
    }
    Ok(open)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// The socket at which a successor asks. A file that is left from a process that is gone is replaced.
pub(super) fn control(what: &str, path: &str) -> Result<tokio::net::UnixListener, String> {
    let wrong = |error: io::Error| format!("{what}: {path}: {error}");
    let aside = format!("{path}.{}", std::process::id());
    drop(std::fs::remove_file(&aside));
    let listener = tokio::net::UnixListener::bind(&aside).map_err(wrong)?;
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o600)).map_err(wrong)?;
    // From one moment to the next it is ours: whoever asks meets the one or the other.
    std::fs::rename(&aside, path).map_err(wrong)?;
    Ok(listener)
}

/// Asks the process that runs for its listeners; `None` where none runs.
pub(super) fn ask(path: &str) -> Result<Option<(Vec<Listener>, Predecessor)>, String> {
    let wrong = |error: io::Error| format!("{path}: {error}");
    let stream = match UnixStream::connect(Path::new(path)) {
        Ok(stream) => stream,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(error)),
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(wrong)?;
    let mut text = vec![0_u8; 16 * 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(&stream, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(|error| wrong(error.into()))?;
    let mut files: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    let offer: Offer = serde_json::from_slice(&text[..received.bytes])
        .map_err(|error| format!("{path}: the gateway that runs says nothing that is understood: {error}"))?;
    if offer.format != FORMAT || offer.listeners.len() != files.len() {
        return Err(format!("{path}: the gateway that runs speaks format {}, this one {FORMAT}", offer.format));
    }
    let listener = |((purpose, address), file): ((Purpose, SocketAddr), OwnedFd)| Listener {
        socket: TcpListener::from(file),
        purpose,
        address,
    };
    Ok(Some((offer.listeners.into_iter().zip(files).map(listener).collect(), Predecessor(stream))))
}

/// Offers the listeners to a successor and waits until it serves.
///
/// # Errors
/// When it does not come to that: then nothing changed.
pub(super) fn offer(stream: UnixStream, listeners: &[Listener]) -> io::Result<()> {
    let mut stream = stream;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let offer = Offer { format: FORMAT, listeners: listeners.iter().map(|one| (one.purpose, one.address)).collect() };
    let text = serde_json::to_vec(&offer).map_err(io::Error::other)?;
    let files: Vec<_> = listeners.iter().map(|one| one.socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if files.len() > MOST || !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("there are too many listeners to hand over"));
    }
    let sent = sendmsg(&stream, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    if sent != text.len() {
        return Err(io::Error::other("the offer did not fit"));
    }
    let mut said = [0_u8; READY.len()];
    stream.read_exact(&mut said)?;
    if said == READY { Ok(()) } else { Err(io::Error::other("the successor said something else than that it serves")) }
}
