//! The model in numbers: no clock, no socket, every moment an argument.

use super::*;
use crate::fleet::model::TargetReason;

fn model(nodes: usize, cross_zone: bool, percent: Option<u32>) -> (Model, GroupName) {
    let zones = ["a", "b", "c"];
    let spec = ModelSpec::new(7, (0..nodes).map(|n| Zone::from(zones[n % 3])).collect());
    let group = GroupSpec {
        name: "g".into(),
        port: 80,
        path: "/health".into(),
        matcher: Matcher::default(),
        health_port: None,
        others: BTreeMap::new(),
        settings: HealthSettings {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            unhealthy: 2,
            healthy: 2,
        },
        attributes: GroupAttributes {
            cross_zone,
            fail_open_count: 1,
            fail_open_percent: percent,
            deregistration_delay: Duration::from_secs(30),
            slow_start: Duration::ZERO,
        },
        by_address: false,
    };
    let mut model = Model::new(spec, vec![group]);
    for (n, id) in ["one", "two", "three"].iter().enumerate() {
        model.register(&"g".into(), TargetId::from(*id), None, Some(Zone::from(zones[n])), Stamp::ZERO);
    }
    (model, "g".into())
}

fn run(model: &mut Model, from: u64, to: u64, failing: &[&str]) {
    for tenth in from * 10..to * 10 {
        let now = Stamp::at(Duration::from_millis(tenth * 100));
        for order in model.due(now) {
            let fails = failing.contains(&order.place.0.as_str());
            let check = if fails { Check::Fail(TargetReason::ResponseCodeMismatch) } else { Check::Pass };
            model.record(&order, check, now);
        }
    }
}

fn picked(model: &mut Model, node: usize, now: u64) -> std::collections::BTreeSet<String> {
    (0..30)
        .filter_map(|_| match model.pick(node, &"g".into(), Stamp::at(Duration::from_secs(now))) {
            Pick::Target { place, .. } => Some(place.0.to_string()),
            Pick::None => None,
        })
        .collect()
}

#[test]
fn a_failing_target_leaves_every_node_within_the_bound() {
    let (mut model, _) = model(3, true, None);
    run(&mut model, 0, 6, &[]);
    assert!(model.all_healthy());
    run(&mut model, 6, 23, &["two"]);
    for node in 0..3 {
        assert_eq!(picked(&mut model, node, 23), ["one", "three"].map(String::from).into());
    }
}

#[test]
fn the_nodes_do_not_turn_at_the_same_moment() {
    let (mut model, group) = model(3, true, None);
    run(&mut model, 0, 6, &[]);
    let place = (TargetId::from("two"), 80);
    let mut turned = std::collections::BTreeSet::new();
    for second in 6..23 {
        run(&mut model, second, second + 1, &["two"]);
        for node in 0..3 {
            if model.verdict(node, &group, &place) == Some(Verdict::Unhealthy) {
                turned.insert((node, second));
            }
        }
    }
    let firsts: std::collections::BTreeSet<_> =
        (0..3).filter_map(|n| turned.iter().find(|(node, _)| *node == n).map(|(_, s)| *s)).collect();
    assert!(firsts.len() > 1, "{firsts:?}");
}

#[test]
fn with_none_healthy_every_target_gets_traffic() {
    let (mut model, _) = model(2, true, None);
    run(&mut model, 0, 6, &[]);
    run(&mut model, 6, 23, &["one", "two", "three"]);
    assert_eq!(picked(&mut model, 0, 23).len(), 3);
}

#[test]
fn with_cross_zone_off_one_server_per_zone_cannot_be_drained() {
    let (mut model, _) = model(3, false, None);
    run(&mut model, 0, 6, &[]);
    run(&mut model, 6, 23, &["two"]);
    assert_eq!(picked(&mut model, 1, 23), ["two".to_owned()].into());
}

#[test]
fn a_percentage_opens_the_gate_too() {
    let (mut model, _) = model(2, true, Some(67));
    run(&mut model, 0, 6, &[]);
    run(&mut model, 6, 23, &["two"]);
    assert_eq!(picked(&mut model, 0, 23).len(), 3, "two of three are 66.7 % and below 67 %");
}

#[test]
fn an_empty_bucket_refuses_and_fills_again() {
    let (mut model, _) = model(1, true, None);
    let now = Stamp::at(Duration::from_secs(1));
    assert_eq!((0..100).filter(|_| model.may_ask(now)).count(), 40);
    assert!(model.may_ask(now + Duration::from_secs(1)));
}

#[test]
fn a_deregistered_target_is_let_go_by_one_node_after_the_other_and_cut_by_none_that_does_not_know() {
    let (mut model, group) = model(3, true, None);
    run(&mut model, 0, 6, &[]);
    model.deregister(&group, &TargetId::from("two"), None, Stamp::at(Duration::from_secs(6)));
    let still = |model: &mut Model, now| (0..3).filter(|node| picked(model, *node, now).contains("two")).count();
    assert_eq!(
        [still(&mut model, 6), still(&mut model, 12), still(&mut model, 17), still(&mut model, 22)],
        [3, 2, 1, 0]
    );
    let place = (TargetId::from("two"), 80);
    assert_eq!(model.cut_at(2, &group, &place), Some(Stamp::at(Duration::from_secs(36))));
    model.group_mut(&group).expect("it is there").attributes.deregistration_delay = Duration::ZERO;
    assert_eq!(model.cut_at(2, &group, &place), Some(Stamp::at(Duration::from_secs(21))));
}

#[test]
fn other_numbers_for_the_checks_change_no_node_s_mind() {
    let (mut model, group) = model(2, true, None);
    run(&mut model, 0, 6, &[]);
    run(&mut model, 6, 23, &["two"]);
    let settings =
        HealthSettings { interval: Duration::from_secs(5), timeout: Duration::from_secs(2), unhealthy: 3, healthy: 4 };
    model.change_settings(&group, settings);
    assert_eq!(picked(&mut model, 0, 23), ["one", "three"].map(String::from).into());
    run(&mut model, 23, 33, &[]);
    assert!(!model.all_healthy(), "four successes are wanted now");
    run(&mut model, 33, 48, &[]);
    assert!(model.all_healthy());
}

#[test]
fn the_next_check_is_never_one_of_a_target_that_is_gone() {
    let (mut model, group) = model(2, true, None);
    run(&mut model, 0, 6, &[]);
    for id in ["one", "two", "three"] {
        model.deregister(&group, &TargetId::from(id), None, Stamp::at(Duration::from_secs(6)));
    }
    assert_eq!(model.next_check(), None);
}
