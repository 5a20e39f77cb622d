//! Broken files: what exactly is said of each, and that everything is said at once.

use super::{EXAMPLE, SHORT, lines, read};

/// One change to the example -> every line that is said of it, without the file's name.
#[rustfmt::skip]
const CHANGES: &[(&str, &str, &[&str])] = &[
    ("app = \"mythex\"", "app = \"Mythex\"", &[
        "4:7: `app` must be a Compose project name: small letters, digits, `_` and `-` only, beginning with a letter or digit",
    ]),
    ("app = \"mythex\"", "apps = \"mythex\"", &[
        "1:1: `app` is missing",
        "4:1: unknown key `apps` in deploy.toml",
    ]),
    ("keep    = 5", "keep    = \"5\"", &[
        "12:11: `release.keep` must be a whole number of releases, at least 1, not a string",
    ]),
    ("keep    = 5", "keep    = 99999999999999999999", &[
        "12:11: `release.keep` must be a whole number of releases, at least 1, not a number",
    ]),
    ("wait  = \"10m\"", "wait  = 600", &[
        "29:9: `lock.wait` must be a duration with a unit, not a bare number",
    ]),
    ("wait  = \"10m\"", "wait  = \"600\"", &[
        "29:9: `lock.wait`: `600` has no unit; write `600s` or `600ms`",
    ]),
    ("wait  = \"10m\"", "wait  = \"10 parsecs\"", &[
        "29:9: `lock.wait`: `10 parsecs` is no duration (unknown time unit \"parsecs\", supported units: ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations)); write it like `15s` or `2m30s`",
    ]),
    ("wait  = \"10m\"", "wait  = \"10y\"", &[
        "29:9: `lock.wait` must be at most 24h, not 10y",
    ]),
    ("lease = \"30s\"", "lease = \"3s\"", &[
        "30:9: `lock.lease` must be at least 5s, not 3s",
    ]),
    ("batch       = 1", "batch       = 0", &[
        "20:15: `rolling.batch` must be at least 1, not 0",
    ]),
    ("batch       = 1", "batch       = \"0%\"", &[
        "20:15: `rolling.batch` must be from 1% to 100%, not \"0%\"",
    ]),
    ("batch       = 1", "batch       = \"150%\"", &[
        "20:15: `rolling.batch` must be from 1% to 100%, not \"150%\"",
    ]),
    ("batch       = 1", "batch       = \"some\"", &[
        "20:15: `rolling.batch` must be a number of servers, at least 1, or a share such as \"25%\", not a string",
    ]),
    ("min_healthy = 1", "min_healthy = 3", &[
        "21:15: `rolling.min_healthy` is 3, with 3 servers that have targets",
    ]),
    ("on_failure  = \"rollback\"", "on_failure  = \"rolback\"", &[
        "24:15: `rolling.on_failure` must be \"rollback\", \"rollback-all\" or \"halt\", not \"rolback\"",
    ]),
    ("host_keys = \"strict\"", "host_keys = \"off\"", &[
        "16:13: `ssh.host_keys` must be \"strict\" or \"accept-new\", not \"off\"",
    ]),
    ("kind   = \"alb\"", "kind   = \"haproxy\"", &[
        "34:10: `balancer.kind = \"haproxy\"` needs `balancer.nodes`",
        "35:1: `balancer.region` has no effect with `kind = \"haproxy\"`",
        "41:1: `balancer.group.deregistration_delay` has no effect with `kind = \"haproxy\"`",
    ]),
    ("kind   = \"alb\"", "nodes = [\"run/admin.sock\", \"ssh://lb-1\", \"ssh://-oX/run/a\"]\nkind   = \"haproxy\"", &[
        "34:10: `balancer.nodes` must be /PATH, HOST:PORT or ssh://DESTINATION/PATH: write it as `/run/haproxy/admin.sock`, `10.0.0.5:9999` or `ssh://deploy@lb-1/run/haproxy/admin.sock`",
        "34:28: `balancer.nodes` must be /PATH, HOST:PORT or ssh://DESTINATION/PATH: write it as `/run/haproxy/admin.sock`, `10.0.0.5:9999` or `ssh://deploy@lb-1/run/haproxy/admin.sock`",
        "34:42: `balancer.nodes` must be /PATH, HOST:PORT or ssh://DESTINATION/PATH: write it as `/run/haproxy/admin.sock`, `10.0.0.5:9999` or `ssh://deploy@lb-1/run/haproxy/admin.sock`",
        "36:1: `balancer.region` has no effect with `kind = \"haproxy\"`",
        "42:1: `balancer.group.deregistration_delay` has no effect with `kind = \"haproxy\"`",
    ]),
    ("kind   = \"alb\"", "kind   = \"none\"", &[
        "35:1: `balancer.region` has no effect with `kind = \"none\"`",
        "37:1: `balancer.kind = \"none\"` has no target groups",
        "77:1: a server has no targets with `balancer.kind = \"none\"`",
        "83:1: a server has no targets with `balancer.kind = \"none\"`",
        "89:1: a server has no targets with `balancer.kind = \"none\"`",
    ]),
    ("by     = \"file\"", "by     = \"hold\"", &[
        "46:1: `drain.real` has no effect with `by = \"hold\"`",
        "56:21: `service.verify` asks the port at which the gateway holds every request meanwhile",
    ]),
    ("by     = \"file\"", "by     = \"file\"\nnodes = { from = [\"10.0.0.0/16\"] }", &[
        "45:1: `drain.nodes` has no effect with `by = \"file\"`",
    ]),
    ("by     = \"file\"", "by     = \"gateway\"\nnodes = { from = [\"10.0.0.1/16\"] }", &[
        "45:19: `drain.nodes.from` must be a network or an address: it has bits beyond its first 16: write `10.0.0.0/16`",
    ]),
    ("by     = \"file\"", "by     = \"http\"", &[
        "44:10: `drain.by = \"http\"` needs `drain.http`",
        "45:1: `drain.file` has no effect with `by = \"http\"`",
    ]),
    ("by     = \"file\"", "# by", &[
        "43:1: `drain.by` is missing",
    ]),
    ("file   = \"/run/mythex/drain\"", "# file", &[
        "44:10: `drain.by = \"file\"` needs `drain.file`",
    ]),
    ("file   = \"/run/mythex/drain\"", "file = \"run/drain\"", &[
        "45:8: `drain.file` must be the absolute path of a file: it does not begin with `/`",
    ]),
    ("file   = \"/run/mythex/drain\"", "file = \"/opt/mythex/lock\"", &[
        "45:8: `drain.file` is the lock's file",
    ]),
    ("real   = \"http://127.0.0.1:8080/version\"", "# real", &[
        "44:10: `drain.by = \"file\"` needs `drain.real`",
    ]),
    ("real   = \"http://127.0.0.1:8080/version\"", "real = \"http://localhost:8080/health/?x\"", &[
        "46:8: `drain.real` asks the health check of group `mythex-api`",
    ]),
    ("real   = \"http://127.0.0.1:8080/version\"", "real = \"https://localhost:8080/version\"", &[
        "46:8: `drain.real` must be an http:// URL: it begins with https://; a server asks itself without TLS",
    ]),
    ("verify   = { http = \"http://127.0.0.1:8080/version\"", "verify   = { http = \"http://[::1]:8080/health\"", &[
        "56:21: `service.verify` asks the health check of group `mythex-api`",
    ]),
    ("verify = { http = \"http://127.0.0.1:8090/health\" }", "verify = {}", &[
        "64:10: `service.verify` names no way to verify",
    ]),
    ("verify = { http = \"http://127.0.0.1:8090/health\" }", "verify = { http = \"http://localhost/\", tcp = \"localhost:1\" }", &[
        "64:10: `service.verify` names 2 ways: http, tcp",
    ]),
    ("verify = { http = \"http://127.0.0.1:8090/health\" }", "verify = { tcp = \"localhost\", status = 200 }", &[
        "64:18: `service.verify.tcp` must be HOST:PORT: write it as `127.0.0.1:8080`, or `[::1]:8080`",
        "64:31: `service.verify.status` has no effect without `http`",
    ]),
    ("verify = { http = \"http://127.0.0.1:8090/health\" }", "verify = { heartbeat = \"/run/x\" }", &[
        "64:24: `heartbeat` needs `age`",
    ]),
    ("interval = \"5s\"", "interval = \"2s\"", &[
        "40:41: the health check's interval (2s) must be longer than its timeout (2s)",
        "40:41: `interval` must be from 5s to 300s with AWS, not 2s",
    ]),
    ("interval = \"5s\"", "interval = \"5500ms\"", &[
        "40:41: `interval` must be whole seconds with AWS, not 5.5s",
    ]),
    ("unhealthy = 2", "unhealthy = 1", &[
        "40:75: `unhealthy` must be from 2 to 10 with AWS, not 1",
    ]),
    ("deregistration_delay = \"30s\"", "deregistration_delay = \"2h\"", &[
        "41:24: `balancer.group.deregistration_delay` must be at most 1h, not 2h",
    ]),
    ("group    = \"mythex-api\"", "group    = \"mythex-app\"", &[
        "55:12: there is no group `mythex-app`",
    ]),
    ("name   = \"web-2\"", "name   = \"web-1\"", &[
        "81:10: two servers `web-1`",
    ]),
    ("name   = \"web-2\"", "name   = \"web 2\"", &[
        "81:10: `server.name` must be a name: no spaces, no slashes, no `-` at the beginning",
    ]),
    ("ssh    = \"deploy@web-2\"", "ssh    = \"deploy@web-1\"", &[
        "82:10: two servers reached by ssh as `deploy@web-1`",
    ]),
    ("ssh    = \"deploy@web-2\"", "ssh    = \"-oProxyCommand=x\"", &[
        "82:10: `server.ssh` must be a destination for ssh: no spaces, no `-` at the beginning",
    ]),
    ("target = \"i-0b2c3d4e5f6071829\"", "target = \"i-0a1b2c3d4e5f60718\"", &[
        "83:10: target `i-0a1b2c3d4e5f60718` is named twice",
    ]),
    ("target = \"i-0b2c3d4e5f6071829\"", "target = { mythex-api = \"i-0a1b2c3d4e5f60718:8080\" }", &[
        "83:25: target `i-0a1b2c3d4e5f60718:8080` is named twice",
    ]),
    ("target = \"i-0b2c3d4e5f6071829\"", "target = { mythex-apo = \"i-0b\" }", &[
        "83:12: there is no group `mythex-apo`",
    ]),
    ("target = \"i-0b2c3d4e5f6071829\"", "target = \"i-0b:http\"", &[
        "83:10: `server.target` must be a target: ID or ID:PORT: write it as `i-0a1b2c3d4e5f60718`, `10.0.0.7:8080` or `[fd00::7]:8080`",
    ]),
    ("name   = \"gateway\"", "name   = \"orchestrator\"", &[
        "67:10: two services `orchestrator`",
    ]),
    ("files   = [\"gateway.toml\"]", "files   = [\"../gateway.toml\", \"/etc/x\", \"./y\"]", &[
        "8:12: `release.files` must be the path of a file relative to deploy.toml: it leads out of deploy.toml's folder with `..`",
        "8:31: `release.files` must be the path of a file relative to deploy.toml: it is not relative; only files beside deploy.toml are published",
        "8:41: `release.files` must be the path of a file relative to deploy.toml: write it plainly, without `./`, `//` or `/` at the end",
    ]),
    ("files   = [\"gateway.toml\"]", "files   = [\"compose.yaml\", \"a\", \"a/b\"]", &[
        "8:12: two files of one name: `compose.yaml`",
        "8:28: `a` cannot be a file and a folder",
    ]),
    ("vars    = [\"TAG\"]", "vars    = [\"TAG\", \"TAG\", \"HANDOVER_RELEASE\", \"A-B\"]", &[
        "10:19: two variables `TAG`",
        "10:26: `HANDOVER_RELEASE` is given by handover itself",
        "10:46: `release.vars` must be the name of a variable: letters, digits and `_` only, no digit at the beginning",
    ]),
    ("rate = 20", "rate = 0", &[
        "98:8: `measure.rate` must be above 0, at most 100000, not 0",
    ]),
    ("url  = \"https://api.mythex.example/version\"", "url = \"api.mythex.example\"", &[
        "97:7: `measure.url` must be an http:// or https:// URL: it does not begin with http:// or https://",
    ]),
    ("pause       = \"0s\"", "rate = 1", &[
        "22:1: unknown key `rate` in `rolling`",
    ]),
];

