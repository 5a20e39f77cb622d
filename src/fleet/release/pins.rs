//! Reads a definition that Compose has resolved: what it pins, what of it cannot be a release, what is worth saying.

use super::{DEFAULT_GRACE, ServicePin, canonical};
use crate::fleet::model::ServiceName;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// A definition that can be a release.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The canonical JSON.
    pub text: String,
    /// What it pins.
    pub services: BTreeMap<ServiceName, ServicePin>,
    /// Things worth saying.
    pub warnings: Vec<String>,
}

/// Why a definition cannot be a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It has no services.
    Empty,
    /// A service is built and not pulled.
    BuildOnly(String),
    /// An image without a digest.
    NoDigest(String, String),
    /// A container writes into the release's folder.
    WritableBind(String, String),
    /// A relative path that is not published with the release.
    NotPublished(String, String),
    /// An environment value that would be taken from whoever starts the container.
    ValueFromCaller(String, String),
}

impl Refusal {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "name at least one service that no profile switches off",
            Self::BuildOnly(_) => "give it an `image:`, build and push it before the deploy",
            Self::NoDigest(..) => "push it: a release is made of images that every server can pull",
            Self::WritableBind(..) => "mount an absolute path or a named volume: a release's own folder never changes",
            Self::NotPublished(..) => "name it in `release.files` or `release.env` of deploy.toml",
            Self::ValueFromCaller(..) => {
                "write `NAME: ${NAME:?}` and name it in `release.vars`, or put it into an env file"
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the definition has no services"),
            Self::BuildOnly(service) => write!(f, "{service}: is built on the spot and has no `image`"),
            Self::NoDigest(service, image) => write!(f, "{service}: the image `{image}` has no digest in its registry"),
            Self::WritableBind(service, path) => {
                write!(f, "{service}: may write to `{path}`, which is part of the release")
            }
            Self::NotPublished(user, path) => write!(f, "{user}: `{path}` is not published with the release"),
            Self::ValueFromCaller(service, name) => write!(f, "{service}: `{name}` has no value in the definition"),
        }
    }
}

/// Reads a resolved definition: images are pinned to their digests alone, and nothing stays in it that has no effect.
///
/// `files` are the names of what is published beside it, `expected` the services that deploy.toml verifies.
///
/// # Errors
/// Everything that forbids it, at once.
pub fn read_definition(
    mut definition: Value,
    files: &BTreeSet<String>,
    expected: &BTreeSet<ServiceName>,
) -> Result<Definition, Vec<Refusal>> {
    let mut reading = Reading { files, expected, refusals: Vec::new(), warnings: Vec::new() };
    let mut pins = BTreeMap::new();
    if let Some(top) = definition.as_object_mut() {
        // Anchors live here (`x-common`); what they meant is in the services already, the tag's spelling with it.
        top.retain(|key, _| !key.starts_with("x-"));
        for kind in ["secrets", "configs"] {
            reading.top_files(kind, top.get(kind));
        }
        for (name, service) in top.get_mut("services").and_then(Value::as_object_mut).into_iter().flatten() {
            if let Some(pin) = service.as_object_mut().and_then(|service| reading.service(name, service)) {
                pins.insert(ServiceName::new(name.as_str()), pin);
            }
        }
    }
    if pins.is_empty() && reading.refusals.is_empty() {
        reading.refusals.push(Refusal::Empty);
    }
    for name in expected.iter().filter(|name| !pins.contains_key(*name)) {
        reading.warnings.push(format!("deploy.toml verifies `{name}`, which the definition does not have"));
    }
    if reading.refusals.is_empty() {
        Ok(Definition { text: canonical(&definition), services: pins, warnings: reading.warnings })
    } else {
        Err(reading.refusals)
    }
}

struct Reading<'a> {
    files: &'a BTreeSet<String>,
    expected: &'a BTreeSet<ServiceName>,
    refusals: Vec<Refusal>,
    warnings: Vec<String>,
}

