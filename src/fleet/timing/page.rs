//! `docs/timing.md`, written from the relations themselves.

use super::catalogue::INVARIANTS;
use super::invariants::Severity;

const HEAD: &str = "\
# Timing: what the numbers must be to each other

<!-- Written from src/fleet/timing/catalogue.rs; do not edit. -->

`handover check` reads these relations off deploy.toml and the compose file and prints both sides and the margin of each. `handover check --mutate` sets
every number to wrong values, one at a time, and says which relation notices: a number that nothing guards, and that is not free
for a reason, makes it fail. A side that nobody told is *unknown*, which neither holds nor fails.

An *error* makes a deploy refuse, a *warning* is said by a deploy and fails a check, a *note* fails nothing. Numbers of the balancer's health check are those of
`[balancer.group.health]`; *settle* is `interval + timeout + drain.margin`.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for invariant in INVARIANTS {
        let severity = match invariant.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        page.push_str(&format!("\n## {}\n\n`{}` ({severity})\n\n{}\n", invariant.id, invariant.formula, invariant.why));
    }
    page
}

#[cfg(test)]
mod tests {
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
        let mut names: Vec<&str> = INVARIANTS.iter().map(|invariant| invariant.id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), INVARIANTS.len());
        assert!(INVARIANTS.iter().all(|invariant| invariant.why.ends_with('.') || invariant.why.ends_with(").")));
    }
}
