//! Where requests go: the addresses that were named, or the host's own, looked up again and again.
//!
//! A balancer's addresses change under way. They are looked up beside the requests, so that a slow resolver makes no
//! request late; what was known stays in use while a lookup fails, as with any client that remembers an answer.

use super::tally::{Tally, Trouble};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A change is seen after so long; records of balancers are good for a minute.
const AGAIN: Duration = Duration::from_secs(5);
/// A host that has no address is asked for more often.
const SOON: Duration = Duration::from_secs(1);

type Found = io::Result<Vec<SocketAddr>>;
type Lookup = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Found> + Send>> + Send + Sync>;
type Known = Result<Arc<[SocketAddr]>, String>;

/// The addresses, as they change.
#[derive(Debug)]
pub(super) struct Addresses {
    known: watch::Receiver<Option<Known>>,
    looking: Option<JoinHandle<()>>,
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if let Some(looking) = &self.looking {
            looking.abort();
        }
    }
}

impl Addresses {
    /// Those that were named, and no others.
    pub(super) fn named(addresses: &[SocketAddr]) -> Self {
        Self { known: watch::channel(Some(Ok(addresses.into()))).1, looking: None }
    }

    /// Those of a host.
    pub(super) fn of(host: &str, port: u16, tally: Arc<Mutex<Tally>>) -> Self {
        let name = host.to_owned();
        let lookup: Lookup = Box::new(move || {
            let host = name.clone();
            Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) })
        });
        Self::looked_up(host.to_owned(), lookup, [AGAIN, SOON], tally)
    }

    fn looked_up(host: String, lookup: Lookup, [again, soon]: [Duration; 2], tally: Arc<Mutex<Tally>>) -> Self {
        let (sender, known) = watch::channel(None);
        let looking = tokio::spawn(async move {
            loop {
                let found = lookup().await.map(|found| with_a_way(found, &host, &tally));
                let next = judge(sender.borrow().as_ref(), found, &host);
                if let Some((trouble, what)) = next.trouble {
                    tally.lock().unwrap_or_else(PoisonError::into_inner).trouble(trouble, || what);
                }
                let wait = if next.known.is_ok() { again } else { soon };
                sender.send_replace(Some(next.known));
                tokio::time::sleep(wait).await;
            }
        });
        Self { known, looking: Some(looking) }
    }

    /// The address for a turn; waits until the host was looked up for the first time.
    pub(super) async fn at(&self, turn: u64) -> Result<SocketAddr, String> {
        let mut known = self.known.clone();
        let known = known.wait_for(Option::is_some).await.map_err(|_| "nobody looks the host up".to_owned())?;
        let addresses = match known.as_ref() {
            Some(Ok(addresses)) => addresses,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err("the host was not looked up yet".to_owned()),
        };
        let place = turn % u64::try_from(addresses.len()).unwrap_or(u64::MAX).max(1);
        let place = usize::try_from(place).unwrap_or_default();
        addresses.get(place).copied().ok_or_else(|| "the host has no address".to_owned())
    }
}

struct Next {
    known: Known,
    trouble: Option<(Trouble, String)>,
}

/// What is known after a lookup.
fn judge(before: Option<&Known>, found: Found, host: &str) -> Next {
    let why = match found {
        Ok(found) if !found.is_empty() => return Next { known: Ok(found.into()), trouble: None },
        Ok(_) => format!("{host} has no address"),
        Err(error) => format!("{host} does not resolve: {error}"),
    };
    match before {
        Some(Ok(addresses)) => {
            let what = format!("{why}; the addresses that were known go on being asked");
            Next { known: Ok(Arc::clone(addresses)), trouble: Some((Trouble::Stale, what)) }
        }
        _ => Next { known: Err(why.clone()), trouble: Some((Trouble::Unresolved, why)) },
    }
}

