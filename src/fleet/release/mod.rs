//! A release: what is published, what it is called, and what must be true of the containers that run it.

mod back;
mod digest;
mod pins;
mod prune;

pub use back::{NoWayBack, OnServer, one_back};
pub use digest::{FileMark, as_written, canonical, digest, sha256_hex};
pub use pins::{Definition, Refusal, read_definition};
pub use prune::to_prune;

use crate::fleet::model::{ReleaseId, ServiceName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// `[release]`: what is published and where it lies on every server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseSpec {
    /// The one definition, relative to deploy.toml.
    pub compose: String,
    /// Files published beside it.
    pub files: Vec<String>,
    /// Files published with mode 0600 and never printed.
    pub env: Vec<String>,
    /// Variables that must be given, by `--set` or the environment.
    pub vars: Vec<String>,
    /// The folder on every server.
    pub dir: String,
    /// How many releases stay on a server.
    pub keep: u32,
}

/// What a release is, as it is written beside its files on every server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format number of this record.
    pub format: u32,
    /// The digest over the canonical bytes, or `adopted-...`.
    pub id: ReleaseId,
    /// `--name`: a label, no part of the release.
    pub label: Option<String>,
    /// Every service of the resolved definition.
    pub services: BTreeMap<ServiceName, ServicePin>,
    /// Every file of it, by name relative to the release's folder, with its SHA-256 in hex.
    pub files: BTreeMap<String, String>,
}

/// What a release pins of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePin {
    /// The image with its digest (`registry/name@sha256:...`), or a local image id for adopted releases.
    pub image: String,
    /// Compose's `stop_grace_period` (Compose reference: 10 s where none is set).
    pub grace: Duration,
    /// How many containers.
    pub replicas: u32,
    /// Whether the container is meant to end (`restart: no` and no port): it must have exited with 0.
    pub one_shot: bool,
}

/// The name of the resolved definition in a release's folder.
pub const DEFINITION: &str = "compose.resolved.json";

/// Compose's default grace period (Compose file reference, `stop_grace_period`).
pub const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// Format number of a release's manifest.
pub const MANIFEST_FORMAT: u32 = 1;

/// The manifest's file name in a release's folder.
pub const MANIFEST: &str = "manifest.json";

/// Stands where `HANDOVER_RELEASE` is used while the definition has no digest yet.
pub const PLACEHOLDER: &str = "@@HANDOVER_RELEASE@@";

/// What Compose calls the variable.
pub const RELEASE_VARIABLE: &str = "HANDOVER_RELEASE";

/// What a command on a server may know of its environment; everything else, `COMPOSE_*` first of all, would make the outcome
/// depend on who asks.
pub const FROM_THE_SERVER: [&str; 9] = [
    "PATH",
    "HOME",
    "USER",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
];
