//! Tells the count of nodes (`fleet::nodes`) what was answered to whom, and what addresses of this machine and its network are.
//!
//! It stands beside every request, so it holds its lock for a look into a map and no longer.

use super::exchange::Peer;
use super::h1::head::RequestHead;
use crate::fleet::nodes::{Asked, Counts, NodesSeen, Origin, Told};
use hyper::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue, USER_AGENT, VIA};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a proxy adds, and no balancer that checks.
const RELAYED: [HeaderName; 3] = [FORWARDED, VIA, HeaderName::from_static("x-forwarded-for")];

/// The count.
#[derive(Debug)]
pub(super) struct Nodes {
    began: Instant,
    counts: Mutex<Counts>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { began: Instant::now(), counts: Mutex::default() }
    }
}

impl Nodes {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A health check was answered.
    pub(super) fn told(&self, head: &RequestHead, peer: Peer, well: bool) {
        let agent = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let asked = Asked {
            address: peer.address.ip(),
            origin: origin(peer, &head.headers),
            path: head.target.as_str(),
            port: peer.local.port(),
            agent,
        };
        let told = if well { Told::In } else { Told::Out };
        self.counts().told(asked, told, self.began.elapsed());
    }

    /// A request that is none came.
    pub(super) fn real(&self, address: IpAddr) {
        self.counts().real(address, self.began.elapsed());
    }

    /// What was counted.
    pub(super) fn seen(&self) -> NodesSeen {
        let ways_out = ways_out();
        let origin = |address| if ways_out.contains(&address) { Origin::Bridge } else { Origin::Machine };
        self.counts().seen(self.began.elapsed(), origin)
    }
}

fn origin(peer: Peer, headers: &HeaderMap<HeaderValue>) -> Origin {
    let address = peer.address.ip().to_canonical();
    if RELAYED.iter().any(|name| headers.contains_key(name)) {
        Origin::Proxy
    } else if address.is_loopback() || address == peer.local.ip().to_canonical() {
        Origin::Itself
    } else {
        Origin::Machine
    }
}

/// The routers through which this network is left: in a container that is its bridge.
fn ways_out() -> Vec<IpAddr> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut found = routers_v4(&read("/proc/net/route"));
    found.extend(routers_v6(&read("/proc/net/ipv6_route")));
    found
}

/// proc(5), `/proc/net/route`: interface, destination, gateway, as the kernel has them in memory.
fn routers_v4(table: &str) -> Vec<IpAddr> {
    let router = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (destination, gateway) = (fields.next()?, fields.next()?);
        let gateway = u32::from_str_radix(gateway, 16).ok().filter(|gateway| *gateway != 0)?;
        (destination == "00000000").then(|| IpAddr::V4(Ipv4Addr::from(gateway.to_ne_bytes())))
    };
    table.lines().skip(1).filter_map(router).collect()
}

/// proc(5), `/proc/net/ipv6_route`: destination, its length, source, its length, next hop.
fn routers_v6(table: &str) -> Vec<IpAddr> {
    let router = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hop = u128::from_str_radix(fields.get(4)?, 16).ok().filter(|hop| *hop != 0)?;
        (fields.get(1) == Some(&"00")).then(|| IpAddr::V6(Ipv6Addr::from(hop)))
    };
    table.lines().filter_map(router).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_is_the_router_of_the_default_route_only() {
        let table =
            "Iface\tDestination\tGateway\tFlags\neth0\t00000000\t010012AC\t0003\neth0\t000012AC\t00000000\t0001\n";
        let expected: IpAddr = "172.18.0.1".parse().expect("an address");
        assert_eq!(routers_v4(table), [expected]);
        let zero = "0".repeat(32);
        let hop = format!("{}1", "fe80".to_owned() + &"0".repeat(27));
        let table =
            format!("{zero} 00 {zero} 00 {hop} 00000400 1 0 3 eth0\n{hop} 80 {zero} 00 {zero} 00000000 1 0 1 lo\n");
        let expected: IpAddr = "fe80::1".parse().expect("an address");
        assert_eq!(routers_v6(&table), [expected]);
    }

    #[test]
    fn who_asks_is_told_apart_from_whom_it_asks_through() {
        let peer = |address: &str, local: &str| Peer {
            address: address.parse().expect("an address"),
            local: local.parse().expect("an address"),
            tls: false,
        };
        let none = HeaderMap::new();
        assert_eq!(origin(peer("10.0.1.5:1", "10.0.9.9:80"), &none), Origin::Machine);
        assert_eq!(origin(peer("127.0.0.3:1", "127.0.0.1:80"), &none), Origin::Itself);
        assert_eq!(origin(peer("[::ffff:10.0.9.9]:1", "10.0.9.9:80"), &none), Origin::Itself);
        let mut relayed = HeaderMap::new();
        relayed.insert("x-forwarded-for", HeaderValue::from_static("10.0.1.5"));
        assert_eq!(origin(peer("10.0.1.7:1", "10.0.9.9:80"), &relayed), Origin::Proxy);
    }
}
