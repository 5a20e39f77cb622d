//! The three deploys of the story: a watchdog that heals at once and a server that leaves before its traffic does, the watchdog
//! mended, the handshake right. The fleet, the deploying script and the watchdogs of each.
//!
//! The moments are laid so that the watchdogs look while the second server drains: once in many deploys it is so.

use super::Lab;
use crate::config;
use crate::fleet::model::{DrainBy, Fleet, HealthSettings, Measure, ReleaseId, ReleaseOnDisk, ServerName, ServiceName};
use crate::fleet::strikes::Strikes;
use crate::measure::Target;
use crate::server::wire::Run;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The checks as they were: a minute until a server is let go.
const SLOW: HealthSettings =
    HealthSettings { interval: Duration::from_secs(30), timeout: Duration::from_secs(5), unhealthy: 2, healthy: 2 };
/// So long after the second server began to drain the watchdogs look.
const INTO_THE_DRAIN: Duration = Duration::from_secs(2);
/// What the watchdog's own copy of the definition is too old to know.
const UNKNOWN_TO_THE_COPY: &str = "gateway";

/// What is asked, and how often in a second: the API, the gateway, and the health path, which was the first thing that the team
/// measured.
const TRAFFIC: [(&str, &str, f64); 3] =
    [("mythex-api", "/version", 10.0), ("mythex-gateway", "/version", 6.0), ("mythex-api", "/health", 4.0)];

/// One of the three deploys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// As it was: one strike, no lock, the server leaves first.
    AsItWas,
    /// The watchdog honours the lock and needs four strikes.
    WatchdogMended,
    /// And the server leaves last.
    HandshakeRight,
}

impl Act {
    /// In order.
    pub const ALL: [Self; 3] = [Self::AsItWas, Self::WatchdogMended, Self::HandshakeRight];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AsItWas => "as it was",
            Self::WatchdogMended => "watchdog mended",
            Self::HandshakeRight => "handshake right",
        }
    }

    /// Its fleet.
    ///
    /// # Errors
    /// When the file that came with this program is not understood.
    pub fn fleet(self) -> anyhow::Result<Fleet> {
        let source = config::Source::new("story.toml", include_str!("story.toml"));
        let loaded = config::from_sources(&source, None).map_err(|problems| anyhow::anyhow!("{problems}"))?;
        let mut fleet = loaded.fleet;
        if self != Self::HandshakeRight {
            fleet.drain.by = DrainBy::Sigterm;
            fleet.balancer.groups.iter_mut().for_each(|group| group.health.settings = SLOW);
        }
        Ok(fleet)
    }

    /// Where the checks come rarely, time may run faster.
    #[must_use]
    pub fn speed(self, speed: f64) -> f64 {
        if self == Self::HandshakeRight { speed } else { speed * 2.0 }
    }
}

/// What is asked of a lab of the story.
#[must_use]
pub fn traffic(lab: &Lab) -> Vec<(Target, Measure)> {
    let one = |(group, path, rate): &(&str, &str, f64)| {
        let addresses = Some(lab.balancer.nodes_of(&(*group).into()));
        let url = format!("http://mythex.example{path}");
        (Target { url: url.clone(), addresses }, Measure { url, rate: *rate, timeout: Duration::from_secs(10) })
    };
    TRAFFIC.iter().map(one).collect()
}

/// The services that a server of deploy.toml lacks.
#[must_use]
pub fn missing(lab: &Lab) -> BTreeMap<ServerName, Vec<ServiceName>> {
    let lacks = |server: &super::LabServer| {
        let running: Vec<ServiceName> = server.services().into_iter().map(|service| service.service).collect();
        let all = lab.fleet.services.iter().map(|service| service.name.clone());
        all.filter(|service| !running.contains(service)).collect::<Vec<_>>()
    };
    let each = lab.servers.iter().map(|(name, server)| (name.clone(), lacks(server)));
    each.filter(|(_, lacking)| !lacking.is_empty()).collect()
}

