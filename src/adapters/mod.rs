//! The real ends of the ports.

pub mod alb;
pub mod ssh;
