//! Thousands of deploys in virtual time, with faults from a seed: the engine that runs in production, over a fleet in which
//! everything can go wrong, and the promises looked at after each.
//!
//! A seed is a run: the same one always goes the same way. It knows nothing of sockets, processes or the wall clock.

mod absences;
mod agent;
mod balancer;
mod count;
mod dead_man;
mod dice;
mod faults;
mod judge;
mod machine;
mod once;
mod play;
mod port;
mod world;

pub use world::Violation;

use crate::fleet::model::Fleet;
use crate::rollout::machine::Protection;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the API of a balancer lags behind its nodes where nothing is wrong with it.
const LAG: Duration = Duration::from_millis(500);

/// What came of many runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulated {
    /// How many were played.
    pub runs: u64,
    /// Every promise that was not kept, by seed.
    pub violations: Vec<Violation>,
}

/// Plays runs `seed..seed + count` on the fleet of a deploy.toml, on all cores.
///
/// `without` leaves one protection out, to see that its absence is found. `stop` is asked between runs.
///
/// # Errors
/// When no runtime can be made.
pub fn simulate(
    fleet: &Fleet,
    seed: u64,
    count: u64,
    without: Option<Protection>,
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<Simulated> {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Vec::new());
    let played = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || -> io::Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count || stop() {
                return Ok(());
            }
            let violations = one(fleet, seed.wrapping_add(at), without)?;
            played.fetch_add(1, Ordering::Relaxed);
            found.lock().unwrap_or_else(PoisonError::into_inner).extend(violations);
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let panicked = || io::Error::other("a simulated run broke");
        all.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
    })?;
    let mut violations = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    violations.sort_by_key(|violation: &Violation| violation.seed);
    Ok(Simulated { runs: played.into_inner(), violations })
}

/// Plays one server's way out of rotation and back, each with faults from the seed, and what a person does in the end.
///
/// # Errors
/// When no runtime can be made.
pub fn absence(fleet: &Fleet, seed: u64) -> io::Result<Vec<Violation>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(absences::play(fleet, seed)))
}

/// How long a deploy takes in which nothing goes wrong, and what it must take at the least, in seconds.
///
/// # Errors
/// When no runtime can be made, or the deploy did not succeed.
pub fn took(fleet: &Fleet, seed: u64) -> io::Result<(f64, f64)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let world = world::World::new(fleet, seed, None).await;
        world.with(|inner| inner.model.set_api_lag(LAG));
        let deployed = Box::pin(play::first(&world, play::order(&world, "sim-1", None), &[])).await;
        let ending = deployed.and_then(|deployed| deployed.ending.ok()).filter(|ending| ending.problem.is_none());
        let ending = ending.ok_or_else(|| io::Error::other(format!("the deploy of seed {seed} did not succeed")))?;
        Ok((ending.seconds, ending.floor.seconds()))
    })
}

/// Plays one run, in virtual time: whoever waits is woken when nobody else has anything to do.
///
/// # Errors
/// When no runtime can be made.
pub fn one(fleet: &Fleet, seed: u64, without: Option<Protection>) -> io::Result<Vec<Violation>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(play::play(fleet, seed, without)))
}