#[test]
fn every_broken_example_is_refused_with_exactly_these_lines() {
    for (from, to, expected) in CHANGES {
        assert!(EXAMPLE.contains(from), "{from}");
        let found = lines(&EXAMPLE.replacen(from, to, 1));
        let expected: Vec<String> = expected.iter().map(|line| format!("deploy.toml:{line}")).collect();
        assert_eq!(found, expected, "{to}");
    }
}

#[test]
fn several_mistakes_are_all_told_together() {
    // Changes that have nothing to do with each other: what is said of each alone is said of all together.
    let mut text = EXAMPLE.to_owned();
    let mut expected = Vec::new();
    let mut taken = Vec::new();
    for (from, to, said) in CHANGES.iter().filter(|(_, _, said)| said.len() == 1) {
        if taken.contains(from) || from.starts_with("by ") || from.starts_with("file ") || from.starts_with("kind ") {
            continue;
        }
        taken.push(from);
        text = text.replacen(from, to, 1);
        // The column may differ where two changes share a line.
        expected.push(said[0].split_once(": ").map_or("", |(_, said)| said));
    }
    let found = lines(&text);
    assert!(expected.len() >= 15, "{expected:?}");
    for said in expected {
        assert!(found.iter().any(|line| line.ends_with(said)), "{said}\nnot in {found:#?}");
    }
}

