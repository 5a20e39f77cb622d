//! The book: runs as they were written down where they were run from, one file each, apart from what their servers keep.

use crate::rollout;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// So many runs stay.
const KEEP: usize = 200;
const ENDING: &str = "jsonl";
/// The whole stream of a run, beside its journal.
const EVENTS: &str = "events";

/// The book of one run, open.
#[derive(Debug)]
pub struct Book {
    folder: PathBuf,
    path: PathBuf,
    file: Mutex<Option<File>>,
}

/// Where the books of an app lie: `$HANDOVER_STATE`, else `$XDG_STATE_HOME/handover`, else `~/.local/state/handover`.
///
/// # Errors
/// Where none of the variables is set.
pub fn folder(app: &str) -> io::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("HANDOVER_STATE")
        .or_else(|| set("XDG_STATE_HOME").map(|state| state.join("handover")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/handover")));
    let base = base.ok_or_else(|| io::Error::other("neither HANDOVER_STATE nor XDG_STATE_HOME nor HOME is set"))?;
    Ok(base.join(app))
}

impl Book {
    /// Makes ready to write a run down. Its file is made with its first line.
    ///
    /// # Errors
    /// Where there is no folder for it.
    pub fn open(app: &str, run: &str) -> io::Result<Self> {
        let folder = folder(app)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
        let path = folder.join(format!("{run}.{ENDING}"));
        Ok(Self { folder, path, file: Mutex::new(None) })
    }

    /// Keeps the whole stream of the run, for its page.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn keep_events(&self, lines: &[serde_json::Value]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path.with_extension(EVENTS))?;
        lines.iter().try_for_each(|line| writeln!(file, "{line}"))
    }
}

/// The stream of an app's run whose id begins so, or of the youngest of which one was kept.
///
/// # Errors
/// When one that is there cannot be read.
pub fn kept_events(app: &str, wanted: Option<&str>) -> io::Result<Option<(String, String)>> {
    for (_, path) in listed(&folder(app)?) {
        let run = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let events = path.with_extension(EVENTS);
        if wanted.is_some_and(|wanted| !run.starts_with(wanted)) || !events.exists() {
            continue;
        }
        return Ok(Some((run, String::from_utf8_lossy(&fs::read(events)?).into_owned())));
    }
    Ok(None)
}

impl rollout::Book for Book {
    fn write(&self, line: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            prune(&self.folder);
            *file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path).ok();
        }
        if let Some(file) = file.as_mut() {
            // The servers have it too: a full disk here stops no deploy.
            drop(file.write_all(format!("{line}\n").as_bytes()));
        }
    }
}

fn listed(folder: &Path) -> Vec<(SystemTime, PathBuf)> {
    let mut found: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|ending| ending == ENDING))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

fn prune(folder: &Path) {
    for (_, old) in listed(folder).into_iter().skip(KEEP - 1) {
        // The next run tries again.
        drop(fs::remove_file(old.with_extension(EVENTS)));
        drop(fs::remove_file(old));
    }
}

/// The texts of an app's youngest runs.
///
/// # Errors
/// When a file that is there cannot be read.
pub fn books(app: &str, newest: usize) -> io::Result<Vec<String>> {
    let read = |(_, path): (SystemTime, PathBuf)| {
        let bytes =
            fs::read(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    listed(&folder(app)?).into_iter().take(newest).map(read).collect()
}
