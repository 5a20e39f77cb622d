//! What runs on a server, or speaks with what runs there.

pub mod wire;
