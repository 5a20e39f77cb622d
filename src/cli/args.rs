//! What may stand on the command line. The doc comments are the help.

use super::drain::{Until, reason, until};
mod afterwards;
mod beginning;
mod measuring;
mod own;
mod sleeping;
mod team;

pub(super) use afterwards::{CompletionsArgs, HistoryArgs, ManArgs, ReportArgs};
pub(super) use beginning::{InitArgs, Kind, Way};
pub(super) use measuring::MeasureArgs;
pub(super) use own::{BootstrapArgs, Place, WatchdogArgs};
pub(super) use sleeping::{SleepAction, SleepArgs, TenantCheckArgs, TenantRenderArgs, TenantsArgs};
pub(super) use team::{Confirm, Team};

use crate::fleet::model::parse_duration;
use crate::report::{Format, Level, Reporter};
use crate::rollout::machine::Protection;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Deploy without losing a request: server by server, out of rotation first, verified before the next.
#[derive(Debug, Parser)]
#[command(name = "handover", version, long_version = super::pages::LONG_VERSION, propagate_version = true, max_term_width = 100)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Global {
    /// The file that describes the fleet
    #[arg(short = 'c', long = "config", global = true, value_name = "FILE", default_value = "deploy.toml")]
    pub(super) config: PathBuf,
    /// Lay deploy.DESTINATION.toml over it
    #[arg(short = 'd', long, global = true, value_name = "DESTINATION")]
    pub(super) destination: Option<String>,
    /// Only these servers: by name, or by a tag as in `tag:canary`
    #[arg(long, global = true, value_name = "GLOB")]
    pub(super) servers: Option<String>,
    /// Give a variable of the compose file
    #[arg(long = "set", global = true, value_name = "VAR=VALUE")]
    pub(super) set: Vec<String>,
    /// Answer every question with yes
    #[arg(short, long, global = true)]
    pub(super) yes: bool,
    /// Tell only results, warnings and failures
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Tell what is waited for, too
    #[arg(short, long, global = true)]
    pub(super) verbose: bool,
    /// How output is written
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(super) output: Option<OutputFormat>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum OutputFormat {
    /// For a person at a terminal
    Human,
    /// Whole lines, for logs
    Plain,
    /// One JSON object a line
    Json,
}

