//! Who acts on the server: a deploy, the watchdog, bootstrap and a person, each a step at a time.

use super::machine::{Absent, Machine, Old, Righted, SERVICES};
use handover::fleet::model::{ReleaseId, ServiceName};
use handover::fleet::recovery::State;
use handover::fleet::strikes::{Restarts, Rules, Seen, Strikes};
use handover::fleet::watch::{Do, Left, Look, Next, Outcome, Saw, Turn};
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds; everything here happens on whole ones.
pub const LEASE: u64 = 30;
const INTERVAL: u64 = 10;
const PATIENCE: u32 = 60;
const DEPLOY: u64 = 1;
const WATCHDOG: u64 = 2;
pub const BOOTSTRAP: u64 = 3;
const PERSON: u64 = 4;

const RULES: Rules =
    Rules { interval: Duration::from_secs(INTERVAL), strikes: 4, heals: 100, window: Duration::from_secs(300) };

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Deploy(u64),
    Drain,
    Undrain,
}

/// How a run ends before it is through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Breaks {
    /// Somebody interrupts it: it goes in order, as far as it has changed nothing that would have to be undone.
    InOrder,
    /// It dies, and its agent puts right what it left.
    Dies,
    /// The agent dies too: the kernel frees the lock, the record stays.
    AgentToo,
}

/// A deploy, drain or undrain with its agent.
pub struct Run {
    pub what: What,
    pub breaks: Option<(u8, Breaks)>,
    step: u8,
    silent_since: Option<u64>,
    verifies: Option<bool>,
}

impl Run {
    pub fn new(what: What, breaks: Option<(u8, Breaks)>) -> Self {
        Self { what, breaks, step: 0, silent_since: None, verifies: None }
    }

    /// Whether it is over.
    pub fn go(&mut self, machine: &mut Machine) -> bool {
        if let Some(since) = self.silent_since {
            return machine.now >= since + LEASE && self.dead_man(machine);
        }
        let last = match self.what {
            What::Deploy(_) => 7,
            What::Drain => 3,
            What::Undrain => 2,
        };
        if self.step == 0 {
            if machine.take(DEPLOY).is_none() {
                return false;
            }
        } else if self.step == last {
            machine.unlock(DEPLOY);
        } else {
            match self.what {
                What::Deploy(release) => self.deploy(machine, release),
                What::Drain => self.drain(machine),
                What::Undrain => undrain(machine),
            }
        }
        let breaks = self.breaks.filter(|(at, _)| *at == self.step && *at < last).map(|(_, how)| how);
        self.step += 1;
        match breaks {
            Some(Breaks::InOrder) if self.step <= 2 => {
                machine.unlock(DEPLOY);
                return true;
            }
            Some(Breaks::AgentToo) => {
                machine.lock = None;
                return true;
            }
            Some(Breaks::Dies) => {
                machine.lock = Some((DEPLOY, Some(machine.now)));
                self.silent_since = Some(machine.now);
            }
            _ => {}
        }
        self.step > last
    }

    fn dead_man(&mut self, machine: &mut Machine) -> bool {
        let left = machine.state();
        let righted = match self.verifies.take() {
            Some(lets_back) => machine.verified(DEPLOY, lets_back),
            None => machine.put_right(DEPLOY),
        };
        if let Righted::Verify(lets_back) = righted {
            self.verifies = Some(lets_back);
            return false;
        }
        let state = machine.after(righted, left);
        machine.free(DEPLOY, state);
        true
    }

    fn deploy(&self, machine: &mut Machine, release: u64) {
        match self.step {
            1 => machine.flip_out(DEPLOY),
            2 => {
                machine.act(DEPLOY, "stop");
                machine.enter(State::Stopped);
                machine.services.insert("api", None);
            }
            3 => {
                machine.act(DEPLOY, "stop");
                machine.services.insert("gateway", None);
            }
            4 => {
                machine.act(DEPLOY, "start");
                machine.enter(State::Started(ReleaseId::new("new")));
                machine.up(&SERVICES, release);
            }
            5 => {
                machine.act(DEPLOY, "switch");
                if machine.runs(release) {
                    machine.current = release;
                } else {
                    let current = machine.current;
                    machine.up(&SERVICES, current);
                }
                if machine.verify() {
                    machine.enter(State::Switched);
                } else if machine.absent.is_none() {
                    machine.absent = Some(Absent { ends_when_verified: true });
                }
            }
            _ => {
                let stays = machine.absent.is_some_and(|absent| !absent.ends_when_verified);
                if !stays && machine.verify() {
                    machine.absent = None;
                    machine.let_in(DEPLOY);
                } else if !stays {
                    machine.absent = Some(Absent { ends_when_verified: true });
                }
            }
        }
    }

