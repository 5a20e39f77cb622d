//! Who may go to a backend right now: its hold, its sleep where it sleeps, and somebody who closed it on purpose.
//!
//! Pure, and the only place where these meet: while a backend is being stopped, off, not yet accepting or closed, the hold is shut
//! whatever a connection to it may say.

use super::hold::{Arrival, Hold, Phase, Ticket};
use super::sleep::machine::{Entered, Sleep, State};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What somebody who wants a connection is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Go,
    Wait(Ticket),
    /// Too many wait.
    Full,
    /// It could not be started; not before that.
    Failed(Duration),
}

/// The hold and the sleep of one host.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) hold: Hold,
    pub(super) sleep: Option<Sleep>,
    /// Somebody changes what is behind it: nobody goes until it is opened again.
    closed: bool,
}

impl From<Arrival> for Turn {
    fn from(arrival: Arrival) -> Self {
        match arrival {
            Arrival::Go => Self::Go,
            Arrival::Wait(ticket) => Self::Wait(ticket),
            Arrival::Full => Self::Full,
        }
    }
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { hold: Hold::new(), sleep: None, closed: false }
    }

    fn passes(&self) -> bool {
        !self.closed && self.sleep.as_ref().is_none_or(Sleep::passes)
    }

    /// Closes it, or opens it again.
    pub(super) fn close(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Whether the backend is known not to be there.
    pub(super) fn is_shut(&self) -> bool {
        !self.passes() || self.hold.phase() != Phase::Open
    }

    /// A request begins; it leaves by `left`.
    pub(super) fn enter(&mut self, now: Instant) -> Entered {
        self.sleep.as_mut().map_or(Entered::Go, |sleep| sleep.enter(now))
    }

    /// A request wants a connection.
    pub(super) fn arrive(&mut self, now: Instant, limit: usize) -> Turn {
        match self.sleep.as_ref().map(Sleep::state) {
            Some(State::Failed { until }) => Turn::Failed(until.saturating_duration_since(now)),
            None | Some(State::Awake { .. }) if !self.closed => self.hold.arrive(now, limit).into(),
            _ => self.hold.turned_away(now, None, limit).into(),
        }
    }

    /// A request that went found nobody.
    pub(super) fn turned_away(&mut self, now: Instant, ticket: Option<Ticket>, limit: usize) -> Turn {
        if let Some(sleep) = &mut self.sleep {
            if let State::Failed { until } = sleep.state() {
                return Turn::Failed(until.saturating_duration_since(now));
            }
            sleep.turned_away();
        }
        self.hold.turned_away(now, ticket, limit).into()
    }

    /// The backend accepted a connection; while it is woken, that is for its keeper to say.
    pub(super) fn accepted(&mut self, now: Instant) {
        if self.passes() {
            self.sleep.iter_mut().for_each(Sleep::recovered);
            self.hold.accepted(now);
        }
    }

    /// The keeper found that it accepts.
    pub(super) fn reached(&mut self, now: Instant) {
        self.sleep.iter_mut().for_each(|sleep| sleep.accepted(now));
        self.accepted(now);
    }

    /// Who goes now.
    pub(super) fn release(&mut self, now: Instant) -> Vec<Ticket> {
        if self.passes() { self.hold.release(now) } else { Vec::new() }
    }

    /// Somebody's time is over; whether it goes all the same.
    pub(super) fn hurry(&mut self, ticket: Ticket) -> bool {
        self.passes() && self.hold.hurry(ticket)
    }

    /// Whoever waits is told that it cannot be started.
    pub(super) fn send_away(&mut self) -> BTreeSet<Ticket> {
        self.hold.send_away()
    }
}
