//! The HPA of a tenant.

use super::super::yaml::{self, Yaml, map, text};
use super::{METRIC, WAKE_HOST, WRITTEN, labels, wake_host};
use crate::fleet::model::Tenant;

/// What may be at zero and wakes by one request; where sleep is taken back, the same with one pod at least, which also wakes it.
pub(super) fn manifest(tenant: &Tenant) -> String {
    // `matchLabels`: of `matchExpressions` the adapter makes a regular expression, in which a dot is any letter.
    let selector = map([("matchLabels", Yaml::Named(vec![(WAKE_HOST.to_owned(), text(wake_host(tenant)))]))]);
    let external = map([
        ("metric", map([("name", text(METRIC)), ("selector", selector)])),
        ("target", map([("type", text("AverageValue")), ("averageValue", text("1m"))])),
    ]);
    let policy = |kind: &str, value| {
        map([("type", text(kind)), ("value", Yaml::Whole(value)), ("periodSeconds", Yaml::Whole(15))])
    };
    let scale = |window, policy| {
        map([("stabilizationWindowSeconds", Yaml::Whole(window)), ("policies", Yaml::List(vec![policy]))])
    };
    let target = map([
        ("apiVersion", text("apps/v1")),
        ("kind", text(tenant.workload.kind.kind())),
        ("name", text(tenant.workload.name.as_str())),
    ]);
    let spec = map([
        ("scaleTargetRef", target),
        ("minReplicas", Yaml::Whole(u64::from(!tenant.sleep))),
        ("maxReplicas", Yaml::Whole(1)),
        ("metrics", Yaml::List(vec![map([("type", text("External")), ("external", external)])])),
        (
            "behavior",
            map([
                // A share of nothing is nothing: only a policy of pods leaves zero.
                ("scaleUp", scale(0, policy("Pods", 1))),
                ("scaleDown", scale(tenant.after.as_secs(), policy("Percent", 100))),
            ]),
        ),
    ]);
    let metadata = map([
        ("name", text(tenant.workload.name.as_str())),
        ("namespace", text(tenant.namespace.as_str())),
        ("labels", labels(tenant)),
    ]);
    let manifest = map([
        ("apiVersion", text("autoscaling/v2")),
        ("kind", text("HorizontalPodAutoscaler")),
        ("metadata", metadata),
        ("spec", spec),
    ]);
    yaml::file(
        &format!("{WRITTEN}\nNever delete it while the backend sleeps: nothing would wake it again."),
        &[manifest],
    )
}
