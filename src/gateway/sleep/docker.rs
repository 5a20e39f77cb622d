//! The containers of a Compose project through the Docker Engine API: looked at, started, stopped.
//!
//! The only place that names bollard. Containers are found by the labels that Compose gives them; none is ever made, changed
//! or removed here: that is a deploy's.

use super::order::{Container, Wants, depends, layers, wanted};
use bollard::errors::Error;
use bollard::models::{
    ContainerInspectResponse, HealthStatusEnum, NetworkSettings, PortBinding, RestartPolicyNameEnum,
};
use bollard::query_parameters::{
    EventsOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder, StartContainerOptions,
    StatsOptionsBuilder, StopContainerOptions, TopOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::future::{join_all, try_join_all};
use futures_util::{Stream, StreamExt as _};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const PROJECT: &str = "com.docker.compose.project";
const SERVICE: &str = "com.docker.compose.service";
const DEPENDS: &str = "com.docker.compose.depends_on";
const ONE_OFF: &str = "com.docker.compose.oneoff";
/// Longer than any call that is waited for: each has a limit of its own.
const TIMEOUT: u64 = 3600;
/// For whatever only looks.
const LOOK: Duration = Duration::from_secs(10);
/// A container that is just being made again by hand is waited for so long.
const REMADE: Duration = Duration::from_secs(10);
/// Between two looks at a container that is waited for.
const PAUSE: Duration = Duration::from_millis(25);
/// What the engine waits for where a container says nothing.
const GRACE: Duration = Duration::from_secs(10);
/// Beyond the grace periods.
const SLACK: Duration = Duration::from_secs(30);
/// A container that ended and was started by the engine so often does not run.
const RESTARTS: i64 = 2;

/// An engine, of which one project is seen.
#[derive(Debug)]
pub(super) struct Engine {
    socket: String,
    project: String,
    client: Mutex<Option<Docker>>,
}

fn said(error: &Error) -> String {
    format!("the Docker engine: {error}")
}

/// Asking for what is so already is fine.
fn settled(result: Result<(), Error>) -> Result<(), String> {
    match result {
        Ok(()) | Err(Error::DockerResponseServerError { status_code: 304, .. }) => Ok(()),
        Err(error) => Err(said(&error)),
    }
}

async fn within<T>(most: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(most, work).await {
        Ok(result) => result.map_err(|error| said(&error)),
        Err(_) => Err("the Docker engine does not answer".to_owned()),
    }
}

impl Engine {
    pub(super) fn new(socket: &str, project: &str) -> Self {
        Self { socket: socket.to_owned(), project: project.to_owned(), client: Mutex::new(None) }
    }

    /// A client that speaks the engine's own version; made again after every error, as the engine may be another one by then.
    async fn client(&self) -> Result<Docker, String> {
        let known = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(client) = known {
            return Ok(client);
        }
        let client = Docker::connect_with_unix(&self.socket, TIMEOUT, API_DEFAULT_VERSION);
        let client = client.map_err(|error| said(&error))?;
        let client = within(LOOK, client.negotiate_version()).await?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }

    fn forget(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn filters(&self) -> HashMap<String, Vec<String>> {
        HashMap::from([("label".to_owned(), vec![format!("{PROJECT}={}", self.project)])])
    }

    /// Every container of the project.
    pub(super) async fn containers(&self) -> Result<Vec<Container>, String> {
        self.seen().await.inspect_err(|_| self.forget())
    }

    async fn seen(&self) -> Result<Vec<Container>, String> {
        let client = self.client().await?;
        let options = ListContainersOptionsBuilder::new().all(true).filters(&self.filters()).build();
        let listed = within(LOOK, client.list_containers(Some(options))).await?;
        let ids = listed.into_iter().filter(|one| {
            let labels = one.labels.as_ref();
            labels.and_then(|labels| labels.get(ONE_OFF)).is_none_or(|value| value != "True")
        });
        let looks = ids.filter_map(|one| one.id).map(|id| {
            let client = client.clone();
            async move { within(LOOK, client.inspect_container(&id, None::<InspectContainerOptions>)).await }
        });
        // One that was removed between the two calls is none.
        Ok(join_all(looks).await.into_iter().flatten().filter_map(container).collect())
    }

    /// Starts what the services need, each after what it depends on, and returns when all of it runs.
    pub(super) async fn start(&self, services: &[String], most: Duration) -> Result<(), String> {
        let work = async {
            let all = self.all_there(services).await?;
            for layer in layers(&all, services) {
                let of = all.iter().filter(|one| layer.contains(&one.service));
                try_join_all(of.map(|one| self.start_one(one, wanted(&all, &one.service)))).await?;
            }
            Ok(())
        };
        let started = tokio::time::timeout(most, work).await;
        let late = || Err("the containers did not start in time".to_owned());
        started.unwrap_or_else(|_| late()).inspect_err(|_| self.forget())
    }

    /// The containers, once every service has one.
    async fn all_there(&self, services: &[String]) -> Result<Vec<Container>, String> {
        let until = tokio::time::Instant::now() + REMADE;
        loop {
            let all = self.containers().await?;
            let lacks = services.iter().find(|name| !all.iter().any(|one| one.service == **name));
            let Some(lacks) = lacks else { return Ok(all) };
            if tokio::time::Instant::now() >= until {
                return Err(format!("the project {} has no container of the service {lacks}", self.project));
            }
            tokio::time::sleep(PAUSE * 4).await;
        }
    }

    async fn start_one(&self, one: &Container, wants: Wants) -> Result<(), String> {
        if wants == Wants::Completed && !one.running && one.exit == Some(0) {
            return Ok(());
        }
        if !one.running {
            let client = self.client().await?;
            settled(client.start_container(&one.id, None::<StartContainerOptions>).await)
                .map_err(|why| format!("{}: {why}", one.service))?;
        }
        if wants == Wants::Started {
            return Ok(());
        }
        loop {
            let client = self.client().await?;
            let now = within(LOOK, client.inspect_container(&one.id, None::<InspectContainerOptions>)).await?;
            let Some(now) = container(now) else { return Ok(()) };
            match (wants, now.running, now.exit) {
                (Wants::Completed, false, Some(0)) => return Ok(()),
                (_, false, exit) => {
                    return Err(format!("{} ended with exit code {}", one.service, exit.unwrap_or_default()));
                }
                (Wants::Healthy, true, _) if now.healthy != Some(false) => return Ok(()),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Stops the services, those that others depend on last, each with its own grace period; tells who had to be killed.
    pub(super) async fn stop(&self, services: &[String]) -> Result<Vec<String>, String> {
        self.stop_all(services).await.inspect_err(|_| self.forget())
    }

    async fn stop_all(&self, services: &[String]) -> Result<Vec<String>, String> {
        let all = self.containers().await?;
        let client = self.client().await?;
        for layer in layers(&all, services).iter().rev() {
            let of = all.iter().filter(|one| layer.contains(&one.service) && services.contains(&one.service));
            try_join_all(of.map(|one| {
                let client = client.clone();
                async move {
                    let call = client.stop_container(&one.id, None::<StopContainerOptions>);
                    let stopped = tokio::time::timeout(one.grace + SLACK, call).await;
                    let stopped = stopped.map_err(|_| format!("{} does not stop", one.service))?;
                    settled(stopped).map_err(|why| format!("{}: {why}", one.service))
                }
            }))
            .await?;
        }
        let after = self.containers().await?;
        let left: Vec<&Container> = after.iter().filter(|one| services.contains(&one.service)).collect();
        if let Some(runs) = left.iter().find(|one| one.running) {
            return Err(format!("{} was stopped and runs", runs.service));
        }
        Ok(left.iter().filter(|one| one.exit == Some(137)).map(|one| one.service.clone()).collect())
    }

    /// How much memory the services use, as far as the engine says.
    pub(super) async fn memory(&self, containers: &[Container]) -> u64 {
        let Ok(client) = self.client().await else { return 0 };
        let looks = containers.iter().filter(|one| one.running).map(|one| {
            let client = client.clone();
            async move {
                match charged(&client, &one.id).await {
                    Some(bytes) => bytes,
                    None => resident(&client, &one.id).await.unwrap_or(0),
                }
            }
        });
        join_all(looks).await.into_iter().sum()
    }

    /// Says whenever something happened to a container of the project, until the engine is gone.
    pub(super) async fn events(&self) -> Result<impl Stream<Item = ()> + use<>, String> {
        let client = self.client().await?;
        let mut filters = self.filters();
        filters.insert("type".to_owned(), vec!["container".to_owned()]);
        let events = client.events(Some(EventsOptionsBuilder::new().filters(&filters).build()));
        Ok(Box::pin(events.take_while(|event| std::future::ready(event.is_ok())).map(drop)))
    }
}

/// What its control group is charged for.
async fn charged(client: &Docker, id: &str) -> Option<u64> {
    let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
    let mut stats = Box::pin(client.stats(id, Some(options)));
    let found = tokio::time::timeout(LOOK, stats.next()).await.ok().flatten()?.ok()?.memory_stats?;
    // What the kernel would give back at once is nobody's.
    let cache = found.stats.and_then(|stats| {
        let of = |name| stats.get(name).copied();
        of("inactive_file").or_else(|| of("total_inactive_file"))
    });
    Some(found.usage?.saturating_sub(cache.unwrap_or(0)))
}

/// The resident memory of its processes, where the engine has no figures of the group.
async fn resident(client: &Docker, id: &str) -> Option<u64> {
    let options = TopOptionsBuilder::new().ps_args("-o pid,rss").build();
    let found = within(LOOK, client.top_processes(id, Some(options))).await.ok()?;
    let kib = |row: &Vec<String>| row.last().and_then(|text| text.parse::<u64>().ok());
    Some(found.processes?.iter().filter_map(kib).sum::<u64>() * 1024)
}

fn container(found: ContainerInspectResponse) -> Option<Container> {
    let config = found.config.unwrap_or_default();
    let labels = config.labels.unwrap_or_default();
    let state = found.state.unwrap_or_default();
    let policy = found.host_config.and_then(|host| host.restart_policy).and_then(|policy| policy.name);
    let ports = found.network_settings.map(published).unwrap_or_default();
    let again = state.restarting.unwrap_or(false);
    let loops = again && found.restart_count.unwrap_or(0) > RESTARTS;
    let running = (state.running.unwrap_or(false) || again) && !loops;
    let began = state.started_at.as_deref().is_some_and(|at| !at.starts_with("0001"));
    let health = state.health.and_then(|health| health.status);
    Some(Container {
        id: found.id?,
        service: labels.get(SERVICE)?.clone(),
        depends: labels.get(DEPENDS).map(|label| depends(label)).unwrap_or_default(),
        running,
        healthy: match health {
            None | Some(HealthStatusEnum::NONE | HealthStatusEnum::EMPTY) => None,
            Some(status) => Some(status == HealthStatusEnum::HEALTHY),
        },
        exit: if began && !running { state.exit_code } else { None },
        grace: config.stop_timeout.and_then(|seconds| u64::try_from(seconds).ok()).map_or(GRACE, Duration::from_secs),
        always: policy == Some(RestartPolicyNameEnum::ALWAYS),
        ports,
    })
}

/// Which ports of this machine lead to which of the container's own.
fn published(settings: NetworkSettings) -> Vec<(u16, SocketAddr)> {
    let addresses = settings.networks.unwrap_or_default().into_values().filter_map(|one| one.ip_address);
    let Some(address) = addresses.filter_map(|text| text.parse::<IpAddr>().ok()).min() else { return Vec::new() };
    let all = settings.ports.unwrap_or_default();
    let of = |(inner, outer): (String, Option<Vec<PortBinding>>)| {
        let inner: Option<u16> = inner.strip_suffix("/tcp").and_then(|port| port.parse().ok());
        let outer = outer.unwrap_or_default().into_iter();
        let outer = outer.filter_map(|one| one.host_port).filter_map(|port| port.parse::<u16>().ok());
        let pairs: Vec<(u16, u16)> = outer.filter_map(|outer| Some((outer, inner?))).collect();
        pairs
    };
    all.into_iter().flat_map(of).map(|(outer, inner)| (outer, SocketAddr::new(address, inner))).collect()
}
