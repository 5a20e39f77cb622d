//! One simulated run from its seed: a deploy in a fleet in which things go wrong, then the same with everything mended.

use super::balancer::BalancerPort;
use super::faults::{Fault, drawn};
use super::port::ports;
use super::world::{OTHER, Violation, World};
use crate::event::{Line, Sink};
use crate::fleet::model::{Fleet, ReleaseId};
use crate::rollout::machine::Protection;
use crate::rollout::{Deployed, Files, NotRun, Order, Outside, Over, Ports, Source, Tell, deploy};
use crate::server::wire::Run;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// A run that takes longer than that is never over.
const NEVER: Duration = Duration::from_secs(4 * 3600);

struct Deaf;

impl Sink for Deaf {
    fn take(&self, _: Line) {}
}

fn run(id: &str) -> Run {
    Run { id: id.to_owned(), who: format!("{id}@simulation"), what: "handover deploy".to_owned() }
}

/// Who deploys, how, and what reaches him from outside.
struct Deployer {
    world: World,
    order: Order,
    interrupts: watch::Receiver<u32>,
}

impl Deployer {
    async fn deploys(self) -> Deployed {
        let ports = Ports {
            servers: ports(&self.world, &self.order.run.id),
            balancer: Arc::new(BalancerPort(self.world.clone())),
            here: Arc::new(NotRun),
        };
        let outside = Outside { interrupts: self.interrupts, lost: watch::channel(0).1 };
        let tell = Tell { events: &Deaf, book: None };
        Box::pin(deploy(&ports, &self.order, &self.world.clock, tell, outside)).await
    }
}

pub(super) fn order(world: &World, id: &str, without: Option<Protection>) -> Order {
    let fleet = world.with(|inner| inner.fleet.clone());
    Order { without, ..Order::of_files(run(id), fleet, Files::default()) }
}

/// Plays the run of a seed; what was not kept is the answer.
pub(super) async fn play(fleet: &Fleet, seed: u64, without: Option<Protection>) -> Vec<Violation> {
    let world = World::new(fleet, seed, without).await;
    let length = expected(fleet);
    let faults = drawn(fleet, seed, length);
    world.with(|inner| {
        inner.faults.clone_from(&faults);
        inner.began = world.clock.now();
    });
    let deployed = Box::pin(first(&world, order(&world, "sim-1", without), &faults)).await;
    quiet(&world, &faults).await;
    let now = world.clock.now();
    world.with(|inner| inner.judge_quiet(deployed.as_ref(), now));
    finish(&world, without).await;
    world.with(|inner| std::mem::take(&mut inner.violations))
}

/// About how long a deploy takes: what the balancer needs, for each server.
fn expected(fleet: &Fleet) -> Duration {
    let one = fleet.balancer.groups.iter().map(|group| group.health.settings.interval * 8).max().unwrap_or_default();
    let each = one + fleet.drain.serve + fleet.drain.margin * 2 + fleet.rolling.stable + Duration::from_secs(10);
    each * u32::try_from(fleet.servers.len()).unwrap_or(1)
}

/// The deploy, with all that happens to it.
pub(super) async fn first(world: &World, order: Order, faults: &[Fault]) -> Option<Deployed> {
    let (interrupt, interrupts) = watch::channel(0);
    let mut timeline: Vec<(Duration, Fault)> = Vec::new();
    for fault in faults {
        match fault {
            Fault::DeployKilled(at) | Fault::Second(at) | Fault::AgentKilled(_, at) | Fault::Dropped(_, at) => {
                timeline.push((*at, fault.clone()));
            }
            Fault::Interrupted(at, again) => {
                timeline.push((*at, fault.clone()));
                timeline.extend(again.map(|again| (*at + again, fault.clone())));
            }
            _ => {}
        }
    }
    timeline.sort_by_key(|(at, _)| *at);
    let (without, id) = (order.without, order.run.id.clone());
    let brings = matches!(order.source, Source::Files(_) | Source::OnDisk(_));
    let deployer = Deployer { world: world.clone(), order, interrupts };
    let events = happen(world, timeline, interrupt, without);
    let both = async {
        tokio::select! {
            biased;
            deployed = deployer.deploys() => {
                let now = world.clock.now();
                if let (Ok(ending), true) = (&deployed.ending, brings) {
                    world.with(|inner| inner.judge_success(ending, now));
                }
                Some(deployed)
            }
            () = events => None,
            () = world.clock.sleep(NEVER) => {
                world.with(|inner| inner.violation(3, None, "", "the deploy never ended".into()));
                None
            }
        }
    };
    let deployed = world.while_running(both).await;
    // The process ends, and its connections with it.
    world.with(|inner| inner.dead_runs.insert(id, deployed.is_some()));
    deployed
}

