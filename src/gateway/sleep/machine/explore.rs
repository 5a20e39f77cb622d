//! Random schedules of everything that can happen to a backend that sleeps, and the promises looked at after each step.

use super::super::super::gate::{Gate, Turn};
use super::super::super::hold::Ticket;
use super::*;
use std::collections::BTreeMap;

/// A generator that says the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.roll(most))
    }
}

/// What the containers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Containers {
    Off,
    Booting(Instant),
    Up,
    Dying(Instant),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Waits(Ticket),
    /// Let go, not yet with the backend.
    Going(Option<Ticket>),
    Unanswered,
    Open,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Prepare {
        turn: u64,
        begun: bool,
        at: Instant,
    },
    Stop {
        turn: u64,
        at: Instant,
    },
    Start {
        turn: u64,
        at: Instant,
        well: bool,
    },
    /// What it sees is what was there when it began.
    Look {
        epoch: u64,
        at: Instant,
        off: bool,
        planned: bool,
    },
}

impl Call {
    fn at(&self) -> Instant {
        match *self {
            Self::Prepare { at, .. } | Self::Stop { at, .. } | Self::Start { at, .. } | Self::Look { at, .. } => at,
        }
    }
}

struct World {
    dice: Dice,
    now: Instant,
    gate: Gate,
    written: Written,
    containers: Containers,
    planned: bool,
    calls: Vec<Call>,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// Whether a stop of ours is under way at the engine, or one of who works here: until when.
    stopping: bool,
    put_back: Option<Instant>,
    /// When no container was there last.
    off_at: Option<Instant>,
    tally: Tally,
    seed: u64,
    without: Option<Guard>,
    /// Everything that happened, where it is to be told.
    story: Option<Vec<String>>,
}

#[derive(Debug, Default)]
struct Tally {
    served: u64,
    told: u64,
    left: u64,
    stops: u64,
    starts: u64,
    restarts: u64,
    deferred: u64,
    cancelled: u64,
    joined: u64,
}

fn rules() -> Rules {
    let millis = Duration::from_millis;
    Rules {
        after: millis(2000),
        quiet: millis(1000),
        start: millis(3000),
        awake: millis(500),
        tries: 3,
        again: millis(4000),
        patience: millis(2000),
    }
}

impl World {
    fn new(seed: u64, told: bool, without: Option<Guard>) -> Self {
        let now = Instant::now();
        let mut dice = Dice(seed);
        let written = [Written::Nothing, Written::Asleep, Written::Stopping, Written::Waking][dice.roll(4) as usize];
        let dying = Containers::Dying(now + dice.millis(1500));
        let containers = match (written, dice.roll(3)) {
            (Written::Stopping, 0) => dying,
            (_, 1) => Containers::Off,
            _ => Containers::Up,
        };
        let mut world = Self {
            dice,
            now,
            gate: Gate::new(),
            written,
            containers,
            planned: false,
            calls: Vec::new(),
            clients: BTreeMap::new(),
            next: 0,
            stopping: containers == dying,
            put_back: None,
            off_at: None,
            tally: Tally::default(),
            seed,
            without,
            story: told.then(Vec::new),
        };
        world.begins();
        world
    }

    fn begins(&mut self) {
        let mut sleep = Sleep::new(rules(), self.written, self.now);
        sleep.without = self.without;
        self.gate.sleep = Some(sleep);
        self.obey();
    }

    fn sleep(&mut self) -> &mut Sleep {
        self.gate.sleep.as_mut().expect("there")
    }

    fn judge(&self, holds: bool, what: &str) {
        let told = self.story.as_ref().map(|story| story.join("\n"));
        let how = "HANDOVER_SCHEDULE with that number tells all of it".to_owned();
        assert!(holds, "seed {}: {what}\n{}", self.seed, told.unwrap_or(how));
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }

    fn accepts(&self) -> bool {
        match self.containers {
            Containers::Off | Containers::Booting(_) => false,
            // Its listener may be open until its last moment.
            Containers::Up | Containers::Dying(_) => true,
        }
    }

    fn run(&mut self, call: Call) {
        let changes = |call: &Call| !matches!(call, Call::Look { .. });
        let twice = changes(&call) && self.calls.iter().any(changes);
        self.judge(!twice, "two calls at a time that change something");
        self.calls.push(call);
    }

