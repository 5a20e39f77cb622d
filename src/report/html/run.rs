//! The lines of the event stream, put in order for a page. What a line lacks is left out; no line is a reason to fail.

use serde_json::Value;
use std::collections::BTreeMap;

/// The classes of requests, with the words of people, in the order in which they are stacked.
pub(super) const CLASSES: [(&str, &str); 6] = [
    ("served", "served"),
    ("drain_signals", "503 of a drain, on purpose"),
    ("app_errors", "errors of the app"),
    ("client_gone", "client gone"),
    ("cut_short", "cut short"),
    ("nowhere", "reached nowhere"),
];

/// A step of a server, from its beginning to its end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    pub(super) step: String,
    pub(super) course: String,
    pub(super) from: f64,
    pub(super) to: f64,
    /// `proved`, `failed`, or `open` where the run broke off.
    pub(super) state: String,
    pub(super) detail: Option<String>,
    /// What the plan expected, in seconds.
    pub(super) expected: Option<f64>,
}

/// A server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
    /// What its nodes were told, as it changed.
    pub(super) nodes: Vec<(f64, String)>,
    pub(super) outcome: Option<String>,
}

/// A run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Run {
    pub(super) lanes: Vec<Lane>,
    /// Requests of each class that ended in the second before a moment.
    pub(super) seconds: Vec<(f64, [u64; 6])>,
    pub(super) losses: Vec<(f64, String)>,
    pub(super) warnings: Vec<(f64, String)>,
    pub(super) summary: Option<Value>,
    pub(super) began: f64,
    pub(super) end: f64,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

impl Run {
    pub(super) fn read(lines: &[Value]) -> Self {
        let mut run = Self::default();
        let mut last = [0; 6];
        for line in lines {
            let at = line["at"].as_f64().unwrap_or_default();
            match line["event"].as_str().unwrap_or_default() {
                "step" => run.step(line, at),
                "nodes" => {
                    let told = told(&line["nodes"]);
                    run.lane(&text(line, "server")).nodes.push((at, told));
                }
                "server_done" => {
                    run.end = run.end.max(at);
                    let outcome = text(line, "outcome");
                    run.lane(&text(line, "server")).outcome = Some(outcome);
                }
                "requests" => {
                    let now = CLASSES.map(|(class, _)| line["counts"][class].as_u64().unwrap_or_default());
                    let mut part = [0; 6];
                    for ((part, now), last) in part.iter_mut().zip(now).zip(last) {
                        *part = now.saturating_sub(last);
                    }
                    last = now;
                    run.seconds.push((at, part));
                }
                "warning" => {
                    let server = line["server"].as_str().map_or_else(String::new, |name| format!("{name}: "));
                    run.warnings.push((at, server + &text(line, "what")));
                }
                "summary" => run.sum_up(line),
                _ => {}
            }
        }
        run.span();
        run
    }

    fn lane(&mut self, name: &str) -> &mut Lane {
        let at = self.lanes.iter().position(|lane| lane.name == name).unwrap_or_else(|| {
            self.lanes.push(Lane { name: name.to_owned(), ..Lane::default() });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }

    fn step(&mut self, line: &Value, at: f64) {
        let (step, course, state) = (text(line, "step"), text(line, "course"), text(line, "state"));
        let lane = self.lane(&text(line, "server"));
        if state == "began" {
            let expected = line["seconds"].as_f64();
            let open = "open".to_owned();
            lane.bars.push(Bar { step, course, from: at, to: at, state: open, detail: None, expected });
            return;
        }
        if let Some(bar) = lane.bars.iter_mut().rev().find(|bar| bar.step == step && bar.state == "open") {
            (bar.to, bar.state, bar.detail) = (at, state, line["detail"].as_str().map(ToOwned::to_owned));
        }
    }

    fn sum_up(&mut self, line: &Value) {
        for loss in line["losses"].as_array().into_iter().flatten() {
            let at = loss["at"].as_f64().or_else(|| loss["sent"].as_f64()).unwrap_or_default();
            let words: Vec<String> = ["class", "what", "status", "address"]
                .iter()
                .filter_map(|key| {
                    loss[*key].as_str().map(ToOwned::to_owned).or_else(|| loss[*key].as_u64().map(|n| n.to_string()))
                })
                .collect();
            self.losses.push((at, words.join(", ")));
        }
        self.summary = Some(line.clone());
    }

    /// From the first step to the last, with the requests around them.
    fn span(&mut self) {
        let bars = || self.lanes.iter().flat_map(|lane| &lane.bars);
        let moments = bars().flat_map(|bar| [bar.from, bar.to]).chain(self.seconds.iter().map(|(at, _)| *at));
        let (began, end) = moments.fold((f64::MAX, self.end), |(least, most), at| (least.min(at), most.max(at)));
        (self.began, self.end) = if began < end { (began, end) } else { (0.0, 1.0) };
        let end = self.end;
        for bar in self.lanes.iter_mut().flat_map(|lane| &mut lane.bars).filter(|bar| bar.state == "open") {
            bar.to = end;
        }
    }

    /// The steps in the order in which the first lane has them.
    pub(super) fn steps(&self) -> Vec<String> {
        let mut steps: Vec<String> = Vec::new();
        for bar in self.lanes.iter().flat_map(|lane| &lane.bars) {
            if !steps.contains(&bar.step) {
                steps.push(bar.step.clone());
            }
        }
        steps
    }
}

fn told(nodes: &Value) -> String {
    let mut by_need: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in nodes.as_array().into_iter().flatten() {
        let number = |key: &str| node[key].as_u64().unwrap_or_default();
        let word = if text(node, "told") == "out" { "let go" } else { "take back" };
        by_need.entry(format!("told to {word} (of {})", number("needed"))).or_default().push(format!(
            "{} {}",
            text(node, "address"),
            number("times")
        ));
    }
    by_need.into_iter().map(|(what, nodes)| format!("{what}: {}", nodes.join(", "))).collect::<Vec<_>>().join("; ")
}