/// Lets things happen when their time has come; ends only when the deploying process was killed.
async fn happen(
    world: &World,
    timeline: Vec<(Duration, Fault)>,
    interrupt: watch::Sender<u32>,
    without: Option<Protection>,
) {
    let began = world.with(|inner| inner.began);
    for (at, fault) in timeline {
        world.clock.sleep_until(began + at).await;
        match fault {
            Fault::DeployKilled(_) => return,
            Fault::AgentKilled(server, _) => world.with(|inner| {
                let agents = inner.machines.get(&server).map(|m| m.agents.keys().copied().collect::<Vec<_>>());
                agents.into_iter().flatten().for_each(|agent| inner.end_agent(&server, agent));
            }),
            Fault::Dropped(server, _) => {
                let ports = world.with(|inner| {
                    let agents = inner.machines.get(&server).map(|m| m.agents.keys().copied().collect::<Vec<_>>());
                    agents.into_iter().flatten().for_each(|agent| inner.close(&server, agent));
                    inner
                        .ports
                        .iter()
                        .filter_map(Weak::upgrade)
                        .filter(|port| port.server == server)
                        .collect::<Vec<_>>()
                });
                for port in ports {
                    tokio::spawn(async move { port.keep_up().await });
                }
            }
            Fault::Second(_) => {
                let (world, mut order) = (world.clone(), order(world, "sim-2", without));
                let other = BTreeMap::from([("RELEASE".to_owned(), OTHER.to_owned())]);
                order.source = Source::Files(Files { vars: other, ..Files::default() });
                tokio::spawn(async move { second(&world, order).await });
            }
            _ => interrupt.send_modify(|count| *count += 1),
        }
    }
    std::future::pending::<()>().await;
}

/// Somebody else's deploy, given up when the first one is over: until then it must not be let in.
async fn second(world: &World, order: Order) {
    let deployer = Deployer { world: world.clone(), order, interrupts: watch::channel(0).1 };
    let first_is_over = async {
        while !world.with(|inner| inner.dead_runs.contains_key("sim-1")) {
            world.clock.sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        biased;
        () = first_is_over => {}
        deployed = deployer.deploys() => if deployed.problem().is_none() {
            let what = "a second deploy was let in while another went on".to_owned();
            world.with(|inner| inner.violation(4, None, "", what));
        },
    }
    world.with(|inner| inner.dead_runs.insert("sim-2".to_owned(), true));
}

/// Waits until every fault is over, every lease has run out and every dead man has done his work.
pub(super) async fn quiet(world: &World, faults: &[Fault]) {
    let began = world.with(|inner| inner.began);
    let last = faults.iter().map(|fault| match fault {
        Fault::Throttled(span)
        | Fault::Denied(span)
        | Fault::Silent(span)
        | Fault::Partial(span)
        | Fault::Cut(_, span)
        | Fault::LockTaken(_, span) => span.to,
        _ => Duration::ZERO,
    });
    let over = began + last.max().unwrap_or_default();
    let (lease, deadline, back) = world.with(|inner| {
        let deadline = inner.fleet.services.iter().map(|service| service.deadline).max().unwrap_or_default();
        let back = |group: &crate::fleet::model::Group| {
            group.health.settings.interval * (group.health.settings.healthy + 2) + Duration::from_secs(30)
        };
        (inner.fleet.lock.lease, deadline, inner.fleet.balancer.groups.iter().map(back).max().unwrap_or_default())
    });
    world.wait(over.since(world.clock.now()) + lease + deadline + back + Duration::from_secs(30)).await;
}

/// Everything is mended, and the deploy is finished with what is there.
async fn finish(world: &World, without: Option<Protection>) {
    let now = world.clock.now();
    world.with(|inner| {
        inner.faults.clear();
        for machine in inner.machines.values_mut().filter(|machine| machine.running.is_some()) {
            (machine.up, machine.started) = (true, Some(now));
        }
        (inner.lost, inner.began, inner.once_tries) = (0, now, inner.once_tries.max(1));
    });
    let back = world.with(|inner| {
        inner.fleet.balancer.groups.iter().map(|g| g.health.settings.interval * (g.health.settings.healthy + 2)).max()
    });
    world.wait(back.unwrap_or_default() + Duration::from_secs(5)).await;
    let mut order = order(world, "sim-3", without);
    order.over = Over::GoOn;
    let whole = world.with(|inner| {
        let new = ReleaseId::new(super::world::NEW);
        inner.machines.values().all(|machine| machine.on_disk.contains(&new))
    });
    if whole {
        order.source = Source::OnDisk(ReleaseId::new(super::world::NEW));
    }
    let deployer = Deployer { world: world.clone(), order, interrupts: watch::channel(0).1 };
    let finishing = async {
        tokio::select! {
            biased;
            deployed = deployer.deploys() => Some(deployed),
            () = world.clock.sleep(NEVER) => None,
        }
    };
    let deployed = world.while_running(finishing).await;
    world.with(|inner| inner.dead_runs.insert("sim-3".to_owned(), true));
    let now = world.clock.now();
    world.with(|inner| match &deployed {
        Some(deployed) => inner.judge_finished(deployed, now),
        None => inner.violation(3, None, "resume", "finishing it never ended".into()),
    });
}
