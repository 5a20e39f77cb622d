//! Every relation of four fleets, written out: names, both sides, units and the numbers they are made of. Whoever changes one
//! sees it here; the arithmetic of each was worked out by hand from its formula when it was written down.

use super::{EXAMPLE, read};
use crate::config::Compose;
use crate::fleet::model::{Fleet, Known};
use crate::fleet::timing::{Amount, Basis, ComposeService, Side, findings, in_earliest, out_earliest};
use std::fmt::Write as _;
use std::time::Duration;

fn side(side: &Side) -> String {
    match (side.value(), side.unknown()) {
        (Some(value), None) => format!("{value:.3}"),
        (None, Some(why)) => format!("? {why}"),
        other => panic!("{other:?}"),
    }
}

fn relations(fleet: &Fleet, compose: &Compose) -> String {
    let mut out = String::new();
    for finding in findings(&Basis { fleet, compose }) {
        let reading = &finding.reading;
        let than = if reading.equal { "<=" } else { "<" };
        let holds = reading.holds().map_or("unknown", |holds| if holds { "holds" } else { "broken" });
        let margin = reading.margin().map_or_else(|| "?".to_owned(), |margin| format!("{margin:.3}"));
        writeln!(
            out,
            "{}: {} {than} {} {:?}, margin {margin}, {holds}{}{}; unknown {:?}; {}",
            finding.name(),
            side(&reading.left),
            side(&reading.right),
            reading.unit,
            if finding.fails_check() { ", fails" } else { "" },
            if finding.is_error() { ", refuses" } else { "" },
            reading.unknown(),
            reading.sources.join(" ")
        )
        .expect("a text");
    }
    out
}

/// The same grace and start period for every service.
fn compose(fleet: &Fleet, grace: u64, start: Option<u64>) -> Compose {
    let of = ComposeService {
        grace: Known::Known(Duration::from_secs(grace)),
        start_period: Known::Known(start.map(Duration::from_secs)),
    };
    Known::Known(fleet.services.iter().map(|service| (service.name.clone(), of.clone())).collect())
}

fn fleet(changes: &[(&str, &str)]) -> Fleet {
    let mut text = EXAMPLE.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    read(&text).unwrap_or_else(|problems| panic!("{problems}")).fleet
}

/// Two groups in zones that count by themselves, numbers that are all different, and a heartbeat.
fn rich() -> Fleet {
    let health = "health = { path = \"/h\", interval = \"7s\", timeout = \"3s\", unhealthy = 3, healthy = 4 }";
    let second = format!(
        "[[balancer.group]]\nname = \"second\"\nport = 9090\n{health}\nderegistration_delay = \"41s\"\ncross_zone = false\n\
         fail_open_count = 1\nfail_open_percent = 60\nslow_start = \"33s\"\n\n[drain]"
    );
    fleet(&[
        ("[drain]", &second),
        ("group    = \"mythex-api\"", "group    = [\"mythex-api\", \"second\"]"),
        ("batch       = 1 ", "batch       = 2 "),
        ("pause       = \"0s\"", "pause       = \"6s\""),
        ("shutdown = \"10s\"", "shutdown = \"11s\""),
        (
            "verify = { exec = [\"publish-worker\", \"--self-check\"] }",
            "verify = { heartbeat = \"/run/mythex/alive\", age = \"70s\" }",
        ),
        ("rate = 20", "timeout = \"2500ms\"\nrate = 3"),
    ])
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!(format!("relations_{name}"), text);
    });
}

