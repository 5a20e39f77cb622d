//! What the watchdog says of a turn, and to whom: its words, and the team's own commands.
//!
//! What was done is one thing, how the server stands another: nothing is told as better than it was seen.

use super::{Dog, Said};
use crate::fleet::model::{LastHeal, ServiceName, WatchdogState, show_duration};
use crate::fleet::patience::COMMAND;
use crate::fleet::strikes::{Seen, Verdict};
use crate::fleet::watch::Outcome;
use crate::server::run::{CommandLine, run};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

impl Dog {
    pub(super) fn told(&mut self, outcome: &Outcome, verdicts: &BTreeMap<ServiceName, Verdict>) -> Said {
        let gave_up = verdicts.values().any(|verdict| *verdict == Verdict::GiveUp);
        let (word, loud, what) = self.in_words(outcome);
        let mut said = Said::new(word, loud || gave_up, what);
        if let Some(drift) = self.drift() {
            said.what = format!("{}; {drift}, and only a deploy mends it", said.what);
        }
        if let (Outcome::Watched, Some(what)) = (outcome, self.site.unexplained()) {
            said.what = format!("{}; {what}", said.what);
        }
        if matches!(outcome, Outcome::Absent(_))
            && self.site.fleet.drain.by.file().is_some()
            && !self.site.flag_is_there()
        {
            said.what = format!("{}; but its drain file is gone, so it is in rotation all the same", said.what);
        }
        said.services = self.services(verdicts);
        said.logs = std::mem::take(&mut self.logs);
        if let Outcome::Healed(services, done) = outcome {
            for service in services {
                *self.seen.healed.entry(service.clone()).or_default() += 1;
            }
            let (worked, what) = (done.is_ok(), done.clone().unwrap_or_else(|what| what));
            self.seen.last_heal = Some(LastHeal { at: said.at, services: services.clone(), worked, what });
        }
        said
    }

    fn in_words(&self, outcome: &Outcome) -> (WatchdogState, bool, String) {
        // What was done is one thing, how it stands another.
        let stands = if self.broken().is_empty() { WatchdogState::Fine } else { WatchdogState::Failing };
        match outcome {
            Outcome::Busy(holder) => {
                (WatchdogState::Busy, false, format!("{holder} holds the server lock: planned work is going on"))
            }
            Outcome::Absent(reason) => (WatchdogState::Absent, false, format!("left out on purpose: {reason}")),
            Outcome::NoRelease => (WatchdogState::NoRelease, false, "no release was ever verified here".to_owned()),
            Outcome::Unknown(why) => (WatchdogState::Unknown, false, format!("could not look: {why}")),
            Outcome::Watched => (stands, false, self.counted()),
            Outcome::Passed => (stands, true, "nothing was left to heal once the lock was taken".to_owned()),
            Outcome::PutRight(done) => done_or_not(stands, "what a dead deploy left", done),
            Outcome::LetBack(done) => {
                done_or_not(stands, "health was made to fail by nobody who still works here", done)
            }
            Outcome::Healed(services, done) => done_or_not(WatchdogState::Healed, &names(services), done),
        }
    }

    fn counted(&self) -> String {
        let services = self.look.as_ref().and_then(|look| look.services.as_ref().ok());
        let count = |what: fn(&Seen) -> bool| services.map_or(0, |all| all.values().filter(|seen| what(seen)).count());
        let (failing, starting) =
            (count(|seen| matches!(seen, Seen::Failing(_))), count(|seen| matches!(seen, Seen::Starting)));
        match (failing, starting) {
            (0, 0) => "every service works".to_owned(),
            (0, starting) => format!("{starting} of {} services are starting", count(|_| true)),
            (failing, _) => format!("{failing} of {} services fail", count(|_| true)),
        }
    }

    fn drift(&self) -> Option<String> {
        let release = self.look.as_ref().and_then(|look| look.release.as_ref())?;
        self.site.drift(release)
    }

    fn broken(&self) -> BTreeMap<&ServiceName, &str> {
        let services = self.look.as_ref().and_then(|look| look.services.as_ref().ok());
        services
            .into_iter()
            .flatten()
            .filter_map(|(name, seen)| match seen {
                Seen::Failing(why) => Some((name, why.as_str())),
                _ => None,
            })
            .collect()
    }

    /// What each service that is not fine means.
    pub(super) fn services(&self, verdicts: &BTreeMap<ServiceName, Verdict>) -> BTreeMap<ServiceName, String> {
        let strikes = self.site.fleet.watchdog.strikes;
        let given_up = |name| self.seen.strikes.services().get(name).is_some_and(|count| count.given_up);
        let mut told = BTreeMap::new();
        for (name, why) in self.broken() {
            let meaning = match verdicts.get(name) {
                Some(Verdict::Strike(n)) => format!("strike {n} of {strikes}"),
                Some(Verdict::Heal) => format!("strike {strikes} of {strikes}: to be healed"),
                Some(Verdict::Pause(seconds)) => {
                    format!("healed a moment ago: left alone for {} more", show_duration(Duration::from_secs(*seconds)))
                }
                Some(Verdict::GiveUp) => "healed too often: given up, a person is needed".to_owned(),
                _ if given_up(name) => "given up before: a person is needed".to_owned(),
                _ => "fails".to_owned(),
            };
            told.insert(name.clone(), format!("{meaning}: {why}"));
        }
        told
    }

    /// The team's own commands, told what happened by their environment.
    pub(super) async fn commands(&self, outcome: &Outcome, verdicts: &BTreeMap<ServiceName, Verdict>, said: &mut Said) {
        let watchdog = &self.site.fleet.watchdog;
        if let Outcome::Healed(services, done) = outcome {
            let outcome = if done.is_ok() { "healed" } else { "failed" };
            let failed = self.command(&watchdog.on_heal, services, outcome, &said.what).await;
            said.logs.extend(failed);
        }
        let given_up: Vec<ServiceName> =
            verdicts.iter().filter(|(_, v)| **v == Verdict::GiveUp).map(|(name, _)| name.clone()).collect();
        if !given_up.is_empty() {
            let why: Vec<&str> =
                given_up.iter().filter_map(|name| said.services.get(name).map(String::as_str)).collect();
            let failed = self.command(&watchdog.on_give_up, &given_up, "gave_up", &why.join("; ")).await;
            said.logs.extend(failed);
        }
    }

    /// Runs one; what went wrong with it.
    async fn command(&self, argv: &[String], services: &[ServiceName], outcome: &str, why: &str) -> Option<String> {
        let program = argv.first()?;
        let line = CommandLine::new(argv.iter().cloned())
            .env("HANDOVER_SERVER", self.site.server.as_str())
            .env("HANDOVER_SERVICES", names(services).replace(", ", ","))
            .env("HANDOVER_OUTCOME", outcome)
            .env("HANDOVER_WHY", why)
            .cwd(Path::new("/"));
        let ended = run(&line, COMMAND).await.and_then(|output| output.success(&format!("`{program}`")));
        ended.err().map(|failure| failure.to_string())
    }
}

fn names(services: &[ServiceName]) -> String {
    services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", ")
}

fn done_or_not(done_word: WatchdogState, what: &str, done: &Result<String, String>) -> (WatchdogState, bool, String) {
    match done {
        Ok(done) => (done_word, true, format!("{what}: {done}")),
        Err(why) => (WatchdogState::Failing, true, format!("{what}: {why}")),
    }
}
