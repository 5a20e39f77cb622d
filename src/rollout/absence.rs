//! Makes ready for a server to leave rotation or to come back: nothing is staged, pulled or stopped.

use super::machine::Setup;
use super::preflight::{NotReady, Order, Ready, Source, read_again, refusal};
use super::unfinished::Unfinished;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Absence, Known, ServerFacts, ServerName, Snapshot, show_moment};
use crate::fleet::plan::{self, Plan};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes the plan for the one server that is meant, and says what is found there.
pub(super) fn ready(
    order: &Order,
    snapshot: Snapshot,
    left: Option<&Unfinished>,
    say: &dyn Fn(Option<&ServerName>, String),
    warn: &dyn Fn(&String),
) -> Result<Ready, NotReady> {
    let Some([name]) = order.options.servers.as_deref() else {
        return Err(Problem::new(Exit::Usage, "one server leaves or comes back at a time").into());
    };
    if let Some(left) = left {
        warn(&format!("an earlier deploy broke off: {}; see `handover resume`", left.sentence()));
    }
    let planned = match &order.source {
        Source::Drain(absence) => plan::drain(&order.fleet, &snapshot, name, absence.clone(), &order.options),
        _ => plan::undrain(&order.fleet, &snapshot, name, &order.options),
    };
    let plan = read_again(&order.fleet, planned.map_err(|why| refusal(&why))?)?;
    plan.warnings.iter().for_each(warn);
    let facts = snapshot.servers.get(name).and_then(Known::get);
    if let Some(what) = facts.and_then(|facts| found(&plan, facts)) {
        say(Some(name), what);
    }
    let Some(current) = facts.and_then(|facts| facts.current.clone()) else {
        // The plan of a server that is in rotation already asks for no release.
        let message = format!("{name}: no release was ever verified on it");
        return Err(Problem::new(Exit::Refused, message).on(name).into());
    };
    let manifest = current.manifest.clone();
    let setup = Setup {
        fleet: order.fleet.clone(),
        plan,
        release: BTreeMap::from([(name.clone(), current)]),
        previous: BTreeMap::new(),
        told: super::hooks::told(order, Some((&manifest.id, manifest.label.as_ref()))),
        without: order.without,
    };
    Ok(Ready { setup, snapshot, manifest })
}

/// What a person may not expect.
fn found(plan: &Plan, facts: &ServerFacts) -> Option<String> {
    let drains = !matches!(plan.aim, plan::Aim::Undrain);
    match (&facts.absence, plan.servers().next()) {
        (_, None) => Some("is in rotation, and no record says that it is to be out: nothing to do".to_owned()),
        (Some(absence), Some(_)) if drains => {
            Some(format!("was left out already ({}); from now on by this word", absence.reason))
        }
        (Some(absence), Some(_)) if absence.ends_when_verified => {
            Some(format!("was left out by a deploy that failed ({}); verified, that ends", absence.reason))
        }
        (Some(absence), Some(_)) => Some(format!("was left out: {}", absence.reason)),
        (None, Some(_)) => None,
    }
}

/// Who is out longer than was said, as a sentence each.
#[must_use]
pub fn overdue(snapshot: &Snapshot) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let one = |(name, known): (&ServerName, &Known<ServerFacts>)| {
        let absence: &Absence = known.get()?.absence.as_ref().filter(|absence| absence.is_overdue(now))?;
        let until = show_moment(absence.until?);
        Some(format!(
            "{name} is overdue: it was to be out of rotation until {until} ({}); `handover undrain {name}` brings it back",
            absence.reason
        ))
    };
    snapshot.servers.iter().filter_map(one).collect()
}
