//! Who waits for an absent backend, in which order, and when each may go: a plain state machine.
//!
//! Pure: `now` is an argument, and nothing here knows a socket. A request that got its ticket waits until it is released, its time
//! is over or its client is gone; whoever is released goes once. A backend that begins to accept gets one request first and
//! then a number that grows, so that a fresh process is not met by all of them in one moment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Between two releases.
pub(super) const STEP: Duration = Duration::from_millis(5);
/// By how much more are released each time.
const GROWTH: usize = 4;
/// While so many that were released are not finished, more follow only at the pace below: each of them needs buffers here and
/// attention there.
const UNDER_WAY: usize = 256;
/// Whatever the backend makes of them, of those who wait one in so many goes at each step: a queue of any length is on its
/// way within seconds.
const PACE: usize = 8000;
/// An absence is remembered so long after the last who asked, so that the next one need not find out again.
pub(super) const MEMORY: Duration = Duration::from_secs(10);

/// A place in the queue; smaller ones go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// What a request is told on arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The backend is not known to be absent: try.
    Go,
    /// Wait.
    Wait(Ticket),
    /// Too many wait already.
    Full,
}

/// How the backend stands, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not known to be absent.
    Open,
    /// It does not accept.
    Absent,
    /// It accepts again, and the queue is let go.
    Releasing {
        /// When the next ones go.
        next: Instant,
        /// How many.
        count: usize,
    },
}

/// The queue of one host.
#[derive(Debug)]
pub(super) struct Hold {
    phase: Phase,
    waiting: BTreeSet<Ticket>,
    last: u64,
    /// How many were released and are not finished.
    under_way: usize,
    /// When somebody last wanted the backend.
    asked: Option<Instant>,
}

