//! Every way in which a count could prove what is not so, and thousands of drains with nodes that disagree about everything.

use super::*;
use crate::fleet::health::{Check, Checker, Verdict};
use crate::fleet::model::{HealthSettings, Network, TargetReason};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

const NODE: &str = "ELB-HealthChecker/2.0";

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 1, last])
}

fn settings() -> HealthSettings {
    HealthSettings { interval: at(5.0), timeout: at(2.0), unhealthy: 2, healthy: 2 }
}

fn rule() -> Rule {
    Rule { path: "/health".into(), port: None, settings: settings(), from: Vec::new(), agent: Some("ELB-".into()) }
}

fn asked(address: IpAddr) -> Asked<'static> {
    Asked { address, origin: Origin::Machine, path: "/health", port: 8000, agent: NODE }
}

/// Two nodes that asked for a minute, then `out` times with 503; the last answer was just given.
fn drained(out: u32) -> (Counts, Duration) {
    let mut counts = Counts::default();
    let mut now = Duration::ZERO;
    for check in 0..12 + out {
        for node in [1, 2] {
            now = at(f64::from(check) * 5.0 + f64::from(node));
            counts.told(asked(ip(node)), if check < 12 { Told::In } else { Told::Out }, now);
        }
    }
    (counts, now)
}

fn machine(_: IpAddr) -> Origin {
    Origin::Machine
}

fn judged(counts: &Counts, now: Duration, rule: &Rule, reading: Reading) -> Judged {
    judge(&counts.seen(now, machine), Duration::ZERO, rule, Told::Out, reading, &BTreeSet::new())
}

fn proves(judged: &Judged) -> bool {
    matches!(judged, Judged::Proved(_))
}

#[test]
fn every_node_must_have_been_told_so_often_and_one_time_more_while_nobody_knows_how_thresholds_are_read() {
    let (counts, now) = drained(2);
    assert_eq!(judged(&counts, now, &rule(), Reading::Exact), Judged::Proved([ip(1), ip(2)].into()));
    assert_eq!(
        judged(&counts, now, &rule(), Reading::Unknown),
        Judged::NotYet("node 10.0.1.1 was told 2 of 3 times".into())
    );
    assert!(!proves(&judged(&counts, now, &rule(), Reading::OneMore)));
    let (counts, now) = drained(3);
    assert!(proves(&judged(&counts, now, &rule(), Reading::OneMore)));
}

#[test]
fn a_node_that_comes_during_the_drain_starts_its_own_count() {
    let (mut counts, now) = drained(2);
    counts.told(asked(ip(3)), Told::Out, now);
    assert_eq!(
        judged(&counts, now, &rule(), Reading::Exact),
        Judged::NotYet("node 10.0.1.3 was told 1 of 2 times".into())
    );
}

#[test]
fn a_node_that_fell_silent_is_no_proof_until_it_is_forgotten() {
    let (mut counts, now) = drained(2);
    for check in 1..12u32 {
        let later = now + at(5.0) * check;
        counts.told(asked(ip(1)), Told::Out, later);
        let judged = judged(&counts, later, &rule(), Reading::Exact);
        let age = at(5.0) * check;
        let expected = age <= rule().window() || age > at(50.0);
        assert_eq!(proves(&judged), expected, "{age:?}: {judged:?}");
    }
}

#[test]
fn a_node_that_let_go_is_missed_on_the_way_back() {
    let mut counts = Counts::default();
    for check in 0..4u32 {
        counts.told(asked(ip(1)), Told::In, at(5.0) * check);
    }
    let seen = counts.seen(at(15.0), machine);
    let back = |known: &[u8]| {
        let known = known.iter().map(|last| ip(*last)).collect();
        judge(&seen, Duration::ZERO, &rule(), Told::In, Reading::Exact, &known)
    };
    assert!(proves(&back(&[1])));
    assert!(matches!(back(&[1, 2]), Judged::NotYet(why) if why.contains("10.0.1.2")));
}

#[test]
fn a_gateway_that_has_just_begun_to_count_does_not_know_everybody() {
    let mut counts = Counts::default();
    for check in 0..2u32 {
        counts.told(asked(ip(1)), Told::In, at(4.0) * check);
    }
    let seen = counts.seen(at(7.0), machine);
    let judged = judge(&seen, Duration::ZERO, &rule(), Told::In, Reading::Exact, &BTreeSet::new());
    assert!(matches!(&judged, Judged::NotYet(why) if why.contains("7s")), "{judged:?}");
}

