//! An HPA as somebody wrote it, and the workload that it scales.

use super::super::fault::Fault;
use super::{Document, Places, at, duration, number};
use crate::config::Place;
use crate::config::yaml::Node;
use crate::fleet::timing::{Severity, Told};
use std::sync::Arc;
use std::time::Duration;

/// What an HPA that may go to zero says.
#[derive(Debug)]
pub(super) struct Hpa {
    pub name: String,
    pub workload: String,
    pub metric: String,
    /// Label and value of its selector.
    pub selector: Vec<(String, String)>,
    pub quiet: Told<Duration>,
    pub up_window: Option<Told<Duration>>,
    pub most: Told<f64>,
}

/// The API's own window of scaling down.
const DOWN_WINDOW: Duration = Duration::from_secs(300);

/// Reads one; `None` where it is none, or never goes to zero.
pub(super) fn read(document: &Document, places: &mut Places, faults: &mut Vec<Fault>) -> Option<Hpa> {
    let node = &document.node;
    let is_one = node.get("kind").and_then(|kind| kind.text()) == Some("HorizontalPodAutoscaler");
    let spec = node.get("spec").filter(|_| is_one)?;
    let min = spec.get("minReplicas").and_then(|node| number(node)).unwrap_or(1.0);
    if min > 0.0 {
        return None;
    }
    let here = |node: &Node| document.place(&node.span, "");
    let text = |path: &str| at(node, path).and_then(|node| node.text()).unwrap_or_default().to_owned();
    let place = spec.get("minReplicas").map_or_else(|| here(spec), |node| here(node));
    let outside = spec.get("metrics").into_iter().flat_map(|metrics| metrics.items());
    let outside = outside.filter_map(|metric| metric.get("external").or_else(|| metric.get("object"))).next();
    let Some(external) = outside else {
        let what = "minReplicas: 0 without a metric from outside: at zero there is nobody whose CPU could be measured, and the API refuses it";
        faults.push(error("hpa-outside-metric", place, what, "add an External metric that is there while no pod runs"));
        return None;
    };
    target(external, &here, faults);
    let selector = selector(external, &here, faults);
    let behavior = spec.get("behavior");
    scale_up(behavior.and_then(|node| node.get("scaleUp")), &here, faults);
    let window = |path: &str| {
        let node = behavior.and_then(|node| at(node, path))?;
        Some((Duration::try_from_secs_f64(number(node)?).ok()?, here(node)))
    };
    let quiet = match window("scaleDown.stabilizationWindowSeconds") {
        Some((value, place)) => places.told(value, "stabilizationWindowSeconds", place),
        None => Told::new(DOWN_WINDOW, "the API's own stabilizationWindowSeconds"),
    };
    let up_window = window("scaleUp.stabilizationWindowSeconds").filter(|(value, _)| !value.is_zero());
    let up_window = up_window.map(|(value, place)| places.told(value, "stabilizationWindowSeconds", place));
    let most = match spec.get("maxReplicas").and_then(|node| Some((number(node)?, here(node)))) {
        Some((value, place)) => places.told(value, "maxReplicas", place),
        None => Told::unknown("the HPA says no maxReplicas"),
    };
    Some(Hpa {
        name: text("metadata.name"),
        workload: text("spec.scaleTargetRef.name"),
        metric: at(external, "metric.name").and_then(|node| node.text()).unwrap_or_default().to_owned(),
        selector,
        quiet,
        up_window,
        most,
    })
}

fn error(id: &'static str, place: Place, text: impl Into<String>, hint: &str) -> Fault {
    Fault::new(id, Severity::Error, Some(place), text, hint)
}

fn target(external: &Arc<Node>, here: &impl Fn(&Node) -> Place, faults: &mut Vec<Fault>) {
    let Some(target) = external.get("target") else { return };
    let kind = target.get("type");
    if let Some(kind) = kind.filter(|kind| kind.text() == Some("Value")) {
        let what = "with a target of type Value the HPA wants as many pods as are ready, which is none while the woken one starts: it is put back to zero";
        faults.push(error("hpa-value-target", here(kind), what, "use AverageValue"));
    }
    let amount = target.get("averageValue").or_else(|| target.get("value"));
    if let Some(node) = amount
        && node.text().is_some_and(|text| quantity(text).is_none_or(|value| value <= 0.0))
    {
        faults.push(error(
            "hpa-target",
            here(node),
            "a target must be more than nothing: the API refuses it",
            "write \"1m\"",
        ));
    }
}

/// A quantity of Kubernetes.
fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let unit = match &text[end..] {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        _ => return None,
    };
    Some(value * unit)
}

