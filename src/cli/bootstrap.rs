//! `handover bootstrap`, on a server at boot: nothing enters rotation unverified.

use super::args::BootstrapArgs;
use super::finish;
use super::watchdog::{layout, problem};
use crate::report::{Format, Reporter};
use crate::server::bootstrap::{Booted, early, late};
use serde_json::json;

pub(super) async fn run(args: &BootstrapArgs, reporter: &Reporter) -> u8 {
    let layout = match layout(&args.place) {
        Ok(layout) => layout,
        Err(problem) => return finish::refused(reporter, &problem),
    };
    let booted = if args.early { early(&layout).await } else { Box::pin(late(&layout)).await };
    match booted {
        Ok(booted) => {
            let (word, what) = match &booted {
                Booted::In(what) => ("in", what),
                Booted::Out(what) => ("out", what),
                Booted::Left(what) => ("left", what),
            };
            if reporter.format() != Format::Json {
                reporter.result(&format!("{word}: {what}"));
            }
            finish::ended(reporter, None, &json!({"outcome": word, "what": what}))
        }
        Err(failure) => finish::refused(reporter, &problem(&failure)),
    }
}
