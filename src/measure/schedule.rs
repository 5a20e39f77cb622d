//! When requests are due, and the thread that lets them go at their time.
//!
//! A thread, because the timer of the runtime is good to a millisecond only, and late whenever the runtime is busy. It
//! knows nothing of requests: it says up to which number they are due.

use crate::clock::{Clock, Stamp};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;

/// A rate kept from a moment on: the moment of each request is computed from its number, so that no error adds up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Schedule {
    start: Stamp,
    rate: f64,
    /// So many requests there are; without an end where none is named.
    count: u64,
}

impl Schedule {
    /// `rate` requests a second, from `start` on, for `length`.
    pub(super) fn new(start: Stamp, rate: f64, length: Option<Duration>) -> Self {
        // What is due at the very end belongs to it no more; 30 s at 0.1/s are 3 requests, whatever the product's last bit.
        let count = length.map_or(u64::MAX, |length| whole((length.as_secs_f64() * rate - 1e-6).ceil()).max(1));
        Self { start, rate, count }
    }

    /// When a request is due, by its number from 0.
    #[expect(clippy::cast_precision_loss, reason = "so many requests are never sent")]
    pub(super) fn due(&self, number: u64) -> Stamp {
        self.start + Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// How many requests are due by then.
    pub(super) fn due_by(&self, now: Stamp) -> u64 {
        if now < self.start {
            return 0;
        }
        let mut number = whole((now.since(self.start).as_secs_f64() * self.rate).floor());
        while number < self.count && self.due(number) <= now {
            number += 1;
        }
        number.min(self.count)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, which is meant")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// The running thread; dropping it ends the schedule.
#[derive(Debug)]
pub(super) struct Pace {
    _stop: SyncSender<()>,
}

impl Pace {
    /// Begins; the receiver tells how many requests are due, and closes after the last.
    pub(super) fn start(schedule: Schedule, clock: Clock) -> io::Result<(Self, watch::Receiver<u64>)> {
        let (stop, stopped) = sync_channel(0);
        let (due, released) = watch::channel(0);
        thread::Builder::new().name("pace".into()).spawn(move || keep(schedule, clock, &stopped, &due))?;
        Ok((Self { _stop: stop }, released))
    }
}

fn keep(schedule: Schedule, clock: Clock, stopped: &Receiver<()>, due: &watch::Sender<u64>) {
    let mut released = 0;
    while released < schedule.count && !due.is_closed() {
        let now = clock.now();
        let by_now = schedule.due_by(now);
        if by_now > released {
            released = by_now;
            due.send_replace(released);
            continue;
        }
        let wait = clock.wall(schedule.due(released).since(now));
        // The end of the channel is the end of the wait: a slow schedule holds nobody up.
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Stamp {
        Stamp::at(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn a_rate_for_a_time_is_exactly_so_many_requests() {
        for (rate, seconds, count) in
            [(20.0, 3.0, 60), (0.1, 30.0, 3), (3.0, 1.1, 4), (2000.0, 10.0, 20_000), (0.5, 1.0, 1)]
        {
            let schedule = Schedule::new(at(1.0), rate, Some(Duration::from_secs_f64(seconds)));
            assert_eq!(schedule.due_by(at(1.0 + seconds)), count, "{rate} for {seconds}");
            assert_eq!(schedule.due_by(at(1e6)), count, "{rate} for {seconds}: not one more");
        }
    }

    #[test]
    fn every_request_is_due_once_at_its_own_moment() {
        let schedule = Schedule::new(at(5.0), 3.0, None);
        assert_eq!(schedule.due_by(at(4.99)), 0);
        assert_eq!(schedule.due_by(at(5.0)), 1, "the first one at once");
        for number in 0..10_000 {
            let due = schedule.due(number);
            assert_eq!(schedule.due_by(due), number + 1);
            assert_eq!(schedule.due_by(due - Duration::from_nanos(2)), number);
        }
    }

    #[test]
    fn a_thread_lets_go_of_all_and_ends() {
        let clock = Clock::start();
        let schedule = Schedule::new(clock.now(), 1000.0, Some(Duration::from_millis(50)));
        let (_pace, mut released) = Pace::start(schedule, clock).expect("a thread");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { while released.changed().await.is_ok() {} });
        assert_eq!(*released.borrow(), 50);
    }
}
