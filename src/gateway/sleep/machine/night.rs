//! A night in virtual time: three tenants, their monitoring, a balancer in three zones, and one person in the morning.

use super::super::diary::{Entry, FORMAT, What};
use super::super::report::Report;
use super::*;
use crate::fleet::model::{HealthPath, Traits};

const S: Duration = Duration::from_secs(1);
const MIB: u64 = 310;

/// A request as the gateway sorts it: health checks and probes never come to the machine (`own`).
struct Night {
    health: HealthPath,
    probe: Traits,
    answered_by_gateway: u64,
}

impl Night {
    fn is_use(&mut self, path: &str, agent: &str) -> bool {
        let client = "203.0.113.9".parse().expect("an address");
        let own = path == self.health.path || self.probe.meet(path, agent.as_bytes(), client);
        self.answered_by_gateway += u64::from(own);
        !own
    }
}

struct Tenant {
    sleep: Sleep,
    log: Vec<Entry>,
    stop: Option<(u64, Instant)>,
    start: Option<(u64, Instant)>,
}

impl Tenant {
    /// What the keeper and the engine do: a stop takes 2 s, a start 12 s.
    fn turn(&mut self, now: Instant, clock: f64) {
        self.sleep.tick(now);
        if let Some((turn, _)) = self.stop.take_if(|(_, at)| now >= *at) {
            self.sleep.stopped(turn, Stopped::Done, now);
        }
        if let Some((turn, _)) = self.start.take_if(|(_, at)| now >= *at) {
            self.sleep.started(turn, Ok(()), now);
            self.sleep.accepted(now);
        }
        for effect in self.sleep.effects() {
            let mut note = |what| self.log.push(Entry { format: FORMAT, at: clock, what });
            match effect {
                Effect::Stop { turn, .. } => {
                    assert!(self.sleep.commit(turn, now));
                    self.stop = Some((turn, now + S * 2));
                }
                Effect::Start { turn, .. } => {
                    self.sleep.calls(turn, now);
                    self.start = Some((turn, now + S * 12));
                }
                Effect::Slept => note(What::Slept { memory_bytes: MIB * 1_048_576, killed: Vec::new() }),
                Effect::Woke(parts) => note(What::Woke {
                    decision: parts.decision.as_secs_f64(),
                    container: parts.container.as_secs_f64(),
                    accept: parts.accept.as_secs_f64(),
                    answer: parts.answer.map(|part| part.as_secs_f64()),
                }),
                Effect::Look | Effect::Clear => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn three_tenants_sleep_all_night_and_one_is_woken_once() {
    let began = Instant::now();
    let rules = Rules {
        after: S * 1800,
        quiet: S * 600,
        start: S * 40,
        awake: S * 60,
        tries: 3,
        again: S * 300,
        patience: S * 25,
    };
    let mut tenants: Vec<Tenant> = (0..3)
        .map(|_| {
            let mut sleep = Sleep::new(rules.clone(), Written::Nothing, began);
            sleep.saw(0, Some(Seen { running: Running::All, planned: false }), 0, began);
            Tenant { sleep, log: Vec::new(), stop: None, start: None }
        })
        .collect();
    let mut night = Night {
        health: HealthPath { path: "/health".to_owned(), group: None, drain_file: None },
        probe: Traits { user_agent: Some("monitor".to_owned()), ..Traits::default() },
        answered_by_gateway: 0,
    };
    // From 18:00 to 08:20; the person comes at 07:58 and her page takes a second once it is there.
    let (person, end) = (14 * 3600 - 120, 14 * 3600 + 1200);
    let mut waits = false;
    for second in 0..=end {
        let now = began + S * second;
        for (number, tenant) in tenants.iter_mut().enumerate() {
            let mut requests: Vec<(&str, &str)> = Vec::new();
            if second % 60 == 0 {
                requests.push(("/", "monitor/1.0"));
            }
            if second % 5 == 0 {
                requests.extend([("/health", "ELB-HealthChecker/2.0"); 3]);
            }
            if number == 1 && second == person {
                requests.push(("/typo3", "Mozilla/5.0"));
            }
            for (path, agent) in requests {
                if night.is_use(path, agent) {
                    assert_eq!(tenant.sleep.enter(now), Entered::Wait);
                    waits = true;
                }
            }
            tenant.turn(now, f64::from(second));
            if number == 1 && waits && tenant.sleep.passes() {
                waits = false;
                tenant.sleep.answered(now);
                tenant.sleep.left(true, now);
                tenant.turn(now, f64::from(second));
            }
            let awake = !matches!(tenant.sleep.state(), State::Asleep);
            let expected = second < 1802 || (number == 1 && second >= person);
            assert_eq!(awake, expected, "tenant {number} after {second}s: {:?}", tenant.sleep.state());
        }
    }
    assert!(night.answered_by_gateway > 3 * 3 * u64::from(end) / 5);
    let hour = 3600.0;
    for (number, tenant) in tenants.iter().enumerate() {
        let report = Report::of(&tenant.log, f64::from(end), S * 60, 1);
        let asleep = if number == 1 { f64::from(person - 1802) } else { f64::from(end - 1802) } / hour;
        assert!((report.hours_asleep - asleep).abs() < 0.001, "{} and not {asleep}", report.hours_asleep);
        assert!((report.mib_hours - asleep * 310.0).abs() < 0.5, "{}", report.mib_hours);
        let wakes: Vec<f64> = report.wakes.iter().map(|wake| wake.seconds).collect();
        assert_eq!(wakes, if number == 1 { vec![12.0] } else { vec![] });
    }
}
