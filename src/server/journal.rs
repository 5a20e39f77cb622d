//! The journals on a server: one file a run, added to line by line, so that a fresh machine finds what a killed one did.
//!
//! Knows nothing of what the lines say: who deploys writes them and reads them again.

use super::layout::{open_plain, sync_folder};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// So many journals stay; older ones go when another begins.
const KEEP: usize = 50;
/// A longer one is not ours: it is shown as far as that.
const LONGEST: u64 = 1024 * 1024;
const ENDING: &str = ".jsonl";

/// Adds lines to a run's journal; they are on disk when it returns.
///
/// # Errors
/// When the disk does not take them, or the run's name is none.
pub fn append(folder: &Path, run: &str, lines: &[String]) -> io::Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if run.is_empty() || run.len() > 100 || !run.chars().all(fits) {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("`{run}` is no name of a run")));
    }
    match fs::DirBuilder::new().create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = folder.join(format!("{run}{ENDING}"));
    let fresh = !path.exists();
    let mut text = String::new();
    for line in lines {
        // What a killed writer left half is a line of its own.
        text.push_str(&line.replace('\n', " "));
        text.push('\n');
    }
    let mut file = open_plain(&path, OpenOptions::new().read(true).append(true).create(true).mode(0o600))?;
    if !fresh && !ends_a_line(&mut file)? {
        text.insert(0, '\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    if fresh {
        sync_folder(folder)?;
        for (_, old) in listed(folder)?.into_iter().skip(KEEP) {
            // The next run tries again.
            drop(fs::remove_file(old));
        }
    }
    Ok(())
}

fn ends_a_line(file: &mut fs::File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The text of the youngest journals, the youngest first.
///
/// # Errors
/// When one of them cannot be read; that there is none is no error.
pub fn newest(folder: &Path, count: u32) -> io::Result<Vec<String>> {
    let mut texts = Vec::new();
    for (_, path) in listed(folder)?.into_iter().take(count as usize) {
        let mut bytes = Vec::new();
        let file = open_plain(&path, OpenOptions::new().read(true))
            .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
        file.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        texts.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(texts)
}

/// The journals, the one that was written to last first.
fn listed(folder: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name().to_string_lossy().ends_with(ENDING) {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_and_a_half_written_one_spoils_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("journal");
        assert_eq!(newest(&folder, 5).expect("none"), Vec::<String>::new());
        append(&folder, "1-2-3", &["{\"a\":1}".into()]).expect("written");
        let path = folder.join("1-2-3.jsonl");
        fs::write(&path, "{\"a\":1}\n{\"b\"").expect("cut short");
        append(&folder, "1-2-3", &["{\"c\":\n3}".into()]).expect("written");
        assert_eq!(newest(&folder, 5).expect("read"), ["{\"a\":1}\n{\"b\"\n{\"c\": 3}\n"]);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["", "../x", "a/b", "a\0b", &"x".repeat(101)] {
            assert!(append(dir.path(), name, &[]).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_journal_is_neither_read_nor_written_through() {
        let dir = tempfile::tempdir().expect("a folder");
        let secret = dir.path().join("secret");
        fs::write(&secret, "secret").expect("written");
        let folder = dir.path().join("journal");
        fs::create_dir(&folder).expect("made");
        std::os::unix::fs::symlink(&secret, folder.join("9.jsonl")).expect("linked");
        assert_eq!(newest(&folder, 5).expect("read"), Vec::<String>::new());
        assert!(append(&folder, "9", &["x".into()]).is_err());
        assert_eq!(fs::read_to_string(&secret).expect("read"), "secret");
    }

    #[test]
    fn old_journals_go_when_another_begins() {
        let dir = tempfile::tempdir().expect("a folder");
        for run in 0..KEEP + 3 {
            append(dir.path(), &format!("run-{run:03}"), &["x".into()]).expect("written");
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + run as u64);
            let file = fs::File::options().write(true).open(dir.path().join(format!("run-{run:03}.jsonl")));
            file.and_then(|file| file.set_modified(at)).expect("set back");
        }
        let left = listed(dir.path()).expect("listed");
        assert_eq!(left.len(), KEEP);
        assert!(left.iter().all(|(_, path)| !path.ends_with("run-000.jsonl")));
    }
}
