//! The gateway's renewal, as the agent does it: the real binary, spoken to in frames, with a pretended engine in its PATH and a
//! gateway that says who it is.

use handover::fleet::model::{Fleet, ReleaseId, ServerName};
use handover::fleet::release::{DEFINITION, FileMark, Manifest, ServicePin, as_written, digest, sha256_hex};
use handover::server::frame::{self, Reader};
use handover::server::wire::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A file for each container: its state and restart policy, its number for when it was started. `answers` is who has the listeners;
/// `beside-is-broken` a new release whose gateway cannot be started.
const ENGINE: &str = r#"#!/bin/sh
cd "$(dirname "$0")/../engine"
echo "$*" >> calls
show() {
  read -r status policy at < "$1"
  [ "$status" = running ] && running=true || running=false
  printf '[{"Id":"%s","Name":"/%s","Image":"sha256:aa","RestartCount":0,"State":{"Status":"%s","Running":%s,"StartedAt":"2026-01-01T00:00:0%sZ"},"HostConfig":{"RestartPolicy":{"Name":"%s"}},"Config":{"StopTimeout":1,"Labels":{"com.docker.compose.service":"gateway","com.docker.compose.config-hash":"%s"}}}]' \
    "$1" "$1" "$status" "$running" "$at" "$policy" "$(cat hash)"
}
case "$*" in
  "container inspect"*hands-over) [ -f beside ] && show beside || { echo "No such container" >&2; exit 1; } ;;
  "container inspect"*) show own ;;
  "container rm"*hands-over) rm -f beside ;;
  "ps "*) [ -f own ] && echo own ;;
  "update --restart "*) f=own; case "$4" in *hands-over) f=beside ;; esac
     [ -f "$f" ] || exit 1; read -r status policy at < "$f"; echo "$status $3 $at" > "$f" ;;
  "stop own") read -r status policy at < own; echo "exited $policy $at" > own ;;
  "stop "*hands-over) rm -f beside ;;
  *" config --hash "*) echo "gateway wanted" ;;
  *" run "*) echo "running no 5" > beside
     [ ! -f beside-is-broken ] || exit 1; echo beside > answers; echo "exited no 1" > own ;;
  *" up "*) echo "running unless-stopped 7" > own; echo wanted > hash; echo own-anew > answers; [ ! -f beside ] || echo "exited no 5" > beside ;;
  "image inspect"*) echo '[{"Id":"sha256:aa","RepoDigests":["registry/gateway@sha256:0a"]}]' ;;
  *) exit 0 ;;
esac
"#;

struct Place {
    dir: TempDir,
    fleet: Fleet,
}

impl Place {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["bin", "engine", "app"] {
            std::fs::create_dir(dir.path().join(name)).expect("made");
        }
        let docker = dir.path().join("bin/docker");
        std::fs::write(&docker, ENGINE).expect("written");
        std::fs::set_permissions(&docker, std::fs::Permissions::from_mode(0o755)).expect("set");
        let told = says_who_it_is(dir.path().join("engine/answers")).await;
        let text = include_str!("../../examples/one-server/deploy.toml")
            .replace("/opt/shop", &dir.path().join("app").display().to_string())
            .replace("/run/shop", &dir.path().join("run").display().to_string())
            .replace("service = \"gateway\" }", &format!("service = \"gateway\", told = \"{told}\" }}"));
        let place = Self { fleet: crate::world::fleet(&text), dir };
        place.engine("own", "running unless-stopped 1");
        place.engine("hash", "old");
        place.engine("answers", "own");
        place
    }

    fn engine(&self, file: &str, text: &str) {
        std::fs::write(self.dir.path().join("engine").join(file), text).expect("written");
    }

    fn engine_says(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("engine").join(file)).unwrap_or_default().trim().to_owned()
    }

    fn calls(&self, word: &str) -> usize {
        self.engine_says("calls").lines().filter(|line| line.contains(word)).count()
    }

    async fn agent(&self) -> Agent {
        let path = format!("{}:{}", self.dir.path().join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut child = Command::new(env!("CARGO_BIN_EXE_handover"))
            .arg("agent")
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("started");
        let mut reader = Reader::new(child.stdout.take().expect("stdout"), (|| {}) as fn());
        reader.skip_banner().await.expect("the marker");
        drop(reader.next::<FromAgent>().await.expect("hello"));
        let mut agent = Agent { writer: child.stdin.take().expect("stdin"), reader, next: 0, _child: child };
        let run = Run { id: "run-1".into(), who: "ann@laptop".into(), what: "handover deploy".into() };
        let context = Context { format: FORMAT, run, server: ServerName::new("web-1"), fleet: self.fleet.clone() };
        frame::write(&mut agent.writer, &ToAgent::Hello(Box::new(context))).await.expect("sent");
        assert_eq!(agent.ask(Request::Lock { wait: Duration::from_secs(5) }).await, Ok(Reply::Locked));
        agent
    }
}

