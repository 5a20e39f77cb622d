//! `handover gateway`: the front of a server.

use super::args::{GatewayArgs, Global};
use super::finish;
use crate::event::Sink;
use crate::gateway::{self, Files, Start};
use crate::report::Reporter;
use serde_json::json;
use std::sync::Arc;

pub(super) async fn run(global: &Global, args: &GatewayArgs, reporter: &Arc<Reporter>) -> u8 {
    let files = Files { path: global.config.clone(), destination: global.destination.clone() };
    if args.check {
        return match gateway::check(&files) {
            Ok(warnings) => {
                for warning in &warnings {
                    reporter.note(&format!("warning: {warning}"));
                }
                reporter.note(&format!("{}: the gateway can be started with it", files.path.display()));
                finish::ended(reporter, None, &json!({ "warnings": warnings }))
            }
            Err(problem) => finish::refused(reporter, &problem),
        };
    }
    let sink: Arc<dyn Sink> = Arc::<Reporter>::clone(reporter);
    match gateway::run(Start { files, take_over: args.take_over }, sink).await {
        Ok(()) => finish::ended(reporter, None, &json!({})),
        Err(problem) => finish::refused(reporter, &problem),
    }
}
