//! What was found in access logs, for machines: the fields of the summary, and CSV.

use super::{Found, per_10_000};
use crate::event::Requests;
use crate::measure::access_log::{Cause, Counted, Loss, Side, time};
use serde_json::{Map, Value, json};

/// The fields of the summary. `known` is false where not one line could be read: then nothing is known, rather than nothing lost.
pub(super) fn json(found: &Found, known: bool, notes: &[String]) -> Value {
    let window = found.tally.window();
    let (inside, outside) = &found.sums;
    let outside = window.given().then_some(outside).filter(|_| known);
    let inside = known.then_some(inside);
    let moment = |moment: Option<i64>| moment.map(time::show);
    json!({
        "requests": inside.map(|side| side.requests),
        "baseline": outside.map(|side| side.requests),
        "per_10_000": {"window": inside.and_then(per_10_000), "baseline": outside.and_then(per_10_000)},
        "causes": inside.map(causes),
        "baseline_causes": outside.map(causes),
        "targets": found.tally.targets().into_iter().map(|counted| target(counted, window.given())).collect::<Vec<_>>(),
        "losses": found.tally.losses().into_iter().map(loss).collect::<Vec<_>>(),
        "window": {"from": moment(window.from), "to": moment(window.to)},
        "log": {
            "first": moment(found.tally.span.map(|span| span.0)),
            "last": moment(found.tally.span.map(|span| span.1)),
            "requests": found.tally.records,
            "without_creation_time": found.tally.counted_back,
            "unforwarded": found.tally.unforwarded,
        },
        "broken": {"lines": found.reading.broken(), "shown": found.reading.shown},
        "files": found.reading.files,
        "nodes": found.reading.nodes,
        "notes": notes,
    })
}

fn causes(side: &Side) -> Map<String, Value> {
    let happened = Cause::ALL.into_iter().filter(|cause| side.causes[*cause as usize] > 0);
    happened.map(|cause| (cause.word().to_owned(), json!(side.causes[cause as usize]))).collect()
}

fn target(counted: &Counted, window: bool) -> Value {
    json!({
        "target": counted.target,
        "requests": counted.inside.requests,
        "causes": causes(&counted.inside),
        "baseline": window.then_some(counted.outside.requests),
        "baseline_causes": window.then(|| causes(&counted.outside)),
    })
}

fn loss(loss: &Loss) -> Value {
    json!({
        "at": time::show(loss.at),
        "target": loss.target,
        "status": loss.status,
        "class": loss.class,
        "cause": loss.cause,
        "request": loss.request,
    })
}

/// A row for each side of the window, target, class and cause that happened; the numbers add up to all requests.
pub(super) fn csv(found: &Found) -> String {
    let mut out = String::from("window,target,class,cause,requests\n");
    for counted in found.tally.targets() {
        for (window, side) in [("inside", &counted.inside), ("outside", &counted.outside)] {
            // What stands in a target was checked when its line was read: no comma, no quote, no formula.
            let target = counted.target.as_deref().unwrap_or("none");
            for (class, cause, requests) in rows(side) {
                out.push_str(&format!("{window},{target},{class},{cause},{requests}\n"));
            }
        }
    }
    out
}

fn rows(side: &Side) -> Vec<(&'static str, &'static str, u64)> {
    let Requests { served, app_errors, drain_signals, client_gone, .. } = side.requests;
    let classes =
        [("served", served), ("app_error", app_errors), ("drain_signal", drain_signals), ("client_gone", client_gone)];
    let lost = Cause::ALL.into_iter().map(|cause| {
        let class = if cause == Cause::AnswerLost { "cut_short" } else { "nowhere" };
        (class, cause.word(), side.causes[cause as usize])
    });
    classes.map(|(class, requests)| (class, "", requests)).into_iter().chain(lost).filter(|row| row.2 > 0).collect()
}
