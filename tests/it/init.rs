//! `handover init` as a new user meets it: somebody's compose file, no deploy.toml, no terminal.

use handover::lab::balancer::{Standalone, StandaloneSpec, standalone};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../compose.yaml");
/// One service with a health check by a URL, a database, a job that ends.
const SHOP: &str = r#"
name: shop
services:
  web:
    image: shop/web:${TAG:?}
    restart: unless-stopped
    stop_grace_period: 25s
    ports: ["80:3000"]
    environment: {RELEASE: "${HANDOVER_RELEASE}"}
    healthcheck: {test: ["CMD", "curl", "-f", "http://localhost:3000/up"], interval: 5s}
    volumes: ["./conf:/conf:ro"]
  db:
    image: postgres:16
    restart: unless-stopped
    healthcheck: {test: ["CMD-SHELL", "pg_isready -U shop"]}
  migrate:
    image: shop/web:${TAG:?}
    command: [migrate]
"#;
/// Nothing but a worker.
const WORKER: &str = "services:\n  worker:\n    image: w:1\n    restart: unless-stopped\n";

fn folder(compose: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
    write("compose.yaml", compose);
    write("gateway.toml", "");
    write(".env.production", "A=1\n");
    std::fs::create_dir(dir.path().join("conf")).expect("made");
    write("conf/app.conf", "");
    write("ssh", "Host web-a\n  HostName 10.0.0.1\nHost web-b\n  HostName 10.0.0.2\n\nHost *\n  User deploy\n");
    dir
}

fn handover(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HANDOVER_SSH_CONFIG", "ssh")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("NO_PROXY", "*")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output();
    output.expect("it runs")
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn written(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("deploy.toml")).expect("it was written")
}

/// Every key stands below a sentence, the first time.
#[track_caller]
fn every_line_is_explained(text: &str) {
    let mut seen = std::collections::BTreeSet::new();
    let (mut table, mut before) = (String::new(), "");
    for line in text.lines() {
        if line.starts_with('[') {
            table = line.to_owned();
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            let first = seen.insert(format!("{table} {key}"));
            assert!(!first || before.starts_with("# "), "{table} {key} is not explained:\n{text}");
        }
        before = line;
    }
}

#[test]
fn somebodys_compose_file_becomes_a_checked_file_and_a_plan_without_a_question() {
    let alb: &[&str] =
        &["--balancer", "alb", "--group", "web", "--server", "web-1=deploy@web-1,i-1", "--server", "web-2,i-2"];
    let deregister: &[&str] =
        &["--balancer", "alb", "--group", "web", "--drain", "deregister", "--server", "a,i-1", "--server", "b,i-2"];
    let haproxy: &[&str] =
        &["--node", "/run/no-such.sock", "--group", "be_web", "--server", "web-a,s1", "--server", "web-b,s2"];
    let none: &[&str] = &["--balancer", "none", "--server", "w1", "--server", "w2=root@10.1.1.1"];
    let mut tried = 0;
    for compose in [EXAMPLE, SHOP, WORKER] {
        for flags in [alb, deregister, haproxy, none] {
            let dir = folder(compose);
            let output = handover(dir.path(), &[&["init"], flags].concat(), &[]);
            let text = shown(&output);
            assert_eq!(output.status.code(), Some(0), "{flags:?}\n{text}\n{}", written(dir.path()));
            assert!(text.contains("deploy.toml is written; this is what `handover check` says of it"), "{text}");
            every_line_is_explained(&written(dir.path()));
            let plan = handover(dir.path(), &["plan", "--offline"], &[]);
            assert_eq!(plan.status.code(), Some(0), "{}\n{}", shown(&plan), written(dir.path()));
            tried += 1;
        }
    }
    assert_eq!(tried, 12);
}

