//! How it is done: ports to the world, the pure machine that decides, the shell that drives it.
//!
//! Knows the words of the fleet and of the wire, never an adapter.

mod absence;
mod ask;
mod bring;
mod deploy;
mod driver;
mod hooks;
mod keep;
pub mod machine;
pub mod port;
mod preflight;
pub mod provision;
mod unfinished;

pub use absence::overdue;
pub use ask::{observe, on_each};
pub use bring::{releases, resolve};
pub use deploy::{Deployed, Tell, deploy};
pub use driver::{Outside, Ports, drive};
pub use hooks::{HookCommand, HookFailed, NotRun, Running, not_begun, pre_connect};
pub use keep::{Book, measured};
pub use preflight::{Files, NotReady, Order, Over, Ready, Source, make_plan, preflight, selected};
pub use unfinished::{Unfinished, compared, deploys, journals};
