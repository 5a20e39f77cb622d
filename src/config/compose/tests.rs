//! Numbers and hazards of whole files; what Compose itself makes of such files is compared in `tests/it/compose.rs`.

use super::*;
use crate::config::{Problem, Severity, from_sources};
use crate::fleet::model::{Fleet, Known, ServiceName};
use crate::fleet::release::DEFAULT_GRACE;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const EXAMPLE: &str = include_str!("../../../deploy.toml");

fn fleet(text: &str) -> Fleet {
    from_sources(&Source::new("deploy.toml", text), None).unwrap_or_else(|problems| panic!("{problems}")).fleet
}

/// A file that takes the example's traffic, so that only what is put into it is found.
fn file(services: &str) -> String {
    format!("services:\n  api:\n    image: a:1\n    restart: unless-stopped\n    ports: [\"8080:8080\"]\n{services}")
}

fn files(text: &str) -> ComposeFiles {
    ComposeFiles::gather("compose.yaml", |name| (name == "compose.yaml").then(|| Source::new(name, text)))
}

fn api_only() -> Fleet {
    let mut fleet = fleet(EXAMPLE);
    fleet.services.truncate(1);
    fleet
}

fn found(text: &str) -> Vec<LintFinding> {
    files(text).lint(&api_only(), &BTreeMap::new())
}

fn ids(text: &str) -> Vec<&'static str> {
    found(text).iter().map(|finding| finding.id).collect()
}

#[test]
fn every_hazard_is_found_at_its_line_and_only_there() {
    #[rustfmt::skip]
    let rows: &[(&str, &str, usize)] = &[
        ("build-ignored", "    build: .\n", 6),
        ("container-name", "    container_name: one\n", 6),
        ("depends-on-missing", "    depends_on: [nobody]\n", 6),
        ("depends-on-missing", "    depends_on:\n      off: {condition: service_started}\n  off: {image: \"a:1\", profiles: [x]}\n", 7),
        ("deploy-ignored", "    deploy:\n      update_config: {order: start-first}\n", 7),
        ("deploy-ignored", "    deploy:\n      replicas: 1\n      rollback_config: {order: start-first}\n", 8),
        ("deploy-restart-policy", "    deploy:\n      restart_policy: {condition: on-failure}\n", 7),
        ("duration-refused", "    stop_grace_period: 120\n", 6),
        ("duration-refused", "    healthcheck:\n      test: [CMD, x]\n      interval: \"90\"\n", 8),
        ("env-file-not-published", "    env_file: [.env.production, .env.other]\n", 6),
        ("environment-without-value", "    environment:\n      - A=b\n      - SECRET\n", 8),
        ("environment-without-value", "    environment:\n      A: b\n      SECRET:\n", 8),
        ("grace-below-shutdown", "    stop_grace_period: 9s\n", 6),
        ("grace-cut", "    stop_grace_period: 30.5s\n", 6),
        ("health-missing", "    depends_on: {db: {condition: service_healthy}}\n  db: {image: \"d:1\"}\n", 6),
        ("image-floating", "  db: {image: registry:5000/db}\n", 6),
        ("image-floating", "  db: {image: \"db:latest\"}\n", 6),
        ("image-missing", "  db: {build: .}\n", 6),
        ("links", "    links: [db]\n  db: {image: \"d:1\"}\n", 6),
        ("namespace-shared", "  db: {image: \"d:1\", network_mode: \"service:api\"}\n", 6),
        ("one-shot-restarts", "    depends_on: {job: {condition: service_completed_successfully}}\n  job: {image: \"d:1\", restart: always}\n", 7),
        ("replicas-collide", "    deploy: {replicas: 2}\n", 6),
        ("replicas-none", "    scale: 0\n", 6),
        ("restart-always", "  db: {image: \"d:1\", restart: always}\n", 6),
        ("restart-refused", "  db: {image: \"d:1\", restart: sometimes}\n", 6),
        ("stop-signal-kills", "    stop_signal: SIGKILL\n", 6),
        ("unreadable", "    image: twice\n", 6),
        ("variable-of-server", "    labels: {a: \"${HOME:-x}\"}\n", 6),
        ("variable-unset", "    labels: {a: \"b $TYPO\"}\n", 6),
        ("variable-unset", "x-not-used: ${TYPO}\n", 6),
        ("version-obsolete", "version: \"3\"\n", 6),
        ("volumes-from", "    volumes_from: [db]\n  db: {image: \"d:1\"}\n", 6),
        ("reference-not-published", "    extends: {file: other.yaml, service: x}\n", 6),
    ];
    for (id, more, line) in rows {
        let found = found(&file(more));
        let told: Vec<(&str, usize)> = found.iter().map(|f| (f.id, f.place.position().0)).collect();
        assert_eq!(told, [(*id, *line)], "{more}: {found:#?}");
        assert!(!found[0].hint.is_empty() && !found[0].to_problem().render(false).is_empty());
    }
    let whole = [
        ("no-services", "x: {}\n"),
        ("no-services", "api:\n  image: a:1\n"),
        ("service-missing", "services:\n  apy: {image: \"a:1\"}\n"),
        ("restart-missing", "services:\n  api: {image: \"a:1\", ports: [\"8080:80\"]}\n"),
        ("port-unreachable", "services:\n  api: {image: \"a:1\", restart: on-failure, ports: [\"8081:80\"]}\n"),
        (
            "port-unreachable",
            "services:\n  api: {image: \"a:1\", restart: on-failure, ports: [\"127.0.0.1:8080:80\"]}\n",
        ),
    ];
    for (id, text) in whole {
        assert_eq!(ids(text), [id], "{text}");
    }
    let mut beside = files(&file(""));
    beside.unread_beside = vec!["compose.override.yaml".to_owned()];
    assert_eq!(beside.lint(&api_only(), &BTreeMap::new())[0].id, "override-ignored");
    let tested: BTreeSet<&str> = rows
        .iter()
        .map(|row| row.0)
        .chain(whole.map(|row| row.0))
        .chain(["override-ignored", "sleeper-restarts"])
        .collect();
    assert_eq!(tested, LINTS.iter().map(|lint| lint.id).collect(), "a hazard without a row");
}