#[test]
fn every_relation_of_the_example_and_of_four_others_is_as_it_was_written_down() {
    let example = fleet(&[]);
    snapshot("example", &relations(&example, &compose(&example, 30, Some(90))));
    let by_sigterm = fleet(&[
        ("by     = \"file\"", "by     = \"sigterm\"\nunverified_return = true"),
        ("file   = \"/run/mythex/drain\"        # while it is there, /health answers 503\n", ""),
    ]);
    snapshot("sigterm", &relations(&by_sigterm, &compose(&by_sigterm, 53, None)));
    let rich = rich();
    snapshot("rich", &relations(&rich, &compose(&rich, 11, Some(10))));
    snapshot("nothing_known", &relations(&rich, &Known::Unknown("no file".into())));
    let mut haproxy = rich.clone();
    haproxy.balancer.kind = crate::fleet::model::BalancerKind::Haproxy;
    haproxy.drain.by = crate::fleet::model::DrainBy::Deregister;
    haproxy.measure = None;
    snapshot("haproxy", &relations(&haproxy, &compose(&haproxy, 30, None)));
}

#[test]
fn the_earliest_moments_are_one_check_less_than_the_nominal_ones() {
    let mut health = fleet(&[]).balancer.groups[0].health.settings;
    (health.unhealthy, health.healthy) = (3, 4);
    assert_eq!((out_earliest(&health), in_earliest(&health)), (Duration::from_secs(10), Duration::from_secs(15)));
}

#[test]
fn amounts_keep_their_scale() {
    let millis = |millis| Amount::Time(Duration::from_millis(millis));
    let rows = [
        (millis(2000), 2, 7, millis(7000), "2s"),
        (millis(2500), 2500, 2501, millis(2501), "2.5s"),
        (Amount::Count(3), 3, 4, Amount::Count(4), "3"),
        (Amount::Share(25), 25, 26, Amount::Share(26), "25%"),
        (Amount::Rate(2.5), 2500, 1250, Amount::Rate(1.25), "2.5/s"),
    ];
    for (amount, position, other, there, shown) in rows {
        assert_eq!((amount.position(), amount.at(other)), (position, there), "{amount:?}");
        assert_eq!(amount.to_string(), shown);
    }
}

/// What is not known may be the longer one.
#[test]
fn a_start_period_that_is_not_known_makes_the_relation_unknown() {
    let fleet = fleet(&[]);
    let Known::Known(mut services) = compose(&fleet, 30, None) else { unreachable!() };
    for service in services.values_mut() {
        service.start_period = Known::Unknown("not resolved without Compose".into());
    }
    let text = relations(&fleet, &Known::Known(services));
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with("start-within-strikes")).collect();
    assert_eq!(told.len(), fleet.services.len());
    assert!(
        told.iter().all(|line| line.contains("unknown") && line.contains("not resolved without Compose")),
        "{text}"
    );
}

/// Whether sessions or requests are waited for depends on who lets go of whom.
#[test]
fn what_a_delay_must_cover_depends_on_who_lets_go() {
    use crate::fleet::model::{BalancerKind, DrainBy};
    let file = fleet(&[]).drain.by;
    let rows = [
        (BalancerKind::Alb, file.clone(), [false, true]),
        (BalancerKind::Alb, DrainBy::Deregister, [false, true]),
        (BalancerKind::Haproxy, file, [false, false]),
        (BalancerKind::Haproxy, DrainBy::Deregister, [true, true]),
    ];
    for (kind, by, expected) in rows {
        let mut fleet = fleet(&[]);
        (fleet.balancer.kind, fleet.drain.by) = (kind, by.clone());
        let text = relations(&fleet, &compose(&fleet, 30, None));
        let there = ["delay-within-max", "delay-covers-request"].map(|id| text.contains(&format!("{id}(")));
        assert_eq!(there, expected, "{kind:?} {by:?}");
    }
}

/// Where both must not be equal, equal is broken.
#[test]
fn an_app_that_keeps_connections_as_long_as_the_balancer_does_loses_them() {
    let fleet = fleet(&[("\"75s\"", "\"60s\"")]);
    let text = relations(&fleet, &compose(&fleet, 30, None));
    assert!(text.contains("keep-alive-above-idle(api): 60.000 < 60.000 Seconds, margin 0.000, broken"), "{text}");
    assert_eq!(format!("{:?}", crate::fleet::timing::INVARIANTS[0]), "serve-covers-out");
}
