//! What deploy.toml means and what is refused, on texts only.

mod broken;
mod gateway;
mod mutation;
mod overlay;
mod relations;
mod table;
mod tenants;

use super::*;
use crate::fleet::model::{
    AdminState, Balancer, BalancerKind, Batch, Drain, DrainBy, Group, GroupName, HealthCheck, HealthSettings, Hooks,
    HostKeys, LockSpec, Measure, OnFailure, OnLoss, ReleaseSpec, Rolling, RuntimeSocket, Server, Service, Ssh,
    TargetSpec, Verify, Watchdog,
};
use proptest::prelude::*;
use std::time::Duration;

pub(super) const EXAMPLE: &str = include_str!("../../deploy.toml");

/// The shortest file there is.
pub(super) const SHORT: &str = "\
app = \"a\"
[balancer]
kind = \"none\"
[[service]]
name = \"w\"
verify = { tcp = \"127.0.0.1:1\" }
[[server]]
name = \"s\"
ssh = \"s\"
";

pub(super) fn read(text: &str) -> Result<Loaded, Problems> {
    from_sources(&Source::new("deploy.toml", text), None)
}

pub(super) fn fleet(text: &str) -> Fleet {
    read(text).unwrap_or_else(|problems| panic!("{problems}")).fleet
}

pub(super) fn lines(text: &str) -> Vec<String> {
    read(text).map_or_else(|problems| problems.iter().map(Problem::line).collect(), |_| Vec::new())
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn service(name: &str, groups: &[&str], verify: Verify) -> Service {
    let groups = groups.iter().map(|group| GroupName::from(*group)).collect();
    Service {
        name: name.into(),
        groups,
        verify,
        shutdown: s(10),
        deadline: s(60),
        longest_request: None,
        keep_alive: None,
    }
}

fn http(url: &str, json: &[(&str, &str)]) -> Verify {
    let json = json.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Verify::Http { url: url.to_owned(), status: 200, json, host: None }
}

fn server(name: &str, id: &str, zone: &str) -> Server {
    let target = TargetSpec { id: id.into(), port: None };
    Server {
        name: name.into(),
        ssh: format!("deploy@{name}"),
        targets: [(GroupName::from("mythex-api"), vec![target])].into(),
        zone: Some(zone.into()),
        tags: Vec::new(),
    }
}

fn example_balancer() -> Balancer {
    let settings = HealthSettings { interval: s(5), timeout: s(2), unhealthy: 2, healthy: 2 };
    Balancer {
        kind: BalancerKind::Alb,
        region: Some("eu-central-1".to_owned()),
        endpoint: None,
        nodes: Vec::new(),
        idle_timeout: Duration::from_secs(60),
        groups: vec![Group {
            name: "mythex-api".into(),
            port: 8080,
            health: HealthCheck { path: "/health".to_owned(), port: None, url: None, settings },
            deregistration_delay: s(30),
            cross_zone: true,
            fail_open_count: 1,
            fail_open_percent: None,
            slow_start: Duration::ZERO,
        }],
    }
}

fn example() -> Fleet {
    let rolling = Rolling {
        batch: Batch::Count(1),
        min_healthy: 1,
        pause: s(0),
        stable: s(5),
        on_failure: OnFailure::Rollback,
        on_loss: OnLoss::Halt,
    };
    let drain = Drain {
        by: DrainBy::File { path: "/run/mythex/drain".to_owned() },
        real: Some("http://127.0.0.1:8080/version".to_owned()),
        serve: s(15),
        max: s(150),
        margin: s(10),
        back: Some(s(60)),
        counter: None,
        unverified_return: false,
        state: AdminState::Maint,
    };
    let check = vec!["publish-worker".to_owned(), "--self-check".to_owned()];
    Fleet {
        app: "mythex".to_owned(),
        release: ReleaseSpec {
            compose: "compose.yaml".to_owned(),
            files: vec!["gateway.toml".to_owned()],
            env: vec![".env.production".to_owned()],
            vars: vec!["TAG".to_owned()],
            dir: "/opt/mythex".to_owned(),
            keep: 5,
        },
        ssh: Ssh { sudo: false, host_keys: HostKeys::Strict, parallel: 20 },
        rolling,
        lock: LockSpec { path: "/opt/mythex/lock".to_owned(), wait: s(600), lease: s(30), bootstrap: Some(s(300)) },
        balancer: example_balancer(),
        drain,
        services: vec![
            Service {
                longest_request: Some(s(8)),
                keep_alive: Some(s(75)),
                ..service("api", &["mythex-api"], http("http://127.0.0.1:8080/version", &[("version", "{release}")]))
            },
            service("orchestrator", &[], http("http://127.0.0.1:8090/health", &[])),
            service("gateway", &[], http("http://127.0.0.1:8000/health", &[])),
            service("publish-worker", &[], Verify::Exec { argv: check }),
        ],
        servers: vec![
            server("web-1", "i-0a1b2c3d4e5f60718", "eu-central-1a"),
            server("web-2", "i-0b2c3d4e5f6071829", "eu-central-1b"),
            server("web-3", "i-0c3d4e5f60718293a", "eu-central-1c"),
        ],
        watchdog: Watchdog {
            interval: s(60),
            strikes: 4,
            heals: 3,
            window: s(3600),
            on_heal: Vec::new(),
            on_give_up: Vec::new(),
            textfile: None,
        },
        hooks: Hooks::default(),
        run_once: Vec::new(),
        confirm: false,
        gateway: None,
        measure: Some(Measure { url: "https://api.mythex.example/version".to_owned(), rate: 20.0, timeout: s(10) }),
    }
}

#[test]
fn the_example_means_what_the_design_says() {
    let loaded = read(EXAMPLE).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.fleet, example());
    assert_eq!(loaded.warnings, []);
}

#[test]
fn the_examples_compose_file_has_no_writable_relative_mount() {
    assert_eq!(compose_text_problems(include_str!("../../compose.yaml"), "compose.yaml"), []);
}

#[test]
fn a_number_that_was_written_knows_its_line_and_a_default_has_none() {
    let loaded = read(SHORT).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.origin("balancer.kind").as_deref(), Some("deploy.toml:3"));
    assert_eq!(loaded.origin("service.w.verify.tcp").as_deref(), Some("deploy.toml:6"));
    assert_eq!(loaded.origin("rolling.stable"), None);
}

