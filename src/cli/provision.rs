//! `handover provision`: what the balancer should say stands in deploy.toml; shows the difference, and makes it so.

use super::args::{Global, ProvisionArgs};
use super::connect::RealPorts;
use super::signals::Signals;
use super::{check, connect, finish, input, session};
use crate::clock::Clock;
use crate::config::{Loaded, balancer_lines};
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Sink};
use crate::fleet::model::{BalancerKind, Known, Snapshot};
use crate::fleet::provision::{self, Change, Command, Row, Why, not_in_seconds, refused_in_advance};
use crate::fleet::timing::{Basis, live};
use crate::report::{Format, Reporter, provision_text};
use crate::rollout::provision::{Applied, End, Reserved, Seen, apply, look, reserve};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) async fn run(global: &Global, args: &ProvisionArgs, reporter: &Reporter) -> u8 {
    let mut told = Told::default();
    let ended = Box::pin(provisioned(global, args, reporter, &mut told)).await;
    let problem = ended.err();
    if problem.is_some() && told.outcome == "differs" {
        told.outcome = "refused";
    }
    finish::ended(reporter, problem.as_ref(), &told.json())
}

/// What JSON is told at the end, however it ends.
struct Told {
    outcome: &'static str,
    rows: Vec<Row>,
    unknown: Vec<String>,
    applied: Applied,
    reserved: Reserved,
    more: Value,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            outcome: "refused",
            rows: Vec::new(),
            unknown: Vec::new(),
            applied: Applied::default(),
            reserved: Reserved::default(),
            more: json!({}),
        }
    }
}

impl Told {
    fn json(&self) -> Value {
        let keys = |changes: &[Change]| -> Vec<Value> {
            let rows = changes.iter().flat_map(|change| &change.rows);
            rows.map(|row| json!({"key": row.key, "at": row.at.to_string(), "from": row.live, "to": row.file}))
                .collect()
        };
        let failed: Vec<Change> = self.applied.failed.iter().map(|(change, _)| change.clone()).collect();
        let mut result = json!({
            "outcome": self.outcome,
            "differences": self.rows.iter().filter(|row| row.differs()).map(|row| {
                json!({"key": row.key, "at": row.at.to_string(), "file": row.file, "balancer": row.live, "named": row.named})
            }).collect::<Vec<_>>(),
            "unknown": self.unknown,
            "changed": keys(&self.applied.done),
            "failed": keys(&failed),
            "not_begun": keys(&self.applied.left),
            "lock": {"held": self.reserved.held, "unasked": self.reserved.unasked},
        });
        if let (Some(result), Value::Object(more)) = (result.as_object_mut(), &self.more) {
            result.extend(more.clone());
        }
        result
    }
}

async fn provisioned(
    global: &Global,
    args: &ProvisionArgs,
    reporter: &Reporter,
    told: &mut Told,
) -> Result<(), Problem> {
    let loaded = input::load(global)?;
    if args.apply {
        super::team::confirmed(global, &loaded.fleet, &args.confirm)?;
    }
    only_alb(&loaded)?;
    if args.iam {
        told.outcome = "shown";
        told.more = json!({"policies": policies(&loaded)});
        show(reporter, &format!("{:#}", policies(&loaded)));
        return Ok(());
    }
    let clock = Clock::start();
    let ports = connect::fleet(&loaded.fleet, &connect::run("handover provision")).await?;
    let ended = with_ports(global, args, reporter, told, (&loaded, &ports, &clock)).await;
    connect::close(ports).await;
    ended
}

async fn with_ports(
    global: &Global,
    args: &ProvisionArgs,
    reporter: &Reporter,
    told: &mut Told,
    (loaded, ports, clock): (&Loaded, &RealPorts, &Clock),
) -> Result<(), Problem> {
    let seen = see(loaded, ports, clock, told).await?;
    if args.export {
        told.outcome = "shown";
        let lines = export(loaded, &seen);
        told.more = json!({"export": lines});
        show(reporter, &lines);
        return Ok(());
    }
    show(reporter, &provision_text(&seen.rows, &told.unknown));
    let wanted = seen.rows.iter().filter(|row| row.is_wanted()).count();
    told.outcome = if wanted == 0 { "unchanged" } else { "differs" };
    possible(loaded, &seen)?;
    if !args.apply {
        if wanted > 0 {
            reporter.note("`handover provision --apply` makes the balancer say what deploy.toml says");
        }
        return Ok(());
    }
    learnt(loaded, &seen)?;
    if wanted == 0 {
        return Ok(());
    }
    super::plan::say_warnings(reporter, check::gate(global, loaded).await?);
    session::confirm(global, &format!("change {wanted} settings of the balancer?"))?;
    change(global, reporter, told, (loaded, ports, clock)).await
}

