//! What is there, and what is missing: every right and tool that a deploy will need, each as a sentence. Changes nothing.

use super::record::Record;
use super::site::{Site, disk};
use crate::fleet::model::{DrainBy, ReleaseOnDisk, ServerFacts};
use crate::server::compose;
use crate::server::flock;
use crate::server::layout::{Pointer, read_json};
use crate::server::publish;
use crate::server::run::run;
use crate::server::wire::Failure;
use rustix::fs::{Access, access, statvfs};
use semver::Version;
use std::path::Path;
use std::time::Duration;

const QUESTION: Duration = Duration::from_secs(20);
/// `config --no-env-resolution`, `up --pull never` with `--no-build`, `ps --format json` as they are used here.
const COMPOSE_AT_LEAST: Version = Version::new(2, 20, 0);
/// What helps where Compose is not enough.
const INSTALL: &str = "install the plugin `docker-compose-plugin` from Docker's repository, or put the release binary at \
                       /usr/local/lib/docker/cli-plugins/docker-compose";

impl Site {
    pub(super) async fn observe(&self) -> Result<ServerFacts, Failure> {
        let mut missing = Vec::new();
        let engine = engine(&mut missing).await;
        let compose = compose_version(&mut missing).await;
        self.rights(&mut missing);
        let containers = match self.containers().await {
            Ok(containers) => containers.into_iter().map(|c| c.container).collect(),
            Err(failure) if engine.is_empty() => {
                drop(failure);
                Vec::new()
            }
            Err(failure) => return Err(failure),
        };
        let layout = &self.layout;
        let path = layout.record();
        let recorded = Record::read(&path).map_err(|error| disk(&path, &error))?.drained;
        let holder = |lock: &Path, note: &Path| flock::holder(lock, note).map_err(|error| disk(lock, &error));
        Ok(ServerFacts {
            compose,
            engine,
            disk_free: statvfs(layout.dir()).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize)),
            current: self.on_disk(Pointer::Current, &mut missing).await?,
            previous: self.on_disk(Pointer::Previous, &mut missing).await?,
            incoming: layout.pointer(Pointer::Incoming).map_err(|error| disk(layout.dir(), &error))?,
            missing,
            containers,
            drained: self.is_drained(recorded),
            absence: self.absence()?,
            lock: holder(layout.server_lock(), &layout.server_lock_note())?,
            deploy_lock: holder(&layout.deploy_lock(), &layout.deploy_lock_note())?,
            freeze: read_json(&layout.freeze()).map_err(|error| disk(&layout.freeze(), &error))?,
        })
    }

    async fn on_disk(&self, pointer: Pointer, missing: &mut Vec<String>) -> Result<Option<ReleaseOnDisk>, Failure> {
        let id = self.layout.pointer(pointer).map_err(|error| disk(self.layout.dir(), &error))?;
        let Some(id) = id else { return Ok(None) };
        let manifest = match publish::check_files(&self.layout, &id) {
            Ok(manifest) => manifest,
            Err(failure) if pointer == Pointer::Current => {
                missing.push(format!("`current` is not whole: {failure}"));
                return Ok(None);
            }
            // One step further back is less to go back to, and no reason to stop.
            Err(_) => return Ok(None),
        };
        let image_ids = publish::image_ids(&manifest).await.unwrap_or_default();
        Ok(Some(ReleaseOnDisk { manifest, image_ids }))
    }

    fn rights(&self, missing: &mut Vec<String>) {
        let dir = self.layout.dir();
        if !may_write(dir) {
            missing.push(format!("{} may not be written to; give it to the user that deploys", dir.display()));
        }
        let lock = self.layout.server_lock();
        if lock.exists() && access(lock, Access::READ_OK).is_err() {
            missing.push(format!("the lock {} may not be opened; let everybody who takes it read it", lock.display()));
        } else if !lock.exists() && !lock.parent().is_some_and(may_write) {
            missing.push(format!("the lock {} is not there and cannot be made", lock.display()));
        }
        if let DrainBy::File { path } = &self.fleet.drain.by {
            let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
            if !may_write(folder) {
                missing.push(format!(
                    "the drain file's folder {} may not be written to; `tmpfiles.d` keeps it across boots",
                    folder.display()
                ));
            }
        }
    }
}

/// Whether something can be made in a folder, or the folder itself be made.
fn may_write(folder: &Path) -> bool {
    let there = folder.ancestors().find(|ancestor| ancestor.exists());
    there.is_some_and(|there| access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok())
}

async fn engine(missing: &mut Vec<String>) -> String {
    match run(&compose::engine_version(), QUESTION).await {
        Ok(output) if output.code == 0 => output.text().trim().to_owned(),
        Ok(output) => {
            let why = output.last_lines().join(" ");
            missing.push(if why.contains("permission denied") {
                "the user that the agent runs as may not use Docker; add it to the group `docker`, or set `ssh.sudo = true`".to_owned()
            } else {
                format!("the Docker engine does not answer: {why}")
            });
            String::new()
        }
        Err(failure) => {
            missing.push(format!("Docker is not there: {failure}"));
            String::new()
        }
    }
}

async fn compose_version(missing: &mut Vec<String>) -> String {
    let word = match run(&compose::version(), QUESTION).await {
        Ok(output) if output.code == 0 => output.text().trim().trim_start_matches('v').to_owned(),
        _ => String::new(),
    };
    let one = if word.is_empty() { run(&compose::version_one(), QUESTION).await.ok() } else { None };
    let one = one.filter(|output| output.code == 0).map(|output| output.text().trim().to_owned());
    missing.extend(compose_fault(&word, one.as_deref()));
    if word.is_empty() { one.unwrap_or_default() } else { word }
}

/// What is wrong with this Compose; `one` is what a `docker-compose` of its own says, where the plugin is missing.
fn compose_fault(word: &str, one: Option<&str>) -> Option<String> {
    if word.is_empty() {
        return Some(match one {
            Some(one) if one.starts_with("1.") => format!(
                "Compose is {one}, which is v1 and no longer maintained; {COMPOSE_AT_LEAST} is needed: {INSTALL}"
            ),
            Some(one) => format!("Compose {one} is there, but not as a plugin of Docker: {INSTALL}"),
            None => format!("Docker Compose is not there: {INSTALL}"),
        });
    }
    let numbers: Vec<u64> = word.split(['.', '-', '+', '~']).map_while(|part| part.parse().ok()).collect();
    match numbers[..] {
        [major, minor, ..] if Version::new(major, minor, 0) >= COMPOSE_AT_LEAST => None,
        [_, _, ..] => Some(format!("Compose is {word}; {COMPOSE_AT_LEAST} is needed: {INSTALL}")),
        _ => Some(format!("Compose's version `{word}` is not understood; {COMPOSE_AT_LEAST} is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_is_refused_by_name() {
        assert!(compose_fault("", Some("1.29.2")).expect("refused").contains("1.29.2, which is v1"));
        assert!(compose_fault("", None).expect("refused").contains("docker-compose-plugin"));
        assert!(compose_fault("2.17.0", None).expect("refused").contains("2.20.0 is needed"));
        for fine in ["2.20.0", "2.40.3", "2.29.1-desktop.1", "2.39.4+ds1-0ubuntu1", "5.0.1"] {
            assert_eq!(compose_fault(fine, None), None, "{fine}");
        }
    }

    #[test]
    fn a_folder_that_can_be_made_may_be_written_to() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(may_write(&dir.path().join("a/b")));
        assert!(!may_write(Path::new("/dev/null/no")), "not even root makes a folder in a device");
    }
}
