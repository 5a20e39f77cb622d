//! SIGINT and SIGTERM as a count: the first asks for an orderly end, the second for an end at once.

use crate::diag::{Exit, Problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The signals so far.
#[derive(Debug, Clone)]
pub(super) struct Signals {
    pub(super) count: watch::Receiver<u32>,
    terminated: Arc<AtomicBool>,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Problem> {
        let no = |error| Problem::new(Exit::Failed, format!("signals cannot be listened for: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(no)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(no)?;
        // A terminal that is closed means the same as SIGTERM: an orderly end.
        let mut hangup = signal(SignalKind::hangup()).map_err(no)?;
        let (sender, count) = watch::channel(0);
        let terminated = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&terminated);
        tokio::spawn(async move {
            loop {
                let term = tokio::select! {
                    _ = interrupt.recv() => false,
                    _ = terminate.recv() => true,
                    _ = hangup.recv() => true,
                };
                if *sender.borrow() == 0 {
                    seen.store(term, Ordering::Relaxed);
                }
                sender.send_modify(|count| *count += 1);
            }
        });
        Ok(Self { count, terminated })
    }

    /// Gives a problem the exit code of the signal that there really was.
    pub(super) fn name(&self, mut problem: Problem) -> Problem {
        if problem.exit == Exit::Interrupted && self.terminated.load(Ordering::Relaxed) {
            problem.exit = Exit::Terminated;
        }
        problem
    }

    /// A problem that a signal was the reason of.
    pub(super) fn after_all(&self, problem: Problem) -> Problem {
        if *self.count.borrow() == 0 {
            return problem;
        }
        self.name(Problem { exit: Exit::Interrupted, ..problem })
    }

    /// Waits for the first one.
    pub(super) async fn first(&self) {
        let mut count = self.count.clone();
        drop(count.wait_for(|count| *count > 0).await);
    }
}
