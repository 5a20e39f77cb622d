//! The connections that a node keeps to its targets, and the one attempt that a request gets.
//!
//! An ALB repeats nothing: what was written to a connection that then breaks is a 502. A connection that was seen closed
//! before anything was written is not used, as any proxy would do.

use super::core::Core;
use super::lock;
use super::model::Place;
use crate::lab::fetch::connect;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Why there is no answer of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// Nobody listens, or the network said so.
    Refused,
    /// No connection in time.
    ConnectTimeout,
    /// It closed with the request outstanding, or answered no HTTP.
    Closed,
    /// The client's own body broke off.
    Client,
}

#[derive(Debug)]
struct Idle {
    sender: SendRequest<Incoming>,
    since: Instant,
}

/// One node's connections.
#[derive(Debug)]
pub(super) struct Pool {
    node: usize,
    idle: Mutex<HashMap<Place, Vec<Idle>>>,
}

impl Pool {
    pub(super) fn new(node: usize) -> Self {
        Self { node, idle: Mutex::default() }
    }

    /// A connection that is free and still open. Those that are closed or were idle for too long are let go.
    fn take(&self, place: &Place, idle_timeout: Duration) -> Option<SendRequest<Incoming>> {
        let mut pool = lock(&self.idle);
        let idle = pool.get_mut(place)?;
        idle.retain(|idle| {
            !idle.sender.is_closed() && (!idle.sender.is_ready() || idle.since.elapsed() < idle_timeout)
        });
        let at = idle.iter().rposition(|idle| idle.sender.is_ready())?;
        Some(idle.swap_remove(at).sender)
    }

    /// Gives a connection back; it becomes free when its answer is read to the end.
    fn put(&self, place: &Place, sender: SendRequest<Incoming>) {
        lock(&self.idle).entry(place.clone()).or_default().push(Idle { sender, since: Instant::now() });
    }

    /// Sends a request to a target, once.
    pub(super) async fn send(
        &self,
        core: &Core,
        place: &Place,
        address: SocketAddr,
        request: Request<Incoming>,
        sent: impl FnOnce(),
    ) -> Result<Response<Incoming>, NoAnswer> {
        let (mut sender, kept) = match self.take(place, core.idle_timeout()) {
            Some(sender) => (sender, true),
            None => (self.connect(core, address).await?, false),
        };
        sent();
        let unsent = match sender.try_send_request(request).await {
            Ok(response) => {
                self.put(place, sender);
                return Ok(response);
            }
            Err(mut error) => match error.take_message() {
                Some(request) if kept => request,
                _ => return Err(because(&error.into_error())),
            },
        };
        // Not a byte was written: the kept connection had ended in the meantime.
        let mut sender = self.connect(core, address).await?;
        let response = sender.send_request(unsent).await.map_err(|error| because(&error))?;
        self.put(place, sender);
        Ok(response)
    }

    async fn connect(&self, core: &Core, address: SocketAddr) -> Result<SendRequest<Incoming>, NoAnswer> {
        let connecting = connect(address, core.source(self.node, address));
        let connecting = tokio::time::timeout(core.connect_timeout(), connecting);
        let stream = connecting.await.map_err(|_| NoAnswer::ConnectTimeout)?.map_err(|_| NoAnswer::Refused)?;
        stream.set_nodelay(true).map_err(|_| NoAnswer::Refused)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| NoAnswer::Refused)?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

fn because(error: &hyper::Error) -> NoAnswer {
    if error.is_user() { NoAnswer::Client } else { NoAnswer::Closed }
}
