//! `handover report`: a run as one page, from what was kept of it where it was run, from its servers, or from a saved stream of events.

use super::args::{Global, HistoryArgs, ReportArgs};
use super::{check, finish, history, input};
use crate::config::Loaded;
use crate::diag::{Exit, Problem};
use crate::event::journal::{Entry, Journal};
use crate::report::{Format, Reporter, findings_json, kept_events, page};
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// So far back a run is looked for on its servers.
const LOOK_BACK: u32 = 200;

pub(super) async fn run(global: &Global, args: &ReportArgs, reporter: &Reporter) -> u8 {
    match Box::pin(made(global, args, reporter)).await {
        Err(problem) => finish::refused(reporter, &problem),
        Ok(path) => {
            if reporter.format() != Format::Json {
                reporter.result(&path.display().to_string());
            }
            finish::ended(reporter, None, &json!({"report": path}))
        }
    }
}

async fn made(global: &Global, args: &ReportArgs, reporter: &Reporter) -> Result<PathBuf, Problem> {
    let (name, lines) = match &args.events {
        Some(file) => ("events".to_owned(), streamed(file)?),
        None => found(global, args.deploy.as_deref(), reporter).await?,
    };
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("handover-report-{name}.html")));
    write(&path, &title(&lines, &name), &lines)?;
    Ok(path)
}

fn title(lines: &[Value], name: &str) -> String {
    let what = lines.iter().find_map(|line| line["what"].as_str().filter(|_| line["event"] == "run"));
    what.map_or_else(|| format!("handover: {name}"), ToOwned::to_owned)
}

/// Sees that a page can be written when the run is over, before it begins.
pub(super) fn claim(path: Option<&Path>) -> Result<(), Problem> {
    let Some(path) = path else { return Ok(()) };
    std::fs::OpenOptions::new().append(true).create(true).open(path).map(drop).map_err(|error| {
        Problem::new(Exit::Usage, format!("--report {}: {error}", path.display()))
            .hint("name a file in a folder that is there")
    })
}

/// Writes the page of a run that is over, where one is wanted; what goes wrong is said, and counts where nothing else did.
pub(super) fn at_the_end(reporter: &Reporter, path: Option<&Path>, title: &str, exit: u8) -> u8 {
    let Some(Err(problem)) = path.map(|path| write(path, title, &reporter.kept())) else { return exit };
    reporter.problem(&problem);
    if exit == 0 { problem.exit.into() } else { exit }
}

/// Writes the page of a run.
fn write(path: &Path, title: &str, lines: &[Value]) -> Result<(), Problem> {
    std::fs::write(path, page(title, lines)).map_err(|error| {
        Problem::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
            .hint("name another file with `--out` or `--report`")
    })
}

/// What is kept with the lines of a run: who ran what, and the relations of its numbers.
pub(super) async fn about(global: &Global, loaded: &Loaded, what: &str) -> Vec<Value> {
    let findings = check::numbers(global, loaded).await;
    vec![json!({"event": "run", "what": what}), json!({"event": "invariants", "invariants": findings_json(&findings)})]
}

/// A stream that `--output json` wrote.
fn streamed(file: &Path) -> Result<Vec<Value>, Problem> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| Problem::new(Exit::Usage, format!("{}: {error}", file.display())))?;
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if lines.iter().any(|line| line["event"] == "step" || line["event"] == "summary") {
        return Ok(lines);
    }
    Err(Problem::new(Exit::Usage, format!("{} has no events of a run", file.display()))
        .hint("it is what `handover deploy --output json` or `rehearse --output json` writes"))
}

async fn found(global: &Global, wanted: Option<&str>, reporter: &Reporter) -> Result<(String, Vec<Value>), Problem> {
    let fleet = input::load(global)?.fleet;
    let kept = kept_events(&fleet.app, wanted)
        .map_err(|error| Problem::new(Exit::Failed, format!("what was kept here cannot be read: {error}")))?;
    if let Some((run, text)) = kept {
        return Ok((run, text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()));
    }
    let args = HistoryArgs { number: LOOK_BACK, local: false };
    let journals = history::found(global, &args, reporter).await?;
    let journal = journals.into_iter().find(|journal| wanted.is_none_or(|id| journal.head.run.starts_with(id)));
    let Some(journal) = journal else {
        let what = wanted.map_or_else(|| "no deploy is known".to_owned(), |id| format!("no deploy `{id}` is known"));
        return Err(Problem::new(Exit::Usage, what).hint("`handover history` lists them"));
    };
    Ok((journal.head.run.clone(), lines_of(&journal)))
}

/// A journal as the stream that it was written from, as far as it holds it.
fn lines_of(journal: &Journal) -> Vec<Value> {
    let head = &journal.head;
    let mut lines = vec![json!({"event": "run", "what": format!("{} by {}", head.what, head.who)})];
    let requests = journal.requests();
    for entry in &journal.entries {
        lines.push(match entry {
            Entry::Step { at, server, step, course, state, detail } => json!({"at": at, "event": "step", "server": server,
                "step": step, "course": course, "state": state, "detail": detail}),
            Entry::Server { at, server, outcome, what } => {
                json!({"at": at, "event": "server_done", "server": server, "outcome": outcome, "what": what})
            }
            Entry::End { at, outcome, exit, message, seconds } => json!({"at": at, "event": "summary", "outcome": outcome,
                "exit": exit, "error": {"message": message}, "seconds": seconds, "release": head.release, "requests": requests}),
            _ => continue,
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_becomes_the_page_of_its_run() {
        let text = [
            r#"{"format":1,"journal":"head","run":"r1","who":"ann@ci","what":"handover deploy","began":1,"app":"a","release":"abcdef","servers":["web-1"]}"#,
            r#"{"format":1,"journal":"step","at":1.0,"server":"web-1","step":"lock","course":"forward","state":"began"}"#,
            r#"{"format":1,"journal":"step","at":3.5,"server":"web-1","step":"lock","course":"forward","state":"proved"}"#,
            r#"{"format":1,"journal":"server","at":4.0,"server":"web-1","outcome":"deployed"}"#,
            r#"{"format":1,"journal":"end","at":5.0,"outcome":"deployed","exit":0,"seconds":4.0}"#,
        ];
        let lines = lines_of(&Journal::read(&text.join("\n")).expect("a journal"));
        let page = page(&title(&lines, "r1"), &lines);
        for part in ["handover deploy by ann@ci", "web-1: lock 2.5s, from 1.0s", "losses not measured", "deployed</p>"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
