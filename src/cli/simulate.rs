//! `handover rehearse --simulate N`: thousands of deploys of the user's own fleet in virtual time, with faults from seeds.

use super::args::{Global, RehearseArgs};
use super::{finish, input};
use crate::diag::{Exit, Problem};
use crate::lab::simulation::{Simulated, Violation, simulate};
use crate::report::{Format, Reporter, table};
use serde_json::json;

/// So many violations are shown to people; JSON has them all.
const SHOWN: usize = 20;

pub(super) fn run(global: &Global, args: &RehearseArgs, reporter: &Reporter) -> u8 {
    let count = args.simulate.unwrap_or_default();
    match played(global, args, count) {
        Err(problem) => finish::refused(reporter, &problem),
        Ok(simulated) => {
            let problem = problem(&simulated, args);
            if reporter.format() != Format::Json {
                reporter.result(&text(&simulated));
            }
            let result = json!({"simulated": simulated.runs, "seed": args.seed, "violations": simulated.violations});
            finish::ended(reporter, problem.as_ref(), &result)
        }
    }
}

fn played(global: &Global, args: &RehearseArgs, count: u64) -> Result<Simulated, Problem> {
    if count == 0 {
        return Err(Problem::new(Exit::Usage, "--simulate 0: nothing would be played"));
    }
    let mut fleet = input::load(global)?.fleet;
    if let Some(names) = input::selection(global, &fleet)? {
        fleet.servers.retain(|server| names.contains(&server.name));
    }
    simulate(&fleet, args.seed, count, args.without, &|| false)
        .map_err(|error| Problem::new(Exit::Failed, format!("it could not be simulated: {error}")))
}

fn problem(simulated: &Simulated, args: &RehearseArgs) -> Option<Problem> {
    let first = simulated.violations.first()?;
    let message = format!("{} times a promise was not kept", simulated.violations.len());
    let without = args.without.map(|protection| format!(" --without {protection}")).unwrap_or_default();
    let again =
        format!("`handover rehearse --simulate 1 --seed {}{without}` plays the first of them again", first.seed);
    Some(Problem::new(Exit::Failed, message).hint(again))
}

fn text(simulated: &Simulated) -> String {
    let Simulated { runs, violations } = simulated;
    if violations.is_empty() {
        return format!("{runs} deploys with faults were simulated; every promise was kept");
    }
    let head = ["seed", "promise", "server", "step"].map(ToOwned::to_owned).to_vec();
    let row = |violation: &Violation| {
        vec![
            violation.seed.to_string(),
            violation.promise.to_string(),
            violation.server.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            violation.step.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(violations.iter().take(SHOWN).map(row)).collect();
    let what: Vec<String> = violations.iter().take(SHOWN).map(told).collect();
    let more = violations.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    format!("{runs} deploys with faults were simulated\n{}{}{more}", table(&rows), what.join("\n"))
}

fn told(violation: &Violation) -> String {
    format!("seed {}: {} ({})", violation.seed, violation.what, violation.faults.join(", "))
}
