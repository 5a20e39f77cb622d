//! `handover check`: whether the numbers of deploy.toml and the compose file fit together, and what would notice if one of
//! them changed.

use super::args::{CheckArgs, CheckFormat, Global};
use super::{compose, connect, finish, input};
use crate::clock::Clock;
use crate::config::{Compose, Loaded, Mutation, Place, Severity, mutations};
use crate::diag::{Exit, Problem};
use crate::fleet::model::Known;
use crate::fleet::timing::{Basis, Finding, Live, findings, live};
use crate::report::{Format, Notice, Reporter, check_text, findings_json, github, live_text, mutations_text, sarif};
use crate::rollout::observe;
use crate::rollout::provision::fronts;
use serde_json::{Value, json};

pub(super) async fn run(global: &Global, args: &CheckArgs, reporter: &Reporter) -> u8 {
    match Box::pin(checked(global, args)).await {
        Ok(checked) => tell(args, reporter, &checked),
        Err(problem) => finish::refused(reporter, &problem),
    }
}

/// What a check found.
pub(super) struct Checked {
    pub(super) loaded: Loaded,
    pub(super) compose: compose::Read,
    pub(super) findings: Vec<Finding>,
    pub(super) mutations: Option<Vec<Mutation>>,
    pub(super) live: Option<Live>,
}

async fn checked(global: &Global, args: &CheckArgs) -> Result<Checked, Problem> {
    let loaded = input::load(global)?;
    let compose = compose::read(global, &loaded).await;
    #[cfg(feature = "without-invariant")]
    crate::fleet::timing::WITHOUT.set(std::env::var("HANDOVER_WITHOUT_INVARIANT").ok());
    let mutations = args.mutate.then(|| mutations(&loaded, &compose.numbers.services));
    let live = if args.live { Some(look(&loaded).await?) } else { None };
    let fleet = live.as_ref().map_or(&loaded.fleet, |live| &live.fleet);
    let findings = findings(&Basis { fleet, compose: &compose.numbers.services });
    Ok(Checked { compose, findings, mutations, live, loaded })
}

/// Asks everybody and changes nothing.
async fn look(loaded: &Loaded) -> Result<Live, Problem> {
    let clock = Clock::start();
    let ports = connect::fleet(&loaded.fleet, &connect::run("handover check --live")).await?;
    let snapshot = observe(&ports, &loaded.fleet, &clock).await;
    let groups = snapshot.groups.values().filter_map(Known::get);
    let fronts = fronts(&*ports.balancer, groups, &clock).await;
    connect::close(ports).await;
    Ok(live(&loaded.fleet, &snapshot, &fronts))
}

/// Every relation, read off the files.
pub(super) fn of(loaded: &Loaded, compose: &Compose) -> Vec<Finding> {
    findings(&Basis { fleet: &loaded.fleet, compose })
}

/// Every relation of what stands in the files, for whoever shows them.
pub(super) async fn numbers(global: &Global, loaded: &Loaded) -> Vec<Finding> {
    let compose = compose::read(global, loaded).await;
    of(loaded, &compose.numbers.services)
}

/// The check that a plan and a deploy begin with: what is an error refuses, what is a warning is returned to be said. Capacity
/// is left to the guard, which counts the balancer's own word.
pub(super) async fn gate(global: &Global, loaded: &Loaded) -> Result<Vec<String>, Problem> {
    let compose = compose::read(global, loaded).await;
    let broken =
        of(loaded, &compose.numbers.services).into_iter().filter(|f| f.fails_check() && f.invariant.id != "capacity");
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) = broken.partition(Finding::is_error);
    let says = |finding: &Finding| Notice::of_finding(finding, |key| place_of(loaded, &compose, key)).line();
    if errors.is_empty() {
        return Ok(warnings.iter().map(says).collect());
    }
    let message = errors.iter().map(says).collect::<Vec<_>>().join("\n");
    Err(Problem::new(Exit::Refused, message)
        .hint("nothing was touched; `handover check` shows every relation with both sides"))
}

