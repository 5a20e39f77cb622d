//! What a team says of its own servers and destinations: tags, and a name that has to be said.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../deploy.toml");

fn folder() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["compose.yaml", "gateway.toml"] {
        std::fs::copy(root.join(name), dir.path().join(name)).expect("copied");
    }
    std::fs::write(dir.path().join(".env.production"), "A=1\n").expect("written");
    let text = EXAMPLE
        .replace("deploy@web-", "nobody@127.0.0.1.invalid-")
        .replace("zone   = \"eu-central-1a\"", "zone   = \"eu-central-1a\"\ntags   = [\"canary\", \"blue\"]")
        .replace("zone   = \"eu-central-1b\"", "zone   = \"eu-central-1b\"\ntags   = [\"blue\"]");
    std::fs::write(dir.path().join("deploy.toml"), text).expect("written");
    std::fs::write(dir.path().join("deploy.production.toml"), "confirm = true\n").expect("written");
    dir
}

fn handover(dir: &Path, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .stdin(Stdio::null())
        .output();
    output.expect("it runs")
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The servers of a plan made offline.
fn planned(dir: &Path, servers: &str) -> Vec<String> {
    let output = handover(dir, &["plan", "--offline", "--output", "json", "--servers", servers]);
    let last = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
    let plan: serde_json::Value = serde_json::from_str(&last).expect("a plan");
    let names = plan["servers"].as_array().expect("servers").iter();
    names.map(|server| server["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_tag_selects_the_servers_that_have_it() {
    let dir = folder();
    assert_eq!(planned(dir.path(), "tag:canary"), ["web-1"]);
    assert_eq!(planned(dir.path(), "tag:blue"), ["web-1", "web-2"]);
    assert_eq!(planned(dir.path(), "tag:c*"), ["web-1"]);
    assert_eq!(planned(dir.path(), "web-3"), ["web-3"]);
    let output = handover(dir.path(), &["plan", "--offline", "--servers", "tag:green"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("no server has such a tag") && text.contains("there are blue, canary"), "{text}");
}

#[test]
fn a_destination_that_wants_its_name_is_left_alone_until_it_is_said() {
    let dir = folder();
    let commands: [&[&str]; 6] = [
        &["deploy", "--set", "TAG=1"],
        &["rollback"],
        &["resume"],
        &["drain", "web-1"],
        &["undrain", "web-1"],
        &["install"],
    ];
    for args in commands {
        let production = [args, &["-d", "production", "--yes"]].concat();
        let output = handover(dir.path(), &production);
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("`production` wants to be confirmed by its name; nothing was touched"), "{text}");
        assert!(text.contains("`--confirm production` says so without a terminal"), "{text}");
    }
    let wrong = handover(dir.path(), &["undrain", "web-1", "-d", "production", "--confirm", "staging"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", shown(&wrong));
    // What was said for another destination is not said for this one.
    let wrong = handover(dir.path(), &["undrain", "web-1", "--confirm", "production"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", shown(&wrong));
    let right = handover(dir.path(), &["undrain", "web-1", "-d", "production", "--confirm", "production"]);
    let text = shown(&right);
    assert!(text.contains("cannot be reached") && !text.contains("confirm"), "{text}");
    let looks = handover(dir.path(), &["plan", "--offline", "-d", "production"]);
    assert_eq!(looks.status.code(), Some(0), "{}", shown(&looks));
}

/// A step that is run once, and a hook: either leaves a file behind if it is run.
fn add_commands(dir: &Path) {
    let more = "[[run_once]]\nname = \"migrate\"\nservice = \"api\"\nrun = [\"touch\", \"migrated\"]\n\
                [hooks]\npre_deploy = { run = [\"touch\", \"hooked\"] }\n";
    let text = std::fs::read_to_string(dir.join("deploy.toml")).expect("text");
    std::fs::write(dir.join("deploy.toml"), format!("{text}{more}")).expect("written");
}

#[test]
fn a_rehearsal_names_the_teams_commands_runs_none_and_can_let_one_fail() {
    let dir = folder();
    add_commands(dir.path());
    let output = handover(dir.path(), &["rehearse", "--speed", "5", "--fail", "migrate"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("pre_deploy | a rehearsal does not run `touch`"), "{text}");
    assert!(text.contains("web-1: run_once `migrate` ended with exit code 1; web-1 was not touched"), "{text}");
    assert!(text.contains("| a rehearsal does not run `touch migrated`"), "{text}");
    assert!(!dir.path().join("hooked").exists() && !dir.path().join("migrated").exists());
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_job_of_gitlab_can_fold_its_log_and_a_file_gets_no_codes() {
    let dir = folder();
    add_commands(dir.path());
    let output = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(["rehearse", "--speed", "5", "--fail", "migrate"])
        .current_dir(dir.path())
        .env("GITLAB_CI", "true")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let names = |word: &str| -> Vec<String> {
        let parts = text.split(word).skip(1).filter_map(|rest| rest.split(':').nth(2));
        parts.map(|name| name.split('\r').next().unwrap_or_default().to_owned()).collect()
    };
    let (began, ended) = (names("section_start"), names("section_end"));
    assert_eq!(began, ["handover_1", "handover_2"], "{text}");
    assert_eq!(began, ended);
    let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} is missing in {text}"));
    assert!(at("section_end") < at("handover_2\r\u{1b}[0Kweb-1") && at("handover_2") < at("web-1  lock"));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("section_"));
}
