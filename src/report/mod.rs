//! The readers of the event stream: text for people, lines for pipelines, JSON for machines.
//!
//! Results go to stdout, progress to stderr. Nothing but this module prints.

mod book;
mod check;
mod html;
mod job;
mod measured;
mod notice;
mod plan;
mod progress;
mod provision;
mod releases;
mod sections;
mod status;
mod table;
mod text;

pub use book::{Book, books, kept_events};
pub use check::{check_text, findings_json, live_text, mutations_text, relations_text};
pub use html::page;
pub use measured::measured_text;
pub use notice::{Level as NoticeLevel, Notice, github, sarif};
pub use plan::{plan_json, plan_text};
pub use provision::provision_text;
pub use releases::{history_json, history_text, releases_json, releases_text};
pub use status::{status_json, status_text};
pub use table::table;

use crate::diag::Problem;
use crate::event::{Event, Line, Sink};
use job::Job;
use progress::Bars;
use sections::Sections;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// How output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a person at a terminal.
    Human,
    /// Whole lines, for logs.
    Plain,
    /// One JSON object a line.
    Json,
}

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only results, warnings and failures.
    Quiet,
    /// And every proof.
    Normal,
    /// And what is waited for.
    Verbose,
}

/// Writes events out as they come.
#[derive(Debug)]
pub struct Reporter {
    format: Format,
    level: Level,
    bars: Option<Mutex<Bars>>,
    job: Job,
    /// Where GitLab shows the log.
    sections: Option<Mutex<Sections>>,
    /// Every line, where somebody will make a page of them.
    kept: OnceLock<Mutex<Vec<Value>>>,
}

impl Reporter {
    /// Without a wish for a format: for people where stderr is a terminal, whole lines elsewhere.
    #[must_use]
    pub fn new(wish: Option<Format>, level: Level) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let format = wish.unwrap_or(if terminal { Format::Human } else { Format::Plain });
        let bars = (format == Format::Human && terminal && level > Level::Quiet).then(|| Mutex::new(Bars::new()));
        let gitlab = std::env::var_os("GITLAB_CI").is_some_and(|value| value == "true");
        let sections = (gitlab && format != Format::Json && level > Level::Quiet).then(Mutex::default);
        Self { format, level, bars, job: Job::of_environment(), sections, kept: OnceLock::new() }
    }

    /// Keeps every line from now on.
    pub fn keep(&self) {
        self.kept.get_or_init(Mutex::default);
    }

    /// Keeps lines that nobody is told: what a page says besides.
    pub fn keep_besides(&self, lines: Vec<Value>) {
        if let Some(kept) = self.kept.get() {
            kept.lock().unwrap_or_else(PoisonError::into_inner).extend(lines);
        }
    }

    /// What was kept.
    #[must_use]
    pub fn kept(&self) -> Vec<Value> {
        self.kept.get().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    /// How it writes.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes a result.
    pub fn result(&self, text: &str) {
        self.pause(|| write_all(&mut std::io::stdout().lock(), text));
    }

    /// Writes a line of progress.
    pub fn note(&self, text: &str) {
        if self.level > Level::Quiet && self.format != Format::Json {
            self.pause(|| write_all(&mut std::io::stderr().lock(), text));
        }
    }

    /// Writes what went wrong, for people; in JSON the summary says it.
    pub fn problem(&self, problem: &Problem) {
        if self.format != Format::Json {
            self.pause(|| write_all(&mut std::io::stderr().lock(), &text::problem(problem)));
            if let Some(annotation) = self.job.annotation(problem) {
                self.pause(|| write_all(&mut std::io::stderr().lock(), &annotation));
            }
        }
    }

    /// Takes the bars away for good.
    pub fn finish(&self) {
        if let Some(bars) = &self.bars {
            bars.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        }
    }

    fn pause(&self, write: impl FnOnce()) {
        match &self.bars {
            Some(bars) => bars.lock().unwrap_or_else(std::sync::PoisonError::into_inner).suspend(write),
            None => write(),
        }
    }

    /// Writes what folds a log, where somebody reads it so.
    fn fold(&self, part: impl FnOnce(&mut Sections, u64) -> String) {
        let Some(sections) = &self.sections else { return };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let text = part(&mut sections.lock().unwrap_or_else(PoisonError::into_inner), at);
        if !text.is_empty() {
            self.pause(|| write_all(&mut std::io::stderr().lock(), &text));
        }
    }

    fn json(&self, line: &Line) {
        let text = serde_json::to_string(line)
            .unwrap_or_else(|error| format!(r#"{{"format":1,"event":"unprintable","error":"{error}"}}"#));
        self.result(&text);
    }
}

/// A reader that went away (`| head`) is no fault of ours and nothing that a deploy should stop for.
fn write_all(out: &mut dyn Write, text: &str) {
    drop(writeln!(out, "{}", text.trim_end_matches('\n')));
    drop(out.flush());
}

impl Sink for Reporter {
    fn take(&self, line: Line) {
        if let (Some(kept), Ok(value)) = (self.kept.get(), serde_json::to_value(&line)) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(value);
        }
        if let Event::Summary(summary) = &line.event {
            self.job.sum_up(summary);
        }
        if self.format == Format::Json {
            return self.json(&line);
        }
        if let Some(bars) = &self.bars {
            bars.lock().unwrap_or_else(std::sync::PoisonError::into_inner).show(&line);
        }
        self.fold(|sections, at| sections.before(&line.event, at));
        let text = text::line(&line, self.level, self.bars.is_some());
        self.tell(&line, text);
        self.fold(|sections, at| sections.after(&line.event, at));
    }
}

impl Reporter {
    fn tell(&self, line: &Line, text: Option<String>) {
        let Some(text) = text else { return };
        if matches!(line.event, Event::Summary(_)) {
            self.finish();
            self.result(&text);
        } else {
            self.pause(|| write_all(&mut std::io::stderr().lock(), &text));
        }
    }
}
