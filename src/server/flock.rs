//! Locks that bootstrap, watchdog, deploys and people's own `flock(1)` scripts all see.
//!
//! The one place that names fs2. A lock file is made once and never removed or renamed: with a new file under the old
//! name two holders would coexist. Rust opens files close-on-exec, so that no child keeps a lock after us.

use super::layout::{open_plain, read_json, remove, write_json};
use super::process::{ProcessId, command_line, pids};
use super::wire::Run;
use crate::fleet::model::Holder;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A lock that is ours until it is dropped.
#[derive(Debug)]
pub struct Flock {
    file: File,
    note: PathBuf,
}

/// What trying to take a lock came to.
#[derive(Debug)]
pub enum Taken {
    /// It is ours.
    Ours(Flock),
    /// It is somebody else's.
    Held(Holder),
}

/// Who holds a lock, as he says himself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    format: u32,
    process: ProcessId,
    holder: Holder,
}

/// Tries to take a lock without waiting, and writes down who has it.
///
/// # Errors
/// When the lock file cannot be made or opened, or the note not be written.
pub fn try_take(lock: &Path, note: &Path, run: &Run) -> io::Result<Taken> {
    let file = open(lock)?;
    // Spelt out: with the dotted form std's own method of that name would win.
    match fs2::FileExt::try_lock_exclusive(&file) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => {
            return Ok(Taken::Held(holder(lock, note)?.unwrap_or_else(unnamed)));
        }
        Err(error) => return Err(error),
    }
    let flock = Flock { file, note: note.to_owned() };
    let holder =
        Holder { who: run.who.clone(), what: run.what.clone(), since: epoch_seconds(), run: Some(run.id.clone()) };
    write_json(note, &Note { format: 1, process: ProcessId::of(std::process::id()), holder })?;
    Ok(Taken::Ours(flock))
}

/// Opens the lock file, and makes it where there is none. Somebody else's file that can only be read will do.
fn open(lock: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).write(true).create_new(true).open(lock) {
        // Everybody who takes it must be able to open it, whatever our umask is.
        Ok(file) => return file.set_permissions(Permissions::from_mode(0o664)).map(|()| file),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    match open_plain(lock, OpenOptions::new().read(true).write(true)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open_plain(lock, OpenOptions::new().read(true)).map_err(|_| error)
        }
        other => other,
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        // The note first: without it the lock would for a moment seem to be ours while somebody else has it.
        drop(remove(&self.note));
        drop(fs2::FileExt::unlock(&self.file));
    }
}

