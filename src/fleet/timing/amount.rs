//! A number with its unit, as far as invariants and mutation need to know it.

use crate::fleet::model::show_duration;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A number that somebody chose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// A duration.
    Time(Duration),
    /// So many.
    Count(u64),
    /// So many of a hundred.
    Share(u64),
    /// So many a second.
    Rate(f64),
}

impl Amount {
    /// A plain number on a scale on which neighbours are one apart: milliseconds (whole seconds where it is a whole number of
    /// them), pieces, thousandths a second.
    #[must_use]
    pub fn position(self) -> u64 {
        match self {
            Self::Time(time) if whole(time) => time.as_secs(),
            Self::Time(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            Self::Count(count) | Self::Share(count) => count,
            Self::Rate(rate) => (rate * 1000.0).round() as u64,
        }
    }

    /// The amount of the same kind, on the same scale, at a position.
    #[must_use]
    pub fn at(self, position: u64) -> Self {
        match self {
            Self::Time(time) if whole(time) => Self::Time(Duration::from_secs(position)),
            Self::Time(_) => Self::Time(Duration::from_millis(position)),
            Self::Count(_) => Self::Count(position),
            Self::Share(_) => Self::Share(position),
            Self::Rate(_) => Self::Rate(position as f64 / 1000.0),
        }
    }
}

/// AWS takes whole seconds only, so what is written in them stays so.
fn whole(time: Duration) -> bool {
    time.subsec_nanos() == 0
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => f.write_str(&show_duration(*time)),
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(share) => write!(f, "{share}%"),
            Self::Rate(rate) => write!(f, "{rate}/s"),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}
