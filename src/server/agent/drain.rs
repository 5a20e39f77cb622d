//! Makes health fail on purpose and pass again, by whichever way deploy.toml names.

use super::record::State;
use super::site::{Site, disk};
use crate::fleet::model::{Absence, DrainBy, HttpCall, ServiceName};
use crate::fleet::recovery::flipped_out;
use crate::http;
use crate::server::compose::{self, Inspected};
use crate::server::layout::{remove, write_atomic};
use crate::server::run::CommandLine;
use crate::server::wire::{Failure, FailureKind, Reply};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// What stands in a drain file of ours.
const OWN: &[u8] = b"drained by handover\n";
/// The app is on this machine, and a flip is no work.
const FLIP: Duration = Duration::from_secs(15);

impl Site {
    pub(super) async fn ask_flip(&mut self, drained: bool) -> Result<Reply, Failure> {
        self.hold().await?;
        self.flip(drained).await?;
        if let (false, Some(Absence { ends_when_verified: true, .. })) = (drained, self.absence()?) {
            // It is let back, so it is absent no more.
            let path = self.layout.absence();
            remove(&path).map_err(|error| disk(&path, &error))?;
        }
        Ok(Reply::Done)
    }

    /// The record says so before health begins to fail, and only after it passes again that it does no more.
    pub(super) async fn flip(&mut self, drained: bool) -> Result<(), Failure> {
        if drained {
            self.record.state = flipped_out(self.record.state.clone(), self.is_out());
            self.record.drained = true;
            self.save()?;
        }
        match self.fleet.drain.by.clone() {
            DrainBy::File { path } | DrainBy::Gateway { path, .. } | DrainBy::Hold { path, .. } => {
                flip_file(Path::new(&path), drained)?;
            }
            DrainBy::Http { drain, undrain } => call(if drained { &drain } else { &undrain }).await?,
            DrainBy::Exec { service, drain, undrain } => {
                self.flip_exec(service, if drained { drain } else { undrain }).await?;
            }
            DrainBy::Signal { service, drain, undrain } => {
                self.flip_signal(&service, if drained { &drain } else { &undrain }).await?;
            }
            // The stop itself, or the balancer's side of it: nothing is done here.
            DrainBy::Sigterm | DrainBy::Deregister => {}
        }
        if !drained {
            self.record.drained = false;
            if matches!(self.record.state, State::Drained | State::Switched) {
                self.record.state = State::Locked;
            }
            // Health passes again, which is what was asked for; what is in memory is written with the next step.
            drop(self.save());
        }
        Ok(())
    }

    async fn flip_exec(&mut self, service: Option<ServiceName>, argv: Vec<String>) -> Result<(), Failure> {
        let Some(service) = service else {
            self.change(&CommandLine::new(argv).cwd(Path::new("/")), FLIP).await?.success("the drain command")?;
            return Ok(());
        };
        for id in self.alive(&service).await? {
            self.change(&compose::exec(&id, &argv), FLIP).await?.success(&format!("the drain command in {service}"))?;
        }
        Ok(())
    }

    async fn flip_signal(&mut self, service: &ServiceName, name: &str) -> Result<(), Failure> {
        for id in self.alive(service).await? {
            self.change(&compose::signal(&id, name), FLIP).await?.success(&format!("sending {name} to {service}"))?;
        }
        Ok(())
    }

    async fn alive(&self, service: &ServiceName) -> Result<Vec<String>, Failure> {
        let containers = self.containers().await?;
        let ids: Vec<String> =
            containers.into_iter().filter(|c| c.is_alive() && &c.container.service == service).map(|c| c.id).collect();
        if ids.is_empty() {
            return Err(Failure::new(
                FailureKind::Command,
                format!("no container of {service} runs, so it cannot be told to drain"),
            ));
        }
        Ok(ids)
    }

    /// Whether the drain file is there and one of ours wrote it: a person's own is left alone.
    pub(in crate::server) fn flag_is_ours(&self) -> bool {
        self.fleet.drain.by.file().is_some_and(|path| std::fs::read(path).is_ok_and(|text| text == OWN))
    }

