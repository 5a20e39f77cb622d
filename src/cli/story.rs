//! `handover rehearse --story`: three deploys of one fleet with the same traffic, and what each of them lost.

use super::args::RehearseArgs;
use super::signals::Signals;
use super::{finish, rehearse};
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Requests, Sink, StepState};
use crate::fleet::model::{ServerName, ServiceName};
use crate::fleet::plan::{Options, Step};
use crate::lab::story::{self, Act};
use crate::lab::{Lab, LabOptions};
use crate::measure::{Prober, ProberOptions};
use crate::report::{Format, Reporter, table};
use crate::rollout::Outside;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

/// Before a deploy begins.
const BASELINE: Duration = Duration::from_secs(5);
/// What is left behind is felt until the balancer has noticed, a minute and a check later.
const AT_LEAST: Duration = Duration::from_secs(75);
const AFTERWARDS: Duration = Duration::from_secs(3);

/// What came of one act.
#[derive(Debug)]
struct Played {
    act: Act,
    outcome: &'static str,
    requests: Requests,
    missing: BTreeMap<ServerName, Vec<ServiceName>>,
    invalid: Option<Problem>,
}

impl Played {
    fn lost(&self) -> u64 {
        self.requests.lost()
    }

    /// The wrong measure: every answer but 200, and of a lab's services no other answer is one that served.
    fn not_200(&self) -> u64 {
        self.requests.total - self.requests.served
    }

    fn json(&self) -> Value {
        json!({"name": self.act.name(), "outcome": self.outcome, "requests": self.requests, "lost": self.lost(),
               "not_200": self.not_200(), "missing": self.missing})
    }

    /// What it left, in words.
    fn left(&self) -> String {
        let one = |(server, services): (&ServerName, &Vec<ServiceName>)| {
            let services: Vec<String> = services.iter().map(ToString::to_string).collect();
            format!("{server} is left without {}", services.join(", "))
        };
        let left: Vec<String> = self.missing.iter().map(one).collect();
        if left.is_empty() { "every service runs".to_owned() } else { left.join("; ") }
    }
}

pub(super) async fn run(args: &RehearseArgs, reporter: &Reporter) -> u8 {
    match Box::pin(all(args, reporter)).await {
        Err(problem) => finish::refused(reporter, &problem),
        Ok(played) => {
            if reporter.format() != Format::Json {
                reporter.result(&text(&played));
            }
            let problem = differs(&played);
            let outcome = if problem.is_some() { "failed" } else { "told" };
            let runs: Vec<Value> = played.iter().map(Played::json).collect();
            finish::ended(reporter, problem.as_ref(), &json!({"outcome": outcome, "speed": args.speed, "runs": runs}))
        }
    }
}

async fn all(args: &RehearseArgs, reporter: &Reporter) -> Result<Vec<Played>, Problem> {
    if !(args.speed.is_finite() && args.speed >= 0.1) {
        return Err(Problem::new(Exit::Usage, format!("--speed {}: it must be 0.1 or more", args.speed))
            .hint("leave it out for the default"));
    }
    rehearse::enough_files()?;
    let signals = Signals::listen()?;
    let mut played = Vec::new();
    for act in Act::ALL {
        reporter.note(&format!("{} ...", act.name()));
        let one = tokio::select! {
            one = Box::pin(play(act, args, reporter)) => one?,
            () = signals.first() => return Err(signals.name(Problem::new(Exit::Interrupted, "interrupted"))),
        };
        reporter.note(&format!("{}: {} lost, {}", act.name(), one.lost(), one.left()));
        played.push(one);
    }
    Ok(played)
}

async fn play(act: Act, args: &RehearseArgs, reporter: &Reporter) -> Result<Played, Problem> {
    let failed = |error: anyhow::Error| {
        Problem::new(Exit::Failed, format!("{}: {error:#}", act.name())).hint("a lower --speed may help")
    };
    let options = LabOptions { speed: act.speed(args.speed), seed: args.seed, ..LabOptions::default() };
    let lab = Box::pin(Lab::start(&act.fleet().map_err(failed)?, options)).await.map_err(failed)?;
    let clock = lab.clock();
    reporter.take(Line::new(clock.now(), lab.event()));
    let probers = probers(&lab).map_err(failed)?;
    clock.sleep(BASELINE).await;
    let baselines: Vec<Requests> = probers.iter().map(Prober::mark).collect();
    let began = clock.now();
    let (drains, seen) = watch::channel(false);
    let deploying = async {
        let outcome = deployed(&lab, act, drains).await;
        clock.sleep_until(began + AT_LEAST).await;
        clock.sleep(AFTERWARDS).await;
        outcome
    };
    let outcome = tokio::select! {
        outcome = Box::pin(deploying) => outcome.map_err(failed)?,
        () = Box::pin(async { story::watch(&lab, act, seen).await; std::future::pending().await }) => "failed",
    };
    let mut requests = Requests::default();
    for (prober, baseline) in probers.into_iter().zip(baselines) {
        add(&mut requests, crate::measure::classify::since(prober.stop().await, baseline));
    }
    let played = Played { act, outcome, requests, missing: story::missing(&lab), invalid: rehearse::invalid(&lab) };
    lab.shutdown().await;
    Ok(played)
}

