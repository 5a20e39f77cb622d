//! The port `Server` over SSH: the user's own OpenSSH carries messages to an agent on each server, and nothing else.
//!
//! The one place that names openssh. No step is carried out by SSH itself: it may break at any moment, and then the
//! agent knows what to do.

mod connect;
mod link;
mod staging;
mod tunnel;
mod words;

pub use tunnel::Tunnel;

use crate::fleet::model::{Fleet, HostKeys, ServerName};
use crate::rollout::port::{Server, ServerError};
use crate::server::wire::{Context, FORMAT, Reply, Request, Run};
use link::Link;
use staging::Binary;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Mutex, OnceCell, Semaphore};

/// What is not said in deploy.toml.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Another file than `~/.ssh/config` (`ssh -F`).
    pub config: Option<PathBuf>,
    /// The binary that is staged as agent; the running one where none is named.
    pub binary: Option<PathBuf>,
}

impl Options {
    /// What the environment says: `HANDOVER_SSH_CONFIG`, `HANDOVER_AGENT`.
    #[must_use]
    pub fn from_env() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { config: path("HANDOVER_SSH_CONFIG"), binary: path("HANDOVER_AGENT") }
    }
}

/// What all servers of a run share.
#[derive(Debug)]
struct Shared {
    options: Options,
    host_keys: HostKeys,
    sudo: bool,
    connecting: Semaphore,
    binary: OnceCell<Binary>,
}

/// A server over SSH. Connected when it is first asked for something, and once more when the connection was lost
/// before.
#[derive(Debug)]
pub struct SshServer {
    destination: String,
    context: Context,
    shared: Arc<Shared>,
    link: Mutex<Option<Arc<Link>>>,
}

/// Every server of a fleet; nothing is connected yet.
#[must_use]
pub fn servers(fleet: &Fleet, run: &Run, options: Options) -> BTreeMap<ServerName, Arc<SshServer>> {
    let shared = Arc::new(Shared {
        options,
        host_keys: fleet.ssh.host_keys,
        sudo: fleet.ssh.sudo,
        connecting: Semaphore::new(fleet.ssh.parallel.max(1)),
        binary: OnceCell::new(),
    });
    let one = |server: &crate::fleet::model::Server| {
        let fleet = Fleet { servers: vec![server.clone()], ..fleet.clone() };
        let context = Context { format: FORMAT, run: run.clone(), server: server.name.clone(), fleet };
        let over_ssh =
            SshServer { destination: server.ssh.clone(), context, shared: Arc::clone(&shared), link: Mutex::new(None) };
        (server.name.clone(), Arc::new(over_ssh))
    };
    fleet.servers.iter().map(one).collect()
}

impl SshServer {
    /// Connects, stages the agent where it is not there yet and starts it; that it runs already is fine.
    ///
    /// # Errors
    /// In SSH's own words, or what the server lacks.
    pub async fn connect(&self) -> Result<(), ServerError> {
        self.link().await.map(drop)
    }

    /// Ends the connection in order: the agent frees what it holds and ends.
    pub async fn close(&self) {
        let link = self.link.lock().await.take();
        if let Some(link) = link {
            link.close().await;
        }
    }

    /// The connection; a new one where there is none, or where the last call found it lost.
    async fn link(&self) -> Result<Arc<Link>, ServerError> {
        let mut held = self.link.lock().await;
        if let Some(link) = held.as_ref().filter(|link| link.lost().is_none()) {
            return Ok(Arc::clone(link));
        }
        if let Some(why) = held.take().and_then(|link| link.untold_loss()) {
            return Err(ServerError::Lost(why));
        }
        let link = Arc::new(Box::pin(connect::connect(&self.shared, &self.destination, &self.context)).await?);
        *held = Some(Arc::clone(&link));
        Ok(link)
    }
}

impl Server for SshServer {
    async fn call(&self, request: Request) -> Result<Reply, ServerError> {
        let link = self.link().await?;
        let mut reply = link.ask(request).await?;
        if let (Reply::Facts(facts), Some(lacking)) = (&mut reply, &link.lacking) {
            facts.missing.push(lacking.to_string());
        }
        Ok(reply)
    }
}

/// Ends every connection in order, all at the same time.
pub async fn close_all(servers: &BTreeMap<ServerName, Arc<SshServer>>) {
    let mut closing = tokio::task::JoinSet::new();
    for server in servers.values() {
        let server = Arc::clone(server);
        closing.spawn(async move { server.close().await });
    }
    closing.join_all().await;
}
