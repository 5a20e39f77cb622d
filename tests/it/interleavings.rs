//! Deploy, bootstrap, watchdog and a person with `flock(1)` on one server, in orders that nobody chose: who goes next, who dies and
//! what breaks is drawn from a seed.
//!
//! The watchdog is the real machine (`fleet::watch`, `fleet::strikes`), what becomes of a dead deploy is decided by the real
//! `fleet::recovery`; the server is a value. After each schedule nobody disturbs any more, and everything that the release names must
//! run, in rotation, with the lock free.

use handover::fleet::model::{ReleaseId, ServiceName};
use handover::fleet::recovery::{PutRight, State, lets_back, put_right};
use handover::fleet::strikes::{Rules, Seen, Strikes};
use handover::fleet::watch::{Do, Left, Look, Next, Outcome, Saw, Turn};
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds; everything here happens on whole ones.
const LEASE: u64 = 30;
const INTERVAL: u64 = 10;
const DEPLOY: u64 = 1;
const WATCHDOG: u64 = 2;
const BOOTSTRAP: u64 = 3;
const PERSON: u64 = 4;

const RULES: Rules =
    Rules { interval: Duration::from_secs(INTERVAL), strikes: 4, heals: 3, window: Duration::from_secs(3600) };

struct Dice(u64);

impl Dice {
    fn draw(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.draw(n) == 0
    }
}

/// The old watchdog's faults, each by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Old {
    None,
    /// One failed look, and it heals without the lock, as in the story.
    OneStrikeNoLock,
    /// It does not look at the lock, but takes it, and does not look again.
    Blind,
}

#[derive(Default)]
struct Machine {
    now: u64,
    /// Who holds the lock, since when its holder is dead.
    lock: Option<(u64, Option<u64>)>,
    /// Who changes something right now.
    acting: Vec<u64>,
    state: Option<State>,
    drained: bool,
    absent: Option<&'static str>,
    current: u64,
    /// Which release each service runs; none where it is down.
    services: BTreeMap<&'static str, Option<u64>>,
    /// Nobody brings it back by himself.
    sick: bool,
    faults: Vec<String>,
}

const SERVICES: [&str; 2] = ["api", "gateway"];

impl Machine {
    fn new() -> Self {
        Self {
            current: 1,
            services: SERVICES.iter().map(|name| (*name, Some(1))).collect(),
            state: Some(State::Idle),
            ..Self::default()
        }
    }

    fn state(&self) -> State {
        self.state.clone().unwrap_or(State::Idle)
    }

    /// Whoever changes something must be the only one who does.
    fn act(&mut self, who: u64, what: &str) {
        let holder = self.lock.map(|(holder, _)| holder);
        if holder != Some(who) {
            self.faults.push(format!("{who} did `{what}` while {holder:?} holds the lock"));
        }
        if self.acting.iter().any(|other| *other != who) {
            self.faults.push(format!("{who} did `{what}` while {:?} was at work", self.acting));
        }
    }

    fn take(&mut self, who: u64) -> bool {
        if self.lock.is_some() {
            return false;
        }
        self.lock = Some((who, None));
        true
    }

    fn free(&mut self, who: u64) {
        if self.lock.is_some_and(|(holder, _)| holder == who) {
            self.lock = None;
        }
    }

    fn up(&mut self, release: u64) {
        for runs in self.services.values_mut() {
            *runs = Some(release);
        }
        self.sick = false;
    }

    fn serves(&self) -> bool {
        !self.sick && self.services.values().all(|runs| *runs == Some(self.current))
    }

    /// What whoever finds a dead deploy's record does.
    fn put_right(&mut self, who: u64, left: &State) {
        match put_right(left, self.drained, self.absent.is_some()) {
            PutRight::Nothing | PutRight::StaysOut => {}
            PutRight::FlipBackIfItRuns => {
                self.act(who, "flip back");
                if self.services.values().any(Option::is_some) {
                    self.drained = false;
                }
            }
            PutRight::BringCurrentUp => {
                self.act(who, "bring current up");
                self.up(self.current);
                self.drained = false;
            }
        }
        self.state = Some(State::Idle);
    }
}

/// A deploy with its agent: a step at a time, and it may die after any of them.
struct Deploy {
    step: u8,
    release: u64,
    dies_after: Option<u8>,
    /// The agent dies too: the kernel frees the lock, the record stays.
    agent_too: bool,
    silent_since: Option<u64>,
}

impl Deploy {
    fn go(&mut self, machine: &mut Machine) -> bool {
        if let Some(since) = self.silent_since {
            if machine.now >= since + LEASE {
                let left = machine.state();
                machine.put_right(DEPLOY, &left);
                machine.free(DEPLOY);
                return true;
            }
            return false;
        }
        if self.step == 0 {
            if !machine.take(DEPLOY) {
                return false;
            }
            let drained = machine.drained;
            machine.state = Some(State::Locked);
            machine.drained = drained;
        } else {
            self.work(machine);
        }
        let dies = self.dies_after == Some(self.step);
        self.step += 1;
        if dies && self.step < 8 {
            if self.agent_too {
                machine.lock = None;
                return true;
            }
            machine.lock = Some((DEPLOY, Some(machine.now)));
            self.silent_since = Some(machine.now);
            return false;
        }
        self.step > 7
    }

