//! What is there, and what is missing: every right and tool that a deploy will need, each as a sentence; and what bootstrap and watchdog
//! look at. Changes nothing.

use super::record::{Record, now};
use super::site::{Site, disk};
use super::trust;
use crate::fleet::model::{ReleaseId, ReleaseOnDisk, ServerFacts, ServiceName};
use crate::fleet::release::Manifest;
use crate::server::compose;
use crate::server::flock;
use crate::server::layout::{Pointer, asleep, read_json};
use crate::server::probes;
use crate::server::publish;
use crate::server::run::{last_lines, run};
use crate::server::settings::Settings;
use crate::server::units::{FOLDER, units as units_of};
use crate::server::wire::Failure;
use rustix::fs::{Access, access, statvfs};
use semver::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;

const LOGS: Duration = Duration::from_secs(10);
const QUESTION: Duration = Duration::from_secs(20);
/// `config --no-env-resolution`, `up --pull never` with `--no-build`, `ps --format json` as they are used here.
const COMPOSE_AT_LEAST: Version = Version::new(2, 20, 0);
/// What helps where bootstrap and watchdog go by an earlier deploy.toml.
const TELL: &str = "`handover install` tells them, and `handover install --remove` takes them away";
const MB: u64 = 1024 * 1024;
/// Records and a release's own files need little; without that little a step fails half way.
const ROOM: u64 = 16 * MB;
/// What helps where Compose is not enough.
const INSTALL: &str = "install the plugin `docker-compose-plugin` from Docker's repository, or put the release binary at \
                       /usr/local/lib/docker/cli-plugins/docker-compose";

