//! What `init` may be told instead of being asked.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(in crate::cli) struct InitArgs {
    /// The app's name [default: the compose file's own `name`, else the folder's]
    #[arg(long)]
    pub(in crate::cli) app: Option<String>,
    /// The compose file, beside deploy.toml [default: the first that is there of those that Compose looks for]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) compose: Option<String>,
    /// Who sends the traffic
    #[arg(long, value_name = "KIND")]
    pub(in crate::cli) balancer: Option<Kind>,
    /// The AWS region [default: the environment's]
    #[arg(long)]
    pub(in crate::cli) region: Option<String>,
    /// Another address for the balancer's API
    #[arg(long, value_name = "URL")]
    pub(in crate::cli) endpoint: Option<String>,
    /// A target group, or a backend of HAProxy [default: the one whose port the compose file publishes]
    #[arg(long = "group", value_name = "NAME")]
    pub(in crate::cli) groups: Vec<String>,
    /// The runtime socket of an HAProxy node
    #[arg(long = "node", value_name = "SOCKET")]
    pub(in crate::cli) nodes: Vec<String>,
    /// A server: its name, what `ssh` calls it where that differs, and its targets
    #[arg(long = "server", value_name = "NAME[=SSH][,TARGET...]")]
    pub(in crate::cli) own_servers: Vec<String>,
    /// How a server leaves rotation
    #[arg(long, value_name = "WAY", default_value = "file")]
    pub(in crate::cli) drain: Way,
    /// A path of real traffic, which answers 200 while health answers 503
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) real: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Kind {
    /// An AWS Application Load Balancer
    Alb,
    /// HAProxy
    Haproxy,
    /// Nobody: servers that take no traffic
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Way {
    /// The app looks for a file, and answers its health check 503 while it is there
    File,
    /// The balancer is told to let the server go
    Deregister,
}
