//! One request at a backend that may sleep: it counts as long as this lives, and what it carries keeps the backend awake.

use super::site::Standing;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Somebody who is here.
#[derive(Debug)]
pub(super) struct Here {
    standing: Arc<Standing>,
    answered: Cell<bool>,
}

/// What became of somebody who arrived.
pub(super) enum Let {
    /// In, where the backend may sleep with this to count by.
    In(Option<Here>),
    /// The backend cannot be started; not before that.
    No(Duration),
}

impl Here {
    pub(super) fn new(standing: Arc<Standing>) -> Self {
        Self { standing, answered: Cell::new(false) }
    }

    /// Its answer began, or it became a tunnel.
    pub(super) fn answered(&self) {
        if !self.answered.replace(true) {
            self.standing.is_answered(Instant::now());
        }
    }

    /// Bytes went one way or the other.
    pub(super) fn moved(&self) {
        if self.answered.get() {
            self.standing.moved(Instant::now());
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.standing.left(self.answered.get(), Instant::now());
    }
}
