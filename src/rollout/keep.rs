//! Writes a run down while it goes on: on every server, and where it is run from.
//!
//! It stands between the engine and who shows its events. A server that takes no line stops nothing; that it did not is said.

use super::ask::on_each;
use super::deploy::Tell;
use super::driver::Ports;
use super::machine::Ending;
use super::port::{Balancer, Server};
use super::preflight::Order;
use crate::clock::{Clock, Stamp};
use crate::diag::Exit;
use crate::event::journal::{Entry, Head};
use crate::event::{Event, Line, Requests, Sink, StepState, seconds};
use crate::fleet::model::{ReleaseId, ServerName, show_duration};
use crate::fleet::plan::{Plan, Step};
use crate::server::wire::Request;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A line waits behind what its server is doing, which may be a stop with a long grace period.
const WRITE: Duration = Duration::from_secs(900);
/// At the end so long is waited for lines that are not written yet.
const LAST_LINES: Duration = Duration::from_secs(10);

/// Where a run is written down besides on its servers.
pub trait Book: std::fmt::Debug + Send + Sync {
    /// Takes a line.
    fn write(&self, line: &str);
}

/// A run that is being written down.
pub(super) struct Keeper<'a> {
    tell: Tell<'a>,
    servers: BTreeMap<ServerName, mpsc::UnboundedSender<String>>,
    writing: JoinSet<Option<(ServerName, String)>>,
}

impl<'a> Keeper<'a> {
    /// Begins with who does what to which release.
    pub(super) fn begin<S: Server, B: Balancer>(
        ports: &Ports<S, B>,
        order: &Order,
        (plan, release, label): (&Plan, &ReleaseId, Option<&String>),
        clock: &Clock,
        tell: Tell<'a>,
        began: u64,
    ) -> Self {
        let mut keeper = Self { tell, servers: BTreeMap::new(), writing: JoinSet::new() };
        for (name, port) in &ports.servers {
            let (to, lines) = mpsc::unbounded_channel();
            keeper.servers.insert(name.clone(), to);
            keeper.writing.spawn(write(name.clone(), Arc::clone(port), lines, *clock));
        }
        keeper.to_all(&Entry::Head(Head {
            run: order.run.id.clone(),
            who: order.run.who.clone(),
            what: order.run.what.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            began,
            app: order.fleet.app.clone(),
            release: release.clone(),
            label: label.cloned(),
            servers: plan.servers().map(|server| server.name.clone()).collect(),
            only: order.options.servers.clone(),
            resumes: order.resumes.clone(),
            once: !order.options.skip_once && !order.fleet.run_once.is_empty(),
            purpose: plan.aim.purpose(),
        }));
        keeper
    }

    fn to_all(&self, entry: &Entry) {
        let line = entry.line();
        if let Some(book) = self.tell.book {
            book.write(&line);
        }
        for to in self.servers.values() {
            // Whoever writes no more has said why.
            drop(to.send(line.clone()));
        }
    }

    fn to_one(&self, server: &ServerName, entry: &Entry) {
        let line = entry.line();
        if let Some(book) = self.tell.book {
            book.write(&line);
        }
        if let Some(to) = self.servers.get(server) {
            // Whoever writes no more has said why.
            drop(to.send(line));
        }
    }

    /// Writes the end down and waits until the lines are where they belong.
    pub(super) async fn end(self, ending: &Ending, clock: &Clock) {
        self.to_all(&Entry::End {
            at: seconds(clock.now().since_start()),
            outcome: ending.outcome.to_owned(),
            exit: ending.problem.as_ref().map_or(Exit::Done, |problem| problem.exit).into(),
            message: ending.problem.as_ref().map(|problem| problem.message.clone()),
            seconds: ending.seconds,
        });
        let Self { tell, servers, mut writing } = self;
        drop(servers);
        let until = clock.now() + LAST_LINES;
        loop {
            tokio::select! {
                biased;
                done = writing.join_next() => match done {
                    None => return,
                    Some(Ok(Some((server, why)))) => warn(tell.events, clock.now(), Some(server), &why),
                    Some(_) => {}
                },
                () = clock.sleep_until(until) => {
                    let why = format!("some lines were not written within {}", show_duration(LAST_LINES));
                    return warn(tell.events, clock.now(), None, &why);
                }
            }
        }
    }
}

fn warn(sink: &dyn Sink, now: Stamp, server: Option<ServerName>, why: &str) {
    let what = format!("the journal of this run is not whole: {why}");
    sink.take(Line::new(now, Event::Warning { server, what }));
}

/// Writes lines as they come, several at once where they have piled up; returns why it could not.
async fn write<S: Server>(
    name: ServerName,
    port: Arc<S>,
    mut lines: mpsc::UnboundedReceiver<String>,
    clock: Clock,
) -> Option<(ServerName, String)> {
    let mut failed = None;
    let mut some = Vec::new();
    while lines.recv_many(&mut some, 100).await > 0 {
        let request = Request::Journal { lines: std::mem::take(&mut some) };
        match tokio::time::timeout(clock.wall(WRITE), port.call(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => failed = Some((name.clone(), error.to_string())),
            Err(_) => failed = Some((name.clone(), format!("no answer within {}", show_duration(WRITE)))),
        }
    }
    failed
}

impl Sink for Keeper<'_> {
    fn take(&self, line: Line) {
        match &line.event {
            Event::Step { server, step, course, state, detail, .. } if worth_a_line(*step, *state) => {
                let entry = Entry::Step {
                    at: line.at,
                    server: server.clone(),
                    step: *step,
                    course: *course,
                    state: *state,
                    detail: detail.clone(),
                };
                self.to_one(server, &entry);
            }
            Event::ServerDone { server, outcome, what, .. } => {
                let entry =
                    Entry::Server { at: line.at, server: server.clone(), outcome: *outcome, what: what.clone() };
                self.to_one(server, &entry);
            }
            _ => {}
        }
        self.tell.events.take(line);
    }
}

/// That a look began is not worth a write to the disk of a server.
fn worth_a_line(step: Step, state: StepState) -> bool {
    state != StepState::Began
        || matches!(
            step,
            Step::RunOnce
                | Step::Flip
                | Step::Stop
                | Step::Start
                | Step::Switch
                | Step::Sleep
                | Step::Back
                | Step::HandOver
        )
}

/// Writes down what became of the requests, which is known only after the run.
pub async fn measured<S: Server, B: Balancer>(
    ports: &Ports<S, B>,
    book: Option<&dyn Book>,
    clock: &Clock,
    requests: Requests,
) {
    let line = Entry::Measured { requests }.line();
    if let Some(book) = book {
        book.write(&line);
    }
    let names = ports.servers.keys().cloned().collect();
    // It stands in the summary too, and where this was run from.
    drop(on_each(ports, names, clock, LAST_LINES, |_| Request::Journal { lines: vec![line.clone()] }).await);
}