/// Looks at the balancer, and says what could not be learnt.
async fn see(loaded: &Loaded, ports: &RealPorts, clock: &Clock, told: &mut Told) -> Result<Seen, Problem> {
    let named = |key: &str| loaded.place(key).is_some();
    let seen = look(&*ports.balancer, &loaded.fleet, &named, clock).await?;
    told.rows.clone_from(&seen.rows);
    told.unknown = not_learnt(&seen);
    Ok(seen)
}

fn not_learnt(seen: &Seen) -> Vec<String> {
    let unknown = seen.fronts.iter().filter_map(|(id, known)| match known {
        Known::Unknown(why) => Some(format!("{}: {why}", provision::At::Front(id.clone()))),
        Known::Known(_) => None,
    });
    let loose = seen.groups.iter().filter(|(_, view)| view.fronts.is_empty());
    unknown
        .chain(loose.map(|(name, _)| {
            format!("target group {name} is attached to no load balancer: nothing has its idle timeout")
        }))
        .collect()
}

/// What the file names must be known before anything is changed.
fn learnt(loaded: &Loaded, seen: &Seen) -> Result<(), Problem> {
    let unknown: Vec<String> = seen
        .fronts
        .iter()
        .filter_map(|(id, known)| Some((id, known)).filter(|(_, known)| known.get().is_none()))
        .map(|(id, _)| provision::At::Front(id.clone()).to_string())
        .collect();
    if unknown.is_empty() || loaded.place("balancer.idle_timeout").is_none() {
        return Ok(());
    }
    Err(Problem::new(Exit::Refused, format!("not known: balancer.idle_timeout of {}", unknown.join(", "))).hint(
        "nothing was touched; allow elasticloadbalancing:DescribeLoadBalancerAttributes, or take `balancer.idle_timeout` out of deploy.toml",
    ))
}

/// What would be refused in the middle is told at the beginning.
fn possible(loaded: &Loaded, seen: &Seen) -> Result<(), Problem> {
    let fleet = &loaded.fleet;
    let mut why: Vec<Why> = not_in_seconds(&seen.rows);
    for (group, (_, view)) in fleet.balancer.groups.iter().zip(&seen.groups) {
        let mut counted = group.clone();
        if loaded.place(&format!("balancer.group.{}.cross_zone", group.name)).is_none() {
            counted.cross_zone = view.attributes.cross_zone;
        }
        let compose = Known::Unknown(String::new());
        let scope = Basis { fleet, compose: &compose }.smallest_scope(&counted);
        why.extend(refused_in_advance(group, &seen.rows, &view.beside, scope));
    }
    if why.is_empty() {
        return Ok(());
    }
    let message = why.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    Err(Problem::new(Exit::Refused, message).hint("nothing was touched"))
}

/// Keeps deploys away, looks again, changes what still differs, and looks once more.
async fn change(
    global: &Global,
    reporter: &Reporter,
    told: &mut Told,
    (loaded, ports, clock): (&Loaded, &RealPorts, &Clock),
) -> Result<(), Problem> {
    let signals = Signals::listen()?;
    let early = || Problem::new(Exit::Interrupted, "interrupted before anything was touched");
    let reserved = tokio::select! {
        reserved = reserve(ports, clock) => reserved?,
        () = signals.first() => return Err(signals.name(early())),
    };
    told.reserved.clone_from(&reserved);
    alone(global, reporter, clock, &reserved)?;
    // Whoever had the lock until now may have changed it.
    let seen = see(loaded, ports, clock, told).await?;
    possible(loaded, &seen)?;
    learnt(loaded, &seen)?;
    let say = |change: &Change| {
        let settings = change.rows.iter().map(|row| (row.key.clone(), row.live.to_string(), row.file.to_string()));
        let at = change.at.to_string();
        reporter.take(Line::new(clock.now(), Event::Provisioned { at, settings: settings.collect() }));
    };
    let applied = apply(&*ports.balancer, &loaded.fleet, &seen.rows, clock, &signals.count, say).await;
    told.applied = applied.clone();
    told.outcome = if applied.done.is_empty() { "refused" } else { "partly_applied" };
    if let Some(problem) = problem(&applied) {
        return Err(signals.name(problem));
    }
    let after = see(loaded, ports, clock, told).await.map_err(|problem| {
        Problem::new(Exit::NeedsHand, format!("every change was seen, but not the whole again: {}", problem.message))
            .hint("`handover provision` shows how the balancer stands")
    })?;
    let again: Vec<String> = after.rows.iter().filter(|row| row.is_wanted()).map(|row| row.key.clone()).collect();
    if !again.is_empty() {
        let message = format!("somebody else changed these meanwhile: {}", again.join(", "));
        return Err(Problem::new(Exit::NeedsHand, message).hint(
            "`handover provision` shows how the balancer stands; whatever else writes to it (Terraform?) must agree",
        ));
    }
    told.outcome = "applied";
    show(reporter, "the balancer says what deploy.toml says");
    Ok(())
}

