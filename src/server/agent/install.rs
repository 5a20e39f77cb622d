//! Puts bootstrap and watchdog on the server that the agent runs on, and takes them away again.
//!
//! The binary is the agent's own, so that it fits the server; nothing is started that was not asked for: the watchdog runs from now
//! on, the two parts of bootstrap from the next start of the engine on.

use super::site::{Site, disk};
use super::trust;
use crate::fleet::model::ServiceName;
use crate::fleet::patience;
use crate::server::layout::{self, Layout, write_atomic};
use crate::server::run::{CommandLine, run};
use crate::server::settings::Settings;
use crate::server::units::{FOLDER, Unit, by_hand, names, units};
use crate::server::wire::{Failure, FailureKind};
use rustix::process::geteuid;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SYSTEMCTL: Duration = Duration::from_secs(60);
/// The engine's own unit, as Docker's packages name it; ours belong to it.
const ENGINE: &str = "docker.service";

fn systemctl<const N: usize>(args: [&str; N]) -> CommandLine {
    CommandLine::new(["systemctl"]).args(args)
}

async fn done(line: CommandLine, within: Duration) -> Result<(), Failure> {
    let shown = format!("`{}`", line.shown());
    run(&line, within).await?.success(&shown).map(drop)
}

impl Site {
    /// Installs; what was changed, each as a sentence, nothing where it stood so already.
    pub(super) async fn install(&mut self) -> Result<Vec<String>, Failure> {
        self.fit().await?;
        let told = self.told().await?;
        let mut changed = Vec::new();
        if self.put_binary()? {
            changed.push(format!("{} is this build", self.layout.installed().display()));
        }
        let (written, note) = self.tell(told)?;
        changed.extend(written);
        let mut rewritten = false;
        for Unit { name, text } in units(&self.fleet.app, self.layout.dir()) {
            let path = Path::new(FOLDER).join(&name);
            if fs::read_to_string(&path).is_ok_and(|before| before == text) {
                continue;
            }
            write_atomic(&path, text.as_bytes(), 0o644).map_err(|error| disk(&path, &error))?;
            changed.push(format!("{} is written", path.display()));
            rewritten = true;
        }
        if rewritten {
            done(systemctl(["daemon-reload"]), SYSTEMCTL).await?;
        }
        let [early, bootstrap, watchdog] = names(&self.fleet.app);
        for unit in [&early, &bootstrap, &watchdog] {
            if !is(unit, "is-enabled").await? {
                done(systemctl(["enable", "--quiet", unit]), SYSTEMCTL).await?;
                changed.push(format!("{unit} is enabled"));
            }
        }
        if !is(&watchdog, "is-active").await? || !changed.is_empty() {
            done(systemctl(["restart", &watchdog]), self.stopping().await).await?;
            changed.push(format!("{watchdog} runs"));
        }
        self.proved().await?;
        changed.extend(note);
        changed.extend(self.stays_out_after_a_boot()?);
        Ok(changed)
    }

    /// What nobody may expect where no deploy of ours was yet, whatever runs there by other means.
    fn stays_out_after_a_boot(&self) -> Result<Option<String>, Failure> {
        let why = "no release was verified here yet: after a boot the server stays out of rotation until `handover deploy` has brought one";
        Ok(self.last_good()?.is_none().then(|| why.to_owned()))
    }

    /// What bootstrap and watchdog may be told.
    async fn told(&self) -> Result<Told, Failure> {
        let settings = Settings::of(&self.server, &self.fleet);
        let before = Settings::read(&self.layout).ok();
        let same_checks = before.as_ref().is_some_and(|before| before.fleet.services == settings.fleet.services);
        let fault = match self.current()? {
            Some(current) if !same_checks => {
                let asleep = self.asleep()?;
                self.faults(&current, &|service: &ServiceName| !asleep.contains(service)).await?.into_iter().next()
            }
            _ => None,
        };
        to_tell(before.as_ref(), settings, fault)
    }

    /// What was written, and what is still to be said.
    fn tell(&self, told: Told) -> Result<(Option<String>, Option<String>), Failure> {
        let path = self.layout.settings();
        match told {
            Told::Same => Ok((None, None)),
            Told::Later(why) => {
                let path = path.display();
                Ok((None, Some(format!("{path} says what it said before; the next deploy tells it, since {why}"))))
            }
            Told::New(settings) => {
                settings.write(&self.layout).map_err(|error| disk(&path, &error))?;
                Ok((Some(format!("{} says what deploy.toml says", path.display())), None))
            }
        }
    }

