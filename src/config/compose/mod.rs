//! The compose file: its numbers, each with its place or why it is not known, and what of it costs requests or surprises people.
//!
//! It may know `fleet` and the configuration's own words for places, nothing else; texts go in, values come out, and only
//! `ComposeFiles::load` touches the disk. Compose itself is the reference: what is read here is the same as its own reading or
//! `Known::Unknown` (`tests/it/compose.rs` compares them).

mod duration;
mod familiar;
mod files;
mod lint;
mod mounts;
mod numbers;
mod offer;
mod vars;

#[cfg(test)]
mod tests;

pub use files::ComposeFiles;
pub use lint::{LINTS, Lint, LintFinding, lint_page};
pub use mounts::compose_text_problems;
pub use numbers::{AS_READ, ComposeAnswer, ComposeNumbers, ServiceNumbers, WHOLE};
pub use offer::{ComposeOffer, HealthTest, ServiceOffer};

use crate::config::{Loaded, Source};

/// Read by Compose where no `--file` names another (compose file reference), so a person may expect it to count.
const OVERRIDES: [&str; 4] =
    ["compose.override.yaml", "compose.override.yml", "docker-compose.override.yaml", "docker-compose.override.yml"];

impl ComposeFiles {
    /// Reads the compose file that deploy.toml names, and what it brings in. What cannot be read is said by `lint` and `numbers`.
    #[must_use]
    pub fn load(loaded: &Loaded) -> Self {
        let main = &loaded.fleet.release.compose;
        let mut files = Self::gather(main, |name| {
            let path = loaded.dir.join(name);
            let text = std::fs::read(&path).ok()?;
            Some(Source::new(path.display().to_string(), String::from_utf8_lossy(&text)))
        });
        let folder = loaded.dir.join(main);
        let beside = |name: &&&str| folder.with_file_name(name).is_file();
        files.unread_beside = OVERRIDES.iter().filter(beside).map(|name| (*name).to_owned()).collect();
        files
    }
}
