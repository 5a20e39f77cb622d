//! Deploys to servers on which a backend sleeps, in virtual time: it is renewed, verified awake, and asleep again at the end.

use crate::world::{Lie, OLD, World, exit, fleet, message};
use handover::diag::Exit;
use handover::fleet::plan::{Options, Step, check, offline_snapshot, plan};
use handover::report::plan_text;
use handover::rollout::{Deployed, Source};

const EXAMPLE: &str = include_str!("../../deploy.toml");
const SLEEPER: &str = "publish-worker";

async fn asleep(text: &str) -> World {
    let world = World::new(fleet(text), 3, |_| {}).await;
    world.sleeps(SLEEPER);
    world
}

/// A fleet whose gateway may let something sleep.
fn with_gateway() -> String {
    format!(
        "{EXAMPLE}\n[gateway]\nlisten = \"127.0.0.1:8000\"\nmetrics = \"127.0.0.1:9180\"\n\n[[gateway.host]]\n\
         name = \"cms.example.org\"\nbackend = \"http://127.0.0.1:9000\"\nsleep = {{ services = [\"{SLEEPER}\"], after = \"30m\" }}\n"
    )
}

fn told(world: &World, what: &str) -> bool {
    world.events.lock().expect("events").iter().any(|line| format!("{line:?}").contains(what))
}

/// What was asked of a server from the start on.
fn after_the_start(world: &World, server: &str) -> Vec<String> {
    let changes = ["start", "switch", "sleep", "flip", "unlock"];
    let requests = world.requests(server).into_iter().filter(|request| changes.contains(&request.as_str()));
    requests.skip_while(|request| request != "start").collect()
}

