//! Prometheus' configuration, its rules, and prometheus-adapter's: how a request that waits comes before the HPA.

use super::super::fault::Fault;
use super::promql::{Says, says};
use super::{Document, Places, at, duration};
use crate::config::Place;
use crate::config::yaml::Node;
use crate::fleet::timing::{Severity, Told};
use std::sync::Arc;
use std::time::Duration;

/// Prometheus' own (its documentation, "Configuration").
const SCRAPE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
const EVALUATE: Duration = Duration::from_secs(60);

/// A job that scrapes.
#[derive(Debug)]
pub(super) struct Job {
    /// The labels that it makes.
    pub labels: Vec<String>,
    pub scrape: Told<Duration>,
    pub timeout: Told<Duration>,
    pub place: Place,
}

/// A recorded series.
#[derive(Debug)]
pub(super) struct Recorded {
    pub name: String,
    pub says: Says,
    pub evaluate: Told<Duration>,
    pub place: Place,
}

/// An alarm.
#[derive(Debug)]
pub(super) struct Alarm {
    pub expr: String,
    pub lasts: Told<Duration>,
}

/// A metric that the adapter shows.
#[derive(Debug)]
pub(super) struct Shown {
    pub name: String,
    /// The series that its name is found by.
    pub found_by: String,
    pub query: String,
    pub namespaced: bool,
    pub place: Place,
}

/// A duration below a node, or else the program's own.
fn told(
    document: &Document,
    places: &mut Places,
    all: &[Option<&Arc<Node>>],
    name: &str,
    own: Duration,
) -> Told<Duration> {
    let said = all.iter().flatten().find_map(|node| Some((duration(node.text()?)?, *node)));
    match said {
        Some((value, node)) => places.told(value, name, document.place(&node.span, "")),
        None => Told::new(own, format!("Prometheus' own {name}")),
    }
}

/// The jobs of a configuration.
pub(super) fn jobs(document: &Document, places: &mut Places, faults: &mut Vec<Fault>) -> Vec<Job> {
    let global = |name: &str| at(&document.node, &format!("global.{name}"));
    let jobs = document.node.get("scrape_configs").into_iter().flat_map(|all| all.items());
    let mut found = Vec::new();
    for job in jobs {
        let relabels: Vec<&Arc<Node>> = ["relabel_configs", "metric_relabel_configs"]
            .iter()
            .filter_map(|name| job.get(name))
            .flat_map(|all| all.items())
            .collect();
        relabels.iter().for_each(|one| open_hosts(document, one, faults));
        let labels = relabels.iter().filter_map(|one| one.get("target_label")?.text().map(ToOwned::to_owned));
        let labels = labels.chain(fixed(job)).collect();
        let scrape =
            told(document, places, &[job.get("scrape_interval"), global("scrape_interval")], "scrape_interval", SCRAPE);
        let timeout =
            told(document, places, &[job.get("scrape_timeout"), global("scrape_timeout")], "scrape_timeout", TIMEOUT);
        found.push(Job { labels, scrape, timeout, place: document.place(&job.span, "") });
    }
    found
}

/// Labels that a job gives its targets.
fn fixed(job: &Arc<Node>) -> Vec<String> {
    let targets = job.get("static_configs").into_iter().flat_map(|all| all.items());
    let labels = targets.filter_map(|one| one.get("labels")).flat_map(|labels| labels.entries());
    labels.map(|entry| entry.key.clone()).collect()
}

/// A label made of whatever a client puts into its `Host`.
fn open_hosts(document: &Document, relabel: &Arc<Node>, faults: &mut Vec<Fault>) {
    let list = relabel.get("source_labels").into_iter().flat_map(|all| all.items());
    let of_host = list.into_iter().any(|label| label.text() == Some("host"));
    let replacement = relabel.get("replacement").and_then(|node| node.text()).unwrap_or("$1");
    if of_host && relabel.get("target_label").is_some() && replacement.contains('$') {
        let what = "any client's `Host` becomes a label here: one who makes names up makes as many series as he likes";
        let hint = "write one rule for each host that you have, and drop the rest";
        let place = document.place(&relabel.span, "");
        faults.push(Fault::new("prometheus-open-hosts", Severity::Warning, Some(place), what, hint));
    }
}

/// The recorded series and the alarms of rule files.
pub(super) fn rules(document: &Document, places: &mut Places) -> (Vec<Recorded>, Vec<Alarm>) {
    let (mut recorded, mut alarms) = (Vec::new(), Vec::new());
    for group in document.node.get("groups").into_iter().flat_map(|all| all.items()) {
        let evaluate = told(document, places, &[group.get("interval")], "interval", EVALUATE);
        for rule in group.get("rules").into_iter().flat_map(|all| all.items()) {
            let text = |name: &str| rule.get(name).and_then(|node| node.text()).unwrap_or_default().to_owned();
            let place = document.place(&rule.span, "");
            if rule.get("record").is_some() {
                let says = says(&text("expr"));
                recorded.push(Recorded { name: text("record"), says, evaluate: evaluate.clone(), place });
            } else if rule.get("alert").is_some() {
                let lasts = told(document, places, &[rule.get("for")], "for", Duration::ZERO);
                alarms.push(Alarm { expr: text("expr"), lasts });
            }
        }
    }
    (recorded, alarms)
}

/// What an adapter's configuration shows as external metrics.
pub(super) fn shown(document: &Document, faults: &mut Vec<Fault>) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for rule in document.node.get("externalRules").into_iter().flat_map(|all| all.items()) {
        let text = |path: &str| at(rule, path).and_then(|node| node.text()).unwrap_or_default().to_owned();
        let query = text("seriesQuery");
        let found_by = series(&query);
        let name = match text("name.as") {
            name if name.is_empty() || name.contains('$') => found_by.clone(),
            name => name,
        };
        let place = document.place(&rule.span, "");
        if found.iter().any(|other| other.name == name) {
            let what = format!("two rules show `{name}`: the last one wins, and says nothing");
            faults.push(Fault::new(
                "adapter-name-twice",
                Severity::Error,
                Some(place.clone()),
                what,
                "give one of them another name",
            ));
            found.retain(|other| other.name != name);
        }
        let namespaced = text("resources.namespaced") != "false";
        found.push(Shown { name, found_by, query: text("metricsQuery"), namespaced, place });
    }
    found
}

/// The name of a series in a selector: `name{...}` or `{__name__="name"}`.
fn series(query: &str) -> String {
    let head = query.split('{').next().unwrap_or_default().trim();
    if !head.is_empty() {
        return head.to_owned();
    }
    let named = query.split("__name__").nth(1).unwrap_or_default();
    named.split('"').nth(1).unwrap_or_default().trim_start_matches('^').trim_end_matches('$').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_series_is_found_in_both_forms() {
        for query in [
            "wake_signal",
            "wake_signal{a!=\"\"}",
            "{__name__=\"wake_signal\"}",
            "{__name__=~\"^wake_signal$\",a=\"b\"}",
        ] {
            assert_eq!(series(query), "wake_signal", "{query}");
        }
    }
}
