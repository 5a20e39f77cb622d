//! Backends that are off because nobody needs them: the record that a gateway writes, and everybody else on the server reads.
//!
//! One file for each host of the gateway, `<dir>/asleep/<host>.json`. It is written before the first container is stopped and
//! removed only after the backend accepted connections again, so that whoever finds a service off and named in it knows that
//! this is meant: a watchdog does not heal it, bootstrap does not start it, a deploy leaves it off. A record whose time is over
//! (`until`) says nothing any more: a stop or a start that takes longer than it may is a fault, and nobody's plan.

use super::{read_json, remove, write_json};
use crate::fleet::model::ServiceName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Format number of the record.
pub const FORMAT: u32 = 1;
/// The name of the folder.
const FOLDER: &str = "asleep";

/// Services of one host that are off on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asleep {
    /// `FORMAT`.
    pub format: u32,
    /// The gateway's host whose backend they are.
    pub host: String,
    /// Their Compose project.
    pub project: String,
    /// Which.
    pub services: Vec<ServiceName>,
    /// How far it is.
    pub state: Off,
    /// Since when, seconds since the epoch.
    pub since: u64,
    /// Until when `stopping` and `waking` may take, seconds since the epoch.
    pub until: Option<u64>,
    /// Who did it: the program, and its process.
    pub who: String,
    /// Why, as a sentence.
    pub why: String,
}

/// How far an absence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// They are told to stop.
    Stopping,
    /// They are off until somebody asks for them.
    Asleep,
    /// They are told to start, and do not accept connections yet.
    Waking,
}

impl Asleep {
    /// Whether it is meant that its services do not run, seconds since the epoch being `now`.
    #[must_use]
    pub fn is_meant(&self, now: u64) -> bool {
        self.state == Off::Asleep || self.until.is_some_and(|until| now <= until)
    }
}

/// The folder of the records, the wake logs and the socket of the gateway's sleep.
#[must_use]
pub fn folder(dir: &Path) -> PathBuf {
    dir.join(FOLDER)
}

/// A host's record. Hosts are names or addresses; brackets and colons of IPv6 are fine in a file's name.
#[must_use]
pub fn record(dir: &Path, host: &str) -> PathBuf {
    folder(dir).join(format!("{host}.json"))
}

/// A host's wake log: one JSON object a line.
#[must_use]
pub fn log(dir: &Path, host: &str) -> PathBuf {
    folder(dir).join(format!("{host}.log"))
}

/// The socket at which `handover sleep` speaks with the gateway that runs.
#[must_use]
pub fn socket(dir: &Path) -> PathBuf {
    folder(dir).join("gateway.sock")
}

/// Writes a host's record, whole, synced, readable for everybody.
///
/// # Errors
/// When it cannot be written; then nothing may be stopped.
pub fn write(dir: &Path, asleep: &Asleep) -> io::Result<()> {
    fs::create_dir_all(folder(dir))?;
    write_json(&record(dir, &asleep.host), asleep)
}

/// Reads a host's record.
///
/// # Errors
/// When it is there and cannot be read, or is of another format.
pub fn read(dir: &Path, host: &str) -> io::Result<Option<Asleep>> {
    understood(&record(dir, host))
}

/// Removes a host's record; that there is none is no error.
///
/// # Errors
/// When it cannot be removed.
pub fn clear(dir: &Path, host: &str) -> io::Result<()> {
    remove(&record(dir, host))
}

/// Every record under a release folder, whatever it says.
///
/// # Errors
/// When one is there and cannot be read: what is asleep is then unknown, and nothing may be concluded from a service being off.
pub fn records(dir: &Path) -> io::Result<Vec<Asleep>> {
    let entries = match fs::read_dir(folder(dir)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // What a killed writer left begins with a dot.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|end| end == "json") && !hidden {
            found.extend(understood(&path)?);
        }
    }
    found.sort_by(|one, other| one.host.cmp(&other.host));
    Ok(found)
}

/// The services whose being off is meant, seconds since the epoch being `now`, each with the record that says so.
///
/// # Errors
/// As `records`.
pub fn asleep_services(dir: &Path, now: u64) -> io::Result<BTreeMap<ServiceName, Asleep>> {
    let meant = records(dir)?.into_iter().filter(|one| one.is_meant(now));
    Ok(meant.flat_map(|one| one.services.clone().into_iter().map(move |service| (service, one.clone()))).collect())
}

/// Held while a record is read and written by what it says: of a gateway that wakes a backend and somebody else who stops it, one
/// is first, and the other sees it.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "it is only held")] fs::File);

/// Waits for the turn; it is somebody's for as long as a file is read and written.
///
/// # Errors
/// When the folder cannot be made or locked.
pub fn turn(dir: &Path) -> io::Result<Turn> {
    fs::create_dir_all(folder(dir))?;
    let folder = fs::File::open(folder(dir))?;
    folder.lock()?;
    Ok(Turn(folder))
}

/// Everything that is to be off, as its record is to say it, seconds since the epoch being `now`. For whoever has the server lock:
/// who began a stop and has not ended it is dead then, and the stop is the lock's to end. What is being woken is not among them.
///
/// # Errors
/// As `records`.
pub fn to_be_off(dir: &Path, now: u64) -> io::Result<Vec<Asleep>> {
    let off = records(dir)?.into_iter().filter(|one| one.state != Off::Waking && one.is_meant(now));
    Ok(off.map(|one| Asleep { state: Off::Asleep, until: None, ..one }).collect())
}