/// False proofs: addresses that are not what they seem.
#[test]
fn what_hides_nodes_proves_nothing_and_says_what_it_is() {
    let cases: [(&str, Origin, &str); 3] = [
        ("127.0.0.1", Origin::Itself, "the server itself"),
        ("172.18.0.1", Origin::Bridge, "the way out of its own network"),
        ("10.0.9.9", Origin::Proxy, "a trusted proxy"),
    ];
    for (address, origin, what) in cases {
        let (mut counts, now) = drained(3);
        let address: IpAddr = address.parse().expect("an address");
        for check in 0..3u32 {
            let asked = Asked { address, origin, path: "/health", port: 8000, agent: NODE };
            counts.told(asked, Told::Out, now.saturating_sub(at(5.0) * (2 - check)));
        }
        let plain = judged(&counts, now, &rule(), Reading::Exact);
        assert!(matches!(&plain, Judged::Nothing(why) if why.contains(what)), "{plain:?}");
        let from = vec![Network::one(address), Network::parse("10.0.1.0/24").expect("a network")];
        let named = Rule { from, ..rule() };
        assert!(proves(&judged(&counts, now, &named, Reading::Exact)), "named it counts: {address}");
    }
}

#[test]
fn two_nodes_behind_one_address_are_seen_by_how_often_it_asks() {
    let mut counts = Counts::default();
    for check in 0..24u32 {
        let now = at(5.0) * check;
        for shift in [0.0, 1.7] {
            counts.told(asked(ip(1)), if check < 20 { Told::In } else { Told::Out }, now + at(shift));
        }
    }
    let judged = judged(&counts, at(117.0), &rule(), Reading::Exact);
    assert!(matches!(&judged, Judged::Nothing(why) if why.contains("more than one checker")), "{judged:?}");
}

#[test]
fn a_scanner_does_not_count_and_a_monitor_with_the_balancer_s_name_only_delays() {
    let (mut counts, now) = drained(2);
    counts.told(Asked { agent: "curl/8", ..asked(ip(77)) }, Told::Out, now);
    counts.told(Asked { agent: "handover", address: ip(78), ..asked(ip(78)) }, Told::Out, now);
    assert!(proves(&judged(&counts, now, &rule(), Reading::Exact)));
    // Outside of the balancer's networks it is none of its nodes, whatever it calls itself.
    let from = vec![Network::parse("10.0.1.0/24").expect("a network")];
    let mut outside = asked(ip(0));
    outside.address = IpAddr::from([192, 0, 2, 7]);
    counts.told(outside, Told::Out, now);
    assert!(proves(&judged(&counts, now, &Rule { from: from.clone(), ..rule() }, Reading::Exact)));
    assert!(!proves(&judged(&counts, now, &rule(), Reading::Exact)), "without networks it may be a node");
    // One that sends requests too is a node that nobody named.
    counts.real(outside.address, now + at(1.0));
    let judged = judged(&counts, now + at(1.0), &Rule { from, ..rule() }, Reading::Exact);
    assert!(matches!(&judged, Judged::Nothing(why) if why.contains("drain.nodes.from")), "{judged:?}");
}

#[test]
fn another_group_s_checks_are_told_apart_by_query_or_port() {
    let (mut counts, now) = drained(2);
    counts.told(Asked { path: "/health?g=admin", ..asked(ip(1)) }, Told::In, now);
    counts.told(Asked { port: 9000, ..asked(ip(2)) }, Told::In, now);
    assert!(!proves(&judged(&counts, now, &rule(), Reading::Exact)), "the port is not known here");
    assert!(proves(&judged(&counts, now, &Rule { port: Some(8000), ..rule() }, Reading::Exact)));
}

#[test]
fn more_checkers_than_can_be_told_apart_prove_nothing() {
    let (mut counts, now) = drained(2);
    for number in 0..=u8::MAX {
        counts.told(asked(IpAddr::from([10, 9, 9, number])), Told::Out, now);
    }
    assert!(matches!(judged(&counts, now, &rule(), Reading::Exact), Judged::Nothing(_)));
    // Those that are gone for long make room for others.
    let mut counts = Counts::default();
    for number in 0..=199u8 {
        counts.told(asked(IpAddr::from([10, 9, 9, number])), Told::Out, Duration::ZERO);
    }
    counts.told(asked(ip(1)), Told::Out, at(601.0));
    assert!(!counts.seen(at(601.0), machine).more);
}

