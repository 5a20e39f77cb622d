//! The page around the drawings: what came of the run, and everything that is drawn once more as tables.

use super::run::{CLASSES, Run};
use super::svg;
use serde_json::Value;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What stands for itself in HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What cannot be seen must not decide what is.
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// The page of a run: the lines of its event stream, with a line `invariants` (as `handover check` has them) where somebody kept one.
#[must_use]
pub fn page(title: &str, lines: &[Value]) -> String {
    let run = Run::read(lines);
    let title = escaped(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n\
         <title>{title}</title>\n<link rel=icon href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    out += &head(&run);
    let _ = write!(
        out,
        "<h2>Servers</h2>\n<div class=wide>{}</div>\n{}<p id=said aria-live=off>Point at a bar, or go from bar to bar with Tab and the arrow keys.</p>\n",
        svg::lanes(&run),
        legend(&[
            ("balancer", "waits for the balancer"),
            ("settle", "settles"),
            ("change", "stops, starts"),
            ("verify", "verifies"),
            ("small", "looks, locks, flips"),
            ("failed", "failed"),
        ])
    );
    let _ = write!(out, "<h2>Requests</h2>\n<div class=wide>{}</div>\n", svg::requests(&run));
    if !run.seconds.is_empty() {
        out += &legend(&CLASSES);
    }
    out += &losses(&run);
    out += &warnings(&run);
    out += &plan(&run);
    let invariants =
        lines.iter().find(|line| line["event"] == "invariants").and_then(|line| line["invariants"].as_array());
    out += &margins(invariants.map_or(&[], Vec::as_slice));
    let _ = write!(out, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

fn head(run: &Run) -> String {
    let Some(summary) = &run.summary else {
        return "<p class=bad>The run broke off: nobody wrote down how it ended.</p>\n".to_owned();
    };
    let word = summary["outcome"].as_str().unwrap_or("unknown");
    let good = summary["exit"].as_u64() == Some(0);
    let mut out = format!("<p class={}>{}</p>\n<dl>\n", if good { "good" } else { "bad" }, escaped(&svg::words(word)));
    let mut say = |what: &str, text: String| {
        if !text.is_empty() {
            let _ = writeln!(out, "<dt>{what}</dt><dd>{}</dd>", escaped(&text));
        }
    };
    say("release", summary["release"].as_str().unwrap_or_default().to_owned());
    for key in ["message", "hint"] {
        say(
            if key == "message" { "why" } else { "what next" },
            summary["error"][key].as_str().unwrap_or_default().to_owned(),
        );
    }
    if let (Some(seconds), Some(floor)) = (summary["seconds"].as_f64(), summary["floor_seconds"].as_f64())
        && seconds > 0.0
    {
        let floor = if floor > 0.0 { format!(", at the least {floor:.1}s") } else { String::new() };
        say("took", format!("{seconds:.1}s{floor}"));
    }
    match summary["requests"].as_object() {
        None => say("requests", "losses not measured".to_owned()),
        Some(requests) => {
            let count = |class: &str| requests.get(class).and_then(Value::as_u64).unwrap_or_default();
            let lost = count("nowhere") + count("cut_short");
            say("requests", format!("{} of {} lost", lost, count("total")));
        }
    }
    for lane in &run.lanes {
        say(&escaped(&lane.name), svg::words(lane.outcome.as_deref().unwrap_or("unknown")));
    }
    out + "</dl>\n"
}

fn legend(parts: &[(&str, &str)]) -> String {
    let one = |(class, what): &(&str, &str)| {
        format!(
            "<li><svg viewBox=\"0 0 12 12\" aria-hidden=true><rect class=\"{class}\" width=12 height=12 /></svg>{what}</li>"
        )
    };
    format!("<ul class=legend>{}</ul>\n", parts.iter().map(one).collect::<String>())
}

fn losses(run: &Run) -> String {
    if run.losses.is_empty() {
        return String::new();
    }
    let row = |(at, what): &(f64, String)| format!("<tr><td>{at:.2}s</td><td>{}</td></tr>\n", escaped(what));
    let rows: String = run.losses.iter().map(row).collect();
    table("Lost requests", "words", &["when", "what"], &rows)
}

fn warnings(run: &Run) -> String {
    if run.warnings.is_empty() {
        return String::new();
    }
    let row = |(at, what): &(f64, String)| format!("<tr><td>{at:.1}s</td><td>{}</td></tr>\n", escaped(what));
    let rows: String = run.warnings.iter().map(row).collect();
    table("Warnings", "words", &["when", "what"], &rows)
}

/// The plan beside what happened: seconds of each step on each server.
fn plan(run: &Run) -> String {
    let steps = run.steps();
    if steps.is_empty() {
        return String::new();
    }
    let mut head = vec!["step".to_owned(), "planned".to_owned()];
    head.extend(run.lanes.iter().map(|lane| escaped(&lane.name)));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut rows = String::new();
    for step in steps {
        let first =
            |lane: &super::run::Lane| lane.bars.iter().find(|bar| bar.step == step && bar.course == "forward").cloned();
        let expected = run.lanes.iter().filter_map(first).find_map(|bar| bar.expected);
        let expected = expected.map_or_else(String::new, |seconds| format!("{seconds:.1}s"));
        let _ = write!(rows, "<tr><td>{}</td><td>{expected}</td>", escaped(&svg::words(&step)));
        for lane in &run.lanes {
            let took = first(lane).map_or_else(String::new, |bar| {
                let failed = if bar.state == "proved" { "" } else { " (not proved)" };
                format!("{:.1}s{failed}", bar.to - bar.from)
            });
            let _ = write!(rows, "<td>{took}</td>");
        }
        rows += "</tr>\n";
    }
    table("Plan and run", "", &head, &rows)
}

fn margins(invariants: &[Value]) -> String {
    if invariants.is_empty() {
        return String::new();
    }
    let side = |value: &Value| value.as_f64().map_or_else(|| "unknown".to_owned(), |seconds| format!("{seconds:.1}"));
    let row = |one: &Value| {
        let holds = match one["holds"].as_bool() {
            Some(true) => "holds",
            Some(false) => "<span class=bad>broken</span>",
            None => "unknown",
        };
        let mut id = escaped(one["id"].as_str().unwrap_or_default());
        if let Some(subject) = one["subject"].as_str().filter(|subject| !subject.is_empty()) {
            let _ = write!(id, " ({})", escaped(subject));
        }
        let (left, right) = (side(&one["left_seconds"]), side(&one["right_seconds"]));
        format!(
            "<tr><td>{id}</td><td>{left}</td><td>{right}</td><td>{}</td><td>{holds}</td></tr>\n",
            side(&one["margin_seconds"])
        )
    };
    let rows: String = invariants.iter().map(row).collect();
    table("Numbers that hold each other", "", &["invariant", "left", "right", "margin", ""], &rows)
}

fn table(title: &str, class: &str, head: &[&str], rows: &str) -> String {
    let cell =
        |what: &&str| if what.is_empty() { "<td></td>".to_owned() } else { format!("<th scope=col>{what}</th>") };
    let cells: String = head.iter().map(cell).collect();
    format!(
        "<h2>{title}</h2>\n<div class=wide><table class=\"{class}\"><thead><tr>{cells}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}
