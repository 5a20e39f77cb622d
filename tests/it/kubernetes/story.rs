//! `docs/sleep-story.md`: what was told about a backend at zero, held to the relations and to the model of the cluster.

use super::files::{Finding, findings, of_story};
use super::hpa::{Spec, Time};
use super::oracle::waits;
use super::settings::{Dice, Setting, example, story};
use handover::fleet::model::Mode;
use std::fmt::Write as _;
use std::path::PathBuf;

const DRAWS: u64 = 20_000;
/// The answer that was told came after.
const TOLD: f64 = 35.0;

/// Waits in seconds, sorted, with loops at any moments; quick answers, and a missing name that is remembered for any part of its time.
fn distribution(it: &Setting, mode: Mode, missing: Time, shown: Option<Time>) -> Vec<f64> {
    let mut dice = Dice::new(35);
    let mut all: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let mut at = dice.moments(it, mode);
            (at.slow, at.question, at.dial) = (dice.below(50), dice.below(100), 0);
            let waited = waits(it, mode, &at, &Spec::default(), Time::MAX, shown).expect("it wakes");
            let name = if missing > 0 { dice.below(missing) } else { 0 };
            (waited + name) as f64 / 1000.0
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

fn percentile(all: &[f64], of_hundred: f64) -> f64 {
    all[((all.len() - 1) as f64 * of_hundred / 100.0).round() as usize]
}

fn row(page: &mut String, name: &str, all: &[f64]) {
    let figures: Vec<String> =
        [5.0, 50.0, 95.0, 99.0, 100.0].iter().map(|of| format!("{:.1}", percentile(all, *of))).collect();
    let below = all.iter().filter(|wait| **wait <= TOLD).count() * 100 / all.len();
    writeln!(page, "| {name} | {} | {below} % |", figures.join(" | ")).expect("written");
}

const HEAD: &str = "\
# The second story: what holds, and what fails

<!-- Written by tests/it/kubernetes/story.rs; do not edit. -->

A team put the backends of its tenants to zero pods: Caddy holds the first request, Prometheus counts it, prometheus-adapter shows it to the HPA. Its
files, as far as they were told, lie in `tests/it/fixtures/sleep-story`; what was not told is what each program does by itself. This page is what
`handover sleep check` says of them, and what a model of the HPA, held to measurements on a real control plane, says of the wake.

## How long the first one waits

Seconds, over 20,000 wakes at any moments, a pod that starts in 12 s. The story's own first start took 35 s; its aim was a week in which every start stays below 60 s.

| way | p5 | p50 | p95 | p99 | longest | within 35 s |
| --- | --- | --- | --- | --- | --- | --- |
";

/// The page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    let (told, ours) = (story(), example());
    row(&mut page, "as told", &distribution(&told, Mode::K1, 0, None));
    row(&mut page, "as told, the missing name remembered for 5 s", &distribution(&told, Mode::K1, 5000, None));
    row(&mut page, "as told, the missing name remembered for 30 s", &distribution(&told, Mode::K1, 30_000, None));
    row(&mut page, "`k1` with the example's numbers", &distribution(&ours, Mode::K1, 0, Some(ours.shown)));
    row(&mut page, "`k2`: the gateway is the metric", &distribution(&ours, Mode::K2, 0, None));
    row(&mut page, "`k2+`: and wakes by itself", &distribution(&ours, Mode::K2Plus, 0, None));
    row(&mut page, "`k3`: the gateway alone", &distribution(&ours, Mode::K3, 0, None));
    page.push_str(
        "\nThe aim holds without a name service that remembers what is missing, and fails with one that does so for 30 s, which is what CoreDNS does as it is\n\
         shipped. So the example asks for the Service, whose name is there while no pod runs.\n\n\
         ## What holds\n\n| relation | left | right | |\n| --- | --- | --- | --- |\n",
    );
    let all = findings(&of_story(), Some(0.6));
    for finding in &all {
        if let Finding::Relation { id, left, right, holds, .. } = finding {
            let word = if *holds { "holds" } else { "**fails**" };
            writeln!(page, "| [{id}](timing.md#{id}) | {left} | {right} | {word} |").expect("written");
        }
    }
    page.push_str("\nWith 0.6 requests a second of health checks: a balancer in three zones that asks every 5 s and is counted.\n\n## What it costs\n\n");
    for finding in &all {
        let (id, text) = match finding {
            Finding::Relation { id, cost: Some(cost), holds: false, .. } => (id, cost),
            Finding::Fault { id, text } => (id, text),
            Finding::Relation { .. } => continue,
        };
        writeln!(page, "- `{id}`: {text}.").expect("written");
    }
    page.push_str(REST);
    page
}

const REST: &str = "
## What was told otherwise than it is

- *Only AverageValue works, because other kinds divide by the number of pods.* It is the right kind for another reason: with Value the HPA wants as many pods as are ready, which is none while
  the woken one starts, so it is put back to zero. (`with_value_it_is_taken_back_while_the_pod_is_not_ready`)
- *A POST survives the start.* With Caddy 2.11.2 and newer; 2.6.2, which Debian 12 ships, loses it.
- *Requests in flight are seen however short they are.* Only by a scrape that falls into them; and without a latch the HPA must look before the next scrape. (`tenant-seen-by-scrape`)
- *The request is held for 90 s.* Nobody waits so long behind a balancer that cuts at 60 s, and a write that was given up is executed all the same if the backend comes in time.
- *`BackendHPAInactive` tells of a backend that can never start again.* It does, while there is an HPA: one that was deleted at zero is told by `BackendHPAAbsent`.
";

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/sleep-story.md")
}

#[test]
fn the_page_of_the_story_is_fresh() {
    let written = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(written == page(), "run the ignored test `writes_the_page_of_the_sleep_story`");
}

#[test]
#[ignore = "writes into docs/; run it after a relation, the model or the story's files changed"]
fn writes_the_page_of_the_sleep_story() {
    std::fs::write(file(), page()).expect("written");
}

/// Worked out by hand: two loops of 15 s, a pod of 12 s, half a try.
#[test]
fn the_distribution_is_the_one_that_was_worked_out_by_hand() {
    let near = |a: f64, b: f64| assert!((a - b).abs() < 0.4, "{a} is not {b}");
    let all = distribution(&story(), Mode::K1, 0, None);
    for (of, seconds) in [(5.0, 17.2), (50.0, 27.5), (95.0, 37.8), (99.0, 40.4), (100.0, 42.8)] {
        near(percentile(&all, of), seconds);
    }
    near(percentile(&distribution(&story(), Mode::K1, 30_000, None), 50.0), 42.5);
    near(percentile(&distribution(&example(), Mode::K2, 0, None), 50.0), 19.6);
    near(percentile(&distribution(&example(), Mode::K3, 0, None), 100.0), 12.2);
}