fn selector(external: &Arc<Node>, here: &impl Fn(&Node) -> Place, faults: &mut Vec<Fault>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let Some(selector) = at(external, "metric.selector") else { return found };
    let mut take = |key: &str, value: &Node| {
        let text = value.text().unwrap_or_default();
        if !is_label(text) {
            let what =
                format!("`{text}` is no value of a label: the API takes it, and the HPA can never read its metric");
            let hint = "a label has letters, digits, `-`, `_` and `.`, at most 63, a letter or digit at both ends: no port, no star, no dot at the end";
            faults.push(error("hpa-label-value", here(value), what, hint));
        }
        found.push((key.to_owned(), text.to_owned()));
    };
    for entry in selector.get("matchLabels").into_iter().flat_map(|node| node.entries()) {
        take(&entry.key, &entry.node);
    }
    let mut patterns = Vec::new();
    for one in selector.get("matchExpressions").into_iter().flat_map(|node| node.items()) {
        let key = one.get("key").and_then(|node| node.text()).unwrap_or_default();
        let values = one.get("values").map(|node| node.items()).unwrap_or_default();
        values.iter().for_each(|value| take(key, value));
        let operator = one.get("operator").and_then(|node| node.text()).unwrap_or_default();
        let dotted = values.iter().any(|value| value.text().is_some_and(|text| text.contains('.')));
        if matches!(operator, "In" | "NotIn") && dotted {
            patterns.push(here(one));
        }
    }
    for place in patterns {
        let what = "the adapter makes a regular expression of `In`, in which a dot is any letter: another host's requests may wake this backend";
        faults.push(Fault::new("hpa-selector-pattern", Severity::Warning, Some(place), what, "use matchLabels"));
    }
    found
}

/// The grammar of label values (Kubernetes, "Labels and Selectors").
fn is_label(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63 && text.chars().all(inside) && end(text.chars().next()) && end(text.chars().last())
}

fn scale_up(up: Option<&Arc<Node>>, here: &impl Fn(&Node) -> Place, faults: &mut Vec<Fault>) {
    let Some(policies) = up.and_then(|up| up.get("policies")).filter(|node| !node.items().is_empty()) else { return };
    let kind = |policy: &Arc<Node>| policy.get("type").and_then(|node| node.text().map(ToOwned::to_owned));
    if policies.items().iter().all(|policy| kind(policy).as_deref() == Some("Percent")) {
        let what = "a share of no pods is no pod: with Percent alone it never leaves zero";
        faults.push(error("hpa-percent-only", here(policies), what, "add a policy of type Pods with value 1"));
    }
    for policy in policies.items() {
        if let Some(period) =
            policy.get("periodSeconds").filter(|node| number(node).is_some_and(|value| value > 1800.0))
        {
            faults.push(error(
                "hpa-policy-period",
                here(period),
                "a policy's period is at most 1800 s: the API refuses it",
                "write a shorter one",
            ));
        }
    }
}

/// A workload that says how many pods it has: whoever applies it puts the backend to sleep or wakes it.
pub(super) fn replicas(document: &Document, hpas: &[Hpa], faults: &mut Vec<Fault>) {
    let kind = document.node.get("kind").and_then(|node| node.text()).unwrap_or_default();
    let name = at(&document.node, "metadata.name").and_then(|node| node.text()).unwrap_or_default();
    if !matches!(kind, "Deployment" | "StatefulSet") || !hpas.iter().any(|hpa| hpa.workload == name) {
        return;
    }
    let Some(node) = at(&document.node, "spec.replicas") else { return };
    let what = match node.text() {
        Some("0") => "applied with replicas: 0 it is stopped by hand for the HPA, which then never wakes it",
        _ => {
            "whoever applies this wakes the backend each time, and whoever compares it with the cluster sees a difference each night"
        }
    };
    let hint = "leave replicas out, and let GitOps ignore /spec/replicas";
    faults.push(error("spec-replicas", document.place(&node.span, ""), what, hint));
}

/// The flags of an adapter that stands among the manifests.
pub(super) fn flags(document: &Document, places: &mut Places) -> (Option<Told<Duration>>, Option<Told<Duration>>) {
    let (mut relist, mut age) = (None, None);
    let mut left = vec![Arc::clone(&document.node)];
    while let Some(node) = left.pop() {
        for (flag, told) in [("--metrics-relist-interval=", &mut relist), ("--metrics-max-age=", &mut age)] {
            let value = node.text().and_then(|text| duration(text.strip_prefix(flag)?));
            if let Some(value) = value {
                *told = Some(places.told(value, flag.trim_end_matches('='), document.place(&node.span, "")));
            }
        }
        left.extend(node.items().iter().cloned());
        left.extend(node.entries().iter().map(|entry| Arc::clone(&entry.node)));
    }
    (relist, age)
}
