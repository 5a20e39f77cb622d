//! GitLab's foldable parts of a job's log: what comes before the first server, and one part a server or batch.
//!
//! GitLab reads a part's beginning and end from the log itself, by escape codes that its own viewer takes out; nobody else is given them.

use crate::event::{Event, StepState};
use crate::fleet::model::ServerName;
use crate::fleet::plan::Step;
use std::collections::BTreeSet;

/// What is open.
#[derive(Debug, Default)]
pub(super) struct Sections {
    open: Option<String>,
    /// Servers that are being worked on.
    busy: BTreeSet<ServerName>,
    count: u32,
}

impl Sections {
    /// What is to be written before the lines of an event; `at` are seconds since the epoch.
    pub(super) fn before(&mut self, event: &Event, at: u64) -> String {
        match event {
            Event::Preflight { .. } | Event::Hook { server: None, .. } if self.open.is_none() && self.count == 0 => {
                self.begin("before the first server", at)
            }
            Event::Began { .. } | Event::Summary(_) => {
                self.busy.clear();
                self.end(at)
            }
            Event::Step { server, step, state: StepState::Began, .. } => {
                let new = self.busy.insert(server.clone());
                if !new || self.open.is_some() {
                    return String::new();
                }
                let once_more = *step == Step::Verify;
                self.begin(if once_more { "the whole fleet once more" } else { server.as_str() }, at)
            }
            _ => String::new(),
        }
    }

    /// What is to be written after them.
    pub(super) fn after(&mut self, event: &Event, at: u64) -> String {
        let Event::ServerDone { server, .. } = event else { return String::new() };
        self.busy.remove(server);
        if self.busy.is_empty() { self.end(at) } else { String::new() }
    }

    fn begin(&mut self, head: &str, at: u64) -> String {
        self.count += 1;
        let name = format!("handover_{}", self.count);
        let line = format!("\x1b[0Ksection_start:{at}:{name}\r\x1b[0K{head}");
        self.open = Some(name);
        line
    }

    fn end(&mut self, at: u64) -> String {
        self.open.take().map(|name| format!("\x1b[0Ksection_end:{at}:{name}\r\x1b[0K")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Course, ServerOutcome, Took};

    fn step(server: &str, step: Step) -> Event {
        let (course, state) = (Course::Forward, StepState::Began);
        Event::Step { server: server.into(), step, course, state, seconds: 0.0, detail: None }
    }

    fn done(server: &str) -> Event {
        let (outcome, took) = (ServerOutcome::Deployed, Took::default());
        Event::ServerDone { server: server.into(), outcome, took, what: String::new() }
    }

    #[test]
    fn a_job_of_gitlab_has_one_part_before_the_first_server_and_one_a_batch() {
        let mut sections = Sections::default();
        let mut told = Vec::new();
        let events = [
            Event::Preflight { server: None, what: "3 servers answer".into() },
            Event::Preflight { server: None, what: "staged".into() },
            step("web-1", Step::Guard),
            step("web-2", Step::Guard),
            step("web-1", Step::Lock),
            done("web-1"),
            done("web-2"),
            step("web-3", Step::Guard),
            done("web-3"),
            step("web-1", Step::Verify),
        ];
        for (at, event) in events.iter().enumerate() {
            // What belongs to the preflight ends where the run begins.
            if at == 2 {
                told.push(sections.end(2));
            }
            told.extend([sections.before(event, at as u64), sections.after(event, at as u64)]);
        }
        told.retain(|line| !line.is_empty());
        let plain: Vec<String> = told.iter().map(|line| line.replace("\x1b[0K", "").replace('\r', " ")).collect();
        assert_eq!(
            plain,
            [
                "section_start:0:handover_1 before the first server",
                "section_end:2:handover_1 ",
                "section_start:2:handover_2 web-1",
                "section_end:6:handover_2 ",
                "section_start:7:handover_3 web-3",
                "section_end:8:handover_3 ",
                "section_start:9:handover_4 the whole fleet once more",
            ]
        );
        assert!(told[0].starts_with("\x1b[0Ksection_start:0:handover_1\r\x1b[0K"));
    }
}
