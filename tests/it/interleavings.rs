//! Deploys, drains, bootstrap, watchdog and a person with `flock(1)` on one server, in orders that nobody chose: who goes next, who dies
//! and what breaks is drawn from a seed.
//!
//! The watchdog is the real machine (`fleet::watch`, `fleet::strikes`), what becomes of a dead deploy is decided by the real
//! `fleet::recovery`; the server is a value. Nothing is let into rotation that was started since it left and that nobody verified. After
//! each schedule nobody disturbs any more: everything that `current` names must run and work, in rotation, with the lock free; a server
//! that was left out on purpose stays out, and was not left stopped.

mod actors;
mod dog;
mod machine;

use actors::{Boot, Breaks, LEASE, Person, Run, What};
use dog::Dog;
use machine::{Machine, Old, SERVICES};

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

    fn service(&mut self) -> &'static str {
        SERVICES[usize::try_from(self.draw(2)).expect("few")]
    }
}

/// Everything that goes on at one server.
struct World {
    dice: Dice,
    machine: Machine,
    dog: Dog,
    run: Option<Run>,
    person: Option<Person>,
    boot: Option<Boot>,
    releases: u64,
}

impl World {
    fn begin_a_run(&mut self) {
        let dice = &mut self.dice;
        let what = match dice.draw(8) {
            0 => What::Drain,
            // Who has drained a server undrains it some time.
            1..=3 if self.machine.absent.is_some() => What::Undrain,
            _ => {
                self.releases += 1;
                What::Deploy(self.releases)
            }
        };
        let breaks = dice.one_in(2).then(|| {
            let how = [Breaks::InOrder, Breaks::Dies, Breaks::AgentToo][usize::try_from(dice.draw(3)).expect("few")];
            (u8::try_from(dice.draw(8)).expect("few"), how)
        });
        self.run = Some(Run::new(what, breaks));
    }

    fn disturb(&mut self, tick: u64) {
        if self.run.is_none() && self.dice.one_in(40) {
            self.begin_a_run();
        }
        if self.person.is_none() && self.dice.one_in(60) {
            self.person = Some(Person(0));
        }
        let machine = &mut self.machine;
        if self.dice.one_in(50) {
            machine.services.insert(self.dice.service(), None);
            machine.hurt = true;
        }
        if self.dice.one_in(120) {
            (machine.sick, machine.hurt) = (true, true);
        }
        if self.dice.one_in(120) {
            (machine.flaps, machine.hurt) = (true, true);
        }
        // For some time each.
        machine.up_fails = if machine.up_fails { !self.dice.one_in(20) } else { self.dice.one_in(150) };
        machine.made_sick = if machine.made_sick { !self.dice.one_in(40) } else { self.dice.one_in(150) };
        if self.dice.one_in(100) {
            let lost = self.dice.one_in(4).then(|| self.dice.service());
            if self.dice.one_in(2) {
                // Whoever was at work is dead; the record stays, the kernel's locks are gone.
                (self.run, self.person, self.machine.lock) = (None, None, None);
                self.dog.reborn(tick);
            } else if self.machine.lock.is_some_and(|(holder, _)| holder == actors::BOOTSTRAP) {
                // Its unit goes with the engine's.
                self.machine.lock = None;
            }
            self.boot = Some(Boot::new(lost));
        }
    }

    /// One of them goes on.
    fn go(&mut self) {
        let machine = &mut self.machine;
        match self.dice.draw(4) {
            0 => {
                if self.run.as_mut().is_some_and(|run| run.go(machine)) {
                    self.run = None;
                }
            }
            1 => self.dog.go(machine),
            2 => {
                if self.person.as_mut().is_some_and(|person| person.go(machine)) {
                    self.person = None;
                }
            }
            _ => {
                if self.boot.as_mut().is_some_and(|boot| boot.go(machine)) {
                    self.boot = None;
                }
            }
        }
    }
}

/// One schedule; what went wrong in it.
fn schedule(seed: u64, old: Old) -> Vec<String> {
    let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let machine = Machine::new(old);
    let mut world = World { dice, machine, dog: Dog::default(), run: None, person: None, boot: None, releases: 1 };
    for tick in 0..1300_u64 {
        world.machine.now = tick;
        // So many of the first ticks disturb; then everything settles.
        if tick < 400 {
            world.disturb(tick);
        } else {
            (world.machine.up_fails, world.machine.made_sick) = (false, false);
        }
        world.go();
        if let Some((holder, Some(dead))) = world.machine.lock
            // A turn of four in the mean, and a lease.
            && tick > dead + LEASE + 80
        {
            world.machine.faults.push(format!("{holder} is dead since {dead} and has the lock at {tick}"));
        }
        if !world.machine.faults.is_empty() {
            return world.machine.faults;
        }
    }
    let mut faults = Vec::new();
    if world.machine.lock.is_some() && world.dog.turn.is_none() {
        faults.push(format!("the lock is still held by {:?}", world.machine.lock));
    }
    faults.extend(world.machine.at_rest());
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
    let against_a_deploy =
        |seed| schedule(seed, Old::OneStrikeNoLock).iter().any(|what| what.contains("while Some(1)"));
    assert!((1..=2_000).any(against_a_deploy), "it heals against a deploy");
    let found = (1..=2_000).find_map(|seed| schedule(seed, Old::Blind).into_iter().next());
    assert_eq!(found, None, "who takes the lock before he acts harms nobody, he only looks in vain");
}

#[test]
fn each_fault_that_we_had_is_found_out() {
    for (old, what) in [
        (Old::Forgets, "which nobody had verified"),
        (Old::PutsRightForEver, "sick true"),
        (Old::LetsAbsentLie, "flag true, Some(Absent"),
        (Old::CountsEachLook, "flaps true"),
    ] {
        let found = (1..=2_000).any(|seed| schedule(seed, old).iter().any(|fault| fault.contains(what)));
        assert!(found, "{old:?}");
    }
}
