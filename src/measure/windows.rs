//! Which deploy a request belongs to, by when it was sent. Pure.

use super::classify::{self, Class};
use super::latency::Durations;
use crate::clock::Stamp;
use crate::event::{Part, Requests, Window, seconds};
use std::time::Duration;

/// So many parts are told apart; whoever marks more often has gone wrong.
const MOST: usize = 200;

/// The parts of a measurement, one after the other; the first begins with it.
#[derive(Debug)]
pub(super) struct Windows(Vec<Room>);

#[derive(Debug)]
struct Room {
    from: Stamp,
    /// Whether a deploy runs in it.
    deploy: bool,
    label: Option<String>,
    requests: Requests,
    latency: Option<Durations>,
}

impl Room {
    fn new(from: Stamp, deploy: bool, label: Option<String>) -> Self {
        Self { from, deploy, label, requests: Requests::default(), latency: None }
    }
}

impl Windows {
    pub(super) fn new(from: Stamp) -> Self {
        Self(vec![Room::new(from, false, None)])
    }

    fn last(&self) -> Option<&Room> {
        self.0.last()
    }

    /// The label of the deploy that runs; an empty text where it has none.
    pub(super) fn deploy(&self) -> Option<String> {
        self.last().filter(|room| room.deploy).map(|room| room.label.clone().unwrap_or_default())
    }

    /// A deploy begins; one that ran ends with it. False where there is no room for more.
    pub(super) fn begin(&mut self, at: Stamp, label: Option<String>) -> bool {
        let room = self.0.len() < MOST;
        if room {
            self.0.push(Room::new(at, true, label));
        }
        room
    }

    /// The deploy that runs ends; false where none does.
    pub(super) fn end(&mut self, at: Stamp) -> bool {
        let runs = self.last().is_some_and(|room| room.deploy);
        if runs {
            self.0.push(Room::new(at, false, None));
        }
        runs
    }

    /// Counts a request, and its latency where it was answered.
    pub(super) fn note(&mut self, sent: Stamp, class: Class, latency: Option<Duration>) {
        let at = self.0.iter().rposition(|room| room.from <= sent).unwrap_or(0);
        let Some(room) = self.0.get_mut(at) else { return };
        classify::count(&mut room.requests, class);
        if let Some(latency) = latency {
            room.latency.get_or_insert_default().add(latency);
        }
    }

    /// What became of the requests that were sent before the first deploy.
    pub(super) fn before(&self) -> Requests {
        self.0.first().map(|room| room.requests).unwrap_or_default()
    }

    /// Whether a request was sent before the first deploy, where there is one.
    pub(super) fn is_before(&self, sent: Stamp) -> bool {
        self.0.get(1).is_some_and(|first| sent < first.from)
    }

    /// All parts up to `now`; none where nobody marked a deploy.
    pub(super) fn list(&self, now: Stamp) -> Vec<Window> {
        if self.0.len() < 2 {
            return Vec::new();
        }
        let part = |at: usize, room: &Room| match (room.deploy, at) {
            (true, _) => Part::During,
            (false, 0) => Part::Before,
            (false, at) if at + 1 == self.0.len() => Part::After,
            _ => Part::Between,
        };
        let ends = self.0.iter().skip(1).map(|next| next.from).chain([now]);
        self.0
            .iter()
            .zip(ends)
            .enumerate()
            .map(|(at, (room, to))| Window {
                part: part(at, room),
                label: room.label.clone(),
                from: seconds(room.from.since_start()),
                to: seconds(to.since_start()),
                requests: room.requests,
                p99_seconds: room.latency.as_ref().and_then(|latency| latency.share(0.99)),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Stamp {
        Stamp::at(Duration::from_secs(seconds))
    }

    #[test]
    fn a_request_belongs_to_the_part_in_which_it_was_sent_however_late_it_ends() {
        let mut windows = Windows::new(at(0));
        windows.note(at(1), Class::Served, Some(Duration::from_millis(5)));
        assert_eq!(windows.list(at(2)), [], "nobody marked anything");
        assert!(windows.begin(at(10), Some("v2".into())));
        assert_eq!(windows.deploy().as_deref(), Some("v2"));
        windows.note(at(9), Class::Nowhere, None);
        windows.note(at(10), Class::CutShort, None);
        assert!(windows.is_before(at(9)) && !windows.is_before(at(10)));
        assert!(windows.end(at(20)));
        windows.note(at(19), Class::Served, Some(Duration::from_millis(7)));
        windows.note(at(25), Class::Served, Some(Duration::from_millis(9)));
        let list = windows.list(at(30));
        let told: Vec<_> = list
            .iter()
            .map(|w| {
                (w.part, w.from, w.to, w.requests.total, w.requests.lost(), w.p99_seconds.map(|s| (s * 1e3).round()))
            })
            .collect();
        assert_eq!(
            told,
            [
                (Part::Before, 0.0, 10.0, 2, 1, Some(5.0)),
                (Part::During, 10.0, 20.0, 2, 1, Some(7.0)),
                (Part::After, 20.0, 30.0, 1, 0, Some(9.0)),
            ]
        );
    }

    #[test]
    fn a_second_begin_ends_the_first_and_an_end_without_a_begin_is_none() {
        let mut windows = Windows::new(at(0));
        assert!(!windows.end(at(1)));
        windows.begin(at(2), Some("a".into()));
        windows.begin(at(3), Some("b".into()));
        assert!(windows.end(at(4)) && !windows.end(at(5)));
        windows.begin(at(6), None);
        assert_eq!(windows.deploy().as_deref(), Some(""));
        let parts: Vec<Part> = windows.list(at(7)).iter().map(|window| window.part).collect();
        assert_eq!(parts, [Part::Before, Part::During, Part::During, Part::Between, Part::During]);
    }

    #[test]
    fn marks_without_end_do_not_fill_the_memory() {
        let mut windows = Windows::new(at(0));
        assert!((1..MOST as u64).all(|second| windows.begin(at(second), None)));
        assert!(!windows.begin(at(5000), None));
    }
}
