//! The threshold machine of a health checker: what one balancer node thinks of one target.
//!
//! Pure: it is told each check's result and knows neither who checked nor when.

use super::model::TargetReason;

/// What a checker thinks of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not enough seen yet.
    Initial,
    /// Takes traffic.
    Healthy,
    /// Does not.
    Unhealthy,
}

/// One check's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// The answer matched.
    Pass,
    /// It did not, and why.
    Fail(TargetReason),
}

/// Counts results in a row.
///
/// AWS user guide: out after `unhealthy` failures in a row, back after `healthy` successes in a row; a newly
/// registered target needs one success only.
#[derive(Debug, Clone)]
pub struct Checker {
    unhealthy: u32,
    healthy: u32,
    verdict: Verdict,
    run: u32,
    last: Option<Check>,
}

impl Checker {
    /// A checker that has seen nothing of a target that was just registered.
    #[must_use]
    pub fn new(unhealthy: u32, healthy: u32) -> Self {
        Self { unhealthy: unhealthy.max(1), healthy: healthy.max(1), verdict: Verdict::Initial, run: 0, last: None }
    }

    /// The verdict so far.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Why the last check failed, if it did.
    #[must_use]
    pub fn last_failure(&self) -> Option<&TargetReason> {
        match &self.last {
            Some(Check::Fail(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Takes one result in; true when the verdict changed by it.
    pub fn record(&mut self, check: Check) -> bool {
        let against = match (self.verdict, &check) {
            (Verdict::Healthy, Check::Fail(_)) | (Verdict::Unhealthy, Check::Pass) => true,
            (Verdict::Initial, Check::Pass) => {
                self.settle(Verdict::Healthy);
                self.last = Some(check);
                return true;
            }
            (Verdict::Initial, Check::Fail(_)) => true,
            _ => false,
        };
        let needed = if matches!(check, Check::Pass) { self.healthy } else { self.unhealthy };
        let passed = matches!(check, Check::Pass);
        self.last = Some(check);
        if !against {
            self.run = 0;
            return false;
        }
        self.run += 1;
        if self.run < needed {
            return false;
        }
        self.settle(if passed { Verdict::Healthy } else { Verdict::Unhealthy });
        true
    }

    fn settle(&mut self, verdict: Verdict) {
        self.verdict = verdict;
        self.run = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fail() -> Check {
        Check::Fail(TargetReason::ResponseCodeMismatch)
    }

    #[test]
    fn a_new_target_needs_one_success_and_an_unhealthy_one_needs_the_threshold() {
        let mut checker = Checker::new(2, 3);
        assert!(checker.record(Check::Pass));
        assert!(!checker.record(fail()));
        assert!(checker.record(fail()));
        assert_eq!(checker.verdict(), Verdict::Unhealthy);
        assert!(!checker.record(Check::Pass));
        assert!(!checker.record(Check::Pass));
        assert!(checker.record(Check::Pass));
        assert_eq!(checker.verdict(), Verdict::Healthy);
    }

    #[test]
    fn any_passing_check_starts_the_count_of_failures_again() {
        let mut checker = Checker::new(2, 2);
        checker.record(Check::Pass);
        checker.record(fail());
        checker.record(Check::Pass);
        assert!(!checker.record(fail()));
        assert_eq!(checker.verdict(), Verdict::Healthy);
    }

    proptest! {
        #[test]
        fn a_verdict_turns_exactly_when_the_last_threshold_results_agree(
            results in proptest::collection::vec(any::<bool>(), 0..60), unhealthy in 1u32..6, healthy in 1u32..6,
        ) {
            let mut checker = Checker::new(unhealthy, healthy);
            let mut seen: Vec<bool> = Vec::new();
            let mut since_turn = 0usize;
            for pass in results {
                let before = checker.verdict();
                let turned = checker.record(if pass { Check::Pass } else { fail() });
                seen.push(pass);
                since_turn += 1;
                let tail = |want: bool, n: u32| {
                    since_turn >= n as usize && seen.iter().rev().take(n as usize).all(|p| *p == want)
                };
                let expected = match before {
                    Verdict::Initial => pass || tail(false, unhealthy),
                    Verdict::Healthy => tail(false, unhealthy),
                    Verdict::Unhealthy => tail(true, healthy),
                };
                prop_assert_eq!(turned, expected);
                if turned { since_turn = 0; }
            }
        }
    }
}
