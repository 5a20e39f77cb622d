//! What a page of a run says, what it never says, and that no stream of lines breaks it.

use super::page;
use serde_json::{Value, json};

fn stream() -> Vec<Value> {
    let step = |at: f64, step: &str, state: &str, seconds: f64, detail: Option<&str>| {
        json!({"at": at, "event": "step", "server": "web-<1>", "step": step, "course": "forward", "state": state,
            "seconds": seconds, "detail": detail})
    };
    vec![
        step(10.0, "out", "began", 10.0, None),
        json!({"at": 11.0, "event": "requests", "counts": {"total": 20, "served": 20}}),
        json!({"at": 12.0, "event": "requests", "counts": {"total": 41, "served": 40, "nowhere": 1}}),
        json!({"at": 12.5, "event": "nodes", "server": "web-<1>", "reading": "unknown",
            "nodes": [{"group": "g", "address": "10.0.0.1", "told": "out", "times": 1, "needed": 3}]}),
        step(18.0, "out", "proved", 8.0, Some("3 of 3 targets out")),
        step(18.0, "stop", "began", 10.0, None),
        json!({"at": 19.0, "event": "warning", "server": null, "what": "<script>alert(1)</script>"}),
        step(20.0, "stop", "failed", 2.0, Some("api still runs")),
        step(20.0, "start", "began", 3.0, None),
        json!({"at": 25.0, "event": "server_done", "server": "web-<1>", "outcome": "rolled_back", "took": {}, "what": ""}),
        json!({"at": 25.0, "event": "summary", "exit": 5, "outcome": "rolled_back", "release": "abc", "seconds": 15.0,
            "floor_seconds": 12.0, "requests": {"total": 41, "nowhere": 1, "cut_short": 0},
            "error": {"message": "it & that", "hint": "look"}, "losses": [{"at": 11.7, "class": "nowhere", "what": "503"}]}),
    ]
}

#[test]
fn everything_that_happened_is_on_the_page_and_nothing_of_it_is_markup() {
    let invariants =
        [json!({"id": "a-b", "holds": false, "left_seconds": 60.0, "right_seconds": 5.0, "margin_seconds": -55.0})];
    let mut lines = stream();
    lines.push(json!({"event": "invariants", "invariants": invariants}));
    let page = page("handover rehearse", &lines);
    for part in [
        "rolled back</p>",
        "web-&lt;1&gt;: out 8.0s, from 10.0s; 10.0s expected: 3 of 3 targets out",
        "web-&lt;1&gt;: stop 2.0s, from 18.0s; 10.0s expected; failed: api still runs",
        "web-&lt;1&gt;: start 5.0s, from 20.0s; 3.0s expected; never ended",
        "web-&lt;1&gt;: at 12.5s nodes told to let go (of 3): 10.0.0.1 1",
        "lost at 11.7s: nowhere, 503",
        "<dd>1 of 41 lost</dd>",
        "it &amp; that",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "<td>a-b</td><td>60.0</td><td>5.0</td><td>-55.0</td><td><span class=bad>broken</span></td>",
        "<td>2.0s (not proved)</td>",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("class=\"nowhere\"").count(), 2, "one second of the chart, and the legend");
}

#[test]
fn the_page_names_nothing_outside_of_itself() {
    let page = page("x", &stream());
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_run_that_broke_off_and_one_without_lines_are_pages_too() {
    let broken = page("x", &stream()[..6]);
    assert!(broken.contains("broke off") && broken.contains("never ended"), "{broken}");
    assert!(page("x", &[]).contains("Nobody measured"));
    let strange = [
        json!(null),
        json!({"event": "step"}),
        json!({"event": 7}),
        json!({"event": "nodes", "nodes": 3}),
        json!({"event": "invariants", "invariants": [null, 3]}),
    ];
    drop(page("x", &strange));
}
