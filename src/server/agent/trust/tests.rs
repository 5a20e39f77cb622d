//! Real files of real users; only root can make them.

use super::*;
use crate::fleet::release::{DEFINITION, MANIFEST_FORMAT, Manifest, sha256_hex};
use crate::server::flock::{self, try_take};
use crate::server::layout::{read_below, read_json, write_json};
use crate::server::publish::check_files;
use crate::server::wire::Run;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{chown, symlink};

/// Somebody whom nothing of a deploy belongs to.
const STRANGER: u32 = 4242;

struct Place {
    dir: tempfile::TempDir,
    layout: Layout,
    id: ReleaseId,
}

/// A server as a deploy leaves it; `None` where only root could make one.
fn place() -> Option<Place> {
    let dir = tempfile::tempdir().expect("a folder");
    let layout = Layout::new(dir.path().join("app"), dir.path().join("lock"));
    let id = ReleaseId::new("abcdef");
    for folder in [layout.releases(), layout.bin(), layout.journals(), layout.release(&id).join("certs")] {
        fs::create_dir_all(folder).expect("made");
    }
    let files = [(DEFINITION, "{}"), ("certs/a.pem", "x"), (".env", "A=secret")];
    let mut digests = BTreeMap::new();
    for (name, text) in files {
        fs::write(layout.release(&id).join(name), text).expect("written");
        digests.insert(name.to_owned(), sha256_hex(text.as_bytes()));
    }
    let manifest =
        Manifest { format: MANIFEST_FORMAT, id: id.clone(), label: None, services: BTreeMap::new(), files: digests };
    write_json(&layout.manifest(&id), &manifest).expect("written");
    write_json(&layout.record(), &"record").expect("written");
    layout.point(Pointer::Current, Some(&id)).expect("pointed");
    fs::write(layout.server_lock(), "").expect("written");
    fs::set_permissions(layout.server_lock(), Permissions::from_mode(0o664)).expect("set");
    geteuid().is_root().then_some(Place { dir, layout, id })
}

impl Place {
    /// As root, for a deploy of root's.
    fn faults(&self) -> Vec<String> {
        look(&self.layout, BTreeSet::from([0]), 0)
    }

    /// The one fault that there is.
    fn fault(&self) -> String {
        let faults = self.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.into_iter().next().unwrap_or_default()
    }

