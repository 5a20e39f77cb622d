//! Whole deploys in virtual time that are attacked: lies, moments and servers drawn from seeds, and the promises asserted
//! after each; besides, one test for each fault that was found so.

use crate::world::{Lie, Looks, NEW, World, exit, fleet, message};
use handover::diag::Exit;
use handover::event::{Event, ServerOutcome};
use handover::fleet::model::{Fleet, ReleaseId, ServerName};
use handover::fleet::plan::Options;
use handover::rollout::Deployed;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../deploy.toml");

/// A fleet like the example's, changed.
#[derive(Debug, Clone)]
struct Kind {
    servers: usize,
    way: &'static str,
    batch: usize,
    on_failure: &'static str,
    second_group: bool,
    addresses: bool,
}

impl Kind {
    fn example() -> Self {
        Self { servers: 3, way: "file", batch: 1, on_failure: "rollback", second_group: false, addresses: false }
    }

    fn fleet(&self) -> Fleet {
        let mut text = EXAMPLE.replace("batch       = 1 ", &format!("batch       = {} ", self.batch));
        text = text.replace("= \"rollback\"", &format!("= \"{}\"", self.on_failure));
        if self.way != "file" {
            let mut way = format!("by     = \"{}\"\nunverified_return = true", self.way);
            if self.way == "http" {
                let url = "http://127.0.0.1:8080";
                way += &format!("\nhttp = {{ drain = \"{url}/drain\", undrain = \"{url}/undrain\" }}");
            }
            text = text.replace("by     = \"file\"", &way);
            text = text.lines().filter(|line| !line.starts_with("file   = ")).collect::<Vec<_>>().join("\n");
        }
        if self.second_group {
            let group = "[[balancer.group]]\nname = \"orchestrator\"\nport = 8090\nhealth = { path = \"/ready\", interval = \"7s\", timeout = \"3s\", unhealthy = 3, healthy = 2 }\nderegistration_delay = \"20s\"\n\n[drain]";
            text = text.replace("[drain]", group);
            text =
                text.replace("name   = \"orchestrator\"\n", "name   = \"orchestrator\"\ngroup  = \"orchestrator\"\n");
        }
        if self.addresses {
            for (number, id) in ["i-0a1b2c3d4e5f60718", "i-0b2c3d4e5f6071829", "i-0c3d4e5f60718293a"].iter().enumerate()
            {
                text = text.replace(id, &format!("10.0.0.{}", number + 1));
            }
        }
        let mut fleet = fleet(&text);
        if self.servers > 3 {
            let mut more = fleet.servers[2].clone();
            more.name = "web-4".into();
            for target in more.targets.values_mut().flatten() {
                target.id = if self.addresses { "10.0.0.4".into() } else { "i-0d000000000000000".into() };
            }
            fleet.servers.push(more);
        }
        fleet.servers.truncate(self.servers);
        fleet
    }

    async fn world(&self) -> World {
        let world = World::new(self.fleet(), 2, |_| {}).await;
        if self.way == "sigterm" {
            world.with(|inner| inner.grace(Duration::from_secs(110)));
        }
        world
    }
}

/// Interrupts so long after the deploy began.
async fn interrupted(world: &World, after: Duration) -> Deployed {
    let clock = world.clock;
    world
        .deploy_with(Options::default(), |interrupt| {
            let interrupt = interrupt.clone();
            tokio::spawn(async move {
                clock.sleep(after).await;
                interrupt.send_replace(1);
                std::future::pending::<()>().await;
            });
        })
        .await
}

fn new() -> Option<ReleaseId> {
    Some(ReleaseId::new(NEW))
}

fn names(world: &World) -> Vec<ServerName> {
    world.ports().servers.into_keys().collect()
}

fn looks(world: &World) -> BTreeMap<ServerName, Looks> {
    names(world).into_iter().map(|name| (name.clone(), world.looks(&name))).collect()
}

