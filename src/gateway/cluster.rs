//! Wakes a workload of the cluster through its scale, at the first request that waits for it. The one place that knows `kube`.
//!
//! Everything else about its sleep is the HPA's, which reads this gateway (`external`): while somebody waits it sees at least one, so that it
//! does not take back what was woken here.

mod waker;

use super::site::Shared;
use crate::clock::Clock;
use crate::event::{Event, Line, Sink};
use crate::fleet::model::{ClusterWorkload, WorkloadKind};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use waker::{Turn, Waker};

/// Between two looks at who waits.
const LOOK: Duration = Duration::from_millis(25);
/// One call takes no longer.
const CALL: Duration = Duration::from_secs(5);

/// Wakes what somebody waits for, until it is dropped.
pub(super) async fn keep(shared: Arc<Shared>, sink: Arc<dyn Sink>, clock: Clock) {
    let tell = |what: String| sink.take(Line::new(clock.now(), Event::Warning { server: None, what }));
    let mut wakers: HashMap<String, Waker> = HashMap::new();
    let (mut client, mut unknown): (Option<Client>, String) = (None, String::new());
    let mut reloaded = shared.reloaded.subscribe();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        if shared.site().spec.hosts.iter().all(|host| host.workload.is_none()) {
            // On a server there is nothing to look at, until another configuration says otherwise.
            if reloaded.changed().await.is_err() {
                return;
            }
            continue;
        }
        look.tick().await;
        let site = shared.site();
        let mut asked = Vec::new();
        for host in &site.spec.hosts {
            let Some(workload) = &host.workload else { continue };
            let metrics = shared.metrics.host(host.name.as_str());
            let waker = wakers.entry(host.name.to_string()).or_default();
            if waker.asks(metrics.held.get(), Instant::now()) {
                asked.push((host.name.to_string(), workload, metrics));
            }
        }
        if asked.is_empty() {
            continue;
        }
        // A client is made when it is needed first, so that a gateway outside of any cluster starts too.
        if client.is_none() {
            client = Client::try_default().await.map_err(|error| unknown = whole(&error)).ok();
        }
        let calls = asked.iter().map(|(_, workload, _)| turn(client.clone(), &unknown, workload));
        let turns = futures_util::future::join_all(calls).await;
        for ((name, workload, metrics), turn) in asked.iter().zip(turns) {
            match &turn {
                Turn::Woken => metrics.scaled(true),
                Turn::Failed(_) => metrics.scaled(false),
                Turn::Up(_) | Turn::Conflict => {}
            }
            let waker = wakers.entry(name.clone()).or_default();
            if let Some(why) = waker.took(turn, Instant::now()) {
                tell(format!("{name}: {workload}: {why}"));
            }
        }
    }
}

/// One look, and one wake where it is at zero.
async fn turn(client: Option<Client>, unknown: &str, workload: &ClusterWorkload) -> Turn {
    let Some(made) = client else { return Turn::Failed(format!("the cluster's API is not known: {unknown}")) };
    let woken = async {
        match workload.kind {
            WorkloadKind::Deployment => {
                let api: Api<Deployment> = Api::namespaced(made, &workload.namespace);
                let scale = api.get_scale(&workload.name).await?;
                let Some(one) = one(&scale) else { return Ok(Turn::Up(replicas(&scale))) };
                api.replace_scale(&workload.name, &PostParams::default(), &one).await
            }
            WorkloadKind::StatefulSet => {
                let api: Api<StatefulSet> = Api::namespaced(made, &workload.namespace);
                let scale = api.get_scale(&workload.name).await?;
                let Some(one) = one(&scale) else { return Ok(Turn::Up(replicas(&scale))) };
                api.replace_scale(&workload.name, &PostParams::default(), &one).await
            }
        }
        .map(|_| Turn::Woken)
    };
    match tokio::time::timeout(CALL, woken).await {
        Err(_) => Turn::Failed(format!("the cluster's API does not answer within {} s", CALL.as_secs())),
        Ok(Ok(turn)) => turn,
        Ok(Err(Error::Api(status))) if status.code == 409 => Turn::Conflict,
        Ok(Err(error)) => Turn::Failed(whole(&error)),
    }
}

fn replicas(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

/// The same scale with one pod, where it has none; its version goes along, so that only one of two who do this is taken.
fn one(scale: &Scale) -> Option<Scale> {
    if replicas(scale) > 0 {
        return None;
    }
    let mut one = scale.clone();
    one.spec.get_or_insert_default().replicas = Some(1);
    Some(one)
}

/// An error with its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = error.source();
    }
    text
}