fn tell(args: &CheckArgs, reporter: &Reporter, checked: &Checked) -> u8 {
    let problem = problem(checked);
    let notices = notices(checked);
    match args.format {
        Some(CheckFormat::Sarif) => reporter.result(&format!("{:#}", sarif(&notices))),
        Some(CheckFormat::Github) => reporter.result(&github(&notices)),
        None if reporter.format() != Format::Json => {
            reporter.result(&check_text(&checked.findings, &checked.compose.numbers.by));
            for finding in &checked.compose.lint {
                reporter.result(&Notice::from(finding).line());
            }
            if let Some(live) = &checked.live {
                reporter.result(&live_text(live));
            }
            if let Some(mutations) = &checked.mutations {
                reporter.result(&mutations_text(mutations));
            }
        }
        None => {}
    }
    if args.format.is_some() {
        // The result is a document of another format: no summary line after it.
        if let Some(problem) = &problem {
            reporter.problem(problem);
        }
        return problem.map_or(Exit::Done, |problem| problem.exit).into();
    }
    finish::ended(reporter, problem.as_ref(), &json_of(checked))
}

fn json_of(checked: &Checked) -> Value {
    let broken = checked.findings.iter().filter(|finding| finding.is_broken()).count();
    let lint: Vec<Value> = checked.compose.lint.iter().map(|finding| Notice::from(finding).json()).collect();
    let mut result = json!({
        "invariants": findings_json(&checked.findings),
        "broken": broken,
        "compose": {"resolved_by": checked.compose.numbers.by, "lint": lint, "unresolved": checked.compose.numbers.unresolved()},
    });
    if let (Some(live), Some(result)) = (&checked.live, result.as_object_mut()) {
        result.insert("live".into(), json!({"differences": live.differences, "unknown": live.unknown}));
    }
    if let (Some(mutations), Some(result)) = (&checked.mutations, result.as_object_mut()) {
        result.insert("mutations".into(), json!(mutations));
        result.insert("unguarded".into(), json!(unguarded(mutations)));
    }
    result
}

fn unguarded(mutations: &[Mutation]) -> Vec<&str> {
    let mut keys: Vec<&str> = mutations.iter().filter(|m| m.is_unguarded()).map(|m| m.key.as_str()).collect();
    keys.dedup();
    keys
}

fn problem(checked: &Checked) -> Option<Problem> {
    let errors = checked.findings.iter().filter(|finding| finding.fails_check()).count();
    let unguarded = checked.mutations.as_deref().map(unguarded).unwrap_or_default();
    let mut what = Vec::new();
    if errors > 0 {
        what.push(match errors {
            1 => "one relation does not hold".to_owned(),
            many => format!("{many} relations do not hold"),
        });
    }
    match checked.compose.lint.iter().filter(|finding| finding.severity == Severity::Error).count() {
        0 => {}
        1 => what.push("one hazard in the compose file".to_owned()),
        many => what.push(format!("{many} hazards in the compose file")),
    }
    match checked.live.as_ref().map_or(0, |live| live.differences.len()) {
        0 => {}
        1 => what.push("one number is not what deploy.toml says".to_owned()),
        many => what.push(format!("{many} numbers are not what deploy.toml says")),
    }
    if !unguarded.is_empty() {
        what.push(format!("nothing notices when these numbers are wrong: {}", unguarded.join(", ")));
    }
    if what.is_empty() {
        return None;
    }
    Some(Problem::new(Exit::Refused, what.join("; ")).hint("docs/timing.md says what each relation is for"))
}

/// Where a number stands, in deploy.toml or the compose file.
fn place_of(loaded: &Loaded, compose: &compose::Read, key: &str) -> Option<Place> {
    loaded.place(key).or_else(|| compose.numbers.place(key).cloned())
}

/// What stands at a line of a file, for whoever shows files with remarks.
fn notices(checked: &Checked) -> Vec<Notice> {
    let broken = checked.findings.iter().filter(|finding| finding.is_broken());
    let of_numbers =
        broken.map(|finding| Notice::of_finding(finding, |key| place_of(&checked.loaded, &checked.compose, key)));
    let unguarded = checked.mutations.iter().flatten().filter(|mutation| mutation.is_unguarded());
    let of_mutations = unguarded.map(|mutation| Notice::of_unguarded(&mutation.key, mutation.place.as_ref()));
    let of_compose = checked.compose.lint.iter().map(Notice::from);
    let differences = checked.live.iter().flat_map(|live| &live.differences);
    let of_live =
        differences.map(|difference| Notice::of_difference(difference, checked.loaded.place(&difference.key).as_ref()));
    of_numbers.chain(of_compose).chain(of_live).chain(of_mutations).collect()
}