fn probers(lab: &Lab) -> anyhow::Result<Vec<Prober>> {
    let health_paths: Vec<String> = lab.fleet().balancer.groups.iter().map(|group| group.health.path.clone()).collect();
    let clock: Clock = lab.clock();
    let one = |(target, measure): (crate::measure::Target, crate::fleet::model::Measure)| {
        let options = ProberOptions {
            rate: measure.rate,
            timeout: measure.timeout,
            health_paths: health_paths.clone(),
            ..ProberOptions::default()
        };
        Ok(Prober::start(target, &options, clock)?)
    };
    story::traffic(lab).into_iter().map(one).collect()
}

fn add(to: &mut Requests, more: Requests) {
    to.total += more.total;
    to.served += more.served;
    to.app_errors += more.app_errors;
    to.nowhere += more.nowhere;
    to.cut_short += more.cut_short;
    to.drain_signals += more.drain_signals;
    to.client_gone += more.client_gone;
}

/// Deploys the way of the act; how it calls that itself.
async fn deployed(lab: &Lab, act: Act, drains: watch::Sender<bool>) -> anyhow::Result<&'static str> {
    if act != Act::HandshakeRight {
        story::deploy(lab, act, &drains).await?;
        return Ok("deployed");
    }
    let second = lab.fleet().servers.get(1).map(|server| server.name.clone());
    let outside = Outside { interrupts: watch::channel(0).1, lost: watch::channel(0).1 };
    let deployed = Box::pin(rehearse::handover(lab, Options::default(), &Ears { second, drains }, outside)).await;
    match (deployed.problem(), &deployed.ending) {
        (None, Ok(ending)) => Ok(ending.outcome),
        (Some(problem), _) => Err(anyhow::anyhow!("{problem}")),
        (None, Err(problem)) => Err(anyhow::anyhow!("{problem}")),
    }
}

/// Hears when the second server begins to drain.
struct Ears {
    second: Option<ServerName>,
    drains: watch::Sender<bool>,
}

impl Sink for Ears {
    fn take(&self, line: Line) {
        if let Event::Step { server, step: Step::Flip, state: StepState::Proved, .. } = &line.event
            && Some(server) == self.second.as_ref()
        {
            self.drains.send_replace(true);
        }
    }
}

/// Where it did not go as it is told.
fn differs(played: &[Played]) -> Option<Problem> {
    if let Some(invalid) = played.iter().find_map(|one| one.invalid.clone()) {
        return Some(invalid);
    }
    let [was, mended, right] = played else {
        return Some(Problem::new(Exit::Failed, "not every deploy was played"));
    };
    let mut wrong = Vec::new();
    if !(was.lost() > mended.lost() && mended.lost() > 0) {
        wrong.push(format!(
            "{} and {} lost, where fewer and still some were to be expected",
            was.lost(),
            mended.lost()
        ));
    }
    if right.lost() > 0 {
        wrong.push(format!("{} lost with the handshake right", right.lost()));
    }
    if right.not_200() == 0 {
        wrong.push("the wrong measure saw nothing in the last, where the drain itself answers 503".to_owned());
    }
    if !was.missing.values().flatten().any(|service| service.as_str() == "gateway") {
        wrong.push("no server was left without its gateway in the first".to_owned());
    }
    wrong.extend([mended, right].iter().filter(|one| !one.missing.is_empty()).map(|one| one.left()));
    wrong.extend(
        played.iter().filter(|one| one.outcome != "deployed").map(|one| format!("{}: {}", one.act.name(), one.outcome)),
    );
    if wrong.is_empty() {
        return None;
    }
    let message = format!("it did not go as it is told: {}", wrong.join("; "));
    Some(Problem::new(Exit::Failed, message).hint("try again when the machine has less to do, or with a lower --speed"))
}

fn text(played: &[Played]) -> String {
    let head = ["deploy", "said", "requests", "lost", "not 200", "left behind"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    rows.extend(played.iter().map(|one| {
        let (lost, not_200) = (one.lost().to_string(), one.not_200().to_string());
        vec![one.act.name().into(), one.outcome.into(), one.requests.total.to_string(), lost, not_200, one.left()]
    }));
    format!(
        "{}`lost` reached nowhere, which is what people feel; `not 200` is the wrong measure: it counts a drain's own 503, too\n",
        table(&rows)
    )
}
