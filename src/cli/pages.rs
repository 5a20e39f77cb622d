//! What a shell and `man` are told of the commands: made from the arguments themselves, so that they are never behind them.

use super::Cli;
use super::args::{CompletionsArgs, ManArgs};
use super::finish;
use crate::diag::{Exit, Problem};
use crate::report::Reporter;
use clap::CommandFactory;

/// What it was built from; a development build names no commit, which would be another one after each.
pub(super) const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), "\ncommit ", env!("HANDOVER_COMMIT"), "\ntarget ", env!("HANDOVER_TARGET"));

pub(super) fn completions(args: &CompletionsArgs, reporter: &Reporter) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "handover", &mut script);
    reporter.result(&String::from_utf8_lossy(&script));
    Exit::Done.into()
}

pub(super) fn man(args: &ManArgs, reporter: &Reporter) -> u8 {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        return match clap_mangen::Man::new(Cli::command()).render(&mut page) {
            Ok(()) => {
                reporter.result(&String::from_utf8_lossy(&page));
                Exit::Done.into()
            }
            Err(error) => finish::refused(reporter, &Problem::new(Exit::Failed, error.to_string())),
        };
    };
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    match written {
        Ok(()) => {
            reporter.note(&format!("man pages are in {}", folder.display()));
            Exit::Done.into()
        }
        Err(error) => {
            let message = format!("{}: {error}", folder.display());
            finish::refused(reporter, &Problem::new(Exit::Failed, message).hint("name a folder that can be written to"))
        }
    }
}
