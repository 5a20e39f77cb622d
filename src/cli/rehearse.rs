//! `handover rehearse`: the user's own deploy.toml on a pretended fleet, with traffic, through the same engine.

use super::args::{Global, RehearseArgs};
use super::measuring::Measuring;
use super::session::not_begun;
use super::signals::Signals;
use super::{finish, input, report};
use crate::adapters::AnyBalancer;
use crate::adapters::alb::Alb;
use crate::clock::Clock;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Floor, Line, Sink, seconds};
use crate::fleet::model::{BalancerKind, Fleet, Measure, ServerName, ServiceName};
use crate::fleet::plan::Options;
use crate::lab::{Lab, LabOptions, ServiceFault, naive};
use crate::report::Reporter;
use crate::rollout::machine::Ending;
use crate::rollout::{Deployed, Files, NotRun, Order, Outside, Ports, Tell, deploy};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Services, their connections, the balancer's and the prober's.
const OPEN_FILES: u64 = 256;

pub(super) async fn run(global: &Global, args: &RehearseArgs, reporter: &Arc<Reporter>) -> u8 {
    let start = Clock::start();
    if args.report.is_some() {
        reporter.keep();
        if let Ok(loaded) = input::load(global) {
            reporter.keep_besides(report::about(global, &loaded, "handover rehearse").await);
        }
    }
    let Prepared { fleet, options, signals, faults } = match prepare(global, args) {
        Ok(prepared) => prepared,
        Err(problem) => return not_begun(reporter, &start, 0, problem),
    };
    let servers = fleet.servers.len();
    let lab_options = LabOptions { speed: args.speed, seed: args.seed, faults, ..LabOptions::default() };
    let lab = tokio::select! {
        lab = Box::pin(Lab::start(&fleet, lab_options)) => lab.map_err(|error| {
            Problem::new(Exit::Failed, format!("the lab did not come up: {error:#}"))
                .hint(format!("it needs a folder to write to ($TMPDIR), free ports and time: --speed {} may be too fast for this machine", args.speed))
        }),
        () = signals.first() => Err(signals.name(Problem::new(Exit::Interrupted, "interrupted while the lab came up"))),
    };
    let lab = match lab {
        Ok(lab) => lab,
        Err(problem) => return not_begun(reporter, &start, servers, problem),
    };
    reporter.take(Line::new(lab.clock().now(), lab.event()));
    if fleet.balancer.kind == BalancerKind::Haproxy {
        let what = "the rehearsal's balancer behaves like an ALB, whose nodes decide one by one: it waits longer than with \
                    HAProxy";
        reporter.take(Line::new(lab.clock().now(), Event::Warning { server: None, what: what.to_owned() }));
    }
    let exit = if args.serve {
        serve(&lab, &signals, reporter, servers).await
    } else {
        Box::pin(play(&lab, args, options, &signals, reporter)).await
    };
    lab.shutdown().await;
    report::at_the_end(reporter, args.report.as_deref(), "handover rehearse", exit)
}

/// What a rehearsal begins with.
struct Prepared {
    fleet: Fleet,
    options: Options,
    signals: Signals,
    faults: Faults,
}

type Faults = Vec<(Option<ServerName>, ServiceName, ServiceFault)>;

/// The services that are to fail, as `[SERVER:]SERVICE`.
fn faults(fleet: &Fleet, wanted: &[String]) -> Result<Faults, Problem> {
    let mut faults = Faults::new();
    for text in wanted {
        let (server, service) = match text.split_once(':') {
            Some((server, service)) => (Some(ServerName::new(server)), ServiceName::new(service)),
            None => (None, ServiceName::new(text.as_str())),
        };
        let once = fleet.run_once.iter().any(|once| once.name == service.as_str());
        let known = (once || fleet.service(&service).is_some())
            && server.as_ref().is_none_or(|server| fleet.server(server).is_some());
        if !known {
            return Err(Problem::new(Exit::Usage, format!("--fail {text}: deploy.toml has no such server or service")));
        }
        faults.push((server, service, ServiceFault::FailsVerify));
    }
    Ok(faults)
}

fn prepare(global: &Global, args: &RehearseArgs) -> Result<Prepared, Problem> {
    if !(args.speed.is_finite() && args.speed >= 0.1) {
        return Err(Problem::new(Exit::Usage, format!("--speed {}: it must be 0.1 or more", args.speed))
            .hint("leave it out for the default"));
    }
    report::claim(args.report.as_deref())?;
    enough_files()?;
    let mut fleet = input::load(global)?.fleet;
    let servers = input::selection(global, &fleet)?;
    if fleet.measure.is_none() {
        fleet.measure = default_measure(&fleet);
    }
    let options =
        Options { servers, allow_downtime: args.allow.allow_downtime, first: args.allow.first, ..Options::default() };
    let faults = faults(&fleet, &args.fail)?;
    Ok(Prepared { fleet, options, signals: Signals::listen()?, faults })
}

/// A lab keeps many connections open at a time: as many files as may be had are asked for.
pub(super) fn enough_files() -> Result<(), Problem> {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let may = if raised.is_ok() { limit.maximum } else { limit.current };
    match may {
        Some(may) if may < OPEN_FILES => Err(Problem::new(
            Exit::Failed,
            format!("only {may} files may be open at a time, a rehearsal needs {OPEN_FILES}"),
        )
        .hint("raise the limit: `ulimit -n 4096`")),
        _ => Ok(()),
    }
}

