//! When a backend goes to sleep, when it is woken, and who may be forwarded meanwhile: a plain state machine.
//!
//! Pure: `now` is an argument, and nothing here knows a container. What it wants done it says as effects; what became of them
//! comes back as inputs. Whoever was let in counts until he left, and no stop begins while somebody counts: so nothing can be
//! on its way to a backend that is being stopped.

use std::time::{Duration, Instant};

/// The wake signal stays so long: two scrapes of a minute see it.
const LATCH: Duration = Duration::from_secs(120);
/// After a sleep that could not begin.
const NOT_NOW: Duration = Duration::from_secs(10);
/// While planned work goes on, a wake looks again whether it is over.
const DEFERRED: Duration = Duration::from_millis(250);
/// After the first start that failed; then twice as long, and so on.
const BACKOFF: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
struct Wake {
    asked: Instant,
    called: Option<Instant>,
    ran: Option<Instant>,
    accepted: Option<Instant>,
}

/// The sleep of one host's backend.
#[derive(Debug)]
pub(in crate::gateway) struct Sleep {
    rules: Rules,
    state: State,
    since: Instant,
    /// Counts changes of the state: what was seen before one says nothing after it.
    epoch: u64,
    /// Counts starts and stops.
    turn: u64,
    /// Who is here and has no answer yet, and whose answer or tunnel is under way.
    unanswered: usize,
    open: usize,
    /// When somebody last came, was answered or left.
    last: Instant,
    moved: Instant,
    not_before: Instant,
    failures: u32,
    /// A connection was refused while it was thought to be awake.
    refused: bool,
    wanted: Option<Instant>,
    wake: Option<Wake>,
    leaving: bool,
    /// A person asked for it while it was being stopped.
    wake_after: bool,
    /// Of each kind one call at a time: whether it is under way, and whether a start is to follow it.
    starting: bool,
    stopping: bool,
    then: Option<bool>,
    /// While a wake waits for planned work: whether who works here knows that it is wanted, and so lets run what he starts.
    told: Option<bool>,
    written: Written,
    effects: Vec<Effect>,
    #[cfg(test)]
    without: Option<Guard>,
}

impl Sleep {
    pub(in crate::gateway) fn new(rules: Rules, written: Written, now: Instant) -> Self {
        Self {
            rules,
            state: State::Unknown,
            since: now,
            epoch: 0,
            turn: 0,
            unanswered: 0,
            open: 0,
            last: now,
            moved: now,
            not_before: now,
            failures: 0,
            refused: false,
            wanted: None,
            wake: None,
            leaving: false,
            wake_after: false,
            starting: false,
            stopping: false,
            then: None,
            told: None,
            written,
            effects: vec![Effect::Look],
            #[cfg(test)]
            without: None,
        }
    }

    #[cfg(not(test))]
    fn has(&self, _: Guard) -> bool {
        true
    }

