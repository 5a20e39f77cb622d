//! Saves a project that runs by other means as a release, so that a rollback has something to go back to.
//!
//! The definition is what its files say today; what only its containers know (images, environment) is taken from them.
//! Whatever can be found in neither is a refusal that names it.

use super::disk;
use super::stage::{check_files, stage};
use crate::fleet::model::{Fleet, ReleaseId, ServiceName};
use crate::fleet::release::{
    DEFINITION, MANIFEST_FORMAT, Manifest, PLACEHOLDER, ServicePin, canonical, digest, sha256_hex,
};
use crate::server::compose::{self, Inspected, unset_variables};
use crate::server::layout::{Layout, Pointer};
use crate::server::run::{CommandLine, run};
use crate::server::wire::{Blob, Failure, FailureKind};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const LOCAL: Duration = Duration::from_secs(60);
/// A definition does not use more unset variables than that.
const ROUNDS: usize = 20;
/// A larger file is no configuration, and stays where it is.
const LARGEST_MOUNTED: u64 = 1024 * 1024;
const LABEL: &str = "com.docker.compose.project";

/// Saves what runs.
///
/// # Errors
/// When something of it cannot be saved; nothing was changed then.
pub async fn adopt(layout: &Layout, fleet: &Fleet, containers: &[Inspected]) -> Result<Manifest, Failure> {
    let Some(first) = containers.first() else {
        return Err(Failure::new(FailureKind::Missing, "nothing of the project runs, so there is nothing to save"));
    };
    let mut definition = reconstructed(&fleet.app, first).await?;
    let mut pins = BTreeMap::new();
    let mut files = Vec::new();
    if let Some(services) = definition.get_mut("services").and_then(Value::as_object_mut) {
        services.retain(|name, _| containers.iter().any(|c| c.container.service.as_str() == name));
        for (name, service) in services.iter_mut() {
            let own: Vec<&Inspected> = containers.iter().filter(|c| c.container.service.as_str() == name).collect();
            if let (Some(service), Some(one)) = (service.as_object_mut(), own.first()) {
                pins.insert(ServiceName::new(name.as_str()), taken_over(service, one, own.len()).await?);
                mounted(service, &mut files)?;
            }
        }
    }
    if let Some(lost) = containers.iter().find(|c| !pins.contains_key(&c.container.service)) {
        return Err(cannot(format!(
            "{} runs, but its service `{}` is no longer in the compose file",
            lost.container.name, lost.container.service
        )));
    }
    if let Some(top) = definition.as_object_mut() {
        // Anchors: what they meant is in the services already.
        top.retain(|key, _| !key.starts_with("x-"));
    }
    if let Some(name) = leftover(&definition) {
        return Err(cannot(format!("the variable `{name}`, with which it was started, is written down nowhere"))
            .hint(format!("write it into the project's `.env` on the server: {name}=...")));
    }
    let text = canonical(&definition);
    let id = ReleaseId::new(format!("adopted-{}", digest(&text, &[]).short()));
    // The environment stands in it, secrets included.
    files.push(Blob::bytes(DEFINITION, text.as_bytes(), true));
    let digests = files
        .iter()
        .map(|blob| Ok((blob.name.clone(), sha256_hex(&blob.decode()?))))
        .collect::<Result<_, Failure>>()?;
    let manifest = Manifest { format: MANIFEST_FORMAT, id, label: None, services: pins, files: digests };
    stage(layout, &fleet.app, &manifest, &files).await?;
    let current = layout.pointer(Pointer::Current).map_err(|error| disk("current", &error))?;
    if current.is_none_or(|current| check_files(layout, &current).is_err()) {
        // What is one step back is this; it also keeps it from being pruned.
        layout.point(Pointer::Previous, Some(&manifest.id)).map_err(|error| disk("previous", &error))?;
    }
    Ok(manifest)
}

fn cannot(what: String) -> Failure {
    Failure::new(FailureKind::Missing, format!("what runs here cannot be saved: {what}"))
}

/// The definition as its files have it, with a mark where a variable is not known.
async fn reconstructed(app: &str, container: &Inspected) -> Result<Value, Failure> {
    let label = |name: &str| container.labels.get(&format!("{LABEL}.{name}")).map(String::as_str).unwrap_or_default();
    let folder = label("working_dir");
    let split = |text: &str| text.split(',').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect::<Vec<_>>();
    let (files, mut env_files) = (split(label("config_files")), split(label("environment_file")));
    if files.is_empty() {
        return Err(cannot("its containers do not say from which compose file they were made".to_owned()));
    }
    for file in files.iter().chain(&env_files) {
        fs::metadata(file).map_err(|error| cannot(format!("{file}: {error}")))?;
    }
    let beside = Path::new(folder).join(".env");
    if env_files.is_empty() {
        env_files.push(if beside.exists() {
            beside.to_string_lossy().into_owned()
        } else {
            compose::NO_FILE.to_owned()
        });
    }
    let line = compose::config_full(app, &files, folder, &env_files);
    let output = with_marks(line).await?;
    serde_json::from_slice(&output).map_err(|error| cannot(format!("Compose's answer is no JSON: {error}")))
}

