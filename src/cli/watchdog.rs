//! `handover watchdog`, on a server: looks at its services and heals what stays broken.

use super::args::{Place, WatchdogArgs};
use super::finish;
use crate::clock::Stamp;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Sink};
use crate::fleet::model::WatchdogState;
use crate::report::{Format, Reporter};
use crate::server::layout::Layout;
use crate::server::watchdog::{Mode, Said, watch};
use crate::server::wire::Failure;
use serde_json::json;

pub(super) async fn run(args: &WatchdogArgs, reporter: &Reporter) -> u8 {
    let layout = match layout(&args.place) {
        Ok(layout) => layout,
        Err(problem) => return finish::refused(reporter, &problem),
    };
    let mode = match (args.once, args.explain) {
        (true, _) => Mode::Once,
        (_, true) => Mode::Explain,
        _ => Mode::Forever,
    };
    match Box::pin(watch(&layout, mode, |said| say(reporter, said))).await {
        Ok(last) => {
            let problem = (mode == Mode::Once && matches!(last.word, WatchdogState::Unknown | WatchdogState::Failing))
                .then(|| Problem::new(Exit::Failed, last.what.clone()));
            finish::ended(reporter, problem.as_ref(), &json!({"state": last.word, "services": last.services}))
        }
        Err(failure) => finish::refused(reporter, &problem(&failure)),
    }
}

fn say(reporter: &Reporter, said: &Said) {
    let services = said.services.iter().map(|(name, what)| format!("{name}: {what}"));
    let mut lines = vec![said.what.clone()];
    lines.extend(services);
    lines.extend(said.logs.iter().cloned());
    if reporter.format() == Format::Json {
        reporter.take(Line::new(Stamp::ZERO, Event::Watchdog(Box::new(json!(said)))));
    } else {
        reporter.result(&lines.join("\n"));
    }
}

pub(super) fn problem(failure: &Failure) -> Problem {
    let problem = Problem::new(Exit::Failed, failure.message.clone()).output(failure.output.clone());
    match &failure.hint {
        Some(hint) => problem.hint(hint.clone()),
        None => problem,
    }
}

/// Where the app's files lie: as it is told, or around this very binary where it was installed.
pub(super) fn layout(place: &Place) -> Result<Layout, Problem> {
    let of = |dir: std::path::PathBuf| {
        let lock = dir.join("lock");
        Layout::new(dir, lock)
    };
    if let Some(dir) = &place.dir {
        return Ok(of(dir.clone()));
    }
    let own = std::env::current_exe().ok();
    let around = own.as_ref().and_then(|own| own.parent()?.parent()).map(|dir| of(dir.to_owned()));
    around.filter(|layout| layout.settings().exists() || layout.app().exists()).ok_or_else(|| {
        Problem::new(Exit::Usage, "this binary lies in no app's folder, so it does not know which app is meant")
            .hint("say where the app's files lie on this server: `--dir /opt/APP`")
    })
}