    #[cfg(test)]
    fn has(&self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    pub(in crate::gateway) fn state(&self) -> State {
        self.state
    }

    pub(in crate::gateway) fn since(&self) -> Instant {
        self.since
    }

    pub(in crate::gateway) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What is to be done, told once.
    pub(in crate::gateway) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(in crate::gateway) fn is_waiting_to_be_done(&self) -> bool {
        !self.effects.is_empty()
    }

    pub(in crate::gateway) fn rules(&self) -> Rules {
        self.rules.clone()
    }

    /// Other numbers from now on.
    pub(in crate::gateway) fn obey(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Whether requests are forwarded.
    pub(in crate::gateway) fn passes(&self) -> bool {
        let stops = matches!(self.state, State::Draining | State::Stopping) && !self.has(Guard::OnlyAwake);
        matches!(self.state, State::Awake { .. }) || stops
    }

    /// How long it is too late for a sleep.
    pub(in crate::gateway) fn overdue(&self, now: Instant) -> Duration {
        match self.state {
            State::Awake { .. } | State::Draining => {
                self.due().map_or(Duration::ZERO, |due| now.saturating_duration_since(due))
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether somebody wanted it lately and had to wait.
    pub(in crate::gateway) fn is_wanted(&self, now: Instant) -> bool {
        self.wanted.is_some_and(|at| now.saturating_duration_since(at) < LATCH)
    }

    /// Whether it runs and is not known to accept.
    pub(in crate::gateway) fn awaits_accept(&self) -> bool {
        self.state == State::Waking(Wait::Accept)
    }

    fn turn_to(&mut self, state: State, now: Instant) {
        // Who lived long enough is not in a crash loop.
        if self.passes() && now.saturating_duration_since(self.since) >= self.rules.awake {
            self.failures = 0;
        }
        if !matches!(state, State::Waking(_)) {
            self.told = None;
        }
        self.state = state;
        self.since = now;
        self.epoch += 1;
    }

    /// Somebody arrives.
    pub(in crate::gateway) fn enter(&mut self, now: Instant) -> Entered {
        self.unanswered += 1;
        self.last = now;
        let entered = match self.state {
            State::Awake { .. } => return Entered::Go,
            State::Draining => {
                self.stays(now);
                return Entered::Go;
            }
            State::Asleep | State::Away => {
                self.begin_wake(now);
                Entered::Wait
            }
            State::Failed { until } if now < until => Entered::No(until - now),
            State::Failed { .. } => {
                self.begin_wake(now);
                Entered::Wait
            }
            State::Unknown | State::Stopping | State::Waking(_) => Entered::Wait,
        };
        self.wanted = Some(now);
        entered
    }

    /// Its answer began, or it became a tunnel.
    pub(in crate::gateway) fn answered(&mut self, now: Instant) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.open += 1;
        self.last = now;
        self.moved = self.moved.max(now);
        self.woke(Some(now));
    }

    /// It left, with or without an answer.
    pub(in crate::gateway) fn left(&mut self, answered: bool, now: Instant) {
        let count = if answered { &mut self.open } else { &mut self.unanswered };
        *count = count.saturating_sub(1);
        self.last = now;
        if self.unanswered == 0 {
            self.woke(None);
        }
    }

    /// When a byte was last carried for anybody.
    pub(in crate::gateway) fn moved(&mut self, at: Instant) {
        if at > self.moved {
            self.moved = at;
            if self.state == State::Draining && self.open > 0 {
                self.stays(at);
            }
        }
    }

    /// Work in the background said that it needs the backend.
    pub(in crate::gateway) fn busy(&mut self, at: Instant) {
        self.last = self.last.max(at);
    }

    /// A forwarded request found nobody.
    pub(in crate::gateway) fn turned_away(&mut self) {
        if self.passes() && !self.refused {
            self.refused = true;
            self.effects.push(Effect::Look);
        }
    }

    /// Who was refused a connection is not any more.
    pub(in crate::gateway) fn recovered(&mut self) {
        self.refused = false;
    }

    /// It accepts connections.
    pub(in crate::gateway) fn accepted(&mut self, now: Instant) {
        if self.awaits_accept() || !self.has(Guard::Awaited) {
            if let Some(wake) = &mut self.wake {
                wake.accepted = Some(now);
            }
            // What somebody else started is his to stop again: that is no crash.
            self.awake(self.told != Some(true), now);
            self.effects.push(Effect::Clear);
            if self.unanswered == 0 {
                self.woke(None);
            }
        }
    }

    /// What was found, by a look that began at that epoch; `waiting` is how many are held.
    pub(in crate::gateway) fn saw(&mut self, epoch: u64, seen: Option<Seen>, waiting: usize, now: Instant) {
        if epoch != self.epoch && self.has(Guard::Epoch) {
            return;
        }
        let Some(seen) = seen else {
            if self.state == State::Unknown {
                self.begin_blind(now);
            }
            return;
        };
        let off = seen.running != Running::All;
        match self.state {
            State::Unknown => self.begin(seen, now),
            State::Awake { woken } if !seen.planned => {
                let young = woken && now.saturating_duration_since(self.since) < self.rules.awake;
                if off && (self.refused || seen.running == Running::None) {
                    if young {
                        return self.fail("it ended soon after it was started".to_owned(), now);
                    }
                    self.effects.push(Effect::Gone);
                    self.turn_to(State::Away, now);
                    if waiting > 0 {
                        self.begin_wake(now);
                    }
                } else if !off {
                    self.refused = false;
                }
            }
            State::Asleep | State::Away if !off && !seen.planned => self.adopt(),
            State::Failed { until } if !off && !seen.planned && now >= until => self.adopt(),
            State::Waking(Wait::Work { .. }) if !off && (self.told == Some(true) || !self.has(Guard::Told)) => {
                self.join(now);
            }
            State::Waking(Wait::Accept) if off && self.told == Some(true) => {
                self.turn_to(State::Waking(Wait::Work { look: now }), now);
            }
            State::Waking(Wait::Accept) if off => self.fail("it ended before it accepted a connection".to_owned(), now),
            _ => {}
        }
    }

    /// Time went by.
    pub(in crate::gateway) fn tick(&mut self, now: Instant) {
        match self.state {
            State::Awake { .. }
                if self.has(Guard::GoesToSleep)
                    && self.may_drain()
                    && self.due().is_some_and(|due| now >= due.max(self.not_before)) =>
            {
                self.drain(now);
            }
            State::Waking(Wait::Work { look }) if now >= look && self.has(Guard::LooksAgain) => {
                let force = now.saturating_duration_since(self.since) >= self.rules.patience;
                self.state = State::Waking(Wait::Call);
                self.call(force);
            }
            State::Waking(Wait::Accept) if now >= self.since + self.rules.start && self.has(Guard::StartEnds) => {
                self.fail("it runs and accepts no connection".to_owned(), now);
            }
            _ => {}
        }
    }

    /// When `tick` has something to do, if nothing else happens.
    pub(in crate::gateway) fn next(&self) -> Option<Instant> {
        match self.state {
            State::Awake { .. } if self.may_drain() => self.due().map(|due| due.max(self.not_before)),
            State::Waking(Wait::Work { look }) => Some(look),
            State::Waking(Wait::Accept) => Some(self.since + self.rules.start),
            _ => None,
        }
    }
}

mod calls;
mod turns;
mod wishes;
mod words;

use words::Guard;

pub(in crate::gateway) use words::{Effect, Entered, Parts, Rules, Running, Seen, State, Stopped, Wait, Written};

#[cfg(test)]
mod explore;
#[cfg(test)]
mod night;
#[cfg(test)]
mod tests;