/// What can be said of a server whose fate is told by this word.
fn is_true(outcome: ServerOutcome, before: &Looks, after: &Looks, pickable: bool) -> bool {
    let out = !pickable || after.drained || after.running.is_none();
    match outcome {
        ServerOutcome::Deployed | ServerOutcome::Unchanged => {
            let kept_out = before.absence.as_ref().is_some_and(|absence| !absence.ends_when_verified);
            after.current == new()
                && after.running == new()
                && after.drained == kept_out
                && (kept_out == after.absence.is_some())
        }
        ServerOutcome::Untouched => before == after,
        ServerOutcome::FlippedBack => before == after,
        ServerOutcome::RolledBack => {
            let kept_out = before.absence.as_ref().is_some_and(|absence| !absence.ends_when_verified);
            after.current == before.current && after.running == before.current && (after.drained == kept_out)
        }
        ServerOutcome::LeftStopped => after.running.is_none() && (after.current.is_none() || after.absence.is_some()),
        ServerOutcome::Drained | ServerOutcome::StaysOut => out && after.absence.is_some(),
        ServerOutcome::Undrained => !after.drained && after.absence.is_none(),
        ServerOutcome::LeftOut => out && after.absence.is_some(),
        ServerOutcome::Unknown => true,
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.roll(all.len() as u64);
        all[usize::try_from(at).expect("few")]
    }
}

const LIES: [Lie; 19] = [
    Lie::StopLeavesAlive,
    Lie::UpOldImage,
    Lie::AnswersOldVersion,
    Lie::HalfFlips,
    Lie::RealRefused,
    Lie::RestartLoop,
    Lie::SwitchDoesNothing,
    Lie::StaysDrained,
    Lie::Unreachable,
    Lie::DiesDrained,
    Lie::LockHeld,
    Lie::LostAtStop,
    Lie::Killed,
    Lie::RollbackFails,
    Lie::LeavesAtOnce,
    Lie::NeverSilent,
    Lie::LockSlow,
    Lie::StopsSlowly,
    Lie::SecondGroupDead,
];
const REFUSED: [&str; 8] = ["flip", "look", "start", "verify", "switch", "absent", "unlock", "pull"];

/// What one seed is about.
struct Attack {
    kind: Kind,
    world: World,
    what: Vec<String>,
    /// The app itself broke somewhere, or the line to a server: then requests may be lost that no deploy can save.
    broken: bool,
    /// A server's health follows only half.
    half: bool,
    cut: Option<ServerName>,
    /// Its app breaks at some moment, or it refuses to be unlocked.
    exempt: Option<ServerName>,
    interrupt: Option<Duration>,
}

async fn attack(seed: u64) -> Attack {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for _ in 0..8 {
        dice.roll(2);
    }
    let way = dice.of(&["file", "file", "http", "sigterm", "deregister"]);
    let kind = Kind {
        servers: usize::try_from(2 + dice.roll(3)).expect("few"),
        way,
        batch: usize::try_from(1 + dice.roll(2)).expect("few"),
        on_failure: dice.of(&["rollback", "rollback-all", "halt"]),
        second_group: dice.roll(3) == 0,
        addresses: way == "deregister" && dice.roll(2) == 0,
    };
    let kind = Kind { batch: kind.batch.min(kind.servers - 1), ..kind };
    let world = kind.world().await;
    let servers = names(&world);
    let mut what = vec![format!("{kind:?}")];
    let pick = |dice: &mut Dice| servers[usize::try_from(dice.roll(servers.len() as u64)).expect("few")].clone();
    let (mut broken, mut half) = (false, false);
    for _ in 0..dice.roll(3) {
        let (server, lie) = (pick(&mut dice), dice.of(&LIES));
        broken |= matches!(
            lie,
            Lie::DiesDrained
                | Lie::Unreachable
                | Lie::RestartLoop
                | Lie::RollbackFails
                | Lie::LeavesAtOnce
                | Lie::StopLeavesAlive
                | Lie::SecondGroupDead
        );
        half |= lie == Lie::HalfFlips;
        what.push(format!("{server} {lie:?}"));
        world.lie(server.as_str(), lie);
    }
    if dice.roll(6) == 0 {
        let server = pick(&mut dice);
        let kind = if ["file", "http"].contains(&way) { dice.roll(3) } else { 0 };
        what.push(format!(
            "{server} begins {}",
            ["empty", "left out", "kept out"][usize::try_from(kind).expect("few")]
        ));
        match kind {
            0 => world.empty(server.as_str()),
            1 => world.out(server.as_str(), true),
            _ => world.out(server.as_str(), false),
        }
        world.clock.sleep(Duration::from_secs(60)).await;
        // What this alone cost is not the deploy's.
        world.with(|inner| (inner.nowhere, inner.violations) = (0, Vec::new()));
    }
    let begin = world.clock.now().since_start();
    let moment = |dice: &mut Dice| Duration::from_millis(dice.roll(280_000));
    let (mut cut, mut exempt) = (None, None);
    match dice.roll(9) {
        0 => {
            let (server, at) = (pick(&mut dice), moment(&mut dice));
            what.push(format!("{server} breaks at {at:?}"));
            broken = true;
            exempt = Some(server.clone());
            world.with(|inner| inner.trouble.breaks = Some((server, begin + at)));
        }
        1 => {
            let (server, at) = (pick(&mut dice), moment(&mut dice));
            what.push(format!("{server} is cut off at {at:?}"));
            cut = Some(server.clone());
            world.with(|inner| inner.trouble.cut = Some((server, begin + at)));
        }
        2 => {
            let at = moment(&mut dice);
            what.push(format!("access denied from {at:?}"));
            world.with(|inner| inner.trouble.denied_from = Some(begin + at));
        }
        3 => {
            let at = moment(&mut dice);
            what.push(format!("throttled until {at:?}"));
            world.with(|inner| inner.trouble.throttled_until = Some(begin + at));
        }
        4 => {
            let (server, word) = (pick(&mut dice), dice.of(&REFUSED));
            what.push(format!("{server} refuses {word}"));
            exempt = Some(server.clone()).filter(|_| word == "unlock");
            world.with(|inner| inner.trouble.refuses.insert((server, word)));
        }
        5 => {
            let at = moment(&mut dice);
            what.push(format!("silent from {at:?}"));
            world.with(|inner| inner.trouble.silent_from = Some(begin + at));
        }
        6 => {
            what.push("slow orders".into());
            world.with(|inner| inner.trouble.slow_orders = Duration::from_secs(8));
        }
        _ => {}
    }
    let interrupt = (dice.roll(3) == 0).then(|| moment(&mut dice));
    what.push(format!("interrupt at {interrupt:?}"));
    Attack { kind, world, what, broken, half, cut, exempt, interrupt }
}

