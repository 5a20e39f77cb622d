//! `handover drain` and `handover undrain`: one server leaves rotation and runs on, or comes back, by the steps of a deploy.

use super::args::{DrainArgs, Global, Team, UndrainArgs};
use super::input;
use super::session::{self, Session};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Absence, Fleet, LAST_MOMENT, ServerName, parse_duration};
use crate::fleet::plan::Options;
use crate::measure::access_log::time;
use crate::report::Reporter;
use crate::rollout::{Order, Over, Source};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An end that somebody named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// So long from now.
    After(Duration),
    /// Seconds since the epoch.
    Moment(u64),
}

pub(super) fn until(text: &str) -> Result<Until, &'static str> {
    if let Ok(length) = parse_duration(text) {
        return Ok(Until::After(length));
    }
    let micros = time::parse(text.as_bytes());
    let seconds = micros.and_then(|micros| u64::try_from(micros / 1_000_000).ok());
    seconds
        .map(Until::Moment)
        .ok_or("wanted is a duration as in 2h, or a time with its zone as in 2026-12-01T08:00:00Z")
}

pub(super) async fn out(global: &Global, args: &DrainArgs, reporter: &Arc<Reporter>) -> u8 {
    let ready = fleet(global, &args.server, &args.team).and_then(|(fleet, server)| {
        let until = args.until.map(moment).transpose()?;
        if args.allow_downtime {
            session::confirm(global, "requests will be lost where the guard would refuse; go on?")?;
        }
        Ok((fleet, server, until))
    });
    let (fleet, server, until) = match ready {
        Ok(ready) => ready,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 0, problem),
    };
    let absence = Absence { reason: args.message.clone(), ends_when_verified: false, since: 0, until, by: None };
    let options = Options { servers: Some(vec![server]), allow_downtime: args.allow_downtime, ..Options::default() };
    let wait = args.wait.unwrap_or(Duration::ZERO);
    Box::pin(carry_out(global, reporter, fleet, options, (Source::Drain(absence), wait))).await
}

pub(super) async fn back(global: &Global, args: &UndrainArgs, reporter: &Arc<Reporter>) -> u8 {
    let (fleet, server) = match fleet(global, &args.server, &args.team) {
        Ok(ready) => ready,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 0, problem),
    };
    let options = Options { servers: Some(vec![server]), ..Options::default() };
    let wait = args.wait.unwrap_or(Duration::ZERO);
    Box::pin(carry_out(global, reporter, fleet, options, (Source::Undrain, wait))).await
}

async fn carry_out(
    global: &Global,
    reporter: &Arc<Reporter>,
    fleet: Fleet,
    options: Options,
    (mut source, wait): (Source, Duration),
) -> u8 {
    let word = if matches!(source, Source::Undrain) { "undrain" } else { "drain" };
    let server = options.servers.iter().flatten().next().map(ToString::to_string).unwrap_or_default();
    let session = match Box::pin(Session::open(global, &fleet, &format!("handover {word} {server}"), reporter)).await {
        Ok(session) => session,
        Err(problem) => return session::not_begun(reporter, &Clock::start(), 1, problem),
    };
    if let Source::Drain(absence) = &mut source {
        absence.by = Some(session.run.who.clone());
    }
    let run = session.run.clone();
    let order = Order { run, fleet, source, options, wait, over: Over::GoOn, resumes: None, without: None };
    Box::pin(session.carry_out(global, order)).await
}

/// The fleet, and the server in it that a person means.
fn fleet(global: &Global, server: &str, team: &Team) -> Result<(Fleet, ServerName), Problem> {
    let mut loaded = input::load(global)?;
    super::team::hooks(&mut loaded, team)?;
    let fleet = loaded.fleet;
    if global.servers.is_some() {
        return Err(Problem::new(Exit::Usage, "--servers: the server is named by itself here")
            .hint("`handover drain SERVER`, one after the other"));
    }
    let name = ServerName::new(server);
    if fleet.server(&name).is_none() {
        let all = fleet.servers.iter().map(|s| s.name.to_string()).collect::<Vec<_>>().join(", ");
        return Err(
            Problem::new(Exit::Usage, format!("deploy.toml has no server {server}")).hint(format!("there are {all}"))
        );
    }
    super::team::confirmed(global, &fleet, &team.confirm)?;
    Ok((fleet, name))
}

fn moment(until: Until) -> Result<u64, Problem> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    ends_at(until, now).map_err(|what| {
        Problem::new(Exit::Usage, format!("--until: {what}")).hint("name another one, or a duration as in 2h")
    })
}

/// When that is, in seconds since the epoch like `now`.
fn ends_at(until: Until, now: u64) -> Result<u64, &'static str> {
    let at = match until {
        Until::After(length) => now.saturating_add(length.as_secs()),
        Until::Moment(at) => at,
    };
    match at {
        at if at <= now => Err("that moment is over already"),
        at if at > LAST_MOMENT => Err("no calendar has that moment"),
        at => Ok(at),
    }
}

/// A reason is told in one line, to whoever asks, on his terminal.
pub(super) fn reason(text: &str) -> Result<String, &'static str> {
    if text.chars().any(char::is_control) {
        return Err("a reason is one line without control characters");
    }
    if text.trim().is_empty() { Err("say why") } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_ends_after_it_began_and_before_calendars_do() {
        let now = 1_000;
        assert_eq!(ends_at(Until::After(Duration::from_secs(5)), now), Ok(1_005));
        assert_eq!(ends_at(Until::Moment(1_001), now), Ok(1_001));
        for over in [Until::After(Duration::ZERO), Until::Moment(now), Until::Moment(0)] {
            assert!(ends_at(over, now).is_err_and(|why| why.contains("over already")), "{over:?}");
        }
        for far in [Until::After(Duration::from_secs(u64::MAX)), Until::Moment(LAST_MOMENT + 1)] {
            assert!(ends_at(far, now).is_err_and(|why| why.contains("no calendar")), "{far:?}");
        }
    }

    #[test]
    fn a_reason_moves_nobodys_cursor() {
        assert_eq!(reason("neue Platte, für \"web-1\"").as_deref(), Ok("neue Platte, für \"web-1\""));
        for text in ["two\nlines", "\u{1b}[31mred", "bell\u{7}", " ", ""] {
            assert!(reason(text).is_err(), "{text:?}");
        }
    }
}
