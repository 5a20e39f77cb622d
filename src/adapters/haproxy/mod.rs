//! The balancer port on HAProxy's runtime API: one or several nodes, each asked for itself and believed only for itself.
//!
//! A group is a backend, a target a server in it. What one node does not answer is unknown for all: it may send requests
//! where the others do not.

mod runtime;
mod stats;
#[cfg(test)]
mod tests;

use super::ssh;
use crate::fleet::model::{
    AdminState, Beside, DrainBy, Fleet, FrontView, Group, GroupAttributes, GroupName, GroupView, HealthSettings,
    TargetRef, TargetView, Word,
};
use crate::fleet::provision::Change;
use crate::rollout::port::{Balancer, BalancerError};
use futures_util::future::join_all;
use runtime::Node;
use stats::{Look, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Which process was told, last seen when: by node, backend and server.
type Told = BTreeMap<(usize, String, String), Process>;

/// HAProxy nodes that serve the same backends.
#[derive(Debug)]
pub struct Haproxy {
    nodes: Vec<Node>,
    groups: BTreeMap<GroupName, Group>,
    /// The servers that deploy.toml names, by backend.
    own: BTreeMap<GroupName, BTreeSet<String>>,
    /// How HAProxy is told to let go; not at all where health is made to fail.
    lets_go: Option<AdminState>,
    /// What each process was told: a reload forgets it (HAProxy management guide: the state is the process's).
    told: Mutex<Told>,
}

impl Haproxy {
    /// Nothing is connected yet; sockets on other machines are reached by SSH as servers are.
    #[must_use]
    pub fn new(fleet: &Fleet, options: ssh::Options) -> Self {
        let node = |socket: &crate::fleet::model::RuntimeSocket| {
            Node::new(socket.clone(), fleet.ssh.host_keys, options.clone())
        };
        let mut own: BTreeMap<GroupName, BTreeSet<String>> = BTreeMap::new();
        for (group, specs) in fleet.servers.iter().flat_map(|server| &server.targets) {
            own.entry(group.clone()).or_default().extend(specs.iter().map(|spec| spec.id.to_string()));
        }
        Self {
            nodes: fleet.balancer.nodes.iter().map(node).collect(),
            groups: fleet.balancer.groups.iter().map(|group| (group.name.clone(), group.clone())).collect(),
            own,
            lets_go: (fleet.drain.by == DrainBy::Deregister).then_some(fleet.drain.state),
            told: Mutex::default(),
        }
    }

    fn group(&self, name: &GroupName) -> Result<&Group, BalancerError> {
        self.groups.get(name).ok_or_else(|| BalancerError::Refused(format!("deploy.toml has no group {name}")))
    }

    /// Every node's look, all asked at the same time.
    async fn looks(&self, backend: &str) -> Result<Vec<(String, Look)>, BalancerError> {
        let mut looks = Vec::new();
        for (node, look) in self.nodes.iter().zip(join_all(self.nodes.iter().map(Node::look)).await) {
            let look = look?;
            if !look.backends.iter().any(|name| name == backend) {
                let known = look.backends.join(", ");
                let text = format!("{}: there is no backend {backend}; it has {known}", node.socket);
                return Err(BalancerError::Refused(text));
            }
            looks.push((node.socket.to_string(), look));
        }
        Ok(looks)
    }

    fn views(&self, group: &Group, looks: &[(String, Look)]) -> Vec<TargetView> {
        let backend = group.name.as_str();
        let of = |look: &Look| {
            let rows = look.rows.iter().filter(|row| row.backend == backend);
            rows.map(|row| row.view(group.port, self.lets_go, group.deregistration_delay)).collect()
        };
        stats::merge(looks.iter().map(|(node, look)| (node.clone(), of(look))).collect())
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a node's process was never told, because it came after the one that was. The others are seen to be the same still.
    fn forgotten(&self, node: usize, backend: &str, now: Process) -> Vec<String> {
        let mut forgotten = Vec::new();
        for ((at, of, server), process) in self.told().iter_mut() {
            let here = *at == node && of == backend;
            if here && now.came_after(*process) {
                forgotten.push(server.clone());
            } else if here {
                *process = now;
            }
        }
        forgotten
    }

    /// A process that came after the one that was told is told again. What was seen of it stands: it may have sent requests.
    async fn tell_again(&self, backend: &str, looks: &[(String, Look)]) -> Result<(), BalancerError> {
        let Some(state) = self.lets_go else { return Ok(()) };
        for (at, (node, (_, look))) in self.nodes.iter().zip(looks).enumerate() {
            for server in self.forgotten(at, backend, look.process) {
                node.set(backend, &server, Some(state)).await?;
                self.told().insert((at, backend.to_owned(), server), look.process);
            }
        }
        Ok(())
    }

    /// Sets a state on every node; one that fails does not keep the others from being told.
    async fn set(&self, targets: &[TargetRef], state: Option<AdminState>) -> Result<(), BalancerError> {
        let mut worst = Ok(());
        for (at, node) in self.nodes.iter().enumerate() {
            let told = self.set_on(at, node, targets, state).await;
            if told.is_err() && (worst.is_ok() || matches!(told, Err(BalancerError::Refused(_)))) {
                worst = told;
            }
        }
        worst
    }

    async fn set_on(
        &self,
        at: usize,
        node: &Node,
        targets: &[TargetRef],
        state: Option<AdminState>,
    ) -> Result<(), BalancerError> {
        let key = |target: &TargetRef| (at, target.group.to_string(), target.id.to_string());
        if state.is_none() {
            // Before anything can fail: whoever is to have it back must not be told to let it go once more.
            let back: BTreeSet<_> = targets.iter().map(key).collect();
            self.told().retain(|told, _| !back.contains(told));
        }
        let look = node.look().await?;
        for target in targets {
            if state.is_some() {
                // Noted first: a change whose answer was lost is told again after a reload, too.
                self.told().insert(key(target), look.process);
            }
            node.set(target.group.as_str(), target.id.as_str(), state).await?;
        }
        Ok(())
    }

    /// Numbers that the running processes tell: the most careful of them; `inter` and the timeouts they do not tell.
    fn settings(&self, group: &Group, looks: &[(String, Look)]) -> HealthSettings {
        let rows = || looks.iter().flat_map(|(_, look)| &look.rows).filter(|row| row.backend == group.name.as_str());
        let file = group.health.settings;
        HealthSettings {
            unhealthy: rows().filter_map(|row| row.fall).max().unwrap_or(file.unhealthy),
            healthy: rows().filter_map(|row| row.rise).max().unwrap_or(file.healthy),
            ..file
        }
    }

    fn notes(&self, group: &Group, looks: &[(String, Look)]) -> Vec<String> {
        let mut notes = Vec::new();
        for (node, look) in looks {
            if let (Some(cookie), Some(AdminState::Drain)) = (look.cookies.get(group.name.as_str()), self.lets_go) {
                notes.push(format!(
                    "{node}: sessions persist by the cookie {cookie}; with `drain.state = \"drain\"` they still go to a \
                     server that is let go, and its stop waits for them, {} at most",
                    crate::fleet::model::show_duration(group.deregistration_delay)
                ));
            }
        }
        let versions: BTreeSet<&str> = looks.iter().map(|(_, look)| look.version.as_str()).collect();
        if versions.len() > 1 {
            let versions = versions.into_iter().collect::<Vec<_>>().join(" and ");
            notes.push(format!("the nodes run different versions of HAProxy: {versions}"));
        }
        notes
    }

    /// What would make a flip useless is said before anything is touched.
    fn refuse_blind_checks(&self, group: &Group, looks: &[(String, Look)]) -> Result<(), BalancerError> {
        if self.lets_go.is_some() {
            return Ok(());
        }
        let own = self.own.get(&group.name);
        for (node, look) in looks {
            let rows = look.rows.iter().filter(|row| row.backend == group.name.as_str());
            let blind = rows.filter(|row| own.is_some_and(|own| own.contains(&row.server)) && !row.checks_answers());
            if let Some(row) = blind.into_iter().next() {
                return Err(BalancerError::Refused(format!(
                    "{node}: {}/{} is checked by a bare connection ({}), so that no answer takes it out: add `option \
                     httpchk GET {}` to the backend, or use `drain.by = \"deregister\"`",
                    row.backend, row.server, row.check, group.health.path
                )));
            }
        }
        Ok(())
    }
}

impl Balancer for Haproxy {
    async fn observe(&self, name: &GroupName) -> Result<GroupView, BalancerError> {
        let group = self.group(name)?;
        let looks = self.looks(name.as_str()).await?;
        self.refuse_blind_checks(group, &looks)?;
        Ok(GroupView {
            id: name.to_string(),
            path: group.health.path.clone(),
            health_port: group.health.port,
            settings: self.settings(group, &looks),
            attributes: GroupAttributes { slow_start: Duration::ZERO, ..group.attributes() },
            beside: Beside::default(),
            fronts: Vec::new(),
            by_address: false,
            word: Word::EachNode,
            targets: self.views(group, &looks),
            notes: self.notes(group, &looks),
        })
    }

    async fn health(&self, name: &GroupName) -> Result<Vec<TargetView>, BalancerError> {
        let group = self.group(name)?;
        let looks = self.looks(name.as_str()).await?;
        self.tell_again(name.as_str(), &looks).await?;
        Ok(self.views(group, &looks))
    }

    async fn register(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        self.set(targets, None).await
    }

    async fn deregister(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        match self.lets_go {
            Some(state) => self.set(targets, Some(state)).await,
            None => Err(BalancerError::Refused("this fleet is drained by its health, not by HAProxy's states".into())),
        }
    }

    /// The nodes are the front, and what they do not tell is deploy.toml's.
    async fn front(&self, _: &str) -> Result<FrontView, BalancerError> {
        Err(BalancerError::Refused("HAProxy has no load balancer's attributes".into()))
    }

    async fn apply(&self, _: &Change) -> Result<(), BalancerError> {
        Err(BalancerError::Refused("HAProxy's numbers stand in its own configuration file".into()))
    }
}