    /// A heal that is under way is finished first.
    async fn stopping(&self) -> Duration {
        // An engine that does not answer heals nothing.
        patience::turn(&self.fleet, self.grace().await.unwrap_or_default()) + SYSTEMCTL
    }

    /// Takes everything away that an install put there; releases, records and locks stay.
    pub(super) async fn uninstall(&mut self) -> Result<Vec<String>, Failure> {
        self.root()?;
        let mut changed = Vec::new();
        for unit in names(&self.fleet.app) {
            let path = Path::new(FOLDER).join(&unit);
            if !path.exists() {
                continue;
            }
            if unit.ends_with("-watchdog.service") {
                done(systemctl(["stop", &unit]), self.stopping().await).await?;
            }
            done(systemctl(["disable", "--quiet", &unit]), SYSTEMCTL).await?;
            layout::remove(&path).map_err(|error| disk(&path, &error))?;
            changed.push(format!("{unit} is gone"));
        }
        if !changed.is_empty() {
            done(systemctl(["daemon-reload"]), SYSTEMCTL).await?;
        }
        // Metrics that nobody writes any more would be taken for how things stand.
        let told = Settings::read(&self.layout).ok().and_then(|told| told.fleet.watchdog.textfile);
        let metrics = told.map(PathBuf::from);
        for path in
            [self.layout.installed(), self.layout.watchdog(), self.layout.heartbeat()].into_iter().chain(metrics)
        {
            if path.exists() {
                layout::remove(&path).map_err(|error| disk(&path, &error))?;
                changed.push(format!("{} is gone", path.display()));
            }
        }
        Ok(changed)
    }

    /// Whether there is a systemd that starts the engine, the right to tell it something, and nobody else who could change what it then
    /// starts.
    async fn fit(&self) -> Result<(), Failure> {
        if !Path::new("/run/systemd/system").is_dir() {
            return self.by_hand("there is no systemd here").await;
        }
        self.root()?;
        trusted_by_root(&self.layout)?;
        if run(&systemctl(["cat", ENGINE]), SYSTEMCTL).await?.code == 0 {
            return Ok(());
        }
        self.by_hand(&format!(
            "systemd knows no {ENGINE} here (the engine may be a snap), so no unit could wait for it"
        ))
        .await
    }

    /// The binary is put in place all the same, and what starts it is said.
    async fn by_hand(&self, why: &str) -> Result<(), Failure> {
        let told = self.told().await?;
        self.put_binary()?;
        let note = self.tell(told)?.1.map_or_else(String::new, |note| format!("; {note}"));
        let what = format!("{why}; the binary is in place, and cron can start it{note}");
        Err(Failure::new(FailureKind::Missing, what)
            .hint("put these lines into root's crontab")
            .output(by_hand(self.layout.dir())))
    }

    fn root(&self) -> Result<(), Failure> {
        if geteuid().is_root() {
            return Ok(());
        }
        let what = format!("only root may write to {FOLDER}, and the agent runs as user {}", geteuid().as_raw());
        Err(Failure::new(FailureKind::Missing, what).hint("set `ssh.sudo = true`, or let `ssh` log in as root"))
    }

    /// Our own binary under the name that the units have for it; whether it was another one before.
    fn put_binary(&self) -> Result<bool, Failure> {
        let to = self.layout.installed();
        let own = Path::new("/proc/self/exe");
        let failed = |error: &io::Error| disk(&to, error);
        if same(own, &to).map_err(|error| failed(&error))? {
            return Ok(false);
        }
        fs::create_dir_all(self.layout.bin()).map_err(|error| failed(&error))?;
        let beside = self.layout.bin().join(format!(".handover.{}.tmp", std::process::id()));
        let put = put(own, &beside).and_then(|()| fs::rename(&beside, &to));
        put.inspect_err(|_| drop(fs::remove_file(&beside))).map_err(|error| failed(&error))?;
        layout::sync_folder(&self.layout.bin()).map_err(|error| failed(&error))?;
        if same(own, &to).map_err(|error| failed(&error))? {
            Ok(true)
        } else {
            Err(Failure::new(FailureKind::Internal, format!("{} is not on disk what was written", to.display())))
        }
    }

