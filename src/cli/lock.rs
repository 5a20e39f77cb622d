//! `handover lock`: who holds what; a freeze on, a freeze off.

use super::args::{Global, LockAction, LockArgs};
use super::{connect, finish, input};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Holder, ServerName, show_moment};
use crate::report::{Format, Reporter, table};
use crate::rollout::on_each;
use crate::server::wire::{Reply, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn run(global: &Global, args: &LockArgs, reporter: &Reporter) -> u8 {
    match Box::pin(act(global, &args.action)).await {
        Err(problem) => finish::refused(reporter, &problem),
        Ok((result, text)) => {
            if reporter.format() != Format::Json {
                reporter.result(&text);
            }
            finish::ended(reporter, None, &result)
        }
    }
}

async fn act(global: &Global, action: &LockAction) -> Result<(Value, String), Problem> {
    let mut fleet = input::load(global)?.fleet;
    if let Some(names) = input::selection(global, &fleet)? {
        fleet.servers.retain(|server| names.contains(&server.name));
    }
    let clock = Clock::start();
    let ports = connect::fleet(&fleet, &connect::run("handover lock")).await?;
    let names: Vec<ServerName> = ports.servers.keys().cloned().collect();
    let request = match action {
        LockAction::Status => Request::Observe,
        LockAction::Acquire { message } => Request::Freeze { reason: message.clone() },
        LockAction::Release => Request::Unfreeze,
    };
    let answers = on_each(&ports, names, &clock, WITHIN, |_| request.clone()).await;
    connect::close(ports).await;
    let mut held = BTreeMap::new();
    let mut failed = Vec::new();
    for (name, answer) in answers {
        match answer {
            Ok(Reply::Facts(facts)) => drop(held.insert(name, [facts.deploy_lock, facts.lock, facts.freeze])),
            Ok(Reply::Held(holder)) => failed.push(format!("{name}: held by {} ({})", holder.who, holder.what)),
            Ok(_) => drop(held.insert(name, [None, None, None])),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    if !failed.is_empty() && matches!(action, LockAction::Status) {
        let (_, known) = status(&held);
        let message = format!("{}\n{}", failed.join("\n"), known.trim_end());
        return Err(Problem::new(Exit::Refused, message).hint("of the servers named first nothing is known"));
    }
    if !failed.is_empty() {
        let exit = Exit::NeedsHand;
        return Err(Problem::new(exit, failed.join("\n"))
            .hint("the other servers did as asked; try again when these can be reached"));
    }
    Ok(match action {
        LockAction::Status => status(&held),
        LockAction::Acquire { message } => {
            (json!({"frozen": true, "reason": message}), format!("a freeze is on: {message}"))
        }
        LockAction::Release => (json!({"frozen": false}), "the freeze is off".to_owned()),
    })
}

fn status(held: &BTreeMap<ServerName, [Option<Holder>; 3]>) -> (Value, String) {
    let kinds = ["deploy lock", "server lock", "freeze"];
    let mut rows = vec![["server", "what", "who", "for", "since"].map(ToOwned::to_owned).to_vec()];
    for (name, holders) in held {
        for (kind, holder) in
            kinds.iter().zip(holders).filter_map(|(kind, holder)| holder.as_ref().map(|holder| (kind, holder)))
        {
            rows.push(vec![
                name.to_string(),
                (*kind).to_owned(),
                holder.who.clone(),
                holder.what.clone(),
                since(holder.since),
            ]);
        }
    }
    let text = if rows.len() == 1 { "no lock is held and no freeze is on".to_owned() } else { table(&rows) };
    let servers: BTreeMap<&ServerName, Value> = held
        .iter()
        .map(|(name, [deploy, server, freeze])| {
            (name, json!({"deploy_lock": deploy, "lock": server, "freeze": freeze}))
        })
        .collect();
    (json!({"servers": servers}), text)
}

fn since(epoch: u64) -> String {
    if epoch == 0 {
        return "unknown".into();
    }
    show_moment(epoch)
}
