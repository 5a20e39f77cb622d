//! Another configuration for a gateway that runs: read whole, checked whole, and only then used.

use super::listen;
use super::site::{Prepared, Shared, prepare};
use crate::config::load_gateway;
use crate::event::GatewayState;
use crate::fleet::model::GatewaySpec;
use std::path::{Path, PathBuf};

/// Where the configuration stands.
#[derive(Debug, Clone)]
pub struct Files {
    /// The file itself.
    pub path: PathBuf,
    /// The destination whose file is laid over it.
    pub destination: Option<String>,
}

/// Reads the configuration and everything that it names; warnings beside it.
pub(super) fn read(files: &Files) -> Result<(Prepared, Vec<String>), String> {
    let (spec, warnings) =
        load_gateway(&files.path, files.destination.as_deref()).map_err(|problems| problems.render(false))?;
    let prepared = prepare(spec).map_err(|wrong| wrong.join("\n"))?;
    Ok((prepared, warnings.iter().map(|warning| format!("{}: {}", warning.place, warning.text)).collect()))
}

/// Reads it again, and uses it where it can be used.
pub(super) fn reload(files: &Files, shared: &Shared) -> (GatewayState, String) {
    let refused = |why: String| {
        shared.metrics.reload(false);
        (GatewayState::ReloadRefused, format!("the configuration stays as it is: {}", why.trim_end()))
    };
    let (prepared, warnings) = match read(files) {
        Ok(read) => read,
        Err(why) => return refused(why),
    };
    let site = shared.site();
    let fixed = fixed(&site.spec, prepared.spec());
    if !fixed.is_empty() {
        return refused(format!(
            "{} cannot change while the gateway runs; `handover gateway --take-over` starts another one in its place",
            fixed.join(", ")
        ));
    }
    let hosts = prepared.spec().hosts.len();
    shared.replace(prepared);
    shared.metrics.reload(true);
    let more: String = warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect();
    (GatewayState::Reloaded, format!("{} is used from now on: {hosts} hosts{more}", files.path.display()))
}

/// What differs and is settled when a process begins.
fn fixed(old: &GatewaySpec, new: &GatewaySpec) -> Vec<&'static str> {
    let mut fixed = Vec::new();
    let sorted = |spec: &GatewaySpec| {
        let mut wanted: Vec<String> = listen::wanted(spec).iter().map(|one| format!("{one:?}")).collect();
        wanted.sort();
        wanted
    };
    if sorted(old) != sorted(new) {
        fixed.push("where it listens");
    }
    if old.control != new.control {
        fixed.push("`control`");
    }
    if old.sleep.is_some() && new.sleep.is_some() && old.sleep != new.sleep {
        fixed.push("`sleep`");
    }
    if old.workers != new.workers {
        fixed.push("`workers`");
    }
    fixed
}

/// What the files of the configuration hold, to see whether anything changed.
pub(super) fn fingerprint(files: &Files, spec: &GatewaySpec) -> Vec<Option<Vec<u8>>> {
    let over = files.destination.as_ref().map(|name| {
        let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let (stem, end) = (part(files.path.file_stem()), part(files.path.extension()));
        files.path.with_file_name(format!("{stem}.{name}.{end}"))
    });
    let external = spec.external_metrics.iter();
    let shown = spec.certificates.iter().chain(external.clone().map(|one| &one.certificate));
    let certificates = shown.flat_map(|one| [&one.cert, &one.key]).chain(external.map(|one| &one.client_ca));
    let named = spec.hosts.iter().flat_map(|host| host.ca.iter().chain(&host.waiting_page)).chain(certificates);
    [files.path.clone()]
        .into_iter()
        .chain(over)
        .chain(named.map(|path| Path::new(path).to_owned()))
        .map(|path| std::fs::read(path).ok())
        .collect()
}
