//! The port to the simulated balancer, and what its API does to those who ask it.

use super::faults::Fault;
use super::world::{Inner, World};
use crate::clock::Stamp;
use crate::fleet::model::{Beside, FrontView, GroupName, GroupView, TargetRef, TargetView, Word};
use crate::fleet::provision::Change;
use crate::rollout::port::{Balancer, BalancerError};
use std::time::Duration;

/// An answer takes that long.
const ANSWER: Duration = Duration::from_millis(80);
/// A question that is not answered is given up after so long (the SDK's own limit for an attempt is of this size).
const SILENCE: Duration = Duration::from_secs(10);

/// The balancer.
#[derive(Debug)]
pub(super) struct BalancerPort(pub(super) World);

impl BalancerPort {
    async fn ask<T>(&self, answer: impl FnOnce(&mut Inner, Stamp) -> Option<T>) -> Result<T, BalancerError> {
        self.0.clock.sleep(ANSWER).await;
        let now = self.0.clock.now();
        let (silent, denied, throttled) = self.0.with(|inner| {
            let since = inner.since(now);
            (
                inner.has(|fault| matches!(fault, Fault::Silent(span) if span.holds(since))),
                inner.has(|fault| matches!(fault, Fault::Denied(span) if span.holds(since))),
                inner.has(|fault| matches!(fault, Fault::Throttled(span) if span.holds(since))),
            )
        });
        if silent {
            self.0.clock.sleep(SILENCE).await;
            return Err(BalancerError::Unknown("no answer".into()));
        }
        if denied {
            return Err(BalancerError::Refused("AccessDenied: not authorized".into()));
        }
        if throttled {
            return Err(BalancerError::Unknown("Throttling: Rate exceeded".into()));
        }
        let answer = self.0.with(|inner| answer(inner, now));
        answer.ok_or_else(|| BalancerError::Refused("TargetGroupNotFound".into()))
    }
}

fn views(inner: &Inner, group: &GroupName, now: Stamp) -> Option<Vec<TargetView>> {
    let mut views = inner.model.describe(group, now)?;
    let since = inner.since(now);
    if inner.has(|fault| matches!(fault, Fault::Partial(span) if span.holds(since))) {
        views.pop();
    }
    Some(views)
}

impl Balancer for BalancerPort {
    async fn observe(&self, group: &GroupName) -> Result<GroupView, BalancerError> {
        self.ask(|inner, now| {
            let spec = inner.model.group(group)?.clone();
            Some(GroupView {
                id: spec.name.to_string(),
                path: spec.path,
                health_port: spec.health_port,
                settings: spec.settings,
                attributes: spec.attributes,
                beside: Beside::default(),
                fronts: Vec::new(),
                by_address: spec.by_address,
                word: Word::Merged,
                notes: Vec::new(),
                targets: views(inner, group, now)?,
            })
        })
        .await
    }

    async fn health(&self, group: &GroupName) -> Result<Vec<TargetView>, BalancerError> {
        self.ask(|inner, now| views(inner, group, now)).await
    }

    async fn register(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        for target in targets {
            self.ask(|inner, now| {
                let zone = inner.server_of(&target.id).and_then(|name| inner.fleet.server(&name)?.zone.clone());
                inner.model.register(&target.group, target.id.clone(), Some(target.port), zone, now);
                Some(())
            })
            .await?;
        }
        Ok(())
    }

    async fn deregister(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        for target in targets {
            self.ask(|inner, now| {
                inner.model.deregister(&target.group, &target.id, Some(target.port), now);
                Some(())
            })
            .await?;
        }
        Ok(())
    }

    async fn front(&self, id: &str) -> Result<FrontView, BalancerError> {
        Err(BalancerError::Refused(format!("LoadBalancerNotFound: {id}")))
    }

    /// No deploy changes settings.
    async fn apply(&self, change: &Change) -> Result<(), BalancerError> {
        Err(BalancerError::Refused(format!("AccessDenied: {change}")))
    }
}
