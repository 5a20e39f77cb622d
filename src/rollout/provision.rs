//! Makes the balancer say what deploy.toml says: looks, orders one change after the other, and looks again after each.
//!
//! It may know no adapter. Nothing is believed because a call returned: a change is done when the balancer says so.

use super::ask::OBSERVE;
use super::driver::Ports;
use super::on_each;
use super::port::{Balancer, BalancerError, Server, ServerError};
use super::preflight::{frozen, held};
use crate::clock::{Clock, Stamp};
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Fleet, GroupName, GroupView, Known, ServerName, show_duration};
use crate::fleet::provision::{At, Change, Fronts, Row, changes, front_row, group_rows};
use crate::server::wire::{Reply, Request};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

/// A change is ordered again and looked for so long; AWS says nothing of how long one takes to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What the balancer says, whole.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The groups, in file order.
    pub groups: Vec<(GroupName, GroupView)>,
    /// The load balancers that they are attached to.
    pub fronts: Fronts,
    /// Every setting, as the file has it and as it is.
    pub rows: Vec<Row>,
}

/// Asks the balancer for everything that deploy.toml can name; `named` says which keys stand in the file.
///
/// # Errors
/// When a group is not learnt: a difference that is only half known is no difference.
pub async fn look<B: Balancer>(
    balancer: &B,
    fleet: &Fleet,
    named: &(dyn Fn(&str) -> bool + Sync),
    clock: &Clock,
) -> Result<Seen, Problem> {
    let mut groups = Vec::new();
    let mut unknown = Vec::new();
    let until = clock.now() + OBSERVE;
    for group in &fleet.balancer.groups {
        match ask(clock, until, || balancer.observe(&group.name)).await {
            Ok(view) => groups.push((group.name.clone(), view)),
            Err(why) => unknown.push(format!("target group {}: {why}", group.name)),
        }
    }
    if !unknown.is_empty() {
        return Err(Problem::new(Exit::Refused, unknown.join("\n"))
            .hint("nothing was touched; what the balancer says must be known first"));
    }
    let fronts = fronts(balancer, groups.iter().map(|(_, view)| view), clock).await;
    let mut rows = Vec::new();
    for (group, (_, view)) in fleet.balancer.groups.iter().zip(&groups) {
        rows.extend(group_rows(group, view, &named));
    }
    let known = fronts.values().filter_map(Known::get);
    rows.extend(known.map(|front| front_row(fleet.balancer.idle_timeout, front, &named)));
    Ok(Seen { groups, fronts, rows })
}

/// The load balancers that groups are attached to; one that says nothing is unknown.
pub async fn fronts<'a, B: Balancer>(
    balancer: &B,
    groups: impl Iterator<Item = &'a GroupView>,
    clock: &Clock,
) -> Fronts {
    let until = clock.now() + OBSERVE;
    let mut fronts = Fronts::new();
    for id in groups.flat_map(|view| &view.fronts) {
        if !fronts.contains_key(id) {
            let known = match ask(clock, until, || balancer.front(id)).await {
                Ok(front) => Known::Known(front),
                Err(why) => Known::Unknown(why),
            };
            fronts.insert(id.clone(), known);
        }
    }
    fronts
}

/// Asks again while nothing is learnt; what was said last is why not.
async fn ask<T, F>(clock: &Clock, until: Stamp, question: impl Fn() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, BalancerError>>,
{
    let mut last = None;
    loop {
        let left = clock.wall(until.since(clock.now()));
        match tokio::time::timeout(left, question()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(BalancerError::Refused(why))) => return Err(why),
            Ok(Err(BalancerError::Unknown(why))) if clock.now() + LOOK_AGAIN < until => {
                last = Some(why);
                clock.sleep(LOOK_AGAIN).await;
            }
            Ok(Err(BalancerError::Unknown(why))) => {
                return Err(format!("{why} (asked again for {})", show_duration(OBSERVE)));
            }
            Err(_) => {
                let last = last.map(|why| format!("; before that: {why}")).unwrap_or_default();
                return Err(format!("the balancer gave no answer within {}{last}", show_duration(OBSERVE)));
            }
        }
    }
}

/// Who keeps deploys away meanwhile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reserved {
    /// Servers whose deploy lock is ours.
    pub held: Vec<ServerName>,
    /// Servers that could not be asked, and why.
    pub unasked: BTreeMap<ServerName, String>,
}

