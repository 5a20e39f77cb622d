//! The rows of the key table that are about the fleet: balancer, drain, services, servers.
//!
//! It may know nothing but values; `keys` gives them their meaning.

use super::rows::{ANY_TIME, DAY, SOME_TIME, count, key};
use super::{ANY, Form, Key, Kind, Need};
use Need::{Computed, Default, Optional, Required};

const COMMAND: Kind = Kind::List { form: Form::Line, empty: false };
const HOUR: u64 = 3_600_000;

#[rustfmt::skip]
pub(super) const FLEET_ROWS: &[Key] = &[
    key("balancer", "kind", Kind::Word { now: &["alb", "haproxy", "none"], later: &[] }, Required, "\"alb\"", "`alb` is an AWS Application Load Balancer, `haproxy` one or several HAProxy nodes; with `none` the servers have no targets (workers)."),
    key("balancer", "region", Kind::Text(Form::Name), Optional, "\"eu-central-1\"", "The AWS region; without it the SDK's own order (environment, profile) decides."),
    key("balancer", "endpoint", Kind::Text(Form::Url), Optional, "\"http://127.0.0.1:4566\"", "Another address for the API: a lab, a VPC endpoint. AWS's own ranges are not checked then."),
    key("balancer", "idle_timeout", Kind::Duration { min: 1000, max: 4_000_000 }, Default("\"60s\""), "\"60s\"", "How long the balancer keeps an idle connection; the app must keep it longer. AWS's own default."),
    key("balancer", "nodes", Kind::List { form: Form::Socket, empty: false }, Optional, "[\"/run/haproxy/admin.sock\", \"ssh://deploy@lb-2/run/haproxy/admin.sock\"]", "With `haproxy`: the runtime socket of every node that sends traffic: a file here, `HOST:PORT`, or a file on another machine by SSH. Its level is `admin` where a deploy tells HAProxy to let go, else `operator`."),
    key("balancer", "group", Kind::Tables("balancer.group"), Optional, "[{ name = \"mythex-api\" }]", "The target groups, in any order; with `haproxy` the backends."),

    key("balancer.group", "name", Kind::Text(Form::Group), Required, "\"mythex-api\"", "Name or ARN; the backend's name with `haproxy`."),
    key("balancer.group", "port", count(1, 65_535, "port"), Required, "8080", "The port that targets take traffic on."),
    key("balancer.group", "health", Kind::Table("balancer.group.health"), Required, "{ path = \"/health\", interval = \"5s\", timeout = \"2s\", unhealthy = 2, healthy = 2 }", "The balancer's health check."),
    key("balancer.group", "deregistration_delay", Kind::Duration { min: 0, max: HOUR }, Computed("`300s`, AWS's own default; `30s` with `haproxy`"), "\"30s\"", "How long a target that is let go may finish its requests."),
    key("balancer.group", "cross_zone", Kind::Bool, Default("true"), "false", "Whether healthy targets are counted over all zones together, or in each zone by itself."),
    key("balancer.group", "fail_open_count", count(1, ANY, "targets"), Default("1"), "2", "With fewer healthy targets than this the balancer routes to all of them, drained ones included."),
    key("balancer.group", "fail_open_percent", count(0, 100, "percent"), Optional, "50", "Likewise as a share of the registered targets; `0` is off, and so is leaving it out."),
    key("balancer.group", "slow_start", Kind::Duration { min: 0, max: 900_000 }, Default("\"0s\""), "\"30s\"", "How long the share of a target that came back grows; `0s` is off."),

    key("balancer.group.health", "path", Kind::Text(Form::UrlPath), Required, "\"/health\"", "The path that is asked."),
    key("balancer.group.health", "port", count(1, 65_535, "port"), Computed("the group's `port`"), "8081", "The port that is asked, where it is not the traffic port."),
    key("balancer.group.health", "url", Kind::Text(Form::LocalUrl), Computed("`http://127.0.0.1:PORT/PATH`"), "\"http://127.0.0.1:18080/health\"", "Where the server itself asks for the same endpoint."),
    key("balancer.group.health", "interval", SOME_TIME, Required, "\"5s\"", "From the start of one check to the start of the next."),
    key("balancer.group.health", "timeout", SOME_TIME, Required, "\"2s\"", "An answer must come within; shorter than the interval."),
    key("balancer.group.health", "unhealthy", count(1, ANY, "checks"), Required, "2", "So many failures in a row take a target out."),
    key("balancer.group.health", "healthy", count(1, ANY, "checks"), Required, "2", "So many successes in a row bring it back. With `haproxy` the running process says `fall` and `rise` itself; `interval` is its `inter`, which it does not tell."),

    key("drain", "by", Kind::Word { now: &["file", "http", "exec", "signal", "sigterm", "deregister", "gateway", "hold"], later: &[] }, Computed("needed where there are groups"), "\"file\"", "How health is made to fail on purpose: a file that the app looks for, two calls, two commands, two signals, its own way when told to stop, the balancer being told to let go, or the gateway, which looks for a file too and sees every node that asks for its health ([nodes.md](nodes.md)). With `hold` health goes on passing, and the gateway holds every request until the services behind it run again: for one server, or the last healthy one ([nodes.md](nodes.md#a-fleet-of-one))."),
    key("drain", "state", Kind::Word { now: &["maint", "drain"], later: &[] }, Computed("`maint`"), "\"drain\"", "With `haproxy` and `by = \"deregister\"`: the state in which HAProxy lets go. With `drain` persistent sessions still go there, and are waited for."),
    key("drain", "file", Kind::Text(Form::File), Optional, "\"/run/mythex/drain\"", "With `by = \"file\"` or `\"gateway\"`: while this file is there, health answers 503. With `gateway` it is the gateway's `drain_file`; where it is left out, `/run/APP/drain`. With `hold` it is the gateway's `hold_file`, or `/run/APP/hold`."),
    key("drain", "nodes", Kind::Table("drain.nodes"), Optional, "{ from = [\"10.0.0.0/16\"] }", "With `by = \"gateway\"`: whom the gateway counts, and where it tells ([nodes.md](nodes.md))."),
    key("drain", "hold", Kind::Table("drain.hold"), Optional, "{ service = \"gateway\" }", "With `by = \"hold\"`: the gateway that holds the requests ([nodes.md](nodes.md#a-fleet-of-one))."),
    key("drain", "http", Kind::Table("drain.http"), Optional, "{ drain = \"http://127.0.0.1:8080/drain\", undrain = \"http://127.0.0.1:8080/undrain\" }", "With `by = \"http\"`: two calls to the app."),
    key("drain", "exec", Kind::Table("drain.exec"), Optional, "{ drain = [\"api\", \"drain\"], undrain = [\"api\", \"undrain\"], service = \"api\" }", "With `by = \"exec\"`: two commands."),
    key("drain", "signal", Kind::Table("drain.signal"), Optional, "{ service = \"api\", drain = \"SIGUSR1\", undrain = \"SIGUSR2\" }", "With `by = \"signal\"`: two signals to a service's containers."),
    key("drain", "real", Kind::Text(Form::LocalUrl), Optional, "\"http://127.0.0.1:8080/version\"", "A URL on the server that answers 200 while health answers 503: the proof that real traffic goes on. Needed for every way but `deregister` and `hold`."),
    key("drain", "serve", ANY_TIME, Default("\"15s\""), "\"15s\"", "Real traffic is served at least this long after health began to fail."),
    key("drain", "max", SOME_TIME, Default("\"150s\""), "\"150s\"", "Not out by then: flip back, give up. With `hold`: how long the requests that were let through before may take to end; whoever comes meanwhile waits."),
    key("drain", "margin", ANY_TIME, Default("\"10s\""), "\"10s\"", "Allowed for the balancer's own lag."),
    key("drain", "back", SOME_TIME, Computed("what the health checks need at worst, and half as much again"), "\"60s\"", "Not back in rotation so long after health passes: rolled back."),
    key("drain", "counter", Kind::Table("drain.counter"), Optional, "{ http = \"http://127.0.0.1:8080/stats\", json = \"requests\" }", "The server's own count of real requests; the stop waits until it is silent."),
    key("drain", "unverified_return", Kind::Bool, Default("false"), "true", "Consent to a server that may be back in rotation before it is verified (`http`, `exec`, `signal`: the state dies with the process)."),

    key("drain.nodes", "count", Kind::Text(Form::LocalUrl), Default("\"http://127.0.0.1:9180/nodes\""), "\"http://127.0.0.1:9180/nodes\"", "Where the gateway tells who asked for its health: `/nodes` beside its `/metrics`."),
    key("drain.nodes", "from", Kind::List { form: Form::Network, empty: true }, Computed("anywhere but on the server itself"), "[\"10.0.0.0/16\"]", "Where the balancer's nodes are. An address of the server itself, of Docker's bridge or of a proxy counts only where it is named here."),
    key("drain.nodes", "agent", Kind::Text(Form::Line), Computed("`ELB-HealthChecker` with `kind = \"alb\"`, else any"), "\"ELB-HealthChecker\"", "How the `User-Agent` of the balancer's checks begins."),
    key("drain.hold", "told", Kind::Text(Form::LocalUrl), Default("\"http://127.0.0.1:9180/hold\""), "\"http://127.0.0.1:9180/hold\"", "Where the gateway tells what it holds: `/hold` beside its `/metrics`."),
    key("drain.hold", "service", Kind::Text(Form::Service), Computed("the gateway is no service of this file, and a deploy leaves it alone"), "\"gateway\"", "The service that is the gateway. It is not stopped with the others; a new release of it takes the listeners over from the one that runs, so it must run with `--take-over` and `gateway.control` on the server's own network."),

    key("drain.http", "drain", Kind::Text(Form::LocalUrl), Required, "\"http://127.0.0.1:8080/drain\"", "Makes health fail."),
    key("drain.http", "undrain", Kind::Text(Form::LocalUrl), Required, "\"http://127.0.0.1:8080/undrain\"", "Makes it pass again."),
    key("drain.http", "method", Kind::Word { now: &["GET", "POST", "PUT", "DELETE"], later: &[] }, Default("\"POST\""), "\"PUT\"", "The method of both calls."),
    key("drain.http", "undrain_method", Kind::Word { now: &["GET", "POST", "PUT", "DELETE"], later: &[] }, Computed("the same as `method`"), "\"DELETE\"", "The method of the second call, where it is another."),

    key("drain.exec", "drain", COMMAND, Required, "[\"api\", \"drain\"]", "Makes health fail; program and arguments, no shell."),
    key("drain.exec", "undrain", COMMAND, Required, "[\"api\", \"undrain\"]", "Makes it pass again."),
    key("drain.exec", "service", Kind::Text(Form::Service), Optional, "\"api\"", "In this service's container; on the server itself where it is left out."),

    key("drain.signal", "service", Kind::Text(Form::Service), Required, "\"api\"", "Whose containers."),
    key("drain.signal", "drain", Kind::Text(Form::Signal), Required, "\"SIGUSR1\"", "Makes health fail."),
    key("drain.signal", "undrain", Kind::Text(Form::Signal), Required, "\"SIGUSR2\"", "Makes it pass again."),

    key("drain.counter", "http", Kind::Text(Form::LocalUrl), Required, "\"http://127.0.0.1:8080/stats\"", "The URL that is asked."),
    key("drain.counter", "json", Kind::Text(Form::Name), Required, "\"requests\"", "The field of its JSON answer, dots for nesting."),

    key("service", "name", Kind::Text(Form::Service), Required, "\"api\"", "Its name in the compose file."),
    key("service", "group", Kind::TextOrList(Form::Group), Default("[]"), "\"mythex-api\"", "The groups whose traffic it takes."),
    key("service", "verify", Kind::Table("service.verify"), Required, "{ http = \"http://127.0.0.1:8080/version\", json = { version = \"{release}\" } }", "How it is proved to work, on the server itself, while health answers 503: one of `http`, `tcp`, `exec` and `heartbeat`."),
    key("service", "shutdown", ANY_TIME, Default("\"10s\""), "\"10s\"", "How long it needs to shut down; its `stop_grace_period` in the compose file must be longer."),
    key("service", "deadline", SOME_TIME, Default("\"60s\""), "\"60s\"", "From start to verified."),
    key("service", "longest_request", SOME_TIME, Optional, "\"8s\"", "How long one of its requests may take; `handover check` holds other numbers to it."),
    key("service", "keep_alive", SOME_TIME, Optional, "\"75s\"", "How long the app keeps an idle connection; `handover check` holds it to the balancer's."),

    key("service.verify", "http", Kind::Text(Form::LocalUrl), Optional, "\"http://127.0.0.1:8080/version\"", "A URL answers; never the health check's own."),
    key("service.verify", "status", count(100, 599, "status"), Default("200"), "204", "With `http`: the status it must answer with."),
    key("service.verify", "json", Kind::Fields, Default("{}"), "{ version = \"{release}\" }", "With `http`: fields of its JSON answer (dots for nesting) and their values; `{release}` is the release's first twelve digits."),
    key("service.verify", "host", Kind::Text(Form::Name), Optional, "\"api.mythex.example\"", "With `http`: sent as `Host`, where the app insists on one."),
    key("service.verify", "tcp", Kind::Text(Form::Address), Optional, "\"127.0.0.1:5432\"", "A port accepts connections."),
    key("service.verify", "exec", COMMAND, Optional, "[\"publish-worker\", \"--self-check\"]", "A command in the service's container ends with 0; program and arguments, no shell."),
    key("service.verify", "heartbeat", Kind::Text(Form::File), Optional, "\"/run/mythex/publish-worker.alive\"", "A file on the server was touched after the service was started, and not long ago."),
    key("service.verify", "age", Kind::Duration { min: 1, max: DAY }, Optional, "\"10s\"", "With `heartbeat`: not longer ago than this. Needed there."),

    key("server", "name", Kind::Text(Form::Name), Required, "\"web-1\"", "Its name."),
    key("server", "ssh", Kind::Text(Form::Ssh), Required, "\"deploy@web-1\"", "Whatever `ssh` accepts, ~/.ssh/config included."),
    key("server", "target", Kind::Targets, Optional, "\"i-0a1b2c3d4e5f60718\"", "What the balancer calls it (with `haproxy` the server's name in the backend): `ID` or `ID:PORT`, one or a list, in every group; or a table of those by group."),
    key("server", "zone", Kind::Text(Form::Name), Optional, "\"eu-central-1a\"", "Its availability zone."),
    key("server", "tags", Kind::List { form: Form::Name, empty: true }, Default("[]"), "[\"canary\"]", "Words of your own: `--servers tag:canary` means the servers that have it."),
];
