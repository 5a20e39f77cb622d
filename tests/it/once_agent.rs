//! What is run once, as the agent does it: the real binary, spoken to in frames, with a pretended engine in its PATH.

use handover::fleet::model::{Fleet, Once, OnceRecord, OnceState, ReleaseId, ServerName};
use handover::fleet::release::{DEFINITION, Manifest, ServicePin, as_written, digest, sha256_hex};
use handover::server::frame::{self, Reader};
use handover::server::wire::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Writes down what it is asked; `code` and `slow` say how the next command ends, `state` is a container that is there.
const ENGINE: &str = r#"#!/bin/sh
cd "$(dirname "$0")/../engine"
echo "$*" >> calls
case "$*" in
  *" run "*) echo "it printed SECRET=hush-hush"; [ -f slow ] && sleep 100; exit "$(cat code)" ;;
  "container inspect --format"*) [ -f state ] && cat state || { echo "No such container" >&2; exit 1; } ;;
  "container rm"*) rm -f state ;;
  "image inspect"*) echo '[{"Id":"sha256:aa","RepoDigests":["registry/api@sha256:0a"]}]' ;;
  *) exit 0 ;;
esac
"#;

struct Place {
    dir: TempDir,
    fleet: Fleet,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["bin", "engine"] {
            std::fs::create_dir(dir.path().join(name)).expect("made");
        }
        let docker = dir.path().join("bin/docker");
        std::fs::write(&docker, ENGINE).expect("written");
        std::fs::set_permissions(&docker, std::fs::Permissions::from_mode(0o755)).expect("set");
        let text =
            include_str!("../../deploy.toml").replace("/opt/mythex", &dir.path().join("app").display().to_string());
        let place = Self { fleet: crate::world::fleet(&text), dir };
        std::fs::create_dir(place.dir.path().join("app")).expect("made");
        place.ends("0");
        place
    }

    fn ends(&self, code: &str) {
        std::fs::write(self.dir.path().join("engine/code"), code).expect("written");
    }

    /// A container of that name is there.
    fn is_there(&self, state: &str) {
        std::fs::write(self.dir.path().join("engine/state"), state).expect("written");
    }

    fn calls(&self, word: &str) -> Vec<String> {
        let calls = std::fs::read_to_string(self.dir.path().join("engine/calls")).unwrap_or_default();
        calls.lines().filter(|line| line.contains(word)).map(ToOwned::to_owned).collect()
    }

    fn records(&self) -> Vec<(String, OnceState)> {
        let text = std::fs::read_to_string(self.dir.path().join("app/once.json")).unwrap_or_else(|_| "[]".into());
        let records: Vec<OnceRecord> = serde_json::from_str(&text).expect("records");
        records.into_iter().map(|record| (record.name, record.state)).collect()
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
        let fleet = Fleet { servers: self.fleet.servers[..1].to_vec(), ..self.fleet.clone() };
        let context = Context { format: FORMAT, run, server: ServerName::new("web-1"), fleet };
        frame::write(&mut agent.writer, &ToAgent::Hello(Box::new(context))).await.expect("sent");
        assert_eq!(agent.ask(Request::Lock { wait: Duration::from_secs(5) }).await, Ok(Reply::Locked));
        agent
    }
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

    async fn staged(&mut self, networks: &str) -> ReleaseId {
        let definition = format!("{{\"name\":\"mythex\",\"networks\":{networks},\"services\":{{\"api\":{{}}}}}}");
        let env = Blob::bytes(".env.production", b"SECRET=hush-hush\n", true);
        let mark = |name: &str, secret, text: &str| handover::fleet::release::FileMark {
            name: name.into(),
            secret,
            sha256: sha256_hex(text.as_bytes()),
        };
        let secret = mark(".env.production", true, "SECRET=hush-hush\n");
        // The digest is taken over the definition before the release's own name stands in it.
        let id = digest(&definition, &[mark(DEFINITION, false, &definition), secret.clone()]);
        let written = mark(DEFINITION, false, &as_written(&definition, &id));
        let pin = ServicePin {
            image: "registry/api@sha256:0a".into(),
            grace: Duration::from_secs(30),
            replicas: 1,
            one_shot: false,
        };
        let manifest = Manifest {
            format: 1,
            id: id.clone(),
            label: None,
            services: BTreeMap::from([("api".into(), pin)]),
            files: [written, secret].into_iter().map(|mark| (mark.name, mark.sha256)).collect(),
        };
        let files = vec![Blob::text(DEFINITION, &definition), env];
        assert_eq!(self.ask(Request::Stage { manifest, files }).await, Ok(Reply::Done));
        id
    }

    async fn once(&mut self, release: &ReleaseId, limit: u64) -> Result<OnceEnd, Failure> {
        let once = Once {
            name: "migrate".into(),
            service: "api".into(),
            run: vec!["./manage.py".into(), "migrate; $(x)".into()],
            limit: Duration::from_millis(limit),
        };
        match self.ask(Request::Once { release: release.clone(), once }).await? {
            Reply::Once(end) => Ok(end),
            other => panic!("{other:?}"),
        }
    }
}