/// Keeps deploys away: a deploy changes what is in rotation by numbers that it read before. It takes the deploy lock of every
/// server, so that one of them in our hands is enough.
///
/// # Errors
/// When a deploy is under way, or a freeze is on.
pub async fn reserve<S: Server, B: Balancer>(ports: &Ports<S, B>, clock: &Clock) -> Result<Reserved, Problem> {
    let mut reserved = Reserved::default();
    let all: Vec<ServerName> = ports.servers.keys().cloned().collect();
    let answers = on_each(ports, all, clock, OBSERVE, |_| Request::Observe).await;
    let mut asked = Vec::new();
    for (name, answer) in answers {
        match answer {
            Ok(Reply::Facts(facts)) => {
                if let Some(freeze) = &facts.freeze {
                    return Err(frozen(&name, freeze));
                }
                asked.push(name);
            }
            other => drop(reserved.unasked.insert(name, said(other))),
        }
    }
    // In name order, as deploys do, so that two runs cannot each hold half.
    for name in asked {
        let answers = on_each(ports, vec![name.clone()], clock, OBSERVE, |_| Request::LockDeploy).await;
        match answers.into_values().next() {
            Some(Ok(Reply::Locked)) => reserved.held.push(name),
            Some(Ok(Reply::Held(holder))) => return Err(held(&name, &holder)),
            Some(other) => drop(reserved.unasked.insert(name, said(other))),
            None => drop(reserved.unasked.insert(name, "it gave no answer".into())),
        }
    }
    Ok(reserved)
}

fn said(answer: Result<Reply, ServerError>) -> String {
    match answer {
        Ok(other) => format!("an answer that was not asked for: {other:?}"),
        Err(ServerError::Failed(failure)) => failure.with_hint(),
        Err(error) => error.to_string(),
    }
}

/// How an order to the balancer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The balancer says so itself.
    Done,
    /// It was refused, so that nothing of it was changed.
    Refused(String),
    /// Whether it was changed is not known, or the balancer took it and says otherwise.
    Unsure(String),
}

/// What became of the orders.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// What the balancer says itself now.
    pub done: Vec<Change>,
    /// What ended it, and why.
    pub failed: Option<(Change, End)>,
    /// What was not begun.
    pub left: Vec<Change>,
    /// Whether somebody asked to stop.
    pub interrupted: bool,
}

/// Gives the orders, one after the other, up to the first that is not proved.
pub async fn apply<B: Balancer>(
    balancer: &B,
    fleet: &Fleet,
    rows: &[Row],
    clock: &Clock,
    interrupts: &watch::Receiver<u32>,
    mut say: impl FnMut(&Change),
) -> Applied {
    let mut applied = Applied::default();
    for change in changes(rows) {
        applied.interrupted |= *interrupts.borrow() > 0;
        if applied.failed.is_some() || applied.interrupted {
            applied.left.push(change);
            continue;
        }
        match order(balancer, fleet, &change, clock, interrupts).await {
            End::Done => {
                say(&change);
                applied.done.push(change);
            }
            end => applied.failed = Some((change, end)),
        }
    }
    applied
}

/// One order: given, looked for, and given again while nobody knows.
async fn order<B: Balancer>(
    balancer: &B,
    fleet: &Fleet,
    change: &Change,
    clock: &Clock,
    interrupts: &watch::Receiver<u32>,
) -> End {
    let until = clock.now() + SEEN_WITHIN;
    let mut taken = false;
    loop {
        let answer = if taken { Ok(()) } else { balancer.apply(change).await };
        let why = match answer {
            Err(BalancerError::Refused(why)) => return End::Refused(why),
            Err(BalancerError::Unknown(why)) => why,
            Ok(()) => {
                taken = true;
                "the balancer took it".to_owned()
            }
        };
        let seen = match shows(balancer, fleet, change).await {
            Ok(None) => return End::Done,
            Ok(Some(otherwise)) => format!("it still says {otherwise}"),
            Err(BalancerError::Refused(no)) => {
                return End::Unsure(format!("{why}, and whether it is so cannot be seen: {no}"));
            }
            Err(BalancerError::Unknown(no)) => format!("it does not say how it is: {no}"),
        };
        let stop = *interrupts.borrow() > 0;
        if stop || clock.now() >= until {
            let within = if stop { String::new() } else { format!(" after {}", show_duration(SEEN_WITHIN)) };
            return End::Unsure(format!("{why}, and {seen}{within}"));
        }
        clock.sleep(LOOK_AGAIN).await;
    }
}

/// Whether the balancer says what was ordered; else what it says.
async fn shows<B: Balancer>(balancer: &B, fleet: &Fleet, change: &Change) -> Result<Option<String>, BalancerError> {
    let now = match &change.at {
        At::Group(name) => {
            let Some(group) = fleet.balancer.groups.iter().find(|group| group.name == *name) else {
                return Err(BalancerError::Refused(format!("deploy.toml has no group {name}")));
            };
            group_rows(group, &balancer.observe(name).await?, &|_| true)
        }
        At::Front(id) => vec![front_row(fleet.balancer.idle_timeout, &balancer.front(id).await?, &|_| true)],
    };
    let ordered = |row: &&Row| change.rows.iter().any(|ordered| ordered.setting == row.setting);
    let otherwise: Vec<String> = now
        .iter()
        .filter(ordered)
        .filter(|row| row.differs())
        .map(|row| format!("{} = {}", row.setting.key(), row.live))
        .collect();
    Ok((!otherwise.is_empty()).then(|| otherwise.join(", ")))
}
