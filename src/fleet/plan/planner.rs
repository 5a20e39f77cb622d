//! Makes the plan: a fleet, what was seen of it and a release go in; a plan, or every reason why not, comes out.

use super::batches::batches;
use super::numbers::{grace, steps};
use super::safety::Guard;
use super::{Aim, Capacity, GroupNumbers, OncePlan, Plan, ServerPlan, ServiceNumbers, WhyNot};
use crate::fleet::held::longest_wait;
use crate::fleet::model::{
    Fleet, GroupName, GroupView, Known, Server, ServerFacts, ServerName, Snapshot, TargetRef, TargetState, TargetView,
};
use crate::fleet::release::{DEFAULT_GRACE, Manifest};
use crate::fleet::verify::{container_faults, excused};
use std::collections::{BTreeMap, HashSet};

/// What the operator said besides deploy.toml.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only these servers; all where none are named.
    pub servers: Option<Vec<ServerName>>,
    /// `--allow-downtime`.
    pub allow_downtime: bool,
    /// `--first`.
    pub first: bool,
    /// What is run once is left alone: the release was brought before.
    pub skip_once: bool,
    /// Plan from the file alone: servers and balancer are taken to be as the file says.
    pub offline: bool,
}

/// Makes the plan.
///
/// # Errors
/// Every reason why it may not be done, at once.
pub fn plan(
    fleet: &Fleet,
    snapshot: &Snapshot,
    release: Option<&Manifest>,
    options: &Options,
) -> Result<Plan, Vec<WhyNot>> {
    let mut maker = Maker::new(fleet, snapshot, release, options);
    maker.compare_services();
    let (servers, unchanged) = maker.servers();
    let batches = batches(fleet, servers, fleet.rolling.batch.of(fleet.servers.len()));
    let (lowest_capacity, capacity_why) = maker.capacity(&batches);
    maker.claims();
    maker.timing(&batches);
    maker.gateways_fit(&batches);
    let once = maker.once(&batches);
    maker.into_plan(Aim::Deploy, Found { once, batches, unchanged, lowest_capacity }, capacity_why)
}

/// What a plan is made of, besides the numbers.
pub(super) struct Found {
    pub(super) once: Option<OncePlan>,
    pub(super) batches: Vec<Vec<ServerPlan>>,
    pub(super) unchanged: Vec<ServerName>,
    pub(super) lowest_capacity: Vec<Capacity>,
}

fn service_numbers(
    fleet: &Fleet,
    release: Option<&Manifest>,
) -> BTreeMap<crate::fleet::model::ServiceName, ServiceNumbers> {
    let pin = |name| release.and_then(|manifest| manifest.services.get(name)).map(|pin| pin.grace);
    fleet
        .services
        .iter()
        .map(|s| {
            (
                s.name.clone(),
                ServiceNumbers { deadline: s.deadline, grace: pin(&s.name).unwrap_or(s.shutdown.max(DEFAULT_GRACE)) },
            )
        })
        .collect()
}

pub(super) struct Maker<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) snapshot: &'a Snapshot,
    pub(super) release: Option<&'a Manifest>,
    pub(super) options: &'a Options,
    pub(super) views: BTreeMap<&'a GroupName, &'a GroupView>,
    pub(super) why: Vec<WhyNot>,
    pub(super) warnings: Vec<String>,
}

impl<'a> Maker<'a> {
    /// One that has learnt the groups.
    pub(super) fn new(
        fleet: &'a Fleet,
        snapshot: &'a Snapshot,
        release: Option<&'a Manifest>,
        options: &'a Options,
    ) -> Self {
        let (why, warnings) = (Vec::new(), Vec::new());
        let mut maker = Self { fleet, snapshot, release, options, why, warnings, views: BTreeMap::new() };
        maker.learn_groups();
        maker
    }

    /// The plan, unless something speaks against it; too little capacity may be allowed.
    pub(super) fn into_plan(mut self, aim: Aim, found: Found, capacity_why: Vec<WhyNot>) -> Result<Plan, Vec<WhyNot>> {
        let (fleet, Found { once, batches, unchanged, lowest_capacity }) = (self.fleet, found);
        let mut not_zero_downtime = Vec::new();
        if self.options.allow_downtime || self.options.first {
            not_zero_downtime.extend(capacity_why.iter().map(ToString::to_string));
        } else {
            self.why.extend(capacity_why);
        }
        if !self.why.is_empty() {
            return Err(self.why);
        }
        Ok(Plan {
            format: 1,
            aim,
            release: self.release.map(|manifest| manifest.id.clone()),
            once,
            batches,
            unchanged,
            groups: self.group_numbers(),
            rolling: fleet.rolling.clone(),
            drain: fleet.drain.clone(),
            lock_wait: fleet.lock.wait,
            longest_wait: fleet.drain.by.hold().map(|_| longest_wait(fleet)),
            lowest_capacity,
            unguarded: !not_zero_downtime.is_empty(),
            not_zero_downtime,
            services: service_numbers(fleet, self.release),
            warnings: self.warnings,
        })
    }

