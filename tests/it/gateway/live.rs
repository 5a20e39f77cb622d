//! A gateway that is changed, drained, replaced and stopped while it runs.

use super::world::{Backend, Gateway, address, one_host, pid, read_all, read_until, until};
use rustix::process::Signal;
use std::io::Write;
use std::process::Command;

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn another_configuration_is_used_without_losing_who_waits() {
    let (old, mut new) = (Backend::new(), Backend::new());
    let gateway = Gateway::start(&one_host(old.at, ""));
    let mut waits = gateway.connect();
    waits.write_all(b"GET /waits HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").expect("sent");
    until("it waits", || gateway.held() == 1);
    gateway.write(
        "",
        &(one_host(new.at, "")
            + "[[gateway.host]]\nname = \"b.test\"\nbackend = \"http://127.0.0.1:9\"\nhold = \"0s\"\n"),
    );
    gateway.signal(Signal::HUP);
    until("it is reloaded", || gateway.metric("reloads_total{result=\"taken\"}") == 1.0);
    assert_eq!(status(&gateway.get("b.test", "/")), "503");
    assert_eq!(gateway.held(), 1);
    // The backend of the new configuration is whom it waits for now.
    new.start();
    assert_eq!(status(&read_all(&mut waits)), "200");
    assert_eq!(new.lines(), ["GET /waits HTTP/1.1"]);
}

