//! The real ends of the ports.

pub mod alb;
pub mod haproxy;
pub mod here;
pub mod ssh;

use crate::fleet::model::{FrontView, GroupName, GroupView, TargetRef, TargetView};
use crate::fleet::provision::Change;
use crate::rollout::port::{Balancer, BalancerError};
use alb::Alb;
use haproxy::Haproxy;

/// Whatever stands in front of a fleet.
#[derive(Debug)]
pub enum AnyBalancer {
    /// An ALB.
    Alb(Box<Alb>),
    /// HAProxy nodes.
    Haproxy(Box<Haproxy>),
    /// Nothing: a fleet of workers.
    None,
}

fn none<T>() -> Result<T, BalancerError> {
    Err(BalancerError::Refused("this fleet has no balancer".into()))
}

impl Balancer for AnyBalancer {
    async fn observe(&self, group: &GroupName) -> Result<GroupView, BalancerError> {
        match self {
            Self::Alb(alb) => alb.observe(group).await,
            Self::Haproxy(haproxy) => haproxy.observe(group).await,
            Self::None => none(),
        }
    }

    async fn health(&self, group: &GroupName) -> Result<Vec<TargetView>, BalancerError> {
        match self {
            Self::Alb(alb) => alb.health(group).await,
            Self::Haproxy(haproxy) => haproxy.health(group).await,
            Self::None => none(),
        }
    }

    async fn register(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        match self {
            Self::Alb(alb) => alb.register(targets).await,
            Self::Haproxy(haproxy) => haproxy.register(targets).await,
            Self::None => none(),
        }
    }

    async fn deregister(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        match self {
            Self::Alb(alb) => alb.deregister(targets).await,
            Self::Haproxy(haproxy) => haproxy.deregister(targets).await,
            Self::None => none(),
        }
    }

    async fn front(&self, id: &str) -> Result<FrontView, BalancerError> {
        match self {
            Self::Alb(alb) => alb.front(id).await,
            Self::Haproxy(haproxy) => haproxy.front(id).await,
            Self::None => none(),
        }
    }

    async fn apply(&self, change: &Change) -> Result<(), BalancerError> {
        match self {
            Self::Alb(alb) => alb.apply(change).await,
            Self::Haproxy(haproxy) => haproxy.apply(change).await,
            Self::None => none(),
        }
    }
}
