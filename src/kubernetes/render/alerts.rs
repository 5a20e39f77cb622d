//! The alarms: a sleeping backend must not alarm, one that cannot wake must.

use super::super::yaml::{self, Yaml, map, text};
use super::{JOB, MAY_SLEEP, WAKE_HOST, WRITTEN, time, wake_host};
use crate::fleet::model::{Mode, Shared, Tenant, Tenants, WorkloadKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long an object may be missing, or an app that must not sleep be without a pod.
const MISSING: Duration = Duration::from_secs(300);

/// An alarm before it has its place in a file.
struct Alert {
    name: &'static str,
    expr: String,
    lasts: Duration,
    severity: &'static str,
    summary: String,
    description: String,
}

/// The file of all of them.
pub(super) fn rules(tenants: &Tenants, mode: Mode) -> String {
    let mut rules = Vec::new();
    for tenant in &tenants.tenants {
        rules.extend(of_tenant(&tenants.shared, tenant, mode).into_iter().map(|alert| rule(alert, Some(tenant))));
    }
    rules.push(rule(unseen(&tenants.shared, mode), None));
    rules.push(rule(without_pod(&tenants.tenants), None));
    let group = map([("name", text("handover-sleep")), ("rules", Yaml::List(rules))]);
    let comment = format!("{WRITTEN}\nThey need kube-state-metrics; docs/kubernetes.md says what to do about each.");
    yaml::file(&comment, &[map([("groups", Yaml::List(vec![group]))])])
}

fn rule(alert: Alert, tenant: Option<&Tenant>) -> Yaml {
    let mut labels = vec![("severity".to_owned(), text(alert.severity))];
    if let Some(tenant) = tenant {
        labels.push(("tenant".to_owned(), text(tenant.name.as_str())));
        labels.push(("namespace".to_owned(), text(tenant.namespace.as_str())));
    }
    map([
        ("alert", text(alert.name)),
        ("expr", text(alert.expr)),
        ("for", text(time(alert.lasts))),
        ("labels", Yaml::Named(labels)),
        ("annotations", map([("summary", text(alert.summary)), ("description", text(alert.description))])),
    ])
}

fn of_tenant(shared: &Shared, tenant: &Tenant, mode: Mode) -> Vec<Alert> {
    let (name, workload) = (&tenant.name, &tenant.workload);
    let own = |series: &str, label: &str, more: &str| {
        format!("{series}{{namespace=\"{}\",{label}=\"{}\"{more}}}", tenant.namespace, workload.name)
    };
    let hpa = |field: &str, more: &str| {
        own(&format!("kube_horizontalpodautoscaler_{field}"), "horizontalpodautoscaler", more)
    };
    let (available, wanted) = match workload.kind {
        WorkloadKind::Deployment => ("kube_deployment_status_replicas_available", "kube_deployment_spec_replicas"),
        WorkloadKind::StatefulSet => ("kube_statefulset_status_replicas_ready", "kube_statefulset_replicas"),
    };
    let kind = workload.kind.word();
    let held = match mode {
        Mode::K1 => format!("caddy_http_requests_in_flight{{job=\"{JOB}\",{WAKE_HOST}=\"{}\"}}", wake_host(tenant)),
        _ => {
            let host = tenant.hosts.first().map(ToString::to_string).unwrap_or_default();
            format!("handover_gateway_held{{job=\"{JOB}\",host=\"{host}\"}}")
        }
    };
    let page = |name, expr, lasts, summary: String, description: &str| Alert {
        name,
        expr,
        lasts,
        severity: "page",
        summary,
        description: description.to_owned(),
    };
    vec![
        page(
            "BackendWakeStuck",
            format!("max({}) > 0\nunless\nmax({}) > 0", hpa("status_desired_replicas", ""), own(available, kind, "")),
            shared.alarms.stuck,
            format!("{name} is wanted, and no pod of it answers"),
            "The HPA asks for a pod and none becomes ready: look at the pod's events and its log.",
        ),
        page(
            "BackendHPAInactive",
            format!("max({}) == 0", hpa("status_condition", ",condition=\"ScalingActive\",status=\"true\"")),
            shared.alarms.inactive,
            format!("the HPA of {name} cannot read its metric"),
            "Asleep it never wakes. ScalingDisabled: scale the workload to 1 once, nothing else repairs it. Else look at the metric's way.",
        ),
        page(
            "BackendHPAAbsent",
            format!("absent({})", hpa("spec_max_replicas", "")),
            MISSING,
            format!("{name} has no HPA"),
            "Nothing wakes it. Apply its hpa.yaml; if the workload is at zero, scale it to 1 once. (Or kube-state-metrics is away.)",
        ),
        page(
            "BackendWorkloadAbsent",
            format!("absent({})", own(wanted, kind, "")),
            MISSING,
            format!("{name} has no {workload}"),
            "There is nothing that could be woken. (Or kube-state-metrics is away.)",
        ),
        page(
            "BackendHeldWithoutWake",
            format!("sum({held}) > 0\nand\nmax({}) == 0", own(wanted, kind, "")),
            shared.alarms.stuck,
            format!("requests wait for {name}, and nobody wakes it"),
            "The edge holds requests and the workload is at zero: look at the HPA's conditions (`kubectl describe hpa`).",
        ),
    ]
}

fn unseen(shared: &Shared, mode: Mode) -> Alert {
    Alert {
        name: "BackendEdgeUnseen",
        expr: format!("min(up{{job=\"{JOB}\"}}) == 0\nor\nabsent(up{{job=\"{JOB}\"}})"),
        lasts: shared.edge.restart.saturating_mul(2),
        severity: "page",
        summary: "an edge cannot be scraped".to_owned(),
        description: match mode {
            Mode::K1 => "What it holds wakes nobody. While none can be scraped, HPAs keep what they have.",
            _ => "If it is away, nobody is served and HPAs keep what they have.",
        }
        .to_owned(),
    }
}

/// The alarm for an app without a pod looks at what must not sleep only; one of your own gets the same `unless`.
fn without_pod(tenants: &[Tenant]) -> Alert {
    let namespaces: BTreeSet<&str> = tenants.iter().map(|tenant| tenant.namespace.as_str()).collect();
    let namespaces = namespaces.into_iter().collect::<Vec<_>>().join("|");
    let none = format!(
        "max by (namespace, deployment) (kube_deployment_status_replicas_available{{namespace=~\"{namespaces}\"}}) == 0"
    );
    Alert {
        name: "AppWithoutPod",
        expr: format!("{none}\nunless on (namespace, deployment)\n{MAY_SLEEP}"),
        lasts: MISSING,
        severity: "page",
        summary: "{{ $labels.namespace }}/{{ $labels.deployment }} has no pod".to_owned(),
        description: "It is none of those that may sleep.".to_owned(),
    }
}
