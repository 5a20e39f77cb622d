//! The rolling deploy as a pure reducer: state, input and the time go in; effects come out.
//!
//! Knows no network, process or clock, so that every race is a list of inputs in a test. What the driver must do is an
//! `Effect`; what became of it comes back as an `Input`.

mod cx;
mod ending;
mod held;
mod hooks;
mod judge;
mod nodes;
mod once;
mod polls;
mod protection;
mod rotation;
mod sleep;
mod steps;
mod track;
mod undo;
mod unlock;

pub use ending::Ending;
pub use protection::Protection;

use crate::clock::Stamp;
use crate::event::{Course, Event};
use crate::fleet::model::{Fleet, GroupName, OnFailure, OnLoss, ReleaseOnDisk, ServerName, TargetRef, TargetView};
use crate::fleet::nodes::Reading;
use crate::fleet::plan::{Aim, Plan, PlannedStep, ServerPlan, StartsAs, Step};
use crate::rollout::hooks::{HookCommand, HookFailed};
use crate::rollout::port::{BalancerError, ServerError};
use crate::server::wire::{Reply, Request};
use cx::{Cx, secs};
use polls::Polls;
use std::collections::BTreeMap;
use std::time::Duration;
use track::{Destination, Track};

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Time went by.
    Tick,
    /// A server answered, or did not.
    Reply {
        /// Which server.
        server: ServerName,
        /// To which call.
        ticket: u64,
        /// What.
        result: Result<Reply, ServerError>,
    },
    /// The balancer told a group's health, or did not.
    Health {
        /// Of which group.
        group: GroupName,
        /// What.
        result: Result<Vec<TargetView>, BalancerError>,
    },
    /// Targets were registered or deregistered, or not.
    Targets {
        /// For which server.
        server: ServerName,
        /// By which order.
        ticket: u64,
        /// What.
        result: Result<(), BalancerError>,
    },
    /// A command of the team's ended.
    Hook {
        /// About which server.
        server: ServerName,
        /// By which order.
        ticket: u64,
        /// How.
        result: Result<(), HookFailed>,
    },
    /// SIGINT or SIGTERM.
    Interrupt,
    /// So many requests were lost so far.
    Lost(u64),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask a server.
    Call {
        /// Which.
        server: ServerName,
        /// Given back with the answer.
        ticket: u64,
        /// What.
        request: Request,
        /// An answer must come within.
        within: Duration,
    },
    /// Ask for a group's health.
    Health {
        /// Which.
        group: GroupName,
    },
    /// Register targets.
    Register {
        /// For which server.
        server: ServerName,
        /// Given back with the answer.
        ticket: u64,
        /// Which.
        targets: Vec<TargetRef>,
    },
    /// Deregister targets.
    Deregister {
        /// For which server.
        server: ServerName,
        /// Given back with the answer.
        ticket: u64,
        /// Which.
        targets: Vec<TargetRef>,
    },
    /// Run a command of the team's.
    Hook {
        /// About which server.
        server: ServerName,
        /// Given back with the answer.
        ticket: u64,
        /// Which.
        command: HookCommand,
    },
    /// Tell it.
    Say(Event),
    /// It is over.
    End,
}

/// Everything a run needs to know before it begins.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The fleet.
    pub fleet: Fleet,
    /// The plan.
    pub plan: Plan,
    /// The new release, with the image ids that each server has for it.
    pub release: BTreeMap<ServerName, ReleaseOnDisk>,
    /// What each server can go back to.
    pub previous: BTreeMap<ServerName, ReleaseOnDisk>,
    /// What the team's own commands are told.
    pub told: BTreeMap<String, String>,
    /// For the simulation only: what is left out, to see that its absence is found.
    pub without: Option<Protection>,
}

impl Setup {
    fn lacks(&self, protection: Protection) -> bool {
        self.without == Some(protection)
    }
}

/// Where the run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What is run once.
    Once,
    /// A batch is worked on.
    Batch,
    /// `rolling.pause`.
    Pause(Stamp),
    /// The whole fleet is verified once more.
    FinalCheck,
    /// Over.
    Ended,
}

/// The run.
#[derive(Debug)]
pub struct Machine {
    setup: Setup,
    once: Option<ServerPlan>,
    batches: Vec<Vec<ServerPlan>>,
    at_batch: usize,
    reverting: bool,
    phase: Phase,
    tracks: Vec<Track>,
    finished: Vec<Track>,
    polls: Polls,
    reading: Reading,
    ticket: u64,
    interrupted: bool,
    lost: u64,
    stopped_by_loss: bool,
    first_lock: Option<Stamp>,
    last_in: Option<Stamp>,
}

