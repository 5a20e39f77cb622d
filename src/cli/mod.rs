//! The command line: one file a command. The only place that knows clap.

mod access_log;
mod args;
mod bootstrap;
mod check;
pub mod compose;
mod connect;
mod deploy;
mod drain;
mod finish;
mod gateway;
mod history;
mod init;
mod input;
mod install;
mod lab;
mod lock;
mod marks;
mod measure;
mod measuring;
mod pages;
mod plan;
mod provision;
mod rehearse;
mod report;
mod resume;
mod rollback;
mod session;
mod signals;
mod simulate;
mod sleep;
mod status;
mod story;
mod team;
mod verify;
mod watchdog;

use crate::diag::{Exit, Problem};
use crate::report::{Format, Level, Reporter};
use args::{Cli, Command};
use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Parses, runs, and gives the exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error, &args),
    };
    if matches!(cli.command, Command::LabService(_)) {
        return u8::try_from(crate::lab::service::run()).unwrap_or_else(|_| Exit::Failed.into());
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(threads(&cli.command)).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return say_and_end(&Problem::new(Exit::Failed, format!("no runtime: {error}"))),
        };
    let reporter = std::sync::Arc::new(cli.global.reporter());
    let ran = AssertUnwindSafe(|| runtime.block_on(run(cli, std::sync::Arc::clone(&reporter))));
    // Whatever fails, a pipeline gets its last line; connections that were open are closed by now, so agents put right.
    let exit = catch_unwind(ran).unwrap_or_else(|_| finish::refused(&reporter, &broken()));
    // What still runs in the background (a name lookup, a read of stdin) is not worth waiting for.
    runtime.shutdown_background();
    exit
}

/// What shares its server with the app: one thread is enough for it.
fn threads(command: &Command) -> usize {
    if matches!(command, Command::Agent | Command::Watchdog(_) | Command::Bootstrap(_)) { 1 } else { 2 }
}

fn not_parsed(error: &clap::Error, args: &[OsString]) -> u8 {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        drop(error.print());
        return Exit::Done.into();
    }
    let json = args.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json")
        || args.iter().any(|arg| arg == "--output=json");
    if json {
        let reporter = Reporter::new(Some(Format::Json), Level::Quiet);
        let text = error.to_string();
        let message = text.trim_start_matches("error: ").trim_end();
        return finish::refused(&reporter, &Problem::new(Exit::Usage, message));
    }
    drop(error.print());
    Exit::Usage.into()
}

/// The panic itself stands on stderr.
fn broken() -> Problem {
    Problem::new(Exit::Failed, "this is a fault of handover, not yours: it broke, as told on stderr")
        .hint("`handover plan` says how every server stands; please report it")
}

fn say_and_end(problem: &Problem) -> u8 {
    finish::refused(&Reporter::new(None, Level::Normal), problem)
}

async fn run(cli: Cli, reporter: std::sync::Arc<Reporter>) -> u8 {
    match cli.command {
        Command::Init(args) => Box::pin(init::run(&cli.global, &args, &reporter)).await,
        Command::Plan(args) => plan::run(&cli.global, &args, &reporter).await,
        Command::Deploy(args) => deploy::run(&cli.global, &args, &reporter).await,
        Command::Rollback(args) => rollback::run(&cli.global, &args, &reporter).await,
        Command::Resume(args) => resume::run(&cli.global, &args, &reporter).await,
        Command::Drain(args) => drain::out(&cli.global, &args, &reporter).await,
        Command::Undrain(args) => drain::back(&cli.global, &args, &reporter).await,
        Command::Report(args) => report::run(&cli.global, &args, &reporter).await,
        Command::History(args) => history::run(&cli.global, &args, &reporter).await,
        Command::Check(args) => check::run(&cli.global, &args, &reporter).await,
        Command::Provision(args) => Box::pin(provision::run(&cli.global, &args, &reporter)).await,
        Command::Status(args) => Box::pin(status::run(&cli.global, &args, &reporter)).await,
        Command::Install(args) => install::run(&cli.global, &args, &reporter).await,
        Command::Bootstrap(args) => bootstrap::run(&args, &reporter).await,
        Command::Watchdog(args) => watchdog::run(&args, &reporter).await,
        Command::Verify => verify::run(&cli.global, &reporter).await,
        Command::Lock(args) => lock::run(&cli.global, &args, &reporter).await,
        Command::Rehearse(args) if args.simulate.is_some() => simulate::run(&cli.global, &args, &reporter),
        Command::Rehearse(args) if args.story => Box::pin(story::run(&args, &reporter)).await,
        Command::Rehearse(args) => Box::pin(rehearse::run(&cli.global, &args, &reporter)).await,
        Command::Measure(args) if args.url.is_none() => access_log::run(&args, &reporter),
        Command::Measure(args) => Box::pin(measure::run(&args, &reporter)).await,
        Command::Gateway(args) => Box::pin(gateway::run(&cli.global, &args, &reporter)).await,
        Command::Sleep(args) => sleep::run(&cli.global, &args, &reporter).await,
        Command::Completions(args) => pages::completions(&args, &reporter),
        Command::Man(args) => pages::man(&args, &reporter),
        Command::Schema => {
            reporter.result(&format!("{:#}", crate::config::schema()));
            Exit::Done.into()
        }
        Command::Agent => {
            let code = Box::pin(crate::server::agent::serve(tokio::io::stdin(), tokio::io::stdout())).await;
            u8::try_from(code).unwrap_or_else(|_| Exit::Failed.into())
        }
        Command::LabBalancer(args) => lab::balancer(&args, &reporter).await,
        Command::LabService(_) => Exit::Failed.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn no_two_arguments_of_a_command_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
