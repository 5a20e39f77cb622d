//! The arithmetic of a drain: how long the balancer needs to notice, to settle and to take a server back.
//!
//! Formulas follow from the AWS user guide's description of health checks: every node checks for itself at fixed
//! intervals, so that the last node may decide up to one interval and one answer after the first.

mod amount;
mod basis;
mod catalogue;
mod invariants;
mod live;
mod page;
mod wake;

pub use amount::Amount;
pub use basis::{Basis, ComposeService, Side};
pub use catalogue::INVARIANTS;
#[cfg(any(test, feature = "without-invariant"))]
pub use invariants::WITHOUT;
pub use invariants::{Finding, Invariant, Reading, Relation, Severity, Unit, findings, of_wake};
pub use live::{Difference, Live, live};
pub use page::page;
pub use wake::{Part, START, Scaler, Scraped, Told, Waiter, Wake};

use super::model::HealthSettings;
use std::time::Duration;

/// When every node has noticed, in the usual worst case: `unhealthy x interval`.
#[must_use]
pub fn out_nominal(health: &HealthSettings) -> Duration {
    health.interval * health.unhealthy
}

/// The first moment at which any node can have noticed: `(unhealthy - 1) x interval`.
#[must_use]
pub fn out_earliest(health: &HealthSettings) -> Duration {
    health.interval * health.unhealthy.saturating_sub(1)
}

/// The bound on it: `(unhealthy + 1) x interval + timeout + margin`.
#[must_use]
pub fn out_bound(health: &HealthSettings, margin: Duration) -> Duration {
    health.interval * (health.unhealthy + 1) + health.timeout + margin
}

/// How long to wait after the balancer's word, because its nodes decide one by one: `interval + timeout + margin`.
#[must_use]
pub fn settle(health: &HealthSettings, margin: Duration) -> Duration {
    health.interval + health.timeout + margin
}

/// When every node takes the server back, in the usual worst case: `healthy x interval`.
#[must_use]
pub fn in_nominal(health: &HealthSettings) -> Duration {
    health.interval * health.healthy
}

/// The first moment at which any node can have taken it back: `(healthy - 1) x interval`.
#[must_use]
pub fn in_earliest(health: &HealthSettings) -> Duration {
    health.interval * health.healthy.saturating_sub(1)
}

/// The bound on it: `(healthy + 1) x interval + timeout + margin`.
#[must_use]
pub fn in_bound(health: &HealthSettings, margin: Duration) -> Duration {
    health.interval * (health.healthy + 1) + health.timeout + margin
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals, timeouts, thresholds and the six figures of the table in the project's notes on the ALB.
    #[test]
    fn the_figures_agree_with_the_table_that_was_worked_out_by_hand() {
        let rows =
            [(5, 2, 2, 2, [10, 27, 10, 27]), (10, 5, 2, 3, [20, 45, 30, 55]), (30, 5, 2, 5, [60, 105, 150, 195])];
        for (interval, timeout, unhealthy, healthy, expected) in rows {
            let health = HealthSettings {
                interval: Duration::from_secs(interval),
                timeout: Duration::from_secs(timeout),
                unhealthy,
                healthy,
            };
            let margin = Duration::from_secs(10);
            let got =
                [out_nominal(&health), out_bound(&health, margin), in_nominal(&health), in_bound(&health, margin)];
            assert_eq!(got.map(|d| d.as_secs()), expected, "interval {interval}");
        }
    }
}