impl Reading<'_> {
    fn top_files(&mut self, kind: &str, entries: Option<&Value>) {
        for (name, entry) in entries.and_then(Value::as_object).into_iter().flatten() {
            if let Some(path) = entry.get("file").and_then(Value::as_str) {
                self.published(&format!("{kind}.{name}"), path);
            }
        }
    }

    fn published(&mut self, user: &str, path: &str) {
        if path.starts_with('/') {
            return;
        }
        let plain = path.trim_start_matches("./").trim_end_matches('/');
        let folder = format!("{plain}/");
        if !self.files.iter().any(|file| file == plain || file.starts_with(&folder)) {
            self.refusals.push(Refusal::NotPublished(user.to_owned(), path.to_owned()));
        }
    }

    fn service(&mut self, name: &str, service: &mut Map<String, Value>) -> Option<ServicePin> {
        let built = service.remove("build").is_some();
        self.env_files(name, service);
        self.binds(name, service);
        for (key, value) in service.get("environment").and_then(Value::as_object).into_iter().flatten() {
            if value.is_null() {
                self.refusals.push(Refusal::ValueFromCaller(name.to_owned(), key.clone()));
            }
        }
        let image = service.get("image").and_then(Value::as_str).map(ToOwned::to_owned);
        let Some(image) = image else {
            self.refusals.push(Refusal::BuildOnly(name.to_owned()));
            return None;
        };
        if built {
            self.warnings.push(format!("{name}: `build` is ignored, its pushed image is used"));
        }
        let Some(image) = without_tag(&image) else {
            self.refusals.push(Refusal::NoDigest(name.to_owned(), image));
            return None;
        };
        service.insert("image".to_owned(), Value::String(image.clone()));
        let one_shot = self.one_shot(name, service);
        self.policies(name, service, one_shot);
        Some(ServicePin { image, grace: grace(service), replicas: replicas(service), one_shot })
    }

    fn env_files(&mut self, name: &str, service: &Map<String, Value>) {
        for entry in service.get("env_file").and_then(Value::as_array).into_iter().flatten() {
            let path = entry.as_str().or_else(|| entry.get("path").and_then(Value::as_str));
            let required = entry.get("required").and_then(Value::as_bool).unwrap_or(true);
            match path {
                Some(path) if path.starts_with('/') => {
                    self.warnings
                        .push(format!("{name}: `{path}` is read on each server and is no part of the release"));
                }
                Some(path) if required => self.published(name, path),
                _ => {}
            }
        }
    }

    fn binds(&mut self, name: &str, service: &Map<String, Value>) {
        for volume in service.get("volumes").and_then(Value::as_array).into_iter().flatten() {
            let kind = volume.get("type").and_then(Value::as_str);
            if kind == Some("volume") && volume.get("source").is_none() {
                let target = volume.get("target").and_then(Value::as_str).unwrap_or_default();
                self.warnings.push(format!(
                    "{name}: `{target}` is a volume without a name: every deploy begins with an empty one; name it if its data matters"
                ));
            }
            let bind = kind == Some("bind");
            let Some(source) = volume.get("source").and_then(Value::as_str).filter(|_| bind) else { continue };
            if source.starts_with('/') {
                continue;
            }
            if !volume.get("read_only").and_then(Value::as_bool).unwrap_or(false) {
                self.refusals.push(Refusal::WritableBind(name.to_owned(), source.to_owned()));
            }
            self.published(name, source);
        }
    }

    /// Whether the container is meant to end: it is never restarted, nobody connects to it, and deploy.toml does not
    /// expect it to answer anything.
    fn one_shot(&self, name: &str, service: &Map<String, Value>) -> bool {
        let never_restarted = matches!(service.get("restart").and_then(Value::as_str), None | Some("no"));
        let no_port = service.get("ports").and_then(Value::as_array).is_none_or(Vec::is_empty);
        never_restarted && no_port && !self.expected.contains(&ServiceName::new(name))
    }

    fn policies(&mut self, name: &str, service: &Map<String, Value>, one_shot: bool) {
        match service.get("restart").and_then(Value::as_str) {
            Some("always") => self.warnings.push(format!(
                "{name}: `restart: always` also brings back what was stopped on purpose when the engine restarts; `unless-stopped` does not"
            )),
            None | Some("no") if !one_shot => {
                self.warnings.push(format!("{name}: has no restart policy: once it ends it stays down until somebody looks"));
            }
            _ => {}
        }
        let deploy = service.get("deploy");
        for ignored in ["update_config", "rollback_config"] {
            if deploy.and_then(|deploy| deploy.get(ignored)).is_some() {
                self.warnings
                    .push(format!("{name}: `deploy.{ignored}` is ignored; `[rolling]` of deploy.toml decides"));
            }
        }
    }
}

/// `name:tag@digest` without the tag, which is no part of what runs; `None` without a digest.
fn without_tag(image: &str) -> Option<String> {
    let (name, digest) = image.split_once('@')?;
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let name = name[last..].find(':').map_or(name, |colon| &name[..last + colon]);
    (!digest.is_empty()).then(|| format!("{name}@{digest}"))
}

fn grace(service: &Map<String, Value>) -> Duration {
    service.get("stop_grace_period").and_then(Value::as_str).and_then(go_duration).unwrap_or(DEFAULT_GRACE)
}

