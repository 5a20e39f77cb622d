//! What others wish of a backend: a person who wants it awake or asleep, and the gateway that hands over.

use super::{Sleep, State};
use std::time::Instant;

impl Sleep {
    /// A person wants it awake, and that counts as use.
    pub(in crate::gateway) fn wake(&mut self, now: Instant) {
        self.last = now;
        match self.state {
            State::Asleep | State::Away | State::Failed { .. } => self.begin_wake(now),
            State::Draining => self.stays(now),
            State::Unknown | State::Stopping => self.wake_after = true,
            _ => {}
        }
    }

    /// A person wants it asleep.
    ///
    /// # Errors
    /// Why not.
    pub(in crate::gateway) fn sleep_now(&mut self, now: Instant) -> Result<(), String> {
        match self.state {
            State::Awake { .. } if self.present() > 0 => Err(format!("{} requests are under way", self.present())),
            State::Awake { .. } if !self.may_drain() => Err("a call to the engine is still under way".to_owned()),
            State::Awake { .. } => {
                self.drain(now);
                Ok(())
            }
            State::Draining | State::Stopping | State::Asleep => Ok(()),
            State::Unknown => Err("nobody looked yet whether it runs".to_owned()),
            State::Waking(_) => Err("it is being woken".to_owned()),
            State::Away | State::Failed { .. } => Err("it does not run, and not because it sleeps".to_owned()),
        }
    }

    /// Somebody else decides from now on; what was begun is ended.
    pub(in crate::gateway) fn leave(&mut self, now: Instant) {
        self.leaving = true;
        if self.state == State::Draining {
            self.stays(now);
        }
    }
}
