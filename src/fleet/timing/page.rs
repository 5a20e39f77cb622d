//! `docs/timing.md`, written from the relations themselves.

use super::catalogue::{INVARIANTS, TENANTS};
use super::invariants::{Relation, Severity};

const HEAD: &str = "\
# Timing: what the numbers must be to each other

<!-- Written from src/fleet/timing/catalogue.rs; do not edit. -->

`handover check` reads these relations off deploy.toml and the compose file and prints both sides and the margin of each. `handover check --mutate` sets
every number to wrong values, one at a time, and says which relation notices: a number that nothing guards, and that is not free
for a reason, makes it fail. A side that nobody told is *unknown*, which neither holds nor fails.

An *error* makes a deploy refuse, a *warning* is said by a deploy and fails a check, a *note* fails nothing. Numbers of the balancer's health check are those of
`[balancer.group.health]`; *settle* is `interval + timeout + drain.margin`.
";

const TENANTS_HEAD: &str = "
# Tenants on Kubernetes

`handover sleep check` reads these off `tenants/*.toml`, or off an HPA, a Caddyfile and configurations of Prometheus and its adapter
that people wrote themselves; numbers are called by their keys ([tenants.md](tenants.md)). A wake's parts are in mode `k1`: scrape, its timeout,
evaluation, HPA sync, the adapter's question, the pod's start, the name service's memory of a missing name (where a headless name is looked up), one retry and one dial;
in `k2` HPA sync, one question, start, one look; in `k2+` and `k3` one call to the API, start, one look.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    INVARIANTS.iter().for_each(|invariant| page.push_str(&section(&invariant.relation())));
    page.push_str(TENANTS_HEAD);
    TENANTS.iter().for_each(|invariant| page.push_str(&section(&invariant.relation())));
    page
}

fn section(relation: &Relation) -> String {
    let severity = match relation.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    format!("\n## {}\n\n`{}` ({severity})\n\n{}\n", relation.id, relation.formula, relation.why)
}

#[cfg(test)]
mod tests {
    use super::super::invariants::Invariant;
    use super::*;
    use std::path::Path;

    fn file() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/timing.md")
    }

    #[test]
    fn the_page_is_fresh() {
        let written = std::fs::read_to_string(file()).unwrap_or_default();
        assert!(written == page(), "run the ignored test `writes_the_timing_page`");
    }

    #[test]
    #[ignore = "writes into docs/; run it after a relation changed"]
    fn writes_the_timing_page() {
        std::fs::write(file(), page()).expect("written");
    }

    #[test]
    fn names_are_told_once_and_every_relation_says_why() {
        let all: Vec<Relation> =
            INVARIANTS.iter().map(Invariant::relation).chain(TENANTS.iter().map(Invariant::relation)).collect();
        let mut names: Vec<&str> = all.iter().map(|relation| relation.id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|relation| relation.why.ends_with('.') || relation.why.ends_with(").")));
    }
}
