//! `handover sleep`: backends that may sleep, on servers and on Kubernetes.

mod check;
mod files;
mod render;
mod server;

use super::args::{Global, SleepAction, SleepArgs};
use crate::report::Reporter;

pub(super) async fn run(global: &Global, args: &SleepArgs, reporter: &Reporter) -> u8 {
    match &args.action {
        SleepAction::Check(args) => check::run(args, reporter),
        SleepAction::Render(args) => render::run(args, reporter),
        action => server::run(global, action, reporter).await,
    }
}