#[test]
fn a_configuration_that_is_wrong_changes_nothing_and_says_why() {
    let backend = Backend::up();
    let gateway = Gateway::start_with("watch = \"100ms\"", &one_host(backend.at, ""));
    gateway.write("watch = \"100ms\"\nnonsense = 1\nheld = \"x\"", &one_host(backend.at, "hold = 5"));
    until("it is refused", || gateway.metric("reloads_total{result=\"refused\"}") == 1.0);
    let said = gateway.said();
    for line in ["unknown key `nonsense`", "`gateway.held` must be", "`gateway.host.hold` must be", "gateway.toml:5:1"]
    {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert_eq!(status(&gateway.get("a.test", "/")), "200");
    let elsewhere = std::fs::read_to_string(gateway.dir.path().join("gateway.toml"))
        .expect("read")
        .replace(&gateway.at.to_string(), &address().to_string());
    std::fs::write(
        gateway.dir.path().join("gateway.toml"),
        elsewhere.replace("nonsense = 1\nheld = \"x\"\n", "").replace("hold = 5", ""),
    )
    .expect("written");
    until("that is refused too", || gateway.said().contains("where it listens cannot change"));
    assert_eq!(status(&gateway.get("a.test", "/")), "200");
}

#[test]
fn a_gateway_that_cannot_begin_says_everything_that_is_wrong_and_binds_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "[gateway]\nlisten = \"localhost:1\"\ncertificate = [{ cert = \"/nowhere\" }]\n[[gateway.host]]\nname = \"a:80\"\nbackend = \"http://b/x\"\nallow = [\"10.0.0.1/8\"]\n[[gateway.host]]\nname = \"A.\"\nbackend = \"http://b\"\nprotocol = \"http3\"\n";
    std::fs::write(dir.path().join("g.toml"), text).expect("written");
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_handover"))
            .arg("gateway")
            .args(args)
            .current_dir(dir.path())
            .output()
            .expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["-c", "g.toml", "--check"]);
    assert_eq!(code, Some(2), "{said}");
    for line in [
        "g.toml:2:10",
        "`gateway.certificate.key` is missing",
        "g.toml:5:8",
        "it has a port",
        "it has a path",
        "bits beyond its first 8",
        "`gateway.host.protocol` must be",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml");
    assert_eq!(run(&["-c", example, "--check"]).0, Some(0), "{}", run(&["-c", example, "--check"]).1);
    std::fs::write(dir.path().join("g.toml"), "[gatway]\n").expect("written");
    assert!(run(&["-c", "g.toml", "--check"]).1.contains("did you mean `gateway`?"));
    let files = "[gateway]\nlisten_tls = \"127.0.0.1:1\"\n[[gateway.certificate]]\ncert = \"/nowhere/c\"\nkey = \"/nowhere/k\"\n[[gateway.host]]\nname = \"a\"\nbackend = \"https://b\"\nca = \"/nowhere/ca\"\nwaiting_page = \"/nowhere/p\"\n";
    std::fs::write(dir.path().join("g.toml"), files).expect("written");
    let (code, said) = run(&["-c", "g.toml"]);
    assert_eq!(code, Some(2), "{said}");
    for line in ["/nowhere/c: ", "/nowhere/ca: ", "/nowhere/p: "] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn health_turns_to_503_by_file_and_by_signal_while_everything_is_served() {
    let backend = Backend::up();
    let health = "[[gateway.health]]\npath = \"/health\"\n[[gateway.health]]\npath = \"/api/health\"\ndrain_file = \"DIR/api\"\n";
    let gateway = Gateway::start_with("drain_file = \"DIR/drain\"", &(one_host(backend.at, "") + health));
    let asked = |path: &str, wanted: &str| {
        until(&format!("{path} {wanted}"), || status(&gateway.get("10.0.0.1", path)) == wanted);
    };
    asked("/health", "200");
    asked("/api/health", "200");
    std::fs::write(gateway.dir.path().join("api"), "").expect("written");
    asked("/api/health", "503");
    assert_eq!(status(&gateway.get("10.0.0.1", "/health")), "200", "the other check is not meant");
    std::fs::write(gateway.dir.path().join("drain"), "").expect("written");
    asked("/health", "503");
    assert_eq!(status(&gateway.get("a.test", "/")), "200");
    assert_eq!(gateway.metric("draining "), 1.0);
    std::fs::remove_file(gateway.dir.path().join("drain")).expect("removed");
    asked("/health", "200");
    gateway.signal(Signal::USR1);
    asked("/health", "503");
    gateway.signal(Signal::USR2);
    asked("/health", "200");
    // A health check is asked with GET or HEAD; anything else is a request like others.
    assert_eq!(
        status(&gateway.ask("POST /health HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")),
        "200"
    );
    assert_eq!(backend.lines().last().map(String::as_str), Some("POST /health HTTP/1.1"));
}

#[test]
fn another_process_takes_over_and_nothing_that_waits_or_runs_is_lost() {
    let mut backend = Backend::new();
    let control = "control = \"DIR/control\"";
    let mut gateway = Gateway::start_with(control, &one_host(backend.at, ""));
    let mut waits = gateway.connect();
    waits.write_all(b"GET /waits HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").expect("sent");
    let mut idle = gateway.connect();
    idle.write_all(b"GET /early HTTP/1.1\r\nhost: nobody\r\n\r\n").expect("sent");
    read_until(&mut idle, "here.\n");
    until("it waits", || gateway.held() == 1);
    let mut old = std::mem::replace(&mut gateway.child, Command::new("true").spawn().expect("it runs"));
    drop(gateway.child.wait());
    gateway.spawn(&["--take-over"]);
    // The new one answers, while the old one still holds.
    until("the numbers are the new one's", || gateway.held() == 0);
    let mut second = gateway.connect();
    second.write_all(b"GET /second HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").expect("sent");
    until("the new one holds", || gateway.held() == 1);
    assert!(old.try_wait().expect("asked").is_none());
    backend.start();
    assert_eq!(status(&read_all(&mut waits)), "200");
    assert_eq!(status(&read_all(&mut second)), "200");
    // An idle connection of the old one is answered once more, and told that it ends.
    idle.write_all(b"GET /late HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    let late = read_all(&mut idle);
    assert!(late.starts_with("HTTP/1.1 200 ") && late.contains("connection: close"), "{late}");
    until("the old one ended", || old.try_wait().expect("asked").is_some());
    assert_eq!(old.wait().expect("ended").code(), Some(0));
    let mut lines = backend.lines();
    lines.sort();
    assert_eq!(lines, ["GET /late HTTP/1.1", "GET /second HTTP/1.1", "GET /waits HTTP/1.1"]);
}

#[test]
fn a_stop_finishes_what_runs_and_says_what_it_had_to_cut() {
    let backend = Backend::new();
    let mut gateway = Gateway::start_with("shutdown = \"300ms\"", &one_host(backend.at, ""));
    let mut waits = gateway.connect();
    waits.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").expect("sent");
    until("it waits", || gateway.held() == 1);
    rustix::process::kill_process(pid(&gateway.child), Signal::TERM).expect("it runs");
    assert_eq!(gateway.child.wait().expect("ended").code(), Some(7));
    until("it says so", || gateway.said().contains("1 requests and tunnels were cut short"));
}

#[test]
fn without_a_take_over_two_cannot_listen_at_one_place() {
    let backend = Backend::up();
    let gateway = Gateway::start(&one_host(backend.at, ""));
    let output = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(["gateway", "-c", "gateway.toml"])
        .current_dir(gateway.dir.path())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--take-over"));
}
