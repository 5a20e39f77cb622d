//! What people wrote themselves: the story's files, and a set that is right with each fault in turn, each with exactly the findings that it has.

use handover::config::{Source, tenants_from};
use handover::fleet::model::Mode;
use handover::fleet::timing::{Severity, Unit, of_wake};
use handover::kubernetes::{Besides, Given, read, render};
use std::collections::BTreeMap;
use std::time::Duration;

const DEFAULTS: &str = include_str!("../../../tenants/defaults.toml");
const EXAMPLE: &str = include_str!("../../../tenants/example.toml");
/// What Caddy 2.11.7 makes of the rendered Caddyfile; the suite with a real one keeps it fresh.
const ADAPTED: &str = include_str!("../fixtures/sleep-story/rendered-caddy.json");

/// One of either kind.
#[derive(Debug, Clone)]
pub enum Finding {
    Relation { id: &'static str, left: String, right: String, holds: bool, fails: bool, cost: Option<String> },
    Fault { id: &'static str, text: String },
}

type Files = BTreeMap<&'static str, String>;

/// The story's, by what they are.
pub fn of_story() -> Files {
    BTreeMap::from([
        ("hpa.yaml", include_str!("../fixtures/sleep-story/hpa.yaml").to_owned()),
        ("caddy.json", include_str!("../fixtures/sleep-story/caddy.json").to_owned()),
        ("prometheus.yaml", include_str!("../fixtures/sleep-story/prometheus.yaml").to_owned()),
        ("adapter.yaml", include_str!("../fixtures/sleep-story/adapter.yaml").to_owned()),
        ("rules.yaml", include_str!("../fixtures/sleep-story/rules.yaml").to_owned()),
    ])
}

/// A set without any fault: what is rendered for the example.
fn right() -> Files {
    let sources = [("example".to_owned(), Source::new("example.toml", EXAMPLE))];
    let tenants = tenants_from(&Source::new("defaults.toml", DEFAULTS), &sources).expect("tenants").tenants;
    let files = render(&tenants, Mode::K1, &[]).expect("rendered");
    BTreeMap::from([
        ("hpa.yaml", files["example/hpa.yaml"].clone()),
        ("caddy.json", ADAPTED.to_owned()),
        ("prometheus.yaml", files["prometheus/scrape.yaml"].clone()),
        ("adapter.yaml", files["adapter/config.yaml"].clone()),
        ("rules.yaml", files["prometheus/wake.rules.yaml"].clone()),
        ("alerts.yaml", files["prometheus/alerts.rules.yaml"].clone()),
    ])
}

/// Everything that is found.
pub fn findings(files: &Files, probes: Option<f64>) -> Vec<Finding> {
    let given: Vec<Given> =
        files.iter().map(|(name, text)| Given { source: Source::new(*name, text.as_str()), adapted: None }).collect();
    let minute = Duration::from_secs(60);
    let besides = Besides {
        start: Some(Duration::from_secs(12)),
        balancer: minute,
        patience: minute,
        missing: Duration::from_secs(30),
        probes,
    };
    let found = read(&given, &besides).unwrap_or_else(|problems| panic!("{problems}"));
    let shown = |value: Option<f64>, unit| match unit {
        Unit::Seconds => format!("{}s", value.expect("known")),
        Unit::PerSecond => format!("{:.3}/s", value.expect("known")),
        _ => value.expect("known").to_string(),
    };
    let mut all = Vec::new();
    for finding in found.wakes.iter().flat_map(of_wake) {
        let reading = &finding.reading;
        if let Some(holds) = reading.holds() {
            all.push(Finding::Relation {
                id: finding.invariant.id,
                left: shown(reading.left.value(), reading.unit),
                right: shown(reading.right.value(), reading.unit),
                holds,
                fails: finding.fails_check(),
                cost: reading.cost.clone(),
            });
        }
    }
    for fault in &found.faults {
        assert!(fault.place.is_some() || fault.id == "no-inactive-alarm", "{fault:?} stands nowhere");
        assert!(fault.severity >= Severity::Warning);
        all.push(Finding::Fault { id: fault.id, text: fault.text.clone() });
    }
    all
}

/// The names of what fails.
fn broken(files: &Files, probes: Option<f64>) -> Vec<&'static str> {
    let mut names: Vec<&str> = findings(files, probes)
        .iter()
        .filter_map(|finding| match finding {
            Finding::Relation { id, fails, .. } => fails.then_some(*id),
            Finding::Fault { id, .. } => Some(*id),
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_story_has_exactly_these_faults() {
    let expected = [
        "adapter-no-anchor",
        "hpa-selector-pattern",
        "prometheus-open-hosts",
        "tenant-alarm-within-hold",
        "tenant-answer-within-patience",
        "tenant-hold-within-patience",
        "tenant-probes-below-floor",
        "tenant-wake-within-hold",
    ];
    assert_eq!(broken(&of_story(), Some(0.6)), expected);
    // Its own probes, one a minute, stay below its floor.
    let own: Vec<&str> = expected.into_iter().filter(|id| *id != "tenant-probes-below-floor").collect();
    assert_eq!(broken(&of_story(), Some(1.0 / 60.0)), own);
}

#[test]
fn what_is_rendered_has_none() {
    assert_eq!(broken(&right(), Some(1.0 / 60.0)), Vec::<&str>::new());
}

/// One change in a set that is right.
struct Variant {
    file: &'static str,
    from: &'static str,
    to: &'static str,
    found: &'static [&'static str],
}

const fn variant(file: &'static str, from: &'static str, to: &'static str, found: &'static [&'static str]) -> Variant {
    Variant { file, from, to, found }
}

const SLOW: &[&str] = &["tenant-answer-within-patience", "tenant-wake-before-alarm", "tenant-wake-within-hold"];
const LABELS: &str = "matchLabels:\n              wake_host: cms.example.org";
const UP: &str = "- type: Pods\n          value: 1\n          periodSeconds: 15";

#[rustfmt::skip]
const VARIANTS: &[Variant] = &[
    // The HPA.
    variant("hpa.yaml", "AverageValue", "Value", &["hpa-value-target"]),
    variant("hpa.yaml", LABELS, "matchExpressions:\n              - {key: wake_host, operator: In, values: [cms.example.org]}", &["hpa-selector-pattern"]),
    variant("hpa.yaml", "wake_host: cms.example.org", "wake_host: \"cms.example.org:8443\"", &["hpa-label-value"]),
    variant("hpa.yaml", "wake_host: cms.example.org", "wake_host: \"*.example.org\"", &["hpa-label-value"]),
    variant("hpa.yaml", "wake_host: cms.example.org", "wake_host: cms.example.org.", &["hpa-label-value"]),
    variant("hpa.yaml", "wake_host: cms.example.org", "wake_host: _other", &["hpa-label-value"]),
    variant("hpa.yaml", "wake_host: cms.example.org", "wake_host: a123456789.a123456789.a123456789.a123456789.a123456789.a123456789", &["hpa-label-value"]),
    variant("hpa.yaml", UP, "- {type: Percent, value: 100, periodSeconds: 15}", &["hpa-percent-only"]),
    variant("hpa.yaml", UP, "- {type: Pods, value: 1, periodSeconds: 3600}", &["hpa-policy-period"]),
    variant("hpa.yaml", "averageValue: \"1m\"", "averageValue: \"0\"", &["hpa-target"]),
    variant("hpa.yaml", "stabilizationWindowSeconds: 1800", "stabilizationWindowSeconds: 7200", &["tenant-quiet-is-taken"]),
    variant("hpa.yaml", "stabilizationWindowSeconds: 1800", "stabilizationWindowSeconds: 60", &["tenant-quiet-outlasts-wake"]),
    variant("hpa.yaml", "stabilizationWindowSeconds: 0", "stabilizationWindowSeconds: 60", &["tenant-answer-within-patience", "tenant-latch-outlasts-sync", "tenant-wake-before-alarm", "tenant-wake-within-hold"]),
    variant("hpa.yaml", "maxReplicas: 1", "maxReplicas: 3", &["tenant-one-pod"]),
    variant("hpa.yaml", "name: tenant_http_requests_in_flight", "name: tenant_http_requests", &["adapter-no-metric"]),
    variant("hpa.yaml", "apiVersion: autoscaling/v2\n", "{kind: Deployment, metadata: {name: app-backend}, spec: {replicas: 1}}\n---\napiVersion: autoscaling/v2\n", &["spec-replicas"]),
    variant("hpa.yaml", "apiVersion: autoscaling/v2\n", "{kind: StatefulSet, metadata: {name: app-backend}, spec: {replicas: 0}}\n---\napiVersion: autoscaling/v2\n", &["spec-replicas"]),
    variant("hpa.yaml", "apiVersion: autoscaling/v2\n", "{kind: Deployment, metadata: {name: other}, spec: {replicas: 1}}\n---\napiVersion: autoscaling/v2\n", &[]),
    // Caddy.
    variant("caddy.json", "\"try_duration\": 55000000000", "\"try_duration\": 90000000000", &["tenant-hold-within-patience"]),
    variant("caddy.json", "\"try_duration\": 55000000000,", "", &["caddy-no-hold", "tenant-alarm-within-hold", "tenant-dial-within-hold", "tenant-wake-within-hold"]),
    variant("caddy.json", "\"try_interval\": 1000000000", "\"try_interval\": 2000000000", &["tenant-retry-is-short"]),
    variant("caddy.json", "\"dial_timeout\": 1000000000", "\"dial_timeout\": 8000000000", &["tenant-dial-within-hold", "tenant-wake-before-alarm", "tenant-wake-within-hold"]),
    variant("caddy.json", "\"idle_timeout\": 75000000000", "\"idle_timeout\": 30000000000", &["tenant-keep-alive-outlasts-balancer"]),
    variant("caddy.json", "\"per_host\": true", "\"per_host\": false", &["caddy-per-host"]),
    variant("caddy.json", "\"handler\": \"reverse_proxy\",", "\"handler\": \"reverse_proxy\", \"dynamic_upstreams\": {\"source\": \"a\", \"name\": \"h\", \"refresh\": 10000000000},", SLOW),
    variant("caddy.json", "\"handler\": \"reverse_proxy\",", "\"handler\": \"reverse_proxy\", \"dynamic_upstreams\": {\"source\": \"a\", \"name\": \"h\"},", &["tenant-answer-within-patience", "tenant-names-within-hold", "tenant-wake-before-alarm", "tenant-wake-within-hold"]),
    // Prometheus.
    variant("prometheus.yaml", "scrape_interval: \"5s\"", "scrape_interval: \"20s\"", SLOW),
    variant("prometheus.yaml", "scrape_interval: \"5s\"", "scrape_interval: \"500ms\"", &["tenant-timeout-within-scrape"]),
    variant("prometheus.yaml", "target_label: wake_host", "target_label: other", &["prometheus-no-label"]),
    variant("prometheus.yaml", "replacement: cms.example.org", "replacement: $1", &["prometheus-open-hosts"]),
    // What is recorded.
    variant("rules.yaml", "sum(max_over_time(caddy_http_requests_in_flight{job=\"handover-edge\",wake_host=\"cms.example.org\"}[30s])) or", "", &["signal-ended-only"]),
    variant("rules.yaml", "clamp_min(sum(rate", "(sum(rate", &["signal-negative"]),
    variant("rules.yaml", "[2m])) - 0.0273", "[2m])) / 2 - 0.0273", &["signal-division"]),
    variant("rules.yaml", "[2m]", "[15s]", &["tenant-window-holds-samples"]),
    variant("rules.yaml", "[30s]", "[10s]", &["tenant-latch-outlasts-sync"]),
    variant("rules.yaml", "- 0.0273", "- 0.01", &["tenant-probes-below-floor"]),
    variant("rules.yaml", "interval: \"5s\"", "interval: \"30s\"", &["tenant-answer-within-patience", "tenant-latch-outlasts-sync", "tenant-wake-before-alarm", "tenant-wake-within-hold"]),
    // The adapter.
    variant("adapter.yaml", "as: tenant_http_requests_in_flight", "as: other", &["adapter-no-metric"]),
    variant("adapter.yaml", "handover_wake_anchor{", "caddy_http_requests_in_flight{", &["adapter-no-anchor"]),
    variant("adapter.yaml", "namespaced: false", "namespaced: true", &["adapter-namespaced"]),
    variant("adapter.yaml", "externalRules:\n", "externalRules:\n  - {seriesQuery: x, resources: {namespaced: false}, name: {as: tenant_http_requests_in_flight}, metricsQuery: x}\n", &["adapter-name-twice"]),
    variant("adapter.yaml", "externalRules:\n", "---\nargs: [--metrics-relist-interval=2s, --metrics-max-age=1m]\n---\nexternalRules:\n", &["tenant-relist-covers-scrape"]),
    variant("adapter.yaml", "externalRules:\n", "---\nargs: [--metrics-relist-interval=2m, --metrics-max-age=1m]\n---\nexternalRules:\n", &["tenant-age-covers-relist"]),
    // The alarms.
    variant("alerts.yaml", "for: \"45s\"", "for: \"30s\"", &["tenant-wake-before-alarm"]),
    variant("alerts.yaml", "for: \"45s\"", "for: \"2m\"", &["tenant-alarm-within-hold"]),
    variant("alerts.yaml", "condition=\\\"ScalingActive", "condition=\\\"AbleToScale", &["no-inactive-alarm"]),
    variant("alerts.yaml", "for: \"5m\"", "for: \"1m\"", &["tenant-inactive-outlasts-restart"]),
    variant("alerts.yaml", "for: \"5m\"", "for: \"30m\"", &["tenant-inactive-is-told"]),
];

#[test]
fn each_fault_in_a_set_that_is_right_is_found_and_nothing_else() {
    let mut wrong = Vec::new();
    for Variant { file, from, to, found } in VARIANTS {
        let mut files = right();
        let text = files.get_mut(file).expect("a file");
        assert!(text.contains(from), "{file} has no {from:?}");
        *text = text.replace(from, to);
        let broken = broken(&files, Some(1.0 / 60.0));
        if broken != *found {
            wrong.push(format!("{file}: {from:?} -> {to:?}\n  found    {broken:?}\n  expected {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_metric_from_inside_cannot_wake_and_what_was_not_given_is_not_known() {
    let mut files = right();
    let hpa = files["hpa.yaml"].clone();
    let start = hpa.find("    - type: External").expect("metrics");
    let end = hpa.find("  behavior:").expect("behavior");
    let inside = "    - {type: Resource, resource: {name: cpu}}\n";
    files.insert("hpa.yaml", format!("{}{inside}{}", &hpa[..start], &hpa[end..]));
    assert_eq!(broken(&files, None), ["hpa-outside-metric"]);
    let alone = BTreeMap::from([("hpa.yaml", hpa)]);
    assert_eq!(broken(&alone, None), Vec::<&str>::new());
    assert!(findings(&alone, None).len() < findings(&right(), None).len());
}

#[test]
fn without_tls_a_name_with_a_port_is_counted_as_nobodys() {
    let mut files = right();
    let caddy = files.get_mut("caddy.json").expect("Caddy");
    *caddy = caddy.replacen("\"listen\":", "\"automatic_https\": {\"disable\": true}, \"listen\":", 1);
    assert_eq!(broken(&files, None), Vec::<&str>::new());
    let caddy = files.get_mut("caddy.json").expect("Caddy");
    *caddy = caddy.replace("\"observe_catchall_hosts\": true", "\"observe_catchall_hosts\": false");
    assert_eq!(broken(&files, None), ["caddy-port-in-host"]);
}

#[test]
fn whoever_gives_up_soon_is_lost_without_a_latch() {
    let mut files = right();
    let rules = files.get_mut("rules.yaml").expect("rules");
    *rules = rules.replace("max_over_time(", "(").replace("[30s]", "");
    let has = |patience| {
        let given: Vec<Given> = files
            .iter()
            .map(|(name, text)| Given { source: Source::new(*name, text.as_str()), adapted: None })
            .collect();
        let time = Duration::from_secs(patience);
        let besides = Besides { start: None, balancer: time, patience: time, missing: time, probes: None };
        let found = read(&given, &besides).expect("read");
        let all = of_wake(&found.wakes[0]);
        all.iter().any(|finding| finding.invariant.id == "tenant-seen-by-scrape" && finding.is_broken())
    };
    assert_eq!([10, 26, 27].map(has), [true, true, false]);
}
