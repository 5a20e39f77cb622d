//! Settings drawn from seeds, in virtual time: what `sleep check` says of them against what becomes of requests, in each mode.
//!
//! Every loop in the path runs at its own moments. Worst moments are chosen, not waited for: each look has just happened when what it looks
//! for appears, so that a bound which is said to be one is reached to the millisecond.

use super::hpa::{Active, Hpa, Metric, Spec, Time, Up, Workload};
use super::settings::{Dice, Setting, drawn};
use handover::fleet::model::Mode;
use handover::fleet::timing::{Finding, Side, Told, Wake, of_wake};
use handover::kubernetes::wakes;
use std::collections::VecDeque;

const SETTINGS: u64 = 2000;
/// An answer after the backend is back.
const ANSWER: Time = 5000;
/// One call, one question: as long as they may take.
const CALL: Time = 1000;

/// When each loop has its first turn at or after 0, where the request comes.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    pub scrape: Time,
    pub evaluate: Time,
    pub sync: Time,
    pub retry: Time,
    /// How long a scrape, a question, a call and a dial take.
    pub slow: Time,
    pub question: Time,
    pub dial: Time,
}

impl Moments {
    /// Each look has just happened.
    fn worst(it: &Setting, mode: Mode) -> Self {
        let (slow, question, dial) = (it.timeout, if mode == Mode::K1 { it.query } else { CALL }, it.dial(mode));
        let decided = match mode {
            Mode::K1 => it.scrape + slow + it.evaluate + it.sync + question,
            Mode::K2 => it.sync + question,
            Mode::K2Plus | Mode::K3 => question,
        };
        let seen = it.scrape + slow;
        Self {
            scrape: 0,
            evaluate: seen % it.evaluate,
            sync: if mode == Mode::K1 { (seen + it.evaluate) % it.sync } else { 0 },
            retry: (decided + it.start) % it.retry(mode),
            slow,
            question,
            dial,
        }
    }
}

/// How long the request that comes at 0 waits until it is forwarded; `None` where that never happens. At one moment whoever looks comes
/// before what he looks for. `shown` is the latch of the recorded metric, where it has one.
pub fn waits(
    it: &Setting,
    mode: Mode,
    at: &Moments,
    spec: &Spec,
    present_until: Time,
    shown: Option<Time>,
) -> Option<Time> {
    let mut workload = Workload::default();
    let mut hpa = asleep(spec);
    let horizon = 1_000_000;
    let decided = match mode {
        Mode::K2Plus | Mode::K3 => at.question,
        Mode::K2 => {
            let mut sync = after(at.sync, it.sync);
            loop {
                let value = i64::from(sync <= present_until) * 1000;
                hpa.sync(sync + at.question, &mut workload, Some(value));
                if workload.replicas > 0 {
                    break sync + at.question;
                }
                sync += it.sync;
                if sync > horizon {
                    return None;
                }
            }
        }
        Mode::K1 => {
            let raw = it.evaluate == 0;
            let first = if raw { Time::MAX } else { at.evaluate };
            let (mut scrape, mut evaluate, mut sync) = (after(at.scrape, it.scrape), first, at.sync);
            let (mut seen, mut recorded): (VecDeque<(Time, i64)>, i64) = (VecDeque::new(), 0);
            let mut samples: Vec<(Time, i64)> = Vec::new();
            loop {
                let visible = seen.front().map_or(Time::MAX, |(at, _)| *at);
                let now = sync.min(evaluate).min(scrape).min(visible);
                if now > horizon {
                    return None;
                }
                if now == sync {
                    if raw {
                        recorded = samples.last().map_or(0, |(_, value)| *value);
                    }
                    hpa.sync(now + at.question, &mut workload, Some(recorded));
                    if workload.replicas > 0 {
                        break now + at.question;
                    }
                    sync += it.sync;
                } else if now == evaluate {
                    recorded = match shown {
                        None => samples.last().map_or(0, |(_, value)| *value),
                        Some(shown) => samples
                            .iter()
                            .filter(|(at, _)| at + shown >= now)
                            .map(|(_, value)| *value)
                            .max()
                            .unwrap_or(0),
                    };
                    evaluate += it.evaluate;
                } else if now == scrape {
                    seen.push_back((now + at.slow, i64::from(now <= present_until) * 1000));
                    scrape += it.scrape;
                } else if let Some((visible, value)) = seen.pop_front() {
                    // It bears the moment of its scrape.
                    samples.push((visible - at.slow, value));
                }
            }
        }
    };
    let ready = decided + it.start;
    let mut next = at.retry;
    while next <= ready {
        next += it.retry(mode);
    }
    Some(next + at.dial)
}

