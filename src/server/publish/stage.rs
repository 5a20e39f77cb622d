//! Puts a release on a server: written whole, checked, renamed into place; its images pulled; old ones pruned.

use super::disk;
use super::resolve::unpack;
use super::secrets::Secrets;
use crate::fleet::model::{ReleaseId, ServiceName};
use crate::fleet::release::{DEFINITION, FileMark, MANIFEST, Manifest, as_written, digest, sha256_hex, to_prune};
use crate::server::compose::{self, ids_by_pin, parse_images};
use crate::server::layout::{Layout, Pointer, RELEASES, read_below, sync_folder, write_json};
use crate::server::run::run;
use crate::server::wire::{Blob, Failure, FailureKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

const LOCAL: Duration = Duration::from_secs(60);
/// One image over a slow line.
const PULL: Duration = Duration::from_secs(1800);
/// A folder that a killed agent left half written is nobody's after so long.
const LEFTOVER: Duration = Duration::from_secs(3600);

/// Stages a release. That it is there already, whole, is fine.
///
/// # Errors
/// When the files are not what the manifest says, Compose does not understand the definition, or the disk fails.
pub async fn stage(layout: &Layout, app: &str, manifest: &Manifest, files: &[Blob]) -> Result<(), Failure> {
    let (files, marks) = checked(manifest, files)?;
    let place = layout.release(&manifest.id);
    if place.exists() && check_files(layout, &manifest.id).is_ok() {
        // Staged anew: the youngest again, with the label that it has now.
        write_json(&layout.manifest(&manifest.id), manifest).map_err(|error| disk(MANIFEST, &error))?;
        return Ok(());
    }
    let releases = layout.releases();
    fs::create_dir_all(&releases).map_err(|error| disk(&releases.display().to_string(), &error))?;
    sweep(&releases);
    let folder = tempfile::Builder::new()
        .prefix(".tmp-")
        .tempdir_in(&releases)
        .map_err(|error| disk("no folder to stage in", &error))?;
    unpack(folder.path(), &files)?;
    write_json(&folder.path().join(MANIFEST), manifest).map_err(|error| disk(MANIFEST, &error))?;
    for mark in &marks {
        let bytes = fs::read(folder.path().join(&mark.name)).map_err(|error| disk(&mark.name, &error))?;
        if sha256_hex(&bytes) != mark.sha256 {
            return Err(Failure::new(FailureKind::Internal, format!("`{}` is not on disk what was sent", mark.name)));
        }
    }
    understood(app, folder.path()).await.map_err(|failure| Secrets::of_files(&files).hidden(failure))?;
    into_place(folder, &place).map_err(|error| disk(&place.display().to_string(), &error))
}

fn into_place(folder: tempfile::TempDir, place: &Path) -> std::io::Result<()> {
    // Containers run as other users and read what is mounted; secrets have their own mode.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o711))?;
    sync_folder(folder.path())?;
    if place.exists() {
        // Whatever lies there is not whole: nobody can have started it.
        fs::rename(place, folder.path().with_extension("broken"))?;
    }
    fs::rename(folder.path(), place)?;
    // The folder is in its place: nothing is left to be removed.
    drop(folder.keep());
    place.parent().map_or(Ok(()), sync_folder)
}

/// The files as they are to be written, if they are what the manifest says: the release's name is their digest.
fn checked(manifest: &Manifest, files: &[Blob]) -> Result<(Vec<Blob>, Vec<FileMark>), Failure> {
    let mut written = Vec::new();
    let mut marks = Vec::new();
    let mut definition = None;
    for blob in files {
        let bytes = blob.decode()?;
        if blob.name == DEFINITION {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let text_written = as_written(&text, &manifest.id);
            marks.push(FileMark {
                name: DEFINITION.to_owned(),
                secret: blob.secret,
                sha256: sha256_hex(text_written.as_bytes()),
            });
            written.push(Blob::bytes(DEFINITION, text_written.as_bytes(), blob.secret));
            definition = Some(text);
        } else {
            marks.push(FileMark { name: blob.name.clone(), secret: blob.secret, sha256: sha256_hex(&bytes) });
            written.push(blob.clone());
        }
    }
    let sent: BTreeMap<String, String> = marks.iter().map(|mark| (mark.name.clone(), mark.sha256.clone())).collect();
    let whole = definition.is_some_and(|text| manifest.id.is_adopted() || digest(&text, &marks) == manifest.id);
    if !whole || sent != manifest.files {
        return Err(Failure::new(
            FailureKind::Internal,
            format!("the files sent are not those of release {}", manifest.id.short()),
        ));
    }
    Ok((written, marks))
}

async fn understood(app: &str, folder: &Path) -> Result<(), Failure> {
    let output = run(&compose::config_check(app, Path::new(DEFINITION)).cwd(folder), LOCAL).await?;
    output.success("this server's Compose does not understand the definition:").map(drop).map_err(|failure| Failure {
        kind: FailureKind::Input,
        hint: Some("let every server have the same version of Compose".to_owned()),
        ..failure
    })
}

/// Folders that were never renamed into place.
fn sweep(releases: &Path) {
    for entry in fs::read_dir(releases).into_iter().flatten().flatten() {
        let old = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LEFTOVER));
        if old && entry.file_name().to_string_lossy().starts_with(".tmp-") {
            // The next sweep tries again.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// A file of a release that is on disk; nothing that leads elsewhere is followed.
pub(super) fn read_file(layout: &Layout, id: &ReleaseId, name: &str) -> std::io::Result<Vec<u8>> {
    read_below(layout.dir(), &Path::new(RELEASES).join(id.as_str()).join(name))
}

/// A staged release.
///
/// # Errors
/// When it is not there or not readable.
pub fn read_release(layout: &Layout, id: &ReleaseId) -> Result<Manifest, Failure> {
    let cannot = |error: std::io::Error| disk("the release cannot be read", &error);
    let read = match read_file(layout, id, MANIFEST) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        read => Some(serde_json::from_slice::<Manifest>(&read.map_err(cannot)?).map_err(|error| cannot(error.into()))?),
    };
    match read {
        Some(manifest) if &manifest.id == id => Ok(manifest),
        _ => Err(Failure::new(FailureKind::Missing, format!("release {} is not on this server", id.short()))),
    }
}

/// A staged release whose every file is there and what it was: a mount of a missing one would silently become a folder.
///
/// # Errors
/// The file that is missing, changed, or a link.
pub fn check_files(layout: &Layout, id: &ReleaseId) -> Result<Manifest, Failure> {
    let manifest = read_release(layout, id)?;
    for (name, sha256) in &manifest.files {
        let path = layout.release(id).join(name);
        let seen = read_file(layout, id, name).map_err(|error| disk(&path.display().to_string(), &error))?;
        if sha256_hex(&seen) != *sha256 {
            return Err(Failure::new(
                FailureKind::Input,
                format!("{} was changed after it was published", path.display()),
            )
            .hint("deploy again: a release that is not whole is staged anew"));
        }
    }
    Ok(manifest)
}

/// The local image ids of a release's pins, by service; what is not on the server is missing in it.
///
/// # Errors
/// When the engine does not answer.
pub async fn image_ids(manifest: &Manifest) -> Result<BTreeMap<ServiceName, String>, Failure> {
    let images: BTreeSet<String> = manifest.services.values().map(|pin| pin.image.clone()).collect();
    if images.is_empty() {
        return Ok(BTreeMap::new());
    }
    let images: Vec<String> = images.into_iter().collect();
    let output = run(&compose::image_inspect(&images), LOCAL).await?;
    // Missing images make it end with 1 after it has printed the others.
    let ids = parse_images(&output.stdout);
    match ids {
        Ok(ids) if output.code == 0 || output.stderr.contains("No such image") => Ok(ids_by_pin(manifest, &ids)),
        _ => Err(output.success("looking at images").err().unwrap_or_else(|| {
            Failure::new(FailureKind::Internal, "the engine's answer about images is not understood")
        })),
    }
}

/// Pulls a staged release's images.
///
/// # Errors
/// The registry's own words.
pub async fn pull(manifest: &Manifest) -> Result<BTreeMap<ServiceName, String>, Failure> {
    let present = image_ids(manifest).await?;
    let missing = manifest.services.iter().filter(|(name, _)| !present.contains_key(*name));
    let missing: BTreeSet<&String> = missing.map(|(_, pin)| &pin.image).collect();
    for image in missing {
        let output = run(&compose::pull(image), PULL).await?;
        output.success(&format!("pulling {image}")).map_err(|failure| {
            match registry_hint(&failure.output.join("\n")) {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
    }
    let ids = image_ids(manifest).await?;
    match manifest.services.keys().find(|name| !ids.contains_key(*name)) {
        None => Ok(ids),
        Some(name) => Err(Failure::new(
            FailureKind::Missing,
            format!("{name}: its image is not there although the pull succeeded"),
        )),
    }
}

const NO_ANSWER: &str = "the registry does not answer from this server";

/// What helps against a registry's answer, where that is known.
pub(super) fn registry_hint(words: &str) -> Option<&'static str> {
    let known = [
        (
            "no basic auth credentials",
            "log this server in to the registry: `docker login` as the user that the agent runs as",
        ),
        ("unauthorized", "log this server in to the registry: `docker login` as the user that the agent runs as"),
        ("denied", "log this server in to the registry, and see that its account may read the image"),
        ("manifest unknown", "push the image first, or see whether the tag is spelt as it was pushed"),
        ("not found", "push the image first, or see whether the tag is spelt as it was pushed"),
        ("toomanyrequests", "the registry asks to be left alone for a while; try again later"),
        ("connection refused", NO_ANSWER),
        ("no route to host", NO_ANSWER),
        ("connection reset", NO_ANSWER),
        ("TLS handshake timeout", NO_ANSWER),
        ("Client.Timeout", NO_ANSWER),
        ("deadline exceeded", NO_ANSWER),
        ("no such host", "the registry's name is not known on this server"),
        ("i/o timeout", NO_ANSWER),
        ("x509", "the registry's certificate is not trusted on this server"),
        ("HTTP response to HTTPS client", "the engine of this server must know the registry as an insecure one"),
    ];
    known.iter().find(|(word, _)| words.contains(word)).map(|(_, hint)| *hint)
}

/// Removes releases beyond `keep`, never one that is needed to go on or back; returns those that are gone.
pub fn prune(layout: &Layout, keep: u32) -> Vec<Manifest> {
    let mut found: Vec<(SystemTime, ReleaseId)> = Vec::new();
    for entry in fs::read_dir(layout.releases()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let staged = fs::metadata(entry.path().join(MANIFEST)).and_then(|meta| meta.modified());
        if let (false, Ok(at)) = (name.starts_with('.'), staged) {
            found.push((at, ReleaseId::new(name)));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    let newest_first: Vec<ReleaseId> = found.into_iter().map(|(_, id)| id).collect();
    let pointers = [Pointer::Current, Pointer::Previous, Pointer::Incoming].map(|pointer| layout.pointer(pointer));
    if pointers.iter().any(Result::is_err) {
        return Vec::new();
    }
    let needed = pointers.into_iter().filter_map(|pointer| pointer.ok().flatten()).collect();
    let mut gone = Vec::new();
    for id in to_prune(&newest_first, keep, &needed) {
        let manifest = read_release(layout, &id);
        // What cannot be removed now is tried again after the next deploy.
        if let (Ok(()), Ok(manifest)) = (fs::remove_dir_all(layout.release(&id)), manifest) {
            gone.push(manifest);
        }
    }
    gone
}

/// Removes the images that only releases which are gone were made of: a disk is filled by them, not by definitions.
///
/// Never by force: what a container uses, or what has another name, stays.
pub async fn forget_images(layout: Layout, gone: Vec<Manifest>) {
    let Some(kept) = images_of_all(&layout) else { return };
    for image in names_of(&gone).difference(&kept) {
        drop(run(&compose::forget(image), LOCAL).await);
    }
}

fn names_of(manifests: &[Manifest]) -> BTreeSet<String> {
    let pins = manifests.iter().flat_map(|manifest| manifest.services.values());
    pins.map(|pin| pin.image.clone()).filter(|image| image.contains('@')).collect()
}

/// Every image of every release that is there; `None` where one cannot be read.
fn images_of_all(layout: &Layout) -> Option<BTreeSet<String>> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(layout.releases()).ok()? {
        let name = entry.ok()?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            kept.push(read_release(layout, &ReleaseId::new(name)).ok()?);
        }
    }
    Some(names_of(&kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::release::MANIFEST_FORMAT;

    fn release(definition: &str, files: &[Blob]) -> Manifest {
        let marks: Vec<FileMark> = files
            .iter()
            .map(|blob| FileMark {
                name: blob.name.clone(),
                secret: blob.secret,
                sha256: sha256_hex(&blob.decode().expect("bytes")),
            })
            .collect();
        let id = digest(definition, &marks);
        let mut files: BTreeMap<String, String> = marks.into_iter().map(|mark| (mark.name, mark.sha256)).collect();
        files.insert(DEFINITION.into(), sha256_hex(as_written(definition, &id).as_bytes()));
        Manifest { format: MANIFEST_FORMAT, id, label: None, services: BTreeMap::new(), files }
    }

    #[test]
    fn files_that_are_not_the_releases_own_are_refused() {
        let definition = "{\"r\": \"@@HANDOVER_RELEASE@@\"}";
        let secret = Blob::bytes(".env", b"A=1", true);
        let manifest = release(definition, std::slice::from_ref(&secret));
        let sent = [secret.clone(), Blob::text(DEFINITION, definition)];
        let (written, _) = checked(&manifest, &sent).expect("the release's own");
        assert!(String::from_utf8_lossy(&written[1].decode().expect("bytes")).contains(manifest.id.short()));
        for wrong in [
            vec![secret.clone()],
            vec![Blob::bytes(".env", b"A=2", true), sent[1].clone()],
            vec![Blob::bytes(".env", b"A=1", false), sent[1].clone()],
            vec![secret, Blob::text(DEFINITION, "{}")],
        ] {
            assert!(checked(&manifest, &wrong).is_err());
        }
    }

    #[test]
    fn an_image_that_a_release_which_stays_is_made_of_is_not_forgotten() {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(dir.path(), dir.path().join("lock"));
        let of = |id: &str, images: &[&str]| {
            let pin = |image: &&str| crate::fleet::release::ServicePin {
                image: (*image).to_owned(),
                grace: Duration::ZERO,
                replicas: 1,
                one_shot: false,
            };
            let services = images.iter().map(|image| (ServiceName::new(*image), pin(image))).collect();
            Manifest { id: ReleaseId::new(id), services, ..release("{}", &[]) }
        };
        let kept = of("kept", &["r/a@sha256:1", "r/b@sha256:2"]);
        fs::create_dir_all(layout.release(&kept.id)).expect("made");
        write_json(&layout.manifest(&kept.id), &kept).expect("written");
        let gone = names_of(&[of("gone", &["r/a@sha256:1", "r/a@sha256:0", "sha256:adopted"])]);
        let kept = images_of_all(&layout).expect("all are read");
        assert_eq!(gone.difference(&kept).collect::<Vec<_>>(), ["r/a@sha256:0"]);
        fs::create_dir_all(layout.releases().join("half")).expect("made");
        assert_eq!(images_of_all(&layout), None, "who cannot read one of them forgets nothing");
    }

    #[test]
    fn a_file_that_was_changed_or_lost_after_publishing_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(dir.path(), dir.path().join("lock"));
        let manifest = release("{}", &[Blob::text("a.toml", "x")]);
        let place = layout.release(&manifest.id);
        fs::create_dir_all(&place).expect("made");
        fs::write(place.join("a.toml"), "x").expect("written");
        fs::write(place.join(DEFINITION), "{}").expect("written");
        write_json(&place.join(MANIFEST), &manifest).expect("written");
        check_files(&layout, &manifest.id).expect("whole");
        fs::write(place.join("a.toml"), "y").expect("written");
        assert!(check_files(&layout, &manifest.id).expect_err("changed").message.contains("a.toml was changed"));
        fs::remove_file(place.join("a.toml")).expect("removed");
        assert!(check_files(&layout, &manifest.id).expect_err("lost").message.contains("a.toml"));
    }
}
