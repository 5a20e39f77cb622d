//! Measuring what was lost: how a request is judged, and the prober that sends them.

pub mod classify;
mod connect;
pub mod prober;
#[cfg(test)]
mod tests;

pub use classify::{Class, Outcome, Who, classify};
pub use prober::{Loss, Prober, ProberOptions, Target};
