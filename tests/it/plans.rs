//! Plans: golden texts, the second reader, and properties over made-up fleets.

use crate::world::fleet;
use handover::fleet::model::*;
use handover::fleet::plan::*;
use handover::report::plan_text;
use proptest::prelude::*;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../deploy.toml");

fn offline(text: &str) -> Result<Plan, Vec<WhyNot>> {
    let fleet = fleet(text);
    plan(&fleet, &offline_snapshot(&fleet), None, &Options { offline: true, ..Options::default() })
}

#[test]
fn the_example_is_planned_server_by_server_with_every_number() {
    insta::assert_snapshot!(plan_text(&offline(EXAMPLE).expect("a plan")));
}

#[test]
fn the_second_reader_finds_nothing_in_an_honest_plan() {
    let fleet = fleet(EXAMPLE);
    assert_eq!(check(&fleet, &offline(EXAMPLE).expect("a plan")), Vec::new());
}

/// Each damage to a plan, and a word of what the second reader says to it.
#[test]
fn the_second_reader_finds_every_damage() {
    type Damage = (&'static str, fn(&mut Plan));
    let damages: [Damage; 8] = [
        ("no step `lock`", |plan| plan.batches[0][0].steps.retain(|s| s.step != Step::Lock)),
        ("may still pick it", |plan| plan.batches[0][0].steps.retain(|s| s.step != Step::Settle)),
        ("without a guard", |plan| plan.batches[0][0].steps.retain(|s| s.step != Step::GuardAgain)),
        ("out of order", |plan| plan.batches[0][0].steps.reverse()),
        ("is in the plan 2 times", |plan| plan.batches.push(plan.batches[0].clone())),
        ("a batch of 3", |plan| plan.batches = vec![plan.batches.concat()]),
        ("is not waited for", |plan| plan.batches[0][0].targets.clear()),
        ("longer than its deadline", |plan| plan.batches[0][0].steps[0].deadline = Duration::from_millis(1)),
    ];
    let fleet = fleet(EXAMPLE);
    for (word, damage) in damages {
        let mut plan = offline(EXAMPLE).expect("a plan");
        damage(&mut plan);
        let notes = check(&fleet, &plan);
        assert!(notes.iter().any(|note| note.what.contains(word)), "{word}: {notes:?}");
    }
}

#[test]
fn a_drain_that_cannot_be_over_in_time_is_refused_with_both_numbers() {
    let why = offline(&EXAMPLE.replace("max    = \"150s\"", "max    = \"20s\"")).expect_err("too short");
    assert!(
        why.iter().any(|w| w.to_string().contains("may need 27s") && w.to_string().contains("allows 20s")),
        "{why:?}"
    );
}

#[test]
fn a_drain_that_dies_with_the_process_needs_consent() {
    let text = EXAMPLE.replace(
        "by     = \"file\"",
        "by     = \"signal\"\nsignal = { service = \"api\", drain = \"SIGUSR1\", undrain = \"SIGUSR2\" }",
    );
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("file   = ")).collect();
    let why = offline(&text.join("\n")).expect_err("unverified return");
    assert!(why[0].to_string().contains("may enter before it is verified"), "{why:?}");
    let consent = text.join("\n").replace("[drain]", "[drain]\nunverified_return = true");
    assert!(offline(&consent).is_ok());
}

#[test]
fn a_fleet_of_one_is_refused_and_told_why() {
    let mut fleet = fleet(EXAMPLE);
    fleet.servers.truncate(1);
    let options = Options { offline: true, ..Options::default() };
    let why = plan(&fleet, &offline_snapshot(&fleet), None, &options).expect_err("one server");
    assert!(why[0].to_string().contains("1 healthy, 1 would leave, 1 must stay"), "{why:?}");
    let allowed =
        plan(&fleet, &offline_snapshot(&fleet), None, &Options { allow_downtime: true, ..options }).expect("allowed");
    assert_eq!(allowed.not_zero_downtime.len(), 1);
}

fn live(change: impl FnOnce(&mut GroupView)) -> (Fleet, Snapshot) {
    let fleet = fleet(EXAMPLE);
    let mut snapshot = offline_snapshot(&fleet);
    for known in snapshot.groups.values_mut() {
        if let Known::Known(view) = known {
            change(view);
            break;
        }
    }
    (fleet, snapshot)
}

