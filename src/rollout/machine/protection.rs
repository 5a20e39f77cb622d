//! What protects a deploy, by name, so that a simulation can leave one out and see that this is found.

use std::fmt;
use std::str::FromStr;

/// One thing that keeps requests or servers safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Capacity is counted before a server is taken out, while it is, and before it is stopped.
    Guard,
    /// Nothing is stopped before the balancer says that it is out.
    Out,
    /// After the balancer's word the last node is waited for.
    Settle,
    /// The same on the way in, before the next server.
    SettleIn,
    /// Every node counts, not any of them, and none that is silent is passed over.
    Nodes,
    /// Every service's own check, and the images that run.
    Verify,
    /// Who lost the server lock changes nothing any more.
    Fence,
    /// A server puts itself right when its deploy is dead.
    DeadMan,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Guard, Self::Out, Self::Settle, Self::SettleIn, Self::Nodes, Self::Verify, Self::Fence, Self::DeadMan];

    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Out => "out",
            Self::Settle => "settle",
            Self::SettleIn => "settle-in",
            Self::Nodes => "nodes",
            Self::Verify => "verify",
            Self::Fence => "fence",
            Self::DeadMan => "dead-man",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::word).join(", ");
        Self::ALL.into_iter().find(|one| one.word() == text).ok_or_else(|| format!("known are {}", known()))
    }
}
