//! Plans that bring no release: a server leaves rotation and runs on, or comes back once it is verified.

use super::numbers::{grace, steps};
use super::planner::{Found, Maker};
use super::{Aim, Options, Plan, PlannedStep, ServerPlan, StartsAs, Step, WhyNot};
use crate::fleet::model::{
    Absence, DrainBy, Fleet, GroupName, Known, ReleaseOnDisk, Server, ServerFacts, ServerName, Snapshot, TargetRef,
    TargetState, TargetView,
};
use crate::fleet::timing;

/// Out: by the same proofs as in a deploy.
const LEAVES: [Step; 8] =
    [Step::Guard, Step::Lock, Step::PreDrain, Step::Flip, Step::Out, Step::Settle, Step::Unlock, Step::PostServer];
/// It is out already, and the record is written anew.
const STAYS: [Step; 4] = [Step::Lock, Step::Flip, Step::Unlock, Step::PostServer];
/// Verified first, then in.
const RETURNS: [Step; 7] =
    [Step::Lock, Step::Verify, Step::Back, Step::In, Step::SettleIn, Step::Unlock, Step::PostServer];

/// Plans to take a server out of rotation and to leave it so.
///
/// # Errors
/// Every reason why not, at once.
pub fn drain(
    fleet: &Fleet,
    snapshot: &Snapshot,
    name: &ServerName,
    absence: Absence,
    options: &Options,
) -> Result<Plan, Vec<WhyNot>> {
    let mut maker = Maker::new(fleet, snapshot, None, options);
    let (server, facts) = one(&maker, name)?;
    let (views, targets) = maker.own(server);
    let serves = views.iter().any(|(_, view)| view.state == TargetState::Healthy);
    let stays = !serves && facts.absence.is_some();
    maker.needs_a_release(name, facts);
    maker.can_be_out(name, &targets);
    let starts_as = if serves { StartsAs::Serving } else { maker.starts_as(server, Some(facts), &views) };
    if !stays {
        maker.drains_in_time(&targets);
    }
    maker.says_what_is_lost(name, &targets);
    let steps = maker.steps_of(server, if stays { &STAYS } else { &LEAVES });
    let plan = server_plan(name, facts, starts_as, targets, steps);
    let batches = vec![vec![plan]];
    let (lowest_capacity, capacity_why) = if stays { (Vec::new(), Vec::new()) } else { maker.capacity(&batches) };
    let since = facts.absence.as_ref().map_or(0, |before| before.since);
    let aim = Aim::Drain(Absence { since, ..absence });
    maker.into_plan(aim, Found { once: None, batches, unchanged: Vec::new(), lowest_capacity }, capacity_why)
}

/// Plans to bring a server back that is out of rotation; an empty plan where it is in.
///
/// # Errors
/// Every reason why not, at once.
pub fn undrain(fleet: &Fleet, snapshot: &Snapshot, name: &ServerName, options: &Options) -> Result<Plan, Vec<WhyNot>> {
    let mut maker = Maker::new(fleet, snapshot, None, options);
    let (server, facts) = one(&maker, name)?;
    let (views, targets) = maker.own(server);
    let healthy = views.iter().all(|(_, view)| view.state == TargetState::Healthy) && views.len() == targets.len();
    let (mut batches, mut unchanged) = (Vec::new(), Vec::new());
    if facts.absence.is_none() && !facts.drained && healthy {
        unchanged.push(name.clone());
    } else {
        maker.needs_a_release(name, facts);
        maker.can_be_out(name, &targets);
        let why = facts.absence.as_ref().map_or("no record says why it is out", |absence| &absence.reason);
        let starts_as = if targets.is_empty() { StartsAs::Worker } else { StartsAs::LeftOut(why.to_owned()) };
        let steps = maker.steps_of(server, &RETURNS);
        batches.push(vec![server_plan(name, facts, starts_as, targets, steps)]);
    }
    maker.into_plan(Aim::Undrain, Found { once: None, batches, unchanged, lowest_capacity: Vec::new() }, Vec::new())
}

