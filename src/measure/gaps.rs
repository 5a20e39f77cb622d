//! How long something was unreachable: runs of lost requests, each between two bounds. Pure.
//!
//! Requests end in any order; they are looked at in the order in which they were due. Of a gap two things are known for
//! sure: it covers the time from its first loss to its last, and it lies between the last request before it that was
//! answered and the first one after it, by when these were sent.

use crate::clock::Stamp;
use crate::event::{Gap, seconds};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// So many gaps are kept of each address.
const KEPT: usize = 100;

/// What a request says about whether its way was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It was answered.
    Open,
    /// It was lost.
    Closed,
    /// It was not asked, or we went away ourselves.
    Unknown,
}

/// One request that ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) sent: Stamp,
    pub(super) way: Way,
    pub(super) address: Option<SocketAddr>,
}

/// The gaps so far.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The number of the first request that has not ended.
    next: u64,
    /// What ended before its turn.
    early: BTreeMap<u64, Ended>,
    all: Track,
    each: BTreeMap<SocketAddr, Track>,
}

impl Gaps {
    /// Takes a request that ended, by its number from 0.
    pub(super) fn note(&mut self, number: u64, ended: Ended) {
        self.early.insert(number, ended);
        while let Some(ended) = self.early.remove(&self.next) {
            self.next += 1;
            self.look(ended);
        }
    }

    fn look(&mut self, ended: Ended) {
        self.all.look(ended);
        if let Some(address) = ended.address {
            self.each.entry(address).or_default().look(ended);
        }
    }

    /// How many gaps there were over all addresses together.
    pub(super) fn total(&self) -> u64 {
        self.all.total + u64::from(self.all.open.is_some())
    }

    /// The gaps, those that are still open included: over all, then of each address where there are several.
    pub(super) fn list(&self) -> Vec<Gap> {
        let each = self.each.iter().filter(|_| self.each.len() > 1);
        let tracks = std::iter::once((None, &self.all)).chain(each.map(|(address, track)| (Some(*address), track)));
        tracks.flat_map(|(address, track)| track.list(address)).collect()
    }
}

#[derive(Debug, Default)]
struct Track {
    last_open: Option<Stamp>,
    open: Option<Run>,
    closed: Vec<(Run, Stamp)>,
    total: u64,
}

/// Losses without an answer between them.
#[derive(Debug, Clone, Copy)]
struct Run {
    after: Option<Stamp>,
    first: Stamp,
    last: Stamp,
    lost: u64,
}

impl Track {
    fn look(&mut self, ended: Ended) {
        match ended.way {
            Way::Unknown => {}
            Way::Closed => {
                let new = Run { after: self.last_open, first: ended.sent, last: ended.sent, lost: 0 };
                let run = self.open.get_or_insert(new);
                (run.first, run.last) = (run.first.min(ended.sent), run.last.max(ended.sent));
                run.lost += 1;
            }
            Way::Open => {
                if let Some(run) = self.open.take() {
                    self.total += 1;
                    if self.closed.len() < KEPT {
                        self.closed.push((run, ended.sent));
                    }
                }
                self.last_open = Some(ended.sent);
            }
        }
    }

    fn list(&self, address: Option<SocketAddr>) -> impl Iterator<Item = Gap> {
        let closed = self.closed.iter().map(|(run, before)| (*run, Some(*before)));
        let open = self.open.iter().map(|run| (*run, None));
        closed.chain(open).map(move |(run, before)| run.gap(before, address))
    }
}

