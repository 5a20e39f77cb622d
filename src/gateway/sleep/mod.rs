//! A backend that nobody needs is off: decided by a plain machine, carried out through the Docker Engine API.

mod docker;
pub(super) mod machine;
mod order;
