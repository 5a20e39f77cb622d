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
    key("gateway", "trusted_proxies", NETWORKS, Default("[]"), "[\"10.0.0.0/16\"]", "Only through these is a client's address read from `X-Forwarded-For`, and only theirs are such headers passed on."),
    key("gateway", "held", count(1, 1_000_000, "requests"), Default("20000"), "20000", "How many requests wait at a time, in all; the next one is answered 503 at once."),
    key("gateway", "connections", count(16, 1_000_000, "connections"), Default("40000"), "40000", "How many connections of clients are kept; beyond that the idle and the slowest to begin go first. The limit of open files is raised as far as it can be, and where it allows fewer, fewer are kept."),
    key("gateway", "head_timeout", SOME_TIME, Default("\"10s\""), "\"10s\"", "How long the head of a request may take from its first byte, and a TLS handshake."),
    key("gateway", "keep_alive", SOME_TIME, Default("\"75s\""), "\"75s\"", "How long an idle connection of a client is kept; longer than the balancer's idle timeout, or it sends requests into closed connections."),
    key("gateway", "body_timeout", SOME_TIME, Default("\"60s\""), "\"60s\"", "How long a client may send nothing of a body that it began."),
    key("gateway", "send_timeout", SOME_TIME, Default("\"60s\""), "\"60s\"", "How long a client may take nothing of its answer."),
    key("gateway", "head_bytes", count(1024, 1_048_576, "bytes"), Default("32768"), "32768", "How long a request's head may be, in bytes."),
    key("gateway", "drain_file", FILE, Optional, "\"/run/mythex/drain\"", "While this file is there, every health check is answered 503 and everything else goes on: `drain.file` of deploy.toml."),
    key("gateway", "control", FILE, Optional, "\"/run/handover/gateway.sock\"", "The socket at which `handover gateway --take-over` asks for the listeners; made by the gateway, for its own user only."),
    key("gateway", "shutdown", ANY_TIME, Default("\"60s\""), "\"60s\"", "How long a stop (SIGTERM, SIGINT) waits for what runs and what is held."),
    key("gateway", "finish", ANY_TIME, Default("\"1h\""), "\"1h\"", "How long a process that handed its listeners over waits for what runs, what is held and its clients' open connections."),
    key("gateway", "workers", count(1, 1024, "threads"), Computed("as many as there are processors"), "2", "How many threads serve."),
    key("gateway", "watch", Kind::Duration { min: 100, max: DAY }, Optional, "\"2s\"", "How often the file is looked at, and read again when it changed; without it SIGHUP alone says so."),
    key("gateway", "host", Kind::Tables("gateway.host"), Required, "[{ name = \"cms.example.org\", backend = \"http://127.0.0.1:9000\" }]", "Whom requests are for."),
    key("gateway", "health", Kind::Tables("gateway.health"), Optional, "[{ path = \"/health\", group = \"mythex-api\" }]", "The balancer's health checks, which the gateway answers itself, whatever host they name."),
    key("gateway", "probe", Kind::Tables("gateway.probe"), Optional, "[{ user_agent = \"blackbox-exporter\" }]", "How monitoring is recognised, which the gateway answers itself with what it knows of the host."),

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
    key("gateway.host", "class", Kind::Tables("gateway.host.class"), Optional, "[{ user_agent = \"mcp\", hold = \"25s\" }]", "Clients that wait shorter or longer; the first that fits counts."),

    key("gateway.host.class", "path", TEXT, Optional, "\"/mcp*\"", "The path, without its query; with a `*` at the end everything below."),
    key("gateway.host.class", "user_agent", TEXT, Optional, "\"mcp\"", "A part of the user agent, in whatever letters."),
    key("gateway.host.class", "source", NETWORKS, Default("[]"), "[\"10.0.0.0/8\"]", "Where they come from."),
    key("gateway.host.class", "hold", ANY_TIME, Required, "\"25s\"", "How long they wait at most."),

    key("gateway.health", "path", Kind::Text(Form::UrlPath), Required, "\"/health\"", "What the balancer asks for."),
    key("gateway.health", "group", Kind::Text(Form::Group), Optional, "\"mythex-api\"", "The group whose check it is, which its answer names."),
    key("gateway.health", "drain_file", FILE, Optional, "\"/run/mythex/drain-api\"", "While this file is there, this check alone is answered 503."),

    key("gateway.probe", "path", TEXT, Optional, "\"/probe\"", "The path, without its query; with a `*` at the end everything below."),
    key("gateway.probe", "user_agent", TEXT, Optional, "\"blackbox-exporter\"", "A part of the user agent, in whatever letters."),
    key("gateway.probe", "source", NETWORKS, Default("[]"), "[\"10.0.9.0/24\"]", "Where they come from."),
];