/// Who holds a lock, if anybody does.
///
/// A free lock is taken shared for an instant where /proc tells nothing; a `flock -n` of that instant would find it held.
///
/// # Errors
/// When the lock file is there and cannot be read.
pub fn holder(lock: &Path, note: &Path) -> io::Result<Option<Holder>> {
    let file = match open_plain(lock, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    let pid = match holding_pid(meta.dev(), meta.ino()) {
        Some(pid) => Some(pid),
        None if is_free(&file) => return Ok(None),
        None => None,
    };
    // A note that is not understood names nobody; the lock counts all the same.
    if let Ok(Some(note)) = read_json::<Note>(note)
        && note.process.is_alive()
        && pid.is_none_or(|pid| pid == note.process.pid)
    {
        return Ok(Some(note.holder));
    }
    Ok(Some(pid.map_or_else(unnamed, named)))
}

/// The run that took a lock last and did not free it in order, whether or not its process still lives.
///
/// # Errors
/// When the note is there and cannot be read.
pub fn taken_by(note: &Path) -> io::Result<Option<String>> {
    Ok(read_json::<Note>(note)?.and_then(|note| note.holder.run))
}

fn is_free(file: &File) -> bool {
    let free = fs2::FileExt::try_lock_shared(file).is_ok();
    if free {
        drop(fs2::FileExt::unlock(file));
    }
    free
}

fn named(pid: u32) -> Holder {
    let what = command_line(pid).unwrap_or_else(|| "a command that cannot be read".to_owned());
    Holder { who: format!("process {pid}"), what, since: started(pid).unwrap_or(0), run: None }
}

fn unnamed() -> Holder {
    Holder {
        who: "a process that cannot be seen from here".to_owned(),
        what: "unknown".to_owned(),
        since: 0,
        run: None,
    }
}

fn started(pid: u32) -> Option<u64> {
    let modified = fs::metadata(format!("/proc/{pid}")).ok()?.modified().ok()?;
    modified.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

fn epoch_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The process that holds it: by /proc/locks, or, where the one that took it has left it to a child (`exec 9>lock;
/// flock 9`), by what every process has open.
fn holding_pid(dev: u64, ino: u64) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let listed = parse_locks(&locks, dev, ino);
    if let Some(pid) = listed.filter(|pid| command_line(*pid).is_some()) {
        return Some(pid);
    }
    pids().find(|pid| {
        let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        infos.filter_map(|info| fs::read_to_string(info.path()).ok()).any(|info| {
            let locks: Vec<&str> = info.lines().filter_map(|line| line.strip_prefix("lock:")).collect();
            parse_locks(&locks.join("\n"), dev, ino).is_some()
        })
    })
}

/// Finds a FLOCK that is held (not waited for) on a file. The device is compared only where the numbers can mean the
/// same: an overlay shows another one than the lock table has.
fn parse_locks(text: &str, dev: u64, ino: u64) -> Option<u32> {
    let mut by_inode = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { continue };
        let mut parts = file.split(':');
        let (Some(major), Some(minor), Some(inode)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (Some(major), Some(minor), Ok(pid)) = (hex(major), hex(minor), pid.parse::<u32>()) else { continue };
        if inode.parse() == Ok(ino) {
            if (major, minor) == major_minor(dev) {
                return Some(pid);
            }
            by_inode.push(pid);
        }
    }
    (by_inode.len() == 1).then(|| by_inode[0])
}

// glibc's gnu_dev_major and gnu_dev_minor.
fn major_minor(dev: u64) -> (u64, u64) {
    (((dev >> 8) & 0xfff) | ((dev >> 32) & 0xffff_f000), (dev & 0xff) | ((dev >> 12) & 0xffff_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    fn run() -> Run {
        Run { id: "run-1".into(), who: "ann@laptop".into(), what: "deploy v2".into() }
    }

    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let (lock, note) = (dir.path().join("lock"), dir.path().join("note"));
        (dir, lock, note)
    }

    fn ours(lock: &Path, note: &Path) -> Flock {
        match try_take(lock, note, &run()).expect("the lock file can be opened") {
            Taken::Ours(flock) => flock,
            Taken::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    fn held(lock: &Path, note: &Path) -> Holder {
        match try_take(lock, note, &run()).expect("the lock file can be opened") {
            Taken::Ours(_) => panic!("it should be held"),
            Taken::Held(holder) => holder,
        }
    }

    fn script(text: &str, lock: &Path) -> Child {
        let child =
            Command::new("bash").args(["-c", text, "script"]).arg(lock).stdout(Stdio::null()).spawn().expect("bash");
        let end = Instant::now() + Duration::from_secs(10);
        while !lock.exists() || is_free(&File::open(lock).expect("open")) {
            assert!(Instant::now() < end, "the script never took the lock");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        child
    }

    fn end(mut child: Child) {
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }

    fn flock_command(lock: &Path) -> bool {
        Command::new("flock").arg("-n").arg(lock).arg("true").status().expect("flock(1)").success()
    }

    #[test]
    fn flock_1_finds_our_lock_held_and_gets_it_afterwards() {
        let (_dir, lock, note) = place();
        let flock = ours(&lock, &note);
        assert!(!flock_command(&lock));
        let holder = held(&lock, &note);
        assert_eq!((holder.who.as_str(), holder.run.as_deref()), ("ann@laptop", Some("run-1")));
        drop(flock);
        assert!(flock_command(&lock));
        assert!(lock.exists() && !note.exists());
    }

    #[test]
    fn a_script_that_holds_it_is_named_by_its_command_line() {
        let (_dir, lock, note) = place();
        let child = script("exec flock \"$1\" sleep 60.125", &lock);
        let holder = held(&lock, &note);
        assert!(holder.what.contains("sleep 60.125"), "{holder:?}");
        end(child);
    }

    #[test]
    fn a_shell_that_was_left_the_lock_by_flock_1_is_named_too() {
        let (_dir, lock, note) = place();
        let child = script("exec 9>\"$1\"; flock 9; while :; do sleep 0.05 9>&-; done", &lock);
        let holder = held(&lock, &note);
        assert!(holder.who.contains(&child.id().to_string()), "{holder:?}");
        end(child);
    }

    #[test]
    fn a_note_of_a_dead_run_does_not_speak_for_somebody_else() {
        let (_dir, lock, note) = place();
        let stale = Note {
            format: 1,
            process: ProcessId { pid: 1, start: 1, boot: "an earlier boot".into() },
            holder: Holder { who: "bob".into(), what: "deploy".into(), since: 1, run: None },
        };
        write_json(&note, &stale).expect("written");
        let child = script("exec flock \"$1\" sleep 60.25", &lock);
        assert!(held(&lock, &note).what.contains("sleep 60.25"));
        end(child);
        let end = Instant::now() + Duration::from_secs(10);
        while holder(&lock, &note).expect("read").is_some() {
            assert!(Instant::now() < end, "never free");
            drop(Command::new("pkill").args(["-f", "sleep 60.25"]).status());
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_child_does_not_keep_the_lock() {
        let (_dir, lock, note) = place();
        let flock = ours(&lock, &note);
        let child = Command::new("sleep").arg("60").spawn().expect("sleep");
        drop(flock);
        assert!(flock_command(&lock));
        end(child);
    }

    #[test]
    fn everybody_can_open_a_lock_that_we_made() {
        let (_dir, lock, note) = place();
        drop(ours(&lock, &note));
        let mode = || fs::metadata(&lock).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o664);
        fs::set_permissions(&lock, Permissions::from_mode(0o600)).expect("set");
        drop(ours(&lock, &note));
        assert_eq!(mode(), 0o600, "what others made is left as it is");
    }

    #[test]
    fn a_lock_that_is_only_waited_for_is_not_held() {
        let text = "1: -> FLOCK  ADVISORY  WRITE 7 fe:00:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 fe:00:42 0 EOF\n";
        assert_eq!(parse_locks(text, 0xfe00, 42), Some(8));
        assert_eq!(parse_locks(text, 0xfe00, 43), None);
        let two = "1: FLOCK ADVISORY WRITE 7 00:31:42 0 EOF\n2: FLOCK ADVISORY WRITE 8 00:32:42 0 EOF\n";
        assert_eq!(parse_locks(two, 0x31, 42), Some(7));
        assert_eq!(parse_locks(two, 0x99, 42), None, "two files with that number, neither on this device");
    }
}
