//! Names as types, so that a server is never passed where a service is meant.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it is; what may stand in it is checked where it is read.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

name!(
    /// A server's name in deploy.toml.
    ServerName
);
name!(
    /// A Compose service's name.
    ServiceName
);
name!(
    /// A target group's name or ARN, as deploy.toml has it.
    GroupName
);
name!(
    /// What the balancer calls a server: an instance id or an address.
    TargetId
);
name!(
    /// An availability zone.
    Zone
);
name!(
    /// A release: the SHA-256 over its canonical bytes in hex, or `adopted-...` for what ran before us.
    ReleaseId
);

impl ReleaseId {
    /// Whether it was not published by us but found running, and saved.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.0.starts_with("adopted-")
    }

    /// The first twelve digits: what `{release}` and `HANDOVER_RELEASE` mean.
    #[must_use]
    pub fn short(&self) -> &str {
        if self.is_adopted() { &self.0 } else { self.0.get(..12).unwrap_or(&self.0) }
    }
}

/// One target of one group: the balancer keeps a state for each (id, port).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetRef {
    /// The group that it is registered in.
    pub group: GroupName,
    /// The server's id there.
    pub id: TargetId,
    /// The port it takes traffic on.
    pub port: u16,
}

impl fmt::Display for TargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} in {}", self.id, self.port, self.group)
    }
}