const LONG: u64 = 60_000;

#[tokio::test]
async fn it_is_run_in_a_container_of_its_own_written_down_and_not_run_again() {
    let place = Place::new();
    let mut agent = place.agent().await;
    let release = agent.staged("{}").await;
    let end = agent.once(&release, LONG).await.expect("it ran");
    assert_eq!((end.code, end.output), (Some(0), vec!["it printed SECRET=[secret]".to_owned()]));
    let runs = place.calls(" run ");
    let name = format!("mythex-once-migrate-{}", release.short());
    let words = format!("run --no-deps --no-TTY --quiet-pull --name {name} api ./manage.py migrate; $(x)");
    assert!(runs.len() == 1 && runs[0].ends_with(&words), "{runs:?}");
    assert_eq!(place.calls("container rm"), [format!("container rm --force {name}")]);
    assert_eq!(place.records(), [("migrate".to_owned(), OnceState::Done)]);
    // Whoever asks again because the answer was lost is told so.
    assert_eq!(agent.once(&release, LONG).await.expect("done").code, Some(0));
    assert_eq!(place.calls(" run ").len(), 1);
    let Ok(Reply::Facts(facts)) = agent.ask(Request::Observe).await else { panic!("no facts") };
    assert_eq!(facts.once.len(), 1);
}

#[tokio::test]
async fn what_fails_or_takes_too_long_is_written_down_as_failed_and_run_again() {
    let place = Place::new();
    let mut agent = place.agent().await;
    let release = agent.staged("{}").await;
    place.ends("3");
    assert_eq!(agent.once(&release, LONG).await.expect("it ran").code, Some(3));
    assert_eq!(place.records(), [("migrate".to_owned(), OnceState::Failed)]);
    let slow = place.dir.path().join("engine/slow");
    std::fs::write(&slow, "").expect("written");
    assert_eq!(agent.once(&release, 500).await.expect("it ran").code, None);
    assert_eq!(place.records(), [("migrate".to_owned(), OnceState::Failed)]);
    assert_eq!(place.calls("container rm").len(), 2, "what was cut off does not run on");
    std::fs::remove_file(slow).expect("removed");
    place.ends("0");
    assert_eq!(agent.once(&release, LONG).await.expect("it ran").code, Some(0));
    assert_eq!(place.calls(" run ").len(), 3);
}

#[tokio::test]
async fn the_container_of_an_agent_that_was_killed_is_waited_for() {
    let place = Place::new();
    let mut agent = place.agent().await;
    let release = agent.staged("{}").await;
    place.is_there("running 0");
    let ends = place.dir.path().join("engine/state");
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::write(ends, "exited 0").expect("written");
    });
    let end = agent.once(&release, LONG).await.expect("it ran");
    later.await.expect("it ended");
    assert_eq!((end.code, place.calls(" run ").len()), (Some(0), 0));
    assert_eq!(place.records(), [("migrate".to_owned(), OnceState::Done)]);
}

#[tokio::test]
async fn networks_that_would_be_taken_away_under_what_serves_are_a_refusal() {
    let place = Place::new();
    let mut agent = place.agent().await;
    let current = agent.staged("{\"default\":{\"name\":\"mythex_default\"}}").await;
    assert_eq!(agent.ask(Request::Switch { release: current.clone() }).await, Ok(Reply::Switched(current)));
    let other = agent.staged("{\"default\":{\"name\":\"mythex_default\",\"labels\":{\"a\":\"b\"}}}").await;
    let failure = agent.once(&other, LONG).await.expect_err("refused");
    assert_eq!(failure.kind, FailureKind::Input);
    assert!(failure.message.contains("Compose would take them away under what serves"), "{failure}");
    assert!(failure.hint.is_some_and(|hint| hint.contains("without `[[run_once]]`")));
    assert_eq!((place.calls(" run ").len(), place.records()), (0, Vec::new()));
}