#[test]
fn what_sleeps_must_not_be_started_by_the_engine() {
    let gateway = "\n[gateway]\nlisten = \"127.0.0.1:8000\"\nmetrics = \"127.0.0.1:9180\"\n\n[[gateway.host]]\nname = \"cms.example\"\n\
                   backend = \"http://127.0.0.1:9000\"\nsleep = { services = [\"orchestrator\"], after = \"30m\" }\n";
    let mut fleet = fleet(&format!("{EXAMPLE}{gateway}"));
    fleet.services.truncate(1);
    let ids = |text: &str| -> Vec<(&str, usize)> {
        let found = files(text).lint(&fleet, &BTreeMap::new());
        found.iter().map(|one| (one.id, one.place.position().0)).collect()
    };
    assert_eq!(ids(&file("  orchestrator: {image: \"d:1\", restart: always}\n")), [("sleeper-restarts", 6)]);
    assert_eq!(ids(&file("  orchestrator: {image: \"d:1\", restart: unless-stopped}\n")), []);
    assert_eq!(ids(&file("  db: {image: \"d:1\", restart: always}\n")), [("restart-always", 6)]);
}

#[test]
fn there_is_no_alarm_where_nothing_is_wrong() {
    let fine = [
        "    deploy: {replicas: 1, resources: {limits: {memory: 1g}}}\n",
        "    stop_grace_period: 10s\n",
        "    stop_grace_period: ${GRACE:-20s}\n",
        "    depends_on: {db: {condition: service_healthy}}\n  db: {image: \"d:1\", healthcheck: {test: [CMD, x]}}\n",
        "    depends_on: {job: {condition: service_completed_successfully}}\n  job: {image: \"d:1\", restart: \"no\"}\n",
        "    depends_on: {gone: {condition: service_started, required: false}}\n",
        "    labels: {a: \"$$HOME $TAG ${TAG:?} ${X:-y} ${X+y} $(date) $COMPOSE_PROJECT_NAME $HANDOVER_RELEASE\"}\n",
        "    environment: [\"A=\", \"B=$TAG\"]\n",
        "    env_file: [./.env.production, /etc/x, {path: a, required: false}]\n",
        "  off: {profiles: [x], build: ., restart: always, labels: {a: $TYPO}}\n",
        "  db: {image: \"registry:5000/db@sha256:00\"}\n",
        "  db: {image: \"db:${TAG}\", deploy: {replicas: 3}, ports: [\"80\"]}\n",
    ];
    for more in fine {
        assert_eq!(found(&file(more)), [], "{more}");
    }
    for ports in [
        "[\"0.0.0.0:8080:80/tcp\"]",
        "[\"8000-8090:8000-8090\"]",
        "[{target: 80, published: \"8080\"}]",
        "[\"${PORT:-8080}:80\"]",
        "[\"$TAG:80\"]",
    ] {
        let text = format!("services:\n  api: {{image: \"a:1\", restart: on-failure, ports: {ports}}}\n");
        assert_eq!(found(&text), [], "{ports}");
    }
}