/// A look at 0 has been before the request.
fn after(at: Time, period: Time) -> Time {
    if at == 0 { period } else { at }
}

/// An HPA that has put its workload to zero long ago.
fn asleep(spec: &Spec) -> Hpa {
    let mut hpa = Hpa::new(spec.clone(), 0, Workload::default());
    hpa.scaled_to_zero = true;
    hpa
}

/// What a relation says of a setting; `None` where it is not about it.
fn says(findings: &[Finding], id: &str) -> Option<bool> {
    findings.iter().find(|finding| finding.invariant.id == id).map(|finding| finding.reading.holds().expect("known"))
}

fn spec(it: &Setting) -> Spec {
    Spec { down_window: it.after / 1000, up: Up::Pods(1), ..Spec::default() }
}

/// What is checked for each setting of a mode.
fn agrees(seed: u64, mode: Mode) {
    let (it, tenants) = drawn(seed);
    let wake = wakes(&tenants, mode).remove(0);
    let findings = of_wake(&wake);
    let said = |id: &str| says(&findings, id);
    let legal = Spec { down_window: it.after / 1000, ..Spec::default() }.is_taken();
    if mode != Mode::K3 {
        assert_eq!(said("tenant-quiet-is-taken"), Some(legal), "{seed}: {it:?}");
    }
    let spec = Spec { down_window: (it.after / 1000).min(3600), ..spec(&it) };
    // A latch that is too short may show nothing to whoever looks; what is said of a wake is said of one without it then.
    let is_shown = said("tenant-latch-outlasts-sync") != Some(false);
    let wait = |at: &Moments| waits(&it, mode, at, &spec, Time::MAX, is_shown.then_some(it.shown)).expect("it wakes");
    let worst = wait(&Moments::worst(&it, mode));
    let longest = (wake.longest().value().expect("known") * 1000.0).round() as Time;
    assert_eq!(worst, longest, "{seed} {mode:?}: the bound is reached, and no more: {it:?}");
    let mut dice = Dice::new(seed ^ 0x5eed);
    for _ in 0..5 {
        let some = wait(&dice.moments(&it, mode));
        assert!(some <= longest, "{seed} {mode:?}: {some} above {longest}: {it:?}");
    }
    let patience = it.balancer.min(it.patience);
    assert_eq!(said("tenant-wake-within-hold"), Some(worst * 10 <= it.hold * 8), "{seed} {mode:?}: {it:?}");
    assert_eq!(said("tenant-answer-within-patience"), Some(worst + ANSWER <= patience), "{seed} {mode:?}: {it:?}");
    assert_eq!(said("tenant-hold-within-patience"), Some(it.hold + ANSWER <= patience), "{seed} {mode:?}: {it:?}");
    if mode == Mode::K1 {
        is_seen(seed, &it, &wake, &spec, patience);
        sleeps(seed, &it, &wake, &findings);
    }
    if mode == Mode::K2Plus {
        assert_eq!(said("tenant-latch-outlasts-sync"), Some(!is_taken_back(&it, &spec)), "{seed}: {it:?}");
    }
}

