//! The rows of the key table that are about the gateway, which may also stand in a file of their own.
//!
//! It may know nothing but values; `keys` gives them their meaning.

use super::rows::{ANY_TIME, DAY, SOME_TIME, count, key};
use super::{ANY, Form, Key, Kind, Need};
use Need::{Computed, Default, Optional, Required};

const HOUR: u64 = 3_600_000;
const BINDS: Kind = Kind::TextOrList(Form::Bind);
const NETWORKS: Kind = Kind::List { form: Form::Network, empty: true };
const TEXT: Kind = Kind::Text(Form::Line);
const FILE: Kind = Kind::Text(Form::File);

#[rustfmt::skip]
pub(super) const GATEWAY_ROWS: &[Key] = &[
    key("gateway", "listen", BINDS, Optional, "\"0.0.0.0:8000\"", "Where HTTP/1.1 and HTTP/2 are spoken without TLS: one address or several."),
    key("gateway", "listen_tls", BINDS, Optional, "\"0.0.0.0:8443\"", "Where they are spoken over TLS."),
    key("gateway", "certificate", Kind::Tables("gateway.certificate"), Optional, "[{ cert = \"/etc/handover/cert.pem\", key = \"/etc/handover/key.pem\" }]", "What is shown there: the first that is valid for the name asked for, else the first."),
    key("gateway", "metrics", Kind::Text(Form::Bind), Default("\"127.0.0.1:9180\""), "\"127.0.0.1:9180\"", "Where `/metrics` is answered; for nobody but this machine unless told otherwise."),
    key("gateway", "external_metrics", Kind::Table("gateway.external_metrics"), Optional, "{ listen = \"0.0.0.0:6443\", cert = \"/c\", key = \"/k\", client_ca = \"/a\" }", "Serves `external.metrics.k8s.io`: the HPA of a cluster reads here whose backend is wanted ([kubernetes.md](kubernetes.md))."),
    key("gateway", "trusted_proxies", NETWORKS, Default("[]"), "[\"10.0.0.0/16\"]", "Only through these is a client's address read from `X-Forwarded-For`, and only theirs are such headers passed on."),
    key("gateway", "held", count(1, 1_000_000, "requests"), Default("20000"), "20000", "How many requests wait at a time, in all; the next one is answered 503 at once."),
    key("gateway", "connections", count(16, 1_000_000, "connections"), Default("40000"), "40000", "How many connections of clients are kept; beyond that the idle and the slowest to begin go first. The limit of open files is raised as far as it can be, and where it allows fewer, fewer are kept."),
    key("gateway", "head_timeout", SOME_TIME, Default("\"10s\""), "\"10s\"", "How long the head of a request may take from its first byte, and a TLS handshake."),
    key("gateway", "keep_alive", SOME_TIME, Default("\"75s\""), "\"75s\"", "How long an idle connection of a client is kept; longer than the balancer's idle timeout, or it sends requests into closed connections."),
    key("gateway", "body_timeout", SOME_TIME, Default("\"60s\""), "\"60s\"", "How long a client may send nothing of a body that it began."),
    key("gateway", "send_timeout", SOME_TIME, Default("\"60s\""), "\"60s\"", "How long a client may take nothing of its answer."),
    key("gateway", "head_bytes", count(1024, 1_048_576, "bytes"), Default("32768"), "32768", "How long a request's head may be, in bytes."),
    key("gateway", "drain_file", FILE, Optional, "\"/run/mythex/drain\"", "While this file is there, every health check is answered 503 and everything else goes on: `drain.file` of deploy.toml."),
    key("gateway", "hold_file", FILE, Optional, "\"/run/mythex/hold\"", "While this file is there, every request is held, whatever its backend says: `drain.file` of deploy.toml with `by = \"hold\"` ([nodes.md](nodes.md#a-fleet-of-one))."),
    key("gateway", "control", FILE, Optional, "\"/run/handover/gateway.sock\"", "The socket at which `handover gateway --take-over` asks for the listeners; made by the gateway, for its own user only."),
    key("gateway", "shutdown", ANY_TIME, Default("\"60s\""), "\"60s\"", "How long a stop (SIGTERM, SIGINT) waits for what runs and what is held."),
    key("gateway", "finish", ANY_TIME, Default("\"1h\""), "\"1h\"", "How long a process that handed its listeners over waits for what runs, what is held and its clients' open connections."),
    key("gateway", "workers", count(1, 1024, "threads"), Computed("as many as there are processors"), "2", "How many threads serve."),
    key("gateway", "watch", Kind::Duration { min: 100, max: DAY }, Optional, "\"2s\"", "How often the file is looked at, and read again when it changed; without it SIGHUP alone says so."),
    key("gateway", "sleep", Kind::Table("gateway.sleep"), Optional, "{ project = \"mythex\", dir = \"/opt/mythex\" }", "Where the containers of those who sleep are found, and where it is written down; in deploy.toml everything in it has a default."),
    key("gateway", "host", Kind::Tables("gateway.host"), Required, "[{ name = \"cms.example.org\", backend = \"http://127.0.0.1:9000\" }]", "Whom requests are for."),
    key("gateway", "health", Kind::Tables("gateway.health"), Optional, "[{ path = \"/health\", group = \"mythex-api\" }]", "The balancer's health checks, which the gateway answers itself, whatever host they name."),
    key("gateway", "probe", Kind::Tables("gateway.probe"), Optional, "[{ user_agent = \"blackbox-exporter\" }]", "How monitoring is recognised, which the gateway answers itself with what it knows of the host."),

    key("gateway.external_metrics", "listen", Kind::Text(Form::Bind), Required, "\"0.0.0.0:6443\"", "Where the API server of the cluster asks, over TLS."),
    key("gateway.external_metrics", "cert", FILE, Required, "\"/etc/handover/tls/tls.crt\"", "What it is shown: the chain as PEM."),
    key("gateway.external_metrics", "key", FILE, Required, "\"/etc/handover/tls/tls.key\"", "Its key as PEM."),
    key("gateway.external_metrics", "client_ca", FILE, Required, "\"/etc/handover/front-proxy-ca.crt\"", "Whose certificate it must show: the cluster's `requestheader-client-ca-file`. Nobody else is answered."),
    key("gateway.external_metrics", "latch", SOME_TIME, Default("\"30s\""), "\"30s\"", "For how long a request that is over is still shown, so that the HPA sees it; longer than its period."),

    key("gateway.certificate", "cert", FILE, Required, "\"/etc/handover/cert.pem\"", "The chain as PEM, the server's own certificate first."),
    key("gateway.certificate", "key", FILE, Required, "\"/etc/handover/key.pem\"", "Its key as PEM."),

    key("gateway.host", "name", Kind::Text(Form::Host), Required, "\"cms.example.org\"", "What it is called, and the label of its metrics. Case, port and a dot at the end do not matter in requests."),
    key("gateway.host", "aliases", Kind::List { form: Form::Host, empty: true }, Default("[]"), "[\"www.example.org\"]", "What else it is called."),
    key("gateway.host", "backend", Kind::Text(Form::Backend), Required, "\"http://127.0.0.1:9000\"", "Who answers: `http://` or `https://`, a name or an address, a port."),
    key("gateway.host", "protocol", Kind::Word { now: &["http1", "http2"], later: &[] }, Default("\"http1\""), "\"http2\"", "What the backend speaks; gRPC needs `http2`."),
    key("gateway.host", "ca", FILE, Optional, "\"/etc/handover/ca.pem\"", "Whose certificates an `https://` backend must show; without it the machine's own root certificates."),
    key("gateway.host", "hold", ANY_TIME, Default("\"50s\""), "\"50s\"", "How long a request waits for a backend that does not accept; `0s` is not at all. Shorter than what sits in front waits for an answer."),
    key("gateway.host", "held", count(1, 1_000_000, "requests"), Default("10000"), "10000", "How many requests wait for it at a time; the next one is answered 503 at once."),
    key("gateway.host", "allow", Kind::List { form: Form::Network, empty: false }, Computed("everybody"), "[\"203.0.113.0/24\"]", "Who may ask; everybody else is answered 403."),
    key("gateway.host", "connect_interval", Kind::Duration { min: 25, max: 100 }, Default("\"25ms\""), "\"25ms\"", "Between two looks whether an absent backend accepts again: a connection, never a request."),
    key("gateway.host", "connect_timeout", Kind::Duration { min: 1, max: 60_000 }, Default("\"3s\""), "\"3s\"", "How long a connection to it may take."),
    key("gateway.host", "answer_timeout", SOME_TIME, Optional, "\"60s\"", "How long it may take to begin an answer; then 504."),
    key("gateway.host", "body_bytes", count(0, ANY, "bytes"), Optional, "10485760", "How long a request's body may be; a longer one is answered 413."),
    key("gateway.host", "reuse", Kind::Duration { min: 0, max: HOUR }, Default("\"4s\""), "\"4s\"", "For how long an idle connection to it is used again; shorter than the backend's own keep-alive."),
    key("gateway.host", "waiting_page", FILE, Optional, "\"/etc/handover/waiting.html\"", "An HTML file that a browser's page load is shown at once, with 503 and a reload, while the backend is absent; anything else waits."),
    key("gateway.host", "sleep", Kind::Table("gateway.host.sleep"), Optional, "{ services = [\"cms\"], after = \"30m\" }", "How its backend sleeps: off while nobody needs it, and started by the first request ([sleep.md](sleep.md)); without it, it never does."),
    key("gateway.host", "workload", Kind::Text(Form::ClusterWorkload), Optional, "\"tenant-example/deployment/app-backend\"", "In a cluster: what is scaled from zero to one when a request waits for it; its HPA reads `gateway.external_metrics` ([kubernetes.md](kubernetes.md))."),
    key("gateway.host", "class", Kind::Tables("gateway.host.class"), Optional, "[{ user_agent = \"mcp\", hold = \"25s\" }]", "Clients that wait shorter or longer; the first that fits counts."),

    key("gateway.host.class", "path", TEXT, Optional, "\"/mcp*\"", "The path, without its query; with a `*` at the end everything below."),
    key("gateway.host.class", "user_agent", TEXT, Optional, "\"mcp\"", "A part of the user agent, in whatever letters."),
    key("gateway.host.class", "source", NETWORKS, Default("[]"), "[\"10.0.0.0/8\"]", "Where they come from."),
    key("gateway.host.class", "hold", ANY_TIME, Required, "\"25s\"", "How long they wait at most."),

    key("gateway.sleep", "project", Kind::Text(Form::Project), Computed("`app`; needed in a file of its own"), "\"mythex\"", "The Compose project of the containers."),
    key("gateway.sleep", "dir", Kind::Text(Form::Folder), Computed("`release.dir`; needed in a file of its own"), "\"/opt/mythex\"", "The release folder that deploys use: who sleeps stands in `asleep` below it, where watchdog, bootstrap and deploys see it."),
    key("gateway.sleep", "lock", FILE, Computed("`lock.path`; in a file of its own `lock` in `dir`"), "\"/opt/mythex/lock\"", "The server lock: while somebody else holds it nothing is put to sleep, and a wake waits for a while."),
    key("gateway.sleep", "docker", FILE, Default("\"/var/run/docker.sock\""), "\"/var/run/docker.sock\"", "The socket of the Docker engine."),

    key("gateway.host.sleep", "services", Kind::List { form: Form::Service, empty: false }, Required, "[\"cms\"]", "Which services of the project are stopped and started; what they depend on is started too, in order, and never stopped."),
    key("gateway.host.sleep", "stay", Kind::List { form: Form::Service, empty: true }, Default("[]"), "[\"consumer\"]", "Services that must never sleep, so that nobody adds them above; say why in a comment."),
    key("gateway.host.sleep", "after", Kind::Duration { min: 1000, max: DAY }, Required, "\"30m\"", "How long nobody must have needed it: from the last request's end, or the last byte of what counts below."),
    key("gateway.host.sleep", "quiet", Kind::Duration { min: 1000, max: DAY }, Default("\"10m\""), "\"10m\"", "For how long an answer under way (an event stream) or a tunnel (a WebSocket) counts as use after its last byte. A request without an answer always counts."),
    key("gateway.host.sleep", "start", Kind::Duration { min: 1000, max: HOUR }, Default("\"40s\""), "\"40s\"", "How long a start may take until a connection is accepted; then it failed, and whoever waits is told."),
    key("gateway.host.sleep", "awake", Kind::Duration { min: 0, max: DAY }, Default("\"1m\""), "\"1m\"", "How long it stays awake after a wake, at least; a backend that ends sooner counts as a failed start."),
    key("gateway.host.sleep", "tries", count(1, 100, "starts"), Default("3"), "3", "After so many failed starts in a row it is left alone for `again`; after fewer for 1s, 2s, 4s and so on."),
    key("gateway.host.sleep", "again", Kind::Duration { min: 1000, max: DAY }, Default("\"5m\""), "\"5m\"", "For how long requests are then answered 503 at once instead of starting it again."),
    key("gateway.host.sleep", "busy", FILE, Optional, "\"/run/mythex/cms-busy\"", "A file that work in the background touches while it needs the backend: its time of change counts as use."),

    key("gateway.health", "path", Kind::Text(Form::UrlPath), Required, "\"/health\"", "What the balancer asks for."),
    key("gateway.health", "group", Kind::Text(Form::Group), Optional, "\"mythex-api\"", "The group whose check it is, which its answer names."),
    key("gateway.health", "drain_file", FILE, Optional, "\"/run/mythex/drain-api\"", "While this file is there, this check alone is answered 503."),

    key("gateway.probe", "path", TEXT, Optional, "\"/probe\"", "The path, without its query; with a `*` at the end everything below."),
    key("gateway.probe", "user_agent", TEXT, Optional, "\"blackbox-exporter\"", "A part of the user agent, in whatever letters."),
    key("gateway.probe", "source", NETWORKS, Default("[]"), "[\"10.0.9.0/24\"]", "Where they come from."),
];