/// Leaves out what this machine has no way to at all (IPv6 addresses on a machine without IPv6): a client would not go
/// there either, and nothing would be learnt of the server. Where there is no other address, the losses are real.
fn with_a_way(found: Vec<SocketAddr>, host: &str, tally: &Mutex<Tally>) -> Vec<SocketAddr> {
    let (ways, none): (Vec<SocketAddr>, Vec<SocketAddr>) = found.iter().partition(|address| has_a_way(**address));
    if let (Some(first), false) = (none.first(), ways.is_empty()) {
        let what = format!("this machine has no way to {} of {host}: it is not asked", first.ip());
        tally.lock().unwrap_or_else(PoisonError::into_inner).trouble(Trouble::NoRoute, || what);
        return ways;
    }
    found
}

/// Connecting a datagram socket sends nothing; it looks for a route.
fn has_a_way(to: SocketAddr) -> bool {
    let from = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    UdpSocket::bind(from).and_then(|socket| socket.connect(to)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Stamp;
    use std::collections::VecDeque;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 80))
    }

    fn tally() -> Arc<Mutex<Tally>> {
        Arc::new(Mutex::new(Tally::new(Stamp::ZERO)))
    }

    /// A resolver with one answer after the other; `None` is a failure. The last one stays.
    fn answers(answers: &[Option<u8>]) -> Lookup {
        let left = Mutex::new(answers.iter().copied().collect::<VecDeque<_>>());
        Box::new(move || {
            let mut left = left.lock().expect("no panic");
            let answer = if left.len() > 1 { left.pop_front() } else { left.front().copied() };
            Box::pin(async move {
                match answer.flatten() {
                    Some(last) => Ok(vec![address(last)]),
                    None => Err(io::Error::other("as ordered")),
                }
            })
        })
    }

    async fn until(addresses: &Addresses, wanted: &Result<SocketAddr, String>) {
        tokio::time::timeout(Duration::from_secs(20), async {
            while addresses.at(0).await != *wanted {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("in time");
    }

    const OFTEN: [Duration; 2] = [Duration::from_millis(5); 2];

    #[tokio::test]
    async fn a_host_that_moves_is_followed() {
        let addresses = Addresses::looked_up("x".into(), answers(&[Some(1), Some(1), Some(2)]), OFTEN, tally());
        assert_eq!(addresses.at(0).await, Ok(address(1)));
        until(&addresses, &Ok(address(2))).await;
    }

    #[tokio::test]
    async fn a_host_that_is_not_known_yet_comes_later_and_is_told_of() {
        let tally = tally();
        let addresses = Addresses::looked_up("x".into(), answers(&[None, Some(3)]), OFTEN, Arc::clone(&tally));
        until(&addresses, &Ok(address(3))).await;
        assert_eq!(tally.lock().expect("no panic").tell(), ["x does not resolve: as ordered"]);
    }

    #[tokio::test]
    async fn a_resolver_that_fails_under_way_takes_nothing_away() {
        let tally = tally();
        let addresses = Addresses::looked_up("x".into(), answers(&[Some(1), None]), OFTEN, Arc::clone(&tally));
        tokio::time::timeout(Duration::from_secs(20), async {
            while tally.lock().expect("no panic").warnings().is_empty() {
                assert_eq!(addresses.at(0).await, Ok(address(1)));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("told");
        assert_eq!(addresses.at(0).await, Ok(address(1)));
    }

    #[tokio::test]
    async fn named_addresses_are_asked_in_turn() {
        let addresses = Addresses::named(&[address(1), address(2), address(3)]);
        let mut asked = Vec::new();
        for turn in 0..4 {
            asked.push(addresses.at(turn).await.expect("an address"));
        }
        assert_eq!(asked, [address(1), address(2), address(3), address(1)]);
    }

    #[test]
    fn loopback_has_a_way_and_a_lookup_without_an_address_says_so() {
        assert!(has_a_way(address(1)));
        let next = judge(None, Ok(Vec::new()), "x");
        assert_eq!(next.known, Err("x has no address".to_owned()));
    }
}