/// The reading of thresholds is learnt from real requests between the threshold and one check more.
#[test]
fn requests_after_the_threshold_mean_one_more_and_too_few_to_tell_mean_it_too() {
    let run = |before: u32, after: u32| {
        let mut counts = Counts::default();
        let mut now = Duration::ZERO;
        for check in 0..15u32 {
            now = at(5.0) * check;
            counts.told(asked(ip(1)), if check < 12 { Told::In } else { Told::Out }, now);
            let requests = if check < 13 { before } else { after };
            (0..requests).for_each(|_| counts.real(ip(1), now + at(2.0)));
        }
        let seen = counts.seen(now, machine);
        (read(&seen, &rule(), Reading::Unknown), read(&seen, &rule(), Reading::Exact))
    };
    assert_eq!(run(30, 0), (Some(Reading::Exact), None));
    assert_eq!(run(30, 1), (Some(Reading::OneMore), Some(Reading::OneMore)));
    assert_eq!(run(2, 0), (Some(Reading::OneMore), None));
    let (mut counts, now) = drained(2);
    assert_eq!(read(&counts.seen(now, machine), &rule(), Reading::Unknown), None, "one more check is waited for");
    // Two busy nodes tell within half an interval.
    let (mut busy, mut now) = (Counts::default(), Duration::ZERO);
    for check in 0..14u32 {
        now = at(5.0) * check;
        for node in [1, 2] {
            busy.told(asked(ip(node)), if check < 12 { Told::In } else { Told::Out }, now);
            (0..20 * u32::from(check < 12)).for_each(|_| busy.real(ip(node), now + at(2.0)));
        }
    }
    assert_eq!(read(&busy.seen(now + at(1.0), machine), &rule(), Reading::Unknown), None);
    assert_eq!(read(&busy.seen(now + at(2.5), machine), &rule(), Reading::Unknown), Some(Reading::Exact));
    // What was on its way when the answer was given says nothing.
    counts.real(ip(1), at(66.3));
    assert_eq!(read(&counts.seen(now, machine), &rule(), Reading::Exact), None);
}

#[test]
fn a_request_after_the_last_answer_is_no_proof_that_a_node_let_go() {
    let (mut counts, now) = drained(3);
    counts.real(ip(2), now + at(1.0));
    let judged = judged(&counts, now + at(1.0), &rule(), Reading::OneMore);
    assert_eq!(judged, Judged::NotYet("requests still come from node 10.0.1.2".into()));
}

#[test]
fn a_count_survives_its_own_json() {
    let (mut counts, now) = drained(2);
    counts.real(ip(1), now + at(1.0));
    let seen = counts.seen(now + at(1.0), machine);
    let text = serde_json::to_string(&seen).expect("JSON");
    assert_eq!(serde_json::from_str::<NodesSeen>(&text).expect("it was ours"), seen);
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        f64::from(u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }

    fn once_in(&mut self, n: u32) -> bool {
        self.share() < 1.0 / f64::from(n)
    }

    fn within(&mut self, least: f64, most: f64) -> Duration {
        at(least + (most - least) * self.share())
    }
}

/// One node with a mind of its own.
struct Node {
    address: IpAddr,
    checker: Checker,
    next: Duration,
    /// An answer that is on its way: when it arrives, and what it says.
    pending: Option<(Duration, bool)>,
    silent: (Duration, Duration),
    gone: Duration,
    slow: bool,
}

impl Node {
    fn may_pick(&self, now: Duration) -> bool {
        now < self.gone && self.checker.verdict() == Verdict::Healthy
    }
}

/// What a drain of one seed looks like.
struct Drain {
    dice: Dice,
    counts: Counts,
    nodes: Vec<Node>,
    settings: HealthSettings,
    flip: Duration,
    /// A balancer that wants one failure more than it says.
    exceeds: u32,
    rate: f64,
}

const TICK: f64 = 0.25;

