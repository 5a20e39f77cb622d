//! Fleets with numbers drawn from seeds, in virtual time: where the relations of `handover check` hold nothing is lost; where the
//! one about the drain is broken, who only waits the configured numbers loses something, and the engine does not.

use crate::world::{World, exit, fleet, message};
use handover::diag::Exit;
use handover::fleet::model::{Fleet, Known, ServerName};
use handover::fleet::timing::{Basis, ComposeService, Finding, findings};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../deploy.toml");
/// So many fleets in each of the four parts, which run side by side: 2,000 in all with `HANDOVER_LONG=1`, 400 otherwise.
fn each() -> u64 {
    if std::env::var("HANDOVER_LONG").as_deref() == Ok("1") { 500 } else { 100 }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }
}

/// The example with other numbers: near the bounds on both sides, as people choose them.
fn drawn(seed: u64) -> (Fleet, usize) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..8 {
        dice.below(2);
    }
    let interval = [5, 6, 8, 10, 15][dice.below(5) as usize];
    let (timeout, unhealthy, healthy) = (dice.between(2, interval - 1), dice.between(2, 4), dice.between(2, 3));
    let margin = dice.between(5, 12);
    let nominal = unhealthy * interval;
    let serve = if dice.below(2) == 0 { dice.between(nominal, nominal + 20) } else { dice.below(nominal) };
    let bound = nominal + interval + timeout + margin;
    let max = if dice.below(4) == 0 { dice.between(nominal / 2, bound) } else { dice.between(bound, bound + 60) };
    let text = EXAMPLE
        .replace(
            "interval = \"5s\", timeout = \"2s\", unhealthy = 2, healthy = 2",
            &format!(
                "interval = \"{interval}s\", timeout = \"{timeout}s\", unhealthy = {unhealthy}, healthy = {healthy}"
            ),
        )
        .replace("serve  = \"15s\"", &format!("serve  = \"{serve}s\""))
        .replace("max    = \"150s\"", &format!("max    = \"{max}s\""))
        .replace("back   = \"60s\"", "back   = \"180s\"")
        .replace("margin = \"10s\"", &format!("margin = \"{margin}s\""));
    let mut fleet = fleet(&text);
    fleet.servers.truncate(dice.between(2, 3) as usize);
    (fleet, dice.between(1, 4) as usize)
}

fn broken(fleet: &Fleet) -> Vec<Finding> {
    let grace =
        |_: &_| ComposeService { grace: Known::Known(Duration::from_secs(30)), start_period: Known::Known(None) };
    let compose: BTreeMap<_, _> = fleet.services.iter().map(|service| (service.name.clone(), grace(service))).collect();
    findings(&Basis { fleet, compose: &Known::Known(compose) }).into_iter().filter(Finding::is_broken).collect()
}

/// Waits what is configured and asks nobody, as scripts do.
async fn by_the_clock_alone(world: &World, fleet: &Fleet) {
    let health = fleet.balancer.groups[0].health.settings;
    for name in fleet.servers.iter().map(|server| server.name.clone()).collect::<Vec<ServerName>>() {
        world.with(|inner| inner.by_hand(&name, true, true));
        world.clock.sleep(fleet.drain.serve).await;
        world.with(|inner| inner.by_hand(&name, true, false));
        world.clock.sleep(Duration::from_secs(8)).await;
        world.with(|inner| inner.by_hand(&name, false, true));
        world.clock.sleep(health.interval * (health.healthy + 2) + health.timeout + fleet.drain.margin).await;
    }
}

/// What one part found.
#[derive(Debug, Default)]
struct Found {
    holding: u32,
    drain_broken: u32,
    lost_by_the_clock: u32,
    given_up: u32,
}

/// A world of its own for each fleet: one that is left behind would go on ticking.
fn virtually<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(work)
}

fn part(number: u64) -> Found {
    let mut found = Found::default();
    for seed in number * each()..(number + 1) * each() {
        let (fleet, nodes) = drawn(seed);
        let broken = broken(&fleet);
        let (ended, says, lost, violations) = virtually(async {
            let world = World::new(fleet.clone(), nodes, |_| {}).await;
            let deployed = world.deploy().await;
            let (lost, violations) = world.with(|inner| (inner.nowhere, inner.violations.clone()));
            (exit(&deployed), message(&deployed), lost, violations)
        });
        assert_eq!((lost, violations.as_slice()), (0, &[][..]), "seed {seed}: {says}");
        if broken.is_empty() {
            found.holding += 1;
            assert_eq!(ended, Exit::Done, "seed {seed}: {says}");
        } else {
            found.given_up += u32::from(ended != Exit::Done);
        }
        if broken.iter().any(|finding| finding.invariant.id == "serve-covers-out") {
            found.drain_broken += 1;
            let lost = virtually(async {
                let world = World::new(fleet.clone(), nodes, |_| {}).await;
                by_the_clock_alone(&world, &fleet).await;
                world.with(|inner| inner.nowhere)
            });
            found.lost_by_the_clock += u32::from(lost > 0);
        }
    }
    found
}

fn checked(number: u64) {
    let found = part(number);
    assert!(u64::from(found.holding.min(found.drain_broken)) > each() / 5, "{found:?}");
    assert!(found.lost_by_the_clock > found.drain_broken / 4, "who only waits must be seen to lose: {found:?}");
}

#[test]
fn numbers_that_fit_lose_nothing_and_numbers_that_do_not_are_survived_part_one() {
    checked(0);
}

#[test]
fn numbers_that_fit_lose_nothing_and_numbers_that_do_not_are_survived_part_two() {
    checked(1);
}

#[test]
fn numbers_that_fit_lose_nothing_and_numbers_that_do_not_are_survived_part_three() {
    checked(2);
}

#[test]
fn numbers_that_fit_lose_nothing_and_numbers_that_do_not_are_survived_part_four() {
    checked(3);
}
