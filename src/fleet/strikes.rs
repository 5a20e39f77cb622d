//! When a watchdog may heal: counts failed looks for each service, spaces heals, and stops where healing does not help.
//!
//! Pure: what was seen and the time come in, a verdict goes out. Who looks, and whether anybody may be looked at just now (a lock, a
//! planned absence), is not its business; whoever may not count a look calls [`Strikes::start_again`] instead.

use super::model::{ReleaseId, ServiceName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The numbers of `[watchdog]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Between two looks.
    pub interval: Duration,
    /// So many failures in a row before a heal.
    pub strikes: u32,
    /// So many heals of one service within `window`, then no more.
    pub heals: u32,
    /// For so long a heal is remembered.
    pub window: Duration,
}

impl Rules {
    /// How long a service is left alone after so many heals: as long as its strikes take, and twice as long each time.
    #[must_use]
    pub fn pause(&self, heals: usize) -> Duration {
        let doublings = u32::try_from(heals.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
        if heals == 0 {
            Duration::ZERO
        } else {
            self.interval.saturating_mul(self.strikes).saturating_mul(1 << doublings)
        }
    }
}

/// What one look saw of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It works.
    Fine,
    /// It was started a moment ago and has time left.
    Starting,
    /// It does not work, and how that showed.
    Failing(String),
    /// Nothing is expected of it now: it sleeps, or it is none that stays up.
    Excused,
}

/// What is known of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Failures in a row.
    pub failures: u32,
    /// How the last one showed.
    #[serde(default)]
    pub why: String,
    /// When it was healed, seconds since the epoch, the latest last.
    #[serde(default)]
    pub heals: Vec<u64>,
    /// Whether healing it was given up.
    #[serde(default)]
    pub given_up: bool,
}

/// The counts of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strikes {
    /// The release that they are about.
    #[serde(default)]
    release: Option<ReleaseId>,
    /// By service.
    #[serde(default)]
    services: BTreeMap<ServiceName, Count>,
}

/// How often the engine had restarted each container when a turn began. Every look of one turn is held against the same counts: a
/// second one that is held against the first takes what crashed a moment ago for what was only started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Restarts {
    before: BTreeMap<String, u32>,
    #[serde(skip)]
    seen: BTreeMap<String, u32>,
}

impl Restarts {
    /// Whether the engine has restarted a container again since the turn before.
    #[must_use]
    pub fn grew(&self, id: &str, restarts: u32) -> bool {
        restarts > self.before.get(id).copied().unwrap_or(0)
    }

    /// What a look counted.
    pub fn see(&mut self, counts: impl IntoIterator<Item = (String, u32)>) {
        self.seen = counts.into_iter().collect();
    }

    /// The turn is over: the next one is held against what its last look counted.
    pub fn turn_ends(&mut self) {
        if !self.seen.is_empty() {
            self.before = std::mem::take(&mut self.seen);
        }
    }
}

/// What a look leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// So many failures of how many.
    Strike(u32),
    /// It is to be healed.
    Heal,
    /// It would be healed, but was a moment ago; again in so many seconds.
    Pause(u64),
    /// It was healed too often: a person is needed. Said once.
    GiveUp,
    /// It works again after failures.
    Recovered,
}

impl Strikes {
    /// What is known of each service that has failures or heals.
    #[must_use]
    pub fn services(&self) -> &BTreeMap<ServiceName, Count> {
        &self.services
    }

    /// Somebody works here on purpose, or nobody could look: no failure so far counts.
    pub fn start_again(&mut self) {
        for count in self.services.values_mut() {
            count.failures = 0;
        }
    }

    /// Counts one look; `now` is in seconds since the epoch, so that a restart of the watchdog forgets nothing.
    pub fn look(
        &mut self,
        rules: &Rules,
        release: &ReleaseId,
        seen: &BTreeMap<ServiceName, Seen>,
        now: u64,
    ) -> BTreeMap<ServiceName, Verdict> {
        if self.release.as_ref() != Some(release) {
            *self = Self { release: Some(release.clone()), services: BTreeMap::new() };
        }
        self.services.retain(|service, _| seen.contains_key(service));
        let mut verdicts = BTreeMap::new();
        for (service, seen) in seen {
            let count = self.services.entry(service.clone()).or_default();
            if let Some(verdict) = count.look(rules, seen, now) {
                verdicts.insert(service.clone(), verdict);
            }
        }
        self.services.retain(|_, count| *count != Count::default());
        verdicts
    }

    /// These were healed just now, whether or not it helped.
    pub fn healed<'a>(&mut self, services: impl IntoIterator<Item = &'a ServiceName>, now: u64) {
        for service in services {
            let count = self.services.entry(service.clone()).or_default();
            count.failures = 0;
            count.given_up = false;
            count.heals.push(now);
        }
    }
}

impl Count {
    fn look(&mut self, rules: &Rules, seen: &Seen, now: u64) -> Option<Verdict> {
        let window = rules.window.as_secs();
        // A clock that was set back has no heals in the future.
        self.heals.retain(|at| now.checked_sub(*at).is_some_and(|ago| ago < window));
        match seen {
            Seen::Starting => None,
            Seen::Excused => {
                self.failures = 0;
                None
            }
            Seen::Fine => {
                let failed = self.failures > 0 || self.given_up;
                self.failures = 0;
                self.given_up = false;
                self.why.clear();
                failed.then_some(Verdict::Recovered)
            }
            Seen::Failing(why) => {
                self.failures = self.failures.saturating_add(1);
                self.why.clone_from(why);
                Some(self.judged(rules, now)).filter(|verdict| *verdict != Verdict::GiveUp || !self.gave_up_before())
            }
        }
    }

    fn judged(&self, rules: &Rules, now: u64) -> Verdict {
        if self.failures < rules.strikes {
            return Verdict::Strike(self.failures);
        }
        if self.heals.len() >= rules.heals as usize {
            return Verdict::GiveUp;
        }
        let pause = rules.pause(self.heals.len()).as_secs();
        match self.heals.last().map(|at| now.saturating_sub(*at)) {
            Some(ago) if ago < pause => Verdict::Pause(pause - ago),
            _ => Verdict::Heal,
        }
    }

    /// Remembers that it was said.
    fn gave_up_before(&mut self) -> bool {
        std::mem::replace(&mut self.given_up, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules =
        Rules { interval: Duration::from_secs(60), strikes: 4, heals: 3, window: Duration::from_secs(3600) };

    fn api() -> ServiceName {
        ServiceName::new("api")
    }

    fn failing() -> Seen {
        Seen::Failing("no answer".to_owned())
    }

    fn look(strikes: &mut Strikes, seen: Seen, now: u64) -> Option<Verdict> {
        strikes.look(&RULES, &ReleaseId::new("one"), &BTreeMap::from([(api(), seen)]), now).remove(&api())
    }

    fn three_failures(strikes: &mut Strikes) {
        for n in 1..=3 {
            assert!(matches!(look(strikes, failing(), n * 60), Some(Verdict::Strike(_))));
        }
    }

    #[test]
    fn four_failures_in_a_row_heal_and_three_and_a_success_do_not() {
        let mut strikes = Strikes::default();
        for n in 1..=3 {
            assert_eq!(look(&mut strikes, failing(), n * 60), Some(Verdict::Strike(u32::try_from(n).expect("few"))));
        }
        assert_eq!(look(&mut strikes, Seen::Fine, 240), Some(Verdict::Recovered));
        for n in 5..=7 {
            assert_eq!(
                look(&mut strikes, failing(), n * 60),
                Some(Verdict::Strike(u32::try_from(n - 4).expect("few")))
            );
        }
        assert_eq!(look(&mut strikes, failing(), 480), Some(Verdict::Heal));
    }

    #[test]
    fn a_held_lock_a_new_release_and_a_heal_each_start_again() {
        let three = || {
            let mut strikes = Strikes::default();
            three_failures(&mut strikes);
            strikes
        };
        let mut strikes = three();
        strikes.start_again();
        assert_eq!(look(&mut strikes, failing(), 240), Some(Verdict::Strike(1)));
        let mut strikes = three();
        let seen = BTreeMap::from([(api(), failing())]);
        let verdicts = strikes.look(&RULES, &ReleaseId::new("two"), &seen, 240);
        assert_eq!(verdicts.get(&api()), Some(&Verdict::Strike(1)));
        let mut strikes = three();
        strikes.healed([&api()], 200);
        assert_eq!(look(&mut strikes, failing(), 240), Some(Verdict::Strike(1)));
    }

    #[test]
    fn what_is_starting_neither_counts_nor_clears() {
        let mut strikes = Strikes::default();
        three_failures(&mut strikes);
        assert_eq!(look(&mut strikes, Seen::Starting, 200), None);
        assert_eq!(look(&mut strikes, failing(), 240), Some(Verdict::Heal));
        assert_eq!(look(&mut strikes, Seen::Excused, 300), None);
        assert_eq!(look(&mut strikes, failing(), 360), Some(Verdict::Strike(1)));
    }

    #[test]
    fn heals_grow_apart_and_end_at_the_ceiling_which_is_said_once() {
        let mut strikes = Strikes::default();
        let mut heals = Vec::new();
        let mut gave_up = 0;
        for minute in 0..60 {
            match look(&mut strikes, failing(), minute * 60) {
                Some(Verdict::Heal) => {
                    heals.push(minute);
                    strikes.healed([&api()], minute * 60);
                }
                Some(Verdict::GiveUp) => gave_up += 1,
                _ => {}
            }
        }
        assert_eq!(heals, [3, 7, 15]);
        assert_eq!(gave_up, 1);
        assert!(strikes.services()[&api()].given_up);
        // The first heal is forgotten by now: once more, and then it is said once more.
        assert_eq!(look(&mut strikes, failing(), 4000), Some(Verdict::Heal));
        strikes.healed([&api()], 4000);
        let again: Vec<_> = (1..8).filter_map(|n| look(&mut strikes, failing(), 4000 + n)).collect();
        assert_eq!(again.iter().filter(|verdict| **verdict == Verdict::GiveUp).count(), 1, "{again:?}");
        assert_eq!(look(&mut strikes, Seen::Fine, 4100), Some(Verdict::Recovered));
        assert!(!strikes.services()[&api()].given_up);
    }

    #[test]
    fn a_second_look_in_one_turn_still_sees_that_a_container_was_restarted() {
        let mut restarts = Restarts::default();
        let mut turn = |counts: [u32; 2]| {
            let grew = counts.map(|count| {
                let grew = restarts.grew("a", count);
                restarts.see([("a".to_owned(), count)]);
                grew
            });
            restarts.turn_ends();
            // As it is written and read between two turns.
            restarts = serde_json::from_value(serde_json::json!(restarts)).expect("read");
            grew
        };
        assert_eq!(turn([0, 0]), [false, false]);
        assert_eq!(turn([1, 1]), [true, true]);
        assert_eq!(turn([1, 2]), [false, true]);
        assert_eq!(turn([2, 2]), [false, false]);
    }

    #[test]
    fn a_restart_of_the_watchdog_forgets_nothing() {
        let mut strikes = Strikes::default();
        three_failures(&mut strikes);
        let text = serde_json::to_string(&strikes).expect("written");
        let mut again: Strikes = serde_json::from_str(&text).expect("read");
        assert_eq!(again, strikes);
        assert_eq!(look(&mut again, failing(), 240), Some(Verdict::Heal));
    }

    proptest! {
        /// Whatever is seen: no heal without `strikes` failures since the last success, start, heal or excuse; never more heals in a
        /// window than the ceiling.
        #[test]
        fn no_heal_comes_early_or_too_often(looks in proptest::collection::vec(0u8..8, 1..200)) {
            let mut strikes = Strikes::default();
            let (mut row, mut heals): (u32, Vec<u64>) = (0, Vec::new());
            for (n, what) in looks.iter().enumerate() {
                let now = 60 * n as u64;
                let seen = match what { 0 => Seen::Fine, 1 => Seen::Starting, 2 => Seen::Excused, _ => failing() };
                match seen { Seen::Failing(_) => row += 1, Seen::Starting => {}, _ => row = 0 }
                if look(&mut strikes, seen, now) == Some(Verdict::Heal) {
                    prop_assert!(row >= RULES.strikes);
                    strikes.healed([&api()], now);
                    row = 0;
                    heals.push(now);
                    let within = heals.iter().filter(|at| now - **at < 3600).count();
                    prop_assert!(within <= 3, "{heals:?}");
                }
            }
        }
    }
}
