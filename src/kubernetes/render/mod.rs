//! What tenants become: every file with its text, the same for the same tenants.
//!
//! Nowhere a number of replicas: whoever applies a manifest with one puts a backend to sleep or wakes it.

mod alerts;
mod caddy;
mod hpa;
mod prometheus;

use super::yaml::Yaml;
use crate::fleet::model::{HostName, Mode, Tenant, Tenants};
use sha2::{Digest, Sha256};
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
}

/// Every file by its path. `names` leaves out the own manifests of all others; what tenants share is always whole.
///
/// # Errors
/// When a name is nobody's, or the mode cannot be rendered.
pub fn render(tenants: &Tenants, mode: Mode, names: &[String]) -> Result<BTreeMap<String, String>, NotRendered> {
    if let Some(name) = names.iter().find(|name| !tenants.tenants.iter().any(|tenant| tenant.name == **name)) {
        return Err(NotRendered::NoTenant(name.clone()));
    }
    if mode != Mode::K1 {
        return Err(NotRendered::NoMode(mode.word()));
    }
    let mut files = BTreeMap::from([
        ("caddy/Caddyfile".to_owned(), caddy::file(tenants)),
        ("prometheus/scrape.yaml".to_owned(), prometheus::scrape(tenants)),
        ("prometheus/wake.rules.yaml".to_owned(), prometheus::rules(tenants)),
        ("prometheus/alerts.rules.yaml".to_owned(), alerts::rules(tenants)),
        ("adapter/config.yaml".to_owned(), prometheus::adapter(tenants)),
    ]);
    let chosen = |tenant: &&Tenant| names.is_empty() || names.contains(&tenant.name);
    for tenant in tenants.tenants.iter().filter(chosen) {
        files.insert(format!("{}/hpa.yaml", tenant.name), hpa::manifest(tenant));
    }
    Ok(files)
}

/// The value of the label, which Kubernetes takes in a selector: the first host as it is, or a digest of it where it is longer than 63
/// letters or has others than `[a-z0-9.-]` in it.
#[must_use]
pub fn wake_host(tenant: &Tenant) -> String {
    tenant.hosts.first().map(label).unwrap_or_default()
}

fn label(host: &HostName) -> String {
    let text = host.as_str();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if text.len() <= 63 && text.chars().all(plain) && ends(text.chars().next()) && ends(text.chars().last()) {
        return text.to_owned();
    }
    let digest: String = Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("host-{digest}")
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
    fn a_host_that_kubernetes_takes_stays_and_any_other_becomes_a_digest() {
        let of = |text: &str| label(&HostName::parse(text).expect("a host"));
        assert_eq!(of("CMS.example.org:8443"), "cms.example.org");
        assert_eq!(of("bücher.example"), "xn--bcher-kva.example");
        for text in ["[2001:db8::1]", "_x.example", &format!("{}.{}.org", "a".repeat(40), "b".repeat(40))] {
            let label = of(text);
            assert!(label.starts_with("host-") && label.len() <= 63, "{text}: {label}");
        }
        assert_ne!(of("_x.example"), of("_y.example"));
    }

    #[test]
    fn times_are_written_in_whole_units() {
        for (millis, text) in [(55_000, "55s"), (60_000, "1m"), (90_000, "90s"), (1500, "1500ms")] {
            assert_eq!(time(Duration::from_millis(millis)), text);
        }
    }
}
