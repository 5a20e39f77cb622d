//! The floors of the crate: each knows only those below it, and each outside thing is named in one place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// From the ground up.
const FLOORS: [&[&str]; 7] = [
    &["fleet", "clock", "http"],
    &["config", "server", "event", "diag"],
    &["rollout", "gateway", "measure", "report"],
    &["adapters", "lab", "kubernetes"],
    &["cli"],
    &["lib"],
    &["main"],
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            found.push(entry);
        }
    }
}

fn files() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&root).expect("inside").display().to_string();
            (name, std::fs::read_to_string(&path).expect("text"))
        })
        .collect()
}

fn module(file: &str) -> &str {
    file.split(['/', '.']).next().expect("a first part")
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The production part of a file: what stands before its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_module_has_a_floor_and_knows_only_those_below_it() {
    let mut wrong = Vec::new();
    for (file, text) in files() {
        let own = module(&file);
        let Some(own_floor) = floor(own) else {
            wrong.push(format!("{file}: `{own}` has no floor"));
            continue;
        };
        for used in code(&text).split("crate::").skip(1) {
            let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let Some(floor) = floor(used) else { continue };
            if used != own && floor >= own_floor && own != "main" {
                let level =
                    (own == "diag" || own == "event" || own == "server" || own == "report") && floor == own_floor;
                let allowed = matches!((own, used), ("event", "diag") | ("report", "rollout") | ("lab", "adapters"));
                if !(allowed || level && own == "server" && used == "diag") {
                    wrong.push(format!("{file} uses crate::{used}"));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn of_the_server_the_others_see_only_wire_and_layout() {
    let wrong: Vec<String> = files()
        .iter()
        .filter(|(file, _)| !["server", "cli", "adapters"].contains(&module(file)))
        .flat_map(|(file, text)| {
            let text = code(text);
            let uses = text
                .split("crate::server")
                .skip(1)
                .map(|rest| rest.chars().take(12).collect::<String>())
                .collect::<Vec<_>>();
            uses.into_iter()
                .filter(|rest| !rest.starts_with("::wire") && !rest.starts_with("::layout"))
                .map(|rest| format!("{file}: server{rest}"))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_fleet_is_pure() {
    let banned = ["tokio", "std::fs", "std::process", "std::env", "SystemTime", "Instant::now"];
    let mut wrong = Vec::new();
    for (file, text) in files().iter().filter(|(file, _)| module(file) == "fleet") {
        wrong.extend(
            banned.iter().filter(|word| code(text).contains(**word)).map(|word| format!("{file} names {word}")),
        );
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn outside_things_are_named_in_one_place_only() {
    let places = [
        ("aws_sdk_elasticloadbalancingv2", "adapters/alb"),
        ("aws_config", "adapters/alb"),
        ("openssh", "adapters/ssh"),
        ("fs2", "server/flock"),
        ("indicatif", "report/"),
        ("clap", "cli/"),
        ("quick_xml", "lab/balancer"),
        ("flate2", "measure/access_log"),
        ("bollard", "gateway/sleep/docker"),
        ("kube", "gateway/cluster"),
        ("k8s_openapi", "gateway/cluster"),
        ("saphyr_parser", "config/yaml"),
    ];
    let mut wrong = Vec::new();
    for (file, text) in files() {
        for (name, place) in places {
            let used = code(&text)
                .lines()
                .any(|line| line.contains(&format!("{name}::")) || line.contains(&format!("use {name}")));
            if used && !file.starts_with(place) {
                wrong.push(format!("{file} names {name}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_file_begins_with_the_reason_why_it_exists() {
    let wrong: Vec<String> =
        files().iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(file, _)| file.clone()).collect();
    assert_eq!(wrong, Vec::<String>::new());
}
