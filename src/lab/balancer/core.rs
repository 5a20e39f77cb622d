//! What the balancer's parts share: the model behind its lock, the clock, the addresses, the log.

use super::BalancerSpec;
use super::delay::Delays;
use super::faults::Faults;
use super::lock;
use super::log::Log;
use super::model::{GroupSpec, Model, Place};
use super::views::Names;
use crate::clock::Clock;
use crate::fleet::model::{GroupName, TargetId, Zone};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// AWS user guide: no connection within 10 s is a 504.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// AWS API reference: `idle_timeout.timeout_seconds` is 60 by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The shared state of a balancer.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) clock: Clock,
    pub(super) model: Mutex<Model>,
    /// The groups in the order in which they were given; the first is the listener's default.
    pub(super) order: Vec<GroupName>,
    pub(super) names: Names,
    pub(super) log: Log,
    pub(super) delays: Delays,
    pub(super) faults: Faults,
    pub(super) strict_ranges: bool,
    /// Every action that was ever asked for.
    pub(super) asked: Mutex<BTreeSet<String>>,
    idle_timeout: Mutex<Duration>,
    /// Wakes the health checker when a target comes or goes.
    pub(super) wake: Notify,
    /// Counts changes of registration: requests in flight look again whether theirs is to be cut.
    generation: watch::Sender<u64>,
    addresses: BTreeMap<Place, SocketAddr>,
    sources: Vec<IpAddr>,
}

/// A loopback address for a node: all of 127.0.0.0/8 is this machine.
pub(in crate::lab) fn own_address(node: usize) -> IpAddr {
    let [.., high, low] = node.to_be_bytes();
    IpAddr::from([127, 77, high, low.wrapping_add(1)])
}

impl Core {
    pub(super) fn new(spec: BalancerSpec, addresses: BTreeMap<Place, SocketAddr>, clock: Clock) -> io::Result<Self> {
        let order: Vec<GroupName> = spec.groups.iter().map(|group| group.name.clone()).collect();
        let names = Names::new(&spec.region, &order);
        let log = Log::new(spec.access_log.as_deref(), names.balancer_path())?;
        Ok(Self {
            clock,
            model: Mutex::new(Model::new(spec.model, spec.groups)),
            order,
            names,
            log,
            delays: Delays::default(),
            faults: Faults::default(),
            strict_ranges: spec.strict_ranges,
            asked: Mutex::default(),
            idle_timeout: Mutex::new(IDLE_TIMEOUT),
            wake: Notify::new(),
            generation: watch::channel(0).0,
            addresses,
            sources: spec.sources,
        })
    }

    /// A target or a setting changed.
    pub(super) fn changed(&self) {
        self.generation.send_modify(|generation| *generation += 1);
        self.wake.notify_one();
    }

    pub(super) fn register(&self, group: &GroupName, id: TargetId, port: Option<u16>, zone: Option<Zone>) {
        lock(&self.model).register(group, id, port, zone, self.clock.now());
        self.changed();
    }

    pub(super) fn deregister(&self, group: &GroupName, id: &TargetId, port: Option<u16>) {
        lock(&self.model).deregister(group, id, port, self.clock.now());
        self.changed();
    }

    /// Where a target really listens. A target that nobody made here is reached only if it is a loopback address: the
    /// lab sends nothing to the network.
    pub(super) fn address(&self, place: &Place) -> Option<SocketAddr> {
        let own = place.0.as_str().parse::<IpAddr>().ok().filter(IpAddr::is_loopback);
        self.addresses.get(place).copied().or_else(|| own.map(|ip| SocketAddr::new(ip, place.1)))
    }

    /// From which address a node asks: each has one of its own, as far as the targets are on this machine.
    pub(super) fn source(&self, node: usize, at: SocketAddr) -> Option<IpAddr> {
        match self.sources.get(node) {
            Some(source) => Some(*source),
            None => (at.is_ipv4() && at.ip().is_loopback()).then(|| own_address(node)),
        }
    }

    pub(super) fn group(&self, name: &GroupName) -> Option<GroupSpec> {
        lock(&self.model).group(name).cloned()
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.clock.wall(CONNECT_TIMEOUT)
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        self.clock.wall(self.idle_timeout_said())
    }

    /// `idle_timeout.timeout_seconds`, in fleet time.
    pub(super) fn idle_timeout_said(&self) -> Duration {
        *lock(&self.idle_timeout)
    }

    pub(super) fn say_idle_timeout(&self, idle_timeout: Duration) {
        *lock(&self.idle_timeout) = idle_timeout;
    }

    /// Ends when what is in flight to a target is to be cut: its deregistration delay is over.
    pub(super) fn cut(
        self: &Arc<Self>,
        node: usize,
        group: &GroupName,
        place: &Place,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (core, group, place) = (Arc::clone(self), group.clone(), place.clone());
        let mut generation = self.generation.subscribe();
        async move {
            loop {
                let at = lock(&core.model).cut_at(node, &group, &place);
                let due = async {
                    match at {
                        Some(at) => core.clock.sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = due => return,
                    changed = generation.changed() => if changed.is_err() { std::future::pending::<()>().await },
                }
            }
        }
    }
}
