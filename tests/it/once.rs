//! What is run once for a release, before its first server is touched: when, where, how often, and what its failure means.

use crate::world::{NEW, World, exit, fleet, message};
use handover::diag::Exit;
use handover::fleet::model::{Fleet, ReleaseId};
use handover::fleet::plan::{Options, Step, check, offline_snapshot, plan};
use handover::rollout::Source;
use handover::rollout::port::ServerError;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../deploy.toml");
const ONCE: &str = r#"
[[run_once]]
name = "migrate"
service = "api"
run = ["./manage.py", "migrate"]

[[run_once]]
name = "seed"
service = "orchestrator"
run = ["seed"]
limit = "1m"
"#;

fn migrates() -> Fleet {
    fleet(&format!("{EXAMPLE}{ONCE}"))
}

async fn world() -> World {
    World::new(migrates(), 2, |_| {}).await
}

/// Every order so far, as `what server`.
fn ran(world: &World) -> Vec<String> {
    world.with(|inner| inner.once.iter().map(|(server, name, _)| format!("{name} {server}")).collect())
}

fn untouched(world: &World) {
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current old, runs old");
        assert!(!world.requests(server).iter().any(|request| request == "flip" || request == "stop"));
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_run_on_the_first_server_before_any_is_out_even_where_a_batch_has_several() {
    for batch in ["1 ", "2 "] {
        let text = format!("{EXAMPLE}{ONCE}").replace("batch       = 1 ", &format!("batch       = {batch}"));
        let world = World::new(fleet(&text), 2, |_| {}).await;
        let deployed = world.deploy().await;
        assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
        assert_eq!(ran(&world), ["migrate web-1", "seed web-1"]);
        assert!(world.with(|inner| inner.once.iter().all(|(.., out)| !out)), "a server was out already");
        for server in ["web-1", "web-2", "web-3"] {
            assert_eq!(world.state(server), "current new, runs new");
        }
        let ending = deployed.ending.expect("it began");
        // How long a migration takes is no part of how long the servers were worked on.
        assert!(ending.seconds / ending.floor.seconds() <= 1.10, "{} of {:?}", ending.seconds, ending.floor);
        assert_eq!(world.with(|inner| (inner.nowhere, inner.violations.clone())), (0, Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_ends_the_deploy_with_no_server_touched_and_is_run_again_by_the_next() {
    let world = world().await;
    world.with(|inner| inner.once_ends.insert("seed".into(), Ok(Some(3))));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    let problem = deployed.problem().expect("one");
    assert!(problem.message.starts_with("web-1: run_once `seed` ended with exit code 3; web-1 was not touched"));
    assert!(problem.message.ends_with("runs on no server, what was there before on web-1, web-2, web-3"));
    assert_eq!((problem.step, problem.output.len()), (Some(Step::RunOnce), 1));
    assert!(problem.hint.as_ref().is_some_and(|hint| hint.contains("no server was drained")));
    assert_eq!(deployed.ending.as_ref().expect("it began").outcome, "failed");
    untouched(&world);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(ran(&world), ["migrate web-1", "seed web-1", "seed web-1"]);
}

#[tokio::test(start_paused = true)]
async fn with_rollback_all_there_is_nothing_to_take_back() {
    let text = format!("{EXAMPLE}{ONCE}").replace("\"rollback\" ", "\"rollback-all\" ");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    world.with(|inner| inner.once_ends.insert("migrate".into(), Ok(None)));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("was not over by its limit and was ended by force"));
    assert_eq!(ran(&world), ["migrate web-1"]);
    untouched(&world);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_begun_is_refused_and_what_may_have_run_is_not_called_so() {
    let world = world().await;
    world.lie("web-1", crate::world::Lie::LockHeld);
    assert_eq!(exit(&world.deploy().await), Exit::Held);
    assert_eq!(ran(&world), Vec::<String>::new());
    let world = self::world().await;
    let lost = Err(ServerError::Lost("broken pipe".into()));
    world.with(|inner| inner.once_ends.insert("migrate".into(), lost));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("whether it was run is not known"));
    untouched(&world);
}

#[tokio::test(start_paused = true)]
async fn it_is_not_run_twice_for_one_release_and_never_by_a_rollback() {
    let world = world().await;
    let failing = crate::world::Lie::AnswersOldVersion;
    world.lie("web-1", failing);
    assert_eq!(exit(&world.deploy().await), Exit::Undone);
    world.with(|inner| inner.honest("web-1"));
    assert_eq!(exit(&world.deploy().await), Exit::Done);
    assert_eq!(ran(&world), ["migrate web-1", "seed web-1"]);
    let back = Options { skip_once: true, ..Options::default() };
    let other = self::world().await;
    let deployed = other.carry_out(Source::OnDisk(ReleaseId::new(NEW)), back, |_| {}).await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(ran(&other), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn one_whose_end_nobody_wrote_down_is_looked_after_where_it_was_begun() {
    let world = world().await;
    let only = Options { servers: Some(vec!["web-3".into()]), ..Options::default() };
    world.with(|inner| inner.once_ends.insert("migrate".into(), Err(ServerError::Lost("gone".into()))));
    assert_eq!(exit(&world.deploy_with(only, |_| {}).await), Exit::Undone);
    assert_eq!(exit(&world.deploy().await), Exit::Done);
    assert_eq!(ran(&world), ["migrate web-3", "migrate web-3", "seed web-3"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_waits_for_its_end_and_begins_no_server() {
    let world = world().await;
    let (clock, running) = (world.clock, world.clone());
    let interrupting = |interrupt: &tokio::sync::watch::Sender<u32>| {
        let interrupt = interrupt.clone();
        tokio::spawn(async move {
            while running.with(|inner| inner.once.is_empty()) {
                clock.sleep(Duration::from_millis(100)).await;
            }
            interrupt.send_modify(|count| *count += 1);
        });
    };
    let deployed = world.deploy_with(Options::default(), interrupting).await;
    assert_eq!(exit(&deployed), Exit::Interrupted, "{}", message(&deployed));
    assert_eq!(ran(&world), ["migrate web-1"]);
    untouched(&world);
    // It ended well, and is not run again.
    assert_eq!(exit(&world.deploy().await), Exit::Done);
    assert_eq!(ran(&world), ["migrate web-1", "seed web-1"]);
}

#[test]
fn the_plan_shows_it_and_the_second_reader_wants_it_whole() {
    let fleet = migrates();
    let options = Options { offline: true, ..Options::default() };
    let plan = plan(&fleet, &offline_snapshot(&fleet), None, &options).expect("planned");
    let once = plan.once.clone().expect("some");
    let steps: Vec<Step> = once.server.steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [Step::Lock, Step::RunOnce, Step::RunOnce, Step::Unlock]);
    let text = handover::report::plan_text(&plan);
    assert!(text.contains("once, on web-1: migrate in api: ./manage.py migrate (at most 10m)"), "{text}");
    assert_eq!(check(&fleet, &plan), []);
    let mut broken = plan.clone();
    broken.once.as_mut().expect("some").server.steps.remove(1);
    assert_eq!(check(&fleet, &broken).len(), 1);
}
