//! The tenants' files: what is refused, with its place, and what they share.

use crate::config::keys::{self, Kind, Need};
use crate::config::{Problems, Source, parse, tenants_from, tenants_page, tree};
use crate::fleet::model::{Mode, Tenants};
use std::sync::Arc;
use std::time::Duration;

const DEFAULTS: &str = include_str!("../../../tenants/defaults.toml");
const EXAMPLE: &str = include_str!("../../../tenants/example.toml");
const SHORT: &str = "sleep = true\nhosts = [\"a\"]\nnamespace = \"n\"\nworkload = \"deployment/w\"\n";

fn read(shared: &str, tenants: &[(&str, &str)]) -> Result<Tenants, Problems> {
    let sources: Vec<(String, Arc<Source>)> =
        tenants.iter().map(|(name, text)| ((*name).to_owned(), Source::new(format!("{name}.toml"), *text))).collect();
    tenants_from(&Source::new("defaults.toml", shared), &sources).map(|loaded| loaded.tenants)
}

fn refused(shared: &str, tenants: &[(&str, &str)]) -> Vec<String> {
    match read(shared, tenants) {
        Ok(_) => Vec::new(),
        Err(problems) => problems
            .iter()
            .map(|problem| format!("{}: {}; {}", problem.place, problem.text, problem.hint.clone().unwrap_or_default()))
            .collect(),
    }
}

#[test]
fn the_example_is_a_tenant_with_what_all_share() {
    let tenants = read(DEFAULTS, &[("example", EXAMPLE)]).expect("it is one");
    let example = &tenants.tenants[0];
    assert_eq!((example.name.as_str(), example.service.as_str(), example.port), ("example", "app-backend", 8443));
    assert_eq!((tenants.shared.mode, tenants.shared.never.len()), (Mode::K1, 1));
    assert_eq!(example.probe_rate(), 1.0 / 60.0);
}

#[test]
fn what_a_tenant_does_not_say_the_defaults_say() {
    let tenants = read(
        "after = \"1h\"\nhold = \"20s\"\nstart = \"3s\"\nport = 80\n",
        &[
            ("a", SHORT),
            ("b", &format!("{}hold = \"9s\"\n", SHORT.replace("\"a\"", "\"b\"").replace("\"n\"", "\"m\""))),
        ],
    )
    .expect("both");
    let holds: Vec<u64> = tenants.tenants.iter().map(|tenant| tenant.hold.as_secs()).collect();
    assert_eq!(holds, [20, 9]);
    assert_eq!(tenants.tenants[1].after, Duration::from_secs(3600));
}

#[test]
fn everything_that_is_wrong_is_told_with_its_place_and_the_way_out() {
    let all = "after = \"1h\"\nhold = \"20s\"\nstart = \"3s\"\nport = 80\n";
    let own = |from: &str, to: &str| SHORT.replace(from, to);
    for (shared, text, expected) in [
        (
            all,
            own("namespace", "namspace"),
            "a.toml:3:1: unknown key `namspace` in `tenant`; did you mean `namespace`?",
        ),
        (all, own("namespace = \"n\"\n", ""), "`tenant.namespace` is missing"),
        (all, own("deployment/w", "cronjob/w"), "`cronjob` is no kind that can sleep: `deployment` or `statefulset`"),
        (all, own("deployment/w", "w"), "write it as `deployment/app-backend`"),
        (all, own("deployment/w", "deployment/W"), "small letters, digits and `-`"),
        (all, format!("{SHORT}probes = [{{ path = \"/a*\", every = \"1m\" }}]\n"), "a probe's path with `*` in it"),
        (
            "hold = \"20s\"\n",
            SHORT.to_owned(),
            "a.toml:1:1: `tenant.port` is missing, and defaults.toml does not say it either; add a line like `port = 8443`",
        ),
        ("scrap = 1\n", SHORT.to_owned(), "defaults.toml:1:1: unknown key `scrap` in `tenants`"),
        ("[prometheus]\nscrape = 5\n", SHORT.to_owned(), "`tenants.prometheus.scrape` must be a duration with a unit"),
        ("mode = \"k4\"\n", SHORT.to_owned(), "defaults.toml:1:8"),
    ] {
        let found = refused(shared, &[("a", &text)]);
        assert!(found.iter().any(|one| one.contains(expected)), "{text}: {found:#?}");
    }
    let shouting = refused(all, &[("A", SHORT)]);
    assert!(shouting[0].contains("`A` is no name for a tenant"), "{shouting:?}");
}

#[test]
fn what_must_not_sleep_is_refused_with_its_reason_and_may_be_named_where_it_does_not() {
    let consumer = EXAMPLE.replace("app-backend", "app-consumer");
    let found = refused(DEFAULTS, &[("mail", &consumer)]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .starts_with("mail.toml:4:13: the workload `deployment/app-consumer` must not sleep: it measures itself")
    );
    assert_eq!(refused(DEFAULTS, &[("mail", &consumer.replace("true", "false"))]), Vec::<String>::new());
}

#[test]
fn a_host_and_a_workload_belong_to_one_tenant() {
    let all = "after = \"1h\"\nhold = \"20s\"\nstart = \"3s\"\nport = 80\n";
    let same_host = SHORT.replace("\"n\"", "\"m\"").replace("\"a\"", "\"A:80\"");
    let found = refused(all, &[("a", SHORT), ("b", &same_host.replace(":80", ""))]);
    assert!(found[0].contains("b.toml:2:10: the host `a` belongs to two tenants; `a` has it too"), "{found:?}");
    let found = refused(all, &[("a", SHORT), ("b", &SHORT.replace("[\"a\"]", "[\"b\"]"))]);
    assert!(found[0].contains("the workload `deployment/w` of `n` belongs to two tenants"), "{found:?}");
}

#[test]
fn every_example_is_taken_every_default_is_one_and_no_key_stands_twice() {
    let mut paths = Vec::new();
    for key in keys::of_tenants() {
        paths.push(key.path());
        let values = match key.need {
            Need::Default(value) => vec![key.example, value],
            _ => vec![key.example],
        };
        for value in values.into_iter().filter(|_| !matches!(key.kind, Kind::Table(_) | Kind::Tables(_))) {
            let source = Source::new("example", format!("{} = {value}", key.name));
            let (table, mut problems) = tree::parse(&source);
            parse::check(key.table, table, parse::Missing::Told, &mut problems);
            problems.retain(|problem| !problem.text.ends_with("is missing"));
            assert_eq!(problems, [], "{}", key.path());
        }
    }
    let count = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), count);
}

fn page() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tenants.md")
}

#[test]
fn the_page_of_the_tenants_keys_is_fresh() {
    let written = std::fs::read_to_string(page()).unwrap_or_default();
    assert!(written == tenants_page(), "run the ignored test `writes_the_tenants_page`");
    assert!(keys::of_tenants().all(|key| written.contains(&format!("| `{}` |", key.name))));
}

#[test]
#[ignore = "writes into docs/; run it after the key table changed"]
fn writes_the_tenants_page() {
    std::fs::write(page(), tenants_page()).expect("written");
}
