//! What counts as proof that a service runs the release: evidence in, judgement out.
//!
//! Pure: whoever gathered the evidence (the agent, the lab) does not judge it, so that a command that merely
//! returned is never believed.

use super::model::{Container, ContainerState, ReleaseId, ServiceName, Verify, show_duration};
use super::release::Manifest;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a service's own check saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// An HTTP answer.
    Http {
        /// Its status.
        status: u16,
        /// The beginning of its body.
        body: String,
    },
    /// A connection was accepted.
    Connected,
    /// A command ended.
    Exec {
        /// With this code.
        code: i32,
        /// The end of what it printed.
        output: String,
    },
    /// A file was touched so long ago.
    Touched {
        /// So long ago.
        age: Duration,
        /// And after the service's container was started.
        after_start: bool,
    },
    /// Nothing answered, and how that showed.
    Nothing(String),
}

/// Judges one service's evidence.
///
/// # Errors
/// The sentence that tells a person what is wrong, with the last answer.
pub fn judge(verify: &Verify, evidence: &Evidence, release: &ReleaseId) -> Result<(), String> {
    match (verify, evidence) {
        (_, Evidence::Nothing(why)) => Err(why.clone()),
        (Verify::Http { url, status, json, .. }, Evidence::Http { status: got, body }) => {
            if got != status {
                return Err(format!("{url} answered {got} instead of {status}: {}", excerpt(body)));
            }
            fields(url, json, body, release)
        }
        (Verify::Tcp { .. }, Evidence::Connected) => Ok(()),
        (Verify::Exec { .. }, Evidence::Exec { code: 0, .. }) => Ok(()),
        (Verify::Exec { argv }, Evidence::Exec { code, output }) => {
            Err(format!("`{}` ended with {code}: {}", argv.join(" "), excerpt(output)))
        }
        (Verify::Heartbeat { path, age }, Evidence::Touched { age: seen, after_start }) => {
            if !after_start {
                Err(format!("{path} was not touched since the service was started"))
            } else if seen > age {
                Err(format!("{path} was touched {} ago, more than {}", show_duration(*seen), show_duration(*age)))
            } else {
                Ok(())
            }
        }
        (_, other) => Err(format!("the evidence does not fit the check: {other:?}")),
    }
}

fn fields(url: &str, wanted: &BTreeMap<String, String>, body: &str, release: &ReleaseId) -> Result<(), String> {
    if wanted.is_empty() {
        return Ok(());
    }
    let json: serde_json::Value =
        serde_json::from_str(body).map_err(|_| format!("{url} answered no JSON: {}", excerpt(body)))?;
    for (path, value) in wanted {
        if value.contains("{release}") && release.is_adopted() {
            continue;
        }
        let value = value.replace("{release}", release.short());
        let found = path.split('.').try_fold(&json, |at, key| at.get(key));
        let found = found.map(|found| found.as_str().map_or_else(|| found.to_string(), ToOwned::to_owned));
        if found.as_deref() != Some(value.as_str()) {
            let found = found.unwrap_or_else(|| "nothing".to_owned());
            return Err(format!("{url}: `{path}` is `{found}`, not `{value}`"));
        }
    }
    Ok(())
}

fn excerpt(text: &str) -> String {
    let line: String = text.trim().chars().take(200).collect();
    if line.is_empty() { "(empty)".to_owned() } else { line.replace('\n', " | ") }
}

/// Something wrong with the containers of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerFault {
    /// What, as a sentence.
    pub what: String,
    /// Whether waiting cannot mend it: the wrong image, too many containers.
    pub lasting: bool,
}

/// Judges the containers of a project against what the release pins: every one is the published image and runs, and
/// there is none too few and none too many. Restarts are judged by who sees their count grow.
#[must_use]
pub fn container_faults(
    manifest: &Manifest,
    image_ids: &BTreeMap<ServiceName, String>,
    containers: &[Container],
) -> Vec<ContainerFault> {
    let mut faults: Vec<ContainerFault> =
        manifest.services.keys().flat_map(|service| service_faults(manifest, image_ids, containers, service)).collect();
    for container in containers {
        if !manifest.services.contains_key(&container.service) {
            faults.push(ContainerFault {
                what: format!("{} belongs to no service of the release", container.name),
                lasting: true,
            });
        }
    }
    faults
}