impl Site {
    pub(super) async fn observe(&self) -> Result<ServerFacts, Failure> {
        let mut missing = Vec::new();
        let engine = engine(&mut missing).await;
        let compose = compose_version(&mut missing).await;
        self.rights(&mut missing);
        missing.extend(trust::faults(&self.layout));
        missing.extend(self.cross_purposes(Path::new(FOLDER)));
        let containers = match self.containers().await {
            Ok(containers) => containers.into_iter().map(|c| c.container).collect(),
            Err(failure) if engine.is_empty() => {
                drop(failure);
                Vec::new()
            }
            Err(failure) => return Err(failure),
        };
        let layout = &self.layout;
        let record = legible(&layout.record(), Record::read(&layout.record()), &mut missing)?;
        let recorded = record.drained && !record.is_of_another_boot();
        let (server_lock, deploy_lock) = (layout.server_lock(), layout.deploy_lock());
        let lock = legible(server_lock, flock::holder(server_lock, &layout.server_lock_note()), &mut missing)?;
        let deploy_lock = legible(&deploy_lock, flock::holder(&deploy_lock, &layout.deploy_lock_note()), &mut missing)?;
        let absence = legible(&layout.absence(), read_json(&layout.absence()), &mut missing)?;
        let freeze = legible(&layout.freeze(), read_json(&layout.freeze()), &mut missing)?;
        let incoming = legible(layout.dir(), layout.pointer(Pointer::Incoming), &mut missing)?;
        let once = legible(&layout.once(), read_json(&layout.once()), &mut missing)?.unwrap_or_default();
        Ok(ServerFacts {
            compose,
            engine,
            disk_free: statvfs(layout.dir()).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize)),
            current: self.on_disk(Pointer::Current, &mut missing).await?,
            previous: self.on_disk(Pointer::Previous, &mut missing).await?,
            incoming,
            missing,
            containers,
            drained: self.is_drained(recorded),
            by_hand: self.unexplained().is_some(),
            absence,
            lock,
            deploy_lock,
            freeze,
            watchdog: legible(&layout.watchdog(), read_json(&layout.watchdog()), &mut Vec::new()).unwrap_or_default(),
            installed: self.installed(),
            asleep: self.sleepers().unwrap_or_default(),
            once,
            drift: self.drifts(),
            held: match self.fleet.drain.by.hold() {
                Some(hold) => Some(probes::held(hold).await),
                None => None,
            },
            nodes: match self.fleet.drain.by.nodes() {
                Some(_) => Some(probes::nodes(&self.fleet.drain.by).await),
                None => None,
            },
        })
    }

    /// What lies here and is not what was published, or told bootstrap and watchdog.
    fn drifts(&self) -> Vec<String> {
        let layout = &self.layout;
        let current = layout.pointer(Pointer::Current).ok().flatten();
        let mut drifts: Vec<String> = current.and_then(|current| self.drift(&current)).into_iter().collect();
        if let Err(failure) = self.sleepers() {
            drifts.push(failure.to_string());
        }
        let installed = layout.installed();
        if !installed.exists() {
            return drifts;
        }
        drifts.extend(
            trust::faults_as_root(layout)
                .into_iter()
                .map(|fault| format!("bootstrap and watchdog run as root and start nothing from here: {fault}")),
        );
        if !same_file(&installed, Path::new("/proc/self/exe")) {
            drifts.push(format!(
                "{} is another build than the one that asks; `handover install` puts this one there",
                installed.display()
            ));
        }
        match Settings::read(layout) {
            Ok(settings) if settings == Settings::of(&self.server, &self.fleet) => {}
            Ok(_) => drifts.push(
                "bootstrap and watchdog go by other numbers than deploy.toml; a deploy or `handover install` tells them"
                    .to_owned(),
            ),
            Err(failure) => drifts.push(failure.to_string()),
        }
        drifts
    }

    /// Bootstrap and watchdog that take another lock, or know another folder, see nobody at work: they would undo what is done on purpose.
    fn cross_purposes(&self, units: &Path) -> Option<String> {
        let [_, _, watchdog] = units_of(&self.fleet.app, self.layout.dir());
        if let Ok(text) = std::fs::read_to_string(units.join(&watchdog.name)) {
            let starts = |text: &str| text.lines().find(|line| line.starts_with("ExecStart=")).map(ToOwned::to_owned);
            if starts(&text) != starts(&watchdog.text) {
                return Some(format!(
                    "{} looks after another folder than {}, and takes its lock: it would work against this; {TELL}",
                    watchdog.name,
                    self.layout.dir().display()
                ));
            }
        }
        let theirs = Settings::read(&self.layout).ok().filter(|_| self.layout.installed().exists())?;
        let (theirs, ours) = (theirs.fleet.lock.path, &self.fleet.lock.path);
        (&theirs != ours).then(|| {
            format!(
                "bootstrap and watchdog take the lock {theirs} and not {ours}: they would work against this; {TELL}"
            )
        })
    }

    /// Its version, where bootstrap and watchdog are installed.
    fn installed(&self) -> Option<String> {
        let installed = self.layout.installed();
        let same = installed.exists() && same_file(&installed, Path::new("/proc/self/exe"));
        match (installed.exists(), same) {
            (false, _) => None,
            (true, true) => Some(env!("CARGO_PKG_VERSION").to_owned()),
            (true, false) => Some("another build".to_owned()),
        }
    }

    async fn on_disk(&self, pointer: Pointer, missing: &mut Vec<String>) -> Result<Option<ReleaseOnDisk>, Failure> {
        let Some(id) = legible(self.layout.dir(), self.layout.pointer(pointer), missing)? else { return Ok(None) };
        // What is not whole is nothing to go back to, and no reason to stop for ever: what runs is saved instead, like what
        // came by other means.
        let Ok(manifest) = publish::check_files(&self.layout, &id) else { return Ok(None) };
        let image_ids = publish::image_ids(&manifest).await.unwrap_or_default();
        Ok(Some(ReleaseOnDisk { manifest, image_ids }))
    }

    fn rights(&self, missing: &mut Vec<String>) {
        self.folders(missing);
        let lock = self.layout.server_lock();
        if lock.exists() && access(lock, Access::READ_OK).is_err() {
            missing.push(format!("the lock {} may not be opened; let everybody who takes it read it", lock.display()));
        } else if !lock.exists() && !lock.parent().is_some_and(may_write) {
            missing.push(format!("the lock {} is not there and cannot be made", lock.display()));
        }
        if let Some(path) = self.fleet.drain.by.file() {
            let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
            if let Err(why) = writable(folder) {
                missing.push(format!(
                    "the drain file's folder {} {why}; `tmpfiles.d` keeps it across boots",
                    folder.display()
                ));
            }
        }
    }

    fn folders(&self, missing: &mut Vec<String>) {
        let dir = self.layout.dir();
        let releases = self.layout.releases();
        // What is in it may be of somebody else's: of root's, where `ssh.sudo` was on before.
        let unfit = [dir, &releases].into_iter().find_map(|folder| writable(folder).err().map(|why| (folder, why)));
        if let Some((folder, why)) = unfit {
            missing.push(format!("{} {why}; give it to the user that deploys", folder.display()));
        }
        if let Ok(stat) = statvfs(dir)
            && stat.f_bavail.saturating_mul(stat.f_frsize) < ROOM
        {
            missing.push(format!("there is less than {} MB of room left in {}", ROOM / MB, dir.display()));
        }
        if let Ok(Some(app)) = read_json::<String>(&self.layout.app())
            && app != self.fleet.app
        {
            missing.push(self.layout.belongs_to(&app));
        }
    }
}

