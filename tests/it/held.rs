//! Deploys behind a gateway that holds, in virtual time: a fleet of one never leaves rotation, nothing stops while a request is under
//! way behind the gateway, and the gateway itself comes last.

use crate::world::{Lie, OLD, World, exit, fleet, message};
use handover::diag::Exit;
use handover::fleet::model::{Fleet, ReleaseId};
use handover::fleet::plan::{Options, Step, check, offline_snapshot, plan};
use handover::report::plan_text;
use std::time::Duration;

/// The example with its gateway in front of one server.
fn one_server(hold: &str) -> String {
    let text = std::fs::read_to_string("deploy.toml").expect("the example");
    let first = text.find("[[server]]").expect("servers");
    let rest = text[first..].find("\n\n").map(|end| first + end).expect("the first one ends");
    let after = text.find("\n[watchdog]").expect("a watchdog");
    let text = format!("{}{}{}", &text[..first], &text[first..rest], &text[after..]);
    let drain = text.find("[drain]").expect("a drain");
    let end = drain + text[drain..].find("\n\n").expect("it ends");
    let text = format!("{}[drain]\nby = \"hold\"\nmax = \"10s\"\nhold = {{ {hold} }}{}", &text[..drain], &text[end..]);
    text.replace("port   = 8080", "port   = 8000")
        .replace("group    = \"mythex-api\"\n", "")
        .replace("name     = \"gateway\"\n", "name     = \"gateway\"\ngroup    = \"mythex-api\"\n")
}

fn gateway() -> Fleet {
    fleet(&one_server("service = \"gateway\""))
}

fn changes(world: &World) -> Vec<String> {
    let changes = ["flip", "stop", "start", "switch", "handover", "unlock"];
    world.requests("web-1").into_iter().filter(|request| changes.contains(&request.as_str())).collect()
}

fn gateway_runs(world: &World) -> Option<ReleaseId> {
    world.gateway("web-1")
}