    /// Nothing is believed because a command returned.
    async fn proved(&self) -> Result<(), Failure> {
        let [early, bootstrap, watchdog] = names(&self.fleet.app);
        for (unit, what) in
            [(&early, "is-enabled"), (&bootstrap, "is-enabled"), (&watchdog, "is-enabled"), (&watchdog, "is-active")]
        {
            if !is(unit, what).await? {
                return Err(Failure::new(FailureKind::Command, format!("`systemctl {what} {unit}` still says no")));
            }
        }
        Ok(())
    }
}

/// What bootstrap and watchdog are told.
#[derive(Debug, PartialEq)]
enum Told {
    /// What they know.
    Same,
    /// Something else.
    New(Box<Settings>),
    /// Nothing yet, and why.
    Later(String),
}

/// What runs here was verified by what an earlier deploy.toml said; `fault` is what the checks of this one make of it. A watchdog that
/// goes by them would heal what is not broken.
fn to_tell(before: Option<&Settings>, settings: Settings, fault: Option<String>) -> Result<Told, Failure> {
    match (before, fault) {
        (Some(before), _) if *before == settings => Ok(Told::Same),
        (_, None) => Ok(Told::New(Box::new(settings))),
        (Some(_), Some(fault)) => Ok(Told::Later(format!("what runs does not pass the new checks: {fault}"))),
        (None, Some(fault)) => {
            let what = format!("what runs here does not pass the checks of deploy.toml: {fault}");
            Err(Failure::new(FailureKind::Command, what)
                .hint("a watchdog that goes by them would heal it again and again: deploy, which verifies by them, and install again"))
        }
    }
}

/// Nothing but root's is started as root: where bootstrap would refuse at the next boot, an install refuses today.
fn trusted_by_root(layout: &Layout) -> Result<(), Failure> {
    let faults = trust::faults_as_root(layout);
    let Some(first) = faults.first() else { return Ok(()) };
    let what = format!("bootstrap and watchdog run as root, and would start nothing from here: {first}");
    Err(Failure::new(FailureKind::Missing, what)
        .hint("`ssh.sudo = true` goes on working when the folder is root's")
        .output(faults))
}

/// Whether a unit is so.
async fn is(unit: &str, what: &str) -> Result<bool, Failure> {
    Ok(run(&systemctl([what, "--quiet", unit]), SYSTEMCTL).await?.code == 0)
}

/// The same bytes; a file that is not there is another one.
fn same(own: &Path, other: &Path) -> io::Result<bool> {
    match fs::read(other) {
        Ok(bytes) => Ok(bytes == fs::read(own)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn put(own: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::copy(own, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    fs::File::open(to)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::agent::tests::fleet;

    #[test]
    fn who_installs_before_the_first_deploy_is_told_what_a_boot_will_do() {
        let dir = tempfile::tempdir().expect("a folder");
        let fleet = fleet(dir.path(), Duration::from_secs(10));
        let site = Site::own(Settings::of(&"web-1".into(), &fleet), "a test");
        let note = site.stays_out_after_a_boot().expect("looked").expect("nothing was verified");
        assert!(note.contains("stays out of rotation until `handover deploy`"), "{note}");
    }

    #[test]
    fn a_watchdog_is_not_told_what_would_set_it_against_a_server_that_works() {
        let old = Settings::of(&"web-1".into(), &fleet(Path::new("/x"), Duration::from_secs(10)));
        let mut new = old.clone();
        new.fleet.watchdog.strikes += 1;
        let fault = || Some("api: answered 404".to_owned());
        assert_eq!(to_tell(Some(&old), old.clone(), fault()), Ok(Told::Same), "what it knows already");
        assert_eq!(to_tell(Some(&old), new.clone(), None), Ok(Told::New(Box::new(new.clone()))));
        assert_eq!(to_tell(None, new.clone(), None), Ok(Told::New(Box::new(new.clone()))));
        let later = to_tell(Some(&old), new.clone(), fault());
        assert!(matches!(&later, Ok(Told::Later(why)) if why.contains("new checks: api: answered 404")), "{later:?}");
        let refused = to_tell(None, new, fault()).expect_err("there is nothing older to go by");
        assert!(refused.hint.is_some_and(|hint| hint.contains("deploy")), "{}", refused.message);
    }
}
