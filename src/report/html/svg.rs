//! The two drawings: the lanes, and what became of requests, over one axis of time.

use super::page::escaped;
use super::run::{Bar, CLASSES, Lane, Run};
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
/// For the names of servers.
const LEFT: f64 = 110.0;
const ROW: f64 = 26.0;
const TOP: f64 = 22.0;
const CHART: f64 = 120.0;

fn x(run: &Run, at: f64) -> f64 {
    LEFT + (at - run.began) / (run.end - run.began) * (WIDTH - LEFT - 10.0)
}

/// What a step is about, which is its colour.
fn kind(bar: &Bar) -> &'static str {
    match (bar.state.as_str(), bar.step.as_str()) {
        ("failed", _) => "failed",
        (_, "out" | "in") => "balancer",
        (_, "settle" | "settle_in") => "settle",
        (_, "stop" | "start") => "change",
        (_, "verify") => "verify",
        _ => "small",
    }
}

/// A word of the stream as people write it.
pub(super) fn words(step: &str) -> String {
    step.replace('_', " ")
}

/// A bar in one sentence, for who points at it, tabs to it or hears it.
pub(super) fn sentence(lane: &Lane, bar: &Bar) -> String {
    let mut text = format!("{}: {} {:.1}s, from {:.1}s", lane.name, words(&bar.step), bar.to - bar.from, bar.from);
    if bar.course != "forward" {
        let _ = write!(text, ", {}", words(&bar.course));
    }
    if let Some(expected) = bar.expected {
        let _ = write!(text, "; {expected:.1}s expected");
    }
    match bar.state.as_str() {
        "failed" => text += "; failed",
        "open" => text += "; never ended",
        _ => {}
    }
    if let Some(detail) = &bar.detail {
        let _ = write!(text, ": {detail}");
    }
    text
}

fn axis(run: &Run, height: f64) -> String {
    let length = run.end - run.began;
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0]
        .into_iter()
        .find(|step| length / step <= 12.0)
        .unwrap_or(7200.0);
    let mut out = String::new();
    let mut at = 0.0;
    while at <= length {
        let place = x(run, run.began + at);
        let _ = write!(
            out,
            "<line class=grid x1={place:.1} x2={place:.1} y1={TOP} y2={height:.1} /><text class=tick x={place:.1} y=14>{at:.0}s</text>"
        );
        at += step;
    }
    out
}

/// A lane for each server.
pub(super) fn lanes(run: &Run) -> String {
    let rows: Vec<f64> = run.lanes.iter().map(|lane| if lane.nodes.is_empty() { ROW } else { ROW + 12.0 }).collect();
    let height = TOP + rows.iter().sum::<f64>() + 6.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=group aria-label=\"What was done to each server, over time\">"
    );
    out += &axis(run, height);
    let mut y = TOP;
    for (lane, row) in run.lanes.iter().zip(rows) {
        let _ = write!(out, "<text class=name x=4 y={:.1}>{}</text>", y + 17.0, escaped(&lane.name));
        for bar in &lane.bars {
            let (from, width) = (x(run, bar.from), (x(run, bar.to) - x(run, bar.from)).max(1.5));
            let said = escaped(&sentence(lane, bar));
            let _ = write!(
                out,
                "<g class=\"mark {}{}\" tabindex=0 role=img aria-label=\"{said}\"><title>{said}</title>\
                 <rect x={from:.1} y={:.1} width={width:.1} height=18 rx=2 /></g>",
                kind(bar),
                if bar.course == "forward" { "" } else { " undo" },
                y + 4.0
            );
        }
        for (at, told) in &lane.nodes {
            let said = escaped(&format!("{}: at {at:.1}s nodes {told}", lane.name));
            let _ = write!(
                out,
                "<g class=\"mark node\" tabindex=0 role=img aria-label=\"{said}\"><title>{said}</title><circle cx={:.1} cy={:.1} r=3 /></g>",
                x(run, *at),
                y + 28.0
            );
        }
        y += row;
    }
    out + "</svg>"
}

/// Requests per second by class, and every lost one.
pub(super) fn requests(run: &Run) -> String {
    if run.seconds.is_empty() && run.losses.is_empty() {
        return "<p>Nobody measured what became of requests.</p>".to_owned();
    }
    let most = run.seconds.iter().map(|(_, part)| part.iter().sum::<u64>()).max().unwrap_or(1).max(1);
    let bottom = TOP + CHART;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=group aria-label=\"Requests per second by what became of them, over time\">",
        bottom + 20.0
    );
    out += &axis(run, bottom);
    let _ = write!(
        out,
        "<text class=name x=4 y={:.0}>{most}/s</text><text class=name x=4 y={bottom:.0}>0</text>",
        TOP + 8.0
    );
    let width = (x(run, run.began + 1.0) - LEFT).clamp(0.8, 12.0);
    for (at, part) in run.seconds.iter().filter(|(at, _)| *at >= run.began) {
        let mut y = bottom;
        for ((class, _), count) in CLASSES.iter().zip(part).filter(|(_, count)| **count > 0) {
            #[expect(clippy::cast_precision_loss, reason = "it is drawn on a screen")]
            let height = *count as f64 / most as f64 * CHART;
            y -= height;
            let _ = write!(
                out,
                "<rect class=\"{class}\" x={:.1} y={y:.1} width={width:.1} height={height:.1} />",
                x(run, *at) - width
            );
        }
    }
    for (at, what) in &run.losses {
        let place = x(run, at.clamp(run.began, run.end));
        let said = escaped(&format!("lost at {at:.1}s: {what}"));
        let _ = write!(
            out,
            "<g class=\"mark loss\" tabindex=0 role=img aria-label=\"{said}\"><title>{said}</title><path d=\"M{:.1} {:.1}l5 9h-10z\" /></g>",
            place,
            bottom + 4.0
        );
    }
    out + "</svg>"
}