/// Containers as they are judged where these services sleep: that one of theirs is off is meant, that it is of another image is not.
#[must_use]
pub fn excused(containers: &[Container], asleep: &BTreeSet<ServiceName>) -> Vec<Container> {
    let mut containers = containers.to_vec();
    let is_off = |one: &Container| matches!(one.state, ContainerState::Exited | ContainerState::Created);
    for one in containers.iter_mut().filter(|one| asleep.contains(&one.service) && is_off(one)) {
        one.state = ContainerState::Running;
    }
    containers
}

/// The same of one service; nothing where the release has none of that name.
#[must_use]
pub fn service_faults(
    manifest: &Manifest,
    image_ids: &BTreeMap<ServiceName, String>,
    containers: &[Container],
    service: &ServiceName,
) -> Vec<ContainerFault> {
    let Some(pin) = manifest.services.get(service) else { return Vec::new() };
    let own: Vec<&Container> = containers.iter().filter(|c| &c.service == service).collect();
    let mut faults = Vec::new();
    if own.len() != pin.replicas as usize {
        let what = format!("{service}: {} containers instead of {}", own.len(), pin.replicas);
        faults.push(ContainerFault { what, lasting: own.len() > pin.replicas as usize });
    }
    faults.extend(own.into_iter().filter_map(|c| container_fault(c, pin.one_shot, image_ids.get(service))));
    faults
}

fn container_fault(container: &Container, one_shot: bool, image_id: Option<&String>) -> Option<ContainerFault> {
    let name = &container.name;
    let lasting = |what: String| Some(ContainerFault { what, lasting: true });
    match image_id {
        None => return lasting(format!("{name}: the published image is not on the server")),
        Some(id) if id != &container.image_id => {
            return lasting(format!(
                "{name} runs the image {} and not the published {}",
                short(&container.image_id),
                short(id)
            ));
        }
        Some(_) => {}
    }
    let what = match &container.state {
        ContainerState::Exited if one_shot && container.exit_code == 0 => return None,
        ContainerState::Running => return None,
        ContainerState::Restarting => format!("{name} restarts again and again (exit code {})", container.exit_code),
        ContainerState::Exited => format!("{name} ended with {}", container.exit_code),
        ContainerState::Created => format!("{name} was made but not started"),
        ContainerState::Other(word) => format!("{name} is `{word}`"),
    };
    Some(ContainerFault { what, lasting: false })
}

fn short(id: &str) -> &str {
    let hex = id.strip_prefix("sha256:").unwrap_or(id);
    hex.get(..12).unwrap_or(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(json: &[(&str, &str)]) -> Verify {
        Verify::Http {
            url: "http://127.0.0.1:8080/version".into(),
            status: 200,
            json: json.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            host: None,
        }
    }

    #[test]
    fn a_200_of_the_old_version_is_no_proof() {
        let release = ReleaseId::new("0123456789abcdef");
        let verify = http(&[("version", "{release}")]);
        let old = Evidence::Http { status: 200, body: r#"{"version":"ffff"}"#.into() };
        let new = Evidence::Http { status: 200, body: r#"{"version":"0123456789ab"}"#.into() };
        assert!(judge(&verify, &old, &release).expect_err("old").contains("`ffff`"));
        assert_eq!(judge(&verify, &new, &release), Ok(()));
    }

    #[test]
    fn a_redirect_or_a_body_without_json_is_no_proof() {
        let release = ReleaseId::new("0123456789abcdef");
        for (status, body) in [(301, "{}"), (200, "<html>"), (200, r#"{"other":1}"#)] {
            let evidence = Evidence::Http { status, body: body.into() };
            assert!(judge(&http(&[("version", "x")]), &evidence, &release).is_err(), "{status} {body}");
        }
    }

    #[test]
    fn nested_fields_and_numbers_are_compared_as_text() {
        let evidence = Evidence::Http { status: 200, body: r#"{"build":{"n":7}}"#.into() };
        assert_eq!(judge(&http(&[("build.n", "7")]), &evidence, &ReleaseId::new("x")), Ok(()));
    }

    #[test]
    fn an_old_heartbeat_of_the_stopped_worker_is_no_proof() {
        let verify = Verify::Heartbeat { path: "/run/beat".into(), age: Duration::from_secs(10) };
        let evidence = Evidence::Touched { age: Duration::from_secs(2), after_start: false };
        assert!(judge(&verify, &evidence, &ReleaseId::new("x")).is_err());
    }
}
