//! The lab with real processes: it starts, drains, stops, loses requests when it should, and says the truth.
//!
//! The services are this very test binary, asked to run `service_entry` alone.

use handover::clock::Clock;
use handover::config;
use handover::event::Event;
use handover::fleet::model::{ContainerState, Fleet, ServerFacts, ServerName, ServiceName};
use handover::fleet::verify::{Evidence, container_faults, judge};
use handover::lab::{Lab, LabOptions, LabServer, ServiceCommand, ServiceFault, naive, service};
use handover::measure::{Prober, ProberOptions};
use handover::rollout::port::{Server, ServerError};
use handover::server::wire::{Blob, FailureKind, Reply, Request, Run};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Faster, and a machine that is busy with other tests cannot keep the times.
const SPEED: f64 = 10.0;

const DEPLOY: &str = r#"
app = "shop"

[release]
compose = "compose.yaml"
dir     = "/opt/shop"

[balancer]
kind     = "alb"
region   = "eu-central-1"

[[balancer.group]]
name   = "shop-api"
port   = 8080
health = { path = "/health", interval = "5s", timeout = "2s", unhealthy = 2, healthy = 2 }
deregistration_delay = "30s"

[drain]
by   = "file"
file = "/run/shop/drain"
real = "http://127.0.0.1:8080/version"
counter = { http = "http://127.0.0.1:8080/stats", json = "requests.total" }

[[service]]
name   = "api"
group  = "shop-api"
verify = { http = "http://127.0.0.1:8080/version", json = { version = "{release}" } }

[[service]]
name   = "worker"
verify = { exec = ["worker", "--self-check"] }

[[service]]
name   = "beater"
verify = { heartbeat = "/run/shop/beat", age = "10s" }

[[server]]
name   = "web-1"
ssh    = "web-1"
target = "i-0a1b2c3d4e5f60718"
zone   = "a"

[[server]]
name   = "web-2"
ssh    = "web-2"
target = "i-0b2c3d4e5f6071829"
zone   = "b"

[measure]
url  = "https://shop.example/version"
rate = 20
"#;

/// Not a test: what the lab starts as its services. Without the lab's environment it does nothing.
#[test]
fn service_entry() {
    if std::env::var_os(service::ENVIRONMENT).is_some() {
        assert_eq!(service::run(), 0);
    }
}

fn fleet() -> Fleet {
    fleet_of(DEPLOY)
}

fn fleet_of(text: &str) -> Fleet {
    let source = config::Source::new("deploy.toml", text);
    config::from_sources(&source, None).unwrap_or_else(|problems| panic!("{problems:?}")).fleet
}

fn options() -> LabOptions {
    let program = std::env::current_exe().expect("this test");
    let entry = format!("{}::service_entry", module_path!().split_once("::").expect("a module").1);
    let args = [entry.as_str(), "--exact", "--nocapture", "--quiet"].map(Into::into).to_vec();
    LabOptions { speed: SPEED, command: Some(ServiceCommand { program, args }), ..LabOptions::default() }
}

async fn lab() -> Lab {
    Lab::start(&fleet(), options()).await.expect("a lab")
}

fn server(lab: &Lab, name: &str) -> Arc<LabServer> {
    Arc::clone(&lab.servers()[&ServerName::from(name)])
}

async fn ask(server: &LabServer, request: Request) -> Reply {
    server.call(request).await.expect("an answer")
}

async fn facts(server: &LabServer) -> ServerFacts {
    match ask(server, Request::Observe).await {
        Reply::Facts(facts) => *facts,
        other => panic!("{other:?}"),
    }
}

