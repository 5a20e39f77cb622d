//! Who else could change what a deploy relies on: folders that everybody may write to, foreign owners, links that lead elsewhere.
//!
//! Each is a sentence with what to run, said before anything is touched. What an administrator may want stays possible:
//! `release.dir` may itself be a link, a group may share it, and root's or the deploying user's lock may be anybody's to read.

use crate::fleet::model::ReleaseId;
use crate::server::layout::{Layout, Pointer, RELEASES};
use crate::server::publish::read_release;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

const BY_EVERYBODY: u32 = 0o002;
const BY_THE_GROUP: u32 = 0o020;

/// Everything about a server's files that forbids to rely on them.
pub(super) fn faults(layout: &Layout) -> Vec<String> {
    // Root's doing is beyond question, and who became root by sudo may own what he deploys.
    let mut owners = BTreeSet::from([0, geteuid().as_raw()]);
    if geteuid().is_root() {
        owners.extend(std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse::<u32>().ok()));
    }
    look(layout, owners, geteuid().as_raw())
}

/// The same, as bootstrap and watchdog see it: systemd runs them as root, and no sudo says who else may own what they start.
pub(super) fn faults_as_root(layout: &Layout) -> Vec<String> {
    look(layout, BTreeSet::from([0]), 0)
}

fn look(layout: &Layout, owners: BTreeSet<u32>, own: u32) -> Vec<String> {
    let mut look = Look { owners, own, group: None, faults: Vec::new() };
    let dir = layout.dir();
    // Followed: where it leads is whoever may write there.
    if let Ok(meta) = fs::metadata(dir) {
        look.owner(dir, &meta, given_by_root(dir));
        look.open(dir, &meta);
        if meta.mode() & BY_THE_GROUP != 0 {
            look.group = Some(meta.gid());
        }
        look.owners.insert(meta.uid());
    }
    for folder in [layout.releases(), layout.bin(), layout.journals()] {
        look.inside(&folder, Kind::Folder);
    }
    let records = [
        layout.record(),
        layout.app(),
        layout.freeze(),
        layout.absence(),
        layout.successor(),
        layout.settings(),
        layout.watchdog(),
        layout.once(),
    ];
    let notes = [layout.server_lock_note(), layout.deploy_lock_note()];
    for record in records.iter().chain(&notes) {
        look.inside(record, Kind::File);
    }
    look.lock(layout.server_lock());
    look.lock(&layout.deploy_lock());
    let named: BTreeSet<ReleaseId> = Pointer::ALL.iter().filter_map(|pointer| look.pointer(layout, *pointer)).collect();
    for id in named {
        look.release(layout, &id);
    }
    look.faults
}

/// Where only root may write, whose a folder is was root's choice (`install -d -o deploy`).
fn given_by_root(folder: &Path) -> bool {
    let parent = fs::canonicalize(folder).ok().and_then(|folder| folder.parent().map(Path::to_owned));
    let meta = parent.and_then(|parent| fs::metadata(parent).ok());
    meta.is_some_and(|meta| meta.uid() == 0 && meta.mode() & (BY_EVERYBODY | BY_THE_GROUP) == 0)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    File,
}

struct Look {
    owners: BTreeSet<u32>,
    /// Who looks, and would rather own it.
    own: u32,
    /// The group that may write to `release.dir`, where one may.
    group: Option<u32>,
    faults: Vec<String>,
}

impl Look {
    fn say(&mut self, fault: String) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// What lies in `release.dir`; true where it is what it should be.
    fn inside(&mut self, path: &Path, kind: Kind) -> bool {
        let Ok(meta) = fs::symlink_metadata(path) else { return false };
        let shown = path.display();
        let right = if kind == Kind::Folder { meta.is_dir() } else { meta.is_file() };
        if meta.is_symlink() {
            self.say(format!(
                "{shown} is a symbolic link, which is not followed; look where it leads, and `rm {shown}`"
            ));
        } else if !right {
            let what = if kind == Kind::Folder { "folder" } else { "regular file" };
            self.say(format!("{shown} is no {what}; look at it, and move it away"));
        } else {
            // Whoever is in the group that may write here may have made it.
            self.owner(path, &meta, self.group.is_some());
            self.open(path, &meta);
        }
        right
    }

    fn owner(&mut self, path: &Path, meta: &Metadata, shared: bool) {
        if !shared && !self.owners.contains(&meta.uid()) {
            let (shown, own) = (path.display(), self.own);
            let whose = meta.uid();
            self.say(format!(
                "{shown} belongs to user {whose}, who could change it at any moment; if that is not wanted, `chown {own} {shown}`"
            ));
        }
    }

    fn open(&mut self, path: &Path, meta: &Metadata) {
        if meta.permissions().mode() & BY_EVERYBODY != 0 {
            let shown = path.display();
            self.say(format!("{shown} may be written to by everybody; `chmod o-w {shown}`"));
        }
    }

    /// Scripts of several users share it, so everybody may open it; whose it is says whether it can be taken away.
    fn lock(&mut self, lock: &Path) {
        let Ok(meta) = fs::symlink_metadata(lock) else { return };
        let shown = lock.display();
        if meta.is_symlink() {
            self.say(format!(
                "the lock {shown} is a symbolic link, which is not followed; look where it leads, and `rm {shown}`"
            ));
        } else if !meta.is_file() {
            self.say(format!("the lock {shown} is no regular file; look at it, and move it away"));
        } else if !self.owners.contains(&meta.uid()) && self.group != Some(meta.gid()) {
            let whose = meta.uid();
            self.say(format!(
                "the lock {shown} belongs to user {whose}, who could replace it while it is held; `chown root {shown}`"
            ));
        }
    }

    /// Which release a name stands for, if it leads to one.
    fn pointer(&mut self, layout: &Layout, pointer: Pointer) -> Option<ReleaseId> {
        let link = layout.dir().join(pointer.name());
        let target = fs::read_link(&link).ok()?;
        let below = target.strip_prefix(layout.dir()).unwrap_or(&target);
        match below.components().collect::<Vec<_>>()[..] {
            [Component::Normal(folder), Component::Normal(id)] if folder == RELEASES => id.to_str().map(ReleaseId::new),
            _ => {
                let (shown, target) = (link.display(), target.display());
                self.say(format!("{shown} leads to {target}, which is no release of this app; `rm {shown}`"));
                None
            }
        }
    }

    fn release(&mut self, layout: &Layout, id: &ReleaseId) {
        let folder = layout.release(id);
        if !self.inside(&folder, Kind::Folder) || !self.inside(&layout.manifest(id), Kind::File) {
            return;
        }
        let Ok(manifest) = read_release(layout, id) else { return };
        for name in manifest.files.keys() {
            let mut path: PathBuf = folder.clone();
            let parts: Vec<_> = Path::new(name).components().collect();
            for (at, part) in parts.iter().enumerate() {
                path.push(part);
                let kind = if at + 1 == parts.len() { Kind::File } else { Kind::Folder };
                if !self.inside(&path, kind) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
