//! A tree without problems becomes the fleet. It decides nothing: every default comes through the view from the key table,
//! except those that depend on another key, which stand here.

use super::gateway;
use super::keys::split_target;
use super::view::{View, said_in};
use crate::fleet::model::{
    AdminState, Balancer, BalancerKind, Batch, Counter, Drain, DrainBy, Fleet, Group, GroupName, HealthCheck,
    HealthSettings, HoldBy, Hook, HookSpec, Hooks, HostKeys, HttpCall, LockSpec, Measure, Network, NodeCount,
    OnFailure, OnLoss, Once, ReleaseSpec, Rolling, RuntimeSocket, Server, ServerName, Service, ServiceName, Ssh,
    TargetId, TargetSpec, Verify, Watchdog, Zone,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// `/nodes` beside the gateway's `/metrics`, at its own default.
const NODES_URL: &str = "http://127.0.0.1:9180/nodes";
const HOLD_URL: &str = "http://127.0.0.1:9180/hold";
/// AWS user guide: the `User-Agent` of an ALB's health checks is `ELB-HealthChecker/2.0`.
const ALB_AGENT: &str = "ELB-HealthChecker";

/// The fleet; `None` only where a problem was told.
pub(super) fn fleet(root: View<'_>) -> Option<Fleet> {
    let app = root.text("app")?;
    let release = release(root.sub("release"), &app)?;
    let balancer = balancer(root.sub("balancer"))?;
    let groups: Vec<GroupName> = balancer.groups.iter().map(|group| group.name.clone()).collect();
    let server = |view: View<'_>| server(view, &groups);
    Some(Fleet {
        lock: lock(root.sub("lock"), &release.dir)?,
        ssh: ssh(root.sub("ssh"))?,
        rolling: rolling(root.sub("rolling"))?,
        drain: drain(root.sub("drain"), &app, balancer.kind)?,
        services: root.subs("service").into_iter().map(service).collect::<Option<_>>()?,
        servers: root.subs("server").into_iter().map(server).collect::<Option<_>>()?,
        watchdog: watchdog(root.sub("watchdog"))?,
        hooks: hooks(root.sub("hooks"))?,
        run_once: root.subs("run_once").into_iter().map(once).collect::<Option<_>>()?,
        confirm: root.flag("confirm")?,
        gateway: if root.has("gateway") { Some(gateway::build(root.sub("gateway"), Some(root))?) } else { None },
        measure: if root.has("measure") { Some(measure(root.sub("measure"))?) } else { None },
        app,
        release,
        balancer,
    })
}

fn release(view: View<'_>, app: &str) -> Option<ReleaseSpec> {
    let dir = view.text("dir").unwrap_or_else(|| format!("/opt/{app}"));
    Some(ReleaseSpec {
        compose: view.text("compose")?,
        files: view.texts("files")?,
        env: view.texts("env")?,
        vars: view.texts("vars")?,
        dir: dir.trim_end_matches('/').to_owned(),
        keep: view.number("keep")?,
    })
}

fn hooks(view: View<'_>) -> Option<Hooks> {
    let one = |hook: Hook| {
        let own = view.sub(hook.word());
        Some((hook, HookSpec { run: own.texts("run")?, limit: own.duration("limit")? }))
    };
    Hook::ALL.into_iter().filter(|hook| view.has(hook.word())).map(one).collect()
}

fn once(view: View<'_>) -> Option<Once> {
    Some(Once {
        name: view.text("name")?,
        service: ServiceName::new(view.text("service")?),
        run: view.texts("run")?,
        limit: view.duration("limit")?,
    })
}

fn lock(view: View<'_>, dir: &str) -> Option<LockSpec> {
    Some(LockSpec {
        path: view.text("path").unwrap_or_else(|| format!("{dir}/lock")),
        wait: view.duration("wait")?,
        lease: view.duration("lease")?,
        bootstrap: view.duration("bootstrap"),
    })
}

fn ssh(view: View<'_>) -> Option<Ssh> {
    let host_keys = match view.text("host_keys")?.as_str() {
        "strict" => HostKeys::Strict,
        "accept-new" => HostKeys::AcceptNew,
        _ => return None,
    };
    Some(Ssh { sudo: view.flag("sudo")?, host_keys, parallel: view.number("parallel")? })
}

fn rolling(view: View<'_>) -> Option<Rolling> {
    Some(Rolling {
        batch: batch(view)?,
        min_healthy: view.number("min_healthy")?,
        pause: view.duration("pause")?,
        stable: view.duration("stable")?,
        on_failure: match view.text("on_failure")?.as_str() {
            "rollback" => OnFailure::Rollback,
            "rollback-all" => OnFailure::RollbackAll,
            "halt" => OnFailure::Halt,
            _ => return None,
        },
        on_loss: match view.text("on_loss")?.as_str() {
            "halt" => OnLoss::Halt,
            "continue" => OnLoss::Continue,
            _ => return None,
        },
    })
}

/// `rolling.batch`.
pub(super) fn batch(view: View<'_>) -> Option<Batch> {
    match view.text("batch") {
        Some(text) => text.strip_suffix('%')?.parse().ok().map(Batch::Percent),
        None => view.number("batch").map(Batch::Count),
    }
}

fn balancer(view: View<'_>) -> Option<Balancer> {
    let kind = match view.text("kind")?.as_str() {
        "alb" => BalancerKind::Alb,
        "haproxy" => BalancerKind::Haproxy,
        "none" => BalancerKind::None,
        _ => return None,
    };
    Some(Balancer {
        region: view.text("region"),
        endpoint: view.text("endpoint"),
        idle_timeout: view.duration("idle_timeout")?,
        nodes: view.said_all("nodes").iter().map(|said| RuntimeSocket::parse(said.text)).collect::<Option<_>>()?,
        groups: view.subs("group").into_iter().map(|group_view| group(kind, group_view)).collect::<Option<_>>()?,
        kind,
    })
}

fn group(kind: BalancerKind, view: View<'_>) -> Option<Group> {
    let health = view.sub("health");
    let haproxy = kind == BalancerKind::Haproxy;
    Some(Group {
        name: GroupName::new(view.text("name")?),
        port: view.number("port")?,
        health: HealthCheck {
            path: health.text("path")?,
            port: health.number("port"),
            url: health.text("url"),
            settings: HealthSettings {
                interval: health.duration("interval")?,
                timeout: health.duration("timeout")?,
                unhealthy: health.number("unhealthy")?,
                healthy: health.number("healthy")?,
            },
        },
        deregistration_delay: match view.has("deregistration_delay") {
            true => view.duration("deregistration_delay")?,
            false => Duration::from_secs(if haproxy { 30 } else { 300 }),
        },
        cross_zone: view.flag("cross_zone")?,
        // HAProxy never sends requests to servers that are down (HAProxy configuration manual, `option allbackups`).
        fail_open_count: if haproxy { 0 } else { view.number("fail_open_count")? },
        fail_open_percent: view.number("fail_open_percent").filter(|percent| *percent > 0),
        slow_start: view.duration("slow_start")?,
    })
}

fn drain(view: View<'_>, app: &str, kind: BalancerKind) -> Option<Drain> {
    let counter = view.sub("counter");
    Some(Drain {
        by: drain_by(view, app, kind)?,
        real: view.text("real"),
        serve: view.duration("serve")?,
        max: view.duration("max")?,
        margin: view.duration("margin")?,
        back: view.duration("back"),
        counter: match view.has("counter") {
            true => Some(Counter { http: counter.text("http")?, json: counter.text("json")? }),
            false => None,
        },
        unverified_return: view.flag("unverified_return")?,
        state: match view.text("state").as_deref() {
            None | Some("maint") => AdminState::Maint,
            Some("drain") => AdminState::Drain,
            Some(_) => return None,
        },
    })
}

fn drain_by(view: View<'_>, app: &str, kind: BalancerKind) -> Option<DrainBy> {
    // Without groups there is nothing to let go of, so the way that touches no server stands for none.
    let by = view.text("by").unwrap_or_else(|| "deregister".to_owned());
    let way = view.sub(&by);
    Some(match by.as_str() {
        "file" => DrainBy::File { path: view.text("file")? },
        "http" => {
            let method = way.text("method")?;
            let undrain_method = way.text("undrain_method").unwrap_or_else(|| method.clone());
            DrainBy::Http {
                drain: HttpCall { method, url: way.text("drain")? },
                undrain: HttpCall { method: undrain_method, url: way.text("undrain")? },
            }
        }
        "exec" => DrainBy::Exec {
            service: way.text("service").map(ServiceName::new),
            drain: way.texts("drain")?,
            undrain: way.texts("undrain")?,
        },
        "signal" => DrainBy::Signal {
            service: ServiceName::new(way.text("service")?),
            drain: way.text("drain")?,
            undrain: way.text("undrain")?,
        },
        "sigterm" => DrainBy::Sigterm,
        "deregister" => DrainBy::Deregister,
        "gateway" => DrainBy::Gateway {
            path: view.text("file").unwrap_or_else(|| format!("/run/{app}/drain")),
            nodes: node_count(view.sub("nodes"), kind)?,
        },
        "hold" => DrainBy::Hold {
            path: view.text("file").unwrap_or_else(|| format!("/run/{app}/hold")),
            hold: HoldBy {
                told: way.text("told").unwrap_or_else(|| HOLD_URL.to_owned()),
                service: way.text("service").map(ServiceName::new),
            },
        },
        _ => return None,
    })
}

fn node_count(view: View<'_>, kind: BalancerKind) -> Option<NodeCount> {
    Some(NodeCount {
        count: view.text("count").unwrap_or_else(|| NODES_URL.to_owned()),
        from: view
            .texts("from")
            .unwrap_or_default()
            .iter()
            .map(|text| Network::parse(text).ok())
            .collect::<Option<_>>()?,
        agent: match view.has("agent") {
            true => view.text("agent").filter(|agent| !agent.is_empty()),
            false => (kind == BalancerKind::Alb).then(|| ALB_AGENT.to_owned()),
        },
    })
}

fn service(view: View<'_>) -> Option<Service> {
    Some(Service {
        name: ServiceName::new(view.text("name")?),
        groups: view.texts("group")?.into_iter().map(GroupName::new).collect(),
        verify: verify(view.sub("verify"))?,
        shutdown: view.duration("shutdown")?,
        deadline: view.duration("deadline")?,
        longest_request: view.duration("longest_request"),
        keep_alive: view.duration("keep_alive"),
    })
}

fn verify(view: View<'_>) -> Option<Verify> {
    if let Some(url) = view.text("http") {
        let text =
            |entry: &super::tree::Entry| Some((entry.key.clone(), said_in(&entry.node).first()?.text.to_owned()));
        return Some(Verify::Http {
            url,
            status: view.number("status")?,
            json: view.fields("json").iter().filter_map(text).collect(),
            host: view.text("host"),
        });
    }
    if let Some(address) = view.text("tcp") {
        return Some(Verify::Tcp { address });
    }
    if let Some(argv) = view.texts("exec") {
        return Some(Verify::Exec { argv });
    }
    Some(Verify::Heartbeat { path: view.text("heartbeat")?, age: view.duration("age")? })
}

fn server(view: View<'_>, groups: &[GroupName]) -> Option<Server> {
    let mut targets: BTreeMap<GroupName, Vec<TargetSpec>> = BTreeMap::new();
    let everywhere = specs(view.said_all("target").iter().map(|said| said.text))?;
    if !everywhere.is_empty() {
        targets.extend(groups.iter().map(|group| (group.clone(), everywhere.clone())));
    }
    for entry in view.fields("target") {
        targets.insert(GroupName::new(&entry.key), specs(said_in(&entry.node).iter().map(|said| said.text))?);
    }
    Some(Server {
        name: ServerName::new(view.text("name")?),
        ssh: view.text("ssh")?,
        targets,
        zone: view.text("zone").map(Zone::new),
        tags: view.texts("tags")?,
    })
}

fn specs<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Vec<TargetSpec>> {
    texts
        .map(|text| {
            let (id, port) = split_target(text).ok()?;
            Some(TargetSpec { id: TargetId::new(id), port })
        })
        .collect()
}

fn watchdog(view: View<'_>) -> Option<Watchdog> {
    Some(Watchdog {
        interval: view.duration("interval")?,
        strikes: view.number("strikes")?,
        heals: view.number("heals")?,
        window: view.duration("window")?,
        on_heal: view.texts("on_heal")?,
        on_give_up: view.texts("on_give_up")?,
        textfile: view.text("textfile"),
    })
}

fn measure(view: View<'_>) -> Option<Measure> {
    Some(Measure { url: view.text("url")?, rate: view.rate("rate")?, timeout: view.duration("timeout")? })
}