    /// Whether the drain file is there, whoever wrote it.
    pub(in crate::server) fn flag_is_there(&self) -> bool {
        self.fleet.drain.by.file().is_some_and(|path| Path::new(path).exists())
    }

    /// Whether a person made health fail, by a drain file of his own: neither its text nor the record says that it is ours.
    pub(in crate::server) fn is_out_by_hand(&self) -> bool {
        self.flag_is_there() && !self.is_out()
    }

    /// Whether one of these was started since health was made to fail: by an engine that was restarted, as a rule, and nobody has looked
    /// at it. Of the other ways but the file the state died with it.
    pub(super) fn started_while_out<'a>(&self, containers: impl IntoIterator<Item = &'a Inspected>) -> bool {
        let Some(path) = self.fleet.drain.by.file() else { return false };
        let since = std::fs::metadata(path).and_then(|meta| meta.modified());
        since.is_ok_and(|since| containers.into_iter().any(|c| c.is_alive() && c.started.is_some_and(|at| at > since)))
    }

    /// Whether health is made to fail now: the file says so itself, of the others only our record knows.
    pub(super) fn is_drained(&self, recorded: bool) -> bool {
        match &self.fleet.drain.by {
            DrainBy::File { path } | DrainBy::Gateway { path, .. } | DrainBy::Hold { path, .. } => {
                Path::new(path).exists()
            }
            DrainBy::Http { .. } | DrainBy::Exec { .. } | DrainBy::Signal { .. } => recorded,
            DrainBy::Sigterm | DrainBy::Deregister => false,
        }
    }
}

pub(super) fn flip_file(path: &Path, drained: bool) -> Result<(), Failure> {
    let done = if drained {
        // The folder lies in /run as a rule, and is gone after a boot.
        path.parent().map_or(Ok(()), make_folder).and_then(|()| write_atomic(path, OWN, 0o644))
    } else {
        remove(path)
    };
    done.map_err(|error| disk(path, &error))
}

/// Makes the folder, open for the app, which runs as another user, whatever our umask is.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o755))
}

async fn call(call: &HttpCall) -> Result<(), Failure> {
    let failed = |what: String| Failure::new(FailureKind::Command, format!("{} {}: {what}", call.method, call.url));
    match http::get(&call.url, None, &call.method, FLIP).await {
        Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
        Ok(answer) => Err(failed(format!("answered {}", answer.status))),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_comes_and_goes_and_its_folder_is_made() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run/mythex/drain");
        flip_file(&path, true).expect("made");
        flip_file(&path, true).expect("made again");
        assert!(path.exists());
        flip_file(&path, false).expect("removed");
        flip_file(&path, false).expect("gone already");
        assert!(!path.exists() && path.parent().is_some_and(Path::exists));
        let mode =
            path.parent().and_then(|folder| folder.metadata().ok()).map(|meta| meta.permissions().mode() & 0o777);
        assert_eq!(mode, Some(0o755), "the app is another user");
    }

    #[test]
    fn what_was_started_after_health_began_to_fail_is_told_from_what_ran_before() {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = crate::server::settings::Settings::of(
            &"web-1".into(),
            &crate::server::agent::tests::fleet(dir.path(), Duration::from_secs(10)),
        );
        let site = Site::own(settings, "watchdog");
        let one = |state: &str, started: &str| {
            let text = format!(
                r#"[{{"Id": "a", "Name": "/app-api-1", "RestartCount": 0, "Image": "sha256:1", "State": {{"Status": "{state}",
                "ExitCode": 0, "StartedAt": "{started}", "FinishedAt": "0001-01-01T00:00:00Z"}},
                "Config": {{"Env": [], "Labels": {{"com.docker.compose.service": "api"}}, "StopTimeout": 10}}}}]"#
            );
            compose::parse_inspect(text.as_bytes()).expect("an answer")
        };
        let (before, after) = ("2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z");
        assert!(!site.started_while_out(&one("running", after)), "it is not out");
        flip_file(&dir.path().join("run/drain"), true).expect("made");
        assert!(!site.started_while_out(&one("running", before)));
        assert!(site.started_while_out(&one("running", after)));
        assert!(!site.started_while_out(&one("exited", after)));
    }
}
