//! All that is counted of a measurement, as one value: requests go in as they end, seconds and the whole come out. Pure.

use super::classify::{self, Class, Outcome};
use super::gaps::{Ended, Gaps, Way};
use super::latency::Durations;
use super::windows::Windows;
use crate::clock::Stamp;
use crate::event::{Gap, Latency, Punctuality, Requests, Second, Window, seconds};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

/// So many losses are kept with their moments.
const KEPT: usize = 100;
/// A request that is sent later than this was not sent on time.
const LATE: Duration = Duration::from_millis(10);

/// A request that was lost.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// When it was sent.
    #[serde(serialize_with = "in_seconds")]
    pub at: Stamp,
    /// How it was lost.
    #[serde(serialize_with = "in_words")]
    pub class: Class,
    /// The status or the error.
    pub what: String,
    /// To which address.
    pub address: Option<SocketAddr>,
}

/// `nowhere` or `cut_short`: nothing else is lost.
pub(super) fn loss_word(class: Class) -> &'static str {
    if class == Class::CutShort { "cut_short" } else { "nowhere" }
}

fn in_words<S: serde::Serializer>(class: &Class, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(loss_word(*class))
}

fn in_seconds<S: serde::Serializer>(at: &Stamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds(at.since_start()))
}

/// What a person must be told once, because it is not the server's doing or explains all losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The host has no address.
    Unresolved,
    /// It had one, and cannot be asked for it any more.
    Stale,
    /// This machine has no way to one of its addresses.
    NoRoute,
    /// The certificate does not verify.
    Untrusted,
    /// The server does not speak HTTP/2.
    NoHttp2,
    /// This machine could not send a request.
    Unsent,
    /// This machine sent requests late.
    Late,
}

/// One request that ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) number: u64,
    pub(super) due: Stamp,
    pub(super) sent: Stamp,
    pub(super) ended: Stamp,
    pub(super) outcome: Outcome,
    pub(super) what: String,
    pub(super) address: Option<SocketAddr>,
}

/// The counts so far.
#[derive(Debug)]
pub(super) struct Tally {
    requests: Requests,
    latency: Durations,
    late: Durations,
    last_sent: Stamp,
    late_requests: u64,
    not_sent: u64,
    second: Requests,
    second_latency: Durations,
    second_late: Durations,
    gaps: Gaps,
    windows: Windows,
    losses: Vec<Loss>,
    troubles: BTreeMap<Trouble, String>,
    untold: Vec<Trouble>,
}

impl Tally {
    pub(super) fn new(start: Stamp) -> Self {
        Self {
            requests: Requests::default(),
            latency: Durations::default(),
            late: Durations::default(),
            last_sent: start,
            late_requests: 0,
            not_sent: 0,
            second: Requests::default(),
            second_latency: Durations::default(),
            second_late: Durations::default(),
            gaps: Gaps::default(),
            windows: Windows::new(start),
            losses: Vec::new(),
            troubles: BTreeMap::new(),
            untold: Vec::new(),
        }
    }

    /// A request is about to be sent.
    pub(super) fn sending(&mut self, due: Stamp, sent: Stamp) {
        self.last_sent = self.last_sent.max(sent);
        let late = sent.since(due);
        self.late.add(late);
        self.second_late.add(late);
        if late > LATE {
            self.late_requests += 1;
            let what =
                format!("this machine cannot keep the schedule: a request was sent {} ms late", late.as_millis());
            self.trouble(Trouble::Late, || format!("{what}; its latency counts from when it was due"));
        }
    }

    /// A request ended: its class.
    pub(super) fn note(&mut self, done: Done) -> Class {
        let class = classify::classify(done.outcome);
        classify::count(&mut self.requests, class);
        classify::count(&mut self.second, class);
        let way = way(class);
        let latency = (way == Way::Open).then(|| done.ended.since(done.due));
        if let Some(latency) = latency {
            self.latency.add(latency);
            self.second_latency.add(latency);
        }
        self.windows.note(done.sent, class, latency);
        self.gaps.note(done.number, Ended { sent: done.sent, way, address: done.address });
        if way == Way::Closed && self.room(done.sent) {
            self.losses.push(Loss { at: done.sent, class, what: done.what, address: done.address });
        }
        class
    }

