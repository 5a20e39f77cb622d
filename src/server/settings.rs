//! What a server knows of its fleet when nobody is connected: bootstrap and watchdog read it, a deploy and `install` write it.

use super::layout::{Layout, read_json, write_atomic};
use super::wire::Failure;
use super::wire::FailureKind;
use crate::fleet::model::{Fleet, ServerName};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Format number of the file.
const FORMAT: u32 = 1;

/// A server's part of deploy.toml.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Format number of the file.
    pub format: u32,
    /// Which server this is.
    pub server: ServerName,
    /// The fleet, with this server only.
    pub fleet: Fleet,
}

impl Settings {
    /// Of a server.
    #[must_use]
    pub fn of(server: &ServerName, fleet: &Fleet) -> Self {
        Self { format: FORMAT, server: server.clone(), fleet: fleet.clone() }
    }

    /// Writes them, if they are others than before.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn write(&self, layout: &Layout) -> io::Result<()> {
        let path = layout.settings();
        if read_json::<Self>(&path).is_ok_and(|before| before.as_ref() == Some(self)) {
            return Ok(());
        }
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        // A URL in it may hold a password.
        write_atomic(&path, text.as_bytes(), 0o600)
    }

    /// Reads them.
    ///
    /// # Errors
    /// When there are none, or they are of another version, with the way out.
    pub fn read(layout: &Layout) -> Result<Self, Failure> {
        let path = layout.settings();
        let failed = |what: String| Failure::new(FailureKind::Missing, what);
        let again = "a deploy writes it, and so does `handover install`";
        let value: serde_json::Value = match read_json(&path) {
            Ok(Some(value)) => value,
            Ok(None) => return Err(failed(format!("{} is not there", path.display())).hint(again)),
            Err(error) => return Err(failed(error.to_string()).hint(again)),
        };
        let format = value.get("format").and_then(serde_json::Value::as_u64);
        if format != Some(u64::from(FORMAT)) {
            return Err(failed(format!("{} is of another version of handover", path.display())).hint(again));
        }
        let settings: Self = serde_json::from_value(value).map_err(|error| {
            failed(format!("{} is of another version of handover: {error}", path.display())).hint(again)
        })?;
        let same = |one: &Path, other: &Path| one == other || one.canonicalize().ok() == other.canonicalize().ok();
        if same(Path::new(&settings.fleet.release.dir), layout.dir()) {
            return Ok(settings);
        }
        let what = format!("{} is about {}, and lies somewhere else", path.display(), settings.fleet.release.dir);
        Err(failed(what).hint(again))
    }
}