impl Global {
    pub(super) fn reporter(&self) -> Reporter {
        let format = self.output.map(|format| match format {
            OutputFormat::Human => Format::Human,
            OutputFormat::Plain => Format::Plain,
            OutputFormat::Json => Format::Json,
        });
        let level = match (self.quiet, self.verbose) {
            (true, _) => Level::Quiet,
            (_, true) => Level::Verbose,
            _ => Level::Normal,
        };
        Reporter::new(format, level)
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Propose a deploy.toml from the compose file, the balancer and ~/.ssh/config, write it and check it
    Init(Box<InitArgs>),
    /// Show what a deploy would do, and change nothing
    Plan(PlanArgs),
    /// Bring the release to the fleet, server by server
    Deploy(DeployArgs),
    /// Bring a release back that lies on the servers, the one before where none is named
    Rollback(RollbackArgs),
    /// Finish a deploy that broke off
    Resume(ResumeArgs),
    /// Take a server out of rotation and leave it so; what runs there runs on
    Drain(DrainArgs),
    /// Verify a server that is out of rotation, and bring it back
    Undrain(UndrainArgs),
    /// List the deploys: who, from where, what, how long, and what became of the requests
    History(HistoryArgs),
    /// Say whether the numbers of deploy.toml and the compose file fit together
    Check(CheckArgs),
    /// Show where the balancer says otherwise than deploy.toml, and make it say so
    Provision(ProvisionArgs),
    /// Check every service on every server
    Verify,
    /// Show how every server stands: release, services, locks, planned absence, watchdog, targets
    Status(StatusArgs),
    /// Put bootstrap and watchdog on the servers, or take them away
    Install(InstallArgs),
    /// On a server, at boot: bring the published definition up, verify it, let the server in
    Bootstrap(BootstrapArgs),
    /// On a server: look at its services, and heal what stays broken unless planned work is going on
    Watchdog(WatchdogArgs),
    /// See, put on or take off a freeze; see who holds the locks
    Lock(LockArgs),
    /// Play the deploy on a pretended fleet, with traffic
    Rehearse(RehearseArgs),
    /// Count what became of requests: live, beside any tool's deploys, or from a balancer's access logs
    Measure(Box<MeasureArgs>),
    /// Serve as the front of a server: a reverse proxy that holds a request instead of failing it
    Gateway(GatewayArgs),
    /// Show, wake and put to sleep the backends of the gateway that runs on this server, and say whether it pays
    Sleep(SleepArgs),
    /// Write a run as one page: what was done to each server when, and what became of requests meanwhile
    Report(ReportArgs),
    /// Print the JSON schema of deploy.toml
    Schema,
    /// Print what a shell needs to complete commands: `source <(handover completions bash)`
    Completions(CompletionsArgs),
    /// Print the man page, or write one for every command into a folder
    Man(ManArgs),
    /// Serve a deploy on this server (started over SSH)
    #[command(hide = true)]
    Agent,
    /// Run a pretended balancer with targets of its own
    #[command(hide = true)]
    LabBalancer(LabBalancerArgs),
    /// Run a pretended service
    #[command(hide = true)]
    LabService(LabServiceArgs),
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Plan from the file alone: neither servers nor balancer are asked
    #[arg(long)]
    pub(super) offline: bool,
    #[command(flatten)]
    pub(super) allow: Allow,
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Ask the balancer and the servers too: where they say otherwise, their numbers count
    #[arg(long)]
    pub(super) live: bool,
    /// Set each number to wrong values, one at a time, and say what notices
    #[arg(long, conflicts_with = "live")]
    pub(super) mutate: bool,
    /// Write the findings as another tool wants them
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<CheckFormat>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum CheckFormat {
    /// A SARIF 2.1.0 log
    Sarif,
    /// Annotations of GitHub Actions
    Github,
}

#[derive(Debug, Args)]
pub(super) struct ProvisionArgs {
    /// Only show the difference, which is what happens without any option
    #[arg(long, conflicts_with_all = ["apply", "export", "iam"])]
    _dry_run: bool,
    /// Change what deploy.toml names and the balancer says otherwise
    #[arg(long)]
    pub(super) apply: bool,
    /// Write what the balancer says as lines of deploy.toml
    #[arg(long, conflicts_with = "apply")]
    pub(super) export: bool,
    #[command(flatten)]
    pub(super) confirm: Confirm,
    /// Print the IAM policy that each command needs, as JSON; nobody is asked
    #[arg(long, conflicts_with_all = ["apply", "export"])]
    pub(super) iam: bool,
}

/// What is allowed although it loses requests.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Allow {
    /// Go on even where requests will be lost
    #[arg(long)]
    pub(super) allow_downtime: bool,
    /// Deploy to groups in which no target was ever healthy
    #[arg(long)]
    pub(super) first: bool,
}

#[derive(Debug, Args)]
pub(super) struct DeployArgs {
    /// A label for the release, no part of it
    #[arg(long, value_name = "LABEL")]
    pub(super) name: Option<String>,
    /// Wait for another deploy to end, so long at most
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "30m")]
    pub(super) wait: Option<Duration>,
    /// Leave a deploy that broke off as it is found, and bring this release instead
    #[arg(long)]
    pub(super) start_over: bool,
    /// Write the run as one page to this file when it is over
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    #[command(flatten)]
    pub(super) allow: Allow,
    #[command(flatten)]
    pub(super) team: Team,
}

#[derive(Debug, Args)]
pub(super) struct RollbackArgs {
    /// Its label, or the first digits of its name
    #[arg(value_name = "RELEASE", conflicts_with = "list")]
    pub(super) release: Option<String>,
    /// Show what lies on which server, and change nothing
    #[arg(long)]
    pub(super) list: bool,
    /// Wait for another deploy to end, so long at most
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "30m")]
    pub(super) wait: Option<Duration>,
    #[command(flatten)]
    pub(super) allow: Allow,
    #[command(flatten)]
    pub(super) team: Team,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// Wait for another deploy to end, so long at most
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "30m")]
    pub(super) wait: Option<Duration>,
    #[command(flatten)]
    pub(super) allow: Allow,
    #[command(flatten)]
    pub(super) team: Team,
}