    pub(super) fn group_numbers(&self) -> BTreeMap<GroupName, GroupNumbers> {
        self.views.iter().map(|(name, view)| ((*name).clone(), GroupNumbers::from(*view))).collect()
    }

    fn learn_groups(&mut self) {
        for group in &self.fleet.balancer.groups {
            match self.snapshot.groups.get(&group.name) {
                Some(Known::Known(view)) => {
                    self.views.insert(&group.name, view);
                    self.compare_group(group, view);
                }
                Some(Known::Unknown(why)) => {
                    self.why.push(WhyNot::GroupUnknown { group: group.name.clone(), why: why.clone() });
                }
                None => self
                    .why
                    .push(WhyNot::GroupUnknown { group: group.name.clone(), why: "it was not looked at".into() }),
            }
        }
    }

    fn selected(&self, server: &Server) -> bool {
        self.options.servers.as_ref().is_none_or(|names| names.contains(&server.name))
    }

    fn servers(&mut self) -> (Vec<ServerPlan>, Vec<ServerName>) {
        let groups = self.group_numbers();
        let by_id = self.by_id();
        let (mut planned, mut unchanged) = (Vec::new(), Vec::new());
        let fleet = self.fleet;
        for server in fleet.servers.iter().filter(|server| self.selected(server)).collect::<Vec<_>>() {
            let facts = match self.snapshot.servers.get(&server.name) {
                Some(Known::Known(facts)) => Some(facts),
                _ if self.options.offline => None,
                Some(Known::Unknown(why)) => {
                    self.why.push(WhyNot::ServerUnknown { server: server.name.clone(), why: why.clone() });
                    continue;
                }
                None => {
                    self.why.push(WhyNot::ServerUnknown {
                        server: server.name.clone(),
                        why: "it was not looked at".into(),
                    });
                    continue;
                }
            };
            let views = self.targets_of(server, &by_id);
            let gone = self.deregistered(server, &views);
            if let Some(facts) = facts {
                for what in &facts.missing {
                    self.why.push(WhyNot::Missing { server: server.name.clone(), what: what.clone() });
                }
                let kept_out = facts.absence.as_ref().filter(|absence| !absence.ends_when_verified);
                if (gone.is_empty() || kept_out.is_some()) && self.runs_already(facts) {
                    if let Some(absence) = kept_out {
                        let what = format!("{}: runs the release already and stays out of rotation", server.name);
                        self.warnings.push(format!("{what}: {}", absence.reason));
                    } else if views.iter().any(|(_, view)| view.state != TargetState::Healthy) {
                        self.warnings.push(format!(
                            "{}: runs the release already, but not every target of it is healthy",
                            server.name
                        ));
                    }
                    unchanged.push(server.name.clone());
                    continue;
                }
            }
            let mut plan = self.server(server, facts, &views, &groups);
            let new = gone.into_iter().filter(|target| !plan.targets.contains(target)).collect::<Vec<_>>();
            plan.targets.extend(new);
            planned.push(plan);
        }
        (planned, unchanged)
    }

    fn server(
        &mut self,
        server: &Server,
        facts: Option<&ServerFacts>,
        views: &[(GroupName, &TargetView)],
        groups: &BTreeMap<GroupName, GroupNumbers>,
    ) -> ServerPlan {
        let starts_as = self.starts_as(server, facts, views);
        let own: Vec<GroupName> = server.targets.keys().cloned().collect();
        let previous = facts.and_then(ServerFacts::way_back);
        if let Some(current) = previous {
            let gone: Vec<_> = current
                .manifest
                .services
                .keys()
                .filter(|s| !current.image_ids.contains_key(*s))
                .map(ToString::to_string)
                .collect();
            if !gone.is_empty() {
                let why = format!(
                    "the images of {} in release {} are no longer on it",
                    gone.join(", "),
                    current.manifest.id.short()
                );
                self.why.push(WhyNot::NoWayBack { server: server.name.clone(), why });
            }
        }
        ServerPlan {
            name: server.name.clone(),
            steps: steps(self.fleet, groups, &own, &starts_as, grace(self.fleet, self.release), self.may_sleep(facts)),
            starts_as,
            targets: views
                .iter()
                .map(|(group, view)| TargetRef { group: group.clone(), id: view.id.clone(), port: view.port })
                .collect(),
            previous: previous.map(|current| current.manifest.id.clone()),
            absence: facts.and_then(|facts| facts.absence.clone()),
            adopt: facts.is_some_and(|facts| facts.current.is_none() && !facts.containers.is_empty()),
            asleep: facts.map(|facts| facts.asleep.clone()).unwrap_or_default(),
        }
    }

