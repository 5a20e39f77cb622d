//! What the configuration says, made ready to serve: hosts by name, what their files hold, the queues and numbers that outlive a
//! reload.

use super::closing::Closing;
use super::metrics::Metrics;
use super::nodes::Nodes;
use super::sleep;
use super::tls;
use crate::fleet::model::{GatewaySpec, HostName};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

pub(super) use super::standing::{Claim, Going, Host, Place, Standing, Told, Waiting};

/// A configuration that serves.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) spec: GatewaySpec,
    hosts: HashMap<HostName, Arc<Standing>>,
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// What the API server of a cluster is shown, and whom it must be.
    pub(super) external: Option<Arc<ServerConfig>>,
}

impl Site {
    /// Whom a name means.
    pub(super) fn host(&self, name: &HostName) -> Option<&Arc<Standing>> {
        self.hosts.get(name)
    }

    /// Every host, once.
    pub(super) fn standings(&self) -> impl Iterator<Item = &Arc<Standing>> {
        self.spec.hosts.iter().filter_map(|host| self.hosts.get(&host.name))
    }
}

/// Whether a gateway goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It does.
    No,
    /// Another process has its listeners: whoever asks for its health means that one.
    HandedOver,
    /// It is being stopped.
    Stopping,
}

/// Everything that the threads share.
#[derive(Debug)]
pub(super) struct Shared {
    site: RwLock<Arc<Site>>,
    pub(super) metrics: Arc<Metrics>,
    /// Who asks for health.
    pub(super) nodes: Nodes,
    /// Health says 503 because a signal asked for it.
    pub(super) draining: AtomicBool,
    /// Whether everything is held on purpose.
    pub(super) closing: Closing,
    /// Which drain files are there, as it was last looked.
    drained: RwLock<Vec<String>>,
    /// Whether and why nothing new is taken any more.
    pub(super) leaving: watch::Sender<Leaving>,
    /// Another configuration is used.
    pub(super) reloaded: watch::Sender<u64>,
}

/// A configuration whose files were read, before anything of it is used.
pub(super) struct Prepared {
    spec: GatewaySpec,
    hosts: Vec<Host>,
    tls: Option<Arc<ServerConfig>>,
    external: Option<Arc<ServerConfig>>,
}

impl Prepared {
    pub(super) fn spec(&self) -> &GatewaySpec {
        &self.spec
    }
}

/// Reads everything that the configuration names.
///
/// # Errors
/// Every file that cannot be used, with the reason.
pub(super) fn prepare(spec: GatewaySpec) -> Result<Prepared, Vec<String>> {
    let mut wrong = Vec::new();
    let mut hosts = Vec::new();
    for host in &spec.hosts {
        let tls = if host.backend.tls {
            tls::client(host).map(Some).unwrap_or_else(|why| {
                wrong.push(format!("gateway.host.{}: {why}", host.name));
                None
            })
        } else {
            None
        };
        let waiting_page = host.waiting_page.as_deref().and_then(|path| match std::fs::read(Path::new(path)) {
            Ok(page) => Some(Bytes::from(page)),
            Err(error) => {
                wrong.push(format!("gateway.host.{}.waiting_page: {path}: {error}", host.name));
                None
            }
        });
        let sleep = Mutex::new(sleep::begin(spec.sleep.as_ref(), host).unwrap_or_else(|why| {
            wrong.push(why);
            None
        }));
        hosts.push(Host { spec: host.clone(), tls, waiting_page, sleep });
    }
    let tls = if spec.listen_tls.is_empty() {
        None
    } else {
        tls::server(&spec.certificates).map_err(|why| wrong.extend(why)).ok()
    };
    let external = spec.external_metrics.as_ref().map(tls::external).transpose();
    let external = external.map_err(|why| wrong.push(format!("gateway.external_metrics: {why}"))).ok().flatten();
    if wrong.is_empty() { Ok(Prepared { spec, hosts, tls, external }) } else { Err(wrong) }
}

impl Shared {
    pub(super) fn new(prepared: Prepared) -> Self {
        let metrics = Arc::new(Metrics::default());
        let site = assemble(prepared, &HashMap::new(), &metrics);
        let shared = Self {
            site: RwLock::new(Arc::new(site)),
            metrics,
            closing: Closing::new(),
            nodes: Nodes::default(),
            draining: AtomicBool::new(false),
            drained: RwLock::new(Vec::new()),
            leaving: watch::Sender::new(Leaving::No),
            reloaded: watch::Sender::new(0),
        };
        // Before the first request: somebody may be at work behind it.
        shared.look_at_hold_file();
        shared
    }

    pub(super) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses another configuration from now on. Hosts that keep their name keep their queue.
    pub(super) fn replace(&self, prepared: Prepared) {
        let mut site = self.site.write().unwrap_or_else(PoisonError::into_inner);
        *site = Arc::new(assemble(prepared, &site.hosts, &self.metrics));
        drop(site);
        self.look_at_hold_file();
        self.reloaded.send_modify(|count| *count += 1);
    }

    /// Looks whether the drain files are there.
    pub(super) fn look_at_drain_files(&self) {
        let spec = &self.site().spec;
        let files = spec.drain_file.iter().chain(spec.health.iter().filter_map(|health| health.drain_file.as_ref()));
        // What cannot be looked at is not there: a drain is begun by a file that can be seen.
        let found: Vec<String> = files.filter(|path| Path::new(path).exists()).cloned().collect();
        *self.drained.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Whether every health check says 503.
    pub(super) fn is_draining(&self, site: &Site) -> bool {
        self.draining.load(Ordering::Relaxed)
            || *self.leaving.borrow() == Leaving::Stopping
            || self.is_there(site.spec.drain_file.as_ref())
            || self.holds_too_long()
    }

    /// Whether a drain file was there.
    pub(super) fn is_there(&self, file: Option<&String>) -> bool {
        file.is_some_and(|file| self.drained.read().unwrap_or_else(PoisonError::into_inner).contains(file))
    }

    pub(super) fn is_leaving(&self) -> bool {
        *self.leaving.borrow() != Leaving::No
    }
}

fn assemble(prepared: Prepared, old: &HashMap<HostName, Arc<Standing>>, metrics: &Metrics) -> Site {
    let mut hosts = HashMap::new();
    for host in prepared.hosts {
        let name = host.spec.name.clone();
        let aliases = host.spec.aliases.clone();
        // The queue of a host belongs to its own name: an alias that became a host begins anew.
        let known = old.get(&name).filter(|standing| standing.host().spec.name == name);
        let standing = match known {
            Some(standing) => {
                standing.replace(host);
                Arc::clone(standing)
            }
            None => Arc::new(Standing::new(host, metrics)),
        };
        hosts.extend(aliases.into_iter().map(|alias| (alias, Arc::clone(&standing))));
        hosts.insert(name, standing);
    }
    Site { spec: prepared.spec, hosts, tls: prepared.tls, external: prepared.external }
}
