//! The made-up releases of a lab: what a real server would resolve, pin and pull, without Compose or a registry.

use crate::fleet::model::{Fleet, ReleaseId, ReleaseOnDisk, Service, ServiceName};
use crate::fleet::release::{
    DEFAULT_GRACE, DEFINITION, FileMark, MANIFEST_FORMAT, Manifest, PLACEHOLDER, ServicePin, as_written, canonical,
    digest, sha256_hex,
};
use crate::server::wire::{Blob, Failure, FailureKind, Resolved};
use std::collections::BTreeMap;
use std::time::Duration;

/// The release that runs everywhere when the lab begins.
pub(super) fn old(fleet: &Fleet) -> ReleaseOnDisk {
    on_disk(made_of(fleet, "the release before", &[]).1)
}

/// The release that a definition is: the same input is the same release.
pub(super) fn resolve(
    fleet: &Fleet,
    files: &[Blob],
    compose: &str,
    vars: &BTreeMap<String, String>,
) -> Result<Resolved, Failure> {
    let mut marks = Vec::new();
    let mut read = String::new();
    for file in files {
        let sha256 = sha256_hex(&file.decode()?);
        if file.name == compose {
            read = sha256;
        } else {
            marks.push(FileMark { name: file.name.clone(), secret: file.secret, sha256 });
        }
    }
    let input = canonical(&serde_json::json!({ "compose": read, "vars": vars }));
    let (definition, manifest) = made_of(fleet, &input, &marks);
    Ok(Resolved { definition, manifest, warnings: Vec::new() })
}

fn made_of(fleet: &Fleet, input: &str, marks: &[FileMark]) -> (String, Manifest) {
    let pins: BTreeMap<ServiceName, ServicePin> =
        fleet.services.iter().map(|service| (service.name.clone(), pin(&fleet.app, input, service))).collect();
    let services: serde_json::Map<String, serde_json::Value> = pins
        .iter()
        .map(|(name, pin)| {
            let service = serde_json::json!({ "image": pin.image, "environment": { "HANDOVER_RELEASE": PLACEHOLDER } });
            (name.to_string(), service)
        })
        .collect();
    let definition = canonical(&serde_json::json!({ "name": fleet.app, "services": services }));
    let id = digest(&definition, marks);
    let mut files: BTreeMap<String, String> =
        marks.iter().map(|mark| (mark.name.clone(), mark.sha256.clone())).collect();
    files.insert(DEFINITION.to_owned(), sha256_hex(as_written(&definition, &id).as_bytes()));
    (definition, Manifest { format: MANIFEST_FORMAT, id, label: None, services: pins, files })
}

fn pin(app: &str, input: &str, service: &Service) -> ServicePin {
    let digest = sha256_hex(format!("{input}/{}", service.name).as_bytes());
    let image = format!("lab.invalid/{app}/{}@sha256:{digest}", service.name);
    ServicePin { image, grace: grace(service.shutdown), replicas: 1, one_shot: false }
}

/// The compose file of a rehearsal is not read, so its grace periods are taken to be long enough.
fn grace(shutdown: Duration) -> Duration {
    (shutdown * 3).max(DEFAULT_GRACE)
}

/// What a server refuses to stage: files that are not those of the manifest.
pub(super) fn check_files(manifest: &Manifest, files: &[Blob]) -> Result<(), Failure> {
    let mut sent = BTreeMap::new();
    for file in files {
        let bytes = file.decode()?;
        let bytes = if file.name == DEFINITION {
            as_written(&String::from_utf8_lossy(&bytes), &manifest.id).into_bytes()
        } else {
            bytes
        };
        sent.insert(file.name.clone(), sha256_hex(&bytes));
    }
    if sent == manifest.files {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Internal, format!("the files sent are not those of release {}", manifest.id.short())))
}

/// What runs, saved as a release of its own: the same images under another name.
pub(super) fn adopted(running: &ReleaseOnDisk) -> ReleaseOnDisk {
    let name = format!("adopted-{}", running.manifest.id.short());
    let mut adopted = running.clone();
    adopted.manifest.id = ReleaseId::new(name);
    adopted
}

/// A release with the image ids that its pull leaves.
pub(super) fn on_disk(manifest: Manifest) -> ReleaseOnDisk {
    let image_ids = manifest.services.iter().map(|(service, pin)| (service.clone(), image_id(pin))).collect();
    ReleaseOnDisk { manifest, image_ids }
}

fn image_id(pin: &ServicePin) -> String {
    format!("sha256:{}", sha256_hex(pin.image.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_input_is_the_same_release_and_a_variable_makes_another() {
        let fleet = crate::lab::tests::fleet();
        let files = [Blob::text("compose.yaml", "services: {}"), Blob::text("gateway.toml", "x = 1")];
        let vars = |tag: &str| BTreeMap::from([("TAG".to_owned(), tag.to_owned())]);
        let of = |tag: &str| resolve(&fleet, &files, "compose.yaml", &vars(tag)).expect("resolves");
        assert_eq!(of("a").manifest.id, of("a").manifest.id);
        assert_ne!(of("a").manifest.id, of("b").manifest.id);
        assert_ne!(of("a").manifest.id, old(&fleet).manifest.id);
        let resolved = of("a");
        let sent = [Blob::text(DEFINITION, &resolved.definition), files[1].clone()];
        assert_eq!(check_files(&resolved.manifest, &sent), Ok(()));
        assert!(check_files(&resolved.manifest, &sent[..1]).is_err());
    }
}
