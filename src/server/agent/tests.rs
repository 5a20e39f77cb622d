//! The agent as its asker sees it, over a pair of pipes.

use super::*;
use crate::fleet::model::{
    Absence, AdminState, Balancer, BalancerKind, Batch, Drain, DrainBy, Fleet, Hooks, HostKeys, LockSpec, OnFailure,
    OnLoss, ReleaseSpec, Rolling, Ssh, Watchdog,
};
use crate::server::wire::{Reply, Run};
use std::path::Path;
use std::process::Command;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

const NOT_LONG: Duration = Duration::from_secs(10);

pub(in crate::server) fn fleet(dir: &Path, lease: Duration) -> Fleet {
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    Fleet {
        app: "handover-agent-test".into(),
        release: ReleaseSpec { compose: "c".into(), files: vec![], env: vec![], vars: vec![], dir: path(""), keep: 3 },
        ssh: Ssh { sudo: false, host_keys: HostKeys::Strict, parallel: 1 },
        rolling: Rolling {
            batch: Batch::Count(1),
            min_healthy: 1,
            pause: Duration::ZERO,
            stable: Duration::ZERO,
            on_failure: OnFailure::Rollback,
            on_loss: OnLoss::Halt,
        },
        lock: LockSpec { path: path("lock"), wait: NOT_LONG, lease, bootstrap: None },
        balancer: Balancer {
            kind: BalancerKind::None,
            region: None,
            endpoint: None,
            nodes: Vec::new(),
            idle_timeout: Duration::from_secs(60),
            groups: vec![],
        },
        drain: Drain {
            by: DrainBy::File { path: path("run/drain") },
            real: None,
            serve: Duration::ZERO,
            max: NOT_LONG,
            margin: Duration::ZERO,
            back: None,
            counter: None,
            unverified_return: false,
            state: AdminState::Maint,
        },
        services: vec![],
        servers: vec![],
        watchdog: Watchdog {
            interval: NOT_LONG,
            strikes: 3,
            heals: 3,
            window: NOT_LONG * 60,
            on_heal: Vec::new(),
            on_give_up: Vec::new(),
            textfile: None,
        },
        measure: None,
        hooks: Hooks::default(),
        run_once: Vec::new(),
        confirm: false,
        gateway: None,
    }
}

struct Asker {
    reader: Reader<ReadHalf<DuplexStream>, fn()>,
    writer: WriteHalf<DuplexStream>,
    agent: JoinHandle<i32>,
    next: u64,
}

impl Asker {
    async fn start() -> Self {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (stdin, stdout) = tokio::io::split(far);
        let (reader, writer) = tokio::io::split(near);
        let agent = tokio::spawn(serve(stdin, stdout));
        let mut reader = Reader::new(reader, (|| {}) as fn());
        reader.skip_banner().await.expect("the marker");
        assert!(matches!(reader.next().await.expect("hello"), FromAgent::Hello(hello) if hello.format == FORMAT));
        Self { reader, writer, agent, next: 0 }
    }

    async fn greeted(fleet: Fleet) -> Self {
        Self::of_run("run-1", fleet).await
    }

    async fn of_run(run: &str, fleet: Fleet) -> Self {
        let mut asker = Self::start().await;
        let run = Run { id: run.into(), who: "ann@laptop".into(), what: "deploy".into() };
        let context = Context { format: FORMAT, run, server: "web-1".into(), fleet };
        frame::write(&mut asker.writer, &ToAgent::Hello(Box::new(context))).await.expect("sent");
        asker
    }

    async fn send(&mut self, request: Request) -> u64 {
        self.next += 1;
        frame::write(&mut self.writer, &ToAgent::Request { id: self.next, request }).await.expect("sent");
        self.next
    }

    async fn answer(&mut self) -> (u64, Result<Reply, Failure>) {
        loop {
            match self.reader.next().await.expect("an answer") {
                FromAgent::Reply { id, result } => return (id, result),
                FromAgent::Heartbeat | FromAgent::Hello(_) => {}
            }
        }
    }

    async fn ask(&mut self, request: Request) -> Result<Reply, Failure> {
        let id = self.send(request).await;
        let (answered, result) = self.answer().await;
        assert_eq!(answered, id);
        result
    }

