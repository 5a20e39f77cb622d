//! Settings of a tenant drawn from a seed, near the bounds on both sides, as files and as numbers.

use super::hpa::Time;
use super::oracle::Moments;
use handover::config::{Source, tenants_from};
use handover::fleet::model::{Mode, Tenants};

const DEFAULTS: &str = include_str!("../../../tenants/defaults.toml");
const EXAMPLE: &str = include_str!("../../../tenants/example.toml");

/// All in milliseconds.
#[derive(Debug, Clone)]
pub struct Setting {
    pub scrape: Time,
    pub timeout: Time,
    pub evaluate: Time,
    pub window: Time,
    pub sync: Time,
    pub query: Time,
    pub start: Time,
    pub hold: Time,
    pub after: Time,
    pub balancer: Time,
    pub patience: Time,
    pub latch: Time,
    /// `prometheus.latch`.
    pub shown: Time,
    pub probes: Vec<Time>,
    edge: (Time, Time),
    gateway: (Time, Time),
}

impl Setting {
    /// Between two tries.
    pub fn retry(&self, mode: Mode) -> Time {
        if mode == Mode::K1 { self.edge.0 } else { self.gateway.0 }
    }

    /// How long a try waits.
    pub fn dial(&self, mode: Mode) -> Time {
        if mode == Mode::K1 { self.edge.1 } else { self.gateway.1 }
    }
}

/// What was told: scraped every 15 s, no recording rules, a pod that starts in 12 s, one try a second.
pub fn story() -> Setting {
    let second = 1000;
    Setting {
        scrape: 15 * second,
        timeout: second,
        evaluate: 0,
        window: 120 * second,
        sync: 15 * second,
        query: second,
        start: 12 * second,
        hold: 90 * second,
        after: 1800 * second,
        balancer: 60 * second,
        patience: 60 * second,
        latch: 30 * second,
        shown: 30 * second,
        probes: Vec::new(),
        edge: (second, second),
        gateway: (100, second),
    }
}

/// The tenant of the repository.
pub fn example() -> Setting {
    Setting { scrape: 5000, evaluate: 5000, hold: 55_000, ..story() }
}

/// Choices from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            dice.below(2);
        }
        dice
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Any moments at all, and anything from quick to as slow as may be.
    pub fn moments(&mut self, it: &Setting, mode: Mode) -> Moments {
        let question = if mode == Mode::K1 { it.query } else { 1000 };
        Moments {
            scrape: self.between(1, it.scrape),
            evaluate: self.below(it.evaluate.max(1)),
            sync: self.between(1, it.sync),
            retry: self.below(it.retry(mode)),
            slow: self.between(0, it.timeout),
            question: self.between(0, question),
            dial: self.between(0, it.dial(mode)),
        }
    }
}

/// A setting and the tenants' files that say so.
pub fn drawn(seed: u64) -> (Setting, Tenants) {
    let mut dice = Dice::new(seed);
    let mut seconds = |least, most| dice.between(least, most) * 1000;
    let scrape = seconds(1, 15);
    let (hold, balancer) = (seconds(20, 120), seconds(20, 120));
    let mut it = Setting {
        scrape,
        timeout: seconds(1, scrape / 1000),
        evaluate: seconds(1, 15),
        window: seconds(10, 180),
        sync: [10_000, 15_000, 30_000][(seconds(0, 2) / 1000) as usize],
        query: seconds(1, 2),
        start: seconds(1, 60),
        hold,
        after: seconds(12, 100) * if seconds(0, 3) == 0 { 60 } else { 10 },
        balancer,
        patience: if seconds(0, 1) == 0 { seconds(1, 20) } else { seconds(20, 120) },
        latch: seconds(5, 60),
        shown: seconds(10, 70),
        probes: Vec::new(),
        edge: (seconds(1, 2), seconds(1, 3)),
        gateway: (25 * seconds(1, 4) / 1000, seconds(1, 2)),
    };
    it.probes = (0..dice.below(3)).map(|_| dice.between(5, 90) * 1000).collect();
    // Half of the holds are such that clients outwait them.
    if dice.below(2) == 0 {
        it.hold = it.hold.min(it.balancer.saturating_sub(dice.between(3, 8) * 1000)).max(10_000);
        it.patience = it.patience.max(it.hold + 5000);
    }
    let tenants = read(&it);
    (it, tenants)
}

fn read(it: &Setting) -> Tenants {
    let own = |text: String, key: &str, millis: Time| {
        let old = text.lines().find(|line| line.starts_with(&format!("{key} "))).unwrap_or_else(|| panic!("no {key}"));
        text.replacen(old, &format!("{key} = \"{millis}ms\""), 1)
    };
    let mut shared = DEFAULTS.to_owned();
    for (key, millis) in [
        ("balancer", it.balancer),
        ("patience", it.patience),
        ("retry", it.edge.0),
        ("dial", it.edge.1),
        ("scrape", it.scrape),
        ("timeout", it.timeout),
        ("evaluate", it.evaluate),
        ("window", it.window),
        ("latch", it.shown),
        ("query", it.query),
        ("sync", it.sync),
    ] {
        shared = own(shared, key, millis);
    }
    let gateway = format!(
        "\n[gateway]\ninterval = \"{}ms\"\nconnect = \"{}ms\"\nlatch = \"{}ms\"\n",
        it.gateway.0, it.gateway.1, it.latch
    );
    let mut tenant = EXAMPLE.to_owned();
    for (key, millis) in [("after", it.after), ("hold", it.hold), ("start", it.start)] {
        tenant = own(tenant, key, millis);
    }
    let probes: Vec<String> =
        it.probes.iter().map(|every| format!("{{ path = \"/health\", every = \"{every}ms\" }}")).collect();
    let old = tenant.lines().find(|line| line.starts_with("probes")).expect("probes").to_owned();
    tenant = tenant.replace(&old, &format!("probes = [{}]", probes.join(", ")));
    let sources = [("example".to_owned(), Source::new("example.toml", tenant))];
    tenants_from(&Source::new("defaults.toml", shared + &gateway), &sources).expect("tenants").tenants
}
