//! `[release]` and `[lock]`: what lies beside what, here and on the servers.

use super::{Facts, doubles};
use crate::config::problem::Problem;
use crate::config::view::Said;

pub(super) fn check(facts: &Facts<'_>, problems: &mut Vec<Problem>) {
    let release = facts.root.sub("release");
    let mut files: Vec<Said<'_>> = release.said("compose").into_iter().collect();
    files.extend(release.said_all("files"));
    files.extend(release.said_all("env"));
    doubles(files.iter().copied(), "files of one name:", problems);
    let compose = release.text("compose").filter(|_| !release.has("compose"));
    for said in &files {
        if compose.as_deref() == Some(said.text) {
            problems.push(
                Problem::new(said.place, format!("`{}` is published as `release.compose` already", said.text))
                    .label("again here"),
            );
        }
        let folder = |other: &&Said<'_>| other.text.strip_prefix(said.text).is_some_and(|rest| rest.starts_with('/'));
        if let Some(other) = files.iter().find(folder) {
            problems.push(
                Problem::new(said.place, format!("`{}` cannot be a file and a folder", said.text))
                    .label("a file here")
                    .second(other.place, "a folder here"),
            );
        }
    }
    let vars = release.said_all("vars");
    doubles(vars.iter().copied(), "variables", problems);
    for said in vars.iter().filter(|said| said.text == "HANDOVER_RELEASE") {
        problems.push(
            Problem::new(said.place, "`HANDOVER_RELEASE` is given by handover itself")
                .label("always set")
                .hint("take it out; the compose file may use it as it is"),
        );
    }
    if let (Some(lock), Some(file)) = (facts.root.sub("lock").said("path"), facts.drain.said("file"))
        && lock.text == file.text
    {
        problems.push(
            Problem::new(file.place, "`drain.file` is the lock's file")
                .label("comes and goes")
                .second(lock.place, "is never removed"),
        );
    }
}
