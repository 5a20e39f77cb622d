//! Which releases lie on a server, and which of them could be brought up as they lie there.

use super::stage::{check_files, image_ids, read_release};
use super::{Failure, disk};
use crate::fleet::model::{ReleaseId, ReleaseOnDisk};
use crate::fleet::release::MANIFEST;
use crate::server::layout::{Layout, Pointer};
use crate::server::wire::Listed;
use std::fs;
use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lists them, the one that was staged last first. Folders without a readable manifest are not releases.
///
/// # Errors
/// When the folder of releases or the engine does not answer.
pub async fn list(layout: &Layout) -> Result<Vec<Listed>, Failure> {
    let mut names: Vec<(ReleaseId, &str)> = Vec::new();
    for pointer in Pointer::ALL {
        let id = layout.pointer(pointer).map_err(|error| disk(pointer.name(), &error))?;
        names.extend(id.map(|id| (id, pointer.name())));
    }
    let mut found = Vec::new();
    for id in staged(layout)? {
        let Ok(manifest) = read_release(layout, &id) else { continue };
        let image_ids = image_ids(&manifest).await?;
        let gone: Vec<&str> =
            manifest.services.keys().filter(|name| !image_ids.contains_key(*name)).map(|name| name.as_str()).collect();
        let broken = match check_files(layout, &id) {
            Err(failure) => Some(failure.message),
            Ok(_) if !gone.is_empty() => Some(format!("the images of {} are no longer there", gone.join(", "))),
            Ok(_) => None,
        };
        let at = fs::metadata(layout.manifest(&id)).and_then(|meta| meta.modified()).unwrap_or(UNIX_EPOCH);
        found.push(Listed {
            names: names.iter().filter(|(named, _)| *named == id).map(|(_, name)| (*name).to_owned()).collect(),
            staged: SystemTime::duration_since(&at, UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            release: ReleaseOnDisk { manifest, image_ids },
            broken,
        });
    }
    found.sort_by(|a, b| b.staged.cmp(&a.staged).then_with(|| a.release.manifest.id.cmp(&b.release.manifest.id)));
    Ok(found)
}

fn staged(layout: &Layout) -> Result<Vec<ReleaseId>, Failure> {
    let entries = match fs::read_dir(layout.releases()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(disk("the folder of releases", &error)),
    };
    let mut ids = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| disk("the folder of releases", &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && entry.path().join(MANIFEST).exists() {
            ids.push(ReleaseId::new(name));
        }
    }
    Ok(ids)
}
