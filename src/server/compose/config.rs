//! What has to be done to a definition so that secrets stay in their own files while variables are put in.
//!
//! Compose 2.40 reads env files into the definition unless nothing is interpolated at all. So `env_file` is set aside
//! between two passes, under a top-level `x-` key: those survive and are interpolated, those of services vanish.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Where `env_file` of every service waits between the passes.
pub const ENV_FILES_KEY: &str = "x-handover-env-file";

/// Sets `env_file` of every service aside.
pub fn env_files_aside(definition: &mut Value) {
    let mut aside = Map::new();
    for (name, service) in definition.get_mut("services").and_then(Value::as_object_mut).into_iter().flatten() {
        if let Some(files) = service.as_object_mut().and_then(|service| service.remove("env_file")) {
            aside.insert(name.clone(), files);
        }
    }
    if let Some(top) = definition.as_object_mut() {
        top.insert(ENV_FILES_KEY.to_owned(), Value::Object(aside));
    }
}

/// Puts `env_file` back where it was; services that a profile switched off are gone, and so is theirs.
///
/// # Errors
/// The services whose env files got lost: `expected` had some before the second pass.
pub fn env_files_back(definition: &mut Value, expected: &BTreeSet<String>) -> Result<(), Vec<String>> {
    let aside = definition.as_object_mut().and_then(|top| top.remove(ENV_FILES_KEY));
    let mut aside: BTreeMap<String, Value> =
        aside.and_then(|aside| aside.as_object().cloned()).into_iter().flatten().collect();
    let mut lost = Vec::new();
    for (name, service) in definition.get_mut("services").and_then(Value::as_object_mut).into_iter().flatten() {
        match (aside.remove(name), service.as_object_mut()) {
            (Some(files), Some(service)) => drop(service.insert("env_file".to_owned(), files)),
            _ if expected.contains(name) => lost.push(name.clone()),
            _ => {}
        }
    }
    if lost.is_empty() { Ok(()) } else { Err(lost) }
}

/// A variable that was used and not set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unset {
    /// Its name.
    pub name: String,
}

/// Which variables Compose missed, by its own words on stderr; it puts nothing in their place and goes on.
#[must_use]
pub fn unset_variables(stderr: &str) -> BTreeSet<Unset> {
    let mut unset = BTreeSet::new();
    for line in stderr.lines() {
        // In logfmt the quotes are escaped, on a terminal they are not.
        let line = line.replace("\\\"", "\"");
        let warned = line
            .split_once("\" variable is not set")
            .and_then(|(before, _)| before.rsplit_once('"'))
            .map(|(_, name)| name);
        let required =
            line.split_once("required variable ").and_then(|(_, after)| after.split_once(' ')).map(|(name, _)| name);
        unset.extend(warned.into_iter().chain(required).map(|name| Unset { name: name.to_owned() }));
    }
    unset
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn env_files_come_back_to_the_services_that_are_still_there() {
        let mut definition = json!({"services": {
            "api": {"image": "a", "env_file": [{"path": ".env", "required": true}]},
            "debug": {"image": "a", "env_file": [{"path": ".env"}]},
            "db": {"image": "b"},
        }});
        let whole = definition.clone();
        env_files_aside(&mut definition);
        assert_eq!(definition["services"]["api"], json!({"image": "a"}));
        if let Some(services) = definition["services"].as_object_mut() {
            services.remove("debug");
        }
        env_files_back(&mut definition, &["api", "debug"].map(ToOwned::to_owned).into()).expect("back");
        assert_eq!(definition["services"]["api"], whole["services"]["api"]);
        assert_eq!(definition["services"]["db"], whole["services"]["db"]);
        assert_eq!(definition.get(ENV_FILES_KEY), None);
    }

    #[test]
    fn an_env_file_that_compose_lost_is_noticed() {
        let mut definition = json!({"services": {"api": {"image": "a"}}});
        assert_eq!(env_files_back(&mut definition, &["api".to_owned()].into()), Err(vec!["api".to_owned()]));
    }

    #[test]
    fn unset_variables_are_named_from_recorded_output() {
        let stderr = "time=\"2026-11-29T20:00:00Z\" level=warning msg=\"The \\\"LOG_LEVEL\\\" variable is not set. Defaulting to a blank string.\"\n\
                      error while interpolating services.api.image: required variable TAG is missing a value: TAG is not set\n";
        let names: Vec<String> = unset_variables(stderr).into_iter().map(|unset| unset.name).collect();
        assert_eq!(names, ["LOG_LEVEL", "TAG"]);
    }
}
