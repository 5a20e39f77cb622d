//! The edge as a Caddyfile: each tenant's hosts, who may ask, what the edge answers itself, and the hold.

use super::{WRITTEN, time};
use crate::fleet::model::{EdgeSpec, Network, Tenant, Tenants};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Caddyfiles are formatted with tabs.
pub(super) fn file(tenants: &Tenants) -> String {
    let edge = &tenants.shared.edge;
    let mut out = format!("# {WRITTEN}\n");
    out.push_str("# Load it anew only while nobody waits: Caddy answers every held request with 502 then.\n");
    global(edge, &mut out);
    tenants.tenants.iter().for_each(|tenant| site(edge, tenant, &mut out));
    for port in ports(edge) {
        let _ = write!(out, "\nhttp://:{port} {{\n\tmetrics /metrics\n}}\n");
    }
    out
}

/// Of the addresses that Prometheus asks.
fn ports(edge: &EdgeSpec) -> BTreeSet<&str> {
    edge.metrics.iter().filter_map(|address| address.rsplit_once(':').map(|(_, port)| port)).collect()
}

fn global(edge: &EdgeSpec, out: &mut String) {
    out.push_str("{\n\tmetrics {\n\t\tper_host\n");
    // Without it a request that names the port is counted as `_other`, and held for a backend that it does not wake.
    out.push_str("\t\tobserve_catchall_hosts\n\t}\n\tservers {\n");
    if !edge.trusted_proxies.is_empty() {
        let _ = writeln!(out, "\t\ttrusted_proxies static {}", networks(&edge.trusted_proxies));
    }
    let _ = write!(out, "\t\ttimeouts {{\n\t\t\tidle {}\n\t\t}}\n\t}}\n}}\n", time(edge.keep_alive));
}

fn networks(all: &[Network]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn site(edge: &EdgeSpec, tenant: &Tenant, out: &mut String) {
    let scheme = if edge.tls { "https" } else { "http" };
    let hosts: Vec<String> = tenant.hosts.iter().map(|host| format!("{scheme}://{host}:{}", edge.port)).collect();
    let _ = writeln!(out, "\n# {}\n{} {{", tenant.name, hosts.join(", "));
    if let Some(allow) = &tenant.allow {
        let who =
            if allow.is_empty() { String::new() } else { format!("@stranger not client_ip {}\n\t", networks(allow)) };
        let matcher = if allow.is_empty() { "" } else { "@stranger " };
        let _ = write!(out, "\t{who}handle {matcher}{{\n\t\trespond 403\n\t}}\n");
    }
    for (at, probe) in tenant.probes.iter().enumerate() {
        let _ = write!(
            out,
            "\t@probe{at} path {}\n\thandle @probe{at} {{\n\t\trespond \"reached\" 200\n\t}}\n",
            probe.path
        );
    }
    let scheme = if tenant.tls { "https" } else { "http" };
    let _ = write!(
        out,
        "\thandle {{\n\t\treverse_proxy {scheme}://{}.{}.svc:{} {{\n\t\t\tlb_try_duration {}\n\t\t\tlb_try_interval {}\n\t\t\ttransport http {{\n\t\t\t\tdial_timeout {}\n",
        tenant.service,
        tenant.namespace,
        tenant.port,
        time(tenant.hold),
        time(edge.retry),
        time(edge.dial),
    );
    if let (true, Some(host)) = (tenant.tls, tenant.hosts.first()) {
        let _ = writeln!(out, "\t\t\t\ttls_server_name {host}");
    }
    out.push_str("\t\t\t}\n\t\t}\n\t}\n}\n");
}
