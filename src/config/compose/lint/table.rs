//! The names of the hazards: why each is one and what the way out is. `docs/compose-lint.md` is written from this table.
//!
//! What Compose does was read in its sources (`pkg/compose/create.go`, `pkg/utils/durationutils.go`) or measured with 2.40.3.

use crate::config::problem::Severity::{self, Error, Warning};

/// A hazard.
#[derive(Debug, Clone, Copy)]
pub struct Lint {
    /// Its name.
    pub id: &'static str,
    /// What a finding of it means for a check.
    pub severity: Severity,
    /// What is so, in one sentence.
    pub what: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// The way out.
    pub way_out: &'static str,
}

const fn lint(
    id: &'static str,
    severity: Severity,
    what: &'static str,
    why: &'static str,
    way_out: &'static str,
) -> Lint {
    Lint { id, severity, what, why, way_out }
}

/// Every hazard, by name.
#[rustfmt::skip]
pub static LINTS: &[Lint] = &[
    lint("build-ignored", Warning, "A service has `image` and `build`.",
        "Nothing is built on servers: the pushed image runs, whatever lies beside the file.",
        "push what was built before the deploy; `build` may stay for other uses of the file"),
    lint("container-name", Warning, "A service has a `container_name`.",
        "The name is one on the whole machine. While the engine still removes the old container, or where another project has the name, the new one cannot be made (moby #23371).",
        "leave it out: Compose's own names are unique, and services find each other by their service names"),
    lint("depends-on-missing", Error, "A service waits for one that is not there or that a profile switches off.",
        "Compose refuses the file; older ones ignored it, which is why such files are about (docker/compose #12900).",
        "name a service that is there, take its profile away, or write `required: false`"),
    lint("deploy-ignored", Warning, "`deploy` has keys that only Swarm reads: `update_config`, `rollback_config`, `placement`, `endpoint_mode`, `labels`.",
        "Plain Compose ignores them without a word (docker/compose #13149): it recreates stop-first, whatever `order: start-first` says. It does honour `deploy.replicas`, `deploy.resources` and two keys of `deploy.restart_policy`.",
        "take them out, so that nobody trusts them; a rolling deploy is described in deploy.toml"),
    lint("deploy-restart-policy", Warning, "`deploy.restart_policy` stands beside `restart`, or has keys without effect.",
        "Compose takes `condition` and `max_attempts` of it, and then nothing of `restart`; `delay` and `window` are ignored.",
        "keep one of them: `restart: unless-stopped`"),
    lint("duration-refused", Error, "A duration has no unit or is none.",
        "Compose refuses the whole file (`stop_grace_period: 120` is a usual one), or waits without an end where it is negative.",
        "write a number with its unit: `90s`, `1m30s`, `500ms`"),
    lint("env-file-not-published", Error, "A service reads an env file that deploy.toml does not publish.",
        "The file is not on the servers; publishing refuses the release.",
        "name it in `release.env` (secret) or `release.files`, or write `required: false`"),
    lint("environment-without-value", Error, "A variable of a container has no value in the file.",
        "It would be taken from whoever happens to start the container: a person, the bootstrap, the watchdog. Publishing refuses the release.",
        "write `NAME: ${NAME:?}` and name it in `release.vars`, or put it into an env file"),
    lint("grace-below-shutdown", Error, "A grace period is shorter than the time that deploy.toml gives the service to shut down.",
        "The engine kills what has not ended by then (exit code 137), and the requests that it was answering are lost. Without `stop_grace_period` it is 10 s.",
        "raise `stop_grace_period` above `shutdown` (with `drain.by = \"sigterm\"`: above `drain.serve` and `shutdown` together)"),
    lint("grace-cut", Warning, "A grace period is no whole number of seconds.",
        "Compose hands whole seconds to the engine and cuts the rest off: `1.5s` is one second, `500ms` is none at all, which kills at once.",
        "write whole seconds"),
    lint("health-missing", Warning, "A service waits with `condition: service_healthy` for one without health check.",
        "Compose ends the start with an error where the container has none; only an image's own `HEALTHCHECK` helps. Where it is switched off, the start always fails: then it is an error.",
        "give the awaited service a `healthcheck`, or wait with `condition: service_started`"),
    lint("image-floating", Warning, "An image has no tag, or `latest`.",
        "Every release pins what the tag is at that moment, so that the same files make another release tomorrow, and nobody sees which.",
        "use a tag that never moves, given as a variable: `image: registry/app:${TAG}`"),
    lint("image-missing", Error, "A service has no `image`.",
        "Nothing is built on servers; publishing refuses the release.",
        "give it an `image`, build and push it before the deploy"),
    lint("links", Warning, "A service has `links`.",
        "They are from the first Compose. Services of one network find each other by name; what is left of links is that starts and recreations hang together.",
        "take them out; where the order of starts matters, say `depends_on`"),
    lint("namespace-shared", Warning, "A service lives in another's network, process or IPC namespace.",
        "When the other container is made anew or restarts, this one keeps the namespace of a container that is gone: it is cut off until it is made anew too (docker/compose #10263).",
        "give it a network of its own; where it must be shared, restart both together and let the health check see it"),
    lint("no-services", Error, "There are no services.",
        "Nothing can be deployed. Files of the first Compose have their services at the top level, which Compose v2 refuses.",
        "put them under `services:`"),
    lint("one-shot-restarts", Error, "A service that others wait for to end is started again when it ends.",
        "`condition: service_completed_successfully` never comes true for what never stays ended: the start hangs.",
        "write `restart: \"no\"` (or `on-failure`) for it"),
    lint("override-ignored", Warning, "A `compose.override.yaml` lies beside the compose file.",
        "Compose reads it by itself when a person runs it there, and not when a file is named: what runs on servers is another definition than what was tried.",
        "bring its content into the one definition, or give it another name"),
    lint("port-unreachable", Warning, "The port that the balancer sends to is published by no service, or for the machine itself alone.",
        "Every request to this server fails, its health checks first, unless something outside of Compose listens there.",
        "publish it: `ports: [\"8080:8080\"]`; or correct `balancer.group.port`"),
    lint("reference-not-published", Error, "`include` or `extends` brings in a file that deploy.toml does not publish.",
        "The definition is resolved on a server from the published files alone; there it is not found.",
        "name it in `release.files`"),
    lint("replicas-collide", Error, "Several containers of a service want one port or one name.",
        "Only the first can have it: the start fails.",
        "leave the host's port out (`\"8080\"`), or run one container a server"),
    lint("replicas-none", Error, "A service that deploy.toml verifies has no container.",
        "It cannot be verified, so the deploy fails.",
        "write at least 1, or take the service out of deploy.toml"),
    lint("restart-always", Warning, "A service has `restart: always`.",
        "When the engine restarts it also brings back what was stopped on purpose: a server taken out for good reasons serves again.",
        "write `restart: unless-stopped`: it survives crashes and boots, and stays down when told to"),
    lint("restart-missing", Warning, "A service that deploy.toml verifies has no restart policy.",
        "After a crash or a boot it stays down until the watchdog or a person looks.",
        "write `restart: unless-stopped`"),
    lint("restart-refused", Error, "A restart policy is none that the engine knows.",
        "Compose passes it on as it is, and the engine refuses to make the container.",
        "`no`, `on-failure[:N]`, `always` or `unless-stopped`"),
    lint("service-missing", Warning, "deploy.toml verifies a service that the compose file does not have.",
        "A spelling, usually: nothing of the release runs under that name, so its check proves nothing.",
        "use the same name in both; servers activate no profile"),
    lint("sleeper-restarts", Warning, "A service that the gateway puts to sleep has `restart: always`.",
        "The engine starts it whenever it begins, after a boot or an upgrade, although nobody asked for it.",
        "write `restart: unless-stopped`: what was stopped stays so"),
    lint("stop-signal-kills", Error, "`stop_signal` cannot be caught.",
        "The app ends in the middle of its requests at every stop, however long its grace period.",
        "leave it out (SIGTERM), or name a signal on which the app finishes what it has"),
    lint("unreadable", Error, "The file is not there or is no YAML that Compose takes.",
        "Nothing can be deployed from it.",
        "correct the place that is shown"),
    lint("variable-of-server", Error, "A variable that each machine has for itself stands in the definition.",
        "Each server would resolve another definition; publishing refuses the release.",
        "give it a name of its own in `release.vars`; a `$` that is meant as such is written `$$`"),
    lint("variable-unset", Error, "A variable without default is set by nothing.",
        "Compose would put nothing in its place and go on; a release is refused. Neither a `.env` beside the file nor the environment counts, only `release.vars`. `HANDOVER_RELEASE` and `COMPOSE_PROJECT_NAME` are always there.",
        "name it in `release.vars`, give it a default (`${NAME:-value}`), or write `$$` for a `$` that is meant as such"),
    lint("version-obsolete", Warning, "The file has a top-level `version`.",
        "It has no meaning since Compose v2, which warns of it at every command; people take it for a choice of features.",
        "take the line out"),
    lint("volumes-from", Warning, "A service has `volumes_from`.",
        "It ties the container to another one's volumes, also the nameless ones: whichever is made anew first takes the data away from the other.",
        "name the volume and mount it in both"),
];

/// The page about them.
#[must_use]
pub fn lint_page() -> String {
    let mut page = String::from(
        "# The Compose lint\n\nWhat in a compose file costs requests or surprises people. An error means that requests are lost or that a deploy \
         cannot work; everything\nelse is a warning. What cannot be told from the file alone is not told.\n\nThis page is made from \
         `src/config/compose/lint/table.rs`.\n",
    );
    for lint in LINTS {
        let severity = if lint.severity == Error { "Error" } else { "Warning" };
        page.push_str(&format!(
            "\n## {}\n\n{severity}. {}\n\n**Why:** {}\n\n**Way out:** {}.\n",
            lint.id, lint.what, lint.why, lint.way_out
        ));
    }
    page
}