    fn work(&self, machine: &mut Machine) {
        let what = ["", "flip", "stop", "remove", "start", "switch", "back", "unlock"][self.step as usize];
        machine.act(DEPLOY, what);
        match self.step {
            1 => {
                machine.drained = true;
                machine.state = Some(State::Drained);
            }
            2 => {
                machine.state = Some(State::Stopped);
                machine.services.insert("api", None);
            }
            3 => drop(machine.services.insert("gateway", None)),
            4 => {
                machine.state = Some(State::Started(ReleaseId::new("new")));
                machine.up(self.release);
            }
            5 => {
                if machine.services.values().all(|runs| *runs == Some(self.release)) && !machine.sick {
                    machine.current = self.release;
                    machine.state = Some(State::Switched);
                } else {
                    machine.up(machine.current);
                }
            }
            6 => {
                machine.drained = false;
                machine.state = Some(State::Locked);
            }
            _ => {
                if lets_back(&machine.state(), machine.drained, machine.absent.is_some()) {
                    machine.drained = false;
                }
                machine.state = Some(State::Idle);
                machine.free(DEPLOY);
            }
        }
    }
}

struct Dog {
    old: Old,
    strikes: Strikes,
    turn: Option<(Turn, Do)>,
    next: u64,
    left: State,
    heals: u32,
    /// Looked at in two moments, as on a real server.
    half: Option<BTreeMap<ServiceName, Seen>>,
}

