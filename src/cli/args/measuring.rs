//! What `measure` understands.

use crate::fleet::model::parse_duration;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(in crate::cli) struct MeasureArgs {
    /// What to ask
    #[arg(value_name = "URL", required_unless_present = "access_log", conflicts_with = "access_log")]
    pub(in crate::cli) url: Option<String>,
    /// A health endpoint that answers 503 while its server drains: such an answer of the app is a drain signal
    #[arg(long, value_name = "PATH", value_parser = health_path)]
    pub(in crate::cli) health_path: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) live: LiveArgs,
    #[command(flatten)]
    pub(in crate::cli) log: AccessLogArgs,
}

/// How requests are sent; see docs/measure.md.
#[derive(Debug, Args)]
#[command(next_help_heading = "Live")]
pub(in crate::cli) struct LiveArgs {
    /// Send so many requests a second, whatever becomes of them [default: 20]
    #[arg(long, value_name = "N", requires = "url", conflicts_with = "access_log", allow_negative_numbers = true)]
    pub(in crate::cli) rate: Option<f64>,
    /// End after so long; without it, Ctrl-C ends it
    #[arg(long = "for", value_name = "DURATION", requires = "url", conflicts_with = "access_log", value_parser = parse_duration)]
    pub(in crate::cli) length: Option<Duration>,
    /// Count what has no whole answer by then as lost [default: 10s]
    #[arg(long, value_name = "DURATION", requires = "url", conflicts_with = "access_log", value_parser = parse_duration)]
    pub(in crate::cli) timeout: Option<Duration>,
    /// Speak HTTP/2 and nothing else
    #[arg(long, requires = "url", conflicts_with = "access_log")]
    pub(in crate::cli) http2: bool,
    /// Trust the certificates in this PEM file instead of the machine's own
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with = "access_log")]
    pub(in crate::cli) ca: Option<PathBuf>,
    /// Send this header, too
    #[arg(long, value_name = "NAME: VALUE", requires = "url", conflicts_with = "access_log")]
    pub(in crate::cli) header: Vec<String>,
    /// Connect to this IP address, or address with port, instead of the host's own; several in turn
    #[arg(long, value_name = "ADDRESS", requires = "url", conflicts_with = "access_log")]
    pub(in crate::cli) connect: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "From access logs")]
pub(in crate::cli) struct AccessLogArgs {
    /// Read an Application Load Balancer's access logs, plain or gzip, instead of sending requests: files, folders, or - for stdin
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(in crate::cli) access_log: Vec<PathBuf>,
    /// When the deploy began, with its zone: requests that came from then on are the deploy's, others tell what is usual
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "access_log", conflicts_with = "url")]
    pub(in crate::cli) from: Option<i64>,
    /// When the deploy was over: requests that came then or later are not the deploy's
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "access_log", conflicts_with = "url")]
    pub(in crate::cli) to: Option<i64>,
    /// Write the counts as CSV: a row for each side of the window, target, class and cause
    #[arg(long, requires = "access_log", conflicts_with = "url")]
    pub(in crate::cli) csv: bool,
}

fn moment(text: &str) -> Result<i64, &'static str> {
    crate::measure::access_log::time::parse(text.as_bytes())
        .ok_or("wanted is RFC 3339 with a zone, as in 2026-11-29T12:00:00Z or 2026-11-29T13:00:00.5+01:00")
}

fn health_path(text: &str) -> Result<String, &'static str> {
    let path = text.split('?').next().unwrap_or_default();
    if path.starts_with('/') { Ok(path.to_owned()) } else { Err("a path begins with /") }
}