    /// Says goodbye and waits for the agent's own end.
    async fn leave(mut self) -> i32 {
        frame::write(&mut self.writer, &ToAgent::Goodbye).await.expect("sent");
        self.vanish().await
    }

    /// Ends the connection the hard way and waits for the agent's own end.
    async fn vanish(self) -> i32 {
        drop((self.reader, self.writer));
        tokio::time::timeout(NOT_LONG * 3, self.agent).await.expect("it ends").expect("it does not panic")
    }
}

fn is_free(dir: &Path) -> bool {
    Command::new("flock").arg("-n").arg(dir.join("lock")).arg("true").status().expect("flock(1)").success()
}

const LOCK: Request = Request::Lock { wait: Duration::ZERO };

#[tokio::test]
async fn nothing_is_changed_without_the_server_lock() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    let release = || "ab".into();
    for request in [
        Request::Flip { drained: true },
        Request::Stop,
        Request::Start { release: release() },
        Request::Switch { release: release() },
        Request::Sleep,
        Request::Absent { absence: None },
    ] {
        let shown = format!("{request:?}");
        assert_eq!(asker.ask(request).await.expect_err("refused").kind, FailureKind::NotLocked, "{shown}");
    }
    assert!(!dir.path().join("run/drain").exists());
    assert_eq!(asker.leave().await, 0);
}

#[tokio::test]
async fn what_is_done_stands_in_the_record_and_the_end_of_stdin_frees_the_lock() {
    let dir = tempfile::tempdir().expect("a folder");
    let record = || Record::read(&dir.path().join("record.json")).expect("a record");
    let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked), "it is ours already");
    assert!(!is_free(dir.path()));
    assert_eq!(asker.ask(Request::Flip { drained: true }).await, Ok(Reply::Done));
    assert!(record().drained && record().state == State::Drained);
    assert!(dir.path().join("run/drain").exists());
    assert_eq!(asker.ask(Request::Flip { drained: false }).await, Ok(Reply::Done));
    assert!(!record().drained && !dir.path().join("run/drain").exists());
    assert_eq!(asker.leave().await, 0);
    assert!(is_free(dir.path()));
    let last = record().entries.pop().expect("a sentence").what;
    assert!(last.contains("ended the connection") && last.contains("nothing had been changed"), "{last}");
}

#[tokio::test]
async fn a_connection_that_broke_is_waited_for_as_long_as_the_lease_and_then_the_server_is_put_right() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut asker = Asker::greeted(fleet(dir.path(), Duration::from_millis(1500))).await;
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
    assert_eq!(asker.ask(Request::Flip { drained: true }).await, Ok(Reply::Done));
    let agent = asker.agent;
    drop((asker.reader, asker.writer));
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!is_free(dir.path()) && dir.path().join("run/drain").exists(), "somebody may come back");
    assert_eq!(tokio::time::timeout(NOT_LONG, agent).await.expect("it ends").expect("it does not panic"), 0);
    assert!(is_free(dir.path()));
    let last = Record::read(&dir.path().join("record.json")).expect("a record").entries.pop().expect("a sentence").what;
    assert!(last.contains("nobody came back"), "{last}");
}

#[tokio::test]
async fn the_next_agent_of_a_run_goes_on_with_what_the_one_before_held_and_another_run_does_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    assert_eq!(asker.ask(Request::LockDeploy).await, Ok(Reply::Locked));
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
    assert_eq!(asker.ask(Request::Flip { drained: true }).await, Ok(Reply::Done));
    let before = asker.agent;
    drop((asker.reader, asker.writer));
    let mut next = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    assert_eq!(next.ask(Request::Flip { drained: false }).await, Ok(Reply::Done), "no lock is asked for again");
    assert_eq!(tokio::time::timeout(NOT_LONG, before).await.expect("it ends").expect("it does not panic"), 0);
    assert!(!is_free(dir.path()), "the next one holds it");
    assert!(!dir.path().join("run/drain").exists() && !dir.path().join("successor.json").exists());
    assert_eq!(next.leave().await, 0);
    assert!(is_free(dir.path()));
}

