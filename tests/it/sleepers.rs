//! What a gateway has put to sleep on a server that a deploy works on, or died on: the real agent, with an engine that is pretended.

use crate::world::fleet;
use handover::fleet::model::{ReleaseId, ServiceName};
use handover::fleet::release::{MANIFEST_FORMAT, Manifest, ServicePin};
use handover::server::agent::Record;
use handover::server::frame::{self, Reader};
use handover::server::layout::asleep::{self, Asleep, FORMAT, Off};
use handover::server::layout::{Layout, Pointer};
use handover::server::wire::{self, Context, Failure, FromAgent, Reply, Request, Run, Stopped, ToAgent};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const ENGINE: &str = include_str!("sleepers/engine.sh");
const OLD: &str = "01d01d01d01d01d0";
const NEW: &str = "beebeebeebeebeeb";
const HOST: &str = "cms.example.org";
const LONG: Duration = Duration::from_secs(60);

/// A server on which `api` runs and `cms` sleeps, both of the old release.
struct Server {
    dir: TempDir,
    layout: Layout,
}

impl Server {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path();
        let layout = Layout::new(at, at.join("lock"));
        for folder in ["bin", "containers", "run"] {
            fs::create_dir(at.join(folder)).expect("made");
        }
        let engine = at.join("bin/docker");
        fs::write(&engine, ENGINE.replace("@@", &at.to_string_lossy())).expect("written");
        fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).expect("executable");
        for release in [OLD, NEW] {
            let pin = ServicePin {
                image: format!("registry/app@sha256:{release}"),
                grace: Duration::from_secs(1),
                replicas: 1,
                one_shot: false,
            };
            let manifest = Manifest {
                format: MANIFEST_FORMAT,
                id: release.into(),
                label: None,
                services: ["api", "cms"].map(|name| (ServiceName::from(name), pin.clone())).into(),
                files: BTreeMap::new(),
            };
            fs::create_dir_all(layout.release(&manifest.id)).expect("made");
            let text = serde_json::to_string(&manifest).expect("JSON");
            fs::write(layout.manifest(&manifest.id), text).expect("written");
        }
        layout.point(Pointer::Current, Some(&OLD.into())).expect("pointed");
        let server = Self { dir, layout };
        server.put("api", OLD, "running");
        server.put("cms", OLD, "exited");
        server.says(Off::Asleep, None);
        server
    }

    fn put(&self, service: &str, release: &str, state: &str) {
        fs::write(self.dir.path().join("containers").join(service), format!("sha256:{release} {state}\n"))
            .expect("put");
    }

    fn is(&self, service: &str) -> String {
        let text = fs::read_to_string(self.dir.path().join("containers").join(service)).expect("a container");
        text.trim().replace(&format!("sha256:{OLD}"), "old").replace(&format!("sha256:{NEW}"), "new")
    }

    /// What the engine was told to change.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("asked")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    fn asleep(state: Off, until: Option<u64>) -> Asleep {
        Asleep {
            format: FORMAT,
            host: HOST.to_owned(),
            project: "mythex".to_owned(),
            services: vec!["cms".into()],
            state,
            since: 100,
            until,
            who: "handover gateway (pid 1)".to_owned(),
            why: "nobody needed it for 30m".to_owned(),
        }
    }

    fn says(&self, state: Off, until: Option<u64>) {
        asleep::write(self.dir.path(), &Self::asleep(state, until)).expect("written");
    }

    fn record(&self) -> Option<Asleep> {
        asleep::read(self.dir.path(), HOST).expect("a record")
    }

    /// Comes between: `sh` is run when the engine is told to do that.
    fn before(&self, verb: &str, sh: &str) {
        fs::write(self.dir.path().join(format!("before-{verb}")), sh).expect("written");
    }

    /// The gateway says in the middle of a stop that somebody asked for it.
    fn wakes_before(&self, verb: &str) {
        let wakes = serde_json::to_string(&Self::asleep(Off::Waking, Some(soon()))).expect("JSON");
        let path = asleep::record(self.dir.path(), HOST);
        self.before(verb, &format!("echo '{wakes}' > {}", path.display()));
    }

    fn last_words(&self) -> String {
        let record = Record::read(&self.layout.record()).expect("a record");
        record.entries.last().map(|entry| entry.what.clone()).unwrap_or_default()
    }

    fn is_out(&self) -> bool {
        self.dir.path().join("run/drain").exists()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn soon() -> u64 {
    now() + 3600
}

/// The agent of a deploy that has brought the new release up on a server that is out of rotation.
struct Deploy {
    reader: Reader<ChildStdout, fn()>,
    writer: ChildStdin,
    agent: Child,
    next: u64,
}

impl Deploy {
    async fn begins(server: &Server) -> Self {
        let at = server.dir.path().display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut agent = Command::new(env!("CARGO_BIN_EXE_handover"))
            .arg("agent")
            .env("PATH", format!("{at}/bin:{path}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the agent");
        let (stdin, stdout) = (agent.stdin.take().expect("stdin"), agent.stdout.take().expect("stdout"));
        let mut deploy = Self { reader: Reader::new(stdout, (|| {}) as fn()), writer: stdin, agent, next: 0 };
        deploy.reader.skip_banner().await.expect("the marker");
        let fleet = fleet(&format!(
            "app = \"mythex\"\n[release]\ncompose = \"compose.yaml\"\ndir = \"{at}\"\n[rolling]\nstable = \"0s\"\n\
             [lock]\npath = \"{at}/lock\"\n[balancer]\nkind = \"none\"\n[drain]\nby = \"file\"\nfile = \"{at}/run/drain\"\n\
             [[service]]\nname = \"api\"\nverify = {{ exec = [\"true\"] }}\n\
             [[service]]\nname = \"cms\"\nverify = {{ exec = [\"true\"] }}\n[[server]]\nname = \"web-1\"\nssh = \"web-1\"\n"
        ));
        let run = Run { id: "run-1".into(), who: "ann@laptop".into(), what: "deploy".into() };
        let context = Context { format: wire::FORMAT, run, server: "web-1".into(), fleet };
        frame::write(&mut deploy.writer, &ToAgent::Hello(Box::new(context))).await.expect("sent");
        assert_eq!(deploy.ask(Request::Lock { wait: Duration::ZERO }).await, Ok(Reply::Locked));
        deploy
    }

    async fn started(server: &Server) -> Self {
        let mut deploy = Self::begins(server).await;
        assert_eq!(deploy.ask(Request::Flip { drained: true }).await, Ok(Reply::Done));
        let release = ReleaseId::new(NEW);
        let started = deploy.ask(Request::Start { release }).await.expect("started");
        assert!(matches!(started, Reply::Started(all) if all.len() == 2));
        assert_eq!((server.is("api"), server.is("cms")), ("new running".into(), "new running".into()));
        deploy
    }

    async fn ask(&mut self, request: Request) -> Result<Reply, Failure> {
        self.next += 1;
        frame::write(&mut self.writer, &ToAgent::Request { id: self.next, request }).await.expect("sent");
        loop {
            let message = tokio::time::timeout(LONG, self.reader.next()).await.expect("in time").expect("an answer");
            if let FromAgent::Reply { id, result } = message {
                assert_eq!(id, self.next);
                return result;
            }
        }
    }

    /// What went to sleep again, and what is left awake.
    async fn sleep(&mut self) -> Result<(Vec<String>, usize), Failure> {
        match self.ask(Request::Sleep).await? {
            Reply::Stopped(Stopped { stopped, left }) => {
                Ok((stopped.iter().map(|one| one.service.to_string()).collect(), left.len()))
            }
            other => panic!("{other:?}"),
        }
    }

    /// The deploy dies, and its agent puts the server right.
    async fn dies(mut self) {
        frame::write(&mut self.writer, &ToAgent::Goodbye).await.expect("sent");
        let ended = tokio::time::timeout(LONG, self.agent.wait()).await.expect("in time").expect("it ends");
        assert!(ended.success(), "{ended}");
    }
}

#[tokio::test]
async fn what_sleeps_is_renewed_and_off_again_and_its_record_is_as_before() {
    let server = Server::new();
    let before = server.record();
    let mut deploy = Deploy::started(&server).await;
    assert_eq!(deploy.sleep().await, Ok((vec!["cms".to_owned()], 0)));
    assert_eq!((server.is("api"), server.is("cms")), ("new running".into(), "new exited".into()));
    assert_eq!(server.record(), before, "since when and why are as before");
    assert_eq!(server.asked(), ["up api cms", "stop cms"]);
    assert_eq!(deploy.sleep().await, Ok((Vec::new(), 0)), "asked again it has nothing to do");
    assert_eq!((server.asked().len(), server.record()), (2, before));
}

#[tokio::test]
async fn what_somebody_asked_for_is_not_put_back_to_sleep() {
    let server = Server::new();
    let mut deploy = Deploy::started(&server).await;
    server.says(Off::Waking, Some(soon()));
    assert_eq!(deploy.sleep().await, Ok((Vec::new(), 0)));
    assert_eq!((server.is("cms"), server.asked().len()), ("new running".into(), 1));
    assert_eq!(server.record().expect("there").state, Off::Waking);
}

#[tokio::test]
async fn while_it_is_stopped_the_record_says_so_and_a_wish_of_that_time_stays_in_it() {
    let server = Server::new();
    let mut deploy = Deploy::started(&server).await;
    let record = asleep::record(server.dir.path(), HOST);
    let seen = server.dir.path().join("seen");
    server.before("stop", &format!("cp {} {}", record.display(), seen.display()));
    assert_eq!(deploy.sleep().await, Ok((vec!["cms".to_owned()], 0)));
    let during: Asleep = serde_json::from_str(&fs::read_to_string(&seen).expect("seen")).expect("a record");
    assert_eq!((during.state, during.is_meant(now())), (Off::Stopping, true), "who wants it waits");
    assert!(during.who.contains("ann@laptop (run-1)"), "{}", during.who);
    assert_eq!(server.record().expect("there").state, Off::Asleep);

    server.put("cms", NEW, "running");
    server.wakes_before("stop");
    assert_eq!(deploy.sleep().await, Ok((vec!["cms".to_owned()], 0)));
    assert_eq!(server.record().expect("there").state, Off::Waking, "its gateway starts it as soon as it may");
}

#[tokio::test]
async fn a_stop_that_fails_is_told_and_nobody_waits_for_it_any_more() {
    let server = Server::new();
    let before = server.record();
    let mut deploy = Deploy::started(&server).await;
    server.before("stop", "echo 'the engine is busy' >&2; exit 1");
    let failure = deploy.sleep().await.expect_err("failed");
    assert!(failure.message.contains("putting back to sleep failed (exit code 1): the engine is busy"), "{failure}");
    assert_eq!((server.is("cms"), server.record()), ("new running".into(), before), "`stopping` would hold a wake up");
    server.before("stop", ":");
    assert_eq!(deploy.sleep().await, Ok((vec!["cms".to_owned()], 0)));
}

#[tokio::test]
async fn a_dead_deploy_leaves_it_as_current_has_it_and_off() {
    for awake in [true, false] {
        let server = Server::new();
        let before = server.record();
        let deploy = Deploy::started(&server).await;
        if !awake {
            server.put("cms", NEW, "exited");
        }
        deploy.dies().await;
        assert_eq!(server.is("api"), "old running");
        assert!(["old exited", "old created"].contains(&server.is("cms").as_str()), "{}", server.is("cms"));
        assert_eq!((server.record(), server.is_out()), (before, false), "{}", server.last_words());
        assert_eq!(server.asked(), ["up api cms", "up api", "create cms"], "{}", server.last_words());
    }
}

#[tokio::test]
async fn what_somebody_asked_for_is_brought_up_with_all_the_rest_by_a_dead_deploy() {
    let server = Server::new();
    let deploy = Deploy::started(&server).await;
    server.says(Off::Waking, Some(soon()));
    deploy.dies().await;
    let both = (server.is("api"), server.is("cms"));
    assert_eq!(both, ("old running".into(), "old running".into()), "nobody verified the new one");
    assert_eq!((server.record().expect("there").state, server.is_out()), (Off::Waking, false));
}

#[tokio::test]
async fn a_stop_whose_deploy_was_killed_in_it_is_ended_and_the_record_says_asleep() {
    for runs in [true, false] {
        let server = Server::new();
        let before = server.record();
        let deploy = Deploy::started(&server).await;
        server.says(Off::Stopping, Some(soon()));
        if !runs {
            server.put("cms", NEW, "exited");
        }
        deploy.dies().await;
        assert!(["old exited", "old created"].contains(&server.is("cms").as_str()), "{}", server.is("cms"));
        let record = server.record().expect("there");
        assert_eq!((record.state, record.until), (Off::Asleep, None), "{}", server.last_words());
        assert_eq!(Some(record.since), before.map(|before| before.since));
    }
}

#[tokio::test]
async fn a_record_past_its_time_is_nobodys_plan() {
    for state in [Off::Stopping, Off::Waking] {
        let server = Server::new();
        let mut deploy = Deploy::started(&server).await;
        server.says(state, Some(now() - 1));
        let stuck = server.record();
        assert_eq!(deploy.sleep().await, Ok((Vec::new(), 0)), "{state:?}");
        assert_eq!((server.is("cms"), server.record()), ("new running".into(), stuck.clone()), "{state:?}");
        deploy.dies().await;
        assert_eq!((server.is("api"), server.is("cms")), ("old running".into(), "old running".into()), "{state:?}");
        assert_eq!((server.record(), server.is_out()), (stuck, false), "{state:?}: {}", server.last_words());
    }
}

/// What is not known is not guessed: a service that is off may sleep or be broken.
#[tokio::test]
async fn a_torn_record_stops_whoever_would_have_to_guess_and_names_the_file() {
    let server = Server::new();
    let mut deploy = Deploy::started(&server).await;
    let path = asleep::record(server.dir.path(), HOST);
    fs::write(&path, "{\"format\":1,").expect("written");
    let failure = deploy.sleep().await.expect_err("unknown");
    assert!(failure.message.contains(&*path.to_string_lossy()), "{failure}");
    assert!(failure.hint.is_some_and(|hint| hint.contains("remove that file")), "the way out");
    assert_eq!(server.is("cms"), "new running");
    deploy.dies().await;
    let words = server.last_words();
    assert!(words.contains("could not be put right") && words.contains("cms.example.org.json"), "{words}");
    assert!(server.is_out(), "nothing unverified is let in");
    fs::remove_file(&path).expect("removed");
    Deploy::begins(&server).await.dies().await;
    assert_eq!((server.is("api"), server.is("cms")), ("old running".into(), "old running".into()));
    assert!(!server.is_out(), "{}", server.last_words());
}
