//! Which service of a server listens on which port and what it answers there: everything that deploy.toml expects to
//! find, and nothing else.

use crate::fleet::model::{DrainBy, Fleet, Group, Server, ServiceName, Verify};
use crate::lab::ports::Ports;
use crate::lab::service::{Answer, Kind, Listen, NODES};
use hyper::Uri;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;

/// The ports of one server.
#[derive(Debug, Clone)]
pub(super) struct Wiring {
    owners: BTreeMap<u16, ServiceName>,
    at: BTreeMap<u16, SocketAddr>,
    /// The ports for which a gateway that holds speaks.
    fronted: BTreeSet<u16>,
}

impl Wiring {
    pub(super) fn new(fleet: &Fleet, server: &Server, ports: &mut Ports) -> io::Result<Self> {
        let owners = owners(fleet, server);
        let at = owners.keys().map(|port| Ok((*port, ports.take()?))).collect::<io::Result<_>>()?;
        let groups = fleet.balancer.groups.iter().filter(|_| fleet.drain.by.hold().is_some());
        let fronted =
            groups.flat_map(|group| target_ports(group, server).into_iter().chain(group.health.port)).collect();
        Ok(Self { owners, at, fronted })
    }

    /// Where a port of deploy.toml really is.
    pub(super) fn at(&self, port: u16) -> Option<SocketAddr> {
        self.at.get(&port).copied()
    }

    /// Where a gateway that holds listens.
    pub(super) fn fronts(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.fronted.iter().filter_map(|port| self.at(*port))
    }

    /// Where it sends requests: to the first service besides itself that listens.
    pub(super) fn behind(&self, fleet: &Fleet) -> Option<SocketAddr> {
        let gateway = fleet.drain.by.hands_over();
        let mut services = fleet.services.iter().filter(|service| Some(&service.name) != gateway);
        services.find_map(|service| self.listens(&service.name).first().map(|listen| listen.at))
    }

    /// The ports at which the balancer checks, one for each service that answers.
    pub(super) fn counted(&self, fleet: &Fleet, server: &Server) -> Vec<u16> {
        let mut seen = BTreeSet::new();
        let mut ports: Vec<u16> = health_checks(fleet, server).into_iter().map(|(port, _)| port).collect();
        ports.retain(|port| self.owners.get(port).is_some_and(|owner| seen.insert(owner.clone())));
        ports
    }

    pub(super) fn listens(&self, service: &ServiceName) -> Vec<Listen> {
        let own = self.owners.iter().filter(|(port, owner)| *owner == service && !self.fronted.contains(port));
        own.filter_map(|(port, _)| Some(Listen { port: *port, at: self.at(*port)? })).collect()
    }

    /// What a service answers on its ports when it runs a release.
    pub(super) fn answers(&self, fleet: &Fleet, server: &Server, service: &ServiceName, release: &str) -> Vec<Answer> {
        let mut all = verifies(fleet, release);
        for (port, path) in health_checks(fleet, server) {
            let same = all.iter().position(|a| a.port == port && a.path == path).map(|at| all.remove(at));
            let body = match same.map(|answer| answer.kind) {
                Some(Kind::Verify { body, .. }) => body,
                _ => "{\"status\":\"ok\"}".to_owned(),
            };
            all.push(Answer { port, path, method: None, kind: Kind::Health { body } });
        }
        if let Some((counter, spot)) = fleet.drain.counter.as_ref().and_then(|c| Some((c, spot(&c.http)?))) {
            all.push(Answer {
                port: spot.0,
                path: spot.1,
                method: None,
                kind: Kind::Count { json: counter.json.clone() },
            });
        }
        if let DrainBy::Http { drain, undrain } = &fleet.drain.by {
            for (call, kind) in [(drain, Kind::Drain), (undrain, Kind::Undrain)] {
                if let Some((port, path)) = spot(&call.url) {
                    all.push(Answer { port, path, method: Some(call.method.clone()), kind });
                }
            }
        }
        for port in self.counted(fleet, server) {
            all.push(Answer { port, path: NODES.to_owned(), method: None, kind: Kind::Nodes });
        }
        all.retain(|answer| self.owners.get(&answer.port) == Some(service));
        all
    }
}

/// Port and path of a URL; the host is the server itself.
pub(super) fn spot(url: &str) -> Option<(u16, String)> {
    let uri: Uri = url.parse().ok()?;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    Some((port, uri.path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned())))
}