#[tokio::test]
async fn who_comes_back_too_late_holds_nothing_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut asker = Asker::greeted(fleet(dir.path(), Duration::from_millis(500))).await;
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
    assert_eq!(asker.ask(Request::Flip { drained: true }).await, Ok(Reply::Done));
    assert_eq!(asker.vanish().await, 0);
    let mut late = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    let refused = late.ask(Request::Stop).await.expect_err("it is put right by now");
    assert_eq!(refused.kind, FailureKind::NotLocked);
    assert_eq!(late.leave().await, 0);
}

#[tokio::test]
async fn a_deploy_that_is_not_heard_from_for_the_lease_is_dead() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut asker = Asker::greeted(fleet(dir.path(), Duration::from_millis(900))).await;
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        frame::write(&mut asker.writer, &ToAgent::Heartbeat).await.expect("sent");
    }
    assert!(!is_free(dir.path()), "heartbeats keep it");
    // Half open: nothing ends, nothing comes.
    let ended = tokio::time::timeout(NOT_LONG, &mut asker.agent).await.expect("it ends").expect("it does not panic");
    assert_eq!(ended, 0);
    assert!(is_free(dir.path()));
}

#[tokio::test]
async fn an_unlock_cancels_a_lock_that_waits_and_heartbeats_pass_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut other = Asker::of_run("run-2", fleet(dir.path(), NOT_LONG)).await;
    assert_eq!(other.ask(LOCK).await, Ok(Reply::Locked));
    let mut asker = Asker::greeted(fleet(dir.path(), Duration::from_secs(1))).await;
    let lock = asker.send(Request::Lock { wait: NOT_LONG * 6 }).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        frame::write(&mut asker.writer, &ToAgent::Heartbeat).await.expect("sent");
    }
    let unlock = asker.send(Request::Unlock { record: "interrupted".into() }).await;
    let (id, result) = asker.answer().await;
    assert!(id == lock && matches!(&result, Ok(Reply::Held(holder)) if holder.who == "ann@laptop"), "{result:?}");
    assert_eq!(asker.answer().await, (unlock, Ok(Reply::Done)));
    assert_eq!(other.leave().await, 0);
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked), "a later one is not cancelled by it");
    assert_eq!(asker.leave().await, 0);
}

#[tokio::test]
async fn another_format_is_refused_by_its_number() {
    let mut asker = Asker::start().await;
    let hello = serde_json::json!({"hello": {"format": 99, "whatever": "it means then"}});
    frame::write(&mut asker.writer, &hello).await.expect("sent");
    let (_, result) = asker.answer().await;
    let failure = result.expect_err("refused");
    assert!(
        failure.message.contains(&format!("format {}", crate::server::wire::FORMAT)) && failure.message.contains("99"),
        "{failure}"
    );
    assert_eq!(asker.vanish().await, 1);
}

#[tokio::test]
async fn a_lock_whose_agent_was_killed_is_taken_over_after_its_last_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("setsid").args(["sleep", "1.5"]).spawn().expect("sleep");
    // setsid(1) makes the leader of a group of the process itself.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let left = Record {
        state: State::Stopped,
        command: Some(crate::server::process::ProcessId::of(command.id())),
        ..Record::default()
    };
    left.write(&dir.path().join("record.json")).expect("written");
    let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    let began = Instant::now();
    let waited = tokio::task::spawn_blocking(move || command.wait());
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
    assert!(began.elapsed() > Duration::from_millis(900), "{:?}", began.elapsed());
    waited.await.expect("joined").expect("waited for");
    let record = Record::read(&dir.path().join("record.json")).expect("a record");
    assert!(record.entries.iter().any(|entry| entry.what.contains("had died")), "{record:?}");
    assert_eq!(asker.leave().await, 0);
}

#[tokio::test]
async fn whoever_lets_a_server_back_ends_its_absence_unless_a_person_said_it() {
    for (ends_when_verified, stays) in [(true, false), (false, true)] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
        assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
        let absence = Absence { ends_when_verified, ..Absence::of_a_failure("why") };
        assert_eq!(asker.ask(Request::Absent { absence: Some(absence) }).await, Ok(Reply::Done));
        assert_eq!(asker.ask(Request::Flip { drained: true }).await, Ok(Reply::Done));
        assert!(dir.path().join("absence.json").exists());
        assert_eq!(asker.ask(Request::Flip { drained: false }).await, Ok(Reply::Done));
        assert_eq!(dir.path().join("absence.json").exists(), stays);
        assert_eq!(asker.leave().await, 0);
    }
}

