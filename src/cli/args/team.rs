//! What a command that works on the fleet may be told of the team's own ways.

use clap::Args;

/// What every command that runs the engine understands.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct Team {
    /// Run none of the commands of `[hooks]`
    #[arg(long)]
    pub(in crate::cli) skip_hooks: bool,
}
