//! The pretended fleet: a balancer that behaves like an ALB, servers that really stop, load and faults.
//!
//! Only `cli` and tests may use it.

pub mod balancer;
