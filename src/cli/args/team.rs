//! What a command that changes something may be told of the team's own ways.

use clap::Args;

/// What every command that runs the engine understands.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct Team {
    /// Run none of the commands of `[hooks]`
    #[arg(long)]
    pub(in crate::cli) skip_hooks: bool,
    #[command(flatten)]
    pub(in crate::cli) confirm: Confirm,
}

/// The word that a destination with `confirm = true` wants to hear.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct Confirm {
    /// The destination that is meant (the app, without `-d`), where deploy.toml says `confirm = true`
    #[arg(long, value_name = "DESTINATION")]
    pub(in crate::cli) confirm: Option<String>,
}