impl Machine {
    /// A run that has not begun; the first `Tick` begins it.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let batches = setup.plan.batches.clone();
        let polls = Polls::new(setup.plan.groups.keys());
        let once = setup.plan.once.as_ref().filter(|once| !once.run.is_empty()).map(|once| once.server.clone());
        Self {
            setup,
            once,
            batches,
            at_batch: 0,
            reverting: false,
            phase: Phase::Pause(Stamp::ZERO),
            tracks: Vec::new(),
            finished: Vec::new(),
            polls,
            reading: Reading::default(),
            ticket: 0,
            interrupted: false,
            lost: 0,
            stopped_by_loss: false,
            first_lock: None,
            last_in: None,
        }
    }

    /// Takes one input in and says what is to be done.
    pub fn on(&mut self, now: Stamp, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Tick => {}
            Input::Reply { server, ticket, result } => self.reply(now, &server, ticket, result, &mut out),
            Input::Targets { server, ticket, result } => self.targets_done(now, &server, ticket, result, &mut out),
            Input::Hook { server, ticket, result } => self.with_track(&server, &mut out, |track, cx| {
                if track.takes(ticket) {
                    track.on_hook(cx, now, result);
                }
            }),
            Input::Health { group, result } => self.polls.answer(&group, now, result),
            Input::Interrupt => self.interrupt(now, &mut out),
            Input::Lost(lost) => self.lost = self.lost.max(lost),
        }
        self.advance(now, &mut out);
        self.ask_balancer(now, &mut out);
        out
    }

    /// When the next `Tick` is due, if nothing else happens first.
    #[must_use]
    pub fn wake(&self) -> Option<Stamp> {
        if self.phase == Phase::Ended {
            return None;
        }
        let pause = match self.phase {
            Phase::Pause(until) => Some(until),
            _ => None,
        };
        let polls = self.wanted().filter_map(|(group, at)| self.polls.due(&group, at)).min();
        self.tracks.iter().filter_map(Track::wake).chain(pause).chain(polls).min()
    }

    fn reply(
        &mut self,
        now: Stamp,
        server: &ServerName,
        ticket: u64,
        result: Result<Reply, ServerError>,
        out: &mut Vec<Effect>,
    ) {
        self.with_track(server, out, |track, cx| {
            if track.nodes.takes(ticket) {
                track.nodes_told(cx, now, result);
            } else if track.takes(ticket) {
                track.on_reply(cx, now, result);
            }
        });
    }

    fn targets_done(
        &mut self,
        now: Stamp,
        server: &ServerName,
        ticket: u64,
        result: Result<(), BalancerError>,
        out: &mut Vec<Effect>,
    ) {
        self.with_track(server, out, |track, cx| {
            if track.takes(ticket) {
                track.on_targets(cx, now, result);
            }
        });
    }

    fn with_track(&mut self, server: &ServerName, out: &mut Vec<Effect>, act: impl FnOnce(&mut Track, &mut Cx<'_>)) {
        let batch = self.batch_targets();
        let Some(at) = self.tracks.iter().position(|track| &track.plan.name == server) else { return };
        let mut cx = Cx {
            setup: &self.setup,
            polls: &self.polls,
            batch: &batch,
            reading: &mut self.reading,
            ticket: &mut self.ticket,
            out,
        };
        act(&mut self.tracks[at], &mut cx);
    }

    fn batch_targets(&self) -> Vec<TargetRef> {
        self.tracks.iter().flat_map(|track| track.plan.targets.clone()).collect()
    }

    fn interrupt(&mut self, now: Stamp, out: &mut Vec<Effect>) {
        self.interrupted = true;
        let names: Vec<ServerName> = self.tracks.iter().map(|track| track.plan.name.clone()).collect();
        for name in names {
            self.with_track(&name, out, |track, cx| track.interrupt(cx, now));
        }
    }

    /// Moves every track as far as it goes, and the run with them.
    fn advance(&mut self, now: Stamp, out: &mut Vec<Effect>) {
        loop {
            let names: Vec<ServerName> = self.tracks.iter().map(|track| track.plan.name.clone()).collect();
            for name in names {
                self.with_track(&name, out, |track, cx| track.advance(cx, now));
            }
            self.note_moments();
            if self.tracks.iter().any(|track| !track.is_done()) {
                return;
            }
            match self.phase {
                Phase::Ended => return,
                Phase::Pause(until) if now < until && !self.interrupted && !self.halts_by_loss() => return,
                Phase::Pause(_) => self.next_batch(now, out),
                Phase::Once => {
                    self.finished.append(&mut self.tracks);
                    self.phase = Phase::Pause(now);
                }
                Phase::Batch => self.batch_done(now),
                Phase::FinalCheck => {
                    self.finished.append(&mut self.tracks);
                    self.end(out);
                }
            }
        }
    }

    fn note_moments(&mut self) {
        for track in self.tracks.iter().filter(|track| !track.is_once) {
            self.first_lock = [self.first_lock, track.moments.locked].into_iter().flatten().min();
            self.last_in = [self.last_in, track.moments.in_again].into_iter().flatten().max();
        }
    }

    fn batch_done(&mut self, now: Stamp) {
        self.finished.append(&mut self.tracks);
        self.at_batch += 1;
        let last = self.at_batch >= self.batches.len();
        let pause = if last { Duration::ZERO } else { self.setup.plan.rolling.pause };
        self.phase = Phase::Pause(now + pause);
    }

    fn next_batch(&mut self, now: Stamp, out: &mut Vec<Effect>) {
        let failed = self.finished.iter().any(Track::failed);
        if failed
            && !self.reverting
            && !self.interrupted
            && self.setup.plan.rolling.on_failure == OnFailure::RollbackAll
        {
            self.revert();
        }
        if self.interrupted || (failed && !self.reverting) || self.at_batch >= self.batches.len() {
            self.end_or_check(now, failed, out);
            return;
        }
        if self.halts_by_loss() {
            self.stopped_by_loss = true;
            self.end(out);
            return;
        }
        if let Some(plan) = self.once.take() {
            self.phase = Phase::Once;
            self.tracks = vec![self.track(plan, Course::Forward, now).once()];
            return;
        }
        let (course, batch) =
            (if self.reverting { Course::RollBack } else { Course::Forward }, self.batches[self.at_batch].clone());
        self.phase = Phase::Batch;
        self.tracks = batch.into_iter().map(|plan| self.track(plan, course, now)).collect();
    }

    /// Whether a lost request forbids the next server. Whoever said --first or --allow-downtime said that requests may be
    /// lost.
    fn halts_by_loss(&self) -> bool {
        let halts = self.setup.plan.rolling.on_loss == OnLoss::Halt && !self.setup.plan.unguarded;
        halts && self.lost > 0 && !self.reverting && self.at_batch < self.batches.len()
    }

    fn track(&self, plan: ServerPlan, course: Course, now: Stamp) -> Track {
        let from = if course == Course::RollBack { &self.setup.previous } else { &self.setup.release };
        let destination =
            from.get(&plan.name).cloned().map_or(Destination::Nothing, |r| Destination::Release(Box::new(r)));
        Track::new(plan, course, destination, now)
    }

    fn end_or_check(&mut self, now: Stamp, failed: bool, out: &mut Vec<Effect>) {
        if failed || self.interrupted || self.setup.plan.aim != Aim::Deploy {
            self.end(out);
            return;
        }
        let step = PlannedStep { step: Step::Verify, expected: Duration::ZERO, deadline: Duration::from_secs(30) };
        let plans: Vec<ServerPlan> = self
            .finished
            .iter()
            .filter(|track| !track.is_once)
            .map(|track| track.plan.name.clone())
            .chain(self.setup.plan.unchanged.clone())
            .map(|name| ServerPlan {
                name,
                starts_as: StartsAs::Worker,
                targets: Vec::new(),
                previous: None,
                adopt: false,
                absence: None,
                asleep: BTreeMap::new(),
                steps: vec![step],
            })
            .collect();
        self.phase = Phase::FinalCheck;
        self.tracks = plans.into_iter().map(|plan| self.track(plan, Course::Forward, now).final_check()).collect();
    }

    fn end(&mut self, out: &mut Vec<Effect>) {
        self.phase = Phase::Ended;
        out.push(Effect::End);
    }

    /// Which groups are wanted from when on.
    fn wanted(&self) -> impl Iterator<Item = (GroupName, Stamp)> + '_ {
        let plan = &self.setup.plan;
        self.tracks.iter().flat_map(move |track| track.wants(plan, &self.polls))
    }

    fn ask_balancer(&mut self, now: Stamp, out: &mut Vec<Effect>) {
        let due: BTreeMap<GroupName, Stamp> = self
            .wanted()
            .filter_map(|(group, at)| self.polls.due(&group, at).map(|due| (group, due)))
            .fold(BTreeMap::new(), |mut map: BTreeMap<GroupName, Stamp>, (group, due)| {
                map.entry(group).and_modify(|at| *at = (*at).min(due)).or_insert(due);
                map
            });
        for (group, due) in due {
            if due <= now {
                self.polls.ask(&group, now);
                out.push(Effect::Health { group });
            }
        }
    }

    /// How it ended; call it after `Effect::End`.
    #[must_use]
    pub fn ending(&self) -> Ending {
        ending::ending(self)
    }
}