impl Hold {
    pub(super) fn new() -> Self {
        Self { phase: Phase::Open, waiting: BTreeSet::new(), last: 0, under_way: 0, asked: None }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A request arrives. While others wait it does not pass them.
    pub(super) fn arrive(&mut self, now: Instant, limit: usize) -> Arrival {
        self.asked = Some(now);
        if self.phase == Phase::Open { Arrival::Go } else { self.queue(limit) }
    }

    /// A request that went found nobody: it waits, at its old place if it had one.
    pub(super) fn turned_away(&mut self, now: Instant, ticket: Option<Ticket>, limit: usize) -> Arrival {
        self.asked = Some(now);
        self.phase = Phase::Absent;
        match ticket {
            Some(ticket) => {
                self.waiting.insert(ticket);
                Arrival::Wait(ticket)
            }
            None => self.queue(limit),
        }
    }

    fn queue(&mut self, limit: usize) -> Arrival {
        if self.waiting.len() >= limit {
            return Arrival::Full;
        }
        self.last += 1;
        let ticket = Ticket(self.last);
        self.waiting.insert(ticket);
        Arrival::Wait(ticket)
    }

    /// Somebody was shown that the backend is absent and waits elsewhere.
    pub(super) fn asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// The backend cannot come: whoever waits is told, and waits no longer.
    pub(super) fn send_away(&mut self) -> BTreeSet<Ticket> {
        let away = std::mem::take(&mut self.waiting);
        // Each of them is finished once it noticed.
        self.under_way += away.len();
        away
    }

    /// Whoever had this ticket waits no longer. Tells whether it still waited.
    pub(super) fn leave(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(&ticket)
    }

    /// The backend accepted a connection.
    pub(super) fn accepted(&mut self, now: Instant) {
        if self.phase == Phase::Absent {
            self.phase = Phase::Releasing { next: now, count: 1 };
        }
    }

    /// Who goes now.
    pub(super) fn release(&mut self, now: Instant) -> Vec<Ticket> {
        let Phase::Releasing { next, count } = self.phase else { return Vec::new() };
        if now < next {
            return Vec::new();
        }
        let pace = self.waiting.len().div_ceil(PACE);
        let room = count.min(UNDER_WAY.saturating_sub(self.under_way).max(pace));
        let going: Vec<Ticket> = self.waiting.iter().take(room).copied().collect();
        self.under_way += going.len();
        for ticket in &going {
            self.waiting.remove(ticket);
        }
        self.phase = if self.waiting.is_empty() {
            Phase::Open
        } else {
            Phase::Releasing { next: now + STEP, count: count.saturating_mul(GROWTH) }
        };
        going
    }

    /// Somebody's time is over, and the backend accepts: it goes now. Tells whether that is so.
    pub(super) fn hurry(&mut self, ticket: Ticket) -> bool {
        let goes = matches!(self.phase, Phase::Releasing { .. }) && self.waiting.remove(&ticket);
        self.under_way += usize::from(goes);
        goes
    }

    /// One that was released is finished, in whatever way.
    pub(super) fn finished(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// How many were released and are not finished.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether anybody is to look whether the backend accepts. An absence that nobody asked about for a while is forgotten.
    pub(super) fn is_watched(&mut self, now: Instant) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Releasing { .. } => true,
            Phase::Absent => {
                let asked = self.asked.is_some_and(|at| now.saturating_duration_since(at) < MEMORY);
                if self.waiting.is_empty() && !asked {
                    self.phase = Phase::Open;
                }
                self.phase == Phase::Absent
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn absent(now: Instant, count: usize) -> (Hold, Vec<Ticket>) {
        let mut hold = Hold::new();
        assert_eq!(hold.arrive(now, count), Arrival::Go);
        let mut tickets = Vec::new();
        for _ in 0..count {
            match hold.turned_away(now, None, count) {
                Arrival::Wait(ticket) => tickets.push(ticket),
                other => panic!("{other:?}"),
            }
        }
        (hold, tickets)
    }

    #[test]
    fn while_the_backend_is_not_known_to_be_absent_everybody_goes() {
        let mut hold = Hold::new();
        assert_eq!(hold.arrive(Instant::now(), 0), Arrival::Go);
        assert_eq!(hold.phase(), Phase::Open);
        assert!(!hold.is_watched(Instant::now()));
    }

    #[test]
    fn the_queue_is_let_go_in_its_order_one_first_and_then_ever_more() {
        let now = Instant::now();
        let (mut hold, tickets) = absent(now, 1000);
        hold.accepted(now);
        let (mut gone, mut steps, mut at) = (Vec::new(), Vec::new(), now);
        while hold.phase() != Phase::Open {
            let going = hold.release(at);
            going.iter().for_each(|_| hold.finished());
            steps.push(going.len());
            gone.extend(going);
            at += STEP;
        }
        assert_eq!(gone, tickets);
        assert_eq!(steps, [1, 4, 16, 64, 256, 256, 256, 147]);
        assert!(at - now <= Duration::from_millis(50), "{:?}", at - now);
    }

    #[test]
    fn a_backend_that_answers_slowly_gets_so_many_at_once_and_the_others_at_a_pace() {
        let now = Instant::now();
        let (mut hold, tickets) = absent(now, 10_000);
        hold.accepted(now);
        let mut at = now;
        while hold.release(at).len() != 2 {
            at += STEP;
            assert!(at - now < Duration::from_secs(1));
        }
        assert_eq!(hold.waiting.len(), 10_000 - UNDER_WAY - 2);
        assert!(hold.hurry(tickets[9_999]), "its time is over, and the backend is there");
        assert!(!hold.hurry(tickets[9_999]));
        while hold.phase() != Phase::Open {
            hold.release(at);
            at += STEP;
        }
        assert!(at - now < Duration::from_secs(60), "{:?}", at - now);
    }

    #[test]
    fn whoever_comes_while_others_wait_waits_behind_them() {
        let now = Instant::now();
        let (mut hold, tickets) = absent(now, 3);
        hold.accepted(now);
        assert_eq!(hold.release(now), [tickets[0]]);
        let Arrival::Wait(late) = hold.arrive(now, 10) else { panic!("it passed the others") };
        assert_eq!(hold.release(now + STEP), [tickets[1], tickets[2], late]);
        assert_eq!(hold.phase(), Phase::Open);
    }

    #[test]
    fn a_full_queue_turns_the_next_one_away_at_once() {
        let now = Instant::now();
        let (mut hold, tickets) = absent(now, 2);
        assert_eq!(hold.arrive(now, 2), Arrival::Full);
        assert!(hold.leave(tickets[0]));
        assert!(!hold.leave(tickets[0]));
        assert!(matches!(hold.arrive(now, 2), Arrival::Wait(_)));
    }

    #[test]
    fn a_backend_that_goes_away_again_gets_nobody_and_the_first_stays_first() {
        let now = Instant::now();
        let (mut hold, tickets) = absent(now, 3);
        hold.accepted(now);
        let first = hold.release(now)[0];
        assert_eq!(hold.turned_away(now, Some(first), 1), Arrival::Wait(first));
        assert_eq!(hold.release(now + STEP), []);
        hold.accepted(now + STEP);
        assert_eq!(hold.release(now + STEP), [tickets[0]]);
    }

    #[test]
    fn an_absence_that_nobody_asks_about_is_forgotten() {
        let now = Instant::now();
        let (mut hold, tickets) = absent(now, 1);
        assert!(hold.is_watched(now + MEMORY * 2), "somebody waits");
        hold.leave(tickets[0]);
        assert!(hold.is_watched(now + MEMORY / 2));
        assert!(!hold.is_watched(now + MEMORY * 2));
        assert_eq!(hold.arrive(now, 1), Arrival::Go);
    }

    proptest! {
        /// Whatever happens in whatever order: nobody goes twice, nobody is forgotten, the limit holds.
        #[test]
        fn everybody_goes_once_or_leaves(steps in proptest::collection::vec(0_u8..7, 1..200)) {
            let mut now = Instant::now();
            let mut hold = Hold::new();
            let (mut waiting, mut gone) = (BTreeSet::new(), BTreeSet::new());
            hold.turned_away(now, None, 0);
            for step in steps {
                match step {
                    0 | 1 => if let Arrival::Wait(ticket) = hold.arrive(now, 20) {
                        prop_assert!(waiting.insert(ticket));
                    },
                    2 => hold.accepted(now),
                    6 => hold.finished(),
                    3 => if let Some(ticket) = waiting.pop_last() {
                        prop_assert!(hold.leave(ticket));
                    },
                    4 => drop(hold.turned_away(now, None, 0)),
                    _ => for ticket in hold.release(now) {
                        prop_assert!(waiting.remove(&ticket));
                        prop_assert!(gone.insert(ticket));
                    },
                }
                now += STEP;
                prop_assert_eq!(hold.len(), waiting.len());
                prop_assert!(hold.len() <= 20);
            }
            hold.turned_away(now, None, 0);
            hold.accepted(now);
            while hold.phase() != Phase::Open {
                for ticket in hold.release(now) {
                    prop_assert!(waiting.remove(&ticket));
                }
                now += STEP;
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
