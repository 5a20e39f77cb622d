//! What is answered to whom asks for what; pure. Forms are those of `k8s.io/metrics` (external.metrics v1beta1) and of the API's
//! discovery.

use super::selector::Selector;
use serde_json::{Value, json};

/// The API group and version.
const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// The only metric there is.
const METRIC: &str = "tenant_http_requests_in_flight";
/// The only label.
const LABEL: &str = "wake_host";

/// What a host shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// What the host is called in a selector.
    pub(super) label: String,
    pub(super) value: i64,
}

/// Status and body.
pub(super) fn say(method: &str, path: &str, query: &str, shown: &[Shown], now: &str) -> (u16, Value) {
    if method != "GET" && method != "HEAD" {
        return status(405, "MethodNotAllowed", "there is nothing here but to read");
    }
    let steps: Vec<&str> = path.trim_matches('/').split('/').collect();
    match steps.as_slice() {
        ["apis"] => (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})),
        ["apis", GROUP] => (200, group()),
        ["apis", GROUP, VERSION] => (200, resources()),
        ["apis", GROUP, VERSION, "namespaces", _, METRIC] => values(query, shown, now),
        ["apis", GROUP, VERSION, "namespaces", _, other] => {
            status(404, "NotFound", &format!("no metric `{other}`; there is {METRIC}"))
        }
        _ => status(404, "NotFound", "the server could not find the requested resource"),
    }
}

fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version})
}

fn resources() -> Value {
    let metric = json!({
        "name": METRIC,
        "singularName": "",
        "namespaced": true,
        "kind": "ExternalMetricValueList",
        "verbs": ["get"],
    });
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"), "resources": [metric]})
}

/// A host that is known has a value also while nobody is there: an empty list is an error for the HPA.
fn values(query: &str, shown: &[Shown], now: &str) -> (u16, Value) {
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector=")).unwrap_or_default();
    let selector = match decoded(selector).and_then(|text| Selector::parse(&text)) {
        Ok(selector) => selector,
        Err(why) => return status(400, "BadRequest", &format!("labelSelector: {why}")),
    };
    let met = |one: &&Shown| selector.meets(|key| (key == LABEL).then(|| one.label.clone()));
    let item = |one: &Shown| {
        json!({
            "metricName": METRIC,
            "metricLabels": {LABEL: one.label},
            "timestamp": now,
            "value": one.value.to_string(),
        })
    };
    let items: Vec<Value> = shown.iter().filter(met).map(item).collect();
    let version = format!("{GROUP}/{VERSION}");
    (200, json!({"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": items}))
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (code, body)
}

/// Percent signs and pluses, as a query has them.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits =
                    [rest.next(), rest.next()].map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)));
                match digits {
                    [Some(high), Some(low)] => u8::try_from(high * 16 + low).unwrap_or_default(),
                    _ => return Err(format!("`{text}` has a percent sign that stands for nothing")),
                }
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| format!("`{text}` is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "/apis/external.metrics.k8s.io/v1beta1";

    fn asked(path: &str, query: &str) -> (u16, Value) {
        let shown = [("cms.example.org", 2), ("shop.example.org", 0)];
        let shown = shown.map(|(host, value)| Shown { label: host.into(), value });
        say("GET", path, query, &shown, "2026-11-29T17:00:00Z")
    }

    #[test]
    fn a_known_host_has_a_value_also_while_nobody_is_there() {
        let path = format!("{BASE}/namespaces/tenant-example/{METRIC}");
        let (code, body) = asked(&path, "labelSelector=wake_host%3Dshop.example.org");
        assert_eq!(code, 200);
        let expected = json!([{
            "metricName": METRIC, "metricLabels": {"wake_host": "shop.example.org"},
            "timestamp": "2026-11-29T17:00:00Z", "value": "0",
        }]);
        assert_eq!((&body["items"], &body["kind"]), (&expected, &json!("ExternalMetricValueList")));
        assert_eq!(asked(&path, "").1["items"].as_array().map(Vec::len), Some(2));
        let (_, body) = asked(&path, "limit=1&labelSelector=wake_host+in+%28cms.example.org%2Cx%29");
        assert_eq!(body["items"][0]["value"], "2");
        assert_eq!(asked(&path, "labelSelector=wake_host%3Dnobody").1["items"], json!([]));
    }

    #[test]
    fn discovery_is_answered_and_everything_else_says_what_there_is() {
        assert_eq!(asked(BASE, "").1["kind"], "APIResourceList");
        assert_eq!(asked("/apis/external.metrics.k8s.io", "").1["preferredVersion"]["version"], "v1beta1");
        assert_eq!(asked("/apis", "").1["groups"][0]["name"], GROUP);
        let path = format!("{BASE}/namespaces/n/other");
        let (code, body) = asked(&path, "");
        assert_eq!((code, &body["kind"], &body["reason"]), (404, &json!("Status"), &json!("NotFound")));
        assert_eq!(asked("/", "").0, 404);
        assert_eq!(asked(&format!("{BASE}/namespaces/n/{METRIC}"), "labelSelector=%zz").0, 400);
        assert_eq!(say("DELETE", BASE, "", &[], "").0, 405);
    }
}
