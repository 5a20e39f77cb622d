//! Keeps the content of secret files out of what is said: Compose quotes a line that it cannot read.

use crate::fleet::model::ReleaseId;
use crate::fleet::release::DEFINITION;
use crate::server::layout::Layout;
use crate::server::wire::{Blob, Failure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// A shorter value is a word that may stand anywhere.
const SHORTEST: usize = 4;
const HIDDEN: &str = "[secret]";
/// A variable with one of these in its name holds one.
const CALLED: [&str; 7] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "_KEY"];

/// Every value that must not be said.
#[derive(Debug, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Those of files that are about to be published.
    pub(super) fn of_files(files: &[Blob]) -> Self {
        let secret = files.iter().filter(|blob| blob.secret && blob.name != DEFINITION);
        Self::of(secret.filter_map(|blob| blob.decode().ok()))
    }

    /// Those of a release that is on disk.
    pub fn of_release(layout: &Layout, id: &ReleaseId) -> Self {
        let files = super::read_release(layout, id).map(|manifest| manifest.files).unwrap_or_default();
        let names = files.keys().filter(|name| *name != DEFINITION);
        let secret = names.filter(|name| {
            let meta = fs::symlink_metadata(layout.release(id).join(name));
            meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o077 == 0)
        });
        Self::of(secret.filter_map(|name| super::stage::read_file(layout, id, name).ok()))
    }

    /// Those of the texts of env files, and of variables that are called like secrets.
    pub fn of_a_machine(
        files: impl Iterator<Item = Vec<u8>>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Self {
        let called = |name: &str| CALLED.iter().any(|word| name.to_ascii_uppercase().contains(word));
        let mut all = Self::of(files);
        all.0.extend(variables.filter(|(name, _)| called(name)).map(|(_, value)| value));
        all.in_order()
    }

    fn of(texts: impl Iterator<Item = Vec<u8>>) -> Self {
        let mut values = Vec::new();
        for bytes in texts {
            for line in String::from_utf8_lossy(&bytes).lines().map(str::trim).filter(|line| !line.starts_with('#')) {
                let value = line.split_once('=').map_or(line, |(_, value)| value).trim();
                values.extend([value, value.trim_matches(['\'', '"'])].map(ToOwned::to_owned));
            }
        }
        Self(values).in_order()
    }

    fn in_order(mut self) -> Self {
        self.0.retain(|value| value.chars().count() >= SHORTEST);
        // Longer ones first: one may be part of another.
        self.0.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.0.dedup();
        self
    }

    /// A text without them.
    pub fn hide(&self, text: &mut String) {
        for value in &self.0 {
            *text = text.replace(value, HIDDEN);
        }
    }

    /// The failure without them.
    pub fn hidden(&self, mut failure: Failure) -> Failure {
        self.hide(&mut failure.message);
        failure.output.iter_mut().for_each(|line| self.hide(line));
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::wire::FailureKind;

    #[test]
    fn a_line_that_compose_quotes_is_said_without_its_value() {
        let files = [
            Blob::bytes(".env", b"A=1\n# a comment\nexport KEY='hush hush'\nBAD KEY=s3cret\nno-equals-sign\n", true),
            Blob::text("plain.toml", "public=known-to-all"),
        ];
        let failure =
            Failure::new(FailureKind::Input, "line 4: unexpected \" \" near \"BAD KEY=s3cret\\nno-equals-sign\"")
                .output(vec!["KEY is hush hush, A is 1, known-to-all".to_owned()]);
        let hidden = Secrets::of_files(&files).hidden(failure);
        assert_eq!(hidden.message, "line 4: unexpected \" \" near \"BAD KEY=[secret]\\n[secret]\"");
        assert_eq!(hidden.output, ["KEY is [secret], A is 1, known-to-all"]);
    }
}
