//! What is to be, and what that means: the fleet as configured, what was observed of it, releases, timing and the plan.
//!
//! Pure, all of it: nothing here may know tokio, files, processes, the environment or the wall clock.

pub mod health;
pub mod held;
pub mod model;
pub mod nodes;
pub mod patience;
pub mod plan;
pub mod provision;
pub mod recovery;
pub mod release;
pub mod strikes;
pub mod timing;
pub mod verify;
pub mod watch;
