//! Handover: a planned absence must not lose a request. This file is the map of the crate; `docs/architecture.md` draws the flow.

pub mod adapters;
pub mod cli;
pub mod clock;
pub mod config;
pub mod diag;
pub mod event;
pub mod fleet;
pub mod gateway;
pub mod http;
pub mod kubernetes;
pub mod lab;
pub mod measure;
pub mod report;
pub mod rollout;
pub mod server;