/// Everything that a run must keep, whatever was done to it.
fn broken_promises(attack: &Attack, before: &BTreeMap<ServerName, Looks>, deployed: &Deployed) -> Vec<String> {
    let world = &attack.world;
    // An app that drains itself cannot be held back when a neighbour breaks meanwhile, or when it drains only half.
    let no_way_back = attack.kind.way == "sigterm" && (attack.broken || attack.half);
    let mut broken = world.with(|inner| inner.violations.clone());
    broken.retain(|_| !no_way_back);
    let after = looks(world);
    let exit = exit(deployed);
    let nowhere = world.with(|inner| inner.nowhere);
    if !attack.broken && !no_way_back && nowhere > 0 {
        broken.push(format!("{nowhere} requests were lost"));
    }
    for (name, looks) in &after {
        if looks.locked && ![&attack.cut, &attack.exempt].contains(&&Some(name.clone())) {
            broken.push(format!("{name} is left locked"));
        }
    }
    let touched = world.events.lock().expect("events").iter().any(|line| matches!(&line.event, Event::Step { step, .. } if *step > handover::fleet::plan::Step::Lock && *step < handover::fleet::plan::Step::Unlock));
    if exit == Exit::Refused && touched {
        broken.push("exit code 4, and something was touched".into());
    }
    if let Ok(ending) = &deployed.ending {
        for (name, outcome) in &ending.each {
            let cut_off = [&attack.cut, &attack.exempt].contains(&&Some(name.clone()));
            let (was, is) = (&before[name], &after[name]);
            if !cut_off && !is_true(*outcome, was, is, world.may_be_picked(name)) {
                broken.push(format!("{name} is called {outcome:?}, and was {was:?}, is {is:?}"));
            }
            let needs_hand = matches!(outcome, ServerOutcome::LeftOut | ServerOutcome::Unknown);
            if needs_hand && exit != Exit::NeedsHand {
                broken.push(format!("{name} is {outcome:?} and the exit code {exit:?}"));
            }
        }
        let all = |wanted: fn(&ServerOutcome) -> bool| ending.each.values().all(wanted);
        if exit == Exit::Done && !all(|o| matches!(o, ServerOutcome::Deployed | ServerOutcome::Unchanged)) {
            broken.push(format!("done, and {:?}", ending.each));
        }
        if exit == Exit::Held
            && !all(|o| matches!(o, ServerOutcome::Untouched | ServerOutcome::FlippedBack | ServerOutcome::Unchanged))
        {
            broken.push(format!("exit code 3, and {:?}", ending.each));
        }
    }
    broken
}

