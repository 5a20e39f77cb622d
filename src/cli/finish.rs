//! The end of every run: one summary, one exit code.

use crate::clock::{Clock, Stamp};
use crate::diag::{Exit, Problem};
use crate::event::{ErrorLine, Event, FORMAT, Floor, Line, Requests, Sink, Summary, seconds};
use crate::measure::Loss;
use crate::report::{Format, Reporter};
use crate::rollout::Deployed;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

fn error_line(problem: &Problem) -> ErrorLine {
    ErrorLine {
        kind: problem.exit.kind().to_owned(),
        message: problem.message.clone(),
        hint: problem.hint.clone(),
        server: problem.server.clone(),
        step: problem.step,
        output: problem.output.clone(),
    }
}

/// Ends a run that did not come to its work.
pub(super) fn refused(reporter: &Reporter, problem: &Problem) -> u8 {
    ended(reporter, Some(problem), &json!({}))
}

/// Ends a run that has a result of its own kind; `result` is what JSON shows of it.
pub(super) fn ended(reporter: &Reporter, problem: Option<&Problem>, result: &Value) -> u8 {
    let exit = problem.map_or(Exit::Done, |problem| problem.exit);
    reporter.finish();
    if let Some(problem) = problem {
        reporter.problem(problem);
    }
    if reporter.format() == Format::Json {
        let mut line = Map::new();
        line.insert("format".into(), json!(FORMAT));
        line.insert("event".into(), json!("summary"));
        line.insert("exit".into(), json!(u8::from(exit)));
        line.insert("error".into(), problem.map_or(Value::Null, |problem| json!(error_line(problem))));
        if let Value::Object(result) = result {
            line.extend(result.clone());
        }
        reporter.result(&Value::Object(line).to_string());
    }
    exit.into()
}

/// What a deploy ended with, besides how it ended.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) requests: Option<Requests>,
    pub(super) more: BTreeMap<String, Value>,
    /// Nobody was served before (`--first`), so that nothing could be lost by this deploy.
    pub(super) first: bool,
}

impl Extra {
    /// What was measured, and the first losses with their moments.
    pub(super) fn measured(requests: Option<Requests>, losses: &[Loss]) -> Self {
        let mut more = BTreeMap::new();
        if !losses.is_empty() {
            let moment = |loss: &Loss| {
                let mut value = json!(loss);
                value["at"] = json!(seconds(loss.at.since_start()));
                value
            };
            more.insert("losses".to_owned(), losses.iter().map(moment).collect());
        }
        Self { requests, more, first: false }
    }
}

/// Ends a deploy or a rehearsal.
pub(super) fn deployed(
    reporter: &Reporter,
    clock: &Clock,
    deployed: Deployed,
    problem: Option<Problem>,
    extra: Extra,
) -> u8 {
    let ending = deployed.ending.ok();
    let floor = ending.as_ref().map_or_else(Floor::default, |ending| ending.floor);
    let (problem, outcome) = with_losses(
        problem,
        ending.as_ref().map(|ending| ending.outcome),
        extra.requests.as_ref().filter(|_| !extra.first),
    );
    let exit = problem.as_ref().map_or(Exit::Done, |problem| problem.exit);
    let summary = Summary {
        exit: exit.into(),
        error: problem.as_ref().map(error_line),
        outcome: outcome.to_owned(),
        release: deployed.release,
        servers: deployed.servers,
        each: ending.as_ref().map(|ending| ending.each.clone()).unwrap_or_default(),
        took: ending.as_ref().map(|ending| ending.took.clone()).unwrap_or_default(),
        requests: extra.requests,
        seconds: ending.as_ref().map_or(0.0, |ending| ending.seconds),
        floor_seconds: (floor.seconds() * 1000.0).round() / 1000.0,
        floor,
        more: extra.more,
    };
    let now = if ending.is_some() { clock.now() } else { Stamp::ZERO };
    reporter.take(Line::new(now, Event::Summary(Box::new(summary))));
    if let Some(problem) = &problem {
        reporter.problem(problem);
    }
    exit.into()
}

/// A deploy that is done but lost requests is not simply done.
fn with_losses<'a>(
    problem: Option<Problem>,
    outcome: Option<&'a str>,
    requests: Option<&Requests>,
) -> (Option<Problem>, &'a str) {
    let lost = requests.map_or(0, Requests::lost);
    match (problem, outcome) {
        (None, _) if lost > 0 => {
            let problem = Problem::new(Exit::Lost, format!("done, but {lost} requests were lost"))
                .hint("the summary says how many of which class");
            (Some(problem), "lost_requests")
        }
        (Some(problem), None) => {
            let outcome = match problem.exit {
                Exit::Interrupted | Exit::Terminated => "interrupted",
                Exit::Failed => "failed",
                _ => "refused",
            };
            (Some(problem), outcome)
        }
        (problem, outcome) => (problem, outcome.unwrap_or("failed")),
    }
}
