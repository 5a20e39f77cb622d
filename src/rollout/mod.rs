//! How it is done: ports to the world, the pure machine that decides, the shell that drives it.
//!
//! Knows the words of the fleet and of the wire, never an adapter.

pub mod driver;
pub mod machine;
pub mod port;
