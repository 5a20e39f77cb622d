//! What the commands understand that run on a server by themselves.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct BootstrapArgs {
    /// Before the engine starts: only make health fail, so that nothing enters unverified
    #[arg(long)]
    pub(in crate::cli) early: bool,
    #[command(flatten)]
    pub(in crate::cli) place: Place,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct WatchdogArgs {
    /// Look once, and end (for cron)
    #[arg(long)]
    pub(in crate::cli) once: bool,
    /// Say what a look would lead to, and change nothing
    #[arg(long, conflicts_with = "once")]
    pub(in crate::cli) explain: bool,
    #[command(flatten)]
    pub(in crate::cli) place: Place,
}

/// Which app of this server.
#[derive(Debug, Args)]
pub(in crate::cli) struct Place {
    /// The app's folder on this server (`release.dir`) [default: the one that this binary lies in]
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) dir: Option<PathBuf>,
}