    /// What is lost before the first deploy must not take the room of what is lost afterwards.
    fn room(&self, sent: Stamp) -> bool {
        let before = self.windows.is_before(sent);
        self.losses.iter().filter(|loss| self.windows.is_before(loss.at) == before).count() < KEPT
    }

    /// A request could not be sent by this machine.
    pub(super) fn unsent(&mut self, number: u64, due: Stamp, why: &str) {
        self.not_sent += 1;
        self.trouble(Trouble::Unsent, || {
            format!("this machine could not send a request ({why}); such requests count as given up by the client")
        });
        let outcome = Outcome::Stopped;
        self.note(Done { number, due, sent: due, ended: due, outcome, what: why.to_owned(), address: None });
    }

    /// Something that a person must be told, once.
    pub(super) fn trouble(&mut self, trouble: Trouble, what: impl FnOnce() -> String) {
        if let Entry::Vacant(room) = self.troubles.entry(trouble) {
            room.insert(what());
            self.untold.push(trouble);
        }
    }

    /// What is to be told and was not yet.
    pub(super) fn tell(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold).iter().filter_map(|trouble| self.troubles.get(trouble).cloned()).collect()
    }

    /// Why it is no use to go on: nothing is answered, and a reason that time does not mend is known.
    pub(super) fn hopeless(&self) -> Option<&str> {
        let refused = self.requests.served + self.requests.app_errors + self.requests.drain_signals == 0;
        self.troubles.get(&Trouble::NoHttp2).filter(|_| refused).map(String::as_str)
    }

    /// Takes what ended since this was asked last.
    pub(super) fn second(&mut self, sent: u64) -> Second {
        let requests = std::mem::take(&mut self.second);
        let second = Second {
            requests,
            lost: requests.lost(),
            p99_seconds: self.second_latency.share(0.99),
            late_p99_seconds: self.second_late.share(0.99),
            outstanding: sent.saturating_sub(self.requests.total),
            deploy: self.windows.deploy(),
        };
        self.second_latency.clear();
        self.second_late.clear();
        second
    }

    pub(super) fn begin(&mut self, at: Stamp, label: Option<String>) -> bool {
        self.windows.begin(at, label)
    }

    pub(super) fn end(&mut self, at: Stamp) -> bool {
        self.windows.end(at)
    }

    pub(super) fn last_sent(&self) -> Stamp {
        self.last_sent
    }

    pub(super) fn requests(&self) -> Requests {
        self.requests
    }

    pub(super) fn before(&self) -> Requests {
        self.windows.before()
    }

    /// The first hundred losses.
    pub(super) fn losses(&self) -> &[Loss] {
        &self.losses[..self.losses.len().min(KEPT)]
    }

    /// The first hundred losses since the first deploy began; all of them where none did.
    pub(super) fn losses_since(&self) -> Vec<Loss> {
        self.losses.iter().filter(|loss| !self.windows.is_before(loss.at)).cloned().collect()
    }

    /// Whether a request that was sent then belongs to the time before the first deploy.
    pub(super) fn is_before(&self, sent: Stamp) -> bool {
        self.windows.is_before(sent)
    }

    pub(super) fn latency(&self) -> Latency {
        self.latency.latency()
    }

    pub(super) fn punctuality(&self) -> Punctuality {
        self.late.punctuality(self.late_requests, self.not_sent)
    }

    pub(super) fn gaps(&self) -> (Vec<Gap>, u64) {
        (self.gaps.list(), self.gaps.total())
    }

    pub(super) fn windows(&self, now: Stamp) -> Vec<Window> {
        self.windows.list(now)
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.troubles.values().cloned().collect()
    }
}

