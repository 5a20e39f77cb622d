//! The simulation itself: it finds what is taken away, replays a seed exactly, and keeps its promises on fleets of every kind.

use crate::world::fleet;
use handover::fleet::model::Fleet;
use handover::lab::simulation::{absence, one, simulate};
use handover::rollout::machine::Protection;

const EXAMPLE: &str = include_str!("../../deploy.toml");

fn changed(changes: &[(&str, &str)]) -> Fleet {
    let text = changes.iter().fold(EXAMPLE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the example has no {from:?}");
        text.replace(from, to)
    });
    fleet(&text)
}

/// Health fails by another way than by a file.
fn by(way: &str) -> Fleet {
    let text: String =
        EXAMPLE.lines().filter(|line| !line.starts_with("file   = ")).map(|line| format!("{line}\n")).collect();
    let way = format!("by     = \"{way}\"\nunverified_return = true");
    fleet(&text.replace("by     = \"file\"", &way))
}

#[track_caller]
fn keeps_every_promise(fleet: &Fleet, seeds: u64) {
    let simulated = simulate(fleet, 1000, seeds, None, &|| false).expect("simulated");
    assert_eq!(simulated.runs, seeds);
    let told: Vec<_> = simulated.violations.iter().map(|v| (v.seed, v.promise, &v.server, &v.what)).collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn every_promise_is_kept_on_the_example() {
    keeps_every_promise(&fleet(EXAMPLE), 40);
}

#[test]
fn every_promise_is_kept_with_steps_that_are_run_once_and_hooks() {
    let text = format!(
        "{EXAMPLE}\n[[run_once]]\nname = \"migrate\"\nservice = \"api\"\nrun = [\"migrate\"]\n\
         [hooks]\npre_deploy = {{ run = [\"a\"] }}\npre_drain = {{ run = [\"b\"] }}\npost_server = {{ run = [\"c\"] }}\n"
    );
    keeps_every_promise(&fleet(&text), 60);
}

#[test]
fn every_promise_is_kept_whatever_a_failure_means() {
    keeps_every_promise(&changed(&[("= \"rollback\"", "= \"rollback-all\"")]), 20);
    keeps_every_promise(&changed(&[("= \"rollback\"", "= \"halt\"")]), 20);
}

#[test]
fn every_promise_is_kept_by_every_way_to_drain() {
    keeps_every_promise(&by("deregister"), 20);
}

#[test]
fn every_promise_is_kept_with_two_servers_and_with_four_in_batches() {
    let mut two = fleet(EXAMPLE);
    two.servers.truncate(2);
    keeps_every_promise(&two, 20);
    let mut four = changed(&[("batch       = 1 ", "batch       = 2 ")]);
    let mut more = four.servers[2].clone();
    more.name = "web-4".into();
    more.targets.values_mut().flatten().for_each(|target| target.id = "i-0d000000000000000".into());
    four.servers.push(more);
    keeps_every_promise(&four, 20);
}

/// Who drains or undrains may die at any moment, with everything else that goes wrong.
#[test]
fn whatever_happens_a_drained_server_is_out_or_in_and_comes_back() {
    let example = fleet(EXAMPLE);
    let halves = std::thread::scope(|scope| {
        let half = |from| {
            let example = &example;
            scope.spawn(move || (from..from + 100).flat_map(|seed| absence(example, seed).expect("played")).collect())
        };
        [half(1), half(1001)].map(|half| half.join().expect("no panic"))
    });
    let told: Vec<_> = halves.iter().flat_map(|half: &Vec<_>| half).map(|v| (v.seed, &v.what, &v.faults)).collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn a_seed_is_always_the_same_run() {
    let example = fleet(EXAMPLE);
    let played = |seed| one(&example, seed, Some(Protection::Settle)).expect("played");
    let found = (1..100).map(|seed| (seed, played(seed))).find(|(_, violations)| !violations.is_empty());
    let (seed, violations) = found.expect("without its settle one in three runs breaks a promise");
    assert_eq!(violations, played(seed));
}