/// The deploy of the first two acts: the definition is written, the old containers are told to go, what the definition says is
/// brought up, and every command returns. `drains` is told when the second server begins.
///
/// # Errors
/// When a command fails, which none does.
pub async fn deploy(lab: &Lab, act: Act, drains: &watch::Sender<bool>) -> anyhow::Result<()> {
    let run = Run { id: "script".into(), who: "ci".into(), what: "the deploy script".into() };
    for (number, spec) in lab.fleet.servers.iter().enumerate() {
        let Some(server) = lab.servers.get(&spec.name) else { continue };
        if act == Act::WatchdogMended {
            server.lock_by_script(&run).await;
        }
        let release = server.another_release()?;
        server.write_definition(release);
        drains.send_replace(number > 0);
        server.restart_by_definition().await.with_context(|| format!("{} does not come back", spec.name))?;
        server.free_by_script(&run);
    }
    Ok(())
}

/// The watchdogs of an act: all look at the same moment, once a minute; ends only when it is dropped.
pub async fn watch(lab: &Lab, act: Act, mut drains: watch::Receiver<bool>) {
    let clock = lab.clock();
    if drains.wait_for(|drains| *drains).await.is_err() {
        return;
    }
    clock.sleep(INTO_THE_DRAIN).await;
    let mut strikes: BTreeMap<ServerName, Strikes> = BTreeMap::new();
    loop {
        let next = clock.now() + lab.fleet.watchdog.interval;
        let mut looks = JoinSet::new();
        for (name, server) in lab.servers() {
            let mut counted = strikes.remove(&name).unwrap_or_default();
            let rules = lab.fleet.watchdog.rules();
            looks.spawn(async move {
                // What a watchdog fails at is seen in what it leaves.
                match act {
                    Act::AsItWas => drop(server.heal_at_once(&old_copy).await),
                    Act::WatchdogMended | Act::HandshakeRight => server.look(&rules, &mut counted).await,
                }
                (name, counted)
            });
        }
        strikes.extend(looks.join_all().await);
        clock.sleep_until(next).await;
    }
}

/// The watchdog's own copy of the definition, written down before there was a gateway.
fn old_copy(release: &ReleaseOnDisk) -> ReleaseOnDisk {
    let mut copy = release.clone();
    copy.manifest.id = ReleaseId::new(format!("c0b1{}", release.manifest.id));
    copy.manifest.services.retain(|service, _| service.as_str() != UNKNOWN_TO_THE_COPY);
    copy.image_ids.retain(|service, _| service.as_str() != UNKNOWN_TO_THE_COPY);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::timing;

    #[test]
    fn the_fleet_of_each_act_is_read_and_only_the_last_serves_until_it_is_let_go() {
        for act in Act::ALL {
            let fleet = act.fleet().expect("it came with this program");
            assert_eq!((fleet.servers.len(), fleet.services.len()), (3, 4));
            for group in &fleet.balancer.groups {
                let noticed = timing::out_nominal(&group.health.settings);
                let longest = fleet.services.iter().map(|service| service.shutdown).max().expect("services");
                let serves = if fleet.drain.by == DrainBy::Sigterm { longest } else { fleet.drain.serve };
                assert_eq!(serves >= noticed, act == Act::HandshakeRight, "{act:?}: {serves:?}, {noticed:?}");
            }
        }
    }

    #[test]
    fn the_watchdogs_copy_is_older_than_the_gateway() {
        let fleet = Act::AsItWas.fleet().expect("read");
        let names: Vec<&str> = fleet.services.iter().map(|service| service.name.as_str()).collect();
        assert!(names.contains(&UNKNOWN_TO_THE_COPY));
        for (group, _, _) in TRAFFIC {
            assert!(fleet.balancer.groups.iter().any(|known| known.name.as_str() == group));
        }
    }
}