impl Run {
    fn gap(self, before: Option<Stamp>, address: Option<SocketAddr>) -> Gap {
        // Two requests that were due together may have been sent the other way round.
        let after = self.after.map(|after| after.min(self.first));
        let before = before.map(|before| before.max(self.last));
        let at = |stamp: Stamp| seconds(stamp.since_start());
        Gap {
            address,
            lost: self.lost,
            after: after.map(at),
            first: at(self.first),
            last: at(self.last),
            before: before.map(at),
            at_least_seconds: seconds(self.last.since(self.first)),
            at_most_seconds: after.zip(before).map(|(after, before)| seconds(before.since(after))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Requests every 10 ms: `o` answered, `x` lost, `?` unknown.
    fn ended(ways: &str) -> Vec<Ended> {
        let way = |c| match c {
            'o' => Way::Open,
            'x' => Way::Closed,
            _ => Way::Unknown,
        };
        let sent = |n: usize| Stamp::at(Duration::from_millis(10) * u32::try_from(n).expect("few"));
        ways.chars().enumerate().map(|(n, c)| Ended { sent: sent(n), way: way(c), address: None }).collect()
    }

    type Told = (u64, Option<f64>, f64, f64, Option<f64>);

    fn gaps(ways: &str) -> Vec<Told> {
        let mut gaps = Gaps::default();
        ended(ways).into_iter().enumerate().for_each(|(n, ended)| gaps.note(n as u64, ended));
        assert_eq!(gaps.total(), gaps.list().len() as u64);
        gaps.list().iter().map(|gap| (gap.lost, gap.after, gap.first, gap.last, gap.before)).collect()
    }

    #[test]
    fn a_gap_lies_between_its_losses_and_the_answers_around_them() {
        assert_eq!(gaps("ooxxxoo"), [(3, Some(0.01), 0.02, 0.04, Some(0.05))]);
        assert_eq!(gaps("oxo"), [(1, Some(0.0), 0.01, 0.01, Some(0.02))]);
        assert_eq!(gaps("oxox"), [(1, Some(0.0), 0.01, 0.01, Some(0.02)), (1, Some(0.02), 0.03, 0.03, None)]);
        assert_eq!(gaps("xxo"), [(2, None, 0.0, 0.01, Some(0.02))]);
        assert_eq!(gaps("xx"), [(2, None, 0.0, 0.01, None)]);
        assert_eq!(gaps("oooo"), []);
    }

    #[test]
    fn what_is_not_known_neither_ends_a_gap_nor_bounds_it() {
        assert_eq!(gaps("o?x?x?o"), [(2, Some(0.0), 0.02, 0.04, Some(0.06))]);
    }

    #[test]
    fn the_order_in_which_requests_end_changes_nothing() {
        let all = ended("ooxxoxoo");
        let orders: [[u64; 8]; 3] = [[7, 6, 5, 4, 3, 2, 1, 0], [1, 0, 3, 2, 5, 4, 7, 6], [4, 0, 7, 2, 1, 3, 6, 5]];
        for order in orders {
            let mut gaps = Gaps::default();
            let place = |number: u64| usize::try_from(number).expect("few");
            order.into_iter().for_each(|number| gaps.note(number, all[place(number)]));
            let lost: Vec<u64> = gaps.list().iter().map(|gap| gap.lost).collect();
            assert_eq!(lost, [2, 1], "{order:?}");
            assert!(gaps.early.is_empty());
        }
    }

    #[test]
    fn each_of_several_addresses_has_gaps_of_its_own() {
        let address = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let mut gaps = Gaps::default();
        for (number, ended) in ended("oxoxoxoo").into_iter().enumerate() {
            let port = if number % 2 == 0 { 1 } else { 2 };
            gaps.note(number as u64, Ended { address: address(port), ..ended });
        }
        let list = gaps.list();
        assert_eq!(gaps.total(), 3, "over all there was an answer after every loss");
        assert_eq!(list.iter().filter(|gap| gap.address == address(1)).count(), 0);
        let second: Vec<&Gap> = list.iter().filter(|gap| gap.address == address(2)).collect();
        assert_eq!((second.len(), second[0].lost, second[0].before), (1, 3, Some(0.07)));
    }

    #[test]
    fn more_gaps_than_are_kept_are_counted() {
        let mut gaps = Gaps::default();
        ended(&"ox".repeat(500)).into_iter().enumerate().for_each(|(n, ended)| gaps.note(n as u64, ended));
        assert_eq!((gaps.total(), gaps.list().len()), (500, KEPT + 1));
    }
}