#[test]
fn what_the_compose_file_says_is_taken_over() {
    let dir = folder(SHOP);
    let output = handover(
        dir.path(),
        &["init", "--balancer", "alb", "--group", "web", "--server", "a,i-1", "--server", "b,i-2"],
        &[],
    );
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let text = written(dir.path());
    for line in [
        "app = \"shop\"",
        "files = [\"conf/app.conf\"]",
        "vars = [\"TAG\"]",
        "port = 80",
        "health = { path = \"/up\", interval = \"30s\", timeout = \"5s\", unhealthy = 2, healthy = 5 }",
        "real = \"http://127.0.0.1:80/\"",
        "serve = \"1m\"",
        "verify = { exec = [\"sh\", \"-c\", \"pg_isready -U shop\"] }",
        "# Yours to say; compose.yaml gives it 25s.",
        "# migrate ends by itself (nothing restarts it, and it has no port): a deploy waits for its end, and it needs no [[service]].",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_file_that_is_there_is_never_written_over() {
    let dir = folder(SHOP);
    std::fs::write(dir.path().join("deploy.toml"), "mine").expect("written");
    let output = handover(dir.path(), &["init", "--balancer", "none", "--server", "a"], &[]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(shown(&output).contains("deploy.toml is there already, and stays as it is"), "{}", shown(&output));
    assert_eq!(written(dir.path()), "mine");
}

#[test]
fn what_is_not_known_is_named_with_the_option_that_says_it_and_nothing_is_written() {
    let rows: [(&[&str], &str, &str); 6] = [
        (&["--server", "a"], "who sends the traffic is not known", "--balancer"),
        (&["--balancer", "alb", "--server", "a"], "what the balancer calls the group is not known", "--group NAME"),
        (&["--balancer", "none"], "no server is known", "web-a, web-b"),
        (&["--balancer", "none", "--server", "a b"], "what was said makes no deploy.toml", "say it otherwise"),
        (&["--balancer", "none", "--server", "a", "--compose", "no.yaml"], "no.yaml", "compose file"),
        (
            &["--balancer", "none", "--server", "a", "--app", "No Way"],
            "what was said makes no deploy.toml",
            "Compose project",
        ),
    ];
    for (flags, message, hint) in rows {
        let dir = folder(WORKER);
        let output = handover(dir.path(), &[&["init"], flags].concat(), &[]);
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(text.contains(message) && text.contains(hint), "{flags:?}: {text}");
        assert!(!dir.path().join("deploy.toml").exists());
    }
    let dir = tempfile::tempdir().expect("a folder");
    let output = handover(dir.path(), &["init"], &[]);
    assert!(shown(&output).contains("there is no compose file here"), "{}", shown(&output));
}

async fn balancer() -> Standalone {
    let spec = serde_json::json!({"groups": [
        {"name": "shop-web", "port": 80, "path": "/up", "interval": 10, "timeout": 3, "unhealthy": 3, "healthy": 2,
         "deregistration_delay": 20, "cross_zone": true,
         "targets": [{"id": "10.0.0.1", "address": "127.0.0.1:9", "zone": "a"}, {"id": "10.0.0.2", "address": "127.0.0.1:9", "zone": "b"},
                     {"id": "10.0.0.3", "address": "127.0.0.1:9", "zone": "b"}]},
        {"name": "other", "port": 9090, "path": "/health", "interval": 30, "timeout": 5, "unhealthy": 2, "healthy": 2,
         "deregistration_delay": 30, "targets": []}]});
    let spec: StandaloneSpec = serde_json::from_value(spec).expect("a spec");
    standalone(spec).await.expect("a balancer")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_balancer_is_asked_for_its_group_its_numbers_and_its_targets_and_ssh_for_their_names() {
    let lab = balancer().await;
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    let endpoint = lab.balancer.endpoint();
    let ran = tokio::task::spawn_blocking(move || {
        let dir = folder(SHOP);
        let env = [("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x")];
        let args = ["init", "--region", "eu-central-1", "--endpoint", &endpoint, "--real", "/version"];
        let output = handover(dir.path(), &args, &env);
        (shown(&output), output.status.code(), written(dir.path()))
    });
    let (said, code, text) = ran.await.expect("it ends");
    assert_eq!(code, Some(0), "{said}\n{text}");
    every_line_is_explained(&text);
    for line in [
        "kind = \"alb\"",
        "region = \"eu-central-1\"",
        "# As the balancer itself says it is set.",
        "name = \"shop-web\"",
        "health = { path = \"/up\", interval = \"10s\", timeout = \"3s\", unhealthy = 3, healthy = 2 }",
        "deregistration_delay = \"20s\"",
        "serve = \"30s\"",
        "ssh = \"web-a\"",
        "target = \"10.0.0.1\"",
        "zone = \"b\"",
        "# The balancer knows 10.0.0.3; ~/.ssh/config does not: write what `ssh` accepts.",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("Nobody was asked") && !text.contains("\"other\""), "{text}");
}

#[test]
fn the_command_that_the_page_shows_makes_a_plan() {
    let page = include_str!("../../docs/init.md");
    let line = page.split("```\n").nth(1).and_then(|block| block.lines().next()).expect("a command");
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let dir = folder(EXAMPLE);
    assert_eq!(handover(dir.path(), &words, &[]).status.code(), Some(0));
    assert_eq!(handover(dir.path(), &["plan", "--offline"], &[]).status.code(), Some(0));
}