    fn link(&self, at: &Path) -> PathBuf {
        let aside = self.dir.path().join("aside");
        fs::rename(at, &aside).expect("moved");
        symlink(&aside, at).expect("linked");
        aside
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

fn give(path: &Path, to: u32) {
    chown(path, Some(to), None).expect("given");
}

fn run() -> Run {
    Run { id: "run-1".into(), who: "ann@laptop".into(), what: "deploy".into() }
}

#[test]
fn what_administrators_do_is_no_fault() {
    let Some(place) = place() else { return };
    assert_eq!(place.faults(), Vec::<String>::new());
    let (dir, lock) = (place.layout.dir().to_owned(), place.layout.server_lock().to_owned());
    // A team's folder: whoever is in the group stages, and the others go on from there.
    chown(&dir, None, Some(777)).expect("given");
    mode(&dir, 0o2775);
    give(&place.layout.release(&place.id), STRANGER);
    give(&place.layout.bin(), STRANGER);
    chown(&lock, Some(STRANGER), Some(777)).expect("given");
    mode(&lock, 0o666);
    assert_eq!(place.faults(), Vec::<String>::new());
    // The deploying user owns everything, and root (by `ssh.sudo` before) a part.
    let Some(place) = self::place() else { return };
    for path in [place.layout.dir(), place.layout.server_lock(), &place.layout.releases()] {
        give(path, STRANGER);
    }
    assert_eq!(look(&place.layout, BTreeSet::from([0, STRANGER]), 0), Vec::<String>::new());
    // The folder lies elsewhere.
    let Some(place) = self::place() else { return };
    place.link(place.layout.dir());
    assert_eq!(place.faults(), Vec::<String>::new());
    assert!(check_files(&place.layout, &place.id).is_ok());
    // And the first deploy finds nothing at all.
    let layout = Layout::new(place.dir.path().join("none"), place.dir.path().join("no-lock"));
    assert_eq!(look(&layout, BTreeSet::from([0]), 0), Vec::<String>::new());
}

#[test]
fn a_folder_that_everybody_may_write_to_is_refused() {
    let Some(place) = place() else { return };
    let layout = &place.layout;
    let release = layout.release(&place.id);
    for path in [layout.dir(), &layout.releases(), &layout.bin(), &layout.journals(), &release, &release.join("certs")]
    {
        let before = fs::metadata(path).expect("there").permissions();
        for open in [0o777, 0o1777, 0o757] {
            mode(path, open);
            let fault = place.fault();
            assert!(
                fault.contains("by everybody") && fault.ends_with(&format!("`chmod o-w {}`", path.display())),
                "{fault}"
            );
        }
        fs::set_permissions(path, before).expect("set back");
    }
    mode(&release.join(".env"), 0o666);
    assert!(place.fault().contains(".env may be written to by everybody"));
}

#[test]
fn what_belongs_to_somebody_else_is_refused() {
    let Some(place) = place() else { return };
    let layout = &place.layout;
    let release = layout.release(&place.id);
    for path in [
        layout.releases(),
        layout.bin(),
        layout.journals(),
        layout.record(),
        release.clone(),
        release.join("certs"),
        release.join("certs/a.pem"),
        layout.manifest(&place.id),
    ] {
        give(&path, STRANGER);
        let fault = place.fault();
        assert!(
            fault.contains("belongs to user 4242") && fault.contains(&format!("`chown 0 {}`", path.display())),
            "{fault}"
        );
        give(&path, 0);
    }
    give(layout.dir(), STRANGER);
    assert_eq!(place.faults(), Vec::<String>::new(), "only root could have given it away");
    mode(place.dir.path(), 0o1777);
    assert!(place.fault().contains("belongs to user 4242"), "what lies inside may be its owner's");
}

#[test]
fn a_link_in_a_release_is_refused_and_not_followed() {
    let Some(place) = place() else { return };
    let (layout, id) = (&place.layout, &place.id);
    let release = layout.release(id);
    for path in [layout.releases(), release.clone(), release.join("certs"), release.join(".env"), layout.manifest(id)] {
        let aside = place.link(&path);
        let fault = place.fault();
        assert!(fault.contains("is a symbolic link") && fault.contains(&format!("`rm {}`", path.display())), "{fault}");
        let failure = check_files(layout, id).expect_err("a link");
        assert!(failure.message.contains("is a link"), "{failure}");
        fs::remove_file(&path).and_then(|()| fs::rename(aside, &path)).expect("put back");
        check_files(layout, id).expect("whole again");
    }
    for name in ["../x", "/etc/passwd", "", "releases/../../x"] {
        assert!(read_below(layout.dir(), Path::new(name)).is_err(), "{name}");
    }
}

#[test]
fn a_name_that_leads_out_of_the_releases_is_refused() {
    let Some(place) = place() else { return };
    let current = place.layout.dir().join("current");
    for target in ["/etc", "../elsewhere", "releases/../../x", "releases", "releases/a/b", "bin/handover"] {
        fs::remove_file(&current).and_then(|()| symlink(target, &current)).expect("linked");
        let fault = place.fault();
        assert!(fault.contains(&format!("leads to {target}")), "{fault}");
    }
    fs::remove_file(&current).and_then(|()| symlink(place.layout.release(&place.id), &current)).expect("linked");
    assert_eq!(place.faults(), Vec::<String>::new(), "an absolute one is as good");
}

#[test]
fn a_planted_lock_is_refused_and_not_opened() {
    let Some(place) = place() else { return };
    let (lock, note) = (place.layout.server_lock().to_owned(), place.layout.server_lock_note());
    give(&lock, STRANGER);
    let fault = place.fault();
    assert!(fault.contains("belongs to user 4242") && fault.contains("`chown root"), "{fault}");
    let aside = place.link(&lock);
    let before = fs::metadata(&aside).expect("there");
    assert!(place.fault().contains("the lock") && place.fault().contains("is a symbolic link"));
    assert!(try_take(&lock, &note, &run()).expect_err("a link").to_string().contains("is a link"));
    assert!(flock::holder(&lock, &note).is_err());
    // One that leads nowhere would else be made there.
    fs::remove_file(&aside).expect("removed");
    assert!(try_take(&lock, &note, &run()).is_err());
    assert!(!aside.exists() && before.len() == 0);
    fs::remove_file(&lock).expect("removed");
    for make in [mkfifo, |path: &Path| fs::create_dir(path).expect("made")] {
        make(&lock);
        assert!(place.fault().contains("no regular file"));
        assert!(try_take(&lock, &note, &run()).is_err(), "and it is not waited for");
        fs::remove_file(&lock).or_else(|_| fs::remove_dir(&lock)).expect("removed");
    }
    let deploy = place.layout.deploy_lock();
    symlink("/etc/passwd", &deploy).expect("linked");
    assert!(place.fault().contains("deploy.lock is a symbolic link"));
}

fn mkfifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo(1)").success());
}

#[test]
fn a_link_in_the_place_of_a_record_is_neither_read_nor_written_through() {
    let Some(place) = place() else { return };
    for path in [place.layout.record(), place.layout.freeze(), place.layout.absence(), place.layout.app()] {
        drop(fs::remove_file(&path));
        let secret = place.dir.path().join("secret");
        fs::write(&secret, "\"secret\"").expect("written");
        symlink(&secret, &path).expect("linked");
        assert!(place.fault().contains("is a symbolic link"));
        assert!(read_json::<String>(&path).expect_err("a link").to_string().contains("is a link"));
        write_json(&path, &"ours").expect("replaced");
        assert_eq!(fs::read_to_string(&secret).expect("read"), "\"secret\"");
        assert_eq!(read_json::<String>(&path).expect("ours").as_deref(), Some("ours"));
    }
    mkfifo(&place.layout.successor());
    assert!(read_json::<String>(&place.layout.successor()).is_err(), "and it is not waited for");
}

/// A folder of the deploying user's in a folder of his own: sudo says that he may, systemd has no sudo.
#[test]
fn what_only_sudo_vouches_for_is_refused_to_the_units_with_what_to_run() {
    let Some(place) = place() else { return };
    let dir = place.layout.dir();
    for folder in [place.dir.path(), dir] {
        chown(folder, Some(STRANGER), None).expect("given away");
    }
    assert_eq!(look(&place.layout, BTreeSet::from([0, STRANGER]), 0), Vec::<String>::new());
    let faults = faults_as_root(&place.layout);
    assert!(faults.iter().any(|fault| fault.contains(&format!("`chown 0 {}`", dir.display()))), "{faults:?}");
}
