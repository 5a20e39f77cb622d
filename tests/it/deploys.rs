//! Whole deploys in virtual time: the engine that runs in production, over a world that can lie.

use crate::world::{Lie, NEW, World, exit, fleet, last_merges, message};
use handover::diag::Exit;
use handover::fleet::model::{Fleet, ReleaseId, TargetState, TargetView};
use handover::fleet::plan::Options;
use handover::rollout::port::{Balancer, Server};
use handover::server::wire::Request;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../deploy.toml");

fn example() -> Fleet {
    fleet(EXAMPLE)
}

#[track_caller]
fn nothing_lost(world: &World) {
    let (served, nowhere, violations) = world.with(|inner| (inner.served, inner.nowhere, inner.violations.clone()));
    assert!(served > 1000, "only {served} requests");
    assert_eq!(nowhere, 0, "of {served}");
    assert_eq!(violations, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn three_servers_get_the_new_release_and_no_request_is_lost() {
    for nodes in [1, 2, 3, 6] {
        let world = World::new(example(), nodes, |_| {}).await;
        let deployed = world.deploy().await;
        let ending = deployed.ending.as_ref().expect("it began");
        assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
        assert_eq!(ending.outcome, "deployed");
        for server in ["web-1", "web-2", "web-3"] {
            assert_eq!(world.state(server), "current new, runs new");
        }
        nothing_lost(&world);
        let ratio = ending.seconds / ending.floor.seconds();
        assert!(ratio <= 1.10, "{nodes} nodes: {} s against {:?} = {ratio}", ending.seconds, ending.floor);
        assert_eq!(world.with(|inner| inner.lowest_serving), 2);
        assert!(world.with(|inner| inner.trouble.busiest) <= 1, "more than one question a second");
    }
}

#[tokio::test(start_paused = true)]
async fn whichever_node_the_api_believes_no_request_is_lost() {
    for seed in 0..20 {
        for last in [false, true] {
            let world = World::new(example(), 2, |spec| {
                spec.seed = seed;
                spec.jitter = 0.05;
                spec.api_lag = Duration::from_secs(seed % 4);
                if last {
                    last_merges(spec);
                }
            })
            .await;
            let deployed = world.deploy().await;
            assert_eq!(exit(&deployed), Exit::Done, "seed {seed}: {}", message(&deployed));
            nothing_lost(&world);
        }
    }
}

/// The deployer that flips, believes the first `unhealthy` and stops.
async fn hasty(world: &World) -> Result<(), Box<dyn std::error::Error>> {
    let ports = world.ports();
    let group = example().balancer.groups[0].name.clone();
    for (server, port) in &ports.servers {
        let id = example().server(server).expect("server").targets[&group][0].id.clone();
        port.call(Request::Flip { drained: true }).await?;
        let is = |views: &[TargetView], state| views.iter().any(|view| view.id == id && view.state == state);
        while !is(&ports.balancer.health(&group).await?, TargetState::Unhealthy) {
            world.clock.sleep(Duration::from_secs(1)).await;
        }
        port.call(Request::Stop).await?;
        port.call(Request::Start { release: ReleaseId::new(NEW) }).await?;
        port.call(Request::Flip { drained: false }).await?;
        while !is(&ports.balancer.health(&group).await?, TargetState::Healthy) {
            world.clock.sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_deployer_that_believes_the_first_unhealthy_loses_requests_and_ours_does_not() {
    let mut lost = 0;
    for seed in 0..5 {
        let world = World::new(example(), 3, |spec| spec.seed = seed).await;
        hasty(&world).await.expect("it does as it likes");
        lost += world.with(|inner| inner.nowhere);
        assert!(
            world.with(|inner| !inner.violations.is_empty()),
            "seed {seed}: it stopped only what no node would pick"
        );
        let world = World::new(example(), 3, |spec| spec.seed = seed).await;
        assert_eq!(exit(&world.deploy().await), Exit::Done);
        nothing_lost(&world);
    }
    assert!(lost > 0, "the lab cannot tell a careful deployer from a hasty one");
}

#[tokio::test(start_paused = true)]
async fn one_server_per_zone_with_cross_zone_off_is_refused_before_anything_is_touched() {
    let text = EXAMPLE.replace("port   = 8080\n", "port   = 8080\ncross_zone = false\n");
    let world = World::new(fleet(&text), 3, |_| {}).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Refused, "{}", message(&deployed));
    assert!(message(&deployed).contains("1 healthy, 1 would leave, 1 must stay"), "{}", message(&deployed));
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current old, runs old");
        assert!(!world.requests(server).contains(&"stop".to_owned()));
    }
    nothing_lost_of_few(&world);
}

#[track_caller]
fn nothing_lost_of_few(world: &World) {
    assert_eq!(world.with(|inner| (inner.nowhere, inner.violations.clone())), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_fails_during_the_drain_has_the_drained_server_flipped_back() {
    let world = World::new(two_servers(), 2, |_| {}).await;
    let breaks = world.clock.now().since_start() + Duration::from_secs(8);
    world.with(|inner| inner.trouble.breaks = Some(("web-2".into(), breaks)));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("would leave"), "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs old");
    assert!(!world.requests("web-1").contains(&"stop".to_owned()), "it was the last one");
}

fn two_servers() -> Fleet {
    let mut fleet = example();
    fleet.servers.truncate(2);
    fleet
}

#[tokio::test(start_paused = true)]
async fn a_throttled_api_is_waited_out_and_never_taken_for_a_yes() {
    let world = World::new(example(), 2, |_| {}).await;
    let until = world.clock.now().since_start() + Duration::from_secs(50);
    let begin = world.clock.now();
    let throttle = world.clone();
    tokio::spawn(async move {
        throttle.clock.sleep_until(begin + Duration::from_secs(3)).await;
        throttle.with(|inner| inner.trouble.throttled_until = Some(until));
    });
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_throttled_past_the_deadline_has_the_server_flipped_back() {
    let world = World::new(example(), 2, |_| {}).await;
    let throttle = world.clone();
    tokio::spawn(async move {
        throttle.clock.sleep(Duration::from_secs(3)).await;
        throttle.with(|inner| inner.trouble.throttled_until = Some(Duration::from_secs(100_000)));
    });
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("Rate exceeded"), "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs old");
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn access_that_is_given_back_during_the_way_back_proves_the_server_in() {
    // From the guard on to the return of a server that was stopped already: denied for 40 seconds.
    let mut ends = Vec::new();
    for at in 8..30 {
        let world = World::new(example(), 2, |_| {}).await;
        let from = world.clock.now().since_start() + Duration::from_secs(at);
        world.with(|inner| {
            inner.trouble.denied_from = Some(from);
            inner.trouble.denied_until = Some(from + Duration::from_secs(40));
        });
        let deployed = world.deploy().await;
        assert!(matches!(exit(&deployed), Exit::Undone | Exit::Done), "denied at {at}: {}", message(&deployed));
        world.clock.sleep(Duration::from_secs(60)).await;
        assert!(world.may_be_picked(&"web-1".into()), "denied at {at}");
        ends.push(world.state("web-1"));
    }
    assert!(ends.contains(&"current old, runs old".to_owned()), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn access_denied_in_the_middle_of_a_drain_puts_the_server_back_and_stops() {
    let world = World::new(example(), 2, |_| {}).await;
    let from = world.clock.now().since_start() + Duration::from_secs(4);
    world.with(|inner| inner.trouble.denied_from = Some(from));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("AccessDenied"), "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs old");
    assert_eq!(world.state("web-2"), "current old, runs old");
}

#[tokio::test(start_paused = true)]
async fn unhealthy_for_another_reason_than_our_503_is_not_taken_for_drained() {
    let world = World::new(example(), 2, |_| {}).await;
    world.lie("web-1", Lie::DiesDrained);
    let deployed = world.deploy().await;
    assert!(matches!(exit(&deployed), Exit::Undone | Exit::NeedsHand), "{}", message(&deployed));
    assert!(!world.requests("web-1").contains(&"stop".to_owned()));
    assert_eq!(world.state("web-2"), "current old, runs old");
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_of_two_with_one_failing_the_other_finishes_and_no_new_one_starts() {
    let text = EXAMPLE.replace("batch       = 1 ", "batch       = 2 ");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    world.lie("web-1", Lie::AnswersOldVersion);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs old");
    assert_eq!(world.state("web-2"), "current new, runs new");
    assert_eq!(world.state("web-3"), "current old, runs old");
    nothing_lost(&world);
}

/// Each proof of the handshake: the command succeeds, the proof fails, the undo follows.
#[tokio::test(start_paused = true)]
async fn every_proof_that_fails_although_the_command_succeeded_ends_in_its_undo() {
    let rows = [
        (Lie::HalfFlips, "web-1 flip Forward", Exit::Undone, "current old, runs old"),
        (Lie::RealRefused, "web-1 flip Forward", Exit::Undone, "current old, runs old"),
        (Lie::StopLeavesAlive, "web-1 stop Forward", Exit::Undone, "current old, runs old"),
        (Lie::UpOldImage, "web-1 start Forward", Exit::Undone, "current old, runs old"),
        (Lie::AnswersOldVersion, "web-1 verify Forward", Exit::Undone, "current old, runs old"),
        (Lie::RestartLoop, "web-1 verify Forward", Exit::Undone, "current old, runs old"),
        (Lie::SwitchDoesNothing, "web-1 switch Forward", Exit::Undone, "current old, runs old"),
        (Lie::StaysDrained, "web-1 back Forward", Exit::Undone, "current old, runs old"),
        (Lie::LockHeld, "web-1 lock Forward", Exit::Held, "current old, runs old"),
    ];
    for (lie, failed, expected, state) in rows {
        let world = World::new(example(), 2, |_| {}).await;
        world.lie("web-1", lie);
        let deployed = world.deploy().await;
        assert_eq!(world.failed_steps().first().map(String::as_str), Some(failed), "{lie:?}: {}", message(&deployed));
        assert_eq!(exit(&deployed), expected, "{lie:?}: {}", message(&deployed));
        assert_eq!(world.state("web-1"), state, "{lie:?}");
        for server in ["web-2", "web-3"] {
            assert_eq!(world.state(server), "current old, runs old", "{lie:?}");
        }
        nothing_lost_of_few(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_the_balancer_cannot_reach_is_rolled_back_from_the_last_step() {
    let world = World::new(example(), 2, |_| {}).await;
    world.lie("web-1", Lie::Unreachable);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs old");
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_fails_too_leaves_the_server_out_and_asks_for_a_hand() {
    let world = World::new(example(), 2, |_| {}).await;
    world.lie("web-1", Lie::AnswersOldVersion).lie("web-1", Lie::RollbackFails);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    let state = world.state("web-1");
    assert!(state.contains("drained") && state.contains("absent") && !state.contains("locked"), "{state}");
    let problem = deployed.ending.expect("it began").problem.expect("it failed");
    assert!(problem.hint.expect("a hint").contains("handover deploy --servers web-1"));
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn halt_leaves_the_failed_server_out_of_rotation() {
    let text = EXAMPLE.replace("on_failure  = \"rollback\"", "on_failure  = \"halt\"");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    world.lie("web-1", Lie::AnswersOldVersion);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs new, drained, absent");
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn rollback_all_takes_the_servers_before_it_back_too() {
    let text = EXAMPLE.replace("on_failure  = \"rollback\"", "on_failure  = \"rollback-all\"");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    world.lie("web-3", Lie::AnswersOldVersion);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current old, runs old", "{}", message(&deployed));
    }
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_left_out_comes_in_with_the_next_deploy() {
    let world = World::new(example(), 2, |_| {}).await;
    world.lie("web-1", Lie::AnswersOldVersion).lie("web-1", Lie::RollbackFails);
    drop(world.deploy().await);
    world.with(|inner| inner.honest("web-1"));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current new, runs new");
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_runs_the_release_is_left_alone() {
    let world = World::new(example(), 2, |_| {}).await;
    drop(world.deploy().await);
    let before = world.requests("web-1").iter().filter(|r| *r == "stop" || *r == "flip").count();
    let deployed = world.deploy().await;
    assert_eq!(deployed.ending.as_ref().expect("it began").outcome, "unchanged");
    assert_eq!(world.requests("web-1").iter().filter(|r| *r == "stop" || *r == "flip").count(), before);
}

#[tokio::test(start_paused = true)]
async fn an_empty_server_is_started_and_left_stopped_when_it_fails() {
    let world = World::new(example(), 2, |_| {}).await;
    world.empty("web-1");
    world.lie("web-1", Lie::AnswersOldVersion);
    world.clock.sleep(Duration::from_secs(30)).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("left stopped"), "{}", message(&deployed));
    assert!(world.state("web-1").starts_with("current none, runs none"), "{}", world.state("web-1"));
}

#[tokio::test(start_paused = true)]
async fn the_first_deploy_needs_to_be_called_so() {
    let world = World::new(example(), 2, |_| {}).await;
    for server in ["web-1", "web-2", "web-3"] {
        world.empty(server);
    }
    world.clock.sleep(Duration::from_secs(30)).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Refused);
    assert!(message(&deployed).contains("no target is healthy"), "{}", message(&deployed));
    let deployed = world.deploy_with(Options { first: true, ..Options::default() }, |_| {}).await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(world.state("web-3"), "current new, runs new");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_at_any_moment_leaves_the_fleet_serving_and_every_lock_free() {
    let mut interrupted = 0;
    for second in (0..).step_by(4) {
        let world = World::new(two_servers(), 2, |_| {}).await;
        let clock = world.clock;
        let deployed = world
            .deploy_with(Options::default(), |interrupt| {
                let interrupt = interrupt.clone();
                tokio::spawn(async move {
                    clock.sleep(Duration::from_secs(second)).await;
                    interrupt.send_replace(1);
                    std::future::pending::<()>().await;
                });
            })
            .await;
        if exit(&deployed) == Exit::Done {
            break;
        }
        interrupted += 1;
        assert_eq!(exit(&deployed), Exit::Interrupted, "at {second} s: {}", message(&deployed));
        for server in ["web-1", "web-2"] {
            let state = world.state(server);
            assert!(
                ["current old, runs old", "current new, runs new"].contains(&state.as_str()),
                "at {second} s: {server} {state}"
            );
        }
        world.clock.sleep(Duration::from_secs(60)).await;
        nothing_lost(&world);
    }
    assert!(interrupted > 25, "only {interrupted} moments were tried");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_asks_for_a_hand_and_says_what_the_agent_does() {
    let world = World::new(example(), 2, |_| {}).await;
    world.lie("web-1", Lie::LostAtStop);
    let deployed = world.deploy().await;
    assert!(matches!(exit(&deployed), Exit::Undone | Exit::NeedsHand), "{}", message(&deployed));
    assert_eq!(world.state("web-2"), "current old, runs old");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_had_to_be_killed_is_reported() {
    let world = World::new(example(), 2, |_| {}).await;
    world.lie("web-2", Lie::Killed);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    let said = world.events.lock().expect("events").iter().any(|line| format!("{line:?}").contains("was killed"));
    assert!(said);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_own_counter_never_falls_silent_is_not_stopped() {
    let text = EXAMPLE.replace("# counter =", "counter =");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    world.lie("web-1", Lie::NeverSilent);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(!world.requests("web-1").contains(&"stop".to_owned()));
    nothing_lost(&world);
}

fn drained_by(way: &str) -> Fleet {
    let text = EXAMPLE.replace("by     = \"file\"", &format!("by     = \"{way}\"\nunverified_return = true"));
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("file   = ")).collect();
    fleet(&text.join("\n"))
}

#[tokio::test(start_paused = true)]
async fn an_app_that_drains_on_sigterm_is_watched_until_the_balancer_has_let_go() {
    let mut fleet = drained_by("sigterm");
    let world = World::new(fleet.clone(), 2, |_| {}).await;
    world.with(|inner| inner.grace(Duration::from_secs(90)));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    nothing_lost(&world);
    fleet.servers.truncate(3);
    let world = World::new(fleet, 2, |_| {}).await;
    world.with(|inner| inner.grace(Duration::from_secs(90)));
    world.lie("web-1", Lie::LeavesAtOnce);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("before the balancer had let go"), "{}", message(&deployed));
    assert_eq!(world.state("web-2"), "current old, runs old");
}

#[tokio::test(start_paused = true)]
async fn deregistering_waits_until_the_target_is_unused_and_registers_it_again() {
    let world = World::new(drained_by("deregister"), 2, |_| {}).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(world.state("web-3"), "current new, runs new");
    nothing_lost(&world);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_taken_back_for_want_of_capacity_is_left_serving() {
    let text = EXAMPLE.replace("on_failure  = \"rollback\"", "on_failure  = \"rollback-all\"");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    world.lie("web-3", Lie::AnswersOldVersion).lie("web-3", Lie::RollbackFails);
    let breaks = world.clock.now().since_start() + Duration::from_secs(170);
    world.with(|inner| inner.trouble.breaks = Some(("web-2".into(), breaks)));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    let state = world.state("web-1");
    assert!(!state.contains("drained") && !state.contains("locked"), "the last one was drained: {state}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_stops_the_deploy_before_the_next_server_unless_it_is_told_to_go_on() {
    for (on_loss, expected, last) in
        [("halt", Exit::Lost, "current old, runs old"), ("continue", Exit::Done, "current new, runs new")]
    {
        let text = EXAMPLE.replace("on_loss     = \"halt\"", &format!("on_loss     = \"{on_loss}\""));
        let world = World::new(fleet(&text), 2, |_| {}).await;
        let (lost, clock) = (world.lost.clone(), world.clock);
        tokio::spawn(async move {
            clock.sleep(Duration::from_secs(20)).await;
            lost.send_replace(1);
        });
        let deployed = world.deploy().await;
        assert_eq!(exit(&deployed), expected, "{on_loss}: {}", message(&deployed));
        assert_eq!(world.state("web-1"), "current new, runs new", "{on_loss}: the server under way is finished");
        assert_eq!(world.state("web-3"), last, "{on_loss}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_batch_waits_for_the_pause() {
    use handover::event::{Event, StepState};
    let between = |pause: &str| {
        let text = EXAMPLE.replace("pause       = \"0s\"", &format!("pause       = \"{pause}\""));
        async move {
            let world = World::new(fleet(&text), 2, |_| {}).await;
            assert_eq!(exit(&world.deploy().await), Exit::Done);
            let lines = world.events.lock().expect("events");
            let at = |wanted: &dyn Fn(&Event) -> bool| lines.iter().find(|line| wanted(&line.event)).expect("it").at;
            let done = at(&|event| matches!(event, Event::ServerDone { server, .. } if server.as_str() == "web-1"));
            let began = at(
                &|event| matches!(event, Event::Step { server, state: StepState::Began, .. } if server.as_str() == "web-2"),
            );
            began - done
        }
    };
    let (none, some) = (between("0s").await, between("90s").await);
    assert!(none < 1.0 && (89.9..91.0).contains(&some), "{none} and {some}");
}