async fn try_seed(seed: u64) -> Vec<String> {
    let attack = attack(seed).await;
    let before = looks(&attack.world);
    let begun = attack.world.clock.now();
    let deploy = async {
        match attack.interrupt {
            Some(after) => interrupted(&attack.world, after).await,
            None => attack.world.deploy().await,
        }
    };
    let Ok(deployed) = tokio::time::timeout(Duration::from_secs(4 * 3600), deploy).await else {
        return vec![format!("seed {seed}: it never ended: {}", attack.what.join(", "))];
    };
    let took = attack.world.clock.now().since(begun);
    // What was ordered last becomes visible: targets are healthy again, dead-men have acted.
    attack.world.clock.sleep(Duration::from_secs(90)).await;
    let mut broken = broken_promises(&attack, &before, &deployed);
    if took > Duration::from_secs(3000) {
        broken.push(format!("it took {took:?}"));
    }
    let said = format!("{:?} {}", exit(&deployed), message(&deployed));
    broken.into_iter().map(|what| format!("seed {seed}: {what}\n    {}\n    {said}", attack.what.join(", "))).collect()
}

/// A world of its own, in virtual time.
fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().expect("a runtime").block_on(future)
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn whatever_is_done_to_a_deploy_it_keeps_its_promises() {
    let (from, count) = (number("ATTACK_FROM", 0), number("ATTACK_COUNT", 90));
    let half = |odd: u64| -> Vec<String> {
        (from..from + count).filter(|seed| seed % 2 == odd).flat_map(|seed| in_virtual_time(try_seed(seed))).collect()
    };
    let broken = std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        let mut all = half(0);
        all.extend(odd.join().expect("no panic"));
        all
    });
    assert!(broken.is_empty(), "{} promises broken:\n{}", broken.len(), broken.join("\n"));
}

async fn until(world: &World, seconds: u64) -> Deployed {
    let deployed = interrupted(world, Duration::from_secs(seconds)).await;
    world.clock.sleep(Duration::from_secs(90)).await;
    deployed
}