/// What bootstrap and watchdog see, besides.
impl Site {
    /// The services that a gateway has put to sleep, each with the reason.
    pub(in crate::server) fn sleepers(&self) -> Result<BTreeMap<ServiceName, String>, Failure> {
        let asleep = asleep::asleep_services(self.layout.dir(), now());
        let asleep = asleep.map_err(|error| self.unread(&error))?;
        Ok(asleep.into_iter().map(|(service, one)| (service, format!("{} ({})", one.why, one.host))).collect())
    }

    /// Which those are.
    pub(in crate::server) fn asleep(&self) -> Result<BTreeSet<ServiceName>, Failure> {
        Ok(self.sleepers()?.into_keys().collect())
    }

    /// What was verified here last.
    pub(in crate::server) fn current(&self) -> Result<Option<ReleaseId>, Failure> {
        self.layout.pointer(Pointer::Current).map_err(|error| disk(self.layout.dir(), &error))
    }

    /// The last words of these services, for whoever asks why: a new container has a new log.
    pub(in crate::server) async fn last_words(&self, services: &[ServiceName]) -> Vec<String> {
        let mut words = Vec::new();
        for container in self.containers().await.unwrap_or_default() {
            if services.contains(&container.container.service)
                && let Ok(output) = run(&compose::logs(&container.id), LOGS).await
            {
                let lines = last_lines(&format!("{}{}", output.text(), output.stderr), 20);
                words.extend(lines.into_iter().map(|line| format!("{} | {line}", container.container.name)));
            }
        }
        words
    }

    /// What the release's own files say, where they are what was published; else what differs.
    pub(in crate::server) fn drift(&self, release: &ReleaseId) -> Option<String> {
        publish::check_files(&self.layout, release).err().map(|failure| failure.message)
    }

    /// Health is made to fail, and neither the record nor an absence says why.
    pub(in crate::server) fn unexplained(&self) -> Option<String> {
        let recorded = Record::read(&self.layout.record()).map_or(true, |record| record.drained) || self.flag_is_ours();
        let explained = recorded || !matches!(self.absence(), Ok(None));
        (!explained && self.is_drained(false)).then(|| {
            "health is made to fail, and nobody wrote down why; who wants that says `handover drain`".to_owned()
        })
    }

    /// What a release is.
    pub(in crate::server) fn manifest(&self, release: &ReleaseId) -> Result<Manifest, Failure> {
        publish::read_release(&self.layout, release)
    }
}

