//! The one test binary: everything that needs no machine of its own.

mod architecture;
mod deploys;
mod plans;
mod world;
