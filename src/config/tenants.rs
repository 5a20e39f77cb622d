//! A folder of tenants: `defaults.toml` and one file a tenant -> every problem at once -> `fleet::model::Tenants`.
//!
//! The same key table, places and hints as deploy.toml, but files of their own. What a tenant does not say, `defaults.toml` says.

use super::parse::{self, Missing};
use super::problem::{Place, Problem, Problems, Source};
use super::tree;
use super::view::View;
use super::{origins_of, read};
use crate::fleet::model::{
    AdapterSpec, AlarmSpec, ClientSpec, ClusterSpec, EdgeSpec, HostName, Mode, Network, Never, ProbeSpec,
    PrometheusSpec, Shared, Tenant, Tenants, Version, WakerSpec, Workload,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of what is shared.
pub const DEFAULTS: &str = "defaults.toml";

/// Tenants without errors, as they were read.
#[derive(Debug, Clone)]
pub struct LoadedTenants {
    /// What the files say, every default filled in.
    pub tenants: Tenants,
    origins: BTreeMap<String, Place>,
}

impl LoadedTenants {
    /// Where a number stands: `tenants.prometheus.scrape`, `tenant.example.hold`; `None` is a default.
    #[must_use]
    pub fn place(&self, key: &str) -> Option<Place> {
        self.origins.get(key).cloned()
    }
}

/// Reads a folder.
///
/// # Errors
/// Every problem of the files, those of the disk included.
pub fn load_tenants(dir: &Path) -> Result<LoadedTenants, Problems> {
    let unread = |text: String| {
        let place = Place::new(&Source::new(dir.display().to_string(), ""), 0..0);
        Problems::from(Problem::new(&place, text).hint(
            "`--tenants DIR` names the folder: `defaults.toml` and one file a tenant; docs/tenants.md lists their keys",
        ))
    };
    let entries =
        std::fs::read_dir(dir).map_err(|error| unread(format!("{} cannot be read: {error}", dir.display())))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    let shared = paths.iter().position(|path| path.file_name().is_some_and(|name| name == DEFAULTS));
    let shared =
        shared.map(|at| paths.remove(at)).ok_or_else(|| unread(format!("no {DEFAULTS} in {}", dir.display())))?;
    if paths.is_empty() {
        return Err(unread(format!("no tenant in {}: there is nothing but {DEFAULTS}", dir.display())));
    }
    let tenants: Vec<(String, Arc<Source>)> =
        paths.iter().map(|path| Ok((stem(path), read(path)?))).collect::<Result<_, Problems>>()?;
    tenants_from(&read(&shared)?, &tenants)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The same from texts: what is shared, and each tenant with its name.
///
/// # Errors
/// Every problem of the texts.
pub fn tenants_from(shared: &Arc<Source>, tenants: &[(String, Arc<Source>)]) -> Result<LoadedTenants, Problems> {
    let mut problems = Vec::new();
    let base = checked("tenants", shared, &mut problems);
    let tables: Vec<(&str, tree::Table)> =
        tenants.iter().map(|(name, source)| (name.as_str(), checked("tenant", source, &mut problems))).collect();
    let root = View::table("tenants", &base);
    let views: Vec<(&str, View<'_>)> =
        tables.iter().map(|(name, table)| (*name, View::table("tenant", table))).collect();
    if problems.is_empty() {
        for (name, view) in &views {
            inherited(*view, root, &mut problems);
            named(name, *view, &mut problems);
            awake(*view, root, &mut problems);
            paths(*view, &mut problems);
        }
        twice(&views, &mut problems);
    }
    if let Some(problems) = Problems::of(problems, &shared.name) {
        return Err(problems);
    }
    let unclear = || {
        let text = "these files could not be understood, and no check says why: a fault of handover";
        Problems::from(Problem::new(&Place::new(shared, 0..0), text).hint("please report it with the files"))
    };
    let mut origins = BTreeMap::new();
    origins_of("tenants", &base, &mut origins);
    for (name, table) in &tables {
        origins_of(&format!("tenant.{name}"), table, &mut origins);
    }
    let tenants = views.iter().map(|(name, view)| tenant(name, *view, root)).collect::<Option<_>>();
    let tenants = Tenants { shared: build(root).ok_or_else(unclear)?, tenants: tenants.ok_or_else(unclear)? };
    Ok(LoadedTenants { tenants, origins })
}

fn checked(at: &str, source: &Arc<Source>, problems: &mut Vec<Problem>) -> tree::Table {
    let (table, found) = tree::parse(source);
    let missing = if found.is_empty() { Missing::Told } else { Missing::Unknown };
    problems.extend(found);
    parse::check(at, table, missing, problems)
}

/// The keys that one of the two files has to say.
const INHERITED: [(&str, &str); 4] =
    [("port", "8443"), ("after", "\"30m\""), ("hold", "\"55s\""), ("start", "\"12s\"")];

fn inherited(view: View<'_>, root: View<'_>, problems: &mut Vec<Problem>) {
    for (name, example) in INHERITED {
        if let (false, false, Some(place)) = (view.has(name), root.has(name), view.place()) {
            let text = format!("`tenant.{name}` is missing, and {DEFAULTS} does not say it either");
            problems.push(Problem::new(place, text).hint(format!("add a line like `{name} = {example}`")));
        }
    }
}

/// A tenant's name is a file's and a folder's, and part of the names of its objects.
fn named(name: &str, view: View<'_>, problems: &mut Vec<Problem>) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fine = !name.is_empty() && name.len() <= 63 && name.chars().all(plain) && !name.starts_with('-');
    if let (false, Some(place)) = (fine, view.place()) {
        let text = format!("`{name}` is no name for a tenant");
        problems.push(Problem::new(place, text).hint("name its file with small letters, digits and `-` only"));
    }
}

fn awake(view: View<'_>, root: View<'_>, problems: &mut Vec<Problem>) {
    let (Some(said), Some(true)) = (view.said("workload"), view.flag("sleep")) else { return };
    for never in root.subs("never") {
        if let (Some(other), Some(reason)) = (never.said("workload"), never.text("reason"))
            && other.text == said.text
        {
            let text = format!("the workload `{}` must not sleep: {reason}", said.text);
            problems.push(
                Problem::new(said.place, text)
                    .label("must not sleep")
                    .second(other.place, "said here")
                    .hint("let it run, or take it out of `[[never]]` when the reason is gone"),
            );
        }
    }
}

/// A path stands in a Caddyfile, where some letters mean more than themselves.
fn paths(view: View<'_>, problems: &mut Vec<Problem>) {
    for said in view.subs("probes").iter().filter_map(|probe| probe.said("path")) {
        let odd = |c: char| !(c.is_ascii_alphanumeric() || "/._~-".contains(c));
        if let Some(c) = said.text.chars().find(|c| odd(*c)) {
            let text = format!("a probe's path with `{c}` in it cannot be told to the edge");
            problems.push(Problem::new(said.place, text).hint("letters, digits and `/._~-` only, without a query"));
        }
    }
}

/// A host and a workload belong to one tenant.
fn twice(views: &[(&str, View<'_>)], problems: &mut Vec<Problem>) {
    let mut hosts: BTreeMap<String, (&str, &Place)> = BTreeMap::new();
    let mut workloads: BTreeMap<(String, &str), (&str, &Place)> = BTreeMap::new();
    let mut again = |first: Option<&(&str, &Place)>, place: &Place, what: String| {
        if let Some((name, _)) = first {
            problems.push(
                Problem::new(place, format!("{what} belongs to two tenants; `{name}` has it too"))
                    .label("again here")
                    .hint("several hosts of one backend are one tenant's `hosts`"),
            );
        }
    };
    for (name, view) in views {
        for said in view.said_all("hosts") {
            let Ok(host) = HostName::parse(said.text) else { continue };
            again(hosts.get(host.as_str()), said.place, format!("the host `{host}`"));
            hosts.insert(host.to_string(), (*name, said.place));
        }
        if let (Some(said), Some(namespace)) = (view.said("workload"), view.text("namespace")) {
            let key = (namespace, said.text);
            again(workloads.get(&key), said.place, format!("the workload `{}` of `{}`", said.text, key.0));
            workloads.insert(key, (*name, said.place));
        }
    }
}

fn build(root: View<'_>) -> Option<Shared> {
    let (clients, edge, prometheus) = (root.sub("clients"), root.sub("edge"), root.sub("prometheus"));
    let (adapter, waker, cluster, alarms) =
        (root.sub("adapter"), root.sub("gateway"), root.sub("cluster"), root.sub("alarms"));
    let never = |view: View<'_>| {
        Some(Never { workload: Workload::parse(&view.text("workload")?)?, reason: view.text("reason")? })
    };
    Some(Shared {
        mode: Mode::parse(&root.text("mode")?)?,
        clients: ClientSpec { balancer: clients.duration("balancer")?, patience: clients.duration("patience")? },
        edge: EdgeSpec {
            version: Version::parse(&edge.text("version")?)?,
            port: edge.number("port")?,
            tls: edge.flag("tls")?,
            trusted_proxies: networks(edge, "trusted_proxies")?,
            metrics: edge.texts("metrics")?,
            retry: edge.duration("retry")?,
            dial: edge.duration("dial")?,
            keep_alive: edge.duration("keep_alive")?,
            restart: edge.duration("restart")?,
        },
        prometheus: PrometheusSpec {
            scrape: prometheus.duration("scrape")?,
            timeout: prometheus.duration("timeout")?,
            evaluate: prometheus.duration("evaluate")?,
            window: prometheus.duration("window")?,
            latch: prometheus.duration("latch")?,
        },
        adapter: AdapterSpec {
            query: adapter.duration("query")?,
            relist: adapter.duration("relist")?,
            max_age: adapter.duration("max_age")?,
        },
        waker: WakerSpec {
            image: waker.text("image"),
            namespace: waker.text("namespace")?,
            trusted_proxies: networks(waker, "trusted_proxies")?,
            interval: waker.duration("interval")?,
            connect: waker.duration("connect")?,
            latch: waker.duration("latch")?,
        },
        cluster: ClusterSpec { version: Version::parse(&cluster.text("version")?)?, sync: cluster.duration("sync")? },
        alarms: AlarmSpec {
            stuck: alarms.duration("stuck")?,
            inactive: alarms.duration("inactive")?,
            scrape: alarms.duration("scrape")?,
        },
        never: root.subs("never").into_iter().map(never).collect::<Option<_>>()?,
    })
}

fn networks(view: View<'_>, name: &str) -> Option<Vec<Network>> {
    view.texts(name)?.iter().map(|text| Network::parse(text).ok()).collect()
}

fn tenant(name: &str, view: View<'_>, root: View<'_>) -> Option<Tenant> {
    let workload = Workload::parse(&view.text("workload")?)?;
    let hosts = view.texts("hosts")?;
    let probe = |view: View<'_>| Some(ProbeSpec { path: view.text("path")?, every: view.duration("every")? });
    let duration = |name: &str| view.duration(name).or_else(|| root.duration(name));
    Some(Tenant {
        name: name.to_owned(),
        sleep: view.flag("sleep")?,
        hosts: hosts.iter().map(|host| HostName::parse(host).ok()).collect::<Option<_>>()?,
        namespace: view.text("namespace")?,
        service: view.text("service").unwrap_or_else(|| workload.name.clone()),
        port: view.number("port").or_else(|| root.number("port"))?,
        tls: view.flag("tls")?,
        after: duration("after")?,
        hold: duration("hold")?,
        start: duration("start")?,
        probes: view.subs("probes").into_iter().map(probe).collect::<Option<_>>()?,
        allow: if view.has("allow") { Some(networks(view, "allow")?) } else { None },
        workload,
    })
}
