//! Measuring what was lost: how a request is judged, the prober that sends them, and what a balancer's logs say of them.

pub mod access_log;
pub mod classify;
mod connect;
mod gaps;
mod latency;
pub mod prober;
mod resolve;
mod schedule;
mod site;
mod tally;
#[cfg(test)]
mod tests;
mod tls;
mod windows;

pub use classify::{Class, Outcome, Who, classify};
pub use prober::{MOST_A_SECOND, Prober, ProberOptions, Target};
pub use site::Site;
pub use tally::Loss;
pub use tls::check_ca;