impl Drain {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let exceeds = u32::from(dice.once_in(2));
        let settings = settings();
        let count = 1 + (dice.share() * 5.0) as u8;
        let flip = dice.within(60.0, 65.0);
        let nodes = (0..count).map(|number| Self::node(&mut dice, number, &settings, exceeds, flip)).collect();
        let rate = if dice.once_in(3) { 0.2 } else { 8.0 };
        Self { dice, counts: Counts::default(), nodes, settings, flip, exceeds, rate }
    }

    fn node(dice: &mut Dice, number: u8, settings: &HealthSettings, exceeds: u32, flip: Duration) -> Node {
        let joins = if number > 0 && dice.once_in(5) {
            flip.saturating_sub(at(5.0)) + dice.within(0.0, 25.0)
        } else {
            Duration::ZERO
        };
        let silent = if dice.once_in(4) { flip + dice.within(0.0, 10.0) } else { Duration::MAX };
        // Longer than that nobody waits for a node: then it is the balancer's word and the settle that decide.
        let silence = dice.within(5.0, 38.0);
        let gone = if dice.once_in(6) { flip + dice.within(0.0, 20.0) } else { Duration::MAX };
        Node {
            address: ip(number + 1),
            checker: Checker::new(settings.unhealthy + exceeds, settings.healthy + exceeds),
            next: joins + dice.within(0.0, 5.0),
            pending: None,
            silent: (silent, silent.saturating_add(silence)),
            gone,
            slow: dice.once_in(4),
        }
    }

    fn tick(&mut self, now: Duration) {
        let drained = now >= self.flip;
        for at_node in 0..self.nodes.len() {
            let node = &mut self.nodes[at_node];
            if let Some((_, passed)) = node.pending.filter(|(arrives, _)| *arrives <= now) {
                node.pending = None;
                node.checker.record(if passed { Check::Pass } else { Check::Fail(TargetReason::ResponseCodeMismatch) });
            }
            if now >= node.gone {
                continue;
            }
            let silent = now >= node.silent.0 && now < node.silent.1;
            if node.next <= now {
                let jitter = 1.0 + (self.dice.share() - 0.5) * 0.2;
                node.next += self.settings.interval.mul_f64(jitter);
                if !silent {
                    // The answer is in the node's hands a moment later: what is slow is the network before it asks.
                    let travel = if node.slow { at(TICK) } else { Duration::ZERO };
                    node.pending = Some((now + travel, !drained));
                    self.counts.told(asked(node.address), if drained { Told::Out } else { Told::In }, now);
                }
            }
            if node.may_pick(now) && self.dice.share() < self.rate * TICK {
                self.counts.real(node.address, now);
            }
        }
    }

    /// The first moment at which a proof was given while a node could still pick the server.
    fn violation(mut self, proof: impl Fn(&NodesSeen, Reading) -> bool) -> (Option<Duration>, bool) {
        let mut now = Duration::ZERO;
        let mut reading = Reading::Unknown;
        while now < self.flip + at(60.0) {
            now += at(TICK);
            self.tick(now);
            if now < self.flip {
                continue;
            }
            let seen = self.counts.seen(now, machine);
            reading = read(&seen, &rule(), reading).unwrap_or(reading);
            // The verdict that an answer brings about takes a moment; so does the guard before the stop.
            if proof(&seen, reading) {
                let later = now + at(TICK);
                self.tick(later);
                let wrong = self.nodes.iter().any(|node| node.may_pick(later));
                return (wrong.then_some(later), true);
            }
        }
        (None, false)
    }
}

const SEEDS: u64 = 10_000;

#[test]
fn no_node_can_pick_a_server_that_is_proved_out_whatever_its_phase_jitter_silence_and_reading() {
    let (mut proved, mut exact) = (0, 0);
    for seed in 0..SEEDS {
        let drain = Drain::new(seed);
        exact += u64::from(drain.exceeds == 0);
        let (violation, done) = drain.violation(|seen, reading| {
            proves(&judge(seen, Duration::ZERO, &rule(), Told::Out, reading, &BTreeSet::new()))
        });
        assert_eq!(violation, None, "seed {seed}");
        proved += u64::from(done);
    }
    assert!(proved > SEEDS / 2, "only {proved} of {SEEDS} drains were proved at all");
    assert!(exact > SEEDS / 4 && exact < SEEDS * 3 / 4);
}

#[test]
fn any_answers_in_a_row_instead_of_every_node_s_are_found_out() {
    let any = |seen: &NodesSeen, _| seen.nodes.iter().any(|n| n.told == Told::Out && n.row >= settings().unhealthy);
    let found = (0..SEEDS).filter(|seed| Drain::new(*seed).violation(any).0.is_some()).count();
    assert!(found > 100, "{found}");
    let blind = |seen: &NodesSeen, _| {
        proves(&judge(seen, Duration::ZERO, &rule(), Told::Out, Reading::Exact, &BTreeSet::new()))
    };
    let found = (0..SEEDS).filter(|seed| Drain::new(*seed).violation(blind).0.is_some()).count();
    assert!(found > 0, "a threshold that is read otherwise was never missed");
}

/// Docs say that no wait pays: the last node notices at the last check before the flip and so many intervals after it.
#[test]
fn no_later_flip_is_proved_sooner() {
    let mut dice = Dice(7);
    for _ in 0..2000 {
        let count = 1 + (dice.share() * 6.0) as u32;
        let phases: Vec<f64> = (0..count).map(|_| dice.share() * 5.0).collect();
        let proved = |flip: f64| {
            let last = |phase: &f64| ((flip - phase) / 5.0).ceil().max(0.0) * 5.0 + phase + 5.0;
            phases.iter().map(last).fold(0.0, f64::max)
        };
        let flip = dice.share() * 20.0;
        let later = flip + dice.share() * 10.0;
        assert!(proved(flip) <= proved(later) + 1e-9, "{phases:?}: {flip} {later}");
    }
}