/// One lock is enough; without any, nobody knows whether a deploy is under way, and that is for a person to say.
fn alone(global: &Global, reporter: &Reporter, clock: &Clock, reserved: &Reserved) -> Result<(), Problem> {
    if !reserved.held.is_empty() {
        return Ok(());
    }
    let why = reserved.unasked.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; ");
    let what =
        format!("no server could be asked whether a deploy is under way, whose waits go by the old numbers: {why}");
    reporter.take(Line::new(clock.now(), Event::Warning { server: None, what }));
    session::confirm(global, "no server could be asked whether a deploy is under way; go on?")
}

/// Says exactly what was done and what was not.
fn problem(applied: &Applied) -> Option<Problem> {
    let (exit, word, failed) = match &applied.failed {
        Some((change, End::Refused(why))) => {
            let exit = if applied.done.is_empty() { Exit::Refused } else { Exit::NeedsHand };
            (exit, "refused", Some(format!("{change}: {why}")))
        }
        Some((change, End::Unsure(why))) => (Exit::NeedsHand, "not known", Some(format!("{change}: {why}"))),
        Some((_, End::Done)) | None if applied.interrupted => (Exit::Interrupted, "", None),
        _ => return None,
    };
    let exit = if applied.interrupted { Exit::Interrupted } else { exit };
    let mut lines: Vec<String> = applied.done.iter().map(|change| format!("done: {change}")).collect();
    lines.extend(failed.map(|failed| format!("{word}: {failed}")));
    lines.extend(applied.left.iter().map(|change| format!("not begun: {change}")));
    let hint = if applied.done.is_empty() && word == "refused" {
        "nothing was changed; `handover provision --iam` prints what AWS must allow"
    } else {
        "`handover provision --apply` goes on where this stopped; `handover provision` shows how the balancer stands"
    };
    Some(Problem::new(exit, lines.join("\n")).hint(hint))
}

/// What is written down elsewhere cannot be written here.
fn only_alb(loaded: &Loaded) -> Result<(), Problem> {
    let problem = |message: &str, hint: &str| Err(Problem::new(Exit::Refused, message).hint(hint));
    match loaded.fleet.balancer.kind {
        BalancerKind::Alb => Ok(()),
        BalancerKind::Haproxy => problem(
            "HAProxy's numbers stand in its own configuration file, which nobody can write through its runtime socket",
            "write them into haproxy.cfg and reload; `handover check --live` compares what the running HAProxy tells",
        ),
        BalancerKind::None => {
            problem("this fleet has no balancer (`balancer.kind = \"none\"`)", "there is nothing to provision")
        }
    }
}

fn policies(loaded: &Loaded) -> Value {
    let named = loaded.place("balancer.idle_timeout").is_some();
    Command::ALL
        .iter()
        .map(|command| (command.word().to_owned(), provision::policy(&loaded.fleet, *command, named)))
        .collect()
}

/// The balancer part of deploy.toml as the balancer has it.
fn export(loaded: &Loaded, seen: &Seen) -> String {
    let groups = seen.groups.iter().map(|(name, view)| (name.clone(), Known::Known(view.clone()))).collect();
    let live = live(&loaded.fleet, &Snapshot { groups, servers: BTreeMap::new() }, &seen.fronts);
    balancer_lines(&live.fleet.balancer)
}

fn show(reporter: &Reporter, text: &str) {
    if reporter.format() != Format::Json {
        reporter.result(text);
    }
}
