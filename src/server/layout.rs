//! Where things lie on a server: paths as values, and the one way in which they are written.
//!
//! Whatever is read here was written whole: beside its place, synced, renamed into it, the folder synced too.

pub mod asleep;

use crate::fleet::model::{Fleet, ReleaseId};
use crate::fleet::release::{DEFINITION, MANIFEST};
use rustix::fs::{Mode, OFlags, openat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A link in the place of a file of ours is somebody's trap; a pipe would be waited for.
pub const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);
/// The name of the folder of releases.
pub const RELEASES: &str = "releases";
/// A longer record is none of ours.
const LONGEST: u64 = 16 * 1024 * 1024;

/// The paths of one app on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    dir: PathBuf,
    lock: PathBuf,
}

/// The three releases that have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pointer {
    /// The last one verified here.
    Current,
    /// The one before.
    Previous,
    /// The one being tried.
    Incoming,
}

impl Pointer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Current, Self::Previous, Self::Incoming];

    /// How it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Previous => "previous",
            Self::Incoming => "incoming",
        }
    }
}

impl Layout {
    /// The layout under a folder, with the lock that bootstrap, watchdog and people's scripts take too.
    pub fn new(dir: impl Into<PathBuf>, lock: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), lock: lock.into() }
    }

    /// The layout that deploy.toml describes.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        Self::new(&fleet.release.dir, &fleet.lock.path)
    }

    /// The folder of everything.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Which app the folder belongs to.
    #[must_use]
    pub fn app(&self) -> PathBuf {
        self.dir.join("app.json")
    }

    /// The sentence for whoever finds that it is another one's.
    #[must_use]
    pub fn belongs_to(&self, app: &str) -> String {
        format!("{} belongs to the app `{app}`; every app needs a `release.dir` of its own", self.dir.display())
    }

    /// The folder of releases.
    #[must_use]
    pub fn releases(&self) -> PathBuf {
        self.dir.join(RELEASES)
    }

    /// A release's folder.
    #[must_use]
    pub fn release(&self, id: &ReleaseId) -> PathBuf {
        self.releases().join(id.as_str())
    }

    /// A release's definition.
    #[must_use]
    pub fn definition(&self, id: &ReleaseId) -> PathBuf {
        self.release(id).join(DEFINITION)
    }

    /// A release's manifest.
    #[must_use]
    pub fn manifest(&self, id: &ReleaseId) -> PathBuf {
        self.release(id).join(MANIFEST)
    }

    /// The folder of our own binaries.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// Our own binary of that digest.
    #[must_use]
    pub fn agent(&self, sha256: &str) -> PathBuf {
        self.bin().join(format!("handover-{}", sha256.get(..12).unwrap_or(sha256)))
    }

    /// The record of what is being done, and of what was.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.dir.join("record.json")
    }

    /// The server lock: made once, never removed, never written to.
    #[must_use]
    pub fn server_lock(&self) -> &Path {
        &self.lock
    }

    /// Who holds the server lock, for whoever finds it held. Beside the lock and not in it: scripts that open the
    /// lock with `>` empty it.
    #[must_use]
    pub fn server_lock_note(&self) -> PathBuf {
        self.dir.join("lock-holder.json")
    }

    /// The deploy lock.
    #[must_use]
    pub fn deploy_lock(&self) -> PathBuf {
        self.dir.join("deploy.lock")
    }

    /// Who holds the deploy lock.
    #[must_use]
    pub fn deploy_lock_note(&self) -> PathBuf {
        self.dir.join("deploy-lock-holder.json")
    }

    /// A freeze.
    #[must_use]
    pub fn freeze(&self) -> PathBuf {
        self.dir.join("freeze.json")
    }

    /// Who takes over from an agent whose connection broke.
    #[must_use]
    pub fn successor(&self) -> PathBuf {
        self.dir.join("successor.json")
    }

    /// The folder of the journals, one file a run.
    #[must_use]
    pub fn journals(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// What was run once here, by release.
    #[must_use]
    pub fn once(&self) -> PathBuf {
        self.dir.join("once.json")
    }

    /// What bootstrap and watchdog know of the fleet.
    #[must_use]
    pub fn settings(&self) -> PathBuf {
        self.dir.join("server.json")
    }

    /// What the watchdog saw last, and counts.
    #[must_use]
    pub fn watchdog(&self) -> PathBuf {
        self.dir.join("watchdog.json")
    }

    /// Touched at each look of the watchdog.
    #[must_use]
    pub fn heartbeat(&self) -> PathBuf {
        self.dir.join("watchdog.heartbeat")
    }

    /// Our own binary as it is installed, for bootstrap and watchdog.
    #[must_use]
    pub fn installed(&self) -> PathBuf {
        self.bin().join("handover")
    }

    /// A planned absence.
    #[must_use]
    pub fn absence(&self) -> PathBuf {
        self.dir.join("absence.json")
    }

    /// The release that a name stands for.
    ///
    /// # Errors
    /// When it cannot be read; that there is none is no error.
    pub fn pointer(&self, pointer: Pointer) -> io::Result<Option<ReleaseId>> {
        match fs::read_link(self.dir.join(pointer.name())) {
            Ok(target) => Ok(target.file_name().and_then(|name| name.to_str()).map(ReleaseId::new)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets a name stand for a release, or for none.
    ///
    /// # Errors
    /// When it cannot be written; the name then stands for what it stood for.
    pub fn point(&self, pointer: Pointer, id: Option<&ReleaseId>) -> io::Result<()> {
        let link = self.dir.join(pointer.name());
        let Some(id) = id else { return remove(&link) };
        let beside = beside(&link);
        symlink(Path::new(RELEASES).join(id.as_str()), &beside)?;
        fs::rename(&beside, &link).inspect_err(|_| drop(fs::remove_file(&beside)))?;
        sync_folder(&self.dir)
    }
}

fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Syncs a folder: a rename in it is on disk only then.
///
/// # Errors
/// When the folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Writes a new file, synced, with exactly that mode whatever the umask is: containers run as other users.
///
/// # Errors
/// When it exists or cannot be written.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Writes a file so that every reader sees the old one or the new one, also after a crash.
///
/// # Errors
/// When it cannot be written; the old one is still there then.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = beside(path);
    write_new(&beside, bytes, mode)
        .and_then(|()| fs::rename(&beside, path))
        .inspect_err(|_| drop(fs::remove_file(&beside)))?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Writes a record.
///
/// # Errors
/// When it cannot be written.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    write_atomic(path, text.as_bytes(), 0o644)
}

/// The sentence for what lies in the place of a file of ours and is none; missing like a right that is.
#[must_use]
pub fn no_plain_file(path: &Path) -> io::Error {
    let what = format!("{} is a link, or no regular file; look at it, and remove it", path.display());
    io::Error::new(ErrorKind::PermissionDenied, what)
}

/// Opens a file of ours: a regular one, and no link to one.
///
/// # Errors
/// When it is neither, or cannot be opened.
pub fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.custom_flags(PLAIN.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| if is_trap(&error) { no_plain_file(path) } else { error })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_plain_file(path)) }
}

