//! The command line as a user meets it: the binary, a folder, an empty environment.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../deploy.toml");

/// A folder with deploy.toml and what lies beside it.
fn folder(deploy: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["compose.yaml", "gateway.toml"] {
        std::fs::copy(root.join(name), dir.path().join(name)).expect("copied");
    }
    std::fs::write(dir.path().join(".env.production"), "SECRET=1\n").expect("written");
    std::fs::write(dir.path().join("deploy.toml"), deploy).expect("written");
    dir
}

fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}-- stderr --\n{err}-- exit {}", output.status.code().unwrap_or(-1))
}

fn summary(output: &Output) -> serde_json::Value {
    let out = String::from_utf8_lossy(&output.stdout);
    let last = out.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("no summary ({error}): {}", text(output)))
}

#[test]
fn a_broken_file_has_every_problem_told_at_once_with_its_place() {
    let broken = EXAMPLE
        .replace("batch       = 1 ", "batch       = 0 ")
        .replace("interval = \"5s\"", "interval = 5")
        .replace("margin =", "margn =");
    let dir = folder(&broken);
    let output = run(dir.path(), &["plan", "--offline"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for word in ["deploy.toml:", "`margn`", "margin", "batch", "interval"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    let json = summary(&run(dir.path(), &["plan", "--offline", "--output", "json"]));
    assert_eq!(
        (&json["exit"], &json["event"], &json["error"]["kind"]),
        (&2.into(), &"summary".into(), &"usage".into())
    );
}

#[test]
fn every_wrong_use_ends_with_2_and_says_the_way_out() {
    let dir = folder(EXAMPLE);
    let rows: [(&[&str], &str); 13] = [
        (&["deploy"], "not given: TAG"),
        (&["deploy", "--set", "TAG"], "VAR=VALUE"),
        (&["deploy", "--set", "TAGS=1"], "release.vars does not name it"),
        (&["plan", "--offline", "--servers", "db-*"], "there are web-1, web-2, web-3"),
        (&["plan", "--offline", "-c", "nothing.toml"], "nothing.toml"),
        (&["plan", "--offline", "-d", "staging"], "deploy.staging.toml"),
        (&["rehearse", "--speed", "0"], "--speed 0"),
        (&["rehearse", "--fail", "web-9:api"], "no such server or service"),
        (&["drain", "web-9"], "there are web-1, web-2, web-3"),
        (&["undrain", "web-1", "--servers", "web-*"], "--servers"),
        (&["drain", "web-1", "--until", "soon"], "2026-12-01T08:00:00Z"),
        (&["drain", "web-1", "--until", "2001-01-01T00:00:00Z"], "is over already"),
        (&["deplyo"], "unrecognized subcommand"),
    ];
    for (args, word) in rows {
        let output = run(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(word), "{args:?}: {}", text(&output));
        let json = summary(&run(dir.path(), &[args, &["--output", "json"]].concat()));
        assert_eq!(json["exit"], 2, "{args:?}");
        assert!(json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{args:?}: {json}");
    }
}

#[test]
fn a_file_that_is_published_but_not_there_is_told_before_anything_is_connected_to() {
    let dir = folder(EXAMPLE);
    std::fs::remove_file(dir.path().join("gateway.toml")).expect("removed");
    let output = run(dir.path(), &["deploy", "--set", "TAG=v1"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("gateway.toml"), "{}", text(&output));
}

#[test]
fn a_plan_that_is_refused_ends_with_4_and_the_reasons() {
    let one = EXAMPLE.split("[[server]]").take(2).collect::<Vec<_>>().join("[[server]]");
    let tail = EXAMPLE.split("[watchdog]").nth(1).expect("a watchdog");
    let dir = folder(&format!("{one}\n[watchdog]{tail}"));
    let json = summary(&run(dir.path(), &["plan", "--offline", "--output", "json"]));
    assert_eq!((&json["exit"], &json["outcome"]), (&4.into(), &"refused".into()));
    assert!(
        json["error"]["message"].as_str().is_some_and(|m| m.contains("1 healthy, 1 would leave, 1 must stay")),
        "{json}"
    );
    let output = run(dir.path(), &["deploy", "--set", "TAG=v1", "--allow-downtime"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert!(text(&output).contains("--yes"), "without a terminal a question is a refusal: {}", text(&output));
}

#[test]
fn a_plan_in_json_has_every_step_with_its_numbers() {
    let dir = folder(EXAMPLE);
    let json = summary(&run(dir.path(), &["plan", "--offline", "--output", "json"]));
    assert_eq!(
        (&json["exit"], &json["outcome"], &json["error"]),
        (&0.into(), &"planned".into(), &serde_json::Value::Null)
    );
    assert_eq!(json["servers"].as_array().map(Vec::len), Some(3));
    let out = json["servers"][0]["steps"]
        .as_array()
        .and_then(|steps| steps.iter().find(|step| step["step"] == "out"))
        .cloned();
    assert_eq!(out, Some(serde_json::json!({"step": "out", "expected_seconds": 10.0, "deadline_seconds": 150.0})));
}

#[test]
fn servers_that_cannot_be_reached_are_a_refusal_within_30_seconds() {
    let mut text_of = EXAMPLE.replace("[[balancer.group]]", "endpoint = \"http://127.0.0.1:9\"\n\n[[balancer.group]]");
    for n in 1..=3 {
        text_of = text_of.replace(&format!("\"deploy@web-{n}\""), &format!("\"deploy@127.0.0.{n}\""));
    }
    let dir = folder(&text_of);
    std::fs::write(dir.path().join("ssh"), "Host *\n  Port 9\n").expect("written");
    let began = std::time::Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(["deploy", "--set", "TAG=v1", "--output", "json"])
        .current_dir(dir.path())
        .envs([("HANDOVER_SSH_CONFIG", "ssh"), ("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x")])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(began.elapsed().as_secs() < 45, "{:?}", began.elapsed());
    let json = summary(&output);
    assert_eq!((&json["exit"], &json["outcome"]), (&4.into(), &"refused".into()), "{json}");
    let message = json["error"]["message"].as_str().unwrap_or_default();
    for word in ["web-1", "web-2", "web-3", "mythex-api"] {
        assert!(message.contains(word), "{word} is missing: {message}");
    }
}

#[test]
fn the_storys_numbers_are_sixty_seconds_against_five_and_fitting_ones_hold() {
    let with = |numbers: &str, serve: &str| {
        let text = EXAMPLE.replace("interval = \"5s\", timeout = \"2s\", unhealthy = 2", numbers);
        folder(&text.replace("serve  = \"15s\"", serve))
    };
    let story = with("interval = \"30s\", timeout = \"2s\", unhealthy = 2", "serve = \"5s\"");
    let json = summary(&run(story.path(), &["check", "--output", "json"]));
    let row = |json: &serde_json::Value| {
        let rows = json["invariants"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["id"] == "serve-covers-out").expect("the relation is told")
    };
    let found = row(&json);
    assert_eq!((&json["exit"], &found["holds"]), (&4.into(), &false.into()), "{json}");
    assert_eq!((&found["left_seconds"], &found["right_seconds"]), (&60.0.into(), &5.0.into()));
    assert!(json["broken"].as_u64().is_some_and(|broken| broken >= 1));
    let human = text(&run(story.path(), &["check"]));
    for word in ["60s", "5s", "-55s", "BROKEN", "docs/timing.md#serve-covers-out"] {
        assert!(human.contains(word), "{word} is missing: {human}");
    }
    for command in [&["plan", "--offline"][..], &["deploy", "--set", "TAG=v1"]] {
        let output = run(story.path(), command);
        assert_eq!(output.status.code(), Some(4), "{command:?} runs the same check first: {}", text(&output));
        assert!(text(&output).contains("serve-covers-out"), "{}", text(&output));
    }
    let fits = with("interval = \"5s\", timeout = \"2s\", unhealthy = 2", "serve = \"15s\"");
    let json = summary(&run(fits.path(), &["check", "--output", "json"]));
    assert_eq!(
        (&json["exit"], &json["broken"], &row(&json)["margin_seconds"]),
        (&0.into(), &0.into(), &5.0.into()),
        "{json}"
    );
}

#[test]
fn every_number_of_the_example_is_guarded_or_free_with_its_reason() {
    let dir = folder(EXAMPLE);
    let json = summary(&run(dir.path(), &["check", "--mutate", "--output", "json"]));
    assert_eq!((&json["exit"], &json["unguarded"]), (&0.into(), &serde_json::json!([])), "{json}");
    for row in json["mutations"].as_array().expect("a list") {
        let caught = row["caught_by"].as_array().is_some_and(|caught| !caught.is_empty());
        assert!(caught || row["free"].is_string(), "{row}");
        assert!(row["key"].is_string() && row["to"].is_string(), "{row}");
    }
}

#[test]
fn a_broken_relation_is_told_at_its_line_as_sarif_and_to_github() {
    let dir = folder(&EXAMPLE.replace("serve  = \"15s\"", "serve = \"5s\""));
    let line = EXAMPLE.lines().position(|line| line.starts_with("serve")).expect("a line") + 1;
    let output = run(dir.path(), &["check", "--format", "sarif"]);
    assert_eq!(output.status.code(), Some(4));
    let log: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&log["version"], &result["ruleId"]), (&"2.1.0".into(), &"serve-covers-out".into()), "{log}");
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], line);
    let output = run(dir.path(), &["check", "--format", "github"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with(&format!("::error file=deploy.toml,line={line},col=")), "{said}");
    assert!(said.contains("title=serve-covers-out::"), "{said}");
}

#[test]
fn the_help_names_every_command_and_no_hidden_one() {
    let dir = folder(EXAMPLE);
    let help = text(&run(dir.path(), &["--help"]));
    for command in ["plan", "deploy", "check", "verify", "lock", "rehearse", "measure", "schema"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is missing: {help}");
    }
    assert!(!help.contains("lab-service") && !help.contains("lab-balancer"), "{help}");
}

#[test]
fn the_schema_is_the_one_in_the_docs() {
    let dir = folder(EXAMPLE);
    let output = run(dir.path(), &["schema"]);
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let docs = include_str!("../../docs/deploy.schema.json");
    assert_eq!(printed, serde_json::from_str::<serde_json::Value>(docs).expect("JSON"));
}
