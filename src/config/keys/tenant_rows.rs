//! The rows of the key table that are about tenants: what they share, and what one of them says (`tenants/*.toml`).
//!
//! It may know nothing but values; `keys` gives them their meaning. These are files of their own, so their keys are no part of deploy.toml.

use super::rows::{SOME_TIME, count, key};
use super::{Form, Key, Kind, Need};
use Need::{Computed, Default, Optional, Required};

const NETWORKS: Kind = Kind::List { form: Form::Network, empty: true };
const LABEL: Kind = Kind::Text(Form::Label);
const INHERITED: Need = Computed("what `defaults.toml` says; needed in one of the two");

#[rustfmt::skip]
pub(super) const TENANT_ROWS: &[Key] = &[
    key("tenants", "mode", Kind::Word { now: &["k1", "k2", "k2+", "k3"], later: &[] }, Default("\"k1\""), "\"k1\"", "Who measures and who scales: `k1` Caddy, Prometheus, its adapter and the HPA; `k2` the gateway is the metric of the HPA; `k2+` and wakes by itself; `k3` the gateway alone."),
    key("tenants", "after", SOME_TIME, Optional, "\"30m\"", "How long nobody may have needed a backend before it sleeps."),
    key("tenants", "hold", SOME_TIME, Optional, "\"55s\"", "How long a request waits for a backend that is off."),
    key("tenants", "start", SOME_TIME, Optional, "\"12s\"", "The p99 of the pod's start, until it answers."),
    key("tenants", "port", count(1, 65_535, "port"), Optional, "8443", "Where the backend's Service listens."),
    key("tenants", "clients", Kind::Table("tenants.clients"), Optional, "{ balancer = \"60s\" }", "Who waits in front of the edge, and for how long."),
    key("tenants", "edge", Kind::Table("tenants.edge"), Optional, "{ metrics = [\"edge.edge.svc:9180\"] }", "The proxy before every tenant (`k1`)."),
    key("tenants", "prometheus", Kind::Table("tenants.prometheus"), Optional, "{ scrape = \"5s\" }", "How Prometheus asks the edge (`k1`)."),
    key("tenants", "adapter", Kind::Table("tenants.adapter"), Optional, "{ relist = \"30s\" }", "How prometheus-adapter asks Prometheus (`k1`)."),
    key("tenants", "gateway", Kind::Table("tenants.gateway"), Optional, "{ latch = \"30s\" }", "How the gateway wakes (`k2`, `k2+`, `k3`)."),
    key("tenants", "cluster", Kind::Table("tenants.cluster"), Optional, "{ version = \"1.37\" }", "The cluster."),
    key("tenants", "alarms", Kind::Table("tenants.alarms"), Optional, "{ stuck = \"45s\" }", "When somebody is told."),
    key("tenants", "never", Kind::Tables("tenants.never"), Optional, "[{ workload = \"deployment/app-consumer\", reason = \"it measures itself\" }]", "Workloads that must not sleep, each with the reason; a tenant that names one is refused."),

    key("tenants.clients", "balancer", SOME_TIME, Default("\"60s\""), "\"60s\"", "How long whatever stands before the edge waits without a byte of an answer. An ALB's own default."),
    key("tenants.clients", "patience", SOME_TIME, Default("\"60s\""), "\"60s\"", "How long the least patient client waits that may come first. MCP's TypeScript SDK gives up after 60 s."),

    key("tenants.edge", "version", Kind::Text(Form::Version), Default("\"2.11.7\""), "\"2.11.7\"", "Caddy's version."),
    key("tenants.edge", "port", count(1, 65_535, "port"), Default("443"), "8080", "Where it listens."),
    key("tenants.edge", "tls", Kind::Bool, Default("true"), "false", "Whether clients speak TLS to it."),
    key("tenants.edge", "trusted_proxies", NETWORKS, Default("[]"), "[\"10.0.0.0/16\"]", "Only through these is a client's address read from a header."),
    key("tenants.edge", "metrics", Kind::List { form: Form::Address, empty: false }, Default("[\"edge.edge.svc:9180\"]"), "[\"edge.edge.svc:9180\"]", "Where Prometheus asks each of its replicas."),
    key("tenants.edge", "retry", SOME_TIME, Default("\"1s\""), "\"1s\"", "Between two tries of a held request."),
    key("tenants.edge", "dial", SOME_TIME, Default("\"1s\""), "\"1s\"", "How long one try waits for a connection."),
    key("tenants.edge", "keep_alive", SOME_TIME, Default("\"75s\""), "\"75s\"", "How long it keeps an idle connection of a client."),
    key("tenants.edge", "restart", SOME_TIME, Default("\"30s\""), "\"30s\"", "How long its restart keeps it away."),

    key("tenants.prometheus", "scrape", SOME_TIME, Default("\"5s\""), "\"5s\"", "From one question to the next."),
    key("tenants.prometheus", "timeout", SOME_TIME, Default("\"1s\""), "\"1s\"", "How long one may take."),
    key("tenants.prometheus", "evaluate", SOME_TIME, Default("\"5s\""), "\"5s\"", "From one evaluation of the recording rules to the next."),
    key("tenants.prometheus", "window", SOME_TIME, Default("\"2m\""), "\"2m\"", "The window of the rate that keeps a backend awake."),
    key("tenants.prometheus", "latch", SOME_TIME, Default("\"30s\""), "\"30s\"", "For how long a request that was seen once is shown, so that the HPA sees it too."),

    key("tenants.adapter", "query", SOME_TIME, Default("\"1s\""), "\"1s\"", "How long its question to Prometheus takes."),
    key("tenants.adapter", "relist", SOME_TIME, Default("\"30s\""), "\"30s\"", "`--metrics-relist-interval`: how often it looks which metrics there are."),
    key("tenants.adapter", "max_age", SOME_TIME, Default("\"1m\""), "\"1m\"", "`--metrics-max-age`: for how long it remembers one that is gone."),

    key("tenants.gateway", "image", Kind::Text(Form::Line), Optional, "\"registry.example.org/handover:0.1.0\"", "The image with `handover` as its entry point; needed to render a mode with the gateway."),
    key("tenants.gateway", "namespace", LABEL, Default("\"handover\""), "\"handover\"", "Where it runs."),
    key("tenants.gateway", "trusted_proxies", NETWORKS, Default("[]"), "[\"10.0.0.0/16\"]", "Only through these is a client's address read from a header."),
    key("tenants.gateway", "interval", Kind::Duration { min: 25, max: 100 }, Default("\"100ms\""), "\"100ms\"", "Between two looks whether a backend accepts."),
    key("tenants.gateway", "connect", SOME_TIME, Default("\"1s\""), "\"1s\"", "How long one look waits for a connection."),
    key("tenants.gateway", "latch", SOME_TIME, Default("\"30s\""), "\"30s\"", "For how long the HPA is shown a request that is over."),

    key("tenants.cluster", "version", Kind::Text(Form::Version), Default("\"1.37\""), "\"1.37\"", "The version of its control plane."),
    key("tenants.cluster", "sync", SOME_TIME, Default("\"15s\""), "\"15s\"", "`--horizontal-pod-autoscaler-sync-period`: from one look of the HPA to the next."),

    key("tenants.alarms", "stuck", SOME_TIME, Default("\"45s\""), "\"45s\"", "How long a wake may last before it is called stuck."),
    key("tenants.alarms", "inactive", SOME_TIME, Default("\"5m\""), "\"5m\"", "How long the HPA may be without its metric."),
    key("tenants.alarms", "scrape", SOME_TIME, Default("\"30s\""), "\"30s\"", "How often kube-state-metrics is asked."),

    key("tenants.never", "workload", Kind::Text(Form::Workload), Required, "\"deployment/app-consumer\"", "Which."),
    key("tenants.never", "reason", Kind::Text(Form::Line), Required, "\"it measures itself, and at zero nobody would\"", "Why."),

    key("tenant", "sleep", Kind::Bool, Required, "true", "The switch: `false` takes sleep back; the backend is woken and stays up."),
    key("tenant", "hosts", Kind::List { form: Form::Host, empty: false }, Required, "[\"cms.example.org\"]", "The hosts that the backend answers, the first is what its metrics are called by."),
    key("tenant", "namespace", LABEL, Required, "\"tenant-example\"", "Its namespace."),
    key("tenant", "workload", Kind::Text(Form::Workload), Required, "\"deployment/app-backend\"", "What is scaled: `deployment/NAME` or `statefulset/NAME`."),
    key("tenant", "service", LABEL, Computed("the name of the workload"), "\"app-backend\"", "The Service through which the edge reaches it; not a headless one, whose name is missing while no pod runs."),
    key("tenant", "port", count(1, 65_535, "port"), INHERITED, "8443", "Where that Service listens."),
    key("tenant", "tls", Kind::Bool, Default("false"), "true", "Whether the backend speaks TLS."),
    key("tenant", "after", SOME_TIME, INHERITED, "\"30m\"", "How long nobody may have needed it before it sleeps."),
    key("tenant", "hold", SOME_TIME, INHERITED, "\"55s\"", "How long a request waits for it."),
    key("tenant", "start", SOME_TIME, INHERITED, "\"12s\"", "The p99 of its pod's start, until it answers."),
    key("tenant", "probes", Kind::Tables("tenant.probes"), Optional, "[{ path = \"/health\", every = \"60s\" }]", "Checks of the monitoring that the edge answers itself; what they add to the rate is no use."),
    key("tenant", "allow", NETWORKS, Computed("everybody"), "[\"198.51.100.0/24\"]", "Who may ask; everybody else is answered 403 and wakes nothing for longer than that takes."),

    key("tenant.probes", "path", Kind::Text(Form::UrlPath), Required, "\"/health\"", "What is asked for."),
    key("tenant.probes", "every", SOME_TIME, Required, "\"60s\"", "How often, all places that ask taken together."),
];
