//! Resolves a definition once: merged, interpolated, images pinned, secrets left in their own files.

use super::disk;
use crate::fleet::held::cannot_take_over;
use crate::fleet::model::{Fleet, ServiceName};
use crate::fleet::release::FROM_THE_SERVER;
use crate::fleet::release::{
    DEFINITION, Definition, FileMark, MANIFEST, MANIFEST_FORMAT, Manifest, PLACEHOLDER, RELEASE_VARIABLE, as_written,
    digest, read_definition, sha256_hex,
};
use crate::server::compose::{self, env_files_aside, env_files_back, unset_variables};
use crate::server::layout::{Layout, write_new};
use crate::server::run::{Output, last_lines, run};
use crate::server::wire::{Blob, Failure, FailureKind, Resolved};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};
use std::time::Duration;

/// Merging and interpolating is local work.
const LOCAL: Duration = Duration::from_secs(60);
/// Every image is asked for at its registry.
const REGISTRY: Duration = Duration::from_secs(180);
/// The name of the definition between the passes.
const BETWEEN: &str = ".handover-between.json";

/// Resolves a definition with this server's Compose; nothing stays behind.
///
/// # Errors
/// What Compose or the registry says against it, and everything that forbids it to be a release.
pub async fn resolve(
    layout: &Layout,
    fleet: &Fleet,
    files: &[Blob],
    compose_file: &str,
    vars: &BTreeMap<String, String>,
) -> Result<Resolved, Failure> {
    let folder = tempfile::Builder::new()
        .prefix(".resolve-")
        .tempdir_in(layout.dir())
        .map_err(|error| disk("no folder to resolve in", &error))?;
    let marks = unpack(folder.path(), files)?;
    let mut definition = one(&fleet.app, folder.path(), compose_file).await?;
    of_this_server(&definition, vars)?;
    let own = definition.clone();
    let had_env_files = with_env_files(&definition);
    env_files_aside(&mut definition);
    let mut definition = two(&fleet.app, folder.path(), &definition, vars).await?;
    env_files_back(&mut definition, &had_env_files).map_err(|lost| {
        Failure::new(FailureKind::Internal, format!("this Compose lost the env files of {}", lost.join(", ")))
            .hint("Compose 2.40.3 is known to work")
    })?;
    secrets_stayed_out(&own, &definition, files)?;
    let unfit = fleet.drain.by.hands_over().map(|gateway| cannot_take_over(&definition, gateway)).unwrap_or_default();
    if !unfit.is_empty() {
        return Err(Failure::new(FailureKind::Input, unfit.join("; "))
            .hint("docs/nodes.md, \"A fleet of one\", has the whole service"));
    }
    let beside: Vec<FileMark> = marks.into_iter().filter(|mark| mark.name != compose_file).collect();
    let names: BTreeSet<String> = beside.iter().map(|mark| mark.name.clone()).collect();
    let expected: BTreeSet<ServiceName> = fleet.services.iter().map(|service| service.name.clone()).collect();
    let Definition { text, services, warnings } =
        read_definition(definition, &names, &expected).map_err(|refusals| {
            let message = refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let hint = refusals.first().map_or("", |refusal| refusal.hint());
            Failure::new(FailureKind::Input, message).hint(hint)
        })?;
    let id = digest(&text, &beside);
    let mut digests: BTreeMap<String, String> = beside.into_iter().map(|mark| (mark.name, mark.sha256)).collect();
    digests.insert(DEFINITION.to_owned(), sha256_hex(as_written(&text, &id).as_bytes()));
    let manifest = Manifest { format: MANIFEST_FORMAT, id, label: None, services, files: digests };
    Ok(Resolved { definition: text, manifest, warnings })
}