/// What a balancer may say that stands in the way, and the word in which it is refused.
#[test]
fn what_the_balancer_says_against_it_is_refused() {
    type Change = (&'static str, fn(&mut GroupView));
    let changes: [Change; 7] = [
        ("zonal shift is on", |view| view.targets[1].shift = OverrideState::Shifted("zonal_shift_active".into())),
        ("deregistered by somebody else", |view| view.targets[2].state = TargetState::Draining),
        ("belongs to no server", |view| {
            let mut stray = view.targets[0].clone();
            stray.id = "i-0ffffffffffffffff".into();
            view.targets.push(stray);
        }),
        ("is not registered in", |view| view.targets.truncate(2)),
        ("is `initial`", |view| view.targets[0].state = TargetState::Initial),
        ("2 healthy, 1 would leave, 2 must stay", |view| {
            view.attributes.fail_open_percent = Some(60);
            view.targets[2].state = TargetState::Unhealthy;
        }),
        ("no target is healthy", |view| view.targets.iter_mut().for_each(|t| t.state = TargetState::Unhealthy)),
    ];
    for (word, change) in changes {
        let (fleet, snapshot) = live(change);
        let options = Options { offline: true, ..Options::default() };
        let why = plan(&fleet, &snapshot, None, &options).expect_err(word);
        assert!(why.iter().any(|w| w.to_string().contains(word)), "{word}: {why:?}");
        assert!(why.iter().all(|w| !w.hint().is_empty()));
    }
}

#[test]
fn a_broken_server_goes_first_and_counts_as_out() {
    let (fleet, snapshot) = live(|view| {
        view.targets[2].state = TargetState::Unhealthy;
        view.targets[2].reason = Some(TargetReason::FailedHealthChecks);
    });
    let plan = plan(&fleet, &snapshot, None, &Options { offline: true, ..Options::default() }).expect("two are left");
    let order: Vec<&str> = plan.servers().map(|server| server.name.as_str()).collect();
    assert_eq!(order, ["web-3", "web-1", "web-2"]);
    assert!(matches!(plan.batches[0][0].starts_as, StartsAs::Broken(_)));
    assert!(plan.batches[0][0].step(Step::Out).is_none(), "there is nothing to drain");
}

fn generated(servers: usize, zones: usize, batch: &str, min_healthy: u32, cross_zone: bool) -> String {
    let head = EXAMPLE
        .split("[[server]]")
        .next()
        .expect("a head")
        .replace("batch       = 1 ", &format!("batch       = {batch} "));
    let head = head.replace("min_healthy = 1 ", &format!("min_healthy = {min_healthy} "));
    let mut text = head.replace("port   = 8080\n", &format!("port   = 8080\ncross_zone = {cross_zone}\n"));
    for n in 0..servers {
        text.push_str(&format!(
            "\n[[server]]\nname = \"s{n}\"\nssh = \"s{n}\"\ntarget = \"i-{n:017x}\"\nzone = \"z{}\"\n",
            n % zones
        ));
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_plan_that_is_made_passes_the_second_reader_and_keeps_the_minimum(
        servers in 2usize..12, zones in 1usize..4, percent in 1u32..100, min_healthy in 1u32..4, cross_zone: bool,
        broken in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let batch = format!("\"{percent}%\"");
        prop_assume!((min_healthy as usize) < servers);
        let fleet = fleet(&generated(servers, zones, &batch, min_healthy, cross_zone));
        let mut snapshot = offline_snapshot(&fleet);
        for known in snapshot.groups.values_mut() {
            if let Known::Known(view) = known {
                for (target, broken) in view.targets.iter_mut().zip(&broken) {
                    if *broken { target.state = TargetState::Unhealthy; }
                }
            }
        }
        if let Ok(plan) = plan(&fleet, &snapshot, None, &Options { offline: true, ..Options::default() }) {
            prop_assert_eq!(check(&fleet, &plan), Vec::new());
            prop_assert_eq!(plan.servers().count(), servers);
            for (group, known) in &snapshot.groups {
                let Known::Known(view) = known else { continue };
                for batch in &plan.batches {
                    let leaves = |t: &TargetView| batch.iter().flat_map(|s| &s.targets).any(|l| &l.group == group && l.id == t.id);
                    let stay = view.targets.iter().filter(|t| t.state == TargetState::Healthy && !leaves(t)).count();
                    prop_assert!(stay >= min_healthy as usize, "{stay} would stay");
                }
            }
        }
    }
}