/// Asks again and again, with a mark in the place of every variable that turns out to be missing.
async fn with_marks(mut line: CommandLine) -> Result<Vec<u8>, Failure> {
    for _ in 0..ROUNDS {
        let output = run(&line, LOCAL).await?;
        let unset: BTreeSet<String> = unset_variables(&output.stderr).into_iter().map(|unset| unset.name).collect();
        let fresh: Vec<String> = unset.into_iter().filter(|name| !line.env.contains_key(name)).collect();
        if fresh.is_empty() {
            return output.success("resolving its compose file").map(|output| output.stdout).map_err(|failure| {
                Failure {
                    kind: FailureKind::Missing,
                    message: format!("what runs here cannot be saved: {}", failure.message),
                    ..failure
                }
            });
        }
        for name in fresh {
            let mark = mark(&name);
            line = line.env(name, mark);
        }
    }
    Err(cannot("its compose file uses too many variables that are not set".to_owned()))
}

fn mark(name: &str) -> String {
    format!("@@HANDOVER_UNSET_{name}@@")
}

fn leftover(definition: &Value) -> Option<String> {
    let text = definition.to_string();
    let (_, after) = text.split_once("@@HANDOVER_UNSET_")?;
    Some(after.split_once("@@")?.0.to_owned())
}

/// Lets a service be what its container is: the image by its local id, the environment as it was given.
async fn taken_over(
    service: &mut Map<String, Value>,
    container: &Inspected,
    replicas: usize,
) -> Result<ServicePin, Failure> {
    for gone in ["build", "env_file"] {
        service.remove(gone);
    }
    for (name, value) in service.get_mut("environment").and_then(Value::as_object_mut).into_iter().flatten() {
        if let Some(given) = container.env.get(name) {
            *value = Value::String(given.replace('$', "$$").replace(PLACEHOLDER, ""));
        }
    }
    // A name of our own keeps the image from being pruned, and Compose starts names more surely than bare ids.
    let id = &container.container.image_id;
    let short: String = id.trim_start_matches("sha256:").chars().take(12).collect();
    let name = format!("handover.local/adopted:{short}");
    run(&compose::tag(id, &name), LOCAL)
        .await?
        .success(&format!("naming the image of {}", container.container.name))?;
    service.insert("image".to_owned(), Value::String(name));
    let one_shot = matches!(service.get("restart").and_then(Value::as_str), None | Some("no")) && !container.is_alive();
    let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
    Ok(ServicePin { image: id.clone(), grace: container.grace, replicas, one_shot })
}

/// Saves files that are mounted and only read: the next version of them may take their place. Everything else stays
/// where it is, and must be there.
fn mounted(service: &mut Map<String, Value>, files: &mut Vec<Blob>) -> Result<(), Failure> {
    for volume in service.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        let bind = volume.get("type").and_then(Value::as_str) == Some("bind");
        let read_only = volume.get("read_only").and_then(Value::as_bool).unwrap_or(false);
        let source = volume.get("source").and_then(Value::as_str).filter(|source| bind && !source.contains("@@"));
        let Some(source) = source.map(ToOwned::to_owned) else { continue };
        let meta = fs::metadata(&source).map_err(|error| cannot(format!("{source}, which is mounted: {error}")))?;
        // A file that not everybody may read would have another owner here than the container expects.
        if !read_only || !meta.is_file() || meta.len() > LARGEST_MOUNTED || meta.permissions().mode() & 0o004 == 0 {
            continue;
        }
        let bytes = fs::read(&source).map_err(|error| cannot(format!("{source}, which is mounted: {error}")))?;
        let base = Path::new(&source).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("mounted/{}-{base}", &sha256_hex(&bytes)[..12]);
        if let Some(volume) = volume.as_object_mut() {
            volume.insert("source".to_owned(), Value::String(format!("./{name}")));
        }
        if !files.iter().any(|file| file.name == name) {
            files.push(Blob::bytes(&name, &bytes, false));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mounted_file_is_saved_and_a_folder_stays_where_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("gateway.toml");
        fs::write(&file, "x").expect("written");
        let mount = |source: &Path| json!({"type": "bind", "source": source, "target": "/x", "read_only": true});
        let mut service = Map::from_iter([("volumes".to_owned(), json!([mount(&file), mount(dir.path())]))]);
        let mut files = Vec::new();
        mounted(&mut service, &mut files).expect("both are there");
        assert_eq!(files.len(), 1);
        assert_eq!(service["volumes"][0]["source"], json!(format!("./{}", files[0].name)));
        assert_eq!(service["volumes"][1]["source"], json!(dir.path()));
        let mut service = Map::from_iter([("volumes".to_owned(), json!([mount(Path::new("/no/such"))]))]);
        assert!(mounted(&mut service, &mut files).expect_err("gone").message.contains("/no/such"));
    }

    #[test]
    fn a_variable_that_is_known_nowhere_is_named() {
        let definition = json!({"services": {"api": {"ports": [{"published": mark("PORT")}]}}});
        assert_eq!(leftover(&definition).as_deref(), Some("PORT"));
        assert_eq!(leftover(&json!({"services": {}})), None);
    }
}
