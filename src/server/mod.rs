//! What runs on a server, or speaks with what runs there.
//!
//! The floors above see only `wire` (messages) and `layout` (paths); `adapters::ssh` starts the agent and frames what
//! is said to it.

pub mod agent;
pub mod bootstrap;
pub mod compose;
pub mod flock;
pub mod frame;
mod journal;
pub mod layout;
mod probes;
mod process;
mod publish;
pub mod run;
mod settings;
mod units;
pub mod watchdog;
pub mod wire;

pub use publish::Secrets;
