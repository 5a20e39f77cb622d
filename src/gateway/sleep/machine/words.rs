//! The words of the machine: its numbers, its states, what it is told and what it wants done.

use std::time::{Duration, Instant};

/// The numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) struct Rules {
    /// The quiet window.
    pub(in crate::gateway) after: Duration,
    /// An answer under way or a tunnel counts so long after its last byte.
    pub(in crate::gateway) quiet: Duration,
    /// From the call to an accepted connection.
    pub(in crate::gateway) start: Duration,
    /// Awake at least so long after a wake; a backend that dies sooner failed to start.
    pub(in crate::gateway) awake: Duration,
    /// So many failed starts in a row open the circuit.
    pub(in crate::gateway) tries: u32,
    /// For so long.
    pub(in crate::gateway) again: Duration,
    /// How long a wake waits for planned work.
    pub(in crate::gateway) patience: Duration,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum State {
    /// Nobody looked yet.
    Unknown,
    /// It runs, as far as is known.
    Awake { woken: bool },
    /// It is about to be stopped; an arrival still cancels that.
    Draining,
    /// The stop began.
    Stopping,
    /// It is off on purpose.
    Asleep,
    /// It is off, and nobody here did that.
    Away,
    /// Somebody asked for it.
    Waking(Wait),
    /// It could not be started.
    Failed { until: Instant },
}

/// What a wake waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Wait {
    /// For planned work to end, until it is looked again.
    Work { look: Instant },
    /// For the call to return.
    Call,
    /// For a connection that is accepted.
    Accept,
}

/// What somebody who arrives is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Entered {
    Go,
    Wait,
    /// Not for so long.
    No(Duration),
}

/// How much of it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Running {
    All,
    Some,
    None,
}

/// What was found at the engine and at the server lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) struct Seen {
    pub(in crate::gateway) running: Running,
    /// Somebody else holds the server lock.
    pub(in crate::gateway) planned: bool,
}

/// What the last gateway wrote down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Written {
    Nothing,
    Stopping,
    Asleep,
    Waking,
}

/// How a stop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) enum Stopped {
    Done,
    /// Nothing was touched.
    NotBegun(String),
    /// Who knows what still runs.
    Broken(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) enum Effect {
    /// Look at the engine.
    Look,
    /// Start it; `force`: also while somebody else works here.
    Start { turn: u64, force: bool },
    /// Stop it, once `commit` says so; `begun`: the gateway before this one began it, whoever works here now.
    Stop { turn: u64, begun: bool },
    /// It is no planned absence any more.
    Clear,
    /// Whoever waits is told to come again after that.
    Tell(Duration),
    /// A start failed; `open` where the circuit opened.
    Failed { why: String, open: bool },
    /// It sleeps.
    Slept,
    /// A sleep that was due did not come to be.
    NotSlept(String),
    /// It is awake again, and took these times.
    Woke(Parts),
    /// It was started by somebody else, as was seen at that epoch: to be written down before anybody is let go to it.
    Adopt { epoch: u64 },
    /// It was started by somebody else.
    Adopted,
    /// It was stopped by somebody else.
    Gone,
}

/// The parts of a wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gateway) struct Parts {
    /// From the first who asked to the call.
    pub(in crate::gateway) decision: Duration,
    /// Until the call returned.
    pub(in crate::gateway) container: Duration,
    /// Until a connection was accepted.
    pub(in crate::gateway) accept: Duration,
    /// Until the first answer began, where somebody waited for one.
    pub(in crate::gateway) answer: Option<Duration>,
}

/// What keeps a promise of the machine; the exploration leaves out one at a time, to see that it is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Who has no answer keeps it awake.
    Unanswered,
    /// Whoever comes before the stop began cancels it.
    LastWord,
    /// Nothing is forwarded but to what is awake.
    OnlyAwake,
    /// An accepted connection says something only while it is waited for.
    Awaited,
    /// One call at a time.
    OneCall,
    /// Whoever came while it was being stopped is why it is started again.
    WakeAfterStop,
    /// A stop that the gateway before began is ended.
    EndsWhatWasBegun,
    /// A start that failed is told to everybody who waits.
    TellsFailure,
    /// A start that takes too long has failed.
    StartEnds,
    /// A wake that waits for planned work looks again.
    LooksAgain,
    /// What somebody else started is gone to only where he knows that it is wanted.
    Told,
    /// So it is with what was found running.
    Adopts,
    /// What was seen before a change says nothing after it.
    Epoch,
    /// Nothing is put to sleep while a call is under way.
    NoCallUnderWay,
    /// What is to be stopped after all is idle again.
    GoesToSleep,
}
