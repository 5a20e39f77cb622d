//! Our reading of compose files against Compose's own: for every fixture each number is the same, or is said not to be known.
//!
//! Needs Compose v2 (`HANDOVER_COMPOSE` names the binary, `docker compose` is asked otherwise; skipped where there is none); `tests/peers/compose.sh` fetches the
//! one that the fixtures were written with.

use handover::cli::compose::{TOOLS, ask};
use handover::config::{self, ComposeAnswer, ComposeNumbers, Loaded, ServiceNumbers, Source};
use handover::fleet::model::{Known, ServiceName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/compose");
    let entries = std::fs::read_dir(root).expect("fixtures");
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    all.sort();
    all
}

/// The Compose to compare with; one that is named must be there.
fn tool() -> Option<Vec<String>> {
    let answers = |tool: &Vec<String>| {
        let answer = Command::new(&tool[0]).args(&tool[1..]).args(["version", "--short"]).output();
        answer.is_ok_and(|answer| answer.status.success() && answer.stdout.trim_ascii().starts_with(b"2."))
    };
    if let Ok(path) = std::env::var("HANDOVER_COMPOSE") {
        let named = vec![path];
        assert!(answers(&named), "HANDOVER_COMPOSE={} is no Compose v2", named[0]);
        return Some(named);
    }
    TOOLS.iter().map(|tool| tool.iter().map(|word| (*word).to_owned()).collect()).find(answers)
}

fn words(tool: &[String]) -> Vec<&str> {
    tool.iter().map(String::as_str).collect()
}

/// A fleet whose compose file lies in `dir`.
fn loaded(dir: &Path) -> Loaded {
    let text = "app = \"mythex\"\n[release]\nvars = [\"TAG\", \"GRACE\", \"SECONDS_MORE\", \"LATER\", \"EMPTY\"]\n[balancer]\nkind = \"none\"\n\
                [[service]]\nname = \"api\"\nverify = { tcp = \"127.0.0.1:1\" }\n[[server]]\nname = \"s\"\nssh = \"s\"\n";
    let mut loaded = config::from_sources(&Source::new("deploy.toml", text), None).expect("a fleet");
    dir.clone_into(&mut loaded.dir);
    loaded
}

