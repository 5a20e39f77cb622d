//! Files that people wrote themselves, read for `handover sleep check`; a Caddyfile by way of Caddy itself.

use super::super::args::TenantCheckArgs;
use crate::config::Source;
use crate::diag::{Exit, Problem};
use crate::kubernetes::{Besides, Given, Read, read as read_given};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// CoreDNS' `denial` of its `cache` as Kubernetes ships it.
const MISSING_NAME: Duration = Duration::from_secs(30);

pub(super) fn read(args: &TenantCheckArgs) -> Result<Read, Problem> {
    let caddy = args.caddy.as_deref().unwrap_or_else(|| Path::new("caddy"));
    let given = args.files.iter().map(|path| one(path, caddy)).collect::<Result<Vec<_>, _>>()?;
    let besides = Besides {
        start: args.start,
        balancer: args.balancer.unwrap_or(MINUTE),
        patience: args.patience.unwrap_or(MINUTE),
        missing: args.missing_name.unwrap_or(MISSING_NAME),
        probes: args.probes,
    };
    read_given(&given, &besides)
        .map_err(|problems| Problem::new(Exit::Usage, problems.render(false).trim_end().to_owned()))
}

fn one(path: &Path, caddy: &Path) -> Result<Given, Problem> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Problem::new(Exit::Usage, format!("{name} cannot be read: {error}")))?;
    let source = Source::new(name, text);
    let is_caddyfile = path.file_name().is_some_and(|file| file.to_string_lossy().contains("Caddyfile"));
    let adapted = if is_caddyfile { Some(adapt(path, &source, caddy)?) } else { None };
    Ok(Given { source, adapted })
}

fn adapt(path: &Path, source: &Source, caddy: &Path) -> Result<Arc<Source>, Problem> {
    let program = caddy.display();
    let hint = format!("`caddy adapt --config {}` writes JSON, which can be given instead", source.name);
    let output = Command::new(caddy)
        .args(["adapt", "--adapter", "caddyfile", "--config"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            Problem::new(Exit::Usage, format!("{}: {program} cannot be run: {error}", source.name))
                .hint(format!("`--caddy PROGRAM` names it; {hint}"))
        })?;
    if !output.status.success() {
        let lines: Vec<String> = String::from_utf8_lossy(&output.stderr).lines().map(ToOwned::to_owned).collect();
        let text = format!("{}: {program} does not take it", source.name);
        return Err(Problem::new(Exit::Usage, text).hint(hint).output(lines));
    }
    Ok(Source::new(source.name.clone(), String::from_utf8_lossy(&output.stdout)))
}
