//! The real ends of the ports for a fleet.

use crate::adapters::AnyBalancer;
use crate::adapters::alb::Alb;
use crate::adapters::haproxy::Haproxy;
use crate::adapters::ssh::{self, SshServer};
use crate::diag::Problem;
use crate::fleet::model::{BalancerKind, Fleet};
use crate::rollout::{NotRun, Ports};
use crate::server::wire::Run;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The real fleet.
pub(super) type RealPorts = Ports<SshServer, AnyBalancer>;

/// Makes the ports; servers are connected to when they are first asked, all at the same time.
pub(super) async fn fleet(fleet: &Fleet, run: &Run) -> Result<RealPorts, Problem> {
    let servers = ssh::servers(fleet, run, ssh::Options::from_env());
    let balancer = match fleet.balancer.kind {
        BalancerKind::None => AnyBalancer::None,
        BalancerKind::Haproxy => AnyBalancer::Haproxy(Box::new(Haproxy::new(fleet, ssh::Options::from_env()))),
        BalancerKind::Alb => {
            let (region, endpoint) = (fleet.balancer.region.as_deref(), fleet.balancer.endpoint.as_deref());
            AnyBalancer::Alb(Box::new(Box::pin(Alb::connect(region, endpoint)).await))
        }
    };
    // Whoever runs the engine says where the team's commands run; nobody else runs any.
    Ok(Ports { servers, balancer: Arc::new(balancer), here: Arc::new(NotRun) })
}

/// Ends every connection in order, so that locks are free before we are gone.
pub(super) async fn close(ports: RealPorts) {
    ssh::close_all(&ports.servers).await;
}

/// Who runs, from where, for what: shown to whoever finds the lock held.
pub(super) fn run(what: &str) -> Run {
    let variable =
        |names: &[&str]| names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let user = variable(&["GITHUB_ACTOR", "GITLAB_USER_LOGIN", "SUDO_USER", "USER", "LOGNAME"])
        .unwrap_or_else(|| "somebody".into());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".into(), |name| name.trim().to_owned());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Run {
        id: format!("{}-{}-{}", now.as_secs(), now.subsec_nanos(), std::process::id()),
        who: format!("{user}@{host}"),
        what: what.into(),
    }
}
