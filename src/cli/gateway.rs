//! `handover gateway`: the front of a server.

use super::args::{GatewayArgs, Global};
use super::finish;
use crate::event::Sink;
use crate::gateway::{self, Files, ServerLock, Start};
use crate::report::Reporter;
use crate::server::flock::{Taken, holder, try_take};
use crate::server::layout::Layout;
use serde_json::json;
use std::io;
use std::path::Path;
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
    match gateway::run(Start { files, take_over: args.take_over, lock: Arc::new(OfServer) }, sink).await {
        Ok(()) => finish::ended(reporter, None, &json!({})),
        Err(problem) => finish::refused(reporter, &problem),
    }
}

/// The lock that deploys, bootstrap and watchdog take, with the note that says who has it.
#[derive(Debug)]
struct OfServer;

impl ServerLock for OfServer {
    fn try_take(&self, lock: &Path, dir: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let note = Layout::new(dir, lock).server_lock_note();
        Ok(match try_take(lock, &note, &super::connect::run("handover gateway"))? {
            Taken::Ours(held) => Some(Box::new(held)),
            Taken::Held(_) => None,
        })
    }

    fn is_held(&self, lock: &Path, dir: &Path) -> io::Result<bool> {
        Ok(holder(lock, &Layout::new(dir, lock).server_lock_note())?.is_some())
    }
}
