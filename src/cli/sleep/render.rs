//! `handover sleep render`: what tenants become, written into a folder.

use super::super::args::TenantRenderArgs;
use super::super::finish;
use super::check::{Checked, load};
use crate::diag::{Exit, Problem};
use crate::kubernetes::{NotRendered, WRITTEN, render};
use crate::report::{Format, Reporter};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) fn run(args: &TenantRenderArgs, reporter: &Reporter) -> u8 {
    match rendered(args, reporter) {
        Err(problem) => finish::refused(reporter, &problem),
        Ok(files) => {
            if reporter.format() != Format::Json {
                files.iter().for_each(|file| reporter.result(&file.display().to_string()));
            }
            finish::ended(reporter, None, &json!({ "files": files }))
        }
    }
}

fn rendered(args: &TenantRenderArgs, reporter: &Reporter) -> Result<Vec<PathBuf>, Problem> {
    let loaded = load(&args.tenants)?;
    let mode = args.tenants.mode.unwrap_or(loaded.tenants.shared.mode);
    let files = render(&loaded.tenants, mode, &args.names).map_err(|error| {
        let all: Vec<&str> = loaded.tenants.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
        let hint = match error {
            NotRendered::NoTenant(_) => format!("there are {}", all.join(", ")),
            NotRendered::NoMode(_) => {
                "`--mode k1`, `k2` and `k2+` can; `handover sleep check` knows the numbers of every mode".to_owned()
            }
            NotRendered::NoImage => {
                "add a line like `image = \"registry.example.org/handover:0.1.0\"` to `[gateway]`".to_owned()
            }
            NotRendered::NoAuthority(_) => "let it speak plain HTTP inside of the cluster, or use mode k1".to_owned(),
        };
        Problem::new(Exit::Usage, error.to_string()).hint(hint)
    })?;
    for line in Checked::of(&loaded, mode).warnings() {
        reporter.note(&format!("warning: {line}"));
    }
    write(&args.out, &files)?;
    if args.names.is_empty() {
        for old in left_over(&args.out, &files) {
            reporter.note(&format!(
                "warning: {} is of no tenant any more; delete it when its objects are gone",
                old.display()
            ));
        }
    }
    Ok(files.keys().map(|name| args.out.join(name)).collect())
}

fn write(out: &Path, files: &BTreeMap<String, String>) -> Result<(), Problem> {
    for (name, text) in files {
        let path = out.join(name);
        let folder = path.parent().unwrap_or(out);
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text)).map_err(|error| {
            Problem::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
                .hint("`--out DIR` names another folder")
        })?;
    }
    Ok(())
}

/// What an earlier render wrote and this one does not.
fn left_over(out: &Path, files: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(out).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let inside = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut old: Vec<PathBuf> = inside.filter_map(|entry| Some(entry.ok()?.path())).collect();
    old.retain(|path| {
        let known = path.strip_prefix(out).is_ok_and(|name| files.contains_key(&name.to_string_lossy().into_owned()));
        !known && std::fs::read_to_string(path).is_ok_and(|text| text.starts_with(&format!("# {WRITTEN}")))
    });
    old.sort();
    old
}
