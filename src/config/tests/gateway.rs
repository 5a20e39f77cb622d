//! The gateway's tables, in a file of their own and in deploy.toml.

use super::{EXAMPLE, SHORT, fleet, read, s};
use crate::config::{Compose, Mutation, Source, gateway_from, mutations};
use crate::fleet::model::{GatewaySpec, HostName, Known};
use std::collections::BTreeSet;

const FULL: &str = "\
[gateway]
listen = [\"0.0.0.0:8000\", \"[::]:8000\"]
trusted_proxies = [\"10.0.0.0/16\"]
[[gateway.host]]
name = \"CMS.example.org.\"
aliases = [\"bücher.example\"]
backend = \"https://app\"
protocol = \"http2\"
allow = [\"203.0.113.0/24\"]
class = [{ user_agent = \"mcp\", hold = \"25s\" }]
[[gateway.host]]
name = \"[2001:DB8::1]\"
backend = \"http://[::1]:9000/\"
";

fn gateway(text: &str) -> Result<GatewaySpec, Vec<String>> {
    let read = gateway_from(&Source::new("gateway.toml", text), None);
    read.map(|(spec, _)| spec).map_err(|problems| problems.iter().map(|problem| problem.line()).collect())
}

#[test]
fn a_file_of_its_own_is_read_with_every_default_filled_in() {
    let spec = gateway(FULL).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    assert_eq!((spec.listen.len(), spec.metrics.to_string().as_str()), (2, "127.0.0.1:9180"));
    assert_eq!((spec.keep_alive, spec.held, spec.shutdown), (s(75), 20_000, s(60)));
    let host = &spec.hosts[0];
    assert_eq!((host.name.as_str(), host.aliases[0].as_str()), ("cms.example.org", "xn--bcher-kva.example"));
    assert_eq!(
        (host.backend.host.as_str(), host.backend.port, host.backend.tls, host.backend.http2),
        ("app", 443, true, true)
    );
    assert_eq!((host.hold, host.classes[0].hold, host.allow.as_ref().map(Vec::len)), (s(50), s(25), Some(1)));
    assert_eq!(spec.hosts[1].name, HostName::parse("[2001:db8::1]").expect("a host"));
    assert_eq!((spec.hosts[1].backend.host.as_str(), spec.hosts[1].allow.as_ref()), ("::1", None));
}

#[test]
fn the_same_tables_mean_the_same_in_deploy_toml() {
    let whole = format!("{SHORT}{FULL}");
    assert_eq!(fleet(&whole).gateway.as_ref(), gateway(FULL).ok().as_ref());
    assert_eq!(gateway(&whole), gateway(FULL));
    assert_eq!(fleet(SHORT).gateway, None);
    let none = gateway(SHORT).expect_err("there is none");
    assert!(none[0].contains("says nothing of a gateway"), "{none:?}");
    let wrong = gateway(&whole.replace("ssh = \"s\"", "sssh = \"s\"")).expect_err("it is checked as a whole");
    assert!(wrong.iter().any(|line| line.contains("unknown key `sssh`")), "{wrong:?}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let rows = [
        ("listen = [\"0.0.0.0:8000\", \"[::]:8000\"]\n", "", "the gateway listens nowhere"),
        ("listen = [", "metrics = \"0.0.0.0:8000\"\nlisten = [", "two listeners"),
        ("listen = [", "listen_tls = \"0.0.0.0:8443\"\nlisten = [", "needs a certificate"),
        (
            "[[gateway.host]]\nname = \"CMS",
            "[[gateway.certificate]]\ncert = \"/c\"\nkey = \"/k\"\n[[gateway.host]]\nname = \"CMS",
            "no effect without `listen_tls`",
        ),
        ("bücher.example", "cms.EXAMPLE.org", "two hosts `cms.example.org`"),
        ("user_agent = \"mcp\", ", "", "`gateway.host.class` names nobody"),
        ("name = \"[2001", "ca = \"/x\"\nname = \"[2001", "no effect with an http:// backend"),
        (
            "[[gateway.host]]\nname = \"CMS",
            "[[gateway.probe]]\n[[gateway.host]]\nname = \"CMS",
            "`gateway.probe` names nobody",
        ),
        ("0.0.0.0:8000\"", "0.0.0.0:0\"", "`gateway.listen` must be"),
        ("10.0.0.0/16", "10.0.0.1/16", "write `10.0.0.0/16`"),
        ("https://app", "https://app/x", "it has a path"),
        ("class =", "connect_interval = \"1s\"\nclass =", "`gateway.host.connect_interval` must be"),
        ("class =", "sleep = { services = [\"a\"], after = \"1h\" }\nclass =", "`gateway.sleep.project` is missing"),
        ("class =", "sleep = { services = [\"a\"] }\nclass =", "`gateway.host.sleep.after` is missing"),
        ("class =", "sleep = { services = [], after = \"1h\" }\nclass =", "`gateway.host.sleep.services`"),
        ("class =", "sleep = { services = [\"a\", \"a\"], after = \"1h\" }\nclass =", "`a` is put to sleep twice"),
        ("class =", "sleep = { services = [\"a\"], after = \"1h\", stay = [\"a\"] }\nclass =", "`a` sleeps and stays"),
        ("class =", "hold = \"0s\"\nsleep = { services = [\"a\"], after = \"1h\" }\nclass =", "needs `hold`"),
        ("class =", "sleep = { services = [\"a\"], after = \"30\" }\nclass =", "`30` has no unit"),
        (
            "[[gateway.host]]\nname = \"CMS",
            "[gateway.sleep]\ndir = \"/o\"\n[[gateway.host]]\nname = \"CMS",
            "no host sleeps",
        ),
    ];
    for (old, new, wanted) in rows {
        assert!(FULL.contains(old), "{old}");
        let found = gateway(&FULL.replacen(old, new, 1)).expect_err(wanted);
        assert!(found.iter().any(|line| line.contains(wanted)), "{wanted}: {found:?}");
    }
}

/// A gateway beside the example: whatever one of its numbers becomes, something notices, or it is said why nothing need.
#[test]
fn every_number_of_a_gateway_is_guarded_or_free_with_its_reason() {
    let more = "[gateway]\nlisten = \"0.0.0.0:8000\"\nworkers = 2\nwatch = \"2s\"\n[[gateway.host]]\nname = \"a\"\nbackend = \"http://b\"\nanswer_timeout = \"50s\"\nbody_bytes = 10\nclass = [{ path = \"/x\", hold = \"5s\" }]\nsleep = { services = [\"api\"], after = \"30m\" }\n";
    let loaded = read(&format!("{EXAMPLE}{more}")).unwrap_or_else(|problems| panic!("{problems}"));
    let unknown: Compose = Known::Unknown("not asked".to_owned());
    let found = mutations(&loaded, &unknown);
    let of_gateway = |mutation: &&Mutation| mutation.key.starts_with("gateway.");
    let unguarded: Vec<_> = found.iter().filter(of_gateway).filter(|mutation| mutation.is_unguarded()).collect();
    assert!(unguarded.is_empty(), "{unguarded:#?}");
    let caught: BTreeSet<&str> =
        found.iter().filter(of_gateway).flat_map(|mutation| &mutation.caught_by).map(String::as_str).collect();
    for relation in ["gateway-keep-alive-above-idle", "hold-within-idle", "hold-within-shutdown"] {
        assert!(caught.contains(relation), "{relation} in {caught:?}");
    }
}

#[test]
fn what_sleeps_is_found_where_deploys_put_it() {
    let sleeps = "[gateway]\nlisten = \"0.0.0.0:8000\"\n[[gateway.host]]\nname = \"a\"\nbackend = \"http://b\"\nsleep = { services = [\"w\"], after = \"30m\", stay = [\"consumer\"] }\n";
    let spec = fleet(&format!("{SHORT}{sleeps}")).gateway.expect("a gateway");
    let place = spec.sleep.expect("somebody sleeps");
    assert_eq!((place.project.as_str(), place.dir.as_str(), place.lock.as_str()), ("a", "/opt/a", "/opt/a/lock"));
    assert_eq!(place.docker, "/var/run/docker.sock");
    let sleep = spec.hosts[0].sleep.clone().expect("it sleeps");
    assert_eq!((sleep.after, sleep.start, sleep.awake, sleep.tries), (s(1800), s(40), s(60), 3));
    let own =
        sleeps.replacen("[[gateway.host]]", "[gateway.sleep]\nproject = \"p\"\ndir = \"/srv/p/\"\n[[gateway.host]]", 1);
    let place = gateway(&own).expect("fine").sleep.expect("somebody sleeps");
    assert_eq!((place.project.as_str(), place.dir.as_str(), place.lock.as_str()), ("p", "/srv/p", "/srv/p/lock"));
    let strange = gateway(&format!("{SHORT}{}", sleeps.replace("\"w\"", "\"cms\""))).expect_err("not deployed");
    assert!(strange.iter().any(|line| line.contains("no service `cms` in deploy.toml")), "{strange:?}");
}

#[test]
fn a_workload_of_a_cluster_needs_who_shows_it_to_its_hpa_and_sleeps_one_way() {
    let workload = "workload = \"tenant-example/deployment/app-backend\"\n";
    let external =
        "[gateway.external_metrics]\nlisten = \"0.0.0.0:6443\"\ncert = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\n";
    let with = |more: &str, host: &str| {
        format!(
            "[gateway]\nlisten = \"0.0.0.0:8000\"\n{more}[[gateway.host]]\nname = \"a\"\nbackend = \"http://b\"\n{host}"
        )
    };
    let spec = gateway(&with(external, workload)).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    assert_eq!(
        spec.hosts[0].workload.as_ref().map(ToString::to_string).as_deref(),
        Some("tenant-example/deployment/app-backend")
    );
    assert_eq!(spec.external_metrics.map(|one| one.latch), Some(s(30)));
    for (more, host, expected) in [
        ("", workload.to_owned(), "needs `gateway.external_metrics`"),
        (external, workload.replace("tenant-example/", ""), "gateway.host.workload"),
        (external, workload.replace("deployment", "daemonset"), "is no kind that can sleep"),
        (
            external,
            format!("{workload}sleep = {{ services = [\"w\"], after = \"30m\" }}\n"),
            "by `sleep` on a server or by `workload`",
        ),
    ] {
        let wrong = gateway(&with(more, &host)).expect_err(&host);
        assert!(wrong.iter().any(|one| one.contains(expected)), "{host}: {wrong:?}");
    }
    let twice = gateway(&with(&external.replace("6443", "8000"), "")).expect_err("one address");
    assert!(twice[0].contains("two listeners"), "{twice:?}");
}
