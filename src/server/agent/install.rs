//! Puts bootstrap and watchdog on the server that the agent runs on, and takes them away again.
//!
//! The binary is the agent's own, so that it fits the server; nothing is started that was not asked for: the watchdog runs from now
//! on, the two parts of bootstrap from the next start of the engine on.

use super::site::{Site, disk};
use crate::server::layout::{self, write_atomic};
use crate::server::run::{CommandLine, run};
use crate::server::settings::Settings;
use crate::server::units::{FOLDER, Unit, by_hand, names, units};
use crate::server::wire::{Failure, FailureKind};
use rustix::process::geteuid;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

const SYSTEMCTL: Duration = Duration::from_secs(60);
/// A heal that is under way is finished first.
const STOPPING: Duration = Duration::from_secs(660);

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
        self.fit()?;
        let mut changed = Vec::new();
        if self.put_binary()? {
            changed.push(format!("{} is this build", self.layout.installed().display()));
        }
        let settings = Settings::of(&self.server, &self.fleet);
        let path = self.layout.settings();
        if Settings::read(&self.layout).ok().as_ref() != Some(&settings) {
            settings.write(&self.layout).map_err(|error| disk(&path, &error))?;
            changed.push(format!("{} says what deploy.toml says", path.display()));
        }
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
            done(systemctl(["restart", &watchdog]), STOPPING).await?;
            changed.push(format!("{watchdog} runs"));
        }
        self.proved().await.map(|()| changed)
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
                done(systemctl(["stop", &unit]), STOPPING).await?;
            }
            done(systemctl(["disable", "--quiet", &unit]), SYSTEMCTL).await?;
            layout::remove(&path).map_err(|error| disk(&path, &error))?;
            changed.push(format!("{unit} is gone"));
        }
        if !changed.is_empty() {
            done(systemctl(["daemon-reload"]), SYSTEMCTL).await?;
        }
        for path in [self.layout.installed(), self.layout.watchdog(), self.layout.heartbeat()] {
            if path.exists() {
                layout::remove(&path).map_err(|error| disk(&path, &error))?;
                changed.push(format!("{} is gone", path.display()));
            }
        }
        Ok(changed)
    }

    /// Whether there is a systemd and the right to tell it something.
    fn fit(&self) -> Result<(), Failure> {
        if !Path::new("/run/systemd/system").is_dir() {
            self.put_binary()?;
            let path = self.layout.settings();
            Settings::of(&self.server, &self.fleet).write(&self.layout).map_err(|error| disk(&path, &error))?;
            let what = "there is no systemd here; the binary is in place, and cron can start it";
            return Err(Failure::new(FailureKind::Missing, what)
                .hint("put these lines into root's crontab")
                .output(by_hand(self.layout.dir())));
        }
        self.root()
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
