//! How a release comes to be and comes to a server: resolved once, staged whole, pulled; or saved from what runs.
//!
//! What may be a release at all is decided in `fleet::release`; here it is asked for, written and checked.

mod adopt;
mod list;
mod resolve;
mod secrets;
mod stage;

pub use adopt::adopt;
pub use list::list;
pub use resolve::resolve;
pub use secrets::Secrets;
pub use stage::{check_files, forget_images, image_ids, prune, pull, read_release, stage};

use super::wire::{Failure, FailureKind};
use std::io;

fn disk(what: &str, error: &io::Error) -> Failure {
    let missing = matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull
    );
    Failure::new(if missing { FailureKind::Missing } else { FailureKind::Internal }, format!("{what}: {error}"))
}
