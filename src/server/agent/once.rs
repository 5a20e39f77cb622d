//! What is run once for a release, in a container of its own beside what serves: begun on disk, run, its end on disk.
//!
//! Who dies in between leaves its container behind; the next one waits for that container's end instead of running it again.

use super::now;
use super::site::{Site, disk};
use crate::fleet::model::{Once, OnceRecord, OnceState, ReleaseId, note_once};
use crate::fleet::patience::ENGINE_MARGIN;
use crate::fleet::release::DEFINITION;
use crate::server::compose;
use crate::server::layout::{Pointer, read_json, write_json};
use crate::server::publish;
use crate::server::run::{last_lines, run};
use crate::server::wire::{Failure, FailureKind, OnceEnd};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// What a person is shown of what it printed.
const SHOWN: usize = 20;

impl Site {
    /// What was run once here, as far as it was written down.
    pub(super) fn once_records(&self) -> Result<Vec<OnceRecord>, Failure> {
        let path = self.layout.once();
        let records = read_json(&path).map_err(|error| disk(&path, &error))?;
        Ok(records.unwrap_or_default())
    }

    /// Runs it, or waits for the end of what a killed agent began.
    pub(super) async fn once(&mut self, release: &ReleaseId, once: &Once) -> Result<OnceEnd, Failure> {
        self.hold().await?;
        let is_done = |r: &OnceRecord| r.release == *release && r.name == once.name && r.state == OnceState::Done;
        if self.once_records()?.iter().any(is_done) {
            // Asked again because the answer was lost on its way.
            return Ok(OnceEnd { code: Some(0), output: Vec::new(), took: Duration::ZERO });
        }
        let manifest = self.startable(release).await?;
        if !manifest.services.contains_key(&once.service) {
            let message = format!("run_once `{}`: the release has no service {}", once.name, once.service);
            return Err(Failure::new(FailureKind::Input, message));
        }
        self.networks_stay(release)?;
        let container = compose::once_name(&self.fleet.app, &once.name, release.short());
        let began = Instant::now();
        let end = match self.left_behind(&container, once.limit).await? {
            Some(end) => end,
            None => self.run_it(release, once, &container).await?,
        };
        let state = if end.code == Some(0) { OnceState::Done } else { OnceState::Failed };
        self.note_once(release, once, state)?;
        run(&compose::remove_container(&container), ENGINE_MARGIN).await?.success("removing its container")?;
        Ok(OnceEnd { took: began.elapsed(), ..end })
    }

    async fn run_it(&mut self, release: &ReleaseId, once: &Once, container: &str) -> Result<OnceEnd, Failure> {
        self.note_once(release, once, OnceState::Began)?;
        let file = Path::new(DEFINITION);
        let line = compose::run_once(&self.fleet.app, file, once.service.as_str(), container, &once.run);
        let line = line.cwd(&self.layout.release(release));
        let secrets = publish::Secrets::of_release(&self.layout, release);
        let shown = |mut lines: Vec<String>| {
            lines.iter_mut().for_each(|line| secrets.hide(line));
            lines
        };
        match self.change(&line, once.limit).await {
            Ok(output) => {
                let both = format!("{}{}", output.text(), output.stderr);
                let output =
                    OnceEnd { code: Some(output.code), output: shown(last_lines(&both, SHOWN)), took: Duration::ZERO };
                Ok(output)
            }
            // Its client is gone, the container may run on: it is removed by force.
            Err(failure) => Ok(OnceEnd { code: None, output: shown(failure.output), took: Duration::ZERO }),
        }
    }

    /// The end of a container that is there already: of a killed agent's.
    async fn left_behind(&self, container: &str, limit: Duration) -> Result<Option<OnceEnd>, Failure> {
        let until = Instant::now() + limit;
        loop {
            let output = run(&compose::once_state(container), ENGINE_MARGIN).await?;
            let text = output.text();
            let Some((state, code)) = text.trim().split_once(' ').filter(|_| output.code == 0) else { return Ok(None) };
            if state == "created" {
                // Made and never started.
                run(&compose::remove_container(container), ENGINE_MARGIN).await?.success("removing its container")?;
                return Ok(None);
            }
            let code = code.parse().ok().filter(|_| matches!(state, "exited" | "dead"));
            if code.is_some() || Instant::now() >= until {
                let output = vec!["begun by an agent that was killed; what it printed is not known".to_owned()];
                return Ok(Some(OnceEnd { code, output, took: Duration::ZERO }));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Where the networks of a release differ from those of what runs, Compose takes them away under what serves, to make them anew
    /// (measured with 2.40.3).
    fn networks_stay(&self, release: &ReleaseId) -> Result<(), Failure> {
        let current = self.layout.pointer(Pointer::Current).map_err(|error| disk(self.layout.dir(), &error))?;
        let Some(current) = current.filter(|current| current != release) else { return Ok(()) };
        let networks = |id: &ReleaseId| -> Result<Value, Failure> {
            let path = self.layout.definition(id);
            let definition: Option<Value> = read_json(&path).map_err(|error| disk(&path, &error))?;
            Ok(definition.and_then(|definition| definition.get("networks").cloned()).unwrap_or_default())
        };
        if networks(&current)? == networks(release)? {
            return Ok(());
        }
        let what = "the release has other networks than what runs here: Compose would take them away under what serves";
        Err(Failure::new(FailureKind::Input, what)
            .hint("bring the change of networks by a deploy without `[[run_once]]`, and what is run once by the next"))
    }

    fn note_once(&self, release: &ReleaseId, once: &Once, state: OnceState) -> Result<(), Failure> {
        let mut records = self.once_records()?;
        note_once(&mut records, OnceRecord { release: release.clone(), name: once.name.clone(), state, at: now() });
        let path = self.layout.once();
        write_json(&path, &records).map_err(|error| disk(&path, &error))
    }
}