#[track_caller]
fn nothing_lost(world: &World) {
    assert_eq!(world.with(|inner| (inner.nowhere, inner.violations.clone())), (0, Vec::new()));
    assert!(world.longest_hold("web-1") < Duration::from_secs(85), "{:?}", world.longest_hold("web-1"));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_one_is_deployed_to_and_its_gateway_comes_last() {
    let world = World::new(gateway(), 3, |_| {}).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    nothing_lost(&world);
    assert_eq!(changes(&world), ["flip", "stop", "start", "switch", "flip", "handover", "unlock"]);
    assert_eq!(world.state("web-1"), "current new, runs new");
    assert!(gateway_runs(&world).is_some_and(|runs| runs.as_str() != OLD));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_of_somebody_else_is_left_alone() {
    let text =
        one_server("told = \"http://127.0.0.1:9180/hold\"").replace("127.0.0.1:8000/health", "127.0.0.1:8001/health");
    let world = World::new(fleet(&text), 3, |_| {}).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    nothing_lost(&world);
    assert_eq!(changes(&world), ["flip", "stop", "start", "switch", "flip", "unlock"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_calls_the_deploy_off_and_nothing_is_stopped() {
    let world = World::new(gateway(), 3, |_| {}).await;
    world.lie("web-1", Lie::NeverQuiet);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("still answered by what is to be stopped"), "{}", message(&deployed));
    assert!(message(&deployed).contains("requests go through again"), "{}", message(&deployed));
    nothing_lost(&world);
    assert_eq!(changes(&world), ["flip", "flip", "unlock"]);
    assert_eq!(world.state("web-1"), "current old, runs old");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_verified_is_taken_back_behind_the_hold() {
    for lie in [Lie::AnswersOldVersion, Lie::RestartLoop, Lie::UpOldImage, Lie::SwitchDoesNothing] {
        let world = World::new(gateway(), 3, |_| {}).await;
        world.lie("web-1", lie);
        let deployed = world.deploy().await;
        assert_eq!(exit(&deployed), Exit::Undone, "{lie:?}: {}", message(&deployed));
        assert_eq!(world.with(|inner| inner.violations.clone()), Vec::<String>::new(), "{lie:?}");
        assert_eq!(world.state("web-1"), "current old, runs old", "{lie:?}");
        assert_eq!(gateway_runs(&world), Some(ReleaseId::new(OLD)), "{lie:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_take_over_takes_everything_back_with_it() {
    let world = World::new(gateway(), 3, |_| {}).await;
    world.lie("web-1", Lie::HandOverFails);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    nothing_lost(&world);
    let way = ["flip", "stop", "start", "switch", "flip", "handover"];
    let back = ["flip", "stop", "start", "switch", "flip", "handover", "unlock"];
    assert_eq!(changes(&world), [&way[..], &back[..]].concat());
    assert_eq!(world.state("web-1"), "current old, runs old");
}

/// Nobody is served, so nobody is held, and the deploy is the way out.
#[tokio::test(start_paused = true)]
async fn a_server_whose_gateway_is_down_is_deployed_to_all_the_same() {
    let world = World::new(gateway(), 3, |_| {}).await;
    world.loses_its_gateway("web-1");
    world.clock.sleep(Duration::from_secs(60)).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(changes(&world), ["stop", "start", "switch", "handover", "unlock"]);
    assert!(gateway_runs(&world).is_some_and(|runs| runs.as_str() != OLD));
}

/// Whoever answers holds, also where the service's own container has ended.
#[tokio::test(start_paused = true)]
async fn a_server_on_which_a_renewal_was_left_half_done_is_held_like_any_other() {
    let world = World::new(gateway(), 3, |_| {}).await;
    world.dies_in_a_renewal("web-1");
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    nothing_lost(&world);
    assert_eq!(changes(&world), ["flip", "stop", "start", "switch", "flip", "handover", "unlock"]);
    assert!(gateway_runs(&world).is_some_and(|runs| runs.as_str() != OLD));
}

/// What is behind it serves, and is not held for the sake of an old gateway.
#[tokio::test(start_paused = true)]
async fn a_gateway_that_cannot_be_handed_back_needs_a_hand_and_holds_nobody() {
    let world = World::new(gateway(), 3, |_| {}).await;
    world.lie("web-1", Lie::HandOverFails).lie("web-1", Lie::HandBackFails);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    nothing_lost(&world);
    assert_eq!(world.state("web-1"), "current old, runs old", "and is not drained");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_at_any_moment_holds_nobody_afterwards() {
    for after in (0..40).map(Duration::from_secs) {
        let world = World::new(gateway(), 3, |_| {}).await;
        let deployed = world
            .deploy_with(Options::default(), |interrupt| {
                let (interrupt, clock) = (interrupt.clone(), world.clock);
                tokio::spawn(async move {
                    clock.sleep(after).await;
                    interrupt.send_replace(1);
                    std::future::pending::<()>().await;
                });
            })
            .await;
        assert!(matches!(exit(&deployed), Exit::Interrupted | Exit::Done), "{after:?}: {}", message(&deployed));
        nothing_lost(&world);
        let state = world.state("web-1");
        assert!(["current old, runs old", "current new, runs new"].contains(&state.as_str()), "{after:?}: {state}");
        let runs = gateway_runs(&world).expect("a gateway");
        assert!(
            state.contains(if runs.as_str() == OLD { "runs old" } else { "runs new" }),
            "{after:?}: {state}, {runs}"
        );
    }
}

#[test]
fn the_plan_says_how_long_a_request_may_wait_and_its_second_reader_wants_every_step() {
    let fleet = gateway();
    let options = Options { offline: true, ..Options::default() };
    let made = plan(&fleet, &offline_snapshot(&fleet), None, &options).expect("a plan");
    assert_eq!(check(&fleet, &made), []);
    let text = plan_text(&made);
    assert!(text.contains("the gateway holds every request") && text.contains("1m25s at most"), "{text}");
    for missing in [Step::Flip, Step::Out, Step::Back, Step::In, Step::HandOver] {
        let mut broken = made.clone();
        broken.batches[0][0].steps.retain(|step| step.step != missing);
        assert!(!check(&fleet, &broken).is_empty(), "{missing}");
    }
}

#[test]
fn what_would_wait_for_itself_is_refused() {
    let text =
        one_server("service = \"gateway\"").replace("http://127.0.0.1:8090/health", "http://127.0.0.1:8000/jobs");
    let sources = handover::config::Source::new("deploy.toml", &text);
    let refused = handover::config::from_sources(&sources, None).expect_err("it would never be verified").to_string();
    assert!(refused.contains("holds every request meanwhile"), "{refused}");
}