/// Answers `/hold` with whoever `answers` names.
async fn says_who_it_is(answers: std::path::PathBuf) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let told = format!("http://{}/hold", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let process = std::fs::read_to_string(&answers).unwrap_or_default();
            let body = format!(
                r#"{{"holding":false,"forwarded":0,"tunnels":0,"waiting":0,"process":"{}","hold":{{"secs":50,"nanos":0}},"file":null,"hands_over":true}}"#,
                process.trim()
            );
            let mut asked = [0; 4096];
            drop(stream.read(&mut asked).await);
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    told
}

struct Agent {
    writer: ChildStdin,
    reader: Reader<ChildStdout, fn()>,
    next: u64,
    _child: Child,
}

impl Agent {
    async fn ask(&mut self, request: Request) -> Result<Reply, Failure> {
        self.next += 1;
        frame::write(&mut self.writer, &ToAgent::Request { id: self.next, request }).await.expect("sent");
        loop {
            if let FromAgent::Reply { id, result } = self.reader.next().await.expect("an answer") {
                assert_eq!(id, self.next);
                return result;
            }
        }
    }

    async fn staged(&mut self) -> ReleaseId {
        let definition = r#"{"name":"shop","services":{"gateway":{"restart":"unless-stopped"}}}"#;
        let mark =
            |text: &str| FileMark { name: DEFINITION.into(), secret: false, sha256: sha256_hex(text.as_bytes()) };
        let id = digest(definition, &[mark(definition)]);
        let written = mark(&as_written(definition, &id));
        let pin = ServicePin {
            image: "registry/gateway@sha256:0a".into(),
            grace: Duration::from_secs(1),
            replicas: 1,
            one_shot: false,
        };
        let manifest = Manifest {
            format: 1,
            id: id.clone(),
            label: None,
            services: BTreeMap::from([("gateway".into(), pin)]),
            files: BTreeMap::from([(written.name, written.sha256)]),
        };
        let files = vec![Blob::text(DEFINITION, definition)];
        assert_eq!(self.ask(Request::Stage { manifest, files }).await, Ok(Reply::Done));
        id
    }
}

#[tokio::test]
async fn the_listeners_go_to_the_one_beside_and_back_to_the_services_own() {
    let place = Place::new().await;
    let mut agent = place.agent().await;
    let release = agent.staged().await;
    assert!(agent.ask(Request::HandOver { release }).await.is_ok());
    assert_eq!(
        (place.engine_says("answers").as_str(), place.engine_says("own").as_str()),
        ("own-anew", "running unless-stopped 7")
    );
    assert_eq!(place.engine_says("beside"), "", "nobody is left beside");
}

#[tokio::test]
async fn one_that_does_not_take_over_is_removed_and_the_one_that_runs_is_as_before() {
    let place = Place::new().await;
    let mut agent = place.agent().await;
    let release = agent.staged().await;
    place.engine("beside-is-broken", "");
    let failure = agent.ask(Request::HandOver { release }).await.expect_err("it cannot be started");
    assert!(failure.message.contains("starting a gateway beside"), "{failure:?}");
    assert_eq!(
        (place.engine_says("answers").as_str(), place.engine_says("own").as_str()),
        ("own", "running unless-stopped 1")
    );
    assert_eq!((place.engine_says("beside"), place.calls("stop own")), (String::new(), 0));
}

/// Two that an agent which was killed may leave: one beside that never took over, and one that runs and would not be started again.
#[tokio::test]
async fn what_a_killed_agent_left_costs_nobody_his_listeners() {
    for beside in [Some("running no 5"), None] {
        let place = Place::new().await;
        let mut agent = place.agent().await;
        let release = agent.staged().await;
        place.engine("own", "running no 1");
        place.engine("hash", "wanted");
        if let Some(beside) = beside {
            place.engine("beside", beside);
        }
        assert!(agent.ask(Request::HandOver { release }).await.is_ok());
        assert_eq!((place.engine_says("answers").as_str(), place.calls("stop own")), ("own", 0), "{beside:?}");
        assert_eq!(
            (place.engine_says("own").as_str(), place.engine_says("beside").as_str()),
            ("running unless-stopped 1", "")
        );
    }
}

#[tokio::test]
async fn while_only_the_one_beside_serves_it_stays() {
    let place = Place::new().await;
    let mut agent = place.agent().await;
    let release = agent.staged().await;
    place.engine("own", "exited no 1");
    place.engine("beside", "running on-failure 5");
    place.engine("answers", "beside");
    assert!(matches!(agent.ask(Request::Stop).await, Ok(Reply::Stopped(_))));
    assert_eq!((place.engine_says("beside").as_str(), place.calls(" down")), ("running on-failure 5", 0));
    assert!(agent.ask(Request::HandOver { release }).await.is_ok());
    assert_eq!((place.engine_says("answers").as_str(), place.engine_says("beside").as_str()), ("own-anew", ""));
}
