//! What a pipeline shows of a run beside its log: a summary in Markdown, and the failure as an annotation (GitHub: workflow commands).
//!
//! Texts of servers come into it, so nothing in it is taken for Markdown or for a command.

use super::text::requests;
use crate::diag::Problem;
use crate::event::{ServerOutcome, Summary};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// Where a pipeline wants what, as its environment says.
#[derive(Debug, Default)]
pub(super) struct Job {
    summary: Option<PathBuf>,
    annotates: bool,
}

impl Job {
    pub(super) fn of_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            summary: set("GITHUB_STEP_SUMMARY").map(PathBuf::from),
            annotates: set("GITHUB_ACTIONS").is_some_and(|value| value == "true"),
        }
    }

    /// Adds a run to the job's page. A page that cannot be written stops no deploy.
    pub(super) fn sum_up(&self, summary: &Summary) {
        let Some(path) = &self.summary else { return };
        let file = OpenOptions::new().append(true).create(true).open(path);
        drop(file.and_then(|mut file| file.write_all(markdown(summary).as_bytes())));
    }

    /// The line that makes a failure an annotation.
    pub(super) fn annotation(&self, problem: &Problem) -> Option<String> {
        self.annotates.then(|| format!("::error title=handover::{}", command_text(&problem.to_string())))
    }
}

/// GitHub: `%`, and what ends a line, are written as bytes in a workflow command.
fn command_text(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn plain(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\n' | '\r' => out.push(' '),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '<' | '>' | '#' | '|' | '!' | '~' => {
                out.push('\\');
                out.push(letter);
            }
            '&' => out.push_str("&amp;"),
            other => out.push(other),
        }
    }
    out
}

fn word(outcome: ServerOutcome) -> String {
    let value = serde_json::to_value(outcome).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

fn markdown(summary: &Summary) -> String {
    let release = summary.release.as_ref().map(|release| format!(" {}", release.short())).unwrap_or_default();
    let mut out = format!("### handover: {}{release}\n\n", summary.outcome.replace('_', " "));
    if let Some(error) = &summary.error {
        let _ = writeln!(out, "{}\n", plain(&error.message));
        if let Some(hint) = &error.hint {
            let _ = writeln!(out, "{}\n", plain(hint));
        }
    }
    let counts = summary.requests.as_ref().map_or_else(|| "losses not measured".to_owned(), requests);
    let _ = writeln!(out, "{counts}\n");
    if summary.floor_seconds > 0.0 {
        let _ = writeln!(out, "{:.1}s, at the least {:.1}s\n", summary.seconds, summary.floor_seconds);
    }
    if !summary.each.is_empty() {
        out += "| server | outcome |\n| --- | --- |\n";
        for (server, outcome) in &summary.each {
            let _ = writeln!(out, "| {} | {} |", plain(server.as_str()), word(*outcome));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Exit;
    use crate::event::{ErrorLine, Floor, Requests};

    #[test]
    fn a_run_is_summed_up_and_nothing_of_a_server_s_text_is_markdown() {
        let summary = Summary {
            exit: 5,
            error: Some(ErrorLine {
                kind: "failed".into(),
                message: "web-1: <b>`x`</b> | y\n# not a title".into(),
                hint: None,
                server: None,
                step: None,
                output: Vec::new(),
            }),
            outcome: "rolled_back".into(),
            release: None,
            servers: 1,
            each: [("web-1".into(), ServerOutcome::RolledBack)].into(),
            took: Vec::new(),
            requests: Some(Requests { total: 9, served: 8, nowhere: 1, ..Requests::default() }),
            seconds: 3.0,
            floor_seconds: 2.5,
            floor: Floor::default(),
            more: std::collections::BTreeMap::new(),
        };
        assert_eq!(
            markdown(&summary),
            "### handover: rolled back\n\nweb-1: \\<b\\>\\`x\\`\\</b\\> \\| y \\# not a title\n\n\
             9 requests: 8 served, 1 reached nowhere\n\n3.0s, at the least 2.5s\n\n\
             | server | outcome |\n| --- | --- |\n| web-1 | rolled back |\n\n"
        );
    }

    #[test]
    fn a_failure_is_one_command_whatever_its_text_is() {
        let job = Job { summary: None, annotates: true };
        let said = job.annotation(&Problem::new(Exit::Failed, "100% of\nweb-1\r::error::no")).expect("one");
        assert_eq!(said, "::error title=handover::100%25 of%0Aweb-1%0D::error::no");
        assert_eq!(Job::default().annotation(&Problem::new(Exit::Failed, "x")), None);
    }
}