#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    /// Which, as deploy.toml calls it
    #[arg(value_name = "SERVER")]
    pub(super) server: String,
    /// Why, for whoever finds it out of rotation
    #[arg(short, long, value_name = "REASON", default_value = "no reason given", value_parser = reason)]
    pub(super) message: String,
    /// How long it is meant to be out, or until when: afterwards it is called overdue, and stays out all the same
    #[arg(long, value_name = "DURATION|TIME", value_parser = until)]
    pub(super) until: Option<Until>,
    /// Wait for a deploy to end, so long at most
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "30m")]
    pub(super) wait: Option<Duration>,
    /// Go on even where requests will be lost
    #[arg(long)]
    pub(super) allow_downtime: bool,
    #[command(flatten)]
    pub(super) team: Team,
}

#[derive(Debug, Args)]
pub(super) struct UndrainArgs {
    /// Which, as deploy.toml calls it
    #[arg(value_name = "SERVER")]
    pub(super) server: String,
    /// Wait for a deploy to end, so long at most
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "30m")]
    pub(super) wait: Option<Duration>,
    #[command(flatten)]
    pub(super) team: Team,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Show it again and again, until interrupted
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "5s")]
    pub(super) watch: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Take them away again; releases, records and locks stay
    #[arg(long)]
    pub(super) remove: bool,
    #[command(flatten)]
    pub(super) confirm: Confirm,
}

#[derive(Debug, Args)]
pub(super) struct LockArgs {
    #[command(subcommand)]
    pub(super) action: LockAction,
}

#[derive(Debug, Subcommand)]
pub(super) enum LockAction {
    /// Show who holds which lock, from where, since when, for what
    Status,
    /// Put a freeze on: deploys end with exit code 3 until it is released
    Acquire {
        /// Why, for whoever is stopped by it
        #[arg(short, long, value_name = "REASON", value_parser = reason)]
        message: String,
    },
    /// Take the freeze off
    Release,
}

#[derive(Debug, Args)]
pub(super) struct RehearseArgs {
    /// Write the rehearsal as one page to this file when it is over
    #[arg(long, value_name = "FILE", conflicts_with_all = ["serve", "story", "simulate"])]
    pub(super) report: Option<PathBuf>,
    /// Restart each server's containers in turn, the way scripts do it
    #[arg(long)]
    pub(super) naive: bool,
    /// Keep the pretended fleet up without a deploy, until interrupted
    #[arg(long, conflicts_with = "naive")]
    pub(super) serve: bool,
    /// Play three deploys of a fleet of its own: with a watchdog that heals at once, with it mended, with the handshake right
    #[arg(long, conflicts_with_all = ["naive", "serve", "simulate", "fail", "allow_downtime", "first"])]
    pub(super) story: bool,
    /// Play so many deploys in virtual time instead, with faults drawn from seeds, and look whether every promise is kept
    #[arg(long, value_name = "N", conflicts_with_all = ["naive", "serve", "speed", "fail"])]
    pub(super) simulate: Option<u64>,
    /// Leave one protection out, to see that its absence is found
    #[arg(long, value_name = "PROTECTION", requires = "simulate", hide = true)]
    pub(super) without: Option<Protection>,
    /// How many times faster than the wall clock the fleet's time runs
    #[arg(long, value_name = "N", default_value_t = 5.0, allow_negative_numbers = true)]
    pub(super) speed: f64,
    /// Let a service of the new release fail its check, to see what becomes of the deploy
    #[arg(long, value_name = "[SERVER:]SERVICE")]
    pub(super) fail: Vec<String>,
    /// Where every random choice comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) allow: Allow,
}

#[derive(Debug, Args)]
pub(super) struct GatewayArgs {
    /// Take the listeners over from the gateway that runs, without a moment in which nobody listens
    #[arg(long)]
    pub(super) take_over: bool,
    /// Say whether the configuration can be used, and end
    #[arg(long, conflicts_with = "take_over")]
    pub(super) check: bool,
}

#[derive(Debug, Args)]
pub(super) struct LabBalancerArgs {
    /// What it balances, as JSON
    #[arg(value_name = "FILE")]
    pub(super) spec: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct LabServiceArgs {
    /// Who it is, for whoever lists processes; what it plays is said by the environment
    #[arg(value_name = "NAME")]
    _names: Vec<String>,
}
