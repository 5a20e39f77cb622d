//! What the pure parts promise, on values only.
