//! `handover history`: which deploys there were, as their servers and this machine wrote them down.

use super::args::{Global, HistoryArgs};
use super::{connect, finish, input};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::journal::Journal;
use crate::report::{Format, Reporter, books, history_json, history_text};
use crate::rollout::on_each;
use crate::server::wire::{Reply, Request};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn run(global: &Global, args: &HistoryArgs, reporter: &Reporter) -> u8 {
    match Box::pin(found(global, args, reporter)).await {
        Err(problem) => finish::refused(reporter, &problem),
        Ok(journals) => {
            if reporter.format() != Format::Json {
                reporter.result(&history_text(&journals));
            }
            finish::ended(reporter, None, &history_json(&journals))
        }
    }
}

pub(super) async fn found(global: &Global, args: &HistoryArgs, reporter: &Reporter) -> Result<Vec<Journal>, Problem> {
    let mut fleet = input::load(global)?.fleet;
    let own = books(&fleet.app, args.number as usize)
        .map_err(|error| Problem::new(Exit::Failed, format!("what was written down here cannot be read: {error}")));
    let mut journals: Vec<Journal> = match own {
        Ok(texts) => texts.iter().filter_map(|text| Journal::read(text)).collect(),
        Err(problem) if args.local => return Err(problem),
        Err(_) => Vec::new(),
    };
    if !args.local {
        if let Some(names) = input::selection(global, &fleet)? {
            fleet.servers.retain(|server| names.contains(&server.name));
        }
        let clock = Clock::start();
        let ports = connect::fleet(&fleet, &connect::run("handover history")).await?;
        let names = ports.servers.keys().cloned().collect();
        let newest = args.number;
        let answers = on_each(&ports, names, &clock, WITHIN, |_| Request::Journals { newest }).await;
        connect::close(ports).await;
        let mut silent = Vec::new();
        for (name, answer) in answers {
            match answer {
                Ok(Reply::Journals(texts)) => journals.extend(texts.iter().filter_map(|text| Journal::read(text))),
                Ok(_) => silent.push(format!("{name}: an answer that was not asked for")),
                Err(error) => silent.push(format!("{name}: {error}")),
            }
        }
        if silent.len() == fleet.servers.len() && !silent.is_empty() {
            return Err(Problem::new(Exit::Refused, silent.join("\n"))
                .hint("`handover history --local` shows what was deployed from here"));
        }
        for what in silent {
            super::plan::say_warnings(reporter, vec![format!("{what}; deploys that only it knows are missing")]);
        }
    }
    let mut merged = Journal::merge(journals);
    merged.truncate(args.number as usize);
    Ok(merged)
}
