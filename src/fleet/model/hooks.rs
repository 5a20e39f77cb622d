//! The commands that a team has run beside a deploy, where the deploy is run from.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A moment of a run at which a command of the team's own may be run, in the order of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// Before anything is connected to; the deploy lock is not ours yet.
    PreConnect,
    /// With everything ready and nothing touched.
    PreDeploy,
    /// Before a server leaves rotation.
    PreDrain,
    /// After a server ended as planned.
    PostServer,
    /// After all ended as planned.
    PostDeploy,
    /// After a run that ended otherwise.
    OnFailure,
}

impl Hook {
    /// All of them, in the order of a run.
    pub const ALL: [Self; 6] =
        [Self::PreConnect, Self::PreDeploy, Self::PreDrain, Self::PostServer, Self::PostDeploy, Self::OnFailure];

    /// Its key in `[hooks]`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::PreConnect => "pre_connect",
            Self::PreDeploy => "pre_deploy",
            Self::PreDrain => "pre_drain",
            Self::PostServer => "post_server",
            Self::PostDeploy => "post_deploy",
            Self::OnFailure => "on_failure",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookSpec {
    /// Program and arguments; no shell reads them.
    pub run: Vec<String>,
    /// Ended by force after so long.
    pub limit: Duration,
}

/// `[hooks]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hooks(BTreeMap<Hook, HookSpec>);

impl Hooks {
    /// The command for a moment, where there is one.
    #[must_use]
    pub fn get(&self, hook: Hook) -> Option<&HookSpec> {
        self.0.get(&hook)
    }

    /// Only that one, where it is there.
    #[must_use]
    pub fn only(mut self, hook: Hook) -> Self {
        self.0.retain(|own, _| *own == hook);
        self
    }

    /// All that there are, in the order of a run.
    pub fn iter(&self) -> impl Iterator<Item = (Hook, &HookSpec)> {
        self.0.iter().map(|(hook, spec)| (*hook, spec))
    }
}

impl FromIterator<(Hook, HookSpec)> for Hooks {
    fn from_iter<I: IntoIterator<Item = (Hook, HookSpec)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}
