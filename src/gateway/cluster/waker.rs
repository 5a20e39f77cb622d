//! When a workload at zero pods is woken beside its HPA, and when it is left alone; pure.
//!
//! Only up, never down: what the gateway itself put to zero, the HPA would never wake again. And not faster than the HPA looks: whoever else
//! sets the number back is met once in each of its periods, and told of.

use std::time::Duration;
use tokio::time::Instant;

/// Not twice within the HPA's own period.
const PERIOD: Duration = Duration::from_secs(15);
/// After a call that failed; then twice as long, up to the end.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15);

/// What became of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has pods already, so many.
    Up(i32),
    /// It was at zero, and is at one now.
    Woken,
    /// Somebody else changed it in the same moment.
    Conflict,
    /// The API said no, or nothing.
    Failed(String),
}

/// One workload.
#[derive(Debug, Default)]
pub(super) struct Waker {
    not_before: Option<Instant>,
    failures: u32,
    /// It was woken, and nobody who waits has gone since.
    woken: bool,
}

impl Waker {
    /// Whether the API is asked now. `held` is how many wait.
    pub(super) fn asks(&mut self, held: i64, now: Instant) -> bool {
        if held <= 0 {
            // Whoever waited is served or gone: what comes next is another wake.
            self.woken = false;
            return false;
        }
        self.not_before.is_none_or(|moment| now >= moment)
    }

    /// Takes what became of it; a sentence where a person should know.
    pub(super) fn took(&mut self, turn: Turn, now: Instant) -> Option<String> {
        if !matches!(turn, Turn::Failed(_)) {
            self.failures = 0;
        }
        match turn {
            // It starts; or the HPA puts it to zero in this very moment, which the next look sees. Only writes are rare.
            Turn::Up(_) => {
                self.not_before = Some(now + AGAIN);
                None
            }
            Turn::Woken => {
                self.not_before = Some(now + PERIOD);
                let again = std::mem::replace(&mut self.woken, true);
                again.then(|| {
                    "it was set back to zero while requests wait: by GitOps, another tool, or an HPA that reads another metric".to_owned()
                })
            }
            // Whoever was first has done it: look once more, soon.
            Turn::Conflict => {
                self.not_before = Some(now + AGAIN);
                None
            }
            Turn::Failed(why) => {
                self.failures += 1;
                let wait = AGAIN.saturating_mul(1 << (self.failures - 1).min(8)).min(LONGEST);
                self.not_before = Some(now + wait);
                (self.failures == 1).then_some(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(began: Instant, seconds: u64) -> Instant {
        began + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_who_waits_wakes_and_nobody_else_within_a_period() {
        let (mut waker, began) = (Waker::default(), Instant::now());
        assert!(!waker.asks(0, began));
        assert!(waker.asks(1, began));
        assert_eq!(waker.took(Turn::Woken, began), None);
        assert!(!waker.asks(5, at(began, 14)));
        assert!(waker.asks(5, at(began, 15)));
        assert_eq!(waker.took(Turn::Up(1), at(began, 15)), None);
        assert!(waker.asks(5, at(began, 16)), "the HPA may have put it to zero just after that look");
    }

    #[test]
    fn whoever_sets_it_back_while_somebody_waits_is_told_of_and_met_once_a_period() {
        let (mut waker, began) = (Waker::default(), Instant::now());
        assert!(waker.asks(1, began) && waker.took(Turn::Woken, began).is_none());
        assert!(waker.asks(1, at(began, 15)));
        let said = waker.took(Turn::Woken, at(began, 15)).expect("a sentence");
        assert!(said.contains("set back to zero"), "{said}");
        // Another morning.
        assert!(!waker.asks(0, at(began, 20)));
        assert!(waker.asks(1, at(began, 60)));
        assert_eq!(waker.took(Turn::Woken, at(began, 60)), None);
    }

    #[test]
    fn an_api_that_is_away_is_told_of_once_asked_ever_less_often_and_never_given_up() {
        let (mut waker, began) = (Waker::default(), Instant::now());
        let (mut asked, mut told) = (0, 0);
        for second in 0..600 {
            if waker.asks(1, at(began, second)) {
                asked += 1;
                told += u32::from(waker.took(Turn::Failed("refused".into()), at(began, second)).is_some());
            }
        }
        assert_eq!(told, 1);
        assert!((40..=50).contains(&asked), "{asked}");
        assert!(waker.asks(1, at(began, 620)));
        assert_eq!(waker.took(Turn::Woken, at(began, 620)), None);
    }

    #[test]
    fn of_two_who_wake_at_once_the_second_looks_again_and_sees_it_up() {
        let (mut waker, began) = (Waker::default(), Instant::now());
        assert!(waker.asks(1, began));
        assert_eq!(waker.took(Turn::Conflict, began), None);
        assert!(waker.asks(1, at(began, 1)));
        assert_eq!(waker.took(Turn::Up(1), at(began, 1)), None);
    }
}
