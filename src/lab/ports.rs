//! Free ports that stay ours while nobody listens on them: a service of the lab leaves its port for a while and comes back
//! to it.
//!
//! They are taken from below the range from which the kernel gives outgoing connections theirs; otherwise one of the lab's
//! own many connections could sit on a stopped service's port.

use std::io;
use std::net::{SocketAddr, TcpListener};

/// Ports below are often in use by other things.
const LOWEST: u16 = 15_000;
/// Where the kernel's own range begins if it does not say (Linux: ip_local_port_range).
const USUAL_RANGE: u16 = 32_768;

/// Finds ports, each one once.
#[derive(Debug)]
pub(super) struct Ports {
    next: u16,
    end: u16,
}

impl Ports {
    /// Begins somewhere that depends on the process, so that two labs rarely look at the same port.
    pub(super) fn new() -> Self {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let end = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(USUAL_RANGE);
        let end = end.clamp(LOWEST + 1000, USUAL_RANGE);
        let nanos =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let somewhere = (std::process::id().wrapping_mul(7919) ^ nanos) % u32::from(end - LOWEST);
        Self { next: LOWEST + u16::try_from(somewhere).unwrap_or(0), end }
    }

    /// The next free one.
    pub(super) fn take(&mut self) -> io::Result<SocketAddr> {
        for _ in LOWEST..self.end {
            let port = self.next;
            self.next = if port + 1 >= self.end { LOWEST } else { port + 1 };
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            if TcpListener::bind(address).is_ok() {
                return Ok(address);
            }
        }
        Err(io::Error::other("no port is free on 127.0.0.1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut ports = Ports::new();
        let taken: std::collections::BTreeSet<SocketAddr> = (0..50).map(|_| ports.take().expect("free")).collect();
        assert_eq!(taken.len(), 50);
    }
}