/// The server, and what is known of it.
fn one<'a>(maker: &Maker<'a>, name: &ServerName) -> Result<(&'a Server, &'a ServerFacts), Vec<WhyNot>> {
    let unknown = |why: &str| vec![WhyNot::ServerUnknown { server: name.clone(), why: why.to_owned() }];
    let (fleet, snapshot) = (maker.fleet, maker.snapshot);
    let server = fleet.server(name).ok_or_else(|| unknown("it is not in deploy.toml"))?;
    let facts = match snapshot.servers.get(name) {
        Some(Known::Known(facts)) => facts,
        Some(Known::Unknown(why)) => return Err(unknown(why)),
        None => return Err(unknown("it was not looked at")),
    };
    let missing = facts.missing.iter().map(|what| WhyNot::Missing { server: name.clone(), what: what.clone() });
    let missing: Vec<WhyNot> = missing.collect();
    if missing.is_empty() { Ok((server, facts)) } else { Err(missing) }
}

fn server_plan(
    name: &ServerName,
    facts: &ServerFacts,
    starts_as: StartsAs,
    targets: Vec<TargetRef>,
    steps: Vec<PlannedStep>,
) -> ServerPlan {
    let release = |release: &ReleaseOnDisk| release.manifest.id.clone();
    let (name, previous, absence) = (name.clone(), facts.current.as_ref().map(release), facts.absence.clone());
    ServerPlan { name, starts_as, targets, previous, adopt: false, absence, asleep: facts.asleep.clone(), steps }
}

impl<'a> Maker<'a> {
    /// Its targets as the balancer has them, and all that it should have.
    fn own(&mut self, server: &Server) -> (Vec<(GroupName, &'a TargetView)>, Vec<TargetRef>) {
        let by_id = self.by_id();
        let views = self.targets_of(server, &by_id);
        let target = |(group, view): &(GroupName, &TargetView)| TargetRef {
            group: group.clone(),
            id: view.id.clone(),
            port: view.port,
        };
        let mut targets: Vec<TargetRef> = views.iter().map(target).collect();
        let gone = self.deregistered(server, &views);
        targets.extend(gone.into_iter().filter(|gone| !views.iter().any(|view| target(view) == *gone)));
        (views, targets)
    }

    /// The steps of a serving server, as far as they are wanted.
    fn steps_of(&self, server: &Server, wanted: &[Step]) -> Vec<PlannedStep> {
        let own: Vec<GroupName> = server.targets.keys().cloned().collect();
        let starts_as = if own.is_empty() { StartsAs::Worker } else { StartsAs::Serving };
        let all = steps(self.fleet, &self.group_numbers(), &own, &starts_as, grace(self.fleet, None), false);
        let survives = self.fleet.drain.by.facts().survives_restart;
        // What is out and dies with its process cannot be told once more: perhaps nothing is there to hear it.
        let told = |step: &PlannedStep| wanted.contains(&Step::Out) || step.step != Step::Flip || survives;
        all.into_iter().filter(|step| wanted.contains(&step.step) && told(step)).collect()
    }

    /// Whoever comes back is verified first, by the release that is `current`.
    fn needs_a_release(&mut self, name: &ServerName, facts: &ServerFacts) {
        if facts.current.is_none() {
            self.why.push(WhyNot::NothingVerified { server: name.clone() });
        }
    }

    fn can_be_out(&mut self, name: &ServerName, targets: &[TargetRef]) {
        if self.fleet.drain.by == DrainBy::Sigterm && !targets.is_empty() {
            self.why.push(WhyNot::OutMeansStopped { server: name.clone() });
        }
    }

    fn drains_in_time(&mut self, targets: &[TargetRef]) {
        let drain = &self.fleet.drain;
        if drain.by == DrainBy::Deregister || drain.by.hold().is_some() {
            return;
        }
        for (name, view) in self.views.clone() {
            let bound = timing::out_bound(&view.settings, drain.margin);
            if bound > drain.max && targets.iter().any(|target| target.group == *name) {
                self.why.push(WhyNot::DrainTooShort { group: name.clone(), bound, max: drain.max });
            }
        }
    }

    /// What takes a server out may die with its processes.
    fn says_what_is_lost(&mut self, name: &ServerName, targets: &[TargetRef]) {
        let by = &self.fleet.drain.by;
        if !by.facts().survives_restart && !targets.is_empty() {
            self.warnings.push(format!(
                "{name}: drain.by = \"{}\" dies with the app's processes: a restart of them lets it in again, until it is \
                 drained anew (after a reboot bootstrap does that, once they run); with \"file\" it stays out",
                by.word()
            ));
        }
    }
}
