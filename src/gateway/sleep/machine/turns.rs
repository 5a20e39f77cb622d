//! What the machine does of its own accord: the steps that several inputs lead to.

use super::{BACKOFF, Effect, Guard, Parts, Running, Seen, Sleep, State, Wait, Wake, Written};
use std::time::Instant;

impl Sleep {
    /// How many are here.
    pub(in crate::gateway) fn present(&self) -> usize {
        self.unanswered + self.open
    }

    /// When the quiet window is over; never while somebody has no answer.
    pub(super) fn due(&self) -> Option<Instant> {
        let idle = match (self.unanswered, self.open) {
            (0, 0) => self.last,
            (0, _) => self.last.max(self.moved) + self.rules.quiet,
            _ if self.has(Guard::Unanswered) => return None,
            _ => self.last,
        };
        let woken = matches!(self.state, State::Awake { woken: true });
        let least = if woken { self.since + self.rules.awake } else { idle };
        Some((idle + self.rules.after).max(least))
    }

    /// What the first look finds, beside what was written down.
    pub(super) fn begin(&mut self, seen: Seen, now: Instant) {
        match (self.written, seen.running) {
            // The engine goes on with a stop whoever asked for it.
            (Written::Stopping, _) if self.has(Guard::EndsWhatWasBegun) => {
                self.turn += 1;
                self.stopping = true;
                self.effects.push(Effect::Stop { turn: self.turn, begun: true });
                self.turn_to(State::Stopping, now);
            }
            (Written::Nothing, Running::All) => self.awake(false, now),
            // Somebody who has the lock runs it for a while.
            (Written::Asleep, _) if seen.planned => {
                self.turn_to(State::Asleep, now);
                self.wake_if_wanted(now);
            }
            (_, Running::All) => self.adopt(),
            (Written::Waking, _) => self.begin_wake(now),
            (Written::Asleep | Written::Stopping, _) => {
                self.turn_to(State::Asleep, now);
                self.wake_if_wanted(now);
            }
            (Written::Nothing, _) => {
                self.turn_to(State::Away, now);
                self.wake_if_wanted(now);
            }
        }
    }

    /// The engine cannot be asked: what was written down is what is known.
    pub(super) fn begin_blind(&mut self, now: Instant) {
        match self.written {
            Written::Nothing => self.awake(false, now),
            // A stop may still go on there: nothing may be forwarded, and nothing be started.
            Written::Stopping => {}
            Written::Asleep | Written::Waking => {
                self.turn_to(State::Asleep, now);
                self.wake_if_wanted(now);
            }
        }
    }

    pub(super) fn awake(&mut self, woken: bool, now: Instant) {
        self.last = self.last.max(now);
        self.refused = false;
        self.wake_after = false;
        self.turn_to(State::Awake { woken }, now);
    }

    /// Somebody else has started it. Who works here next may stop it as long as its record says that it sleeps.
    pub(super) fn adopt(&mut self) {
        self.effects.push(Effect::Adopt { epoch: self.epoch });
    }

    /// Who works here has started it, for whoever waits too.
    pub(super) fn join(&mut self, now: Instant) {
        if let Some(wake) = &mut self.wake {
            wake.called.get_or_insert(now);
            wake.ran = Some(now);
        }
        self.turn_to(State::Waking(Wait::Accept), now);
    }

    /// A sleep that was about to begin does not.
    pub(super) fn stays(&mut self, now: Instant) {
        self.turn += 1;
        self.turn_to(State::Awake { woken: false }, now);
    }

    pub(super) fn drain(&mut self, now: Instant) {
        self.turn += 1;
        self.stopping = true;
        self.turn_to(State::Draining, now);
        self.effects.push(Effect::Stop { turn: self.turn, begun: false });
    }

    pub(super) fn wake_if_wanted(&mut self, now: Instant) {
        // Who asked while it was being stopped may be gone by now; who comes again wakes it then.
        if std::mem::take(&mut self.wake_after) || self.unanswered > 0 {
            self.begin_wake(now);
        }
    }

    pub(super) fn begin_wake(&mut self, now: Instant) {
        self.turn += 1;
        self.wake = Some(Wake { asked: now, called: None, ran: None, accepted: None });
        self.told = None;
        self.turn_to(State::Waking(Wait::Call), now);
        self.call(false);
    }

    /// One call after the other: an engine that is slow is not asked twice.
    pub(super) fn call(&mut self, force: bool) {
        if (self.starting || self.stopping) && self.has(Guard::OneCall) {
            self.then = Some(force);
            return;
        }
        self.starting = true;
        self.effects.push(Effect::Start { turn: self.turn, force });
    }

    /// A call of either kind ended.
    pub(super) fn follow(&mut self) {
        if let (Some(force), State::Waking(Wait::Call)) = (self.then.take(), self.state) {
            self.call(force);
        }
    }

    pub(super) fn may_drain(&self) -> bool {
        !(self.leaving || (self.has(Guard::NoCallUnderWay) && (self.starting || self.stopping)))
    }

    pub(super) fn fail(&mut self, why: String, now: Instant) {
        self.wake = None;
        self.failures += 1;
        let open = self.failures >= self.rules.tries;
        let pause = match open {
            true => self.rules.again,
            false => (BACKOFF * 2_u32.saturating_pow(self.failures - 1)).min(self.rules.again),
        };
        self.turn_to(State::Failed { until: now + pause }, now);
        self.effects.push(Effect::Clear);
        if self.has(Guard::TellsFailure) {
            self.effects.push(Effect::Tell(pause));
        }
        self.effects.push(Effect::Failed { why, open });
    }

    /// The first answer after a wake, or nobody who waits for one.
    pub(super) fn woke(&mut self, answered: Option<Instant>) {
        let Some(wake @ Wake { accepted: Some(accepted), .. }) = self.wake else { return };
        self.wake = None;
        let called = wake.called.unwrap_or(wake.asked);
        let ran = wake.ran.unwrap_or(accepted).min(accepted);
        self.effects.push(Effect::Woke(Parts {
            decision: called.saturating_duration_since(wake.asked),
            container: ran.saturating_duration_since(called),
            accept: accepted.saturating_duration_since(ran),
            answer: answered.map(|at| at.saturating_duration_since(accepted)),
        }));
    }
}
