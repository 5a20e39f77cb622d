//! Who acts on the server besides its watchdog: a deploy, bootstrap and a person, each a step at a time.

use super::machine::{Absent, Machine, Righted, SERVICES};
use handover::fleet::model::ReleaseId;
use handover::fleet::recovery::State;

/// Seconds; everything here happens on whole ones.
pub const LEASE: u64 = 30;
const PATIENCE: u32 = 60;
const DEPLOY: u64 = 1;
pub const BOOTSTRAP: u64 = 3;
const PERSON: u64 = 4;

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