fn replicas(service: &Map<String, Value>) -> u32 {
    let deploy = service.get("deploy").and_then(|deploy| deploy.get("replicas"));
    let count = service.get("scale").or(deploy).and_then(Value::as_u64);
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

/// Reads a duration as Go writes it: `1m30s`, `1.5s`, `500ms`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        seconds += number
            * match &rest[..letters] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(services: Value) -> Result<Definition, Vec<Refusal>> {
        let files = ["gateway.toml", ".env", "certs/a.pem"].map(ToOwned::to_owned).into();
        let expected = [ServiceName::from("api")].into();
        read_definition(json!({"name": "x", "services": services, "x-common": {"image": "a:v1"}}), &files, &expected)
    }

    const IMAGE: &str = "registry.e2e:5000/a:v1@sha256:00";

    #[test]
    fn a_tag_is_no_part_of_the_release_and_a_port_of_the_registry_stays() {
        assert_eq!(without_tag(IMAGE).as_deref(), Some("registry.e2e:5000/a@sha256:00"));
        assert_eq!(without_tag("registry.e2e:5000/a@sha256:00").as_deref(), Some("registry.e2e:5000/a@sha256:00"));
        assert_eq!(without_tag("nginx:1.2"), None);
        let definition = read(json!({"api": {"image": IMAGE, "restart": "unless-stopped"}})).expect("fine");
        assert!(!definition.text.contains("v1"), "{}", definition.text);
    }

    #[test]
    fn everything_that_forbids_it_is_said_at_once() {
        let refusals = read(json!({
            "api": {"image": "a:v1"},
            "built": {"build": {"context": "."}},
            "writer": {"image": IMAGE, "volumes": [{"type": "bind", "source": "./certs", "target": "/c"}]},
            "reader": {"image": IMAGE, "env_file": [{"path": "./other.env", "required": true}]},
            "null": {"image": IMAGE, "environment": {"SECRET": null}},
        }))
        .expect_err("refused");
        assert_eq!(
            refusals,
            [
                Refusal::NoDigest("api".into(), "a:v1".into()),
                Refusal::BuildOnly("built".into()),
                Refusal::ValueFromCaller("null".into(), "SECRET".into()),
                Refusal::NotPublished("reader".into(), "./other.env".into()),
                Refusal::WritableBind("writer".into(), "./certs".into()),
            ]
        );
    }

    #[test]
    fn a_folder_of_published_files_and_absolute_paths_may_be_mounted() {
        read(json!({"api": {"image": IMAGE, "restart": "unless-stopped", "env_file": [".env"], "volumes": [
            {"type": "bind", "source": "./certs", "target": "/c", "read_only": true},
            {"type": "bind", "source": "./gateway.toml", "target": "/g", "read_only": true},
            {"type": "bind", "source": "/run/x", "target": "/x"},
            {"type": "volume", "source": "data", "target": "/d"}]}}))
        .expect("fine");
    }

    #[test]
    fn a_container_is_meant_to_end_only_if_nobody_expects_it_to_stay() {
        let one_shot = |name: &str, service: Value| {
            let services = json!({name: service});
            read(services).expect("fine").services[&ServiceName::from(name)].one_shot
        };
        assert!(one_shot("migrate", json!({"image": IMAGE})));
        assert!(one_shot("migrate", json!({"image": IMAGE, "restart": "no"})));
        assert!(!one_shot("migrate", json!({"image": IMAGE, "restart": "unless-stopped"})));
        assert!(!one_shot("migrate", json!({"image": IMAGE, "ports": [{"target": 1}]})));
        assert!(!one_shot("api", json!({"image": IMAGE})));
    }

    #[test]
    fn grace_and_replicas_are_read_as_compose_writes_them() {
        let definition = read(json!({
            "api": {"image": IMAGE, "stop_grace_period": "1m30s", "deploy": {"replicas": 3}},
            "b": {"image": IMAGE, "scale": 2},
        }))
        .expect("fine");
        let pins: Vec<_> = definition.services.values().map(|pin| (pin.grace.as_secs(), pin.replicas)).collect();
        assert_eq!(pins, [(90, 3), (10, 2)]);
        assert_eq!(go_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(go_duration("1h0m0.5s"), Some(Duration::from_millis(3_600_500)));
        assert_eq!(go_duration("10"), None);
    }

    #[test]
    fn a_volume_without_a_name_is_warned_about() {
        let volumes = json!([{"type": "volume", "target": "/data"}, {"type": "volume", "source": "d", "target": "/d"}]);
        let definition =
            read(json!({"api": {"image": IMAGE, "restart": "unless-stopped", "volumes": volumes}})).expect("fine");
        assert_eq!(definition.warnings.len(), 1, "{:?}", definition.warnings);
        assert!(definition.warnings[0].contains("`/data`"));
    }

    #[test]
    fn policies_that_work_against_a_deploy_are_warned_about() {
        let definition = read(json!({
            "api": {"image": IMAGE},
            "b": {"image": IMAGE, "restart": "always", "deploy": {"update_config": {}}},
        }))
        .expect("fine");
        assert_eq!(definition.warnings.len(), 3, "{:?}", definition.warnings);
    }
}