/// A rehearsal always has traffic; where deploy.toml names none, what answers while drained is asked.
fn default_measure(fleet: &Fleet) -> Option<Measure> {
    let group = fleet.balancer.groups.first()?;
    let real = fleet.drain.real.clone().unwrap_or_else(|| format!("http://127.0.0.1:{}/", group.port));
    Some(Measure { url: real, rate: 20.0, timeout: Duration::from_secs(10) })
}

/// Keeps the lab up until it is interrupted.
async fn serve(lab: &Lab, signals: &Signals, reporter: &Arc<Reporter>, servers: usize) -> u8 {
    reporter.note("serving; end it with Ctrl-C");
    signals.first().await;
    finish::ended(
        reporter,
        None,
        &json!({"outcome": "served", "servers": servers, "truth": lab.truth(), "speed": lab.clock().speed()}),
    )
}

async fn play(lab: &Lab, args: &RehearseArgs, options: Options, signals: &Signals, reporter: &Arc<Reporter>) -> u8 {
    let clock = lab.clock();
    let servers = lab.fleet().servers.len();
    let target = lab.measure_target();
    let addresses = target.as_ref().and_then(|target| target.addresses.clone());
    let measure =
        target.and_then(|target| lab.fleet().measure.clone().map(|measure| Measure { url: target.url, ..measure }));
    let measuring =
        match Measuring::start(measure.as_ref(), &lab.fleet().balancer.groups, addresses, &clock, Arc::clone(reporter))
        {
            Ok(measuring) => measuring,
            Err(problem) => return not_begun(reporter, &clock, servers, problem),
        };
    measuring.baseline().await;
    let deployed = if args.naive {
        naively(lab, &measuring, signals).await
    } else {
        let outside = Outside { interrupts: signals.count.clone(), lost: measuring.lost() };
        Box::pin(handover(lab, options, &measuring, outside)).await
    };
    let (requests, losses) = measuring.finish().await;
    let mut extra = finish::Extra::measured(requests, &losses);
    extra.more.insert("speed".into(), json!(clock.speed()));
    extra.more.insert("truth".into(), json!(lab.truth()));
    let delay = lab.delay();
    let millis = |wall: Duration| (wall.as_secs_f64() * 1_000_000.0).round() / 1000.0;
    extra.more.insert("delay_ms".into(), json!({"p99": millis(delay.p99), "max": millis(delay.max)}));
    let problem = match (deployed.problem().cloned(), invalid(lab)) {
        (Some(problem), Some(invalid)) if !matches!(problem.exit, Exit::Interrupted | Exit::Usage) => {
            let message = format!("{}; what came out of it: {}", invalid.message, problem.message);
            Some(Problem { message, exit: invalid.exit, hint: invalid.hint, ..problem })
        }
        (Some(problem), _) => Some(signals.name(problem)),
        (None, invalid) => invalid,
    };
    finish::deployed(reporter, &clock, deployed, problem, extra)
}

/// A lab that could not keep its own times proves nothing, whatever came out.
pub(super) fn invalid(lab: &Lab) -> Option<Problem> {
    (!lab.kept_its_times()).then(|| {
        let message = format!(
            "the run is invalid: this machine was too slow for it (p99 of the lab's own delay is {:?})",
            lab.delay().p99
        );
        Problem::new(Exit::Failed, message).hint("lower --speed, or try again when the machine has less to do")
    })
}

pub(super) async fn handover(lab: &Lab, options: Options, events: &dyn Sink, outside: Outside) -> Deployed {
    let balancer = match lab.fleet().balancer.kind {
        BalancerKind::None => AnyBalancer::None,
        // The lab has one kind of balancer; that it is not the user's own was said at the beginning.
        BalancerKind::Alb | BalancerKind::Haproxy => AnyBalancer::Alb(Box::new(Alb::lab(&lab.endpoint()))),
    };
    let ports = Ports { servers: lab.servers(), balancer: Arc::new(balancer), here: Arc::new(NotRun) };
    let order = Order {
        options,
        ..Order::of_files(super::connect::run("handover rehearse"), lab.fleet().clone(), Files::default())
    };
    deploy(&ports, &order, &lab.clock(), Tell { events, book: None }, outside).await
}

async fn naively(lab: &Lab, measuring: &Measuring, signals: &Signals) -> Deployed {
    let clock = lab.clock();
    let servers = lab.fleet().servers.len();
    let began = clock.now();
    measuring.begin();
    let played = tokio::select! {
        played = naive::play(lab) => played.map_err(|error| Problem::new(Exit::Failed, format!("{error:#}"))),
        () = signals.first() => Err(Problem::new(Exit::Interrupted, "interrupted")),
    };
    let ending = played.map(|()| Ending {
        outcome: "deployed",
        problem: None,
        each: BTreeMap::new(),
        took: Vec::new(),
        seconds: seconds(clock.now().since(began)),
        floor: Floor::default(),
    });
    Deployed { release: None, servers, ending, unfinished: None }
}