    /// Carries the effects out.
    fn obey(&mut self) {
        for effect in self.sleep().effects() {
            self.say(|| format!("  {effect:?}"));
            let at = self.now + self.dice.millis(300);
            match effect {
                Effect::Look => {
                    let (epoch, off) = (self.sleep().epoch(), self.containers == Containers::Off);
                    self.run(Call::Look { epoch, at, off, planned: self.planned });
                }
                Effect::Stop { turn, begun } => self.run(Call::Prepare { turn, begun, at }),
                Effect::Start { turn, force } if self.put_back.is_some() || (self.planned && !force) => {
                    self.tally.deferred += 1;
                    let (told, now) = (self.put_back.is_none(), self.now);
                    if told && self.written == Written::Asleep {
                        self.written = Written::Waking;
                    }
                    self.sleep().deferred(turn, told, now);
                }
                Effect::Start { turn, .. } => {
                    self.judge(!self.stopping, "a start while a stop is under way");
                    self.tally.starts += 1;
                    let (well, now) = (self.dice.roll(5) > 0, self.now);
                    self.written = Written::Waking;
                    self.sleep().calls(turn, now);
                    self.run(Call::Start { turn, at, well });
                }
                Effect::Adopt { epoch } => {
                    let (told, now) = (self.put_back.is_none(), self.now);
                    if told && self.written == Written::Asleep {
                        self.written = Written::Waking;
                    }
                    self.sleep().adopted(epoch, told, now);
                }
                Effect::Clear => self.written = Written::Nothing,
                Effect::Tell(_) => {
                    let away = self.gate.send_away();
                    let told: Vec<u64> =
                        self.with(|client| matches!(client, Client::Waits(ticket) if away.contains(&ticket)));
                    self.judge(told.len() == away.len(), "somebody waits whom nobody knows");
                    for id in told {
                        self.tally.told += 1;
                        self.leave(id);
                    }
                }
                Effect::Slept => self.written = Written::Asleep,
                Effect::Failed { .. } | Effect::NotSlept(_) | Effect::Woke(_) | Effect::Adopted | Effect::Gone => {}
            }
        }
        if self.sleep().is_waiting_to_be_done() {
            self.obey();
        }
    }

    fn with(&self, which: impl Fn(Client) -> bool) -> Vec<u64> {
        self.clients.iter().filter(|(_, client)| which(**client)).map(|(id, _)| *id).collect()
    }

    fn leave(&mut self, id: u64) {
        let client = self.clients.remove(&id).expect("there");
        if let Client::Waits(ticket) = client
            && !self.gate.hold.leave(ticket)
        {
            self.gate.hold.finished();
        }
        let now = self.now;
        self.sleep().left(client == Client::Open, now);
    }

    fn place(&mut self, id: u64, turn: Turn) {
        let client = match turn {
            Turn::Go => Client::Going(None),
            Turn::Wait(ticket) => Client::Waits(ticket),
            Turn::Full => unreachable!("there is room"),
            Turn::Failed(_) => {
                self.tally.told += 1;
                self.clients.insert(id, Client::Unanswered);
                return self.leave(id);
            }
        };
        self.clients.insert(id, client);
    }

    fn arrive(&mut self) {
        let (id, now) = (self.next, self.now);
        self.next += 1;
        let before = self.sleep().state();
        let entered = self.gate.enter(now);
        self.tally.cancelled += u64::from(before == State::Draining);
        self.say(|| format!("arrives {id}: {entered:?}"));
        if let Entered::No(_) = entered {
            self.tally.told += 1;
            return self.sleep().left(false, now);
        }
        let turn = self.gate.arrive(now, usize::MAX);
        self.place(id, turn);
        self.obey();
    }

    /// Whoever was let go reaches the backend, or nobody.
    fn forward(&mut self) {
        for id in self.with(|client| matches!(client, Client::Going(_))) {
            let Client::Going(ticket) = self.clients[&id] else { continue };
            self.judge(!self.stopping, "forwarded to a backend that is being stopped");
            if self.accepts() {
                self.gate.hold.finished();
                self.clients.insert(id, Client::Unanswered);
            } else {
                let turn = self.gate.turned_away(self.now, ticket, usize::MAX);
                self.place(id, turn);
                self.obey();
            }
        }
    }

    /// The watch: looks whether it accepts, and lets go.
    fn watch(&mut self) {
        let waits = self.gate.hold.len() > 0 || self.sleep().awaits_accept();
        if waits && self.accepts() {
            self.gate.reached(self.now);
            self.obey();
        }
        for ticket in self.gate.release(self.now) {
            let id = self.with(|client| client == Client::Waits(ticket));
            self.judge(id.len() == 1, "a ticket that nobody has");
            self.clients.insert(id[0], Client::Going(Some(ticket)));
        }
        self.forward();
    }