#[test]
fn the_projects_own_files_are_without_alarm_and_their_numbers_are_known() {
    for text in [include_str!("../../../compose.yaml"), include_str!("../../../tests/e2e/app/compose.yaml")] {
        let (fleet, files) = (fleet(EXAMPLE), files(text));
        assert_eq!(files.lint(&fleet, &BTreeMap::new()), []);
        let numbers = files.numbers(&fleet, &BTreeMap::new(), None);
        assert_eq!((numbers.unresolved(), numbers.by.as_str()), (Vec::new(), AS_READ));
        assert!(numbers.services.get().is_some_and(|services| services.len() == 4));
    }
    let numbers = files(include_str!("../../../compose.yaml")).numbers(&fleet(EXAMPLE), &BTreeMap::new(), None);
    assert_eq!(numbers.all[&ServiceName::from("api")].grace, Known::Known(Duration::from_secs(30)));
    let place = numbers.place("compose.api.stop_grace_period").expect("a place");
    assert_eq!(place.to_string(), "compose.yaml:6:22");
}

#[test]
fn a_number_that_is_not_in_the_text_is_unknown_by_name_and_the_default_is_composes() {
    let text = file("    stop_grace_period: ${TAG}\n  db: {image: \"d:1\"}\n");
    let numbers = files(&text).numbers(&api_only(), &BTreeMap::new(), None);
    let why = "not resolved without Compose: `TAG` is not given here".to_owned();
    assert_eq!(numbers.unresolved(), [("compose.api.stop_grace_period".to_owned(), why)]);
    assert_eq!(numbers.all[&ServiceName::from("db")].grace, Known::Known(DEFAULT_GRACE));
    assert_eq!(numbers.place("compose.db.stop_grace_period"), None);
    let given = [("TAG".to_owned(), "44s".to_owned())].into();
    let numbers = files(&text).numbers(&api_only(), &given, None);
    assert_eq!(numbers.all[&ServiceName::from("api")].grace, Known::Known(Duration::from_secs(44)));
}

#[test]
fn composes_word_is_taken_and_its_refusal_too() {
    let text = file("    stop_grace_period: 1s\n");
    let json = r#"{"name":"x","services":{"api":{"stop_grace_period":"1m5s","healthcheck":{"start_period":"3s"}}}}"#;
    let answer = ComposeAnswer { version: "2.40.3".into(), definition: Ok(json.into()) };
    let numbers = files(&text).numbers(&api_only(), &BTreeMap::new(), Some(&answer));
    let api = &numbers.services.get().expect("known")[&ServiceName::from("api")];
    assert_eq!(api.grace, Known::Known(Duration::from_secs(65)));
    assert_eq!(api.start_period, Known::Known(Some(Duration::from_secs(3))));
    assert_eq!(numbers.by, "Compose 2.40.3");
    assert!(numbers.place("compose.api.stop_grace_period").is_some(), "the place is the text's");
    let answer = ComposeAnswer { version: "2.40.3".into(), definition: Err("no".into()) };
    let numbers = files(&text).numbers(&api_only(), &BTreeMap::new(), Some(&answer));
    assert_eq!(numbers.services, Known::Unknown("Compose 2.40.3 refuses compose.yaml: no".into()));
}

#[test]
fn what_cannot_be_followed_is_unknown_and_never_a_number() {
    let whole = [
        "services: {a: {image: x}}\n---\nservices: {}\n",
        "include: [gone.yaml]\nservices: {api: {image: x}}\n",
        "a: [",
        "include: [compose.yaml]\n",
    ];
    for text in whole {
        let numbers = files(text).numbers(&api_only(), &BTreeMap::new(), None);
        assert!(
            matches!(&numbers.services, Known::Unknown(why) if why.starts_with("not resolved without Compose: ")),
            "{text}"
        );
    }
    for more in [
        "    extends: nobody\n",
        "    extends: api\n",
        "    extends: {file: gone.yaml, service: x}\n",
        "    extends: \"$X\"\n",
        "    stop_grace_period: 90\n",
        "    stop_grace_period:\n",
    ] {
        let numbers = files(&file(more)).numbers(&api_only(), &BTreeMap::new(), None);
        assert!(matches!(&numbers.all[&ServiceName::from("api")].grace, Known::Unknown(_)), "{more}: {numbers:?}");
    }
}

