//! Measuring beside a deploy: the prober's counts as events, its losses as what `on_loss` looks at.

use crate::clock::{Clock, Stamp};
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Requests, Sink};
use crate::fleet::model::{Group, Measure};
use crate::measure::{Loss, Prober, ProberOptions, Target};
use crate::report::Reporter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The network's own noise is known after so long, before anything is touched.
const BASELINE: Duration = Duration::from_secs(5);
/// What goes on after the last step belongs to the deploy too: a stale connection, a late node.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// A sink that ends the baseline when the deploy begins.
pub(super) struct Measuring {
    prober: Option<Prober>,
    reporter: Arc<Reporter>,
    clock: Clock,
    begun: watch::Sender<Option<Stamp>>,
    ticking: Option<JoinHandle<()>>,
    /// Keeps the channel open where nobody measures.
    nothing_lost: watch::Sender<u64>,
}

impl Measuring {
    /// Begins to measure, where that is wanted; `addresses` instead of the URL's own.
    pub(super) fn start(
        measure: Option<&Measure>,
        groups: &[Group],
        addresses: Option<Vec<SocketAddr>>,
        clock: &Clock,
        reporter: Arc<Reporter>,
    ) -> Result<Self, Problem> {
        let prober = measure.map(|measure| prober(measure, groups, addresses, clock)).transpose()?;
        let ticking = prober.as_ref().map(|prober| tick(prober.counts(), *clock, Arc::clone(&reporter)));
        Ok(Self {
            prober,
            reporter,
            clock: *clock,
            begun: watch::channel(None).0,
            ticking,
            nothing_lost: watch::channel(0).0,
        })
    }

    /// How many requests the deploy lost so far.
    pub(super) fn lost(&self) -> watch::Receiver<u64> {
        self.prober.as_ref().map_or_else(|| self.nothing_lost.subscribe(), Prober::lost)
    }

    /// Waits until the network's own noise is known.
    pub(super) async fn baseline(&self) {
        if self.prober.is_some() {
            self.clock.sleep(BASELINE).await;
        }
    }

    /// Ends measuring: what became of the requests since the deploy began, and those that were lost.
    pub(super) async fn finish(mut self) -> (Option<Requests>, Vec<Loss>) {
        if let Some(ticking) = self.ticking.take() {
            ticking.abort();
        }
        let Some(prober) = self.prober.take() else { return (None, Vec::new()) };
        if self.begun.borrow().is_some() {
            self.clock.sleep(AFTERWARDS).await;
        }
        let (baseline, losses) = (prober.baseline(), prober.losses());
        let begun = *self.begun.borrow();
        let counts = prober.stop().await;
        let losses = losses.into_iter().filter(|loss| begun.is_some_and(|begun| loss.at >= begun)).collect();
        (Some(crate::measure::classify::since(counts, baseline)), losses)
    }
}

fn prober(
    measure: &Measure,
    groups: &[Group],
    addresses: Option<Vec<SocketAddr>>,
    clock: &Clock,
) -> Result<Prober, Problem> {
    let options = ProberOptions {
        rate: measure.rate,
        timeout: measure.timeout,
        health_paths: groups.iter().map(|group| group.health.path.clone()).collect(),
        ..ProberOptions::default()
    };
    let target = Target { url: measure.url.clone(), addresses };
    Prober::start(target, &options, *clock).map_err(|error| {
        Problem::new(Exit::Refused, format!("[measure] {}: {error}", measure.url))
            .hint("nothing was touched; correct measure.url, or leave [measure] out")
    })
}

/// Tells the counts once a second of fleet time.
fn tick(counts: watch::Receiver<Requests>, clock: Clock, reporter: Arc<Reporter>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            clock.sleep(Duration::from_secs(1)).await;
            let counts = *counts.borrow();
            reporter.take(Line::new(clock.now(), Event::Requests { counts }));
        }
    })
}

impl Measuring {
    /// Ends the baseline: what is lost from now on is the deploy's.
    pub(super) fn begin(&self) {
        self.begun.send_replace(Some(self.clock.now()));
        let Some(prober) = &self.prober else { return };
        let before = prober.mark();
        if before.lost() > 0 {
            let what = format!(
                "{} of {} requests were lost before anything was touched: the network's own noise",
                before.lost(),
                before.total
            );
            self.reporter.take(Line::new(self.clock.now(), Event::Warning { server: None, what }));
        }
    }
}

impl Sink for Measuring {
    fn take(&self, line: Line) {
        if matches!(line.event, Event::Began { .. }) {
            self.begin();
        }
        self.reporter.take(line);
    }
}
