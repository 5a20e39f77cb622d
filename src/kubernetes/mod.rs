//! Backends on Kubernetes that sleep at zero pods ([docs/kubernetes.md]): the numbers of tenants, the manifests and configurations that
//! are made of them, and what other people wrote.
//!
//! Pure: values in, values and texts out. It may know `fleet` and `config`; files, processes and the cluster are for its callers.

mod fault;
mod numbers;
mod read;
mod render;
mod yaml;

pub use fault::{Fault, of_tenants};
pub use numbers::wakes;
pub use read::{Besides, Given, Read, read};
pub use render::{METRIC, NotRendered, WAKE_HOST, WRITTEN, render, wake_host};