/// Writes files into a folder, each below it, secrets with mode 0600.
pub(super) fn unpack(folder: &Path, files: &[Blob]) -> Result<Vec<FileMark>, Failure> {
    let mut marks = Vec::new();
    for blob in files {
        let inside =
            Path::new(&blob.name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside || blob.name.is_empty() || [MANIFEST, BETWEEN].contains(&blob.name.as_str()) {
            return Err(Failure::new(
                FailureKind::Input,
                format!("`{}` cannot be the name of a published file", blob.name),
            ));
        }
        let bytes = blob.decode()?;
        let path = folder.join(&blob.name);
        let mode = if blob.secret { 0o600 } else { 0o644 };
        folders(folder, &path)
            .and_then(|()| write_new(&path, &bytes, mode))
            .map_err(|error| disk(&blob.name, &error))?;
        marks.push(FileMark { name: blob.name.clone(), secret: blob.secret, sha256: sha256_hex(&bytes) });
    }
    Ok(marks)
}

/// Makes the folders between, readable for whoever they are mounted for.
fn folders(top: &Path, file: &Path) -> std::io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    for between in file.ancestors().skip(1).take_while(|ancestor| *ancestor != top) {
        fs::set_permissions(between, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

async fn one(app: &str, folder: &Path, compose_file: &str) -> Result<Value, Failure> {
    let line = compose::config_pass_one(app, Path::new(compose_file)).cwd(folder);
    let output = run(&line, LOCAL).await?;
    parse(compose_file, understood(compose_file, output)?)
}

async fn two(app: &str, folder: &Path, definition: &Value, vars: &BTreeMap<String, String>) -> Result<Value, Failure> {
    let between =
        serde_json::to_vec(definition).map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
    write_new(&folder.join(BETWEEN), &between, 0o600).map_err(|error| disk(BETWEEN, &error))?;
    let mut line = compose::config_pass_two(app, Path::new(BETWEEN)).cwd(folder);
    line.env.extend(vars.clone());
    let line = line.env(RELEASE_VARIABLE, PLACEHOLDER);
    let output = run(&line, REGISTRY).await?;
    let unset: Vec<String> = unset_variables(&output.stderr).into_iter().map(|unset| unset.name).collect();
    if !unset.is_empty() {
        let names = unset.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(FailureKind::Input, format!("the compose file uses {names}, which is not set")).hint(
            format!(
                "name it in `release.vars` and give it with --set {}=...; a `$` that is meant as such is written `$$`",
                unset[0]
            ),
        ));
    }
    parse("the compose file", registry_words(understood("the compose file", output))?)
}

fn understood(what: &str, output: Output) -> Result<Output, Failure> {
    if output.code == 0 {
        return Ok(output);
    }
    let lines = last_lines(&output.stderr, 12);
    let last = lines.last().cloned().unwrap_or_else(|| format!("exit code {}", output.code));
    Err(Failure::new(FailureKind::Input, format!("Compose does not accept {what}: {last}")).output(lines))
}

/// A registry's own words pass through, with what helps against them.
fn registry_words(result: Result<Output, Failure>) -> Result<Output, Failure> {
    result.map_err(|failure| match super::stage::registry_hint(&failure.output.join("\n")) {
        // Nothing is wrong with what was written: the registry says no, or nothing.
        Some(hint) => Failure { kind: FailureKind::Command, ..failure.hint(hint) },
        None => failure,
    })
}

fn parse(what: &str, output: Output) -> Result<Value, Failure> {
    serde_json::from_slice(&output.stdout).map_err(|error| {
        Failure::new(FailureKind::Internal, format!("Compose's answer about {what} is no JSON: {error}"))
    })
}

/// Variables that every command gets from the server it runs on would make another release of it on each.
fn of_this_server(definition: &Value, vars: &BTreeMap<String, String>) -> Result<(), Failure> {
    let text = definition.to_string().replace("$$", "");
    let used = |name: &&&str| {
        text.match_indices('$').any(|(at, _)| {
            let after = text[at + 1..].trim_start_matches('{');
            after
                .strip_prefix(**name)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
        })
    };
    match FROM_THE_SERVER.iter().filter(|name| !vars.contains_key(**name)).find(used) {
        None => Ok(()),
        Some(name) => {
            Err(Failure::new(FailureKind::Input, format!("the compose file uses `{name}`, which is each server's own"))
                .hint("give it a name of its own in `release.vars`; a `$` that is meant as such is written `$$`"))
        }
    }
}

fn with_env_files(definition: &Value) -> BTreeSet<String> {
    let services = definition.get("services").and_then(Value::as_object).into_iter().flatten();
    services.filter(|(_, service)| service.get("env_file").is_some()).map(|(name, _)| name.clone()).collect()
}

/// Never assumed, always looked: no line of an env file may have become part of the definition. What `own`, the
/// definition as it was written, says itself is nobody's secret.
fn secrets_stayed_out(own: &Value, definition: &Value, files: &[Blob]) -> Result<(), Failure> {
    for blob in files.iter().filter(|blob| blob.secret) {
        let bytes = blob.decode()?;
        let text = String::from_utf8_lossy(&bytes);
        let pairs = text.lines().filter_map(|line| line.trim().trim_start_matches("export ").split_once('='));
        for (name, value) in pairs {
            let value = value.trim().trim_matches(['\'', '"']);
            let at = |from: &Value, service: &str| {
                from.get("services")?.get(service)?.get("environment")?.get(name.trim()).cloned()
            };
            let leaks = |service: &str| {
                let seen = at(definition, service).filter(|_| at(own, service).is_none());
                seen.as_ref()
                    .and_then(Value::as_str)
                    .is_some_and(|seen| !value.is_empty() && seen.replace("$$", "$") == value)
            };
            let services = definition.get("services").and_then(Value::as_object).into_iter().flatten();
            if let Some((service, _)) = services.into_iter().find(|(service, _)| leaks(service)) {
                return Err(Failure::new(
                    FailureKind::Input,
                    format!("{service}: `{}` of {} stands in the definition itself, where it is not secret", name.trim(), blob.name),
                )
                .hint("leave it to `env_file` alone; should this Compose read env files into the definition, Compose 2.40.3 does not"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_that_got_into_the_definition_is_a_refusal_that_does_not_print_it() {
        let files = [Blob::bytes(".env", b"# comment\nA='s3cret $x'\nB=\n", true)];
        let fine = json!({"services": {"api": {"environment": {"A": "other", "B": ""}, "env_file": [".env"]}}});
        assert_eq!(secrets_stayed_out(&json!({}), &fine, &files), Ok(()));
        let leaked = json!({"services": {"api": {"environment": {"A": "s3cret $$x"}}}});
        let failure = secrets_stayed_out(&fine_before(&leaked), &leaked, &files).expect_err("leaked");
        assert!(failure.message.contains("`A` of .env") && !failure.message.contains("s3cret"), "{failure}");
    }

    fn fine_before(definition: &Value) -> Value {
        let mut before = definition.clone();
        before["services"]["api"]["environment"] = json!({});
        before
    }

    #[test]
    fn what_the_definition_says_itself_may_stand_in_an_env_file_too() {
        let files = [Blob::bytes(".env", b"PORT=8080\n", true)];
        let own = json!({"services": {"api": {"environment": {"PORT": "8080"}}}});
        assert_eq!(secrets_stayed_out(&own, &own, &files), Ok(()));
        assert!(secrets_stayed_out(&fine_before(&own), &own, &files).is_err());
    }

    #[test]
    fn what_each_server_has_for_itself_is_no_part_of_a_release() {
        let with = |value: &str| json!({"services": {"api": {"environment": {"A": value}}}});
        let none = BTreeMap::new();
        for fine in ["$HOMEWARD", "${HOME_PAGE:-x}", "$$HOME", "HOME", "~"] {
            assert_eq!(of_this_server(&with(fine), &none), Ok(()), "{fine}");
        }
        for refused in ["$HOME", "${HOME}", "x ${PATH:-y}", "$USER/x"] {
            assert!(of_this_server(&with(refused), &none).is_err(), "{refused}");
        }
        assert_eq!(of_this_server(&with("$USER"), &[("USER".to_owned(), "x".to_owned())].into()), Ok(()));
    }

    #[test]
    fn a_file_never_lands_outside_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["../up", "/etc/x", "", "a/../../b", MANIFEST] {
            let failure = unpack(folder.path(), &[Blob::text(name, "x")]).expect_err(name);
            assert_eq!(failure.kind, FailureKind::Input, "{name}");
        }
        unpack(folder.path(), &[Blob::text("certs/a.pem", "x")]).expect("below it");
    }
}
