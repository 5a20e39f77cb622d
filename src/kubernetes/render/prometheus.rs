//! How the edge is scraped, what is made of it, and how prometheus-adapter shows that to the HPA.

use super::super::yaml::{self, Yaml, map, text, texts};
use super::{ANCHOR, JOB, MAY_SLEEP, METRIC, SIGNAL, WAKE_HOST, WRITTEN, time, wake_host};
use crate::fleet::model::{Mode, PrometheusSpec, Tenant, Tenants};

/// The scrape job, for `scrape_config_files`.
pub(super) fn scrape(tenants: &Tenants, mode: Mode) -> String {
    let it = &tenants.shared.prometheus;
    let mut job = vec![
        ("job_name", text(JOB)),
        ("scrape_interval", text(time(it.scrape))),
        ("scrape_timeout", text(time(it.timeout))),
    ];
    let targets = |all: Yaml| ("static_configs", Yaml::List(vec![map([("targets", all)])]));
    match mode {
        Mode::K1 => {
            job.push(targets(texts(tenants.shared.edge.metrics.clone())));
            job.push(("metric_relabel_configs", Yaml::List(relabels(tenants))));
        }
        // It names hosts as they are configured, and no others.
        _ => job.push(targets(texts([super::gateway::metrics(tenants)]))),
    }
    yaml::file(WRITTEN, &[map([("scrape_configs", Yaml::List(vec![Yaml::Map(job)]))])])
}

fn relabels(tenants: &Tenants) -> Vec<Yaml> {
    let mut relabel: Vec<Yaml> = tenants
        .tenants
        .iter()
        .flat_map(|tenant| tenant.hosts.iter().map(move |host| wakes(tenant, host.as_str())))
        .collect();
    // Whatever any client puts into its `Host` stays out of the database.
    relabel.push(map([
        ("source_labels", texts(["__name__", WAKE_HOST])),
        ("regex", text("caddy_http_.*;")),
        ("action", text("drop")),
    ]));
    relabel
}

/// One host, with any port or none: every host of a tenant is called by its first.
fn wakes(tenant: &Tenant, host: &str) -> Yaml {
    let host: String =
        host.chars().flat_map(|c| ["\\", ""][usize::from(!".[]".contains(c))].chars().chain([c])).collect();
    map([
        ("source_labels", texts(["__name__", "host"])),
        ("regex", text(format!("caddy_http_requests_(?:in_flight|total);{host}(?::[0-9]+)?"))),
        ("target_label", text(WAKE_HOST)),
        ("replacement", text(wake_host(tenant))),
    ])
}

/// The recording rules.
pub(super) fn rules(tenants: &Tenants, mode: Mode) -> String {
    let it = &tenants.shared.prometheus;
    let mut rules = Vec::new();
    for tenant in tenants.tenants.iter().filter(|_| mode == Mode::K1) {
        let host = || Yaml::Named(vec![(WAKE_HOST.to_owned(), text(wake_host(tenant)))]);
        rules.push(map([("record", text(ANCHOR)), ("expr", text("vector(1)")), ("labels", host())]));
        rules.push(map([("record", text(SIGNAL)), ("expr", text(signal(tenant, it))), ("labels", host())]));
    }
    for tenant in tenants.tenants.iter().filter(|tenant| tenant.sleep) {
        let workload = (tenant.workload.kind.word().to_owned(), text(tenant.workload.name.as_str()));
        let labels = Yaml::Named(vec![("namespace".to_owned(), text(tenant.namespace.as_str())), workload]);
        rules.push(map([("record", text(MAY_SLEEP)), ("expr", text("vector(1)")), ("labels", labels)]));
    }
    let group =
        map([("name", text("handover-wake")), ("interval", text(time(it.evaluate))), ("rules", Yaml::List(rules))]);
    let comment = match mode {
        Mode::K1 => signal_comment(),
        _ => WRITTEN.to_owned(),
    };
    yaml::file(&comment, &[map([("groups", Yaml::List(vec![group]))])])
}

fn signal_comment() -> String {
    format!(
        "{WRITTEN}\n{SIGNAL}: requests under way, and the rate above what probes make. Nothing while no edge is scraped, so that a blind\nPrometheus is no quiet one. {ANCHOR}: always there, so that the adapter never forgets the metric's name."
    )
}

fn signal(tenant: &Tenant, it: &PrometheusSpec) -> String {
    let host = wake_host(tenant);
    let series = |name: &str| format!("caddy_http_requests_{name}{{job=\"{JOB}\",{WAKE_HOST}=\"{host}\"}}");
    // Caddy has no series of a host before its first request.
    let zero = format!("0 * max(up{{job=\"{JOB}\"}} == 1)");
    let rate = format!("sum(rate({}[{}]))", series("total"), time(it.window));
    let above = match tenant.floor(it.window, it.scrape) {
        0.0 => rate,
        floor => format!("clamp_min({rate} - {floor}, 0)"),
    };
    let held = format!("sum(max_over_time({}[{}]))", series("in_flight"), time(it.latch));
    format!("({held} or {zero})\n+\n({above} or {zero})")
}

/// The adapter's configuration.
pub(super) fn adapter(tenants: &Tenants) -> String {
    let it = &tenants.shared.adapter;
    let rule = map([
        ("seriesQuery", text(format!("{ANCHOR}{{{WAKE_HOST}!=\"\"}}"))),
        ("resources", map([("namespaced", Yaml::Flag(false))])),
        ("name", map([("matches", text(format!("^{ANCHOR}$"))), ("as", text(METRIC))])),
        ("metricsQuery", text(format!("max by ({WAKE_HOST}) ({SIGNAL}{{<<.LabelMatchers>>}})"))),
    ]);
    let comment = format!(
        "{WRITTEN}\nStart the adapter with --metrics-relist-interval={} --metrics-max-age={}",
        time(it.relist),
        time(it.max_age)
    );
    yaml::file(&comment, &[map([("externalRules", Yaml::List(vec![rule]))])])
}