fn prober(lab: &Lab) -> Prober {
    let measure = lab.fleet().measure.clone().expect("a prober");
    let options = ProberOptions { rate: measure.rate, timeout: measure.timeout, ..ProberOptions::default() };
    Prober::start(lab.measure_target().expect("nodes"), &options, lab.clock()).expect("a prober")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lab_starts_whole_and_says_where_everything_is() {
    let lab = lab().await;
    let Event::Lab { control_plane, nodes, services } = lab.event() else { panic!("no lab event") };
    assert!(control_plane.starts_with("http://127.0.0.1:"), "{control_plane}");
    assert_eq!(nodes.len(), 2);
    assert_eq!(services.len(), 6);
    assert!(services.iter().all(|s| s.address.is_some() == (s.service.as_str() == "api")), "{services:?}");
    let facts = facts(&server(&lab, "web-1")).await;
    let current = facts.current.expect("a release");
    assert_eq!(container_faults(&current.manifest, &current.image_ids, &facts.containers), []);
    let pids: Vec<u32> = services.iter().map(|s| s.pid).collect();
    lab.shutdown().await;
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} is still there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_server_fails_health_serves_on_and_leaves_every_node() {
    let lab = lab().await;
    let web = server(&lab, "web-1");
    assert_eq!(ask(&web, Request::Lock { wait: Duration::from_secs(1) }).await, Reply::Locked);
    ask(&web, Request::Flip { drained: true }).await;
    let Reply::Sighting(sighting) = ask(&web, Request::Look).await else { panic!() };
    assert!(sighting.health.values().flatten().all(|status| *status == 503), "{sighting:?}");
    assert!(!sighting.real.is_empty() && sighting.real.iter().all(|status| *status == 200), "{sighting:?}");
    let place = ("i-0a1b2c3d4e5f60718".into(), 8080);
    let group = "shop-api".into();
    assert!(lab.balancer().may_be_picked(&group, &place));
    // (U + 1) x I + T: 17 s.
    lab.clock().sleep(Duration::from_secs(18)).await;
    assert!(!lab.balancer().may_be_picked(&group, &place));
    ask(&web, Request::Flip { drained: false }).await;
    lab.clock().sleep(Duration::from_secs(18)).await;
    assert!(lab.balancer().may_be_picked(&group, &place));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_goes_through_the_same_operations_as_on_a_real_server() {
    let lab = lab().await;
    let web = server(&lab, "web-2");
    let files = vec![Blob::text("compose.yaml", "services: {}"), Blob::text("gateway.toml", "x = 1")];
    let resolve = Request::Resolve { files: files.clone(), compose: "compose.yaml".into(), vars: BTreeMap::new() };
    let Reply::Resolved(resolved) = ask(&web, resolve).await else { panic!() };
    let staged = vec![files[1].clone(), Blob::text("compose.resolved.json", &resolved.definition)];
    let id = resolved.manifest.id.clone();
    ask(&web, Request::Stage { manifest: resolved.manifest.clone(), files: staged }).await;
    let Reply::Pulled(images) = ask(&web, Request::Pull { release: id.clone() }).await else { panic!() };

    let refused = web.call(Request::Stop).await.expect_err("no lock");
    assert!(matches!(refused, ServerError::Failed(failure) if failure.kind == FailureKind::NotLocked));
    ask(&web, Request::Lock { wait: Duration::ZERO }).await;
    let Reply::Stopped(stopped) = ask(&web, Request::Stop).await else { panic!() };
    assert_eq!(stopped.left, []);
    assert_eq!(stopped.stopped.len(), 3);
    assert!(stopped.stopped.iter().all(|c| c.exit_code == 0 && c.took > Duration::from_secs(1)), "{stopped:?}");

    ask(&web, Request::Start { release: id.clone() }).await;
    let verified = verified(&lab, &web, &id).await;
    assert_eq!(container_faults(&resolved.manifest, &images, &verified.containers), []);
    assert_eq!(ask(&web, Request::Switch { release: id.clone() }).await, Reply::Switched(id.clone()));
    let facts = facts(&web).await;
    assert_eq!(facts.current.map(|r| r.manifest.id), Some(id));
    assert!(facts.previous.is_some() && facts.incoming.is_none());
}

async fn verified(
    lab: &Lab,
    web: &LabServer,
    id: &handover::fleet::model::ReleaseId,
) -> handover::server::wire::Verified {
    for _ in 0..200 {
        let Reply::Verified(verified) = ask(web, Request::Verify { release: id.clone() }).await else { panic!() };
        let all = lab.fleet().services.iter().all(|s| judge(&s.verify, &verified.services[&s.name], id).is_ok());
        if all {
            return *verified;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never verified");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_killed_by_hand_stays_dead_and_is_seen() {
    let lab = lab().await;
    let api =
        lab.services().into_iter().find(|s| s.server.as_str() == "web-1" && s.service.as_str() == "api").expect("api");
    std::process::Command::new("kill").args(["-9", &api.pid.to_string()]).status().expect("kill");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let web = server(&lab, "web-1");
    let facts = facts(&web).await;
    let container = facts.containers.iter().find(|c| c.service == ServiceName::from("api")).expect("it is listed");
    assert_eq!((&container.state, container.exit_code), (&ContainerState::Exited, 137));
    let Reply::Verified(verified) =
        ask(&web, Request::Verify { release: facts.current.expect("one").manifest.id }).await
    else {
        panic!()
    };
    assert!(matches!(verified.services[&ServiceName::from("api")], Evidence::Nothing(_)));
    lab.clock().sleep(Duration::from_secs(18)).await;
    assert!(!lab.balancer().all_healthy());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_naive_deploy_loses_requests_and_the_truth_is_what_the_prober_saw() {
    let lab = lab().await;
    let prober = prober(&lab);
    lab.clock().sleep(Duration::from_secs(10)).await;
    assert_eq!(prober.mark().lost(), 0, "{:?}", prober.losses());
    naive::play(&lab).await.expect("it comes back");
    lab.clock().sleep(Duration::from_secs(5)).await;
    let losses = prober.losses();
    let seen = prober.stop().await;
    let truth = lab.truth();
    assert!(seen.nowhere > 0, "{seen:?}");
    assert!(truth.nowhere >= seen.nowhere, "{truth:?} {seen:?} {losses:?}");
    assert!(truth.total >= seen.total, "{truth:?} {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undisturbed_lab_loses_nothing_and_keeps_its_times() {
    let lab = lab().await;
    let prober = prober(&lab);
    lab.clock().sleep(Duration::from_secs(60)).await;
    let seen = prober.stop().await;
    assert_eq!((seen.lost(), seen.app_errors), (0, 0), "{seen:?}");
    assert!(seen.total > 1000, "{seen:?}");
    assert_eq!(lab.truth().nowhere, 0);
    assert!(lab.delay().count > 40, "{:?}", lab.delay());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_runs_exclude_each_other() {
    let lab = lab().await;
    let one = server(&lab, "web-1");
    let two = one.for_run(Run { id: "two".into(), who: "two@host".into(), what: "deploy".into() });
    assert_eq!(ask(&one, Request::LockDeploy).await, Reply::Locked);
    assert!(matches!(ask(&two, Request::LockDeploy).await, Reply::Held(_)));
    ask(&one, Request::UnlockDeploy).await;
    assert_eq!(ask(&two, Request::LockDeploy).await, Reply::Locked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_requests_are_counted_and_checks_are_not() {
    let lab = lab().await;
    let web = server(&lab, "web-1");
    let count = async || match ask(&web, Request::Count).await {
        Reply::Count(Some(count)) => count,
        other => panic!("{other:?}"),
    };
    let before = count().await;
    lab.clock().sleep(Duration::from_secs(10)).await;
    ask(&web, Request::Look).await;
    assert_eq!(count().await, before);
    let prober = prober(&lab);
    lab.clock().sleep(Duration::from_secs(5)).await;
    prober.stop().await;
    assert!(count().await > before + 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_of_workers_without_a_balancer_runs_too() {
    let text = r#"
app = "jobs"
[release]
compose = "compose.yaml"
dir = "/opt/jobs"
[balancer]
kind = "none"
[[service]]
name = "worker"
verify = { exec = ["worker", "--self-check"] }
[[server]]
name = "w-1"
ssh = "w-1"
"#;
    let lab = Lab::start(&fleet_of(text), options()).await.expect("a lab");
    assert_eq!(lab.node_addresses(), []);
    assert!(lab.measure_target().is_none());
    let web = server(&lab, "w-1");
    let current = facts(&web).await.current.expect("one").manifest.id;
    verified(&lab, &web, &current).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_ignores_sigterm_is_killed_and_said_so() {
    let faults = vec![(None, ServiceName::from("worker"), ServiceFault::IgnoresTerm)];
    let lab = Lab::start(&fleet(), LabOptions { faults, ..options() }).await.expect("a lab");
    naive::play(&lab).await.expect("it comes up");
    let web = server(&lab, "web-1");
    ask(&web, Request::Lock { wait: Duration::ZERO }).await;
    let Reply::Stopped(stopped) = ask(&web, Request::Stop).await else { panic!() };
    let worker = stopped.stopped.iter().find(|c| c.service.as_str() == "worker").expect("worker");
    assert_eq!(worker.exit_code, 137);
    assert!(worker.took >= Duration::from_secs(10), "{worker:?}");
}

#[derive(Debug, Default)]
struct Quiet(std::sync::Mutex<Vec<String>>);

impl handover::event::Sink for Quiet {
    fn take(&self, line: handover::event::Line) {
        self.0.lock().expect("lines").push(format!("{:.1} {:?}", line.at, line.event));
    }
}

/// A whole deploy: the engine, the real AWS SDK, real processes, traffic that never pauses.
async fn deployed(
    faults: Vec<(Option<ServerName>, ServiceName, ServiceFault)>,
) -> (Lab, handover::rollout::Deployed, Vec<String>) {
    let lab = Lab::start(&fleet(), LabOptions { speed: 10.0, faults, ..options() }).await.expect("a lab");
    let prober = prober(&lab);
    let ports = handover::rollout::Ports {
        servers: lab.servers(),
        balancer: Arc::new(handover::adapters::alb::Alb::lab(&lab.endpoint())),
        here: Arc::new(handover::rollout::NotRun),
    };
    let run =
        handover::server::wire::Run { id: "1".into(), who: "somebody@test".into(), what: "handover deploy".into() };
    let order = handover::rollout::Order::of_files(run, lab.fleet().clone(), handover::rollout::Files::default());
    let interrupts = tokio::sync::watch::channel(0);
    let outside = handover::rollout::Outside { interrupts: interrupts.1, lost: prober.lost() };
    let sink = Quiet::default();
    let deployed = handover::rollout::deploy(
        &ports,
        &order,
        &lab.clock(),
        handover::rollout::Tell { events: &sink, book: None },
        outside,
    )
    .await;
    prober.stop().await;
    let lines = sink.0.into_inner().expect("lines");
    (lab, deployed, lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deploy_through_the_engine_loses_nothing_by_the_balancer_s_own_log() {
    let (lab, deployed, lines) = deployed(Vec::new()).await;
    let ending = deployed.ending.expect("it began");
    assert_eq!(ending.outcome, "deployed", "{:?} {lines:#?}", ending.problem);
    assert_eq!(lab.truth().nowhere, 0, "{:?}", lab.truth());
    for server in lab.servers().values() {
        let facts = facts(server).await;
        assert_eq!(facts.current.map(|release| release.manifest.id), deployed.release);
        assert!(!facts.drained && facts.lock.is_none() && facts.deploy_lock.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_does_not_work_is_rolled_back_without_a_lost_request() {
    let fault = (Some(ServerName::from("web-2")), ServiceName::from("api"), ServiceFault::WrongRelease);
    let (lab, deployed, lines) = deployed(vec![fault]).await;
    let ending = deployed.ending.expect("it began");
    assert_eq!(ending.outcome, "rolled_back", "{:?} {lines:#?}", ending.problem);
    assert_eq!(lab.truth().nowhere, 0, "{:?}", lab.truth());
    let current = async |name: &str| facts(&server(&lab, name)).await.current.expect("one").manifest.id;
    assert_eq!(Some(current("web-1").await), deployed.release);
    assert_ne!(Some(current("web-2").await), deployed.release);
}

/// The clock is what durations above mean.
#[test]
fn fleet_time_runs_at_the_stated_speed() {
    let clock = Clock::start_at_speed(SPEED);
    assert_eq!(clock.wall(Duration::from_secs(20)), Duration::from_secs(20).div_f64(SPEED));
}