fn way(class: Class) -> Way {
    match class {
        Class::Served | Class::AppError | Class::DrainSignal => Way::Open,
        Class::Nowhere | Class::CutShort => Way::Closed,
        Class::ClientGone => Way::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::classify::Who;
    use super::*;

    fn at(millis: u64) -> Stamp {
        Stamp::at(Duration::from_millis(millis))
    }

    /// A request every 10 ms that takes 5 ms from when it is due.
    fn done(number: u64, outcome: Outcome) -> Done {
        let (due, what) = (at(10 * number), "as ordered".to_owned());
        Done { number, due, sent: due, ended: due + Duration::from_millis(5), outcome, what, address: None }
    }

    const OK: Outcome = Outcome::Answer { status: 200, who: Who::App, health: false, whole: true };

    #[test]
    fn seconds_add_up_to_the_whole() {
        let mut tally = Tally::new(Stamp::ZERO);
        let mut sum = Requests::default();
        for number in 0..30 {
            let outcome = if number % 7 == 3 { Outcome::NoAnswer } else { OK };
            tally.note(done(number, outcome));
            if number % 4 == 0 {
                let second = tally.second(number + 2);
                assert_eq!(second.outstanding, 1);
                sum.total += second.requests.total;
                sum.nowhere += second.requests.nowhere;
            }
        }
        let rest = tally.second(30).requests;
        assert_eq!((sum.total + rest.total, sum.nowhere + rest.nowhere), (30, 4));
        assert_eq!((tally.requests().total, tally.requests().nowhere, tally.gaps().1), (30, 4, 4));
        assert_eq!(tally.second(30).p99_seconds, None, "a second in which nothing ended");
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due_and_only_where_there_was_an_answer() {
        let mut tally = Tally::new(Stamp::ZERO);
        let late = Done { sent: at(400), ended: at(405), ..done(0, OK) };
        tally.sending(late.due, late.sent);
        tally.note(late);
        tally.note(done(1, Outcome::NoAnswer));
        let latency = tally.latency();
        assert_eq!(latency.requests, 1);
        assert!(latency.max_seconds.is_some_and(|max| (max - 0.405).abs() < 0.001), "{latency:?}");
        assert_eq!(tally.punctuality().late_requests, 1);
        assert!(tally.tell().iter().any(|what| what.contains("400 ms late")), "it is told");
        assert!(tally.tell().is_empty(), "once");
    }

    #[test]
    fn the_noise_before_a_deploy_takes_no_room_from_what_the_deploy_loses() {
        let mut tally = Tally::new(Stamp::ZERO);
        for number in 0..300 {
            tally.note(done(number, Outcome::NoAnswer));
        }
        tally.begin(at(3000), None);
        for number in 300..600 {
            tally.note(done(number, Outcome::NoAnswer));
        }
        assert_eq!((tally.losses().len(), tally.losses()[0].at), (KEPT, at(0)));
        assert_eq!((tally.losses_since().len(), tally.losses_since()[0].at), (KEPT, at(3000)));
        assert_eq!((tally.before().nowhere, tally.requests().nowhere), (300, 600));
    }

    #[test]
    fn what_this_machine_could_not_send_is_no_loss_and_is_told() {
        let mut tally = Tally::new(Stamp::ZERO);
        tally.note(done(0, OK));
        tally.unsent(1, at(10), "too many open files");
        tally.note(done(2, OK));
        assert_eq!((tally.requests().client_gone, tally.requests().lost(), tally.gaps().1), (1, 0, 0));
        assert_eq!(tally.punctuality().not_sent, 1);
        assert_eq!(tally.tell().len(), 1);
    }

    #[test]
    fn it_is_hopeless_only_where_nothing_was_ever_answered() {
        let mut tally = Tally::new(Stamp::ZERO);
        tally.trouble(Trouble::NoHttp2, || "no HTTP/2".into());
        assert_eq!(tally.hopeless(), Some("no HTTP/2"));
        tally.note(done(0, OK));
        assert_eq!(tally.hopeless(), None);
    }
}
