//! Parts of the lab by themselves: a pretended balancer in front of real servers.

use super::args::LabBalancerArgs;
use super::finish;
use super::signals::Signals;
use crate::diag::{Exit, Problem};
use crate::lab::balancer::{StandaloneSpec, standalone};
use crate::report::Reporter;
use serde_json::json;

/// Runs a balancer until it is interrupted; its addresses are the first line, its truth the last.
pub(super) async fn balancer(args: &LabBalancerArgs, reporter: &Reporter) -> u8 {
    match Box::pin(run(args, reporter)).await {
        Ok(()) => Exit::Done.into(),
        Err(problem) => finish::refused(reporter, &problem),
    }
}

async fn run(args: &LabBalancerArgs, reporter: &Reporter) -> Result<(), Problem> {
    let wrong = |error: &dyn std::fmt::Display| Problem::new(Exit::Usage, format!("{}: {error}", args.spec.display()));
    let text = std::fs::read_to_string(&args.spec).map_err(|error| wrong(&error))?;
    let spec: StandaloneSpec = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    let signals = Signals::listen()?;
    let lab = standalone(spec).await.map_err(|error| Problem::new(Exit::Failed, error.to_string()))?;
    let nodes: Vec<String> = lab.balancer.nodes().iter().map(ToString::to_string).collect();
    reporter.result(&json!({"control_plane": lab.balancer.endpoint(), "nodes": nodes}).to_string());
    signals.first().await;
    reporter.result(&json!({"truth": lab.balancer.truth()}).to_string());
    Ok(())
}
