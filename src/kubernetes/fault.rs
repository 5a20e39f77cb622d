//! What is wrong without being a relation of two numbers: a version, a form, a choice. Each says what it costs and what to do.

use crate::config::{LoadedTenants, Place};
use crate::fleet::model::{Mode, Version};
use crate::fleet::timing::Severity;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its name.
    pub id: &'static str,
    /// What it means.
    pub severity: Severity,
    /// Where; none where nothing was written.
    pub place: Option<Place>,
    /// What, and what it costs.
    pub text: String,
    /// What to do about it.
    pub hint: String,
}

impl Fault {
    /// One at a place.
    pub fn new(
        id: &'static str,
        severity: Severity,
        place: Option<Place>,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { id, severity, place, text: text.into(), hint: hint.into() }
    }

    /// Whether a check fails because of it.
    #[must_use]
    pub fn fails_check(&self) -> bool {
        self.severity >= Severity::Warning
    }
}

/// Bodies that are held survive since this one (caddy#7547), all of them since the next (#7715, #7719).
const CADDY_HOLDS: Version = Version(2, 11, 2);
const CADDY_HOLDS_ALL: Version = Version(2, 11, 4);
/// `HPAScaleToZero` (KEP-2021): on by default since the first, behind a gate in two places in the second.
const CLUSTER_SLEEPS: Version = Version(1, 37, 0);
const CLUSTER_MAY: Version = Version(1, 36, 0);

/// What is wrong with tenants' files in a mode.
#[must_use]
pub fn of_tenants(loaded: &LoadedTenants, mode: Mode) -> Vec<Fault> {
    let shared = &loaded.tenants.shared;
    let mut faults = Vec::new();
    if mode == Mode::K1 {
        faults.extend(caddy_version(shared.edge.version, loaded.place("tenants.edge.version")));
    }
    if mode != Mode::K3 {
        faults.extend(cluster_version(shared.cluster.version, loaded.place("tenants.cluster.version")));
    }
    faults
}

/// What a version of Caddy does to what it holds.
#[must_use]
pub fn caddy_version(version: Version, place: Option<Place>) -> Option<Fault> {
    let hint = "use Caddy 2.11.4 or newer";
    if version < CADDY_HOLDS {
        let text =
            format!("Caddy {version} loses the body of a request that it holds: a POST that wakes is answered 502");
        return Some(Fault::new("caddy-version", Severity::Error, place, text, hint));
    }
    let text = format!("Caddy {version} loses the body of some requests that it holds, where an error route reads it");
    (version < CADDY_HOLDS_ALL).then(|| Fault::new("caddy-version", Severity::Warning, place, text, hint))
}

/// What a version of the cluster does with `minReplicas: 0`.
#[must_use]
pub fn cluster_version(version: Version, place: Option<Place>) -> Option<Fault> {
    if version < CLUSTER_MAY {
        let text = format!(
            "Kubernetes {version} cannot tell what an HPA put to sleep from what a person stopped: it never wakes again"
        );
        return Some(Fault::new(
            "cluster-version",
            Severity::Error,
            place,
            text,
            "use Kubernetes 1.37, or mode k3, which needs no HPA",
        ));
    }
    let text = format!(
        "Kubernetes {version} needs the gate HPAScaleToZero on kube-apiserver and on kube-controller-manager: with the first alone a backend goes to zero and never comes back"
    );
    let hint = "turn both on, or use Kubernetes 1.37";
    (version < CLUSTER_SLEEPS).then(|| Fault::new("cluster-version", Severity::Warning, place, text, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_loses_bodies_is_refused_and_one_that_loses_some_is_told() {
        let severity = |text: &str| caddy_version(Version::parse(text)?, None).map(|fault| fault.severity);
        assert_eq!(severity("2.6.2"), Some(Severity::Error));
        assert_eq!(severity("2.11.1"), Some(Severity::Error));
        assert_eq!(severity("2.11.3"), Some(Severity::Warning));
        assert_eq!(severity("2.11.7"), None);
    }

    #[test]
    fn a_cluster_that_never_wakes_is_refused() {
        let severity = |text: &str| cluster_version(Version::parse(text)?, None).map(|fault| fault.severity);
        assert_eq!(severity("1.35"), Some(Severity::Error));
        assert_eq!(severity("1.36"), Some(Severity::Warning));
        assert_eq!(severity("1.37"), None);
    }
}
