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

use crate::fleet::model::{Fleet, Hooks, HostKeys, ServerName};
use crate::rollout::port::{Server, ServerError};
use crate::server::wire::{Context, FORMAT, Reply, Request, Run};
use link::Link;
use staging::Binary;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OnceCell, Semaphore};

/// Between two tries to connect again.
const AGAIN: Duration = Duration::from_secs(1);
/// So often one request is asked again over a new connection.
const TIMES: usize = 3;

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

/// A server over SSH. Connected when it is first asked for something, and again when the connection was lost: the agent that
/// was there hands over to the next one of the same run.
#[derive(Debug, Clone)]
pub struct SshServer {
    far: Arc<Far>,
}

#[derive(Debug)]
struct Far {
    destination: String,
    context: Context,
    shared: Arc<Shared>,
    link: Mutex<Option<Arc<Link>>>,
    /// Whether somebody watches over the connection already.
    watched: AtomicBool,
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
        // The team's own commands are nobody's business there.
        let fleet = Fleet { servers: vec![server.clone()], hooks: Hooks::default(), ..fleet.clone() };
        let context = Context { format: FORMAT, run: run.clone(), server: server.name.clone(), fleet };
        let over_ssh = SshServer { far: Arc::new(Far::new(server.ssh.clone(), context, Arc::clone(&shared))) };
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
        self.far.link().await.map(drop)
    }

    /// Ends the connection in order: the agent frees what it holds and ends.
    pub async fn close(&self) {
        let link = self.far.link.lock().await.take();
        if let Some(link) = link {
            link.close().await;
        }
    }
}

impl Far {
    fn new(destination: String, context: Context, shared: Arc<Shared>) -> Self {
        Self { destination, context, shared, link: Mutex::new(None), watched: AtomicBool::new(false) }
    }

    /// The connection; a new one where there is none, or where the last one was lost.
    async fn link(&self) -> Result<Arc<Link>, ServerError> {
        let mut held = self.link.lock().await;
        if let Some(link) = held.as_ref().filter(|link| link.lost().is_none()) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(Box::pin(connect::connect(&self.shared, &self.destination, &self.context)).await?);
        *held = Some(Arc::clone(&link));
        Ok(link)
    }

    /// A connection instead of one that was lost, as long as the agent there waits for it.
    async fn link_again(&self) -> Result<Arc<Link>, ServerError> {
        let until = Instant::now() + self.context.fleet.lock.lease;
        loop {
            match self.link().await {
                Err(ServerError::Unreachable(_)) if Instant::now() < until => tokio::time::sleep(AGAIN).await,
                linked => return linked,
            }
        }
    }

    /// What is held there is held by a process at the other end of this connection: it is kept up while nobody asks.
    async fn keep_up(self: Arc<Self>) {
        loop {
            let Some(link) = self.link.lock().await.clone() else { break };
            if !link.lost_by_accident().await || self.link_again().await.is_err() {
                break;
            }
        }
        self.watched.store(false, Ordering::SeqCst);
    }
}

impl Server for SshServer {
    async fn call(&self, request: Request) -> Result<Reply, ServerError> {
        let mut link = self.far.link().await?;
        let mut answer = link.ask(request.clone()).await;
        for _ in 0..TIMES {
            let Err(ServerError::Lost(why)) = answer else { break };
            // Every request says what is to be, not what is to be done: asked again, it is judged by what is there.
            link = self.far.link_again().await.map_err(|_| ServerError::Lost(why))?;
            answer = link.ask(request.clone()).await;
        }
        let mut reply = answer?;
        if matches!(reply, Reply::Locked) && !self.far.watched.swap(true, Ordering::SeqCst) {
            tokio::spawn(Arc::clone(&self.far).keep_up());
        }
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