    fn finish(&mut self, call: Call) {
        let now = self.now;
        self.say(|| format!("ends {call:?}"));
        match call {
            Call::Prepare { turn, begun, .. } => {
                if self.planned && !begun || self.dice.roll(10) == 0 {
                    self.sleep().stopped(turn, Stopped::NotBegun("held".to_owned()), now);
                } else if self.sleep().commit(turn, now) {
                    let here = self
                        .clients
                        .values()
                        .filter(|client| matches!(client, Client::Unanswered | Client::Going(_)))
                        .count();
                    self.judge(here == 0 || self.stopping, "a stop while somebody has no answer");
                    self.tally.stops += 1;
                    self.stopping = true;
                    self.written = Written::Stopping;
                    let gone = now + self.dice.millis(1500);
                    self.containers = Containers::Dying(gone);
                    self.run(Call::Stop { turn, at: gone + Duration::from_millis(20) });
                } else {
                    self.sleep().stopped(turn, Stopped::NotBegun("cancelled".to_owned()), now);
                }
            }
            Call::Stop { turn, .. } => {
                self.stopping = false;
                let ended = match self.dice.roll(12) {
                    0 => Stopped::Broken("the engine is gone".to_owned()),
                    _ => Stopped::Done,
                };
                if ended == Stopped::Done {
                    self.containers = Containers::Off;
                    self.written = Written::Asleep;
                }
                // What was under way is cut.
                for id in self.with(|client| client == Client::Open) {
                    self.leave(id);
                }
                self.sleep().stopped(turn, ended, now);
            }
            Call::Start { turn, well, .. } => {
                let hangs = self.dice.roll(8) == 0;
                let boot = if hangs { rules().start * 3 } else { self.dice.millis(4000) };
                if well && matches!(self.containers, Containers::Off | Containers::Dying(_)) {
                    self.containers = Containers::Booting(now + boot);
                }
                let result = if well { Ok(()) } else { Err("no such container".to_owned()) };
                self.sleep().started(turn, result, now);
            }
            Call::Look { epoch, off, planned, .. } => {
                let running = if off { Running::None } else { Running::All };
                let since = self.sleep().since();
                let seen = if self.dice.roll(20) == 0 { None } else { Some(Seen { running, planned }) };
                let waiting = self.gate.hold.len();
                let before = self.sleep().state();
                self.sleep().saw(epoch, seen, waiting, now);
                let joined = matches!(before, State::Waking(Wait::Work { .. })) && self.sleep().awaits_accept();
                self.tally.joined += u64::from(joined && planned);
                if matches!(self.sleep().state(), State::Failed { .. }) && self.sleep().since() == now {
                    let was_off = self.off_at.is_some_and(|at| at >= since);
                    self.judge(was_off || since == now, "a start was called failed because of what was before it");
                }
            }
        }
        self.obey();
    }

    fn look(&mut self) {
        let (epoch, at) = (self.sleep().epoch(), self.now + self.dice.millis(100));
        self.run(Call::Look { epoch, at, off: self.containers == Containers::Off, planned: self.planned });
    }

    /// Time goes by, and what was due happens.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.soonest().clamp(self.now + Duration::from_millis(1), end);
            self.containers = match self.containers {
                Containers::Booting(at) if self.now >= at => Containers::Up,
                Containers::Dying(at) if self.now >= at => Containers::Off,
                same => same,
            };
            if self.containers == Containers::Off {
                self.off_at = Some(self.now);
            }
            if self.put_back.is_some_and(|at| self.now >= at) {
                (self.put_back, self.containers) = (None, Containers::Off);
                if self.written == Written::Stopping {
                    self.written = Written::Asleep;
                }
            }
            let called = self.calls.iter().any(|call| matches!(call, Call::Stop { .. }));
            self.stopping &= called || matches!(self.containers, Containers::Dying(_));
            while let Some(at) = self.calls.iter().position(|call| call.at() <= self.now) {
                let call = self.calls.swap_remove(at);
                self.finish(call);
            }
            let now = self.now;
            self.sleep().tick(now);
            let (awaits, since) = (self.sleep().awaits_accept(), self.sleep().since());
            self.judge(!awaits || now < since + rules().start, "a start goes on for longer than it may take");
            self.obey();
            self.watch();
        }
    }

    /// When something happens next.
    fn soonest(&mut self) -> Instant {
        let far = self.now + Duration::from_secs(3600);
        let containers = match self.containers {
            Containers::Booting(at) | Containers::Dying(at) => at,
            Containers::Off | Containers::Up => far,
        };
        let letting_go = match self.gate.hold.phase() {
            super::super::super::hold::Phase::Releasing { next, .. } => next,
            _ => far,
        };
        let due = self.sleep().next().unwrap_or(far);
        let calls = self.calls.iter().map(Call::at).min().unwrap_or(far);
        let containers = containers.min(self.put_back.unwrap_or(far));
        containers.min(letting_go).min(due).min(calls)
    }

    fn restart(&mut self) {
        // The gateway dies: its calls are forgotten, the engine goes on, its clients are cut off.
        self.tally.restarts += 1;
        self.clients.clear();
        self.calls.clear();
        self.gate = Gate::new();
        self.begins();
    }
}

mod schedule;
