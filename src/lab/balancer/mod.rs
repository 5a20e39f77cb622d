//! The pretended balancer.

pub mod model;
