//! A socket file on another machine, reached as if it were here.

use super::connect::session;
use super::{Options, words};
use crate::fleet::model::HostKeys;
use openssh::{ForwardType, Session, Socket};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Connecting and forwarding.
const OPEN: Duration = Duration::from_secs(20);

/// An open tunnel; dropping it closes it.
#[derive(Debug)]
pub struct Tunnel {
    path: PathBuf,
    /// Dropped before its folder: it lives there.
    _session: Session,
    _folder: TempDir,
}

impl Tunnel {
    /// Opens a tunnel to a socket file at a destination.
    ///
    /// # Errors
    /// In SSH's own words.
    pub async fn open(options: &Options, host_keys: HostKeys, destination: &str, socket: &str) -> Result<Self, String> {
        let opened = tokio::time::timeout(OPEN, Self::forward(options, host_keys, destination, socket)).await;
        opened.unwrap_or_else(|_| Err(format!("`{destination}`: connecting took more than {} s", OPEN.as_secs())))
    }

    async fn forward(options: &Options, host_keys: HostKeys, destination: &str, socket: &str) -> Result<Self, String> {
        let opened = session(options, host_keys, destination).await;
        let (session, folder) = opened.map_err(|error| error.to_string())?;
        let path = folder.path().join("tunnel");
        let here = Socket::UnixSocket { path: path.as_path().into() };
        let there = Socket::UnixSocket { path: Path::new(socket).into() };
        let forwarded = session.request_port_forward(ForwardType::Local, here, there).await;
        forwarded.map_err(|error| format!("`{destination}`: no tunnel to {socket}: {}", words::chain(&error)))?;
        Ok(Self { path, _session: session, _folder: folder })
    }

    /// Where it begins, on this machine.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
