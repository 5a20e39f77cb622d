//! What deploy, rollback and resume have in common: signals, connections, measuring, the book, and one end.

use super::args::Global;
use super::connect::RealPorts;
use super::measuring::Measuring;
use super::signals::Signals;
use super::{connect, finish, plan, team};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::fleet::model::Fleet;
use crate::report::{Book, Reporter};
use crate::rollout::{
    Deployed, Order, Outside, Over, Source, Tell, Unfinished, deploy, measured, not_begun as not_done, observe,
    pre_connect,
};
use crate::server::wire::Run;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

/// A pipeline that ends a job gives its last signal little time.
const FAREWELL: Duration = Duration::from_millis(500);

/// A run that is connected to its fleet.
pub(super) struct Session {
    pub(super) clock: Clock,
    pub(super) run: Run,
    pub(super) ports: RealPorts,
    signals: Signals,
    reporter: Arc<Reporter>,
    fleet: Fleet,
}

impl Session {
    /// Listens for signals and makes the ports.
    ///
    /// # Errors
    /// When `pre_connect` says no, or a signal comes first.
    pub(super) async fn open(
        global: &Global,
        fleet: &Fleet,
        what: &str,
        reporter: &Arc<Reporter>,
    ) -> Result<Self, Problem> {
        let (clock, signals, run) = (Clock::start(), Signals::listen()?, connect::run(what));
        let here = team::here(global, fleet, signals.count.clone());
        pre_connect(&here, fleet, &run, &clock, &**reporter).await.map_err(|problem| signals.after_all(problem))?;
        let mut ports = tokio::select! {
            ports = connect::fleet(fleet, &run) => ports?,
            () = signals.first() => return Err(signals.name(not_touched())),
        };
        ports.here = here;
        Ok(Self { clock, run, ports, signals, reporter: Arc::clone(reporter), fleet: fleet.clone() })
    }

    /// Waits for something that only looks; a signal ends it.
    pub(super) async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        tokio::select! {
            done = work => done,
            () = self.signals.first() => Err(self.signals.name(not_touched())),
        }
    }

    /// Ends without a run.
    pub(super) async fn refuse(self, problem: Problem) -> u8 {
        let (here, clock) = (&self.ports.here, &self.clock);
        not_done(here, &self.fleet, &self.run, &problem, clock, &*self.reporter).await;
        connect::close(self.ports).await;
        not_begun(&self.reporter, &self.clock, 0, problem)
    }

    /// Carries an order out, measured and written down, and tells how it ended.
    pub(super) async fn carry_out(self, global: &Global, mut order: Order) -> u8 {
        let Self { clock, ports, signals, reporter, .. } = self;
        let fleet = order.fleet.clone();
        let servers = crate::rollout::selected(&fleet, &order.options).len();
        let measuring =
            Measuring::start(fleet.measure.as_ref(), &fleet.balancer.groups, None, &clock, Arc::clone(&reporter));
        let measuring = match measuring {
            Ok(measuring) => measuring,
            Err(problem) => return not_begun(&reporter, &clock, servers, problem),
        };
        let book = Book::open(&fleet.app, &order.run.id);
        let tell = Tell { events: &measuring, book: book.as_ref().ok().map(|book| book as _) };
        let outside = || Outside { interrupts: signals.count.clone(), lost: measuring.lost() };
        let mut deployed = Box::pin(deploy(&ports, &order, &clock, tell, outside())).await;
        let broke_off = deployed.unfinished.is_some();
        if let Some(unfinished) = deployed.unfinished.take()
            && go_on(global, &unfinished, &mut order)
        {
            deployed = Box::pin(deploy(&ports, &order, &clock, tell, outside())).await;
        } else if let (Err(problem), true) = (&deployed.ending, broke_off) {
            not_done(&ports.here, &fleet, &order.run, problem, &clock, &measuring).await;
        }
        if *signals.count.borrow() > 1 {
            // Every agent is told goodbye, so that it frees its locks now; nobody waits for that.
            drop(tokio::time::timeout(FAREWELL, connect::close(ports)).await);
            let problem = deployed.problem().cloned().map(|problem| signals.name(problem));
            return finish::deployed(&reporter, &clock, deployed, problem, finish::Extra::default());
        }
        if let (Err(why), true) = (&book, deployed.ending.is_ok()) {
            reporter.note(&format!("this run is written down on its servers only: {why:#}"));
        }
        let (requests, losses) = measuring.finish().await;
        if let (Some(requests), true) = (requests, deployed.ending.is_ok()) {
            measured(&ports, book.as_ref().ok().map(|book| book as _), &clock, requests).await;
        }
        if order.options.servers.is_some() && matches!(order.source, Source::Files(_) | Source::OnDisk(_)) {
            plan::say_mixed(&reporter, &order.options, &observe(&ports, &fleet, &clock).await);
        }
        connect::close(ports).await;
        let problem = deployed.problem().cloned().map(|problem| signals.name(problem));
        let extra = finish::Extra { first: order.options.first, ..finish::Extra::measured(requests, &losses) };
        let begun = deployed.ending.is_ok();
        let exit = finish::deployed(&reporter, &clock, deployed, problem, extra);
        let kept = reporter.kept();
        if let (Ok(book), true) = (&book, begun && !kept.is_empty()) {
            // The journal has the run too: a page of it only says less.
            drop(book.keep_events(&kept));
        }
        exit
    }
}

fn not_touched() -> Problem {
    Problem::new(Exit::Interrupted, "interrupted before anything was touched")
}

/// Ends a run of which nothing was begun.
pub(super) fn not_begun(reporter: &Reporter, clock: &Clock, servers: usize, problem: Problem) -> u8 {
    let deployed = Deployed::not_begun(servers, problem.clone());
    finish::deployed(reporter, clock, deployed, Some(problem), finish::Extra::default())
}

/// Whether somebody is there to be asked.
fn is_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn answer(question: &str) -> String {
    let mut err = std::io::stderr();
    drop(write!(err, "{question} "));
    drop(err.flush());
    let mut answer = String::new();
    drop(std::io::stdin().read_line(&mut answer));
    answer.trim().to_owned()
}

/// Asks for a word on a terminal; without one nobody is there to say it.
pub(super) fn asks_for(question: &str) -> Option<String> {
    is_terminal().then(|| answer(question))
}

/// Asks what is to become of a deploy that broke off; without a terminal nobody guesses.
fn go_on(global: &Global, unfinished: &Unfinished, order: &mut Order) -> bool {
    if global.yes || !is_terminal() {
        return false;
    }
    let question = format!(
        "an earlier deploy broke off: {}\n[r]esume it, [s]tart over with this release, or [n]either?",
        unfinished.sentence()
    );
    match answer(&question).to_lowercase().as_str() {
        "r" | "resume" => super::resume::goes_on(order, &unfinished.journal),
        "s" | "start" | "start over" => order.over = Over::GoOn,
        _ => return false,
    }
    true
}

/// Asks on a terminal; without one, `--yes` is the answer or the run is refused.
pub(super) fn confirm(global: &Global, question: &str) -> Result<(), Problem> {
    if global.yes {
        return Ok(());
    }
    if is_terminal() && matches!(answer(&format!("{question} [y/N]")).to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Problem::new(Exit::Refused, "not confirmed; nothing was touched").hint("--yes answers every question"))
}
