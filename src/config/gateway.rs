//! The gateway's tables: in deploy.toml, or in a file of their own with the same table and nothing else.
//!
//! What a file is, is told by what stands in it: one that has any other table of deploy.toml is a deploy.toml, and checked as one.

use super::keys;
use super::nearest::nearest;
use super::parse::{self, Missing};
use super::problem::{Place, Problem, Problems, Severity, Source};
use super::sleep;
use super::tree::{self, Entry, Node, Table, Value};
use super::url::Url;
use super::view::{Said, View};
use super::{from_sources, overlay, read, read_overlay};
use crate::fleet::model::{
    Backend, CertificateFiles, ClientClass, ClusterWorkload, ExternalMetrics, GatewaySpec, HealthPath, HostName,
    HostSpec, Network, Traits,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// The gateway's tables without errors, and what a person should look at.
pub type Gateway = (GatewaySpec, Vec<Problem>);

/// Reads the gateway's tables, and the destination's file beside it over it.
///
/// # Errors
/// Every problem of the files, those of the disk included.
pub fn load_gateway(path: &Path, destination: Option<&str>) -> Result<Gateway, Problems> {
    let base = read(path)?;
    let over = destination.map(|name| read_overlay(path, name)).transpose()?;
    gateway_from(&base, over.as_ref())
}

/// The same from texts.
///
/// # Errors
/// Every problem of the texts.
pub fn gateway_from(base: &Arc<Source>, over: Option<&Arc<Source>>) -> Result<Gateway, Problems> {
    let (mut table, mut problems) = tree::parse(base);
    let fleet_key = |entry: &Entry| entry.key != "gateway" && keys::find("", &entry.key).is_some();
    if table.entries.iter().any(fleet_key) {
        let loaded = from_sources(base, over)?;
        let none = || {
            let text = format!("`gateway` is missing: {} says nothing of a gateway", base.name);
            Problems::from(
                Problem::new(&Place::new(base, 0..0), text)
                    .hint("add a table `[gateway]`, or name another file with `-c`"),
            )
        };
        return loaded.fleet.gateway.map(|spec| (spec, loaded.warnings)).ok_or_else(none);
    }
    if let Some(source) = over {
        let (more, found) = tree::parse(source);
        problems.extend(found);
        table = overlay::lay(table, more);
    }
    let readable = problems.is_empty();
    let table = check_file(table, if readable { Missing::Told } else { Missing::Unknown }, &mut problems);
    let view = View::root(&table).sub("gateway");
    if readable {
        check(view, &mut problems);
        sleep::check(view, None, &mut problems);
    }
    let (warnings, errors): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(|problem| problem.severity == Severity::Warning);
    if let Some(errors) = Problems::of(errors, &base.name) {
        return Err(errors);
    }
    let unclear = || {
        let text = "this file could not be understood, and no check says why: a fault of handover";
        Problems::from(Problem::new(&Place::new(base, 0..0), text).hint("please report it with the file"))
    };
    Ok((build(view, None).ok_or_else(unclear)?, warnings))
}

/// A file with nothing but the gateway in it.
fn check_file(table: Table, missing: Missing, problems: &mut Vec<Problem>) -> Table {
    let place = table.place.clone();
    let mut entries = Vec::new();
    for entry in table.entries {
        if entry.key != "gateway" {
            let problem = Problem::new(&entry.key_place, format!("unknown key `{}` in a gateway's file", entry.key));
            let hint = match nearest(&entry.key, ["gateway"]) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "everything stands in the table `[gateway]`".to_owned(),
            };
            problems.push(problem.label("not known here").hint(hint));
            continue;
        }
        let at = entry.node.place.clone();
        let value = match entry.node.value {
            Value::Table(inner) => Value::Table(parse::check("gateway", inner, missing, problems)),
            other => {
                let text = format!("`gateway` must be a table, not {}", other.noun());
                problems.push(Problem::new(&at, text).hint("write `[gateway]`"));
                Value::Bad
            }
        };
        entries.push(Entry { node: Node { place: at, value }, ..entry });
    }
    if missing == Missing::Told && !entries.iter().any(|entry| entry.key == "gateway") {
        problems.push(Problem::new(&place, "`gateway` is missing").hint("add a table `[gateway]`"));
    }
    Table { place, entries }
}

