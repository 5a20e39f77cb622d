//! What may stand behind `handover sleep`. The doc comments are the help.

use super::CheckFormat;
use crate::fleet::model::{Mode, parse_duration};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(in crate::cli) struct SleepArgs {
    #[command(subcommand)]
    pub(in crate::cli) action: SleepAction,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SleepAction {
    /// Say whether the numbers of tenants on Kubernetes fit together
    Check(TenantCheckArgs),
    /// Write the manifests and configurations of tenants on Kubernetes
    Render(TenantRenderArgs),
    /// Show how backends that may sleep stand
    Status {
        /// Only this one
        host: Option<String>,
    },
    /// Wake a backend and wait until it accepts connections; that counts as use
    Wake {
        /// Whose
        host: String,
    },
    /// Put a backend to sleep, as if nobody had needed it for long
    Now {
        /// Whose
        host: String,
    },
    /// List every wake with its parts, say what sleeping saved, and whether every start was quick enough (else exit code 4)
    Report {
        /// Only this one
        host: Option<String>,
        /// How long a start may take
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::fleet::model::parse_duration)]
        within: std::time::Duration,
        /// For how many days every start must have been so quick
        #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
    },
}

/// Which tenants, and how.
#[derive(Debug, Args)]
pub(in crate::cli) struct TenantsArgs {
    /// The folder of the tenants' files
    #[arg(long, value_name = "DIR", default_value = "tenants")]
    pub(in crate::cli) tenants: PathBuf,
    /// Who measures and who scales: k1, k2, k2+ or k3; else what defaults.toml says
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(in crate::cli) mode: Option<Mode>,
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| "there are k1, k2, k2+ and k3".to_owned())
}

#[derive(Debug, Args)]
pub(in crate::cli) struct TenantCheckArgs {
    /// Check these instead of tenants: HPAs and workloads, Caddyfiles or Caddy's JSON, configurations and rules of Prometheus, of prometheus-adapter
    #[arg(value_name = "FILE", conflicts_with_all = ["tenants", "mode"])]
    pub(in crate::cli) files: Vec<PathBuf>,
    /// With files: the p99 of the pod's start
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "files")]
    pub(in crate::cli) start: Option<Duration>,
    /// With files: how long the balancer in front waits (else 60s, an ALB's own)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "files")]
    pub(in crate::cli) balancer: Option<Duration>,
    /// With files: how long the least patient client waits (else 60s, MCP's TypeScript SDK)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "files")]
    pub(in crate::cli) patience: Option<Duration>,
    /// With files: how long the name service remembers that a name is missing (else 30s, CoreDNS' own)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "files")]
    pub(in crate::cli) missing_name: Option<Duration>,
    /// With files: how many requests a second monitoring makes of the host, as the edge counts them
    #[arg(long, value_name = "RATE", requires = "files")]
    pub(in crate::cli) probes: Option<f64>,
    /// With files: the caddy that turns a Caddyfile into JSON (else the one of the PATH)
    #[arg(long, value_name = "PROGRAM", requires = "files")]
    pub(in crate::cli) caddy: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) tenants: TenantsArgs,
    /// For whoever shows files with remarks, instead of text
    #[arg(long, value_name = "FORMAT", conflicts_with = "output")]
    pub(in crate::cli) format: Option<CheckFormat>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct TenantRenderArgs {
    #[command(flatten)]
    pub(in crate::cli) tenants: TenantsArgs,
    /// Only these tenants' own manifests; what all share is written as a whole
    #[arg(value_name = "TENANT")]
    pub(in crate::cli) names: Vec<String>,
    /// Where they are written
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) out: PathBuf,
}
