//! The watchdog: the real machine (`fleet::watch`, `fleet::strikes`), carried out on a server that is a value.

use super::machine::{Machine, Old, Righted, SERVICES};
use handover::fleet::model::{ReleaseId, ServiceName};
use handover::fleet::recovery::State;
use handover::fleet::strikes::{Restarts, Rules, Seen, Strikes};
use handover::fleet::watch::{Do, Left, Look, Next, Outcome, Saw, Turn};
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds.
const INTERVAL: u64 = 10;
const WATCHDOG: u64 = 2;

const RULES: Rules =
    Rules { interval: Duration::from_secs(INTERVAL), strikes: 4, heals: 100, window: Duration::from_secs(300) };

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
