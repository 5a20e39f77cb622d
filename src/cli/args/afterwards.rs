//! What the commands understand that change nothing: those that look back at runs, and those that tell of the commands themselves.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct ReportArgs {
    /// The run, as `handover history` names it; the youngest where none is named
    #[arg(value_name = "DEPLOY", conflicts_with = "events")]
    pub(in crate::cli) deploy: Option<String>,
    /// A stream of events that `--output json` wrote; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) events: Option<PathBuf>,
    /// Where the page goes
    #[arg(short, long, value_name = "FILE")]
    pub(in crate::cli) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct HistoryArgs {
    /// So many of the youngest
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    pub(in crate::cli) number: u32,
    /// Only what was deployed from this machine: no server is asked
    #[arg(long)]
    pub(in crate::cli) local: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CompletionsArgs {
    /// For which shell
    pub(in crate::cli) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ManArgs {
    /// Where a page for every command goes; without it the main one is printed
    #[arg(value_name = "FOLDER")]
    pub(in crate::cli) folder: Option<PathBuf>,
}
