//! The rows of the key table that are about the deploy itself: release, ssh, rolling, lock, watchdog, measure.
//!
//! It may know nothing but values; `keys` gives them their meaning.

use super::{ANY, Form, Key, Kind, Need};

pub(super) use super::fleet_rows::FLEET_ROWS;

/// No duration is longer than a day: a wait of weeks is a slip, and sums of a few stay far from any overflow.
pub(super) const DAY: u64 = 86_400_000;

pub(super) const ANY_TIME: Kind = Kind::Duration { min: 0, max: DAY };
pub(super) const SOME_TIME: Kind = Kind::Duration { min: 1, max: DAY };

pub(super) const fn key(
    table: &'static str,
    name: &'static str,
    kind: Kind,
    need: Need,
    example: &'static str,
    doc: &'static str,
) -> Key {
    Key { table, name, kind, need, doc, example }
}

pub(super) const fn count(min: i64, max: i64, unit: &'static str) -> Kind {
    Kind::Integer { min, max, unit }
}

const fn words(now: &'static [&'static str]) -> Kind {
    Kind::Word { now, later: &[] }
}

use Need::{Computed, Default, Optional, Required};

#[rustfmt::skip]
pub(super) const ROWS: &[Key] = &[
    key("", "app", Kind::Text(Form::Project), Required, "\"mythex\"", "The app, and always the Compose project's name too."),
    key("", "confirm", Kind::Bool, Default("false"), "true", "Whether whoever changes something must name the destination (the app, where `-d` names none): on a terminal when asked, elsewhere by `--confirm NAME`. `--yes` is no answer to it."),
    key("", "release", Kind::Table("release"), Optional, "{ compose = \"compose.yaml\" }", "What is published, and where it lies on every server."),
    key("", "ssh", Kind::Table("ssh"), Optional, "{ host_keys = \"strict\" }", "How servers are reached."),
    key("", "rolling", Kind::Table("rolling"), Optional, "{ batch = 1 }", "How a deploy goes through the fleet."),
    key("", "lock", Kind::Table("lock"), Optional, "{ wait = \"10m\" }", "The server lock, which deploy, bootstrap, watchdog and people's own scripts take."),
    key("", "balancer", Kind::Table("balancer"), Required, "{ kind = \"alb\" }", "Who sends the traffic."),
    key("", "drain", Kind::Table("drain"), Optional, "{ by = \"file\" }", "How a server leaves rotation, and how long that may take."),
    key("", "service", Kind::Tables("service"), Required, "[{ name = \"api\" }]", "The services of the compose file, each with its own proof that it works."),
    key("", "server", Kind::Tables("server"), Required, "[{ name = \"web-1\" }]", "The servers, in the order in which they are deployed to."),
    key("", "watchdog", Kind::Table("watchdog"), Optional, "{ strikes = 4 }", "The watchdog's numbers."),
    key("", "measure", Kind::Table("measure"), Optional, "{ url = \"https://api.mythex.example/version\" }", "What is asked through the balancer during a deploy; without it losses are not measured."),
    key("", "hooks", Kind::Table("hooks"), Optional, "{ pre_deploy = { run = [\"scripts/wait-for-green\"] } }", "Commands of your own that are run where the deploy is run from ([hooks.md](hooks.md))."),
    key("", "run_once", Kind::Tables("run_once"), Optional, "[{ name = \"migrate\", service = \"api\", run = [\"./manage.py\", \"migrate\"] }]", "What is run once for a release on one server, in this order, before any server leaves rotation ([hooks.md](hooks.md#run-once))."),
    key("", "gateway", Kind::Table("gateway"), Optional, "{ listen = \"0.0.0.0:8000\", host = [{ name = \"cms.example.org\", backend = \"http://127.0.0.1:9000\" }] }", "What `handover gateway` reads; it may stand in a file of its own, which has nothing but this table."),

    key("release", "compose", Kind::Text(Form::Beside), Default("\"compose.yaml\""), "\"compose.yaml\"", "The one definition of the services."),
    key("release", "files", Kind::List { form: Form::Beside, empty: true }, Default("[]"), "[\"gateway.toml\"]", "Files published beside it."),
    key("release", "env", Kind::List { form: Form::Beside, empty: true }, Default("[]"), "[\".env.production\"]", "Files published with mode 0600 and never printed."),
    key("release", "vars", Kind::List { form: Form::Variable, empty: true }, Default("[]"), "[\"TAG\"]", "Variables of the compose file that must be given, by `--set TAG=...` or the environment, where a release is made."),
    key("release", "dir", Kind::Text(Form::Folder), Computed("`/opt/<app>`"), "\"/opt/mythex\"", "The folder on every server."),
    key("release", "keep", count(1, ANY, "releases"), Default("5"), "5", "How many releases stay on a server."),

    key("ssh", "sudo", Kind::Bool, Default("false"), "true", "Whether the agent is started through `sudo -n`."),
    key("ssh", "host_keys", words(&["strict", "accept-new"]), Default("\"strict\""), "\"accept-new\"", "What to do with a host key that is not known; a changed one is always refused."),
    key("ssh", "parallel", count(1, 1000, "connections"), Default("20"), "20", "How many servers are spoken to at a time."),

    key("rolling", "batch", Kind::Batch, Default("1"), "\"25%\"", "How many servers are taken out at a time; a share is rounded down, but never to none."),
    key("rolling", "min_healthy", count(0, ANY, "servers"), Default("1"), "2", "How many targets must stay healthy in every counting scope, at any moment."),
    key("rolling", "pause", ANY_TIME, Default("\"0s\""), "\"30s\"", "The wait between two batches."),
    key("rolling", "stable", ANY_TIME, Default("\"5s\""), "\"5s\"", "How long a verified server must stay so."),
    key("rolling", "on_failure", words(&["rollback", "rollback-all", "halt"]), Default("\"rollback\""), "\"halt\"", "What happens when a server fails: it goes back to its previous release, so do the ones before it, or it is left out of rotation."),
    key("rolling", "on_loss", words(&["halt", "continue"]), Default("\"halt\""), "\"continue\"", "Whether a lost request stops the deploy before the next server, or is reported only."),

    key("lock", "path", Kind::Text(Form::File), Computed("`<release.dir>/lock`"), "\"/opt/mythex/lock\"", "The lock's file on every server: made once, never removed."),
    key("lock", "wait", ANY_TIME, Default("\"10m\""), "\"10m\"", "How long the server lock is waited for."),
    key("lock", "lease", Kind::Duration { min: 5000, max: DAY }, Default("\"30s\""), "\"30s\"", "A deploy that a server has not heard from for so long is dead."),
    key("lock", "bootstrap", SOME_TIME, Optional, "\"2m\"", "How long a server's bootstrap takes at most; `handover check` holds `wait` to it."),

    key("watchdog", "interval", Kind::Duration { min: 1000, max: DAY }, Default("\"60s\""), "\"60s\"", "Between two looks."),
    key("watchdog", "strikes", count(1, 1000, "failures"), Default("4"), "4", "So many failures in a row before it heals."),
    key("watchdog", "heals", count(1, 1000, "heals"), Default("3"), "3", "So many heals of one service within `window`, each longer after the last; then it is left alone and a person is called."),
    key("watchdog", "window", Kind::Duration { min: 1000, max: 30 * DAY }, Default("\"1h\""), "\"1h\"", "For so long a heal is remembered."),
    key("watchdog", "on_heal", Kind::List { form: Form::Line, empty: true }, Default("[]"), "[\"/usr/local/bin/page\", \"healed\"]", "A command that is run on the server after a heal; HANDOVER_SERVER, HANDOVER_SERVICES, HANDOVER_OUTCOME and HANDOVER_WHY say what happened."),
    key("watchdog", "on_give_up", Kind::List { form: Form::Line, empty: true }, Default("[]"), "[\"/usr/local/bin/page\", \"gave-up\"]", "A command that is run on the server when healing a service is given up; it is told the same."),
    key("watchdog", "textfile", Kind::Text(Form::File), Optional, "\"/var/lib/prometheus/node-exporter/handover.prom\"", "Where the watchdog writes its metrics for Prometheus' node exporter."),

    key("measure", "url", Kind::Text(Form::Url), Required, "\"https://api.mythex.example/version\"", "What is asked, through the balancer."),
    key("measure", "rate", Kind::Rate { unit: "requests per second" }, Default("20"), "20", "How often."),
    key("measure", "timeout", SOME_TIME, Default("\"10s\""), "\"10s\"", "No answer by then counts as reached nowhere."),
];
