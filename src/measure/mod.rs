//! Measuring what was lost: how a request is judged, the prober that sends them, and what a balancer's logs say of them.

pub mod access_log;
pub mod classify;
mod connect;
pub mod prober;
#[cfg(test)]
mod tests;

pub use classify::{Class, Outcome, Who, classify};
pub use prober::{Loss, Prober, ProberOptions, Target};
