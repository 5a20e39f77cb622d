//! The team's own commands: whether they can be run at all, and with which secrets that nobody is shown.

use super::args::{Confirm, Global, Team};
use super::session;
use crate::adapters::here::{Commands, unusable};
use crate::config::Loaded;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Fleet, Hooks};
use crate::rollout::port::Here;
use crate::server::Secrets;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// Takes the hooks away where they are not wanted; else every program must be there before anything is begun.
pub(super) fn hooks(loaded: &mut Loaded, team: &Team) -> Result<(), Problem> {
    if team.skip_hooks {
        loaded.fleet.hooks = Hooks::default();
    }
    let mut missing = Vec::new();
    for (hook, spec) in loaded.fleet.hooks.iter() {
        let program = spec.run.first().map_or("", String::as_str);
        if let Some(why) = unusable(&loaded.dir, program) {
            let place = loaded.origin(&format!("hooks.{hook}")).unwrap_or_else(|| "deploy.toml".into());
            missing.push(format!("{place}: hooks.{hook}: `{program}` cannot be run: {why}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Exit::Usage, missing.join("\n"))
        .hint("a path is relative to deploy.toml's folder; `--skip-hooks` leaves every hook out"))
}

/// Where deploy.toml wants it, whoever changes something says which destination is meant; `--yes` is no answer to that.
pub(super) fn confirmed(global: &Global, fleet: &Fleet, said: &Confirm) -> Result<(), Problem> {
    let name = global.destination.as_deref().unwrap_or(&fleet.app);
    let asked = || session::asks_for(&format!("this changes `{name}`; write its name to go on:"));
    match &said.confirm {
        Some(word) if word == name => Ok(()),
        Some(word) => {
            Err(Problem::new(Exit::Usage, format!("--confirm {word}: this is `{name}`; nothing was touched"))
                .hint("`-d` names the destination"))
        }
        None if !fleet.confirm || asked().as_deref() == Some(name) => Ok(()),
        None => {
            Err(Problem::new(Exit::Refused, format!("`{name}` wants to be confirmed by its name; nothing was touched"))
                .hint(format!("`--confirm {name}` says so without a terminal")))
        }
    }
}

/// This machine, as the hooks of a fleet see it.
pub(super) fn here(global: &Global, fleet: &Fleet, interrupts: watch::Receiver<u32>) -> Arc<dyn Here> {
    let dir = global.config.parent().unwrap_or_else(|| Path::new(""));
    // What cannot be read is refused where it is needed; here it only has no secret to hide.
    let files = fleet.release.env.iter().filter_map(|name| std::fs::read(dir.join(name)).ok());
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let secrets = Secrets::of_a_machine(files, std::env::vars_os().map(|(name, value)| (text(name), text(value))));
    let destination = global.destination.clone().unwrap_or_default();
    let env = BTreeMap::from([("HANDOVER_DESTINATION".to_owned(), destination)]);
    Arc::new(Commands::new(dir, env, secrets, interrupts))
}
