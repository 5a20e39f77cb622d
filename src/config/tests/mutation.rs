//! The numbers of a file, and what notices when one of them is wrong.

use super::{EXAMPLE, read};
use crate::config::{Compose, Loaded, Mutation, mutations};
use crate::fleet::model::{Known, ServiceName};
use crate::fleet::timing::{Amount, Basis, ComposeService, Finding, WITHOUT, findings};
use std::collections::BTreeSet;
use std::time::Duration;

fn example() -> Loaded {
    read(EXAMPLE).expect("the example is fine")
}

/// Thirty seconds for every service, as the example's compose file has it.
fn compose(loaded: &Loaded) -> Compose {
    let of = |name: &ServiceName| {
        (
            name.clone(),
            ComposeService { grace: Known::Known(Duration::from_secs(30)), start_period: Known::Known(None) },
        )
    };
    Known::Known(loaded.fleet.services.iter().map(|service| of(&service.name)).collect())
}

fn broken(text: &str) -> Vec<Finding> {
    let loaded = read(text).unwrap_or_else(|problems| panic!("{problems}"));
    let compose = compose(&loaded);
    findings(&Basis { fleet: &loaded.fleet, compose: &compose }).into_iter().filter(Finding::is_broken).collect()
}

#[test]
fn every_relation_of_the_example_is_known_and_holds() {
    let loaded = example();
    let compose = compose(&loaded);
    for finding in findings(&Basis { fleet: &loaded.fleet, compose: &compose }) {
        assert_eq!(finding.reading.holds(), Some(true), "{} {:?}", finding.name(), finding.reading);
    }
}

#[test]
fn the_storys_numbers_are_sixty_seconds_against_five() {
    let story = EXAMPLE
        .replace(
            "interval = \"5s\", timeout = \"2s\", unhealthy = 2",
            "interval = \"30s\", timeout = \"2s\", unhealthy = 2",
        )
        .replace("serve  = \"15s\"", "serve = \"5s\"");
    let found = broken(&story);
    let serve = found.iter().find(|finding| finding.invariant.id == "serve-covers-out").expect("it is found");
    assert_eq!((serve.reading.left.value(), serve.reading.right.value()), (Some(60.0), Some(5.0)));
    assert!(serve.is_error());
    assert!(broken(EXAMPLE).is_empty());
}

#[test]
fn numbers_are_found_by_the_key_table_with_their_places_and_defaults() {
    let loaded = example();
    let numbers = loaded.numbers();
    let find =
        |key: &str| numbers.iter().find(|number| number.key == key).unwrap_or_else(|| panic!("{key} is missing"));
    let serve = find("drain.serve");
    assert_eq!((serve.amount, serve.pattern.as_str()), (Amount::Time(Duration::from_secs(15)), "drain.serve"));
    assert_eq!(serve.place.as_ref().map(ToString::to_string).as_deref(), Some("deploy.toml:47:10"));
    assert_eq!(find("service.orchestrator.shutdown").place, None, "a default");
    assert_eq!(find("balancer.group.mythex-api.health.unhealthy").amount, Amount::Count(2));
    assert_eq!(find("measure.rate").amount, Amount::Rate(20.0));
    let keys: BTreeSet<&str> = numbers.iter().map(|number| number.key.as_str()).collect();
    assert_eq!(keys.len(), numbers.len(), "each stands once");
}

#[test]
fn a_changed_number_is_read_back_changed_and_nothing_else_is() {
    let loaded = example();
    for number in loaded.numbers() {
        let to = number.amount.at(number.amount.position() + 1);
        let Ok(changed) = loaded.with(&number, to) else { continue };
        let differing: Vec<String> = changed
            .numbers()
            .into_iter()
            .filter(|after| {
                loaded.numbers().iter().all(|before| before.key != after.key || before.amount != after.amount)
            })
            .map(|after| after.key)
            .collect();
        assert_eq!(differing, [number.key.as_str()]);
    }
}

#[test]
fn every_number_of_the_example_is_guarded_or_free_with_its_reason() {
    let loaded = example();
    let found = mutations(&loaded, &compose(&loaded));
    let unguarded: Vec<_> = found.iter().filter(|mutation| mutation.is_unguarded()).collect();
    assert!(unguarded.is_empty(), "{unguarded:#?}");
    let keys: BTreeSet<&str> = found.iter().map(|mutation| mutation.key.as_str()).collect();
    for number in loaded.numbers().iter().filter(|number| !number.key.ends_with("publish-worker.verify.status")) {
        assert!(keys.contains(number.key.as_str()), "{} was not tried", number.key);
    }
    let serve: Vec<_> = found.iter().filter(|mutation| mutation.key == "drain.serve").collect();
    assert!(
        serve.iter().any(|m| m.to == Amount::Time(Duration::from_secs(9)) && m.caught_by == ["serve-covers-out"]),
        "{serve:?}"
    );
}

#[test]
fn a_number_is_free_only_where_nothing_could_notice() {
    let loaded = example();
    for mutation in mutations(&loaded, &compose(&loaded)).iter().filter(|mutation| mutation.free.is_some()) {
        assert!(
            mutation.caught_by.is_empty() || mutation.caught_by[0].starts_with("deploy.toml"),
            "{mutation:?} is guarded, not free"
        );
    }
}

/// Without a relation, the numbers that only it held are named.
#[test]
fn without_a_relation_the_numbers_that_it_held_are_unguarded() {
    let loaded = example();
    let compose = compose(&loaded);
    let without = |id: &'static str| {
        WITHOUT.set(Some(id.to_owned()));
        let found = mutations(&loaded, &compose);
        WITHOUT.set(None);
        let unguarded = found.into_iter().filter(Mutation::is_unguarded).map(|mutation| mutation.key);
        unguarded.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let rows: [(&str, &[&str]); 7] = [
        ("return-within-back", &["drain.back"]),
        ("bootstrap-within-wait", &["lock.bootstrap"]),
        ("keep-alive-above-idle", &["balancer.idle_timeout", "service.api.keep_alive"]),
        ("delay-covers-request", &["balancer.group.mythex-api.deregistration_delay"]),
        ("heals-within-window", &["watchdog.heals", "watchdog.window"]),
        ("lease-within-wait", &["lock.lease"]),
        ("capacity", &["balancer.group.mythex-api.fail_open_count", "rolling.batch"]),
    ];
    for (id, keys) in rows {
        assert_eq!(without(id), keys, "without {id}");
    }
    let services = ["api", "gateway", "orchestrator", "publish-worker"];
    assert_eq!(without("shutdown-within-grace"), services.map(|name| format!("compose.{name}.stop_grace_period")));
}