/// Who leaves early wakes it where check says so; where it says that he may not, there are moments at which he does not.
fn is_seen(seed: u64, it: &Setting, wake: &Wake, spec: &Spec, patience: Time) {
    let mut dice = Dice::new(seed ^ 0x5ee);
    let said = |wake: &Wake, id: &str| says(&of_wake(wake), id) == Some(true);
    let worst = Moments::worst(it, Mode::K1);
    let moments: Vec<Moments> = (0..4).map(|_| dice.moments(it, Mode::K1)).chain([worst]).collect();
    let always = |shown| moments.iter().all(|at| waits(it, Mode::K1, at, spec, patience, shown).is_some());
    let scraped = said(wake, "tenant-seen-by-scrape");
    if scraped && said(wake, "tenant-latch-outlasts-sync") {
        assert!(always(Some(it.shown)), "{seed}: who waits {patience} ms is lost: {it:?}");
    }
    if !scraped {
        assert!(!always(Some(it.shown)), "{seed}: who waits {patience} ms is seen: {it:?}");
    }
    let unlatched = Wake { latch: None, ..wake.clone() };
    if said(&unlatched, "tenant-seen-by-scrape") {
        assert!(always(None), "{seed}: without a latch who waits {patience} ms is lost: {it:?}");
    }
}

/// A direct wake of a backend that is up at once: does the HPA, which remembers only zeros, stop it again?
fn is_taken_back(it: &Setting, spec: &Spec) -> bool {
    let (mut hpa, mut workload) = (asleep(spec), Workload { replicas: 1, ready: 1 });
    // The worst moment for its next look: a whole period and the way of the question after the request, which is over at once.
    let mut sync = it.sync;
    for _ in 0..20 {
        let asked = sync + CALL;
        hpa.sync(asked, &mut workload, Some(if asked <= it.latch { 1000 } else { 0 }));
        if workload.replicas == 0 {
            // Within the quiet window it must not.
            return asked < it.after;
        }
        sync += it.sync;
    }
    false
}

/// What the HPA is shown in the first mode while nobody waits: the rate of ended requests above the floor, as Prometheus works it out.
struct Recorder<'a> {
    it: &'a Setting,
    floor: f64,
    samples: VecDeque<(Time, f64)>,
}

impl Recorder<'_> {
    fn scrape(&mut self, now: Time, count: f64) {
        self.samples.push_back((now, count));
    }

    fn signal(&mut self, now: Time) -> Metric {
        while self.samples.front().is_some_and(|(at, _)| at + self.it.window < now) {
            self.samples.pop_front();
        }
        let ((first, from), (last, to)) = (*self.samples.front()?, *self.samples.back()?);
        if first == last {
            return Some(0);
        }
        let (sampled, count) = ((last - first) as f64, self.samples.len() as f64 - 1.0);
        // Half an interval beyond where samples end, all of it where the window ends soon.
        let average = sampled / count;
        let reach = |gap: Time| if (gap as f64) < average * 1.1 { gap as f64 } else { average / 2.0 };
        let start = reach(first - now.saturating_sub(self.it.window));
        let start = if to > from { start.min(sampled * from / (to - from)) } else { start };
        let increase = (to - from) * (sampled + start + reach(now - last)) / sampled;
        let rate = increase / (self.it.window as f64 / 1000.0);
        Some((((rate - self.floor).max(0.0)) * 1000.0) as i64)
    }
}

/// When a backend that was up at 0 is put to sleep, used until `used`, probed for ever; `None` where it is not within `horizon`.
fn asleep_at(it: &Setting, floor: f64, used: Time, horizon: Time, dice: &mut Dice) -> Option<Time> {
    let spec = Spec { down_window: (it.after / 1000).min(3600), ..spec(it) };
    let mut workload = Workload { replicas: 1, ready: 1 };
    let mut hpa = Hpa::new(spec, 0, workload);
    let mut recorder = Recorder { it, floor, samples: VecDeque::new() };
    let offsets: Vec<Time> = it.probes.iter().map(|every| dice.below(*every)).collect();
    let (mut scrape, mut evaluate, mut sync) = (dice.below(it.scrape), dice.below(it.evaluate), dice.below(it.sync));
    let mut recorded = None;
    loop {
        let now = sync.min(evaluate).min(scrape);
        if now > horizon {
            return None;
        }
        if now == scrape {
            // Ended requests only: a visitor each second, whose requests are over between two scrapes.
            let probes: u64 =
                it.probes.iter().zip(&offsets).map(|(every, offset)| (now + every - offset) / every).sum();
            recorder.scrape(now, (probes + now.min(used) / 1000) as f64);
            scrape += it.scrape;
        } else if now == evaluate {
            recorded = recorder.signal(now);
            evaluate += it.evaluate;
        } else {
            hpa.sync(now, &mut workload, recorded);
            assert_ne!(hpa.active, Active::ScalingDisabled);
            if workload.replicas == 0 {
                return Some(now);
            }
            sync += it.sync;
        }
    }
}

