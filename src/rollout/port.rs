//! The ports: everything that a deploy does to the world goes through one of them.

use crate::fleet::model::{FrontView, GroupName, GroupView, TargetRef, TargetView};
use crate::fleet::provision::Change;
use crate::rollout::hooks::{HookCommand, Running};
use crate::server::wire::{Failure, Reply, Request};
use std::future::Future;
use tokio::sync::mpsc;

/// A server, in operations that mean something.
pub trait Server: Send + Sync + 'static {
    /// Asks for one operation and waits for its answer.
    ///
    /// Dropping the future does not cancel the operation.
    fn call(&self, request: Request) -> impl Future<Output = Result<Reply, ServerError>> + Send;
}

/// Why a server gave no answer, or not the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// It could not be reached at all.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The connection ended in the middle: whether the operation took place is unknown.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// No answer in time: whether the operation took place is unknown.
    #[error("no answer within {0}")]
    Late(String),
    /// The server says why not.
    #[error("{0}")]
    Failed(Failure),
}

/// The machine that a deploy is run from, where the team's own commands are run.
pub trait Here: std::fmt::Debug + Send + Sync {
    /// Runs a command to its end, by force after its limit. What it prints goes to `said` line by line, without secrets.
    fn run(&self, command: HookCommand, said: mpsc::UnboundedSender<String>) -> Running<'_>;
}

/// A balancer, in operations that mean something.
pub trait Balancer: Send + Sync + 'static {
    /// Everything about a group: settings, attributes, targets.
    fn observe(&self, group: &GroupName) -> impl Future<Output = Result<GroupView, BalancerError>> + Send;
    /// The health of every target of a group, now.
    fn health(&self, group: &GroupName) -> impl Future<Output = Result<Vec<TargetView>, BalancerError>> + Send;
    /// Registers targets.
    fn register(&self, targets: &[TargetRef]) -> impl Future<Output = Result<(), BalancerError>> + Send;
    /// Deregisters targets, each with its port.
    fn deregister(&self, targets: &[TargetRef]) -> impl Future<Output = Result<(), BalancerError>> + Send;
    /// The own numbers of a load balancer that a group's view names.
    fn front(&self, id: &str) -> impl Future<Output = Result<FrontView, BalancerError>> + Send;
    /// Makes settings what the file says: all of the change, or nothing. Whether it is so is seen by looking again.
    fn apply(&self, change: &Change) -> impl Future<Output = Result<(), BalancerError>> + Send;
}

/// Why the balancer gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BalancerError {
    /// Throttled, out of order, not to be reached: nothing was learnt, ask again.
    #[error("{0}")]
    Unknown(String),
    /// Asking again will not help: access denied, credentials expired, no such group.
    #[error("{0}")]
    Refused(String),
}

impl BalancerError {
    /// Whether asking again may help.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}
