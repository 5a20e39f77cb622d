//! Handover: a planned absence must not lose a request. This file is the map of the crate; `docs/architecture.md` draws the flow.

pub mod clock;
pub mod config;
pub mod diag;
pub mod event;
pub mod fleet;
pub mod lab;
pub mod rollout;
pub mod server;
