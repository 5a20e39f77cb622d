//! What a track may see and do while it moves.

use super::polls::Polls;
use super::{Effect, Setup};
use crate::event::{Event, seconds};
use crate::fleet::model::{ServerName, TargetRef};
use crate::fleet::nodes::Reading;
use crate::fleet::plan::Step;
use crate::server::wire::Request;
use std::time::Duration;

/// What a track may see and do while it moves.
pub(crate) struct Cx<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) polls: &'a Polls,
    /// Every target of the batch: the guard takes all of them away.
    pub(crate) batch: &'a [TargetRef],
    /// How the balancer reads its thresholds, as far as this run has seen.
    pub(super) reading: &'a mut Reading,
    pub(super) ticket: &'a mut u64,
    pub(super) out: &'a mut Vec<Effect>,
}

impl Cx<'_> {
    pub(crate) fn call(&mut self, server: &ServerName, request: Request, within: Duration) -> u64 {
        *self.ticket += 1;
        self.out.push(Effect::Call { server: server.clone(), ticket: *self.ticket, request, within });
        *self.ticket
    }

    pub(crate) fn register(&mut self, server: &ServerName, targets: Vec<TargetRef>, register: bool) -> u64 {
        *self.ticket += 1;
        let (server, ticket) = (server.clone(), *self.ticket);
        self.out.push(if register {
            Effect::Register { server, ticket, targets }
        } else {
            Effect::Deregister { server, ticket, targets }
        });
        ticket
    }

    pub(crate) fn say(&mut self, event: Event) {
        self.out.push(Effect::Say(event));
    }

    pub(crate) fn warn(&mut self, server: &ServerName, what: String) {
        self.say(Event::Warning { server: Some(server.clone()), what });
    }

    pub(crate) fn waiting(&mut self, server: &ServerName, step: Step, what: &str) {
        self.say(Event::Waiting { server: server.clone(), step, what: what.to_owned() });
    }
}

/// A duration as it stands in events.
pub(super) fn secs(duration: Duration) -> f64 {
    seconds(duration)
}