/// Quiet backends sleep within the time that is told, used ones do not; with a floor below what probes make nobody ever does.
fn sleeps(seed: u64, it: &Setting, wake: &Wake, findings: &[Finding]) {
    let mut dice = Dice::new(seed ^ 0xd1ce);
    let scraped = wake.scraped.as_ref().expect("the first mode");
    let floor = match scraped.floor.as_ref().expect("one").side() {
        Side::Known(floor) => floor,
        Side::Unknown(why) => panic!("{why}"),
    };
    let quiet = it.after.min(3_600_000);
    if says(findings, "tenant-window-holds-samples") == Some(true) {
        let told = (wake.sleeps_after().expect("known") * 1000.0) as Time - it.after + quiet;
        let used = 200_000;
        let slept = asleep_at(it, floor, used, used + told + quiet, &mut dice);
        let slept = slept.unwrap_or_else(|| panic!("{seed}: never asleep with a floor of {floor}: {it:?}"));
        assert!(slept <= used + told, "{seed}: asleep at {slept}, told {told} after {used}: {it:?}");
        if floor < 0.5 {
            assert!(
                slept >= used + quiet.min(used) - it.sync,
                "{seed}: asleep at {slept} though used until {used}: {it:?}"
            );
        }
    }
    let rate: f64 = it.probes.iter().map(|every| 1000.0 / *every as f64).sum();
    if rate > 0.0 && it.window >= 4 * it.scrape && it.probes.iter().all(|every| every * 2 < it.window) {
        let low = rate * 0.2;
        let mut other = wake.clone();
        let told = other.scraped.as_mut().expect("the first mode");
        told.floor = Some(Told::new(low, "floor"));
        assert_eq!(says(&of_wake(&other), "tenant-probes-below-floor"), Some(false));
        if rate - low > 0.01 {
            assert_eq!(asleep_at(it, low, 0, 3 * quiet + 1_000_000, &mut dice), None, "{seed}: it slept: {it:?}");
        }
    }
}

#[test]
fn with_a_scraped_edge_check_says_what_happens() {
    (0..SETTINGS).for_each(|seed| agrees(seed, Mode::K1));
}

#[test]
fn with_the_gateway_as_the_metric_check_says_what_happens() {
    (0..SETTINGS).for_each(|seed| agrees(seed, Mode::K2));
}

#[test]
fn with_direct_wakes_beside_the_hpa_check_says_what_happens() {
    (0..SETTINGS).for_each(|seed| agrees(seed, Mode::K2Plus));
}

#[test]
fn without_an_hpa_check_says_what_happens() {
    (0..SETTINGS).for_each(|seed| agrees(seed, Mode::K3));
}

#[test]
fn settings_are_drawn_on_both_sides_of_every_relation_that_is_held_to_the_oracle() {
    for (id, mode) in [
        ("tenant-wake-within-hold", Mode::K1),
        ("tenant-wake-within-hold", Mode::K3),
        ("tenant-hold-within-patience", Mode::K1),
        ("tenant-answer-within-patience", Mode::K2),
        ("tenant-seen-by-scrape", Mode::K1),
        ("tenant-quiet-is-taken", Mode::K1),
        ("tenant-window-holds-samples", Mode::K1),
        ("tenant-latch-outlasts-sync", Mode::K2Plus),
    ] {
        let holds = |seed| says(&of_wake(&wakes(&drawn(seed).1, mode)[0]), id) == Some(true);
        let count = (0..300).filter(|seed| holds(*seed)).count();
        assert!((15..=285).contains(&count), "{id}: {count} of 300");
    }
}