#[test]
fn a_grace_period_is_held_to_what_a_stop_needs() {
    let told = |text: &str, fleet: &Fleet| {
        files(&file(text))
            .lint(fleet, &BTreeMap::new())
            .iter()
            .map(|f| (f.severity, f.text.clone()))
            .collect::<Vec<_>>()
    };
    let mut fleet = api_only();
    fleet.services[0].shutdown = Duration::from_secs(11);
    let text =
        "api: is killed 10s after it was told to stop, Compose's default; its `shutdown` in deploy.toml need 11s";
    assert_eq!(told("", &fleet), [(Severity::Error, text.to_owned())]);
    // What is left of 11.9s are 11s.
    assert_eq!(told("    stop_grace_period: 11.9s\n", &fleet).len(), 1);
    fleet.drain.by = crate::fleet::model::DrainBy::Sigterm;
    assert_eq!(told("    stop_grace_period: 25s\n", &fleet).len(), 1);
    assert_eq!(told("    stop_grace_period: 26s\n", &fleet), []);
}

#[test]
fn a_check_that_is_switched_off_is_an_error_to_who_waits_for_it() {
    let found = found(&file(
        "    depends_on: {db: {condition: service_healthy}}\n  db: {image: \"d:1\", healthcheck: {disable: true}}\n",
    ));
    assert_eq!((found[0].id, found[0].severity, found.len()), ("health-missing", Severity::Error, 1));
}

#[test]
fn a_thousand_services_are_read_and_linted_in_no_time() {
    let more: String = (0..1000)
        .map(|n| {
            format!(
                "  s{n}:\n    extends: s{}\n    depends_on: [api]\n    image: a:1\n",
                if n % 10 == 0 { "api".into() } else { (n - 1).to_string() }
            )
        })
        .collect();
    let text = file(&more.replace("sapi", "api"));
    let began = Instant::now();
    drop(found(&text));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn the_page_is_made_from_the_table_and_names_exactly_its_hazards() {
    let page = include_str!("../../../docs/compose-lint.md");
    let named: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(named, LINTS.iter().map(|lint| lint.id).collect::<Vec<_>>());
    assert_eq!(page, lint_page(), "run the ignored test `writes_the_page`");
    assert!(LINTS.is_sorted_by_key(|lint| lint.id));
}

#[test]
#[ignore = "writes into docs/; run it after the table changed"]
fn writes_the_page() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/compose-lint.md");
    std::fs::write(path, lint_page()).expect("written");
}

proptest! {
    #[test]
    fn no_text_panics_reader_numbers_or_lint(
        text in "(services:|  api:|    |image: a|ports: |extends: |include: |<<: \\*a|&a |\\*a|\\$\\{A:-|\\}|- |\n|[\\[\\]{}:,\"'!#$]|\\PC){0,60}",
        from in 0usize..400, put in "(\\PC|[\\[\\]{}:,$&*!\n ]){0,12}",
    ) {
        let damaged = {
            let mut whole = file("    stop_grace_period: ${A:-1s}\n    depends_on: {db: {condition: service_healthy}}\n  db: &d {<<: {}, extends: api}\n");
            let at = from.min(whole.len());
            whole.insert_str(at, &put);
            whole
        };
        for text in [&text, &damaged] {
            let files = files(text);
            let fleet = api_only();
            drop(files.numbers(&fleet, &BTreeMap::new(), None));
            for finding in files.lint(&fleet, &BTreeMap::new()) {
                drop(Problem::render(&finding.to_problem(), true));
            }
        }
    }
}

/// What the check need not ask Compose for: files whose numbers are all read and whose keys are all known.
#[test]
fn a_file_with_a_strange_key_is_for_compose_to_judge() {
    let fine = [include_str!("../../../compose.yaml"), include_str!("../../../tests/e2e/app/compose.yaml")];
    for text in fine {
        let files = files(text);
        assert!(files.is_familiar() && files.numbers(&api_only(), &BTreeMap::new(), None).is_whole(), "{text}");
    }
    let strange = ["    stop_grace_perod: 30s\n", "    healthcheck:\n      test: [CMD, a]\n      start: 3s\n"];
    for text in strange {
        assert!(!files(&file(text)).is_familiar(), "{text}");
    }
    assert!(files(&file("    x-mine: 1\n")).is_familiar());
    let unread = files(&file("    stop_grace_period: ${NOT_GIVEN}\n"));
    assert!(unread.is_familiar() && !unread.numbers(&api_only(), &BTreeMap::new(), None).is_whole());
}
