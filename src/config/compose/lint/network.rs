//! Hazards of ports: the balancer sends traffic to one that nothing publishes.

use super::Cx;
use crate::config::compose::files::Service;
use crate::config::compose::vars;
use crate::config::problem::Place;
use crate::config::yaml::Node;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// A published port.
enum Port {
    /// On this machine's own ports, for others or for itself alone.
    Fixed { ports: RangeInclusive<u16>, loopback: bool },
    /// On whichever is free.
    Any,
    /// Not certain from the text.
    Unknown,
}

pub(super) fn look(cx: &mut Cx<'_>) {
    let services = cx.active.clone();
    let published: Vec<(Place, Port)> = services.iter().flat_map(|(_, service)| ports(cx, service)).collect();
    let unclear = cx.project.unknown.is_some()
        || services.iter().any(|(_, service)| service.unknown.is_some() || has_host_network(cx, service))
        || published.iter().any(|(_, port)| matches!(port, Port::Unknown));
    if unclear {
        return;
    }
    for group in &cx.fleet.balancer.groups {
        let Some(taker) = cx.fleet.services.iter().find(|service| service.groups.contains(&group.name)) else {
            continue;
        };
        let Some(service) = cx.get(taker.name.as_str()) else { continue };
        let targets = cx.fleet.servers.iter().filter_map(|server| server.targets.get(&group.name)).flatten();
        let mut wanted: BTreeSet<u16> = targets.map(|target| target.port.unwrap_or(group.port)).collect();
        wanted.extend(group.health.port);
        for port in wanted {
            let on: Vec<&(Place, Port)> =
                published.iter().filter(|(_, published)| publishes(published, port)).collect();
            let open = on.iter().any(|(_, published)| matches!(published, Port::Fixed { loopback: false, .. }));
            match on.first() {
                _ if open => {}
                None => {
                    let text = format!(
                        "{}: takes the traffic of {}, and nothing publishes port {port}",
                        taker.name, group.name
                    );
                    cx.say_of("port-unreachable", service, text);
                }
                Some((place, _)) => {
                    let text = format!(
                        "port {port} takes the traffic of {}, and is published for this machine alone",
                        group.name
                    );
                    cx.say("port-unreachable", place.clone(), text);
                }
            }
        }
    }
}

/// A port that only one container can have.
pub(super) fn fixed_port(cx: &Cx<'_>, service: &Service<'_>) -> Option<u16> {
    ports(cx, service).into_iter().find_map(|(_, port)| match port {
        Port::Fixed { ports, .. } if ports.start() == ports.end() => Some(*ports.start()),
        _ => None,
    })
}

fn publishes(published: &Port, port: u16) -> bool {
    matches!(published, Port::Fixed { ports, .. } if ports.contains(&port))
}

fn has_host_network(cx: &Cx<'_>, service: &Service<'_>) -> bool {
    cx.text(service, &["network_mode"]).is_some_and(|(mode, _)| mode.text == "host" || mode.text.contains(':'))
}

fn ports(cx: &Cx<'_>, service: &Service<'_>) -> Vec<(Place, Port)> {
    let mut all = Vec::new();
    for (layer, entry) in service.all("ports") {
        if entry.node.tagged {
            all.push((layer.place(&entry.key_span), Port::Unknown));
        }
        for item in entry.node.items() {
            all.push((layer.place(&item.span), port(cx, item)));
        }
    }
    all
}

fn port(cx: &Cx<'_>, item: &Node) -> Port {
    let put = |node: &Node| node.text().and_then(|text| vars::put_in(text, &cx.given).ok());
    if item.is_map() {
        let ip = item.get("host_ip").map(|node| put(node).unwrap_or_default());
        return match item.get("published").map(|node| put(node)) {
            None => Port::Any,
            Some(None) => Port::Unknown,
            Some(Some(text)) => fixed(ip.as_deref().unwrap_or_default(), &text),
        };
    }
    let Some(text) = put(item) else { return Port::Unknown };
    let text = text.split('/').next().unwrap_or_default();
    // `[::1]:80:80`, `127.0.0.1:80:80`, `80:80`, `80`.
    let (ip, rest) = match text.strip_prefix('[').and_then(|text| text.split_once("]:")) {
        Some((ip, rest)) => (ip, rest),
        None if text.matches(':').count() == 2 => text.split_once(':').unwrap_or(("", text)),
        None => ("", text),
    };
    match rest.split_once(':') {
        None => Port::Any,
        Some((host, _)) => fixed(ip, host),
    }
}

fn fixed(ip: &str, text: &str) -> Port {
    if text.is_empty() {
        return Port::Any;
    }
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => Port::Fixed { ports: from..=to, loopback: ip.starts_with("127.") || ip == "::1" },
        _ => Port::Unknown,
    }
}
