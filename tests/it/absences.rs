//! Servers that leave rotation and come back, in virtual time: by the proofs of a deploy, and undone like one.

use crate::world::{Lie, World, drained, exit, fleet, message, only};
use handover::diag::Exit;
use handover::event::ServerOutcome;
use handover::fleet::model::Fleet;
use handover::fleet::plan::Options;
use handover::rollout::Source;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../deploy.toml");
const OUT: &str = "current old, runs old, drained, absent";
const IN: &str = "current old, runs old";

fn example() -> Fleet {
    fleet(EXAMPLE)
}

fn by(way: &str) -> Fleet {
    let text = EXAMPLE.replace("by     = \"file\"", &format!("by     = \"{way}\"\nunverified_return = true"));
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("file   = ")).collect();
    fleet(&text.join("\n"))
}

fn by_http() -> Fleet {
    let way =
        "http\"\nhttp   = { drain = \"http://127.0.0.1:8080/drain\", undrain = \"http://127.0.0.1:8080/undrain\" }\n#";
    by(way)
}

#[track_caller]
fn nothing_lost(world: &World) {
    let (served, nowhere, violations) = world.with(|inner| (inner.served, inner.nowhere, inner.violations.clone()));
    assert!(served > 500, "only {served} requests");
    assert_eq!((nowhere, violations), (0, Vec::new()), "of {served}");
}

#[track_caller]
fn ended(deployed: &handover::rollout::Deployed, code: Exit, outcome: &str) {
    assert_eq!(exit(deployed), code, "{}", message(deployed));
    assert_eq!(deployed.ending.as_ref().map(|ending| ending.outcome).unwrap_or("refused"), outcome);
}

fn told(world: &World, what: &str) -> bool {
    world.events.lock().expect("events").iter().any(|line| format!("{line:?}").contains(what))
}