/// What may not be read is missing a right, which is said together with all others; anything else is an error at once.
fn legible<T: Default>(path: &Path, read: io::Result<T>, missing: &mut Vec<String>) -> Result<T, Failure> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let name = path.display().to_string();
            if !missing.iter().any(|known| known.contains(&name)) {
                missing.push(format!("{name} may not be read"));
            }
            Ok(T::default())
        }
        read => read.map_err(|error| disk(path, &error)),
    }
}

/// Whether both names lead to the same bytes.
fn same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(a), Ok(b)) = (std::fs::metadata(one), std::fs::metadata(other)) else { return false };
    if (a.dev(), a.ino()) == (b.dev(), b.ino()) {
        return true;
    }
    let bytes = |path: &Path| std::fs::read(path).ok();
    a.len() == b.len() && bytes(one) == bytes(other)
}

fn may_write(folder: &Path) -> bool {
    writable(folder).is_ok()
}

/// Whether something can be made in a folder, or the folder itself be made; why not.
fn writable(folder: &Path) -> Result<(), &'static str> {
    let there = folder.ancestors().find(|ancestor| ancestor.exists()).ok_or("cannot be made")?;
    match access(there, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::ROFS) => Err("lies on a read-only file system"),
        Err(_) => Err("may not be written to"),
    }
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
    fn what_may_not_be_read_is_one_sentence_among_others() {
        let denied = || Err::<Option<u8>, _>(io::Error::from(io::ErrorKind::PermissionDenied));
        let mut missing = vec!["the lock /x/lock may not be opened".to_owned()];
        assert_eq!(legible(Path::new("/x/lock"), denied(), &mut missing), Ok(None));
        assert_eq!(legible(Path::new("/x/record.json"), denied(), &mut missing), Ok(None));
        assert_eq!(missing[1..], ["/x/record.json may not be read"], "nothing is said twice");
        let broken = Err::<Option<u8>, _>(io::Error::from(io::ErrorKind::InvalidData));
        assert!(legible(Path::new("/x/record.json"), broken, &mut missing).is_err());
    }

    #[test]
    fn a_watchdog_that_would_not_see_who_works_here_stands_in_the_way() {
        let dir = tempfile::tempdir().expect("a folder");
        let fleet = crate::server::agent::tests::fleet(dir.path(), Duration::from_secs(10));
        let mut site = Site::own(Settings::of(&"web-1".into(), &fleet), "a test");
        let units = dir.path().join("units");
        std::fs::create_dir_all(&units).expect("made");
        let [_, _, watchdog] = units_of(&fleet.app, site.layout.dir());
        let write = |text: &str| std::fs::write(units.join(&watchdog.name), text).expect("written");
        assert_eq!(site.cross_purposes(&units), None, "none is there");
        write(&watchdog.text);
        assert_eq!(site.cross_purposes(&units), None);
        write(&watchdog.text.replace("RestartSec=5s", "RestartSec=9s"));
        assert_eq!(site.cross_purposes(&units), None, "another version's, of the same folder");
        write(&units_of(&fleet.app, Path::new("/opt/elsewhere"))[2].text);
        assert!(site.cross_purposes(&units).is_some_and(|why| why.contains("another folder")));
        write(&watchdog.text);
        Settings::of(&"web-1".into(), &fleet).write(&site.layout).expect("written");
        site.fleet.lock.path = "/elsewhere/lock".into();
        assert_eq!(site.cross_purposes(&units), None, "told once, and taken away since");
        std::fs::create_dir_all(site.layout.bin()).expect("made");
        std::fs::write(site.layout.installed(), "").expect("written");
        let why = site.cross_purposes(&units).expect("two locks");
        assert!(why.contains(&fleet.lock.path) && why.contains("/elsewhere/lock") && why.contains("install"), "{why}");
    }

    #[test]
    fn a_folder_that_can_be_made_may_be_written_to() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(may_write(&dir.path().join("a/b")));
        assert!(!may_write(Path::new("/dev/null/no")), "not even root makes a folder in a device");
    }
}
