//! What each checker was told, how often in a row, and whether real requests came from it meanwhile.
//!
//! It stands in the way of every request, so it is bounded in size and remembers counts only, no request.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// So many checkers are told apart: an ALB has at most 100 addresses (AWS user guide), and a server may be in two groups.
const MOST: usize = 200;
/// A path that is longer is no health check's (AWS API reference: up to 1024; what is counted is asked for by name).
const PATH: usize = 1024;
/// What was not heard of for so long makes room for others.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// So many times between two checks are remembered.
const REMEMBERED: usize = 8;
/// So many answers in a row are told apart, by the real requests after each: AWS's thresholds go up to 10.
const ROWS: usize = 12;
/// A request so soon after an answer was on its way before the answer was read.
pub(super) const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// Of a `User-Agent` so many characters are kept.
const AGENT: usize = 64;

/// What a check was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// It may send requests here.
    In,
    /// It may not: 503.
    Out,
}

/// What an address is, as far as the one who was asked can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Some machine.
    #[default]
    Machine,
    /// This machine, or this container, itself.
    Itself,
    /// The way out of its network: Docker's own proxy, or a translation of addresses, shows every client so.
    Bridge,
    /// A proxy: it says for whom it asks.
    Proxy,
}

/// A health check that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// From where.
    pub address: IpAddr,
    /// What that is, as far as the connection and the request show.
    pub origin: Origin,
    /// The path, with its query.
    pub path: &'a str,
    /// The port that was connected to.
    pub port: u16,
    /// Its `User-Agent`.
    pub agent: &'a str,
}

/// One checker of one path, as it was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// From where it asks.
    pub address: IpAddr,
    /// What that address is.
    #[serde(default)]
    pub origin: Origin,
    /// What it asks for, the query included.
    pub path: String,
    /// At which port of the one who answers; in a container that is the container's own.
    pub port: u16,
    /// Its `User-Agent`, cut short.
    pub agent: String,
    /// What it was told last.
    pub told: Told,
    /// How often in a row.
    pub row: u32,
    /// How long ago the last time was.
    #[serde(with = "millis")]
    pub age: Duration,
    /// The shortest and the longest time between two checks of the last few.
    pub gaps: Option<Gaps>,
    /// How many real requests came from this address while it was told otherwise, over so many of the last checks.
    pub usual: Usual,
    /// Real requests from this address after the first, second, ... answer of the row, each until the next.
    pub after: Vec<u32>,
}

/// Times between two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gaps {
    /// The shortest.
    #[serde(with = "millis")]
    pub least: Duration,
    /// The longest.
    #[serde(with = "millis")]
    pub most: Duration,
}

/// What came from an address before the row began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usual {
    /// So many real requests,
    pub requests: u32,
    /// in so long.
    #[serde(with = "millis")]
    pub over: Duration,
}

/// Everything that one who answers health checks has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesSeen {
    /// How long it has counted.
    #[serde(with = "millis")]
    pub up: Duration,
    /// There were more checkers than are told apart: what stands here is not everybody.
    pub more: bool,
    /// Whom it saw.
    pub nodes: Vec<NodeSeen>,
}

/// Durations in JSON: whole milliseconds.
mod millis {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// A checker while it is counted.
#[derive(Debug, Clone)]
struct Checker {
    origin: Origin,
    agent: String,
    told: Told,
    row: u32,
    last: Duration,
    gaps: VecDeque<Duration>,
    /// Real requests between two checks while it was told the same as now, with the time between: at most [`REMEMBERED`].
    meanwhile: VecDeque<(u32, Duration)>,
    /// The same of the row before, frozen when this row began.
    usual: Usual,
    after: Vec<u32>,
    since_last: u32,
}

/// Counts answers and requests; `now` is the time since it began.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    addresses: BTreeMap<IpAddr, BTreeMap<(String, u16), Checker>>,
    entries: usize,
    more: bool,
}