/// A link where none is followed, a folder, a socket.
fn is_trap(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error();
    [Errno::LOOP, Errno::ISDIR, Errno::NXIO].iter().any(|trap| code == Some(trap.raw_os_error()))
}

/// Reads a file below a folder; no link on the way to it is followed, and none leads out of the folder.
///
/// # Errors
/// When something on the way is a link, the name leads out of the folder, or it cannot be read.
pub fn read_below(top: &Path, name: &Path) -> io::Result<Vec<u8>> {
    let path = top.join(name);
    let parts: Vec<Component<'_>> = name.components().filter(|part| *part != Component::CurDir).collect();
    let Some((last, folders)) =
        parts.split_last().filter(|_| parts.iter().all(|part| matches!(part, Component::Normal(_))))
    else {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} leads elsewhere", path.display())));
    };
    let told = |error: rustix::io::Errno| match io::Error::from(error) {
        // A link where only a folder is opened.
        error if is_trap(&error) || error.kind() == ErrorKind::NotADirectory => no_plain_file(&path),
        error => error,
    };
    let read_only = OFlags::RDONLY | OFlags::CLOEXEC | PLAIN;
    let mut folder = File::open(top)?;
    for part in folders {
        folder = openat(&folder, part.as_os_str(), read_only | OFlags::DIRECTORY, Mode::empty()).map_err(told)?.into();
    }
    let mut file = File::from(openat(&folder, last.as_os_str(), read_only, Mode::empty()).map_err(told)?);
    if !file.metadata()?.is_file() {
        return Err(no_plain_file(&path));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a record.
///
/// # Errors
/// When it cannot be read or understood, or is a link; that there is none is no error.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let mut bytes = Vec::new();
    let file = open_plain(path, OpenOptions::new().read(true));
    match file.and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
        Ok(_) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// Removes a file; that it is gone already is no error.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => path.parent().map_or(Ok(()), sync_folder),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn layout() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(dir.path(), dir.path().join("lock"));
        (dir, layout)
    }

    #[test]
    fn a_name_stands_for_one_release_at_every_moment() {
        let (_dir, layout) = layout();
        let (one, other) = (ReleaseId::from("one"), ReleaseId::from("other"));
        layout.point(Pointer::Current, Some(&one)).expect("written");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let seen = layout.pointer(Pointer::Current).expect("read").expect("never none");
                    assert!(seen == one || seen == other, "{seen}");
                }
            });
            for _ in 0..50 {
                layout.point(Pointer::Current, Some(&other)).expect("written");
                layout.point(Pointer::Current, Some(&one)).expect("written");
            }
            stop.store(true, Ordering::SeqCst);
        });
        layout.point(Pointer::Current, None).expect("removed");
        assert_eq!(layout.pointer(Pointer::Current).expect("read"), None);
    }

    #[test]
    fn what_a_killed_writer_left_beside_a_file_is_never_read_and_never_in_the_way() {
        let (_dir, layout) = layout();
        write_json(&layout.record(), &"old").expect("written");
        // The moment before the rename: half of the new file lies beside the old one.
        for n in 0..100 {
            let half = layout.dir().join(format!(".record.json.{}.{n}.tmp", std::process::id() + 1));
            fs::write(half, "\"ne").expect("written");
        }
        assert_eq!(read_json::<String>(&layout.record()).expect("read").as_deref(), Some("old"));
        write_json(&layout.record(), &"new").expect("written");
        assert_eq!(read_json::<String>(&layout.record()).expect("read").as_deref(), Some("new"));
    }

    #[test]
    fn a_record_that_is_not_understood_is_an_error_and_not_none() {
        let (_dir, layout) = layout();
        fs::write(layout.absence(), "{").expect("written");
        let error = read_json::<String>(&layout.absence()).expect_err("broken");
        assert!(error.to_string().contains("absence.json"), "{error}");
        assert_eq!(read_json::<String>(&layout.freeze()).expect("none"), None);
    }
}