fn vars() -> BTreeMap<String, String> {
    let vars = [("TAG", "v1"), ("GRACE", "21s"), ("SECONDS_MORE", "5"), ("EMPTY", "")];
    vars.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn numbers(dir: &Path, answer: Option<&ComposeAnswer>) -> ComposeNumbers {
    let loaded = loaded(dir);
    config::ComposeFiles::load(&loaded).numbers(&loaded.fleet, &vars(), answer)
}

/// What Compose itself makes of a file: interpolated by the variables that are given, as the second pass of publishing does it.
fn by_compose(tool: &[String], dir: &Path) -> Result<Value, String> {
    let run = |file: &Path, more: &[&str], vars: &BTreeMap<String, String>| {
        let output = Command::new(&tool[0])
            .args(&tool[1..])
            .args(["--env-file", "/dev/null", "--project-name", "mythex", "--file"])
            .arg(file)
            .args(["config", "--format", "json", "--no-path-resolution", "--no-env-resolution"])
            .args(more)
            .current_dir(dir)
            .env_clear()
            .envs(["PATH", "HOME"].iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(vars)
            .output()
            .expect("Compose runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
        } else {
            Err(said)
        }
    };
    let mut raw: Value = run(Path::new("compose.yaml"), &["--no-interpolate"], &BTreeMap::new())?;
    for service in raw["services"].as_object_mut().into_iter().flatten().map(|(_, service)| service) {
        service.as_object_mut().expect("a service").retain(|key, _| {
            ["image", "profiles", "stop_grace_period", "healthcheck", "restart"].contains(&key.as_str())
        });
        // Compose would refuse the whole file for it; what nobody gives has no number to compare.
        if ["${NOBODY}", "${NOBODY:?please}", "${LATER}", "${LATER:-5s}"]
            .map(|text| json!(text))
            .contains(&service["stop_grace_period"])
        {
            service["stop_grace_period"] = json!("999h");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let between = folder.path().join("between.json");
    std::fs::write(&between, json!({"services": raw["services"]}).to_string()).expect("written");
    run(&between, &[], &vars())
}

/// Reads what Go writes: `1h2m3.5s`, `100ms`.
fn go(text: &str) -> Duration {
    let mut nanos = 0.0_f64;
    let mut whole = 0_u128;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').expect("a unit");
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let unit: u128 = match &rest[digits..letters] {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "µs" => 1_000,
            "ns" => 1,
            other => panic!("{other}"),
        };
        match rest[..digits].split_once('.') {
            None => whole += rest[..digits].parse::<u128>().expect("digits") * unit,
            Some((before, after)) => {
                whole += before.parse::<u128>().expect("digits") * unit;
                nanos += format!("0.{after}").parse::<f64>().expect("a fraction") * unit as f64;
            }
        }
        rest = &rest[letters..];
    }
    Duration::from_nanos(u64::try_from(whole).expect("in range") + nanos.round() as u64)
}

/// Compares one number; says whether it was known.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &Known<T>, theirs: &T) -> bool {
    match ours {
        Known::Known(ours) => {
            assert_eq!(ours, theirs, "{what}");
            true
        }
        Known::Unknown(why) => {
            assert!(!why.is_empty(), "{what}");
            false
        }
    }
}

/// Compares a service; the keys that were not known.
fn compare(what: &str, ours: &ServiceNumbers, theirs: &Value) -> Vec<&'static str> {
    let check = &theirs["healthcheck"];
    let time = |value: &Value| value.as_str().map(go);
    let rows = [
        ("grace", same(what, &ours.grace, &time(&theirs["stop_grace_period"]).unwrap_or(Duration::from_secs(10)))),
        ("interval", same(what, &ours.interval, &time(&check["interval"]))),
        ("timeout", same(what, &ours.timeout, &time(&check["timeout"]))),
        ("start_period", same(what, &ours.start_period, &time(&check["start_period"]))),
        ("retries", same(what, &ours.retries, &check["retries"].as_u64())),
        ("restart", same(what, &ours.restart, &theirs["restart"].as_str().map(ToOwned::to_owned))),
    ];
    rows.into_iter().filter(|(_, known)| !known).map(|(key, _)| key).collect()
}

/// What is not known without Compose, by fixture: everything else must be.
const UNKNOWN: &[(&str, &str)] = &[
    ("resets", "override.interval override.start_period override.timeout override.retries reset.grace"),
    ("restarts", "g.retries"),
    ("variables", "later.grace later-default.grace required.grace unset.grace"),
];

#[test]
#[expect(clippy::print_stderr, reason = "a comparison that did not take place must not look like one")]
fn every_number_is_composes_or_is_said_not_to_be_known() {
    let Some(tool) = tool() else {
        eprintln!("skipped: no Compose v2 here; tests/peers/compose.sh fetches one");
        return;
    };
    let mut compared = 0;
    for dir in fixtures() {
        let name = dir.file_name().expect("a name").to_string_lossy().into_owned();
        let theirs = by_compose(&tool, &dir).unwrap_or_else(|error| panic!("{name}: {error}"));
        let theirs = theirs["services"].as_object().expect("services");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let answer = runtime.block_on(ask(&dir, "mythex", "compose.yaml", &[&words(&tool)])).expect("an answer");
        let mut unknown = BTreeSet::new();
        for (asked, ours) in [(false, numbers(&dir, None)), (true, numbers(&dir, Some(&answer)))] {
            if name == "documents" && !asked {
                assert!(
                    matches!(&ours.services, Known::Unknown(why) if why.starts_with("not resolved without Compose"))
                );
                continue;
            }
            assert_eq!(ours.by.starts_with("Compose 2."), asked, "{}", ours.by);
            let names: BTreeSet<&str> = ours.all.keys().map(ServiceName::as_str).collect();
            assert_eq!(names, theirs.keys().map(String::as_str).collect(), "{name}");
            assert!(
                ours.services.get().is_some_and(|services| services.len() == names.len()),
                "{name}: {:?}",
                ours.services
            );
            for (service, numbers) in &ours.all {
                let keys = compare(&format!("{name} {service}"), numbers, &theirs[service.as_str()]);
                compared += 6 - keys.len();
                if !asked {
                    unknown.extend(keys.into_iter().map(|key| format!("{service}.{key}")));
                } else {
                    let hidden = name == "variables" || name == "restarts";
                    assert!(keys.is_empty() || hidden, "{name} {service}: Compose knows {keys:?}");
                }
            }
        }
        let expected = UNKNOWN.iter().find(|(fixture, _)| *fixture == name).map_or("", |(_, keys)| keys);
        assert_eq!(
            unknown.iter().map(String::as_str).collect::<BTreeSet<_>>(),
            expected.split_whitespace().collect(),
            "{name}"
        );
    }
    assert!(compared > 500, "only {compared} numbers were compared");
}
