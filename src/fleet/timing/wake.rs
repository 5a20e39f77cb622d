//! The numbers between a request and the pod that answers it, whoever wrote them: a tenant's files, or an HPA, a Caddyfile and a
//! Prometheus configuration of somebody's own. Relations are read off it; a number that nobody told is unknown.

use super::basis::Side;
use crate::fleet::model::Known;
use std::time::Duration;

/// A number, and the keys under which it stands; of several the last that was written down holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Told<T> {
    /// How much.
    pub value: Known<T>,
    /// Where.
    pub keys: Vec<String>,
}

impl<T> Told<T> {
    /// A number that stands under a key.
    pub fn new(value: T, key: impl Into<String>) -> Self {
        Self { value: Known::Known(value), keys: vec![key.into()] }
    }

    /// A number that a tenant says, or else what all share.
    pub fn of_two(value: T, shared: impl Into<String>, own: impl Into<String>) -> Self {
        Self { value: Known::Known(value), keys: vec![shared.into(), own.into()] }
    }

    /// A number that nobody told.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self { value: Known::Unknown(why.into()), keys: Vec::new() }
    }
}

impl Told<Duration> {
    /// In seconds.
    #[must_use]
    pub fn side(&self) -> Side {
        match &self.value {
            Known::Known(time) => Side::Known(time.as_secs_f64()),
            Known::Unknown(why) => Side::Unknown(why.clone()),
        }
    }
}

impl Told<f64> {
    /// As it is.
    #[must_use]
    pub fn side(&self) -> Side {
        match &self.value {
            Known::Known(value) => Side::Known(*value),
            Known::Unknown(why) => Side::Unknown(why.clone()),
        }
    }
}

/// Somebody who waits for the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiter {
    /// Who, as one says it: `your balancer`.
    pub who: &'static str,
    /// How long.
    pub waits: Told<Duration>,
}

/// The part that is the pod's own: what comes before it decides, what comes after it notices.
pub const START: &str = "start";

/// One part of a wake at its longest.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What it is: `scrape`.
    pub name: &'static str,
    /// How long it takes at most.
    pub most: Told<Duration>,
}

/// How a request that waits is seen by the HPA: scraped, evaluated, asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Scraped {
    /// Between two scrapes.
    pub scrape: Told<Duration>,
    /// How long one may take.
    pub timeout: Told<Duration>,
    /// The window of the rate; `None` where no rate is used.
    pub window: Option<Told<Duration>>,
    /// What is taken from the rate, in requests a second.
    pub floor: Option<Told<f64>>,
    /// What probes that are counted make of it.
    pub probes: Told<f64>,
    /// How often the adapter looks which metrics there are.
    pub relist: Told<Duration>,
    /// How long it remembers one that is gone.
    pub max_age: Told<Duration>,
}

/// The HPA, where there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaler {
    /// From one look to the next.
    pub sync: Told<Duration>,
    /// The window of scaling down, which is the time of quiet.
    pub quiet: Told<Duration>,
    /// `maxReplicas`.
    pub most: Told<f64>,
    /// `for` of the alarm that it has lost its metric.
    pub inactive: Told<Duration>,
    /// How long what it asks may be away while it restarts.
    pub restart: Told<Duration>,
    /// How often kube-state-metrics is asked.
    pub observed: Told<Duration>,
}

/// Everything that the relations of one tenant are read off.
#[derive(Debug, Clone, PartialEq)]
pub struct Wake {
    /// Whose.
    pub tenant: String,
    /// How long a request waits.
    pub hold: Told<Duration>,
    /// Who waits in front of that.
    pub waiters: Vec<Waiter>,
    /// What a wake is made of, in its order.
    pub parts: Vec<Part>,
    /// How the HPA learns of it from Prometheus (K1).
    pub scraped: Option<Scraped>,
    /// The HPA.
    pub scaler: Option<Scaler>,
    /// How long nobody may have needed the backend.
    pub quiet: Told<Duration>,
    /// Between two tries of a request that waits.
    pub retry: Told<Duration>,
    /// How long a try waits for a connection.
    pub dial: Told<Duration>,
    /// How long an answer of the name service is used again; `None` where no name is looked up again and again.
    pub refresh: Option<Told<Duration>>,
    /// How long the front keeps an idle connection.
    pub keep_alive: Told<Duration>,
    /// How long a request that waits outlives a new configuration of the front; `None` where it does.
    pub reload: Option<Told<Duration>>,
    /// `for` of the alarm that a wake is stuck.
    pub stuck: Told<Duration>,
    /// How long the HPA is shown a request that was seen and is over.
    pub latch: Option<Told<Duration>>,
}

impl Wake {
    /// The longest wake, in seconds: the sum of its parts.
    #[must_use]
    pub fn longest(&self) -> Side {
        sum(self.parts.iter().map(|part| part.most.side()))
    }

    /// How long a backend is up after its last use at most, in seconds: the quiet window, what the rate or the latch remembers, and
    /// one turn each of whoever looks.
    #[must_use]
    pub fn sleeps_after(&self) -> Option<f64> {
        let window = self.scraped.as_ref().and_then(|scraped| scraped.window.as_ref());
        let first = self.parts.first().filter(|_| self.scraped.is_some()).map(|part| &part.most);
        // What the latch shows is over before the rate is, or after.
        let memory =
            window.into_iter().chain(&self.latch).map(|told| told.side().value()).collect::<Option<Vec<f64>>>()?;
        let memory = memory.into_iter().fold(0.0, f64::max);
        let rest = [&self.quiet].into_iter().chain(first).map(|told| told.side().value()).sum::<Option<f64>>()?;
        Some(memory + rest + self.looks().value()?)
    }

    /// One turn each of whoever looks once a request was seen, until the HPA has decided, in seconds.
    #[must_use]
    pub fn looks(&self) -> Side {
        let seen = usize::from(self.scraped.is_some());
        let parts = self.parts.iter().skip(seen).take_while(|part| part.name != START).map(|part| &part.most);
        // Where the HPA does not wake, it still looks.
        let sync = self.scaler.as_ref().map(|scaler| &scaler.sync);
        let sync = sync.filter(|sync| !self.parts.iter().any(|part| part.most == **sync));
        sum(parts.chain(sync).map(|told: &Told<Duration>| told.side()))
    }

    /// Who of those in front waits the shortest.
    #[must_use]
    pub fn least_patient(&self) -> Option<&Waiter> {
        let known = self.waiters.iter().filter_map(|waiter| Some((waiter.waits.side().value()?, waiter)));
        known.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, waiter)| waiter)
    }
}

fn sum(sides: impl Iterator<Item = Side>) -> Side {
    let sum = sides.into_iter().try_fold(0.0, |sum, side| match side {
        Side::Known(value) => Ok(sum + value),
        Side::Unknown(why) => Err(why),
    });
    match sum {
        // Thousandths, so that a sum of tenths is not more than it is.
        Ok(sum) => Side::Known((sum * 1000.0_f64).round() / 1000.0),
        Err(why) => Side::Unknown(why),
    }
}
