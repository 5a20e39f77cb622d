//! Asks the Compose of this machine, where there is one, what a compose file says. Nothing is published, no engine is asked, and it
//! may fail: the file as read is the answer then.
//!
//! Why: anchors, `extends`, `include` and profiles are best followed by the tool that will run the file.

use super::args::Global;
use crate::config::{ComposeAnswer, ComposeFiles, ComposeNumbers, LintFinding, Loaded, WHOLE};
use crate::server::compose::{config_asked, version_asked};
use crate::server::run::{last_lines, run};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// Merging is local work; who checks a file in a pipeline does not wait longer.
const WITHIN: Duration = Duration::from_secs(10);

/// Where Compose v2 is looked for, in this order: the engine's plugin, then the same by itself.
pub const TOOLS: [&[&str]; 2] = [&["docker", "compose"], &["docker-compose"]];

/// What Compose says of the file `file` in `folder`; `None` where no Compose v2 answers.
///
/// Nothing is interpolated, so neither variables nor env files need to be there.
pub async fn ask(folder: &Path, app: &str, file: &str, tools: &[&[&str]]) -> Option<ComposeAnswer> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    for tool in tools.iter().filter(|tool| !tool.first().is_some_and(|name| !name.contains('/') && is_script(name))) {
        let line = config_asked(tool, app, Path::new(file)).cwd(folder);
        let asked = version_asked(tool);
        // At the same time: each costs as much as the other.
        let (version, config) = tokio::join!(run(&asked, WITHIN), run(&line, WITHIN));
        let Some(version) = version.ok().filter(|output| output.code == 0).and_then(|output| second(&output.text()))
        else {
            continue;
        };
        let definition = match config {
            Ok(output) if output.code == 0 => Ok(output.text()),
            Ok(output) => Err(last_lines(&output.stderr, 3).join(" ")),
            // Too slow, or gone between the two: no answer at all.
            Err(_) => continue,
        };
        return Some(ComposeAnswer { version, definition });
    }
    None
}

/// The first Compose is a Python script that takes a second to say which version it is; the second is a binary.
fn is_script(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file());
    let mut start = [0; 2];
    let read = found.and_then(|path| std::fs::File::open(path).ok()).map(|mut file| file.read_exact(&mut start));
    read.is_some_and(|read| read.is_ok()) && start == *b"#!"
}

/// What was learnt of the compose file.
pub(super) struct Read {
    /// The numbers of its services.
    pub(super) numbers: ComposeNumbers,
    /// The hazards of its text.
    pub(super) lint: Vec<LintFinding>,
}

/// Reads the compose file beside deploy.toml. Compose, where there is one, is asked only what the file as read leaves open: that
/// costs more than all the rest, and what was read is what Compose says (`tests/it/compose.rs` compares). Variables that are not
/// given are no fault here.
pub(super) async fn read(global: &Global, loaded: &Loaded) -> Read {
    let fleet = &loaded.fleet;
    let set = global.set.iter().filter_map(|pair| pair.split_once('='));
    let mut vars: BTreeMap<String, String> =
        fleet.release.vars.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect();
    vars.extend(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let files = ComposeFiles::load(loaded);
    let mut numbers = files.numbers(fleet, &vars, None);
    if numbers.is_whole() && files.is_familiar() {
        WHOLE.clone_into(&mut numbers.by);
    } else if let Some(answer) = ask(&loaded.dir, &fleet.app, &fleet.release.compose, &TOOLS).await {
        numbers = files.numbers(fleet, &vars, Some(&answer));
    }
    Read { numbers, lint: files.lint(fleet, &vars) }
}

/// The version, if it is at least 2: the first Compose resolves by other rules.
fn second(text: &str) -> Option<String> {
    let version = text.trim().trim_start_matches('v');
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (major >= 2).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_second_compose_is_believed() {
        assert_eq!(second("2.40.3\n").as_deref(), Some("2.40.3"));
        assert_eq!(second("v2.1.0").as_deref(), Some("2.1.0"));
        for other in ["1.29.2", "", "docker-compose version 1.29.2, build unknown", "unknown"] {
            assert_eq!(second(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn no_compose_is_no_answer_and_a_refusal_is_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let none: &[&[&str]] = &[&["/nonexistent/compose"], &["false"]];
        assert_eq!(ask(folder.path(), "a", "c.yaml", none).await, None);
        let tool = folder.path().join("compose");
        let script = "#!/bin/sh\ncase $1 in version) echo 2.99.0;; *) echo 'no such file' >&2; exit 1;; esac\n";
        crate::server::layout::write_new(&tool, script.as_bytes(), 0o755).expect("written");
        let answer = ask(folder.path(), "a", "c.yaml", &[&["sh", &tool.to_string_lossy()]]).await;
        assert_eq!(answer, Some(ComposeAnswer { version: "2.99.0".into(), definition: Err("no such file".into()) }));
    }
}