#[track_caller]
fn all_asleep(world: &World, deployed: &Deployed, code: Exit) {
    assert_eq!(exit(deployed), code, "{}", message(deployed));
    assert_eq!(world.roused(), [""; 0]);
    assert_eq!(world.with(|inner| (inner.nowhere, inner.violations.clone())), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn what_sleeps_is_renewed_verified_awake_and_asleep_again_before_the_server_comes_back() {
    let world = asleep(EXAMPLE).await;
    let deployed = world.deploy().await;
    all_asleep(&world, &deployed, Exit::Done);
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current new, runs new");
        assert_eq!(after_the_start(&world, server), ["start", "switch", "sleep", "flip", "unlock"], "{server}");
    }
    assert!(told(&world, "step: Sleep"), "the events name the step");
    assert!(told(&world, "4 services, 1 of them asleep"), "the look at the whole fleet leaves it asleep");
}

#[test]
fn the_plan_says_so_and_its_second_reader_wants_the_step() {
    let fleet = fleet(&with_gateway());
    let options = Options { offline: true, ..Options::default() };
    let mut plan = plan(&fleet, &offline_snapshot(&fleet), None, &options).expect("a plan");
    let server = &mut plan.batches[0][0];
    server.asleep.insert(SLEEPER.into(), "nobody needed it for 30m".to_owned());
    let says =
        "publish-worker sleeps (nobody needed it for 30m): it is renewed, woken to be verified, and asleep again";
    let text = plan_text(&plan);
    assert!(text.contains(says), "{text}");
    assert_eq!(check(&fleet, &plan), []);
    plan.batches[0][0].steps.retain(|step| step.step != Step::Sleep);
    let notes = check(&fleet, &plan);
    assert!(notes.iter().any(|note| note.what == "would leave awake what sleeps"), "{notes:?}");
}

/// No server comes back before what slept is off again: the floor without it would blame a run for what it cannot leave out.
#[tokio::test(start_paused = true)]
async fn putting_back_to_sleep_counts_for_the_floor_as_it_was_seen() {
    let world = asleep(EXAMPLE).await;
    let with = world.deploy().await.ending.expect("ended");
    let parts: Vec<f64> = with.took.iter().filter_map(|(_, took)| took.sleep).collect();
    assert!(parts.len() == 3 && parts.iter().all(|took| (4.0..5.0).contains(took)), "{parts:?}");
    assert!((with.floor.sleep - parts.iter().sum::<f64>()).abs() < 0.001, "one server at a time: {:?}", with.floor);
    let without = World::new(fleet(EXAMPLE), 3, |_| {}).await.deploy().await.ending.expect("ended");
    assert_eq!((without.floor.sleep, without.took[0].1.sleep), (0.0, None));
    let longer = with.seconds - without.seconds;
    assert!(longer > 8.0, "it is waited for: {longer} s");
    let grown = with.floor.seconds() - without.floor.seconds();
    assert!((grown - with.floor.sleep).abs() < 1.0, "{grown}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_runs_the_release_and_lets_something_sleep_is_left_alone() {
    let world = asleep(EXAMPLE).await;
    let deployed = world.deploy().await;
    all_asleep(&world, &deployed, Exit::Done);
    let requests = world.requests("web-1").len();
    let again = world.deploy().await;
    all_asleep(&world, &again, Exit::Done);
    assert_eq!(again.ending.expect("ended").outcome, "unchanged");
    assert!(!world.requests("web-1")[requests..].contains(&"start".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_sleeps_must_pass_awake_or_the_release_does_not_stay() {
    let world = asleep(EXAMPLE).await;
    world.lie("web-1", Lie::AnswersOldVersion);
    let deployed = world.deploy().await;
    all_asleep(&world, &deployed, Exit::Undone);
    assert_eq!(world.state("web-1"), "current old, runs old", "rolled back");
    let asked = after_the_start(&world, "web-1");
    assert_eq!(asked.iter().filter(|request| *request == "sleep").count(), 1, "after the way back: {asked:?}");
    assert_eq!(world.state("web-2"), "current old, runs old");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_leaves_it_asleep_too() {
    let world = asleep(EXAMPLE).await;
    all_asleep(&world, &world.deploy().await, Exit::Done);
    let back = world.carry_out(Source::OnDisk(OLD.into()), Options::default(), |_| {}).await;
    all_asleep(&world, &back, Exit::Done);
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current old, runs old");
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_taken_back_leave_it_asleep() {
    let world = asleep(&EXAMPLE.replace("\"rollback\"", "\"rollback-all\"")).await;
    world.lie("web-3", Lie::Unreachable);
    let deployed = world.deploy().await;
    all_asleep(&world, &deployed, Exit::Undone);
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current old, runs old");
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_go_back_to_sleep_is_told_and_undoes_nothing() {
    let world = asleep(EXAMPLE).await;
    world.lie("web-2", Lie::StaysAwake);
    world.with(|inner| inner.trouble.refuses.insert(("web-3".into(), "sleep")));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(world.roused(), ["web-2", "web-3"]);
    assert!(told(&world, "what slept is awake now: web-2-publish-worker-1 still runs"));
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current new, runs new");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_comes_back_from_a_drain_without_waking_anything() {
    let world = asleep(EXAMPLE).await;
    assert_eq!(exit(&world.drain("web-2").await), Exit::Done);
    let back = world.undrain("web-2").await;
    all_asleep(&world, &back, Exit::Done);
    assert!(!world.requests("web-2").contains(&"start".to_owned()));
}

/// A gateway that may let something sleep may do so after the servers were looked at.
#[tokio::test(start_paused = true)]
async fn what_falls_asleep_before_its_servers_turn_is_asleep_again_too() {
    let fleet = fleet(&with_gateway());
    let world = World::new(fleet, 3, |_| {}).await;
    let (falls, clock) = (world.clone(), world.clock);
    tokio::spawn(async move {
        clock.sleep(std::time::Duration::from_secs(20)).await;
        falls.sleeps(SLEEPER);
    });
    let deployed = world.deploy().await;
    all_asleep(&world, &deployed, Exit::Done);
    assert!(world.with(|inner| inner.served > 0));
}
