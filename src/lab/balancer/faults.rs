//! What the API is made to do wrong, by tests and by whoever posts to `/lab/faults`.

use super::lock;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// 400 `Throttling`.
    Throttle,
    /// 403 `AccessDenied`.
    AccessDenied,
    /// 403 `ExpiredToken`.
    ExpiredToken,
    /// 500 `HealthUnavailable`.
    HealthUnavailable,
    /// No answer at all.
    Hang,
    /// 200, but the XML ends in the middle.
    Truncated,
}

/// A fault that was ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Only with this action.
    #[serde(default)]
    pub action: Option<String>,
    /// Only so many times; without it until it is cleared.
    #[serde(default)]
    pub times: Option<u32>,
}

/// The faults that are on; every clone is the same.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Vec<Fault>>>);

impl Faults {
    /// Orders a fault.
    pub fn add(&self, fault: Fault) {
        lock(&self.0).push(fault);
    }

    /// Takes all faults away.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    /// What goes wrong with this call, if anything; counts it.
    pub(super) fn take(&self, action: &str) -> Option<FaultKind> {
        let mut faults = lock(&self.0);
        let at = faults.iter().position(|fault| fault.action.as_deref().is_none_or(|only| only == action))?;
        let kind = faults[at].kind;
        if let Some(times) = &mut faults[at].times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                faults.remove(at);
            }
        }
        Some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_with_a_count_goes_away_by_itself_and_one_without_stays() {
        let faults = Faults::default();
        faults.add(Fault { kind: FaultKind::Throttle, action: Some("DescribeTargetHealth".into()), times: Some(1) });
        faults.add(Fault { kind: FaultKind::Hang, action: None, times: None });
        assert_eq!(faults.take("DescribeTargetGroups"), Some(FaultKind::Hang));
        assert_eq!(faults.take("DescribeTargetHealth"), Some(FaultKind::Throttle));
        assert_eq!(faults.take("DescribeTargetHealth"), Some(FaultKind::Hang));
        faults.clear();
        assert_eq!(faults.take("DescribeTargetHealth"), None);
    }
}
