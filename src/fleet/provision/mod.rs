//! What the balancer should say, by deploy.toml, against what it says: the difference, and the changes that end it, in an order
//! that is at no moment worse than both ends.
//!
//! It may know no API: an adapter carries a change out and looks again.

mod diff;
mod needs;
mod order;
mod setting;

pub use diff::{Fronts, Row, front_row, group_rows};
pub use needs::{Command, Needs, needs, policy};
pub use order::{Change, Order, Why, changes, not_in_seconds, refused_in_advance};
pub use setting::{At, Setting, Value};

#[cfg(test)]
mod tests;
