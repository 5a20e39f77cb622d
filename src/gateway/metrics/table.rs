//! Every metric there is, as it is told.

/// A metric: its name, its kind, its labels, what it says.
pub(super) type Row = (&'static str, &'static str, &'static str, &'static str);

/// Every metric there is; `docs/gateway.md` shows this table.
pub(super) const TABLE: [Row; 21] = [
    (
        "handover_gateway_in_flight",
        "gauge",
        "host",
        "Requests that wait or are forwarded, and tunnels: whether somebody needs the backend now.",
    ),
    ("handover_gateway_held", "gauge", "host", "Requests that wait for the backend."),
    ("handover_gateway_active", "gauge", "host", "Requests that are forwarded or answered."),
    ("handover_gateway_tunnels", "gauge", "host", "Connections that became something else, such as WebSockets."),
    ("handover_gateway_backend_absent", "gauge", "host", "1 while the backend is known not to accept connections."),
    (
        "handover_gateway_requests_total",
        "counter",
        "host, outcome",
        "Requests by what became of them; probes and health checks are not among them.",
    ),
    ("handover_gateway_probes_total", "counter", "host", "Requests of monitoring, answered by the gateway."),
    (
        "handover_gateway_request_seconds",
        "histogram",
        "host",
        "From a request's head until its answer was out, waiting included.",
    ),
    ("handover_gateway_held_seconds", "histogram", "host", "How long requests waited that did wait."),
    (
        "handover_gateway_scaled_total",
        "counter",
        "host, result",
        "Wakes of a workload through its scale, and calls of the cluster's API that failed.",
    ),
    ("handover_gateway_sleep_state", "gauge", "host, state", "1 for how a backend that may sleep stands."),
    (
        "handover_gateway_wake_wanted",
        "gauge",
        "host",
        "1 while somebody waits for a backend that is off, and two minutes longer: no scrape misses it.",
    ),
    (
        "handover_gateway_sleep_overdue_seconds",
        "gauge",
        "host",
        "How long a backend is awake although nobody needed it for the whole quiet window.",
    ),
    (
        "handover_gateway_wakes_total",
        "counter",
        "host, result",
        "Wakes that came to an accepted connection, and that failed.",
    ),
    (
        "handover_gateway_wake_part_seconds_total",
        "counter",
        "host, part",
        "How long wakes took: until the call, until the containers ran, until they accepted, until the first answer.",
    ),
    (
        "handover_gateway_sleeps_total",
        "counter",
        "host, result",
        "Sleeps that came to be, and that were due and did not.",
    ),
    (
        "handover_gateway_turned_away_total",
        "counter",
        "reason",
        "What belongs to no host: malformed, unknown, slow, evicted, failed handshakes.",
    ),
    (
        "handover_gateway_health_checks_total",
        "counter",
        "status",
        "The balancer's health checks by what they were answered.",
    ),
    ("handover_gateway_connections", "gauge", "", "Connections of clients."),
    ("handover_gateway_draining", "gauge", "", "1 while every health check is answered 503."),
    ("handover_gateway_reloads_total", "counter", "result", "Reloads that were taken and that were refused."),
];