    fn drain(&self, machine: &mut Machine) {
        match self.step {
            1 => machine.flip_out(DEPLOY),
            _ => {
                machine.act(DEPLOY, "leave out");
                machine.absent = Some(Absent { ends_when_verified: false });
            }
        }
    }
}

fn undrain(machine: &mut Machine) {
    machine.act(DEPLOY, "undrain");
    if machine.verify() {
        machine.absent = None;
        machine.let_in(DEPLOY);
    }
}

/// The watchdog: the real machine, with a server that is a value.
#[derive(Default)]
pub struct Dog {
    pub strikes: Strikes,
    restarts: Restarts,
    pub turn: Option<(Turn, Do)>,
    pub next: u64,
    left: Option<State>,
    verifies: Option<bool>,
    /// Under way: whether the server was out before.
    heals: Option<bool>,
    /// Looked at in two moments, as on a real server.
    half: Option<BTreeMap<ServiceName, Seen>>,
}

impl Dog {
    /// What is left of it after a reboot: what it has written down.
    pub fn reborn(&mut self, now: u64) {
        let (strikes, restarts) = (std::mem::take(&mut self.strikes), std::mem::take(&mut self.restarts));
        *self = Self { strikes, restarts, next: now, ..Self::default() };
    }

    pub fn go(&mut self, machine: &mut Machine) {
        let Some((mut turn, todo)) = self.turn.take() else {
            if machine.now >= self.next {
                // It crashes while nobody looks.
                machine.crashes += u32::from(machine.flaps);
                self.turn = Some(Turn::begin(RULES));
            }
            return;
        };
        if machine.old == Old::OneStrikeNoLock {
            self.next = machine.now + INTERVAL;
            if !machine.serves() {
                machine.act(WATCHDOG, "heal");
                let current = machine.current;
                machine.up(&SERVICES, current);
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
                assert!(!matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
                self.restarts.turn_ends();
                self.next = machine.now + INTERVAL;
            }
        }
    }

    /// None where it takes longer.
    fn carry_out(&mut self, machine: &mut Machine, todo: &Do) -> Option<Saw> {
        Some(match todo {
            Do::SeeLock if machine.old == Old::Blind => Saw::Lock(None),
            Do::SeeLock => Saw::Lock(machine.lock.map(|(holder, _)| holder.to_string())),
            Do::Look => Saw::Server(Box::new(self.look(machine)?)),
            Do::TakeLock => match machine.take(WATCHDOG) {
                Some(left) => {
                    let unfinished = left != State::Idle;
                    self.left = Some(left);
                    Saw::Taken(Ok(unfinished))
                }
                None => Saw::Taken(Err("somebody".to_owned())),
            },
            Do::PutRight => self.put_right(machine)?,
            Do::LetBack => {
                if machine.verify() {
                    machine.let_in(WATCHDOG);
                }
                Saw::Done(Ok(String::new()))
            }
            Do::Heal(services) => self.heal(machine, services)?,
            Do::Free => {
                let left = self.left.take().unwrap_or(State::Idle);
                machine.free(WATCHDOG, left);
                Saw::Done(Ok(String::new()))
            }
        })
    }

    fn put_right(&mut self, machine: &mut Machine) -> Option<Saw> {
        let left = self.left.clone().unwrap_or(State::Idle);
        let righted = match self.verifies.take() {
            Some(lets_back) => machine.verified(WATCHDOG, lets_back),
            None => {
                if machine.old != Old::Forgets {
                    machine.enter(left.clone());
                }
                machine.put_right(WATCHDOG)
            }
        };
        if let Righted::Verify(lets_back) = righted {
            self.verifies = Some(lets_back);
            return None;
        }
        self.left = Some(machine.after(righted, left));
        Some(Saw::Done(if righted == Righted::Done(true) { Ok(String::new()) } else { Err(String::new()) }))
    }

    fn heal(&mut self, machine: &mut Machine, services: &[ServiceName]) -> Option<Saw> {
        let wanted = |name: &&&'static str| services.iter().any(|one| one.as_str() == **name);
        let names: Vec<&'static str> = SERVICES.iter().filter(wanted).copied().collect();
        self.left = None;
        let Some(was_out) = self.heals.take() else {
            let was_out = machine.is_out();
            machine.flip_out(WATCHDOG);
            machine.enter(State::Stopped);
            let current = machine.current;
            if !machine.up(&names, current) {
                return Some(Saw::Done(Err("it cannot be brought up".to_owned())));
            }
            self.heals = Some(was_out);
            return None;
        };
        let (fine, all) = machine.verify_some(&names);
        if fine && all && !was_out {
            machine.let_in(WATCHDOG);
        }
        Some(Saw::Done(if fine { Ok(String::new()) } else { Err("it does not pass".to_owned()) }))
    }

    fn seen(&self, machine: &Machine, name: &str) -> Seen {
        match machine.services[name] {
            None => Seen::Failing("down".to_owned()),
            Some(_) if machine.sick => Seen::Failing("sick".to_owned()),
            Some(_) if machine.flaps && name == "api" => {
                if self.restarts.grew("api", machine.crashes) {
                    Seen::Failing("no answer".to_owned())
                } else {
                    Seen::Starting
                }
            }
            // Another release than `current` is a deploy's to mend, as on a real server.
            Some(_) => Seen::Fine,
        }
    }

    fn look(&mut self, machine: &Machine) -> Option<Look> {
        let Some(mut services) = self.half.take() else {
            self.half = Some(BTreeMap::from([(ServiceName::new("gateway"), self.seen(machine, "gateway"))]));
            return None;
        };
        services.insert(ServiceName::new("api"), self.seen(machine, "api"));
        self.restarts.see([("api".to_owned(), machine.crashes)]);
        if machine.old == Old::CountsEachLook {
            self.restarts.turn_ends();
        }
        let ours = machine.lock.is_some_and(|(holder, _)| holder == WATCHDOG);
        let left = match machine.state() {
            State::Idle if machine.is_out() => Left::Drained,
            State::Idle => Left::Nothing,
            _ if ours && machine.is_out() => Left::Drained,
            _ if ours => Left::Nothing,
            _ => Left::Unfinished,
        };
        let release = Some(ReleaseId::new(machine.current.to_string()));
        Some(Look { release, absent: machine.absent.map(|_| "out".to_owned()), left, services: Ok(services) })
    }
}

/// Takes the lock with `flock(1)`, restarts a service by hand, frees it.
pub struct Person(pub u8);

impl Person {
    pub fn go(&mut self, machine: &mut Machine) -> bool {
        match self.0 {
            0 if !machine.take_flock(PERSON) => return false,
            0 => {}
            1 => {
                machine.act(PERSON, "stop the api");
                machine.services.insert("api", None);
                machine.hurt = true;
            }
            2 => {
                machine.act(PERSON, "start the api");
                let current = machine.current;
                machine.start("api", current);
            }
            _ => {
                machine.free_flock(PERSON);
                return true;
            }
        }
        self.0 += 1;
        false
    }
}

/// The engine starts, after a boot or a restart of its own: first health is made to fail, then it revives what it had, and bootstrap
/// comes.
pub struct Boot {
    step: u8,
    lost: Option<&'static str>,
    waits: u32,
    verifies: bool,
}

impl Boot {
    pub fn new(lost: Option<&'static str>) -> Self {
        Self { step: 0, lost, waits: 0, verifies: false }
    }

    pub fn go(&mut self, machine: &mut Machine) -> bool {
        self.step += 1;
        match self.step {
            1 => {
                // Who holds the lock has the record; the flag is set all the same.
                machine.flag = true;
                machine.recorded |= machine.lock.is_none();
                machine.revive(self.lost);
            }
            2 => {
                if machine.take(BOOTSTRAP).is_none() {
                    (self.step, self.waits) = (1, self.waits + 1);
                    return self.waits > PATIENCE;
                }
            }
            3 => {
                if machine.absent.is_some() {
                    machine.flip_out(BOOTSTRAP);
                }
                machine.enter(State::Switched);
                match machine.put_right(BOOTSTRAP) {
                    Righted::Verify(lets_back) => self.verifies = lets_back,
                    righted => return end(machine, righted),
                }
            }
            _ => {
                let righted = machine.verified(BOOTSTRAP, self.verifies);
                return end(machine, righted);
            }
        }
        false
    }
}

fn end(machine: &mut Machine, righted: Righted) -> bool {
    let state = machine.after(righted, State::Switched);
    machine.free(BOOTSTRAP, state);
    true
}