#[test]
fn targets_are_read_in_every_way_to_write_them() {
    let group = "[[balancer.group]]\nname = \"other\"\nport = 9000\nderegistration_delay = \"30s\"\n\
                 health = { path = \"/h\", interval = \"5s\", timeout = \"2s\", unhealthy = 2, healthy = 2 }\n\n[drain]";
    let text = EXAMPLE.replace("[drain]", group).replace(
        "\"i-0a1b2c3d4e5f60718\"",
        "{ other = [\"10.0.0.7:9001\", \"[fd00::7]:9002\"], mythex-api = \"fd00::8\" }",
    );
    let fleet = fleet(&text);
    let target = |id: &str, port| TargetSpec { id: id.into(), port };
    let first = &fleet.servers[0].targets;
    assert_eq!(first[&"other".into()], [target("10.0.0.7", Some(9001)), target("fd00::7", Some(9002))]);
    assert_eq!(first[&"mythex-api".into()], [target("fd00::8", None)]);
    assert_eq!(fleet.servers[1].targets.len(), 2, "a bare id stands in every group");
}

#[test]
fn every_way_to_drain_is_read() {
    let by = |word: &str, keys: &str| {
        let text = EXAMPLE.replace("by     = \"file\"", &format!("by = \"{word}\"\n{keys}"));
        fleet(&text.replace("file   = \"/run", "# file = \"/run")).drain.by
    };
    let http = by(
        "http",
        "http = { drain = \"http://localhost/d\", undrain = \"http://localhost/d\", method = \"PUT\", undrain_method = \"DELETE\" }",
    );
    let DrainBy::Http { drain, undrain } = http else { panic!("{http:?}") };
    assert_eq!((drain.method.as_str(), undrain.method.as_str()), ("PUT", "DELETE"));
    let exec = by("exec", "exec = { drain = [\"a\"], undrain = [\"b\"] }");
    assert_eq!(exec, DrainBy::Exec { service: None, drain: vec!["a".into()], undrain: vec!["b".into()] });
    let signal = by("signal", "signal = { service = \"api\", drain = \"SIGUSR1\", undrain = \"SIGUSR2\" }");
    assert_eq!(signal.word(), "signal");
    assert_eq!(by("sigterm", ""), DrainBy::Sigterm);
    assert_eq!(by("deregister", ""), DrainBy::Deregister);
}