#[track_caller]
fn is_as_before(world: &World, server: &str) {
    assert_eq!(world.state(server), "current old, runs old");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_during_a_long_stop_waits_for_its_end_and_then_goes_back() {
    for (way, second) in [("file", 45), ("sigterm", 20), ("http", 45)] {
        let world = Kind { way, ..Kind::example() }.world().await;
        world.lie("web-1", Lie::StopsSlowly);
        let deployed = until(&world, second).await;
        assert_eq!(exit(&deployed), Exit::Interrupted, "{way}: {}", message(&deployed));
        is_as_before(&world, "web-1");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_while_the_lock_is_waited_for_leaves_no_lock_behind() {
    let world = Kind::example().world().await;
    world.lie("web-1", Lie::LockSlow);
    let deployed = until(&world, 6).await;
    assert_eq!(exit(&deployed), Exit::Interrupted, "{}", message(&deployed));
    assert_eq!(deployed.ending.expect("it began").each[&"web-1".into()], ServerOutcome::Untouched);
    is_as_before(&world, "web-1");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_cut_off_is_not_called_left_out() {
    let world = Kind::example().world().await;
    let at = world.clock.now().since_start() + Duration::from_secs(36);
    world.with(|inner| inner.trouble.cut = Some(("web-1".into(), at)));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand);
    assert!(!message(&deployed).contains("left out"), "nothing of that was seen: {}", message(&deployed));
}

#[tokio::test(start_paused = true)]
async fn an_app_that_drains_on_sigterm_is_left_out_by_being_stopped() {
    let world = Kind { way: "sigterm", on_failure: "halt", ..Kind::example() }.world().await;
    world.lie("web-1", Lie::AnswersOldVersion);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs none, absent");
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_no_refusal_when_other_servers_were_deployed() {
    let world = Kind::example().world().await;
    world.lie("web-3", Lie::LockHeld);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert!(message(&deployed).contains("held by root@web"), "{}", message(&deployed));
}

#[tokio::test(start_paused = true)]
async fn what_a_person_keeps_out_stays_out_whatever_becomes_of_the_deploy() {
    for way in ["file", "http"] {
        for (on_failure, lies) in [("rollback", None), ("halt", Some("web-1")), ("rollback-all", Some("web-3"))] {
            let world = Kind { way, on_failure, ..Kind::example() }.world().await;
            world.out("web-1", false);
            world.clock.sleep(Duration::from_secs(60)).await;
            if let Some(server) = lies {
                world.lie(server, Lie::AnswersOldVersion);
            }
            let deployed = world.deploy().await;
            let looks = world.looks(&"web-1".into());
            let what = format!("{way} {on_failure}: {looks:?} {}", message(&deployed));
            assert!(looks.drained && !looks.locked, "{what}");
            assert!(looks.absence.is_some_and(|absence| !absence.ends_when_verified), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_broken_before_is_not_left_drained_by_a_deploy_that_stops_early() {
    let world = Kind::example().world().await;
    let now = world.clock.now().since_start();
    world.with(|inner| inner.trouble.breaks = Some(("web-1".into(), now)));
    world.clock.sleep(Duration::from_secs(60)).await;
    let deployed = until(&world, 12).await;
    assert_eq!(exit(&deployed), Exit::Interrupted, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current old, runs none");
}

#[tokio::test(start_paused = true)]
async fn a_deregistration_that_is_under_way_is_waited_for_before_it_is_undone() {
    for addresses in [false, true] {
        let world = Kind { way: "deregister", addresses, ..Kind::example() }.world().await;
        world.with(|inner| inner.trouble.slow_orders = Duration::from_secs(8));
        let deployed = until(&world, 4).await;
        assert_eq!(exit(&deployed), Exit::Interrupted, "{}", message(&deployed));
        assert!(world.may_be_picked(&"web-1".into()), "it was left deregistered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_written_does_not_keep_the_lock() {
    let world = Kind::example().world().await;
    world.out("web-1", true);
    world.clock.sleep(Duration::from_secs(60)).await;
    world.with(|inner| inner.trouble.refuses.insert(("web-1".into(), "absent")));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    assert!(!world.looks(&"web-1".into()).locked);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_a_vanished_deploy_left_deregistered_is_registered_by_the_next_one() {
    let world = Kind { way: "deregister", ..Kind::example() }.world().await;
    let fleet = Kind { way: "deregister", ..Kind::example() }.fleet();
    let (group, targets) = fleet.servers[0].targets.iter().next().expect("it has targets");
    let gone = handover::fleet::model::TargetRef { group: group.clone(), id: targets[0].id.clone(), port: 8080 };
    handover::rollout::port::Balancer::deregister(world.ports().balancer.as_ref(), &[gone]).await.expect("it lets go");
    world.clock.sleep(Duration::from_secs(120)).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert!(world.may_be_picked(&"web-1".into()));
}

#[tokio::test(start_paused = true)]
async fn a_server_of_which_one_target_of_two_was_broken_before_can_be_deployed_to() {
    let world = Kind { second_group: true, ..Kind::example() }.world().await;
    world.lie("web-1", Lie::SecondGroupDead);
    world.clock.sleep(Duration::from_secs(60)).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current new, runs new");
    assert_eq!(world.with(|inner| inner.violations.clone()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_verified_server_that_can_no_longer_be_drained_goes_on_serving_and_a_person_is_told() {
    let world = Kind { servers: 2, ..Kind::example() }.world().await;
    let from = world.clock.now().since_start() + Duration::from_secs(58);
    world.with(|inner| inner.trouble.denied_from = Some(from));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    assert!(message(&deployed).contains("AccessDenied"), "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current new, runs new", "{}", message(&deployed));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_out_by_record_and_in_by_the_balancers_word_is_not_stopped() {
    for ends_when_verified in [true, false] {
        let world = Kind::example().world().await;
        world.out("web-1", ends_when_verified);
        world.lie("web-1", Lie::HalfFlips);
        world.clock.sleep(Duration::from_secs(60)).await;
        let deployed = world.deploy().await;
        let asked = if ends_when_verified { "answers 200 where 503 is wanted" } else { "is healthy, although" };
        assert!(message(&deployed).contains(asked), "{}", message(&deployed));
        assert!(!world.requests("web-1").contains(&"stop".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_an_absence_ends_with_the_deploy_of_a_server_that_served_all_the_same() {
    let world = Kind { way: "http", ..Kind::example() }.world().await;
    world.out("web-1", true);
    world.with(|inner| inner.undrain("web-1"));
    world.clock.sleep(Duration::from_secs(60)).await;
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current new, runs new");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_empty_and_serves_by_now_is_not_stopped_without_being_drained() {
    let world = Kind::example().world().await;
    world.empty("web-1");
    world.clock.sleep(Duration::from_secs(60)).await;
    world.with(|inner| (inner.nowhere, inner.violations) = (0, Vec::new()));
    let from = world.clock.now().since_start() + Duration::from_secs(26);
    world.with(|inner| inner.trouble.denied_from = Some(from));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::NeedsHand, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current new, runs new");
    assert_eq!(world.with(|inner| (inner.nowhere, inner.violations.clone())), (0, Vec::new()));
}
