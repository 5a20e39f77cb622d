//! What lies on which server: the releases, and the deploys that brought them.

use super::table;
use crate::event::journal::Journal;
use crate::fleet::model::{ReleaseId, ServerName, show_duration, show_moment};
use crate::server::wire::Listed;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

type ByServer = BTreeMap<ServerName, Vec<Listed>>;

/// Every release that lies on any server, the one that was staged last first.
fn ids(listed: &ByServer) -> Vec<(u64, ReleaseId)> {
    let mut found: BTreeMap<ReleaseId, u64> = BTreeMap::new();
    for one in listed.values().flatten() {
        let at = found.entry(one.release.manifest.id.clone()).or_default();
        *at = one.staged.max(*at);
    }
    let mut ids: Vec<(u64, ReleaseId)> = found.into_iter().map(|(id, at)| (at, id)).collect();
    ids.sort_by(|a, b| b.cmp(a));
    ids
}

fn on<'a>(releases: &'a [Listed], id: &ReleaseId) -> Option<&'a Listed> {
    releases.iter().find(|listed| listed.release.manifest.id == *id)
}

fn label(listed: &ByServer, id: &ReleaseId) -> Option<String> {
    listed.values().find_map(|releases| on(releases, id)?.release.manifest.label.clone())
}

/// Releases down, servers across.
#[must_use]
pub fn releases_text(listed: &ByServer) -> String {
    let mut rows = vec![vec!["release".to_owned(), "label".to_owned(), "staged".to_owned()]];
    rows[0].extend(listed.keys().map(ToString::to_string));
    let mut broken = Vec::new();
    for (at, id) in ids(listed) {
        let mut row = vec![id.short().to_owned(), label(listed, &id).unwrap_or_else(|| "-".into()), show_moment(at)];
        for (server, releases) in listed {
            row.push(match on(releases, &id) {
                None => "-".to_owned(),
                Some(one) => {
                    if let Some(why) = &one.broken {
                        broken.push(format!("{server}: {} is not whole: {why}", id.short()));
                    }
                    let names = if one.names.is_empty() { "there".to_owned() } else { one.names.join(", ") };
                    if one.broken.is_some() { format!("{names}, broken") } else { names }
                }
            });
        }
        rows.push(row);
    }
    if rows.len() == 1 {
        return "no release lies on any server".to_owned();
    }
    format!("{}{}", table(&rows), broken.join("\n"))
}

/// The same for machines.
#[must_use]
pub fn releases_json(listed: &ByServer) -> Value {
    let releases: Vec<Value> = ids(listed)
        .into_iter()
        .map(|(at, id)| {
            let servers: BTreeMap<&ServerName, Value> = listed
                .iter()
                .filter_map(|(server, releases)| {
                    let one = on(releases, &id)?;
                    Some((server, json!({"names": one.names, "whole": one.broken.is_none(), "broken": one.broken})))
                })
                .collect();
            json!({"release": id, "label": label(listed, &id), "adopted": id.is_adopted(), "staged": show_moment(at), "servers": servers})
        })
        .collect();
    json!({ "releases": releases })
}

/// How a run ended, in one word.
fn outcome(journal: &Journal) -> &str {
    match journal.end() {
        Some((outcome, ..)) if outcome == "deployed" && lost(journal).is_some_and(|lost| lost > 0) => "lost_requests",
        Some((outcome, ..)) => outcome,
        None => "not_ended",
    }
}

fn lost(journal: &Journal) -> Option<u64> {
    journal.requests().map(|requests| requests.lost())
}

/// Deploys, the youngest first.
#[must_use]
pub fn history_text(journals: &[Journal]) -> String {
    if journals.is_empty() {
        return "nothing was ever deployed, as far as these servers and this machine know".to_owned();
    }
    let head = ["began", "what", "release", "label", "who", "took", "lost", "outcome"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    for journal in journals {
        let head = &journal.head;
        let took = journal.end().map_or_else(
            || "?".to_owned(),
            |(_, _, _, seconds)| show_duration(Duration::from_secs_f64(seconds.max(0.0).round())),
        );
        rows.push(vec![
            show_moment(head.began),
            head.what.trim_start_matches("handover ").to_owned(),
            head.release.short().to_owned(),
            head.label.clone().unwrap_or_else(|| "-".into()),
            head.who.clone(),
            took,
            lost(journal).map_or_else(|| "not measured".into(), |lost| lost.to_string()),
            outcome(journal).to_owned(),
        ]);
    }
    table(&rows)
}

/// The same for machines.
#[must_use]
pub fn history_json(journals: &[Journal]) -> Value {
    let deploys: Vec<Value> = journals
        .iter()
        .map(|journal| {
            let (head, end) = (&journal.head, journal.end());
            json!({
                "run": head.run, "who": head.who, "what": head.what, "began": show_moment(head.began), "release": head.release,
                "label": head.label, "servers": head.servers, "only": head.only, "resumes": head.resumes,
                "outcome": outcome(journal), "exit": end.map(|end| end.1), "message": end.and_then(|end| end.2),
                "seconds": end.map(|end| end.3), "requests": journal.requests(),
            })
        })
        .collect();
    json!({ "deploys": deploys })
}
