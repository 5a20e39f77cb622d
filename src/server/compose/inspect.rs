//! What the engine says of containers and images.

use crate::fleet::model::{Container, ContainerState, ServiceName};
use crate::fleet::release::Manifest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// A container as the engine describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspected {
    /// Its id.
    pub id: String,
    /// What the rest of the project needs to know of it.
    pub container: Container,
    /// When it was last started.
    pub started: Option<SystemTime>,
    /// When it last ended.
    pub finished: Option<SystemTime>,
    /// Its grace period.
    pub grace: Duration,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When the engine starts it again, in the engine's own words, such as `on-failure:3`.
    pub restart: String,
}

impl Inspected {
    /// Whether a stop has anything to do with it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.container.state, ContainerState::Exited | ContainerState::Created)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawContainer {
    id: String,
    name: String,
    image: String,
    #[serde(default)]
    restart_count: u32,
    state: RawState,
    config: RawConfig,
    #[serde(default)]
    host_config: RawHostConfig,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawHostConfig {
    restart_policy: RawRestart,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawRestart {
    name: String,
    maximum_retry_count: u32,
}

impl RawRestart {
    fn word(&self) -> String {
        match (self.name.as_str(), self.maximum_retry_count) {
            ("", _) => "no".to_owned(),
            (name, 0) => name.to_owned(),
            (name, count) => format!("{name}:{count}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawState {
    status: String,
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    started_at: String,
    #[serde(default)]
    finished_at: String,
    health: Option<RawHealth>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawHealth {
    status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawConfig {
    labels: Option<BTreeMap<String, String>>,
    env: Option<Vec<String>>,
    stop_timeout: Option<u64>,
}

/// Docker's own grace period where a container has none.
const ENGINE_GRACE: u64 = 10;

/// Reads `docker container inspect`; containers of `compose run` are nobody's service and left out.
///
/// # Errors
/// When it is not what the engine answers.
pub fn parse_inspect(json: &[u8]) -> Result<Vec<Inspected>, serde_json::Error> {
    let raw: Vec<RawContainer> = serde_json::from_slice(json)?;
    let mut all: Vec<Inspected> = raw.into_iter().filter_map(one).collect();
    all.sort_by(|a, b| a.container.name.cmp(&b.container.name));
    Ok(all)
}

fn one(raw: RawContainer) -> Option<Inspected> {
    let labels = raw.config.labels.unwrap_or_default();
    if labels.get("com.docker.compose.oneoff").is_some_and(|word| word.eq_ignore_ascii_case("true")) {
        return None;
    }
    let service = labels.get("com.docker.compose.service")?;
    let state = match raw.state.status.as_str() {
        "created" => ContainerState::Created,
        "running" => ContainerState::Running,
        "restarting" => ContainerState::Restarting,
        "exited" => ContainerState::Exited,
        other => ContainerState::Other(other.to_owned()),
    };
    let container = Container {
        service: ServiceName::new(service),
        name: raw.name.trim_start_matches('/').to_owned(),
        state,
        restarts: raw.restart_count,
        exit_code: raw.state.exit_code,
        image_id: raw.image,
        health: raw.state.health.map(|health| health.status),
    };
    let env = raw.config.env.unwrap_or_default();
    Some(Inspected {
        id: raw.id,
        container,
        started: moment(&raw.state.started_at),
        finished: moment(&raw.state.finished_at),
        grace: Duration::from_secs(raw.config.stop_timeout.unwrap_or(ENGINE_GRACE)),
        env: env.iter().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        labels,
        restart: raw.host_config.restart_policy.word(),
    })
}

// "Never" is the year 1, which is no moment of a SystemTime's reader.
fn moment(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawImage {
    id: String,
    #[serde(default)]
    repo_digests: Option<Vec<String>>,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
}

/// Every name that an image of the server has, with its local id.
///
/// # Errors
/// When it is not what the engine answers.
pub fn parse_images(json: &[u8]) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let raw: Vec<RawImage> = serde_json::from_slice(json)?;
    let mut ids = BTreeMap::new();
    for image in raw {
        for digest in image.repo_digests.iter().flatten() {
            // The name before it may be shortened by the engine (docker.io/library); the digest says it all.
            if let Some((_, digest)) = digest.split_once('@') {
                ids.insert(digest.to_owned(), image.id.clone());
            }
        }
        for tag in image.repo_tags.iter().flatten() {
            ids.insert(tag.clone(), image.id.clone());
        }
        ids.insert(image.id.clone(), image.id);
    }
    Ok(ids)
}

/// The local image id of every service whose pin is on the server.
#[must_use]
pub fn ids_by_pin(manifest: &Manifest, ids: &BTreeMap<String, String>) -> BTreeMap<ServiceName, String> {
    let id = |image: &str| ids.get(image.split_once('@').map_or(image, |(_, digest)| digest)).cloned();
    manifest.services.iter().filter_map(|(name, pin)| Some((name.clone(), id(&pin.image)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Recorded from Docker 20.10.24, shortened to the fields that are read and some that are not.
    const RECORDED: &str = r#"[
      {"Id":"f0e1","Created":"2026-11-29T20:01:00.1Z","Path":"/bin/app","Name":"/mythex-api-1","Image":"sha256:aa","RestartCount":3,
       "State":{"Status":"restarting","Running":true,"Restarting":true,"OOMKilled":false,"ExitCode":3,"Error":"",
                "StartedAt":"2026-11-29T20:01:00.123456789Z","FinishedAt":"0001-01-01T00:00:00Z"},
       "Config":{"Hostname":"x","Env":["PORT=8080","EMPTY=","EQ=a=b"],"StopTimeout":90,
                 "Labels":{"com.docker.compose.project":"mythex","com.docker.compose.service":"api","com.docker.compose.oneoff":"False"}}},
      {"Id":"f0e2","Name":"/mythex-api-run-1","Image":"sha256:aa","RestartCount":0,"State":{"Status":"running"},
       "Config":{"Labels":{"com.docker.compose.service":"api","com.docker.compose.oneoff":"True"}}}]"#;

    #[test]
    fn a_restarting_container_is_read_and_one_of_compose_run_is_left_out() {
        let all = parse_inspect(RECORDED.as_bytes()).expect("the engine's answer");
        assert_eq!(all.len(), 1);
        let one = &all[0];
        assert_eq!(
            (one.container.name.as_str(), one.container.restarts, one.container.exit_code),
            ("mythex-api-1", 3, 3)
        );
        assert_eq!(one.container.state, ContainerState::Restarting);
        assert!(one.started.is_some() && one.finished.is_none() && one.is_alive());
        assert_eq!(one.grace, Duration::from_secs(90));
        assert_eq!(one.env["EQ"], "a=b");
    }

    #[test]
    fn an_image_is_found_by_its_digest_whatever_its_name_is_shortened_to() {
        let json = r#"[{"Id":"sha256:aa","RepoDigests":["nginx@sha256:dd"],"RepoTags":["adopted:1"]},{"Id":"sha256:bb","RepoDigests":null,"RepoTags":[]}]"#;
        let ids = parse_images(json.as_bytes()).expect("images");
        assert_eq!(ids["sha256:dd"], "sha256:aa");
        assert_eq!(ids["adopted:1"], "sha256:aa");
        assert_eq!(ids["sha256:bb"], "sha256:bb");
    }
}