#[tokio::test]
async fn a_server_that_a_killed_agent_left_drained_stays_so_while_the_next_one_works() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(dir.path().join("run")).expect("made");
    std::fs::write(dir.path().join("run/drain"), "").expect("written");
    let left = Record { state: State::Drained, drained: true, ..Record::default() };
    left.write(&dir.path().join("record.json")).expect("written");
    let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
    assert!(dir.path().join("run/drain").exists(), "its plan counts on it being out");
    let record = Record::read(&dir.path().join("record.json")).expect("a record");
    assert!(record.drained && record.state == State::Drained, "{record:?}");
    assert_eq!(asker.leave().await, 0);
}

#[tokio::test]
async fn a_lock_whose_agent_was_killed_is_taken_up_again_by_its_own_deploy_and_by_no_other() {
    for (run, answer) in [("run-1", Ok(Reply::Done)), ("run-2", Err(FailureKind::NotLocked))] {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("run")).expect("made");
        std::fs::write(dir.path().join("run/drain"), "").expect("written");
        let run = Run { id: run.into(), who: "ann@laptop".into(), what: "deploy".into() };
        let left = Record { state: State::Drained, drained: true, run: Some(run), ..Record::default() };
        left.write(&dir.path().join("record.json")).expect("written");
        let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
        let flipped = asker.ask(Request::Flip { drained: false }).await;
        assert_eq!(flipped.map_err(|failure| failure.kind), answer);
        assert_eq!(dir.path().join("run/drain").exists(), answer.is_err());
        assert_eq!(is_free(dir.path()), answer.is_err());
        assert_eq!(asker.leave().await, 0);
        assert!(is_free(dir.path()));
    }
}

#[tokio::test]
async fn a_folder_of_another_app_is_refused_by_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    assert_eq!(asker.ask(Request::LockDeploy).await, Ok(Reply::Locked));
    assert_eq!(asker.leave().await, 0);
    let mut asker = Asker::greeted(Fleet { app: "other".into(), ..fleet(dir.path(), NOT_LONG) }).await;
    let failure = asker.ask(Request::LockDeploy).await.expect_err("refused");
    assert!(failure.message.contains("belongs to the app `handover-agent-test`"), "{failure}");
    assert_eq!(asker.leave().await, 0);
}

#[tokio::test]
async fn a_freeze_is_a_record_and_no_lock() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
    assert_eq!(asker.ask(Request::Freeze { reason: "sale".into() }).await, Ok(Reply::Done));
    assert!(is_free(dir.path()) && dir.path().join("freeze.json").exists());
    assert_eq!(asker.ask(Request::Unfreeze).await, Ok(Reply::Done));
    assert!(!dir.path().join("freeze.json").exists());
    assert_eq!(asker.leave().await, 0);
}

/// Whoever comes between and goes, in order or not, must not make unverified containers take traffic.
#[tokio::test]
async fn a_server_that_nobody_verified_is_let_in_by_no_one_who_only_comes_and_goes() {
    for (left, in_order) in [
        (State::Switched, true),
        (State::Switched, false),
        (State::Stopped, true),
        (State::Started("new".into()), true),
        (State::Idle, true),
        (State::Idle, false),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record.json");
        std::fs::create_dir_all(dir.path().join("run")).expect("made");
        std::fs::write(dir.path().join("run/drain"), "drained by handover\n").expect("written");
        let before = Record { state: left.clone(), drained: true, ..Record::default() };
        before.write(&path).expect("written");
        let mut asker = Asker::greeted(fleet(dir.path(), NOT_LONG)).await;
        assert_eq!(asker.ask(LOCK).await, Ok(Reply::Locked));
        let taken = if left == State::Idle { State::Locked } else { left.clone() };
        assert_eq!(Record::read(&path).expect("a record").state, taken);
        if in_order {
            assert_eq!(asker.ask(Request::Unlock { record: "interrupted".into() }).await, Ok(Reply::Done));
            assert_eq!(Record::read(&path).expect("a record").state, left, "the next one puts it right");
        }
        assert_eq!(asker.leave().await, 0);
        let record = Record::read(&path).expect("a record");
        assert!(record.drained && dir.path().join("run/drain").exists(), "{left:?} {in_order}: {record:?}");
    }
}