#[test]
fn a_problem_is_drawn_with_its_line_the_other_place_and_the_way_out() {
    let text = SHORT.replace("[balancer]", "[rolling]\nstabel = \"5s\"\n[balancer]")
        + "[[server]]\nname = \"s\"\nssh = \"t\"\n";
    let expected = "\
error: unknown key `stabel` in `rolling`
 --> deploy.toml:3:1
  |
3 | stabel = \"5s\"
  | ^^^^^^ not known here
  |
  = help: did you mean `stable`?

error: two servers `s`
  --> deploy.toml:13:8
   |
10 | name = \"s\"
   |        --- first here
...
13 | name = \"s\"
   |        ^^^ again here";
    assert_eq!(read(&text).expect_err("broken").to_string(), expected);
}

#[test]
fn every_error_of_syntax_is_told_and_what_is_missing_after_it_is_not() {
    let found = lines("app = \npause = 5 s\n[[server]]\nnam='a'\n[[server]\n");
    assert_eq!(
        found,
        [
            "deploy.toml:1:7: this is not TOML: string values must be quoted, expected literal string",
            "deploy.toml:2:9: this is not TOML: string values must be quoted, expected literal string",
            "deploy.toml:4:1: unknown key `nam` in `server`",
            "deploy.toml:5:10: this is not TOML: unclosed array table, expected `]`",
        ]
    );
}