/// What values must be to each other.
pub(super) fn check(view: View<'_>, problems: &mut Vec<Problem>) {
    let hosts = view.subs("host");
    listening(view, problems);
    let mut names: Vec<(HostName, Said<'_>)> = Vec::new();
    for host in &hosts {
        for said in host.said("name").into_iter().chain(host.said_all("aliases")) {
            let Ok(name) = HostName::parse(said.text) else { continue };
            match names.iter().find(|(known, _)| *known == name) {
                Some((_, first)) => problems.push(
                    Problem::new(said.place, format!("two hosts `{name}`"))
                        .label("again here")
                        .second(first.place, "first here"),
                ),
                None => names.push((name, said)),
            }
        }
        if let (Some(ca), Some(backend)) = (host.said("ca"), host.said("backend"))
            && backend.text.starts_with("http://")
        {
            let text = "`gateway.host.ca` has no effect with an http:// backend";
            problems.push(Problem::new(ca.place, text).label("no effect").hint("take it out, or write https://"));
        }
        traits(&host.subs("class"), "gateway.host.class", problems);
        workload(view, *host, problems);
    }
    traits(&view.subs("probe"), "gateway.probe", problems);
    let mut paths: Vec<Said<'_>> = Vec::new();
    for said in view.subs("health").iter().filter_map(|health| health.said("path")) {
        if said.text.contains('?') {
            problems.push(Problem::new(said.place, "`gateway.health.path` has a query: only the path is compared"));
        }
        match paths.iter().find(|first| first.text == said.text) {
            Some(first) => problems.push(
                Problem::new(said.place, format!("two health checks `{}`", said.text))
                    .label("again here")
                    .second(first.place, "first here"),
            ),
            None => paths.push(said),
        }
    }
}

/// Somebody has to put to sleep what is woken, and to see that it is wanted.
fn workload(view: View<'_>, host: View<'_>, problems: &mut Vec<Problem>) {
    let Some(said) = host.said("workload") else { return };
    if host.has("sleep") {
        let text = "a host sleeps by `sleep` on a server or by `workload` in a cluster";
        problems.push(Problem::new(said.place, text).label("both").hint("take one of them out"));
    }
    if !view.has("external_metrics") {
        let text = "`gateway.host.workload` needs `gateway.external_metrics`: its HPA would stop what was just started";
        problems.push(Problem::new(said.place, text).hint("add a table `[gateway.external_metrics]`"));
    }
}

fn listening(view: View<'_>, problems: &mut Vec<Problem>) {
    let (plain, tls, shown) = (view.said_all("listen"), view.said_all("listen_tls"), view.subs("certificate"));
    if let Some(place) = view.place()
        && plain.is_empty()
        && tls.is_empty()
        && !view.bad("listen")
        && !view.bad("listen_tls")
    {
        problems.push(
            Problem::new(place, "the gateway listens nowhere")
                .hint("add a line like `listen = \"0.0.0.0:8000\"`, or `listen_tls` with a certificate"),
        );
    }
    if let Some(said) = tls.first()
        && shown.is_empty()
        && !view.has("certificate")
    {
        let text = "`gateway.listen_tls` needs a certificate";
        problems.push(Problem::new(said.place, text).hint("add a table `[[gateway.certificate]]`"));
    }
    if let Some(place) = view.at("certificate")
        && view.has("certificate")
        && tls.is_empty()
        && !view.has("listen_tls")
    {
        let text = "`gateway.certificate` has no effect without `listen_tls`";
        problems.push(Problem::new(place, text).label("no effect").hint("take it out"));
    }
    let mut seen: Vec<Said<'_>> = Vec::new();
    let external = view.sub("external_metrics").said("listen");
    for said in plain.into_iter().chain(tls).chain(view.said("metrics")).chain(external) {
        match seen.iter().find(|first| first.text.parse::<SocketAddr>() == said.text.parse::<SocketAddr>()) {
            Some(first) => problems.push(
                Problem::new(said.place, format!("two listeners at `{}`", said.text))
                    .label("again here")
                    .second(first.place, "first here"),
            ),
            None => seen.push(said),
        }
    }
}

/// A rule without any condition would mean everybody.
fn traits(tables: &[View<'_>], path: &str, problems: &mut Vec<Problem>) {
    for table in tables {
        let says = |name: &str| table.has(name);
        if let Some(place) = table.place()
            && !says("path")
            && !says("user_agent")
            && table.said_all("source").is_empty()
            && !table.bad("source")
        {
            let text = format!("`{path}` names nobody");
            problems.push(Problem::new(place, text).hint("say `path`, `user_agent` or `source`"));
        }
    }
}

/// The gateway, in deploy.toml with what else stands there; `None` only where a problem was told.
pub(super) fn build(view: View<'_>, root: Option<View<'_>>) -> Option<GatewaySpec> {
    let hosts: Vec<HostSpec> = view.subs("host").into_iter().map(host).collect::<Option<_>>()?;
    let sleep = sleep::build_place(view, root);
    if sleep.is_none() && hosts.iter().any(|host| host.sleep.is_some()) {
        return None;
    }
    Some(GatewaySpec {
        listen: addresses(view, "listen")?,
        listen_tls: addresses(view, "listen_tls")?,
        certificates: view.subs("certificate").into_iter().map(certificate).collect::<Option<_>>()?,
        metrics: view.text("metrics")?.parse().ok()?,
        external_metrics: match view.has("external_metrics") {
            true => Some(external_metrics(view.sub("external_metrics"))?),
            false => None,
        },
        trusted_proxies: networks(view, "trusted_proxies")?,
        held: view.number("held")?,
        connections: view.number("connections")?,
        head_timeout: view.duration("head_timeout")?,
        keep_alive: view.duration("keep_alive")?,
        body_timeout: view.duration("body_timeout")?,
        send_timeout: view.duration("send_timeout")?,
        head_bytes: view.number("head_bytes")?,
        drain_file: view.text("drain_file"),
        hold_file: view.text("hold_file"),
        control: view.text("control"),
        shutdown: view.duration("shutdown")?,
        finish: view.duration("finish")?,
        workers: view.number("workers"),
        watch: view.duration("watch"),
        sleep,
        hosts,
        health: view.subs("health").into_iter().map(health).collect::<Option<_>>()?,
        probes: view.subs("probe").into_iter().map(recognised).collect::<Option<_>>()?,
    })
}

fn addresses(view: View<'_>, name: &str) -> Option<Vec<SocketAddr>> {
    view.said_all(name).iter().map(|said| said.text.parse().ok()).collect()
}

fn networks(view: View<'_>, name: &str) -> Option<Vec<Network>> {
    view.texts(name)?.iter().map(|text| Network::parse(text).ok()).collect()
}

fn certificate(view: View<'_>) -> Option<CertificateFiles> {
    Some(CertificateFiles { cert: view.text("cert")?, key: view.text("key")? })
}

fn external_metrics(view: View<'_>) -> Option<ExternalMetrics> {
    Some(ExternalMetrics {
        listen: view.text("listen")?.parse().ok()?,
        certificate: certificate(view)?,
        client_ca: view.text("client_ca")?,
        latch: view.duration("latch")?,
    })
}

fn host(view: View<'_>) -> Option<HostSpec> {
    let url = Url::parse(&view.text("backend")?).ok()?;
    let aliases = view.texts("aliases")?;
    Some(HostSpec {
        name: HostName::parse(&view.text("name")?).ok()?,
        aliases: aliases.iter().map(|text| HostName::parse(text).ok()).collect::<Option<_>>()?,
        backend: Backend {
            tls: url.scheme == "https",
            http2: view.text("protocol")? == "http2",
            host: url.host,
            port: url.port,
        },
        ca: view.text("ca"),
        hold: view.duration("hold")?,
        held: view.number("held")?,
        allow: if view.has("allow") { Some(networks(view, "allow")?) } else { None },
        connect_interval: view.duration("connect_interval")?,
        connect_timeout: view.duration("connect_timeout")?,
        answer_timeout: view.duration("answer_timeout"),
        body_bytes: view.number("body_bytes"),
        reuse: view.duration("reuse")?,
        waiting_page: view.text("waiting_page"),
        classes: view.subs("class").into_iter().map(class).collect::<Option<_>>()?,
        sleep: if view.has("sleep") { Some(sleep::build(view.sub("sleep"))?) } else { None },
        workload: view.text("workload").and_then(|text| ClusterWorkload::parse(&text)),
    })
}

fn class(view: View<'_>) -> Option<ClientClass> {
    Some(ClientClass { of: recognised(view)?, hold: view.duration("hold")? })
}

fn health(view: View<'_>) -> Option<HealthPath> {
    Some(HealthPath { path: view.text("path")?, group: view.text("group"), drain_file: view.text("drain_file") })
}

fn recognised(view: View<'_>) -> Option<Traits> {
    Some(Traits { path: view.text("path"), user_agent: view.text("user_agent"), source: networks(view, "source")? })
}