impl Counts {
    /// A check was answered.
    pub fn told(&mut self, asked: Asked<'_>, told: Told, now: Duration) {
        if asked.path.len() > PATH {
            return;
        }
        let address = asked.address.to_canonical();
        let key = (asked.path.to_owned(), asked.port);
        if let Some(checker) = self.addresses.get_mut(&address).and_then(|own| own.get_mut(&key)) {
            checker.told(asked, told, now);
            return;
        }
        if self.entries >= MOST {
            self.forget(now);
        }
        if self.entries >= MOST {
            self.more = true;
            return;
        }
        self.entries += 1;
        self.addresses.entry(address).or_default().insert(key, Checker::new(asked, told, now));
    }

    /// A request that is no check came.
    pub fn real(&mut self, address: IpAddr, now: Duration) {
        // Nearly everybody is no checker, and is passed by here.
        let Some(own) = self.addresses.get_mut(&address.to_canonical()) else { return };
        for checker in own.values_mut() {
            checker.real(now);
        }
    }

    fn forget(&mut self, now: Duration) {
        for own in self.addresses.values_mut() {
            own.retain(|_, checker| now.saturating_sub(checker.last) < FORGOTTEN);
        }
        self.addresses.retain(|_, own| !own.is_empty());
        self.entries = self.addresses.values().map(BTreeMap::len).sum();
    }

    /// What was counted until now; `origin` says what an address is that looked like any machine.
    #[must_use]
    pub fn seen(&self, now: Duration, origin: impl Fn(IpAddr) -> Origin) -> NodesSeen {
        let checkers = self.addresses.iter().flat_map(|(address, own)| own.iter().map(move |one| (*address, one)));
        let nodes = checkers.map(|(address, ((path, port), checker))| NodeSeen {
            address,
            origin: if checker.origin == Origin::Machine { origin(address) } else { checker.origin },
            path: path.clone(),
            port: *port,
            agent: checker.agent.clone(),
            told: checker.told,
            row: checker.row,
            age: now.saturating_sub(checker.last),
            gaps: gaps(&checker.gaps),
            usual: checker.usual,
            after: checker.after.clone(),
        });
        NodesSeen { up: now, more: self.more, nodes: nodes.collect() }
    }
}

fn gaps(gaps: &VecDeque<Duration>) -> Option<Gaps> {
    Some(Gaps { least: *gaps.iter().min()?, most: *gaps.iter().max()? })
}

impl Checker {
    fn new(asked: Asked<'_>, told: Told, now: Duration) -> Self {
        Self {
            origin: asked.origin,
            agent: asked.agent.chars().take(AGENT).collect(),
            told,
            row: 1,
            last: now,
            gaps: VecDeque::new(),
            meanwhile: VecDeque::new(),
            usual: Usual::default(),
            after: vec![0],
            since_last: 0,
        }
    }

    fn told(&mut self, asked: Asked<'_>, told: Told, now: Duration) {
        if self.agent != asked.agent {
            self.agent = asked.agent.chars().take(AGENT).collect();
        }
        self.origin = self.origin.max(asked.origin);
        let gap = now.saturating_sub(self.last);
        push(&mut self.gaps, gap);
        push(&mut self.meanwhile, (self.since_last, gap));
        (self.last, self.since_last) = (now, 0);
        if told == self.told {
            self.row = self.row.saturating_add(1);
            if self.after.len() < ROWS {
                self.after.push(0);
            }
            return;
        }
        let over = self.meanwhile.iter().map(|(_, gap)| *gap).sum();
        self.usual = Usual { requests: self.meanwhile.iter().map(|(requests, _)| *requests).sum(), over };
        self.meanwhile.clear();
        (self.told, self.row, self.after) = (told, 1, vec![0]);
    }

    fn real(&mut self, now: Duration) {
        self.since_last = self.since_last.saturating_add(1);
        if now.saturating_sub(self.last) < ON_ITS_WAY {
            return;
        }
        let at = self.row as usize;
        // Beyond the rows that are told apart, all that comes belongs to the last.
        let at = at.min(self.after.len());
        if let Some(last) = at.checked_sub(1).and_then(|at| self.after.get_mut(at)) {
            *last = last.saturating_add(1);
        }
    }
}

fn push<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() == REMEMBERED {
        queue.pop_front();
    }
    queue.push_back(value);
}
