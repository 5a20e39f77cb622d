//! What tenants become: every file with its text, the same for the same tenants.
//!
//! Nowhere a number of replicas: whoever applies a manifest with one puts a backend to sleep or wakes it.

mod alerts;
mod caddy;
mod gateway;
mod hpa;
mod prometheus;

use super::yaml::Yaml;
use crate::fleet::model::{HostName, Mode, Tenant, Tenants};
use std::collections::BTreeMap;
use std::time::Duration;

/// The first line of everything that is rendered.
pub const WRITTEN: &str = "Written by `handover sleep render`; change tenants/*.toml instead.";
/// The metric that the HPA asks for.
pub const METRIC: &str = "tenant_http_requests_in_flight";
/// The label that names a tenant's host.
pub const WAKE_HOST: &str = "wake_host";
/// The scrape job of the edge.
const JOB: &str = "handover-edge";
/// The recorded series: what the HPA is shown, and what the adapter finds its name by.
const SIGNAL: &str = "handover_wake_signal";
const ANCHOR: &str = "handover_wake_anchor";
/// Which workloads may be without a pod.
const MAY_SLEEP: &str = "handover_may_sleep";

/// Why nothing can be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRendered {
    /// A name that no file has.
    #[error("no tenant `{0}`")]
    NoTenant(String),
    /// A mode that only some of the files can be written for.
    #[error("mode {0} cannot be rendered")]
    NoMode(&'static str),
    /// Nobody said what the gateway's pods run.
    #[error("`gateway.image` is missing in defaults.toml")]
    NoImage,
    /// A backend whose certificate the gateway would have to verify.
    #[error("the backend of tenant `{0}` speaks TLS: the gateway verifies certificates, and does not know whose")]
    NoAuthority(String),
}

/// Every file by its path. `names` leaves out the own manifests of all others; what tenants share is always whole.
///
/// # Errors
/// When a name is nobody's, or the mode cannot be rendered.
pub fn render(tenants: &Tenants, mode: Mode, names: &[String]) -> Result<BTreeMap<String, String>, NotRendered> {
    if let Some(name) = names.iter().find(|name| !tenants.tenants.iter().any(|tenant| tenant.name == **name)) {
        return Err(NotRendered::NoTenant(name.clone()));
    }
    let mut files = match mode {
        Mode::K1 => BTreeMap::from([
            ("caddy/Caddyfile".to_owned(), caddy::file(tenants)),
            ("adapter/config.yaml".to_owned(), prometheus::adapter(tenants)),
        ]),
        Mode::K2 | Mode::K2Plus => {
            let wakes = gateway::Wakes::from(mode == Mode::K2Plus);
            BTreeMap::from([("gateway/manifests.yaml".to_owned(), gateway::manifests(tenants, wakes)?)])
        }
        Mode::K3 => return Err(NotRendered::NoMode(mode.word())),
    };
    files.insert("prometheus/scrape.yaml".to_owned(), prometheus::scrape(tenants, mode));
    files.insert("prometheus/wake.rules.yaml".to_owned(), prometheus::rules(tenants, mode));
    files.insert("prometheus/alerts.rules.yaml".to_owned(), alerts::rules(tenants, mode));
    let chosen = |tenant: &&Tenant| names.is_empty() || names.contains(&tenant.name);
    for tenant in tenants.tenants.iter().filter(chosen) {
        files.insert(format!("{}/hpa.yaml", tenant.name), hpa::manifest(tenant));
    }
    Ok(files)
}

/// The value of the label that names a tenant: its first host's.
#[must_use]
pub fn wake_host(tenant: &Tenant) -> String {
    tenant.hosts.first().map(HostName::label).unwrap_or_default()
}

/// As Prometheus and Caddy read it: whole units, the largest first.
fn time(time: Duration) -> String {
    let millis = time.as_millis();
    match millis {
        millis if millis % 60_000 == 0 => format!("{}m", millis / 60_000),
        millis if millis % 1000 == 0 => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}

/// What every manifest's labels say.
fn labels(tenant: &Tenant) -> Yaml {
    Yaml::Named(vec![
        ("app.kubernetes.io/managed-by".to_owned(), Yaml::Text("handover".to_owned())),
        ("handover/tenant".to_owned(), Yaml::Text(tenant.name.clone())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_whole_units() {
        for (millis, text) in [(55_000, "55s"), (60_000, "1m"), (90_000, "90s"), (1500, "1500ms")] {
            assert_eq!(time(Duration::from_millis(millis)), text);
        }
    }
}
