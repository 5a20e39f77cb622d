//! `handover install`: puts bootstrap and watchdog on the servers, or takes them away.

use super::args::{Global, InstallArgs};
use super::{connect, finish, input};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::ServerName;
use crate::fleet::patience;
use crate::report::{Format, Reporter};
use crate::rollout::on_each;
use crate::rollout::port::ServerError;
use crate::server::wire::{Reply, Request};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Only the server knows the grace periods of what runs there; longer ones than these, together, are rare.
const GRACE: Duration = Duration::from_secs(900);

type Installed = BTreeMap<ServerName, Vec<String>>;

pub(super) async fn run(global: &Global, args: &InstallArgs, reporter: &Reporter) -> u8 {
    match Box::pin(install(global, args)).await {
        Err(problem) => finish::refused(reporter, &problem),
        Ok((installed, problem)) => {
            if reporter.format() != Format::Json {
                reporter.result(&text(&installed));
            }
            finish::ended(reporter, problem.as_ref(), &json!({"servers": installed}))
        }
    }
}

async fn install(global: &Global, args: &InstallArgs) -> Result<(Installed, Option<Problem>), Problem> {
    let mut fleet = input::load(global)?.fleet;
    if let Some(names) = input::selection(global, &fleet)? {
        fleet.servers.retain(|server| names.contains(&server.name));
    }
    super::team::confirmed(global, &fleet, &args.confirm)?;
    let clock = Clock::start();
    let what = if args.remove { "handover install --remove" } else { "handover install" };
    let ports = connect::fleet(&fleet, &connect::run(what)).await?;
    let names = ports.servers.keys().cloned().collect();
    let request = if args.remove { Request::Uninstall } else { Request::Install };
    // A heal that is under way on a server is finished before its watchdog is restarted, and what runs is verified before.
    let within = patience::turn(&fleet, GRACE) + patience::ENGINE_MARGIN * 5;
    let answers = on_each(&ports, names, &clock, within, |_| request.clone()).await;
    connect::close(ports).await;
    let (mut installed, mut failed, mut output, mut hint) = (Installed::new(), Vec::new(), Vec::new(), None);
    let mut exit = Exit::Failed;
    for (name, answer) in answers {
        match answer {
            Ok(Reply::Installed(changed)) => drop(installed.insert(name, changed)),
            Ok(Reply::Held(holder)) => {
                failed.push(format!(
                    "{name}: {} ({}) holds the deploy lock; nothing was changed",
                    holder.who, holder.what
                ));
                hint = Some("run it again when that is over; `handover lock status` shows it".to_owned());
                exit = Exit::Held;
            }
            Ok(_) => failed.push(format!("{name}: an answer that was not asked for")),
            Err(ServerError::Failed(failure)) => {
                failed.push(format!("{name}: {}", failure.message));
                output.extend(failure.output.iter().map(|line| format!("{name}: {line}")));
                hint = hint.or(failure.hint);
            }
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    if failed.is_empty() {
        return Ok((installed, None));
    }
    // What was done on the others stays done; it can be run again.
    let problem = Problem::new(exit, failed.join("\n")).output(output);
    let hint = hint.unwrap_or_else(|| "on the other servers it is done; run it again when these can be reached".into());
    Ok((installed, Some(problem.hint(hint))))
}

fn text(installed: &Installed) -> String {
    let mut lines = Vec::new();
    for (name, changed) in installed {
        if changed.is_empty() {
            lines.push(format!("{name}: nothing to do"));
        }
        lines.extend(changed.iter().map(|what| format!("{name}: {what}")));
    }
    lines.join("\n")
}
