//! Progress bars, on a terminal only: one line a server that is worked on.

use crate::event::{Event, Line, StepState};
use crate::fleet::model::ServerName;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::time::Duration;

/// The bars.
#[derive(Debug)]
pub(super) struct Bars {
    all: MultiProgress,
    servers: BTreeMap<ServerName, ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        Self { all: MultiProgress::new(), servers: BTreeMap::new() }
    }

    pub(super) fn show(&mut self, line: &Line) {
        match &line.event {
            Event::Step { server, step, state: StepState::Began, seconds, .. } => {
                self.bar(server).set_message(format!("{step} (about {seconds:.0}s)"));
            }
            Event::Waiting { server, step, what } => self.bar(server).set_message(format!("{step}: {what}")),
            Event::ServerDone { server, .. } => {
                if let Some(bar) = self.servers.remove(server) {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
    }

    fn bar(&mut self, server: &ServerName) -> &ProgressBar {
        self.servers.entry(server.clone()).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:12} {elapsed:>5} {msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(server.to_string());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        })
    }

    pub(super) fn suspend(&self, write: impl FnOnce()) {
        self.all.suspend(write);
    }

    pub(super) fn clear(&mut self) {
        self.servers.clear();
        drop(self.all.clear());
    }
}
