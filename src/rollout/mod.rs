//! How it is done: ports to the world, the pure machine that decides, the shell that drives it.
//!
//! Knows the words of the fleet and of the wire, never an adapter.

mod deploy;
mod driver;
pub mod machine;
pub mod port;
mod preflight;
pub mod provision;

pub use deploy::{Deployed, deploy};
pub use driver::{Outside, Ports, drive};
pub use preflight::{Order, Ready, make_plan, observe, on_each, preflight, resolve, selected};

use crate::fleet::release::DEFINITION;
use crate::server::wire::{Blob, Resolved};

/// The files of a release on a server: everything beside the compose file, and the definition instead of it.
fn files_of(order: &Order, resolved: &Resolved) -> Vec<Blob> {
    let mut files: Vec<Blob> =
        order.files.iter().filter(|file| file.name != order.fleet.release.compose).cloned().collect();
    files.push(Blob::text(DEFINITION, &resolved.definition));
    files
}