#[tokio::test(start_paused = true)]
async fn a_drained_server_runs_on_out_of_rotation_until_it_is_undrained() {
    for fleet in [example(), by("deregister"), by_http()] {
        let world = World::new(fleet, 3, |_| {}).await;
        let deployed = world.drain("web-2").await;
        ended(&deployed, Exit::Done, "drained");
        assert_eq!(deployed.ending.expect("began").each[&"web-2".into()], ServerOutcome::Drained);
        assert!(!world.may_be_picked(&"web-2".into()));
        assert!(world.state("web-2").contains("runs old") && world.state("web-2").contains("absent"));
        let absence = world.looks(&"web-2".into()).absence.expect("absent");
        assert_eq!((absence.reason.as_str(), absence.ends_when_verified), ("disk", false));
        assert!(!world.requests("web-2").iter().any(|request| request == "stop" || request == "start"));
        world.clock.sleep(Duration::from_secs(60)).await;
        let deployed = world.undrain("web-2").await;
        ended(&deployed, Exit::Done, "undrained");
        assert_eq!(world.state("web-2"), IN);
        world.clock.sleep(Duration::from_secs(30)).await;
        assert!(world.may_be_picked(&"web-2".into()));
        for other in ["web-1", "web-3"] {
            assert!(!world.requests(other).contains(&"flip".to_owned()));
            assert_eq!(world.state(other), IN, "the deploy lock is free");
        }
        nothing_lost(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_way_that_dies_with_the_process_is_said_to_do_so() {
    let world = World::new(by_http(), 2, |_| {}).await;
    ended(&world.drain("web-1").await, Exit::Done, "drained");
    assert!(told(&world, "dies with the app's processes"));
}

#[tokio::test(start_paused = true)]
async fn an_app_that_leaves_rotation_only_by_stopping_cannot_be_drained() {
    let world = World::new(by("sigterm"), 2, |_| {}).await;
    let deployed = world.drain("web-1").await;
    ended(&deployed, Exit::Refused, "refused");
    assert!(message(&deployed).contains("by stopping it"), "{}", message(&deployed));
    assert!(deployed.problem().and_then(|p| p.hint.clone()).is_some_and(|hint| hint.contains("file")));
    assert_eq!(world.state("web-1"), IN);
}

#[tokio::test(start_paused = true)]
async fn each_proof_of_a_drain_that_fails_has_the_server_flipped_back() {
    for (lie, code) in [
        (Lie::HalfFlips, Exit::Undone),
        (Lie::RealRefused, Exit::Undone),
        (Lie::DiesDrained, Exit::Undone),
        (Lie::LockHeld, Exit::Held),
    ] {
        let world = World::new(example(), 2, |_| {}).await;
        world.lie("web-1", lie);
        let deployed = world.drain("web-1").await;
        assert_eq!(exit(&deployed), code, "{lie:?}: {}", message(&deployed));
        assert_eq!(world.state("web-1"), IN, "{lie:?}");
        assert!(!message(&deployed).contains("runs on web"), "no release was brought: {}", message(&deployed));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_one_is_drained_only_by_who_says_that_requests_may_be_lost() {
    let mut fleet = example();
    fleet.servers.truncate(2);
    let world = World::new(fleet, 2, |_| {}).await;
    ended(&world.drain("web-1").await, Exit::Done, "drained");
    let deployed = world.drain("web-2").await;
    ended(&deployed, Exit::Refused, "refused");
    assert!(message(&deployed).contains("1 healthy, 1 would leave, 1 must stay"), "{}", message(&deployed));
    nothing_lost(&world);
    let options = Options { allow_downtime: true, ..only("web-2") };
    let deployed = world.carry_out(Source::Drain(drained("moving")), options, |_| {}).await;
    ended(&deployed, Exit::Done, "drained");
    assert_eq!(world.state("web-2"), OUT);
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_breaks_meanwhile_has_the_server_flipped_back() {
    let mut fleet = example();
    fleet.servers.truncate(2);
    let world = World::new(fleet, 2, |_| {}).await;
    let breaks = world.clock.now().since_start() + Duration::from_secs(8);
    world.with(|inner| inner.trouble.breaks = Some(("web-2".into(), breaks)));
    let deployed = world.drain("web-1").await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), IN);
}

#[tokio::test(start_paused = true)]
async fn draining_what_is_out_already_says_so_and_writes_the_record_anew() {
    for ends_when_verified in [false, true] {
        let world = World::new(example(), 2, |_| {}).await;
        world.out("web-1", ends_when_verified);
        world.clock.sleep(Duration::from_secs(30)).await;
        let again = handover::fleet::model::Absence { until: Some(7), ..drained("the other disk") };
        let deployed = world.carry_out(Source::Drain(again.clone()), only("web-1"), |_| {}).await;
        ended(&deployed, Exit::Done, "drained");
        assert!(told(&world, "was left out already (before)"));
        assert_eq!(world.looks(&"web-1".into()).absence, Some(again));
        assert!(!world.may_be_picked(&"web-1".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_server_that_serves_all_the_same_does_not_spare_it_the_proofs() {
    let world = World::new(example(), 2, |_| {}).await;
    world.with(|inner| inner.absent("web-1", drained("before the reboot")));
    ended(&world.drain("web-1").await, Exit::Done, "drained");
    assert_eq!(world.state("web-1"), OUT);
    assert!(!world.may_be_picked(&"web-1".into()));
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn undraining_what_is_in_rotation_says_so_and_touches_nothing() {
    let world = World::new(example(), 2, |_| {}).await;
    let deployed = world.undrain("web-1").await;
    ended(&deployed, Exit::Done, "unchanged");
    assert!(told(&world, "is in rotation"));
    assert!(!world.requests("web-1").iter().any(|request| request == "lock" || request == "flip"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_verified_stays_out_with_the_record_that_it_had() {
    for (lie, step) in [(Lie::AnswersOldVersion, "verify"), (Lie::Unreachable, "in")] {
        let world = World::new(example(), 2, |_| {}).await;
        ended(&world.deploy().await, Exit::Done, "deployed");
        ended(&world.drain("web-1").await, Exit::Done, "drained");
        world.lie("web-1", lie);
        let deployed = world.undrain("web-1").await;
        ended(&deployed, Exit::Undone, "rolled_back");
        let problem = deployed.problem().cloned().expect("a problem");
        assert_eq!(problem.step.map(|step| step.to_string()).as_deref(), Some(step), "{}", problem.message);
        assert!(problem.message.contains("stays out of rotation"), "{}", problem.message);
        assert_eq!(world.state("web-1"), "current new, runs new, drained, absent", "{lie:?}");
        assert_eq!(world.looks(&"web-1".into()).absence, Some(drained("disk")));
        world.with(|inner| inner.honest("web-1"));
        ended(&world.undrain("web-1").await, Exit::Done, "undrained");
        assert_eq!(world.state("web-1"), "current new, runs new");
        nothing_lost(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_ends_what_a_failed_rollback_left() {
    let world = World::new(example(), 2, |_| {}).await;
    world.lie("web-1", Lie::AnswersOldVersion).lie("web-1", Lie::RollbackFails);
    assert_eq!(exit(&world.deploy().await), Exit::NeedsHand);
    let deployed = world.undrain("web-1").await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(world.state("web-1").contains("absent"));
    world.with(|inner| {
        inner.honest("web-1");
        inner.by_hand(&"web-1".into(), true, true);
    });
    let deployed = world.undrain("web-1").await;
    ended(&deployed, Exit::Done, "undrained");
    assert!(told(&world, "was left out by a deploy that failed"));
    assert_eq!(world.state("web-1"), IN);
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn a_deploy_renews_a_drained_server_and_leaves_it_out() {
    for fleet in [example(), by("deregister"), by_http()] {
        let world = World::new(fleet, 2, |_| {}).await;
        ended(&world.drain("web-3").await, Exit::Done, "drained");
        ended(&world.deploy().await, Exit::Done, "deployed");
        assert!(world.state("web-3").starts_with("current new, runs new"), "{}", world.state("web-3"));
        assert_eq!(world.looks(&"web-3".into()).absence, Some(drained("disk")));
        assert!(!world.may_be_picked(&"web-3".into()));
        let stops = |world: &World| world.requests("web-3").iter().filter(|request| *request == "stop").count();
        let before = stops(&world);
        ended(&world.deploy().await, Exit::Done, "unchanged");
        assert_eq!(stops(&world), before);
        ended(&world.undrain("web-3").await, Exit::Done, "undrained");
        assert_eq!(world.state("web-3"), "current new, runs new");
        nothing_lost(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_written_has_the_server_flipped_back() {
    let world = World::new(example(), 2, |_| {}).await;
    world.with(|inner| inner.trouble.refuses.insert(("web-1".into(), "absent")));
    let deployed = world.drain("web-1").await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), IN, "nobody would know that it is to stay out");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_at_any_moment_leaves_a_server_in_or_out_and_never_between() {
    for (source, before) in [(Source::Drain(drained("disk")), IN), (Source::Undrain, OUT)] {
        let mut interrupted = 0;
        for moment in 0..60 {
            let world = World::new(example(), 2, |_| {}).await;
            if before == OUT {
                ended(&world.drain("web-1").await, Exit::Done, "drained");
            }
            let clock = world.clock;
            let deployed = world
                .carry_out(source.clone(), only("web-1"), |interrupt| {
                    let interrupt = interrupt.clone();
                    tokio::spawn(async move {
                        clock.sleep(Duration::from_millis(2300 * moment)).await;
                        interrupt.send_replace(1);
                        std::future::pending::<()>().await;
                    });
                })
                .await;
            world.clock.sleep(Duration::from_secs(60)).await;
            let state = world.state("web-1");
            assert!([IN, OUT].contains(&state.as_str()), "at {moment}: {state}");
            assert_eq!(world.may_be_picked(&"web-1".into()), state == IN, "at {moment}");
            nothing_lost(&world);
            if exit(&deployed) == Exit::Done {
                break;
            }
            interrupted += 1;
            assert_eq!(exit(&deployed), Exit::Interrupted, "at {moment}: {}", message(&deployed));
        }
        assert!(interrupted > 8, "only {interrupted} moments were tried");
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_cut_at_any_moment_leaves_a_server_in_or_out_and_never_between() {
    for (source, before) in [(Source::Drain(drained("disk")), IN), (Source::Undrain, OUT)] {
        for moment in 0..22 {
            let world = World::new(example(), 2, |_| {}).await;
            if before == OUT {
                ended(&world.drain("web-1").await, Exit::Done, "drained");
            }
            let at = world.clock.now().since_start() + Duration::from_millis(2300 * moment);
            world.with(|inner| inner.trouble.cut = Some(("web-1".into(), at)));
            let deployed = world.carry_out(source.clone(), only("web-1"), |_| {}).await;
            world.clock.sleep(Duration::from_secs(120)).await;
            let state = world.state("web-1");
            assert!([IN, OUT].contains(&state.as_str()), "cut at {at:?}: {state}, {}", message(&deployed));
            assert_eq!(world.may_be_picked(&"web-1".into()), state == IN, "cut at {at:?}");
            nothing_lost(&world);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_targets_is_marked_and_brought_back() {
    let mut fleet = example();
    fleet.servers[2].targets.clear();
    let world = World::new(fleet, 2, |_| {}).await;
    ended(&world.drain("web-3").await, Exit::Done, "drained");
    assert_eq!(world.state("web-3"), "current old, runs old, absent");
    ended(&world.undrain("web-3").await, Exit::Done, "undrained");
    assert_eq!(world.state("web-3"), IN);
}
