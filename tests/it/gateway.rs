//! The gateway as a process, between clients and backends that are real sockets on loopback.

mod closing;
mod hold;
mod http2;
mod live;
mod malformed;
mod nodes;
mod proxy;
mod world;
