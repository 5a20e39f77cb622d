//! A tenant's numbers as the relations want them, for each way to measure and to scale.

use crate::fleet::model::{Mode, Shared, Tenant, Tenants};
use crate::fleet::timing::{Part, START, Scaler, Scraped, Told, Waiter, Wake};
use std::time::Duration;

/// One call to the cluster's API, at its slowest while it is well.
const CALL: Duration = Duration::from_secs(1);
/// The gateway answers the HPA from memory; this is the way there through the API server.
const QUESTION: Duration = Duration::from_secs(1);
/// How long the gateway keeps an idle connection, unless its own file says otherwise (docs/reference.md, `gateway.keep_alive`).
const GATEWAY_KEEPS: Duration = Duration::from_secs(75);

/// The numbers of every tenant that may sleep.
#[must_use]
pub fn wakes(tenants: &Tenants, mode: Mode) -> Vec<Wake> {
    tenants.tenants.iter().filter(|tenant| tenant.sleep).map(|tenant| of(&tenants.shared, tenant, mode)).collect()
}

fn of(shared: &Shared, tenant: &Tenant, mode: Mode) -> Wake {
    let own = |value, key: &str| Told::of_two(value, format!("tenants.{key}"), format!("tenant.{}.{key}", tenant.name));
    let waiter = |who, value, key: &str| Waiter { who, waits: Told::new(value, format!("tenants.clients.{key}")) };
    let edge = mode == Mode::K1;
    let (retry, dial) = match edge {
        true => (Told::new(shared.edge.retry, "tenants.edge.retry"), Told::new(shared.edge.dial, "tenants.edge.dial")),
        false => (
            Told::new(shared.waker.interval, "tenants.gateway.interval"),
            Told::new(shared.waker.connect, "tenants.gateway.connect"),
        ),
    };
    let start = own(tenant.start, "start");
    Wake {
        tenant: tenant.name.clone(),
        hold: own(tenant.hold, "hold"),
        waiters: vec![
            waiter("your balancer", shared.clients.balancer, "balancer"),
            waiter("your least patient client", shared.clients.patience, "patience"),
        ],
        parts: parts(shared, mode, start, &retry, &dial),
        scraped: edge.then(|| scraped(shared, tenant)),
        scaler: (mode != Mode::K3).then(|| scaler(shared, own(tenant.after, "after"))),
        quiet: own(tenant.after, "after"),
        retry,
        dial,
        refresh: None,
        keep_alive: match edge {
            true => Told::new(shared.edge.keep_alive, "tenants.edge.keep_alive"),
            false => Told::new(GATEWAY_KEEPS, "gateway.keep_alive"),
        },
        reload: edge.then(|| Told::new(Duration::ZERO, "Caddy")),
        stuck: Told::new(shared.alarms.stuck, "tenants.alarms.stuck"),
        latch: match mode {
            Mode::K1 => Some(Told::new(shared.prometheus.latch, "tenants.prometheus.latch")),
            Mode::K2 | Mode::K2Plus => Some(Told::new(shared.waker.latch, "tenants.gateway.latch")),
            Mode::K3 => None,
        },
    }
}

fn parts(
    shared: &Shared,
    mode: Mode,
    start: Told<Duration>,
    retry: &Told<Duration>,
    dial: &Told<Duration>,
) -> Vec<Part> {
    let part = |name, most| Part { name, most };
    let told = |name, value, key: &str| part(name, Told::new(value, format!("tenants.{key}")));
    let (it, adapter) = (&shared.prometheus, &shared.adapter);
    let sync = told("sync", shared.cluster.sync, "cluster.sync");
    let mut parts = match mode {
        Mode::K1 => vec![
            told("scrape", it.scrape, "prometheus.scrape"),
            told("slow scrape", it.timeout, "prometheus.timeout"),
            told("evaluation", it.evaluate, "prometheus.evaluate"),
            sync,
            told("question", adapter.query, "adapter.query"),
        ],
        Mode::K2 => vec![sync, part("question", Told::new(QUESTION, "the way through the API server"))],
        Mode::K2Plus | Mode::K3 => vec![part("call", Told::new(CALL, "the cluster's API"))],
    };
    parts.extend([part(START, start), part("retry", retry.clone()), part("dial", dial.clone())]);
    parts
}

fn scraped(shared: &Shared, tenant: &Tenant) -> Scraped {
    let it = &shared.prometheus;
    let told = |value, key: &str| Told::new(value, format!("tenants.{key}"));
    let probes = format!("tenant.{}.probes", tenant.name);
    Scraped {
        scrape: told(it.scrape, "prometheus.scrape"),
        timeout: told(it.timeout, "prometheus.timeout"),
        window: Some(told(it.window, "prometheus.window")),
        floor: Some(Told::new(tenant.floor(it.window, it.scrape), probes.clone())),
        probes: Told::new(tenant.probe_rate(), probes),
        relist: told(shared.adapter.relist, "adapter.relist"),
        max_age: told(shared.adapter.max_age, "adapter.max_age"),
    }
}

fn scaler(shared: &Shared, quiet: Told<Duration>) -> Scaler {
    let told = |value, key: &str| Told::new(value, format!("tenants.{key}"));
    Scaler {
        sync: told(shared.cluster.sync, "cluster.sync"),
        quiet,
        most: Told::new(1.0, "maxReplicas"),
        inactive: told(shared.alarms.inactive, "alarms.inactive"),
        restart: told(shared.edge.restart, "edge.restart"),
        observed: told(shared.alarms.scrape, "alarms.scrape"),
    }
}