    /// Whether something may sleep there when its turn comes: it does now, or a gateway is told to let it.
    fn may_sleep(&self, facts: Option<&ServerFacts>) -> bool {
        let mut hosts = self.fleet.gateway.iter().flat_map(|gateway| &gateway.hosts);
        hosts.any(|host| host.sleep.is_some()) || facts.is_some_and(|facts| !facts.asleep.is_empty())
    }

    fn runs_already(&self, facts: &ServerFacts) -> bool {
        let (Some(release), Some(current)) = (self.release, &facts.current) else { return false };
        let kept_out = facts.absence.as_ref().is_some_and(|absence| !absence.ends_when_verified);
        let containers = excused(&facts.containers, &facts.asleep.keys().cloned().collect());
        current.manifest.id == release.id
            && container_faults(&current.manifest, &current.image_ids, &containers).is_empty()
            && (kept_out || (!facts.drained && facts.absence.is_none()))
    }

    pub(super) fn capacity(&mut self, batches: &[Vec<ServerPlan>]) -> (Vec<Capacity>, Vec<WhyNot>) {
        let guard = Guard::new(self.fleet);
        let mut lowest: BTreeMap<_, Capacity> = BTreeMap::new();
        let mut why: Vec<WhyNot> = Vec::new();
        for (name, view) in &self.views {
            for batch in batches {
                let targets: Vec<TargetRef> =
                    batch.iter().flat_map(|s| &s.targets).filter(|t| &t.group == *name).cloned().collect();
                if targets.is_empty() {
                    continue;
                }
                // Who holds does not leave.
                let targets = if self.fleet.drain.by.hold().is_some() { Vec::new() } else { targets };
                let leaving: HashSet<_> = targets.iter().map(|t| (&t.id, t.port)).collect();
                for capacity in guard.capacities(name, &view.attributes, &view.targets, &leaving) {
                    let slot = lowest.entry(capacity.scope.clone()).or_insert_with(|| capacity.clone());
                    if capacity.remaining() < slot.remaining() {
                        *slot = capacity;
                    }
                }
                if let Err(reasons) = guard.may_leave(name, &GroupNumbers::from(*view), &view.targets, &targets) {
                    why.extend(reasons.into_iter().filter(|reason| !why.contains(reason)).collect::<Vec<_>>());
                }
            }
            if !view.targets.is_empty()
                && view.targets.iter().all(|t| t.state != TargetState::Healthy)
                && why.iter().any(|w| matches!(w, WhyNot::Capacity { scope, .. } if &scope.group == *name))
            {
                why.retain(|w| !matches!(w, WhyNot::Capacity { scope, .. } if &scope.group == *name));
                why.push(WhyNot::NoneHealthy { group: (*name).clone() });
            }
        }
        (lowest.into_values().collect(), why)
    }

    fn claims(&mut self) {
        let claimed: HashSet<(&GroupName, &str)> = self
            .fleet
            .servers
            .iter()
            .flat_map(|server| {
                server.targets.iter().flat_map(|(group, specs)| specs.iter().map(move |spec| (group, spec.id.as_str())))
            })
            .collect();
        for (name, view) in &self.views {
            for target in view.targets.iter().filter(|t| !claimed.contains(&(*name, t.id.as_str()))) {
                let target_ref = TargetRef { group: (*name).clone(), id: target.id.clone(), port: target.port };
                if target.state == TargetState::Healthy {
                    self.why.push(WhyNot::Unclaimed { target: target_ref });
                } else {
                    self.warnings.push(
                        format!("{target_ref} belongs to no server of deploy.toml ({:?})", target.state).to_lowercase(),
                    );
                }
            }
        }
    }
}
