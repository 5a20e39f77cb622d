#!/usr/bin/env bash
# Changes the arithmetic and the planner in every way that cargo-mutants knows, one at a time, and says which change no test
# notices. `tests/mutants.sh [FILE...]`; docs/mutants.md has the list of what is excluded and why.
#
# The whole crate takes half a minute a change. `fleet` and `config` are pure, so a crate of nothing else is made of them first: the
# same files, and the same tests.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=${HANDOVER_MUTANTS:-target/mutants}
mkdir -p "$work/crate"
cd "$work/crate"
rm -rf src tests docs .cargo && mkdir -p src/report tests/it tests/e2e/app docs .cargo
cp -r "$root/src/fleet" "$root/src/config" src/
cp "$root/src/config/mod.rs" src/config/mod.rs
cp "$root"/src/report/{plan,table}.rs src/report/
cp "$root"/{deploy.toml,compose.yaml,gateway.toml,Cargo.lock} .
cp "$root"/docs/* docs/
cp "$root/tests/e2e/app/compose.yaml" tests/e2e/app/
cp "$root/tests/it/plans.rs" tests/it/
mkdir -p tests/it/snapshots
for file in "$root"/tests/it/snapshots/it__plans__*; do cp "$file" "tests/it/snapshots/handover__${file##*/it__}"; done
cp "$root/tests/mutants.toml" .cargo/mutants.toml
{
  sed -n '/^\[package\]/,/^publish/p' "$root/Cargo.toml" | grep -v default-run
  printf '[lib]\nname = "handover"\n[workspace]\n[dependencies]\n'
  grep -E '^(serde|serde_json|toml|saphyr-parser|annotate-snippets|humantime|sha2|base64|thiserror|semver|memchr|idna) = ' "$root/Cargo.toml"
  printf '[dev-dependencies]\n'
  grep -E '^(insta|proptest|tempfile) = ' "$root/Cargo.toml"
  printf '[profile.dev]\ndebug = false\n[profile.dev.package."*"]\nopt-level = 1\n'
} >Cargo.toml
cat >src/lib.rs <<'RS'
//! What is pure, by itself.
pub mod config;
pub mod fleet;
pub mod event {
    /// A duration in seconds, to the millisecond.
    #[must_use]
    pub fn seconds(time: std::time::Duration) -> f64 {
        (time.as_secs_f64() * 1000.0).round() / 1000.0
    }
}
pub mod report {
    mod plan;
    mod table;
    pub use plan::plan_text;
    pub use table::table;
}
#[cfg(test)]
extern crate self as handover;
#[cfg(test)]
#[path = "../tests/it/plans.rs"]
mod plans;
#[cfg(test)]
mod world {
    pub fn fleet(text: &str) -> crate::fleet::model::Fleet {
        crate::config::from_sources(&crate::config::Source::new("deploy.toml", text), None).unwrap_or_else(|p| panic!("{p}")).fleet
    }
}
RS
files=("$@")
[ ${#files[@]} -gt 0 ] || files=('src/fleet/timing/**' 'src/fleet/plan/**' 'src/fleet/provision/**')
args=()
for file in "${files[@]}"; do args+=(-f "$file"); done
export INSTA_UPDATE=no INSTA_FORCE_PASS=0 PROPTEST_CASES="${PROPTEST_CASES:-64}"
read -ra more <<<"${HANDOVER_MUTANTS_ARGS:-}"
exec cargo mutants --no-shuffle --baseline=run --output .. "${args[@]}" "${more[@]}" -- --lib
