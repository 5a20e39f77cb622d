//! Asking the balancer: one question per group for all servers, never two at a time; who only waits asks at most once a second, and
//! a guard, of which there are two a server, waits for nobody's second.

use crate::clock::Stamp;
use crate::fleet::model::{GroupName, TargetView};
use crate::rollout::port::BalancerError;
use std::collections::BTreeMap;
use std::time::Duration;

/// Who waits asks at most once in this time: the API's bucket is shared by everybody in the account.
pub(super) const APART: Duration = Duration::from_secs(1);
/// No two questions are closer (AWS API reference: ten a second go on for long).
const CLOSEST: Duration = Duration::from_millis(250);
/// Who was refused asks more rarely: on the way back somebody may have given the right back meanwhile.
const REFUSED_APART: Duration = Duration::from_secs(5);

/// What is known of every group.
#[derive(Debug)]
pub(crate) struct Polls {
    groups: BTreeMap<GroupName, Poll>,
}

/// What is known of one group.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    pub(super) asked: Option<Stamp>,
    outstanding: bool,
    /// The last answer, and when it was asked for.
    pub(crate) view: Option<(Stamp, Vec<TargetView>)>,
    /// The last answer: asking again will hardly help.
    pub(crate) refused: Option<String>,
    /// Why the last question was not answered.
    pub(crate) unknown: Option<String>,
}

impl Polls {
    pub(crate) fn new<'a>(groups: impl Iterator<Item = &'a GroupName>) -> Self {
        Self { groups: groups.map(|group| (group.clone(), Poll::default())).collect() }
    }

    pub(crate) fn get(&self, group: &GroupName) -> Option<&Poll> {
        self.groups.get(group)
    }

    /// The targets of a group as they were at or after a moment.
    pub(crate) fn since(&self, group: &GroupName, since: Stamp) -> Option<&[TargetView]> {
        let (asked, targets) = self.get(group)?.view.as_ref()?;
        (*asked >= since).then_some(targets.as_slice())
    }

    /// When a group that is wanted at a moment may be asked; `None` while a question is under way.
    pub(crate) fn due(&self, group: &GroupName, wanted: Stamp) -> Option<Stamp> {
        let poll = self.get(group)?;
        if poll.outstanding {
            return None;
        }
        let apart = if poll.refused.is_some() { REFUSED_APART } else { CLOSEST };
        Some(poll.asked.map_or(wanted, |asked| wanted.max(asked + apart)))
    }

    pub(crate) fn ask(&mut self, group: &GroupName, now: Stamp) {
        if let Some(poll) = self.groups.get_mut(group) {
            poll.asked = Some(now);
            poll.outstanding = true;
        }
    }

    pub(crate) fn answer(&mut self, group: &GroupName, now: Stamp, result: Result<Vec<TargetView>, BalancerError>) {
        let Some(poll) = self.groups.get_mut(group) else { return };
        poll.outstanding = false;
        match result {
            Ok(targets) => {
                poll.view = Some((poll.asked.unwrap_or(now), targets));
                (poll.unknown, poll.refused) = (None, None);
            }
            Err(BalancerError::Unknown(why)) => poll.unknown = Some(why),
            Err(BalancerError::Refused(why)) => poll.refused = Some(why),
        }
    }
}
