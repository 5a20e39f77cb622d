//! Tenants on Kubernetes: what is checked and rendered, as a user meets it, and held to a model of what the cluster does.

mod command;
mod files;
mod hpa;
mod oracle;
mod settings;
mod story;