impl Dog {
    fn go(&mut self, machine: &mut Machine) {
        let Some((mut turn, todo)) = self.turn.take() else {
            if machine.now >= self.next {
                self.turn = Some(Turn::begin(RULES));
            }
            return;
        };
        if self.old == Old::OneStrikeNoLock {
            self.next = machine.now + INTERVAL;
            if !machine.serves() {
                machine.act(WATCHDOG, "heal");
                machine.up(machine.current);
            }
            return;
        }
        let Some(saw) = self.carry_out(machine, &todo) else {
            self.turn = Some((turn, todo));
            return;
        };
        match turn.step(&mut self.strikes, saw, machine.now) {
            Next::Do(next) => self.turn = Some((turn, next)),
            Next::End(outcome) => {
                if matches!(outcome, Outcome::Healed(..)) {
                    self.heals += 1;
                }
                assert!(!matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
                self.next = machine.now + INTERVAL;
            }
        }
    }

    fn carry_out(&mut self, machine: &mut Machine, todo: &Do) -> Option<Saw> {
        Some(match todo {
            Do::SeeLock if self.old == Old::Blind => Saw::Lock(None),
            Do::SeeLock => Saw::Lock(machine.lock.map(|(holder, _)| holder.to_string())),
            Do::Look => Saw::Server(Box::new(self.look(machine)?)),
            Do::TakeLock if machine.take(WATCHDOG) => {
                self.left = machine.state();
                machine.state = Some(State::Locked);
                Saw::Taken(Ok(self.left != State::Idle))
            }
            Do::TakeLock => Saw::Taken(Err("somebody".to_owned())),
            Do::PutRight => {
                let left = std::mem::replace(&mut self.left, State::Idle);
                machine.put_right(WATCHDOG, &left);
                Saw::Done(Ok(String::new()))
            }
            Do::LetBack => {
                machine.act(WATCHDOG, "let back");
                machine.drained = false;
                Saw::Done(Ok(String::new()))
            }
            Do::Heal(services) => {
                machine.act(WATCHDOG, "heal");
                for name in SERVICES.iter().filter(|name| services.iter().any(|one| one.as_str() == **name)) {
                    machine.services.insert(name, Some(machine.current));
                }
                machine.sick = false;
                machine.drained = false;
                Saw::Done(Ok(String::new()))
            }
            Do::Free => {
                machine.state = Some(State::Idle);
                machine.free(WATCHDOG);
                Saw::Done(Ok(String::new()))
            }
        })
    }

    fn look(&mut self, machine: &Machine) -> Option<Look> {
        let fine = |name: &str| machine.services[name] == Some(machine.current) && !machine.sick;
        let seen = |name: &str| if fine(name) { Seen::Fine } else { Seen::Failing("down".to_owned()) };
        let Some(mut services) = self.half.take() else {
            self.half = Some(BTreeMap::from([(ServiceName::new("api"), seen("api"))]));
            return None;
        };
        services.insert(ServiceName::new("gateway"), seen("gateway"));
        let left = match machine.state() {
            State::Idle if machine.drained => Left::Drained,
            State::Idle => Left::Nothing,
            _ => Left::Unfinished,
        };
        // Under its own lock the record says so.
        let left = if machine.lock.is_some_and(|(holder, _)| holder == WATCHDOG) && machine.drained {
            Left::Drained
        } else {
            left
        };
        let release = Some(ReleaseId::new(machine.current.to_string()));
        Some(Look { release, absent: machine.absent.map(ToOwned::to_owned), left, services: Ok(services) })
    }
}

/// Takes the lock with `flock(1)`, restarts a service by hand, frees it.
struct Person(u8);

impl Person {
    fn go(&mut self, machine: &mut Machine) -> bool {
        match self.0 {
            0 if !machine.take(PERSON) => return false,
            0 => {}
            1 => {
                machine.act(PERSON, "stop the api");
                machine.services.insert("api", None);
            }
            2 => {
                machine.act(PERSON, "start the api");
                machine.services.insert("api", Some(machine.current));
            }
            _ => {
                machine.free(PERSON);
                return true;
            }
        }
        self.0 += 1;
        false
    }
}

/// A boot: everything that ran is dead, then bootstrap.
struct Boot(u8, State);

impl Boot {
    fn go(&mut self, machine: &mut Machine) -> bool {
        match self.0 {
            0 => {
                machine.drained = true;
                // The engine revives what it had.
                self.0 = 1;
            }
            1 => {
                if machine.take(BOOTSTRAP) {
                    self.1 = machine.state();
                    machine.state = Some(State::Locked);
                    self.0 = 2;
                }
            }
            _ => {
                if machine.absent.is_none() {
                    machine.put_right(BOOTSTRAP, &State::Switched);
                }
                machine.state = Some(State::Idle);
                machine.free(BOOTSTRAP);
                return true;
            }
        }
        false
    }
}

/// One schedule; what went wrong in it.
fn schedule(seed: u64, old: Old) -> Vec<String> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut machine = Machine::new();
    let fresh =
        |old| Dog { old, strikes: Strikes::default(), turn: None, next: 0, left: State::Idle, heals: 0, half: None };
    let mut dog = fresh(old);
    let (mut deploy, mut person, mut boot) = (None::<Deploy>, None::<Person>, None::<Boot>);
    let mut releases = 1;
    let busy = 400;
    for tick in 0..1000_u64 {
        machine.now = tick;
        // So many of the first ticks disturb; then everything settles.
        if tick < busy {
            if deploy.is_none() && dice.one_in(40) {
                releases += 1;
                let dies_after = dice.one_in(2).then(|| u8::try_from(dice.draw(8)).expect("few"));
                let agent_too = dice.one_in(2);
                deploy = Some(Deploy { step: 0, release: releases, dies_after, agent_too, silent_since: None });
            }
            if person.is_none() && dice.one_in(60) {
                person = Some(Person(0));
            }
            if dice.one_in(50) {
                let name = SERVICES[usize::try_from(dice.draw(2)).expect("few")];
                machine.services.insert(name, None);
            }
            if dice.one_in(120) {
                machine.sick = true;
            }
            if dice.one_in(150) {
                // Whoever was at work is dead; the record stays, the kernel's locks are gone.
                (deploy, person) = (None, None);
                let strikes = std::mem::take(&mut dog.strikes);
                dog = Dog { strikes, heals: dog.heals, next: tick, ..fresh(old) };
                machine.lock = None;
                boot = Some(Boot(0, State::Idle));
            }
        }
        let who = dice.draw(4);
        match who {
            0 => {
                if deploy.as_mut().is_some_and(|deploy| deploy.go(&mut machine)) {
                    deploy = None;
                }
            }
            1 => dog.go(&mut machine),
            2 => {
                if person.as_mut().is_some_and(|person| person.go(&mut machine)) {
                    person = None;
                }
            }
            _ => {
                if boot.as_mut().is_some_and(|boot| boot.go(&mut machine)) {
                    boot = None;
                }
            }
        }
        if let Some((holder, Some(dead))) = machine.lock
            // A turn of four in the mean, and a lease.
            && machine.now > dead + LEASE + 60
        {
            machine.faults.push(format!("{holder} is dead since {dead} and has the lock at {tick}"));
        }
        if !machine.faults.is_empty() {
            return machine.faults;
        }
    }
    let mut faults = machine.faults;
    if machine.lock.is_some() && dog.turn.is_none() {
        faults.push(format!("the lock is still held by {:?}", machine.lock));
    }
    if machine.services.values().any(Option::is_none) || machine.drained {
        faults.push(format!("in the end: {:?}, drained {}", machine.services, machine.drained));
    }
    faults
}

fn seeds() -> u64 {
    if std::env::var_os("HANDOVER_LONG").is_some() { 2_000_000 } else { 100_000 }
}

#[test]
fn no_two_act_at_once_and_nothing_stays_down_out_or_locked() {
    for seed in 1..=seeds() {
        let faults = schedule(seed, Old::None);
        assert!(faults.is_empty(), "seed {seed}: {faults:?}");
    }
}

#[test]
fn the_watchdog_of_the_story_is_found_out() {
    let found = |old| (1..=2_000).find_map(|seed| schedule(seed, old).into_iter().next());
    let against_a_deploy =
        |seed| schedule(seed, Old::OneStrikeNoLock).iter().any(|what| what.contains("while Some(1)"));
    assert!((1..=2_000).any(against_a_deploy), "it heals against a deploy");
    assert_eq!(found(Old::None), None);
    assert_eq!(found(Old::Blind), None, "who takes the lock before he acts harms nobody, he only looks in vain");
}