#[test]
fn an_empty_file_is_told_everything_that_it_needs() {
    let found = lines("");
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(found[0], "deploy.toml:1:1: `app` is missing");
}

#[test]
fn a_lab_may_be_quicker_than_aws_but_not_quicker_than_its_own_timeout() {
    let lab = EXAMPLE.replace("region = \"eu-central-1\"", "endpoint = \"http://127.0.0.1:4566\"");
    let quick = lab.replace("interval = \"5s\", timeout = \"2s\"", "interval = \"1s\", timeout = \"500ms\"");
    assert_eq!(lines(&quick), [""; 0]);
    let slow = lab.replace("interval = \"5s\"", "interval = \"2s\"");
    assert_eq!(lines(&slow).len(), 1);
}

#[test]
fn the_health_path_on_another_port_or_another_machine_is_fine_and_so_is_it_without_a_flip() {
    let url = "verify   = { http = \"http://127.0.0.1:8080/version\"";
    for other in ["http://127.0.0.1:8081/health", "http://other:8080/health", "http://127.0.0.1:8080/healthz"] {
        assert_eq!(lines(&EXAMPLE.replace(url, &format!("verify = {{ http = \"{other}\""))), [""; 0], "{other}");
    }
    let deregister = EXAMPLE
        .replace(url, "verify = { http = \"http://127.0.0.1:8080/health\"")
        .replace("by     = \"file\"", "by     = \"deregister\"")
        .replace("file   = \"/run", "# \"/run");
    assert_eq!(lines(&deregister), [""; 0]);
}

#[test]
fn a_health_check_on_its_own_port_or_url_is_recognised_too() {
    let own = EXAMPLE.replace("health = { path = \"/health\"", "health = { path = \"/health\", port = 8090");
    assert!(lines(&own)[0].contains("service.verify` asks the health check"), "{:?}", lines(&own));
    let url = EXAMPLE.replace("health = { path", "health = { url = \"http://localhost:8090/health\", path");
    assert!(lines(&url)[0].contains("service.verify` asks the health check"), "{:?}", lines(&url));
}

#[test]
fn what_a_person_should_look_at_is_a_warning_and_the_file_is_taken() {
    let warned = |text: &str| -> Vec<String> {
        let loaded = read(text).unwrap_or_else(|problems| panic!("{problems}"));
        loaded.warnings.iter().map(|problem| problem.text.clone()).collect()
    };
    let worker = warned(&EXAMPLE.replace("target = \"i-0c3d4e5f60718293a\"", ""));
    assert_eq!(worker, ["this server has no target: the balancer sends it nothing, and nothing is drained"]);
    let strange = warned(&EXAMPLE.replace("i-0c3d4e5f60718293a", "web-3"));
    assert_eq!(strange, ["`web-3` is neither an instance id nor an IP address"]);
    let all = warned(&EXAMPLE.replace("batch       = 1", "batch       = \"100%\""));
    assert_eq!(all, ["a batch takes 3 of 3 servers out"]);
    let zones = EXAMPLE.replace("deregistration_delay", "cross_zone = false\nderegistration_delay");
    let zones = warned(&zones.replace("zone   = \"eu-central-1b\"", ""));
    assert_eq!(zones, ["this server has no `zone`, and a group counts its targets by zone"]);
}

#[test]
fn a_single_server_is_the_plans_business() {
    let from = EXAMPLE.find("[[server]]\nname   = \"web-2\"").expect("web-2");
    let to = EXAMPLE.find("[watchdog]").expect("watchdog");
    let mut one = EXAMPLE.to_owned();
    one.replace_range(from..to, "");
    assert_eq!(lines(&one), [""; 0]);
}