/// The ports by which a server is registered in a group.
pub(super) fn target_ports(group: &Group, server: &Server) -> Vec<u16> {
    let targets = server.targets.get(&group.name).into_iter().flatten();
    targets.map(|target| target.port.unwrap_or(group.port)).collect()
}

/// Every port with the service that listens on it: the groups' traffic first, then the services' own checks, then what
/// else deploy.toml asks.
fn owners(fleet: &Fleet, server: &Server) -> BTreeMap<u16, ServiceName> {
    let mut owners = BTreeMap::new();
    let Some(first) = fleet.services.first() else { return owners };
    let front = fleet.services.iter().find(|service| !service.groups.is_empty()).unwrap_or(first);
    for group in &fleet.balancer.groups {
        let owner = fleet.services.iter().find(|service| service.groups.contains(&group.name)).unwrap_or(front);
        let ports = target_ports(group, server);
        let health = group.health.port.filter(|_| !ports.is_empty());
        for port in ports.into_iter().chain(health) {
            owners.entry(port).or_insert_with(|| owner.name.clone());
        }
    }
    for service in &fleet.services {
        let port = match &service.verify {
            Verify::Http { url, .. } => spot(url).map(|(port, _)| port),
            Verify::Tcp { address } => address.rsplit(':').next().and_then(|port| port.parse().ok()),
            Verify::Exec { .. } | Verify::Heartbeat { .. } => None,
        };
        if let Some(port) = port {
            owners.entry(port).or_insert_with(|| service.name.clone());
        }
    }
    for (port, _) in asked_besides(fleet, server) {
        owners.entry(port).or_insert_with(|| front.name.clone());
    }
    owners
}

fn asked_besides(fleet: &Fleet, server: &Server) -> Vec<(u16, String)> {
    let drain = &fleet.drain;
    let mut urls: Vec<&String> = drain.real.iter().chain(drain.counter.as_ref().map(|counter| &counter.http)).collect();
    if let DrainBy::Http { drain, undrain } = &drain.by {
        urls.extend([&drain.url, &undrain.url]);
    }
    let mut spots: Vec<(u16, String)> = urls.into_iter().filter_map(|url| spot(url)).collect();
    spots.extend(health_checks(fleet, server));
    spots
}

/// What the balancer asks of a server, and where the server itself sees it.
fn health_checks(fleet: &Fleet, server: &Server) -> Vec<(u16, String)> {
    let mut spots = Vec::new();
    for group in &fleet.balancer.groups {
        for port in target_ports(group, server) {
            spots.push((group.health.port.unwrap_or(port), group.health.path.clone()));
        }
        if server.targets.contains_key(&group.name) {
            spots.extend(spot(&group.local_health_url()));
        }
    }
    spots.sort();
    spots.dedup();
    spots
}

/// What every service's own HTTP check expects. Two checks of one path get all the fields of both.
fn verifies(fleet: &Fleet, release: &str) -> Vec<Answer> {
    let mut bodies: BTreeMap<(u16, String), (u16, serde_json::Value)> = BTreeMap::new();
    for service in &fleet.services {
        let Verify::Http { url, status, json, .. } = &service.verify else { continue };
        let Some(spot) = spot(url) else { continue };
        let (_, body) = bodies.entry(spot).or_insert_with(|| (*status, serde_json::json!({ "service": service.name })));
        for (path, value) in json {
            set(body, path, &value.replace("{release}", release));
        }
    }
    let answers = bodies.into_iter().map(|((port, path), (status, body))| Answer {
        port,
        path,
        method: None,
        kind: Kind::Verify { status, body: body.to_string() },
    });
    answers.collect()
}

/// Sets the field `a.b` to a text.
fn set(json: &mut serde_json::Value, path: &str, value: &str) {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    if !json.is_object() {
        *json = serde_json::json!({});
    }
    let Some(object) = json.as_object_mut() else { return };
    let field = object.entry(key).or_insert(serde_json::Value::Null);
    match rest {
        Some(rest) => set(field, rest, value),
        None => *field = serde_json::Value::from(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_port_and_a_path_with_its_query() {
        assert_eq!(spot("http://127.0.0.1:8080/version?x=1"), Some((8080, "/version?x=1".to_owned())));
        assert_eq!(spot("http://localhost"), Some((80, "/".to_owned())));
    }

    #[test]
    fn nested_fields_are_set_beside_each_other() {
        let mut json = serde_json::json!({});
        set(&mut json, "build.release", "abc");
        set(&mut json, "build.n", "7");
        assert_eq!(json, serde_json::json!({ "build": { "release": "abc", "n": "7" } }));
    }
}