/// Says of all that is `to_be_off` that it is being stopped, from now until then at most (seconds since the epoch), and what that is.
///
/// # Errors
/// As `turn`, `records` and `write`.
pub fn begin_stop(dir: &Path, (now, until): (u64, u64), who: &str) -> io::Result<Vec<Asleep>> {
    if !folder(dir).exists() {
        return Ok(Vec::new());
    }
    let _turn = turn(dir)?;
    let sleeps = to_be_off(dir, now)?;
    for one in &sleeps {
        write(dir, &Asleep { state: Off::Stopping, until: Some(until), who: who.to_owned(), ..one.clone() })?;
    }
    Ok(sleeps)
}

/// Says of these that they sleep as before.
///
/// # Errors
/// As `turn`, `read` and `write`.
pub fn end_stop(dir: &Path, sleeps: &[Asleep]) -> io::Result<()> {
    if sleeps.is_empty() {
        return Ok(());
    }
    let _turn = turn(dir)?;
    for one in sleeps {
        if read(dir, &one.host)?.is_some_and(|now| now.state == Off::Stopping) {
            write(dir, one)?;
        }
    }
    Ok(())
}

fn understood(path: &Path) -> io::Result<Option<Asleep>> {
    let Some(found) = read_json::<Asleep>(path)? else { return Ok(None) };
    if found.format != FORMAT {
        let what = format!("{}: format {}, this program reads {FORMAT}", path.display(), found.format);
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asleep(host: &str, services: &[&str], state: Off, until: Option<u64>) -> Asleep {
        Asleep {
            format: FORMAT,
            host: host.to_owned(),
            project: "mythex".to_owned(),
            services: services.iter().map(|name| ServiceName::from(*name)).collect(),
            state,
            since: 100,
            until,
            who: "handover gateway (pid 1)".to_owned(),
            why: "nobody asked for 30m".to_owned(),
        }
    }

    #[test]
    fn what_is_off_on_purpose_is_known_until_its_time_is_over() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(asleep_services(dir.path(), 0).expect("nothing is no error").is_empty());
        let sleeps = asleep("cms.example.org", &["cms", "mcp"], Off::Asleep, None);
        write(dir.path(), &sleeps).expect("written");
        write(dir.path(), &asleep("[::1]", &["api"], Off::Waking, Some(160))).expect("written");
        fs::write(folder(dir.path()).join(".x.json.1.0.tmp"), "half").expect("written");
        fs::write(log(dir.path(), "cms.example.org"), "{}\n").expect("written");
        let names = |now| {
            let found = asleep_services(dir.path(), now).expect("read");
            found.keys().map(|name| name.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(160), ["api", "cms", "mcp"]);
        assert_eq!(names(161), ["cms", "mcp"], "a wake that takes longer than it may is nobody's plan");
        assert_eq!(read(dir.path(), "cms.example.org").expect("read"), Some(sleeps));
        clear(dir.path(), "cms.example.org").expect("removed");
        clear(dir.path(), "cms.example.org").expect("gone already");
        assert_eq!(names(161), [""; 0]);
    }

    #[test]
    fn a_deploy_stops_what_sleeps_and_lets_alone_what_is_woken() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(begin_stop(dir.path(), (100, 200), "deploy").expect("nothing is there"), []);
        assert!(!folder(dir.path()).exists(), "nor made");
        let sleeps = asleep("cms.example.org", &["cms"], Off::Asleep, None);
        let wakes = asleep("mcp.example.org", &["mcp"], Off::Waking, Some(160));
        for one in [&sleeps, &wakes] {
            write(dir.path(), one).expect("written");
        }
        let held = turn(dir.path()).expect("the turn");
        let (path, other) = (dir.path().to_owned(), std::sync::mpsc::channel());
        let waits = std::thread::spawn(move || other.0.send(begin_stop(&path, (100, 200), "deploy")));
        let early = other.1.recv_timeout(std::time::Duration::from_millis(50));
        assert!(early.is_err(), "one after the other");
        drop(held);
        let begun = other.1.recv().expect("an answer").expect("begun");
        waits.join().expect("it ended").expect("it told");
        assert_eq!(begun, std::slice::from_ref(&sleeps));
        let now = |host| read(dir.path(), host).expect("read").expect("there");
        let stops = now("cms.example.org");
        assert_eq!((stops.state, stops.until, stops.who.as_str()), (Off::Stopping, Some(200), "deploy"));
        assert_eq!(now("mcp.example.org"), wakes);
        end_stop(dir.path(), &begun).expect("ended");
        assert_eq!(now("cms.example.org"), sleeps, "since when and why are as before");
        write(dir.path(), &asleep("cms.example.org", &["cms"], Off::Waking, Some(300))).expect("written");
        end_stop(dir.path(), &begun).expect("ended");
        assert_eq!(now("cms.example.org").state, Off::Waking, "somebody asked for it meanwhile");
        write(dir.path(), &asleep("cms.example.org", &["cms"], Off::Stopping, Some(300))).expect("written");
        let named = |now| to_be_off(dir.path(), now).expect("read");
        assert_eq!(named(300), [sleeps], "whoever was stopping it is dead");
        assert_eq!(named(301), [], "past its time it is nobody's plan");
    }

    #[test]
    fn a_record_that_is_not_understood_is_an_error_and_not_none() {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path(), &Asleep { format: 2, ..asleep("a", &["a"], Off::Asleep, None) }).expect("written");
        let error = asleep_services(dir.path(), 0).expect_err("another format");
        assert!(error.to_string().contains("a.json: format 2"), "{error}");
        fs::write(record(dir.path(), "a"), "{").expect("written");
        assert!(asleep_services(dir.path(), 0).is_err());
    }
}