#[test]
fn haproxy_nodes_are_reached_in_every_way_and_its_own_defaults_hold() {
    let text = EXAMPLE
        .replace(
            "kind   = \"alb\"",
            "kind = \"haproxy\"\nnodes = [\"/run/a.sock\", \"10.0.0.5:9999\", \"ssh://me@lb/run/b.sock\"]",
        )
        .replace("region = \"eu-central-1\"", "")
        .replace("deregistration_delay = \"30s\"", "");
    let balancer = fleet(&text).balancer;
    let ssh = RuntimeSocket::Ssh { destination: "me@lb".into(), path: "/run/b.sock".into() };
    let nodes = vec![RuntimeSocket::File("/run/a.sock".into()), RuntimeSocket::Tcp("10.0.0.5:9999".into()), ssh];
    assert_eq!((balancer.kind, balancer.nodes), (BalancerKind::Haproxy, nodes));
    assert_eq!(balancer.groups[0].fail_open_count, 0, "HAProxy never sends anything to a server that is down");
    assert_eq!(balancer.groups[0].deregistration_delay, s(30));
    let by_haproxy = text
        .replace("by     = \"file\"", "by = \"deregister\"\nstate = \"drain\"")
        .replace("file   = \"/run", "# \"/run");
    assert_eq!(fleet(&by_haproxy).drain.state, AdminState::Drain);
    let injected = lines(&text.replace("\"i-0a1b2c3d4e5f60718\"", "\"web-1;show\""));
    assert!(injected.iter().any(|line| line.contains("HAProxy has no backend or server `web-1;show`")), "{injected:?}");
}

#[test]
fn fields_may_be_nested_and_need_not_be_texts() {
    let text = EXAMPLE
        .replace("json = { version = \"{release}\" }", "json = { build.release = \"{release}\", ready = true, n = 3 }");
    let Verify::Http { json, .. } = &fleet(&text).services[0].verify else { panic!("http") };
    let expected = [("build.release", "{release}"), ("n", "3"), ("ready", "true")];
    assert!(json.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected), "{json:?}");
}

proptest! {
    #[test]
    fn no_text_panics_the_parser(text in "(\\PC|[\\[\\]=\"'{}.,\n\t]){0,200}") {
        if let Err(problems) = read(&text) {
            prop_assert!(!problems.render(true).is_empty());
        }
        drop(compose_text_problems(&text, "compose.yaml"));
    }

    #[test]
    fn no_damaged_example_panics_the_parser(
        from in 0..EXAMPLE.len(), length in 0usize..40, put in "(\\PC|[\\[\\]=\"{}0-9\n]){0,12}",
    ) {
        let mut text = EXAMPLE.to_owned();
        let to = (from + length).min(text.len());
        text.replace_range(from..to, &put);
        if let Err(problems) = read(&text) {
            prop_assert!(problems.to_string().contains("deploy.toml:"), "{problems}");
        }
    }
}
