//! Who checks a server's health, node by node: the balancer's word about a target is one word merged from many nodes, but whoever
//! answers the health check sees each of them by its source address.
//!
//! Pure, and in two halves: [`count`] is told every answer and every real request where they are answered; [`proof`] judges what was
//! counted where the deploy runs. Neither knows sockets or clocks; time is an argument.

pub mod count;
pub mod proof;

pub use count::{Asked, Counts, NodeSeen, NodesSeen, Origin, Told, Usual};
pub use proof::{ENOUGH, Judged, Reading, Rule, due, judge, read, window};

#[cfg(test)]
mod tests;
