//! Caddy's own JSON: who holds, how long, and how the backend is found.

use super::super::fault::Fault;
use super::{Document, Places, at, duration};
use crate::config::Place;
use crate::config::yaml::Node;
use crate::fleet::timing::{Severity, Told};
use std::sync::Arc;
use std::time::Duration;

/// A proxy that may hold.
#[derive(Debug)]
pub(super) struct Proxy {
    /// Whom it is for; empty is everybody.
    pub hosts: Vec<String>,
    pub hold: Told<Duration>,
    pub retry: Told<Duration>,
    pub dial: Told<Duration>,
    pub keep_alive: Told<Duration>,
    /// How long an address is used again, where one is looked up again and again.
    pub refresh: Option<Told<Duration>>,
}

/// Caddy's own (documentation of `reverse_proxy` and of the HTTP app).
const RETRY: Duration = Duration::from_millis(250);
const DIAL: Duration = Duration::from_secs(3);
const REFRESH: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(300);

/// Every proxy of a configuration.
pub(super) fn read(document: &Document, places: &mut Places, faults: &mut Vec<Fault>) -> Vec<Proxy> {
    let Some(http) = at(&document.node, "apps.http") else { return Vec::new() };
    let mut found = Vec::new();
    metrics(document, http, faults);
    for server in http.get("servers").into_iter().flat_map(|servers| servers.entries()) {
        let mut reader = Reader { document, places, faults, found: &mut found, server: &server.node };
        reader.routes(&server.node, &[]);
    }
    found
}

fn is_on(node: Option<&Arc<Node>>) -> bool {
    node.and_then(|node| node.text()) == Some("true")
}

fn metrics(document: &Document, http: &Arc<Node>, faults: &mut Vec<Fault>) {
    let place = document.place(&http.span, "metrics");
    if !is_on(at(http, "metrics.per_host")) {
        let what = "requests are not counted by host: nobody can tell whose backend is wanted";
        let hint = "write `metrics { per_host }` into the global options";
        return faults.push(Fault::new("caddy-per-host", Severity::Error, Some(place), what, hint));
    }
    let plain = |server: &Arc<Node>| {
        is_on(at(server, "automatic_https.disable")) || at(server, "automatic_https.skip").is_some()
    };
    let servers = http.get("servers").into_iter().flat_map(|servers| servers.entries());
    if servers.into_iter().any(|server| plain(&server.node)) && !is_on(at(http, "metrics.observe_catchall_hosts")) {
        let what = "on a server without TLS a request that names the port is counted as `_other`: it is held, and wakes nothing";
        let hint = "write `observe_catchall_hosts` beside `per_host`";
        faults.push(Fault::new("caddy-port-in-host", Severity::Warning, Some(place), what, hint));
    }
}

struct Reader<'a> {
    document: &'a Document,
    places: &'a mut Places,
    faults: &'a mut Vec<Fault>,
    found: &'a mut Vec<Proxy>,
    server: &'a Arc<Node>,
}

impl Reader<'_> {
    /// Subroutes nest no deeper than the reader of the text allows.
    fn routes(&mut self, node: &Arc<Node>, hosts: &[String]) {
        for route in node.get("routes").into_iter().flat_map(|routes| routes.items()) {
            let own: Vec<String> = route
                .get("match")
                .into_iter()
                .flat_map(|all| all.items())
                .filter_map(|one| one.get("host"))
                .flat_map(|hosts| hosts.items())
                .filter_map(|host| host.text().map(ToOwned::to_owned))
                .collect();
            let hosts = if own.is_empty() { hosts } else { &own };
            for handler in route.get("handle").into_iter().flat_map(|all| all.items()) {
                match handler.get("handler").and_then(|node| node.text()) {
                    Some("subroute") => self.routes(handler, hosts),
                    Some("reverse_proxy") => self.proxy(handler, hosts),
                    _ => {}
                }
            }
        }
    }

    fn told(&mut self, node: Option<&Arc<Node>>, directive: &str, own: Duration) -> Told<Duration> {
        match node.and_then(|node| Some((duration(node.text()?)?, node))) {
            Some((value, node)) => {
                let place = self.document.place(&node.span, directive);
                self.places.told(value, directive, place)
            }
            None => Told::new(own, format!("Caddy's own {directive}")),
        }
    }

    fn fault(&mut self, id: &'static str, severity: Severity, place: Place, what: &str, hint: &str) {
        self.faults.push(Fault::new(id, severity, Some(place), what, hint));
    }

    fn proxy(&mut self, node: &Arc<Node>, hosts: &[String]) {
        let place = self.document.place(&node.span, "reverse_proxy");
        let hold = self.told(at(node, "load_balancing.try_duration"), "lb_try_duration", Duration::ZERO);
        if at(node, "load_balancing.try_duration").is_none() {
            let what = "nothing is held: the first request is answered 502, and is gone before anybody has measured it";
            self.fault("caddy-no-hold", Severity::Error, place.clone(), what, "write `lb_try_duration 55s`");
        }
        let refresh = at(node, "dynamic_upstreams").map(|source| (source.get("refresh").cloned(), source.clone()));
        let refresh = refresh.map(|(value, source)| {
            if node.get("upstreams").is_none_or(|all| all.items().is_empty()) {
                let what = "with nothing but names that are looked up, Caddy does not notice that a client left while the name is missing: his request waits on, wakes, and is executed for nobody";
                let place = self.document.place(&source.span, "dynamic");
                self.fault("caddy-dynamic-alone", Severity::Warning, place, what, "name the Service itself too, or only");
            }
            self.told(value.as_ref(), "refresh", REFRESH)
        });
        let server = Arc::clone(self.server);
        let proxy = Proxy {
            hosts: hosts.to_vec(),
            hold,
            retry: self.told(at(node, "load_balancing.try_interval"), "lb_try_interval", RETRY),
            dial: self.told(at(node, "transport.dial_timeout"), "dial_timeout", DIAL),
            keep_alive: self.told(server.get("idle_timeout"), "idle", IDLE),
            refresh,
        };
        self.found.push(proxy);
    }
}
