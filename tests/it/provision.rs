//! `handover provision`: against balancers that refuse, lie and hang in virtual time, and as a user runs it against the
//! simulator, which records what it was asked.

use crate::world::fleet;
use handover::clock::Clock;
use handover::diag::Exit;
use handover::fleet::model::*;
use handover::fleet::provision::{At, Change, Command, Order, Setting, Value, needs, policy};
use handover::lab::balancer::model::GroupSpec;
use handover::lab::balancer::{Fault, FaultKind, Standalone, StandaloneSpec, standalone};
use handover::rollout::Ports;
use handover::rollout::port::{Balancer, BalancerError, Server, ServerError};
use handover::rollout::provision::{Applied, End, Seen, apply, fronts, look, reserve};
use handover::server::wire::{Reply, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

const EXAMPLE: &str = include_str!("../../deploy.toml");
const LB: &str = "arn:aws:elasticloadbalancing:eu-central-1:1:loadbalancer/app/front/1";

/// What a balancer does with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// What it is told.
    Obey,
    /// Nothing, and says so.
    Refuse,
    /// Nothing, and nobody knows.
    Throttle,
    /// What it is told, but its answer is lost.
    Whisper,
    /// Nothing, and says that it did.
    Lie,
    /// What it is told, as everybody sees a while later.
    Dawdle,
}

struct Inner {
    groups: Vec<Group>,
    idle_timeout: Duration,
    deeds: Vec<Deed>,
    orders: Vec<(At, Order)>,
    late: Option<(Change, tokio::time::Instant)>,
    blind: bool,
}

/// A balancer whose every order is written down beforehand.
#[derive(Clone)]
struct Pretended(Arc<Mutex<Inner>>);

impl Pretended {
    fn new(groups: Vec<Group>, deeds: &[Deed]) -> Self {
        let deeds = deeds.to_vec();
        let idle_timeout = Duration::from_secs(60);
        Self(Arc::new(Mutex::new(Inner { groups, idle_timeout, deeds, orders: Vec::new(), late: None, blind: false })))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.lock().expect("not poisoned"))
    }
}

impl Inner {
    fn carry_out(&mut self, change: &Change) {
        for row in &change.rows {
            let group = match &change.at {
                At::Group(name) => self.groups.iter_mut().find(|group| group.name == *name).expect("a group"),
                At::Front(_) => {
                    let Value::Time(time) = row.file else { panic!("{row:?}") };
                    self.idle_timeout = time;
                    continue;
                }
            };
            match (row.setting, row.file.clone()) {
                (Setting::Interval, Value::Time(time)) => group.health.settings.interval = time,
                (Setting::DeregistrationDelay, Value::Time(time)) => group.deregistration_delay = time,
                other => panic!("{other:?}"),
            }
        }
    }

    fn settle(&mut self) {
        if let Some((change, at)) = self.late.take() {
            if tokio::time::Instant::now() >= at {
                self.carry_out(&change);
            } else {
                self.late = Some((change, at));
            }
        }
    }
}

impl Balancer for Pretended {
    async fn observe(&self, name: &GroupName) -> Result<GroupView, BalancerError> {
        self.with(|inner| {
            inner.settle();
            if inner.blind && !inner.orders.is_empty() {
                return Err(BalancerError::Refused("AccessDenied: DescribeTargetGroups".into()));
            }
            let group = inner.groups.iter().find(|group| group.name == *name).expect("a group");
            Ok(GroupView {
                id: name.to_string(),
                path: group.health.path.clone(),
                health_port: group.health.port,
                settings: group.health.settings,
                attributes: group.attributes(),
                beside: Beside::default(),
                fronts: vec![LB.to_owned()],
                by_address: false,
                word: Word::Merged,
                targets: Vec::new(),
                notes: Vec::new(),
            })
        })
    }

    async fn health(&self, _: &GroupName) -> Result<Vec<TargetView>, BalancerError> {
        Ok(Vec::new())
    }

    async fn register(&self, _: &[TargetRef]) -> Result<(), BalancerError> {
        panic!("nothing is registered")
    }

    async fn deregister(&self, _: &[TargetRef]) -> Result<(), BalancerError> {
        panic!("nothing is deregistered")
    }

    async fn front(&self, id: &str) -> Result<FrontView, BalancerError> {
        let idle_timeout = self.with(|inner| {
            inner.settle();
            inner.idle_timeout
        });
        Ok(FrontView { id: id.to_owned(), idle_timeout })
    }

    async fn apply(&self, change: &Change) -> Result<(), BalancerError> {
        self.with(|inner| {
            inner.orders.push((change.at.clone(), change.order));
            let deed = if inner.deeds.is_empty() { Deed::Obey } else { inner.deeds.remove(0) };
            match deed {
                Deed::Obey => inner.carry_out(change),
                Deed::Refuse => return Err(BalancerError::Refused("AccessDenied: no".into())),
                Deed::Throttle => return Err(BalancerError::Unknown("Throttling: Rate exceeded".into())),
                Deed::Whisper => {
                    inner.carry_out(change);
                    return Err(BalancerError::Unknown("no answer in time".into()));
                }
                Deed::Lie => {}
                Deed::Dawdle => {
                    inner.late = Some((change.clone(), tokio::time::Instant::now() + Duration::from_secs(20)));
                }
            }
            Ok(())
        })
    }
}

/// The example's fleet with a second group, and a balancer on which one number of each order differs: three orders, the second
/// group's first.
fn apart(deeds: &[Deed]) -> (Fleet, Pretended) {
    let mut fleet = fleet(EXAMPLE);
    let mut second = fleet.balancer.groups[0].clone();
    second.name = GroupName::new("second");
    fleet.balancer.groups.push(second);
    fleet.balancer.idle_timeout = Duration::from_secs(120);
    let mut live = fleet.balancer.groups.clone();
    live[0].health.settings.interval = Duration::from_secs(30);
    live[1].deregistration_delay = Duration::from_secs(300);
    let balancer = Pretended::new(live, deeds);
    (fleet, balancer)
}

async fn seen(fleet: &Fleet, balancer: &Pretended, clock: &Clock) -> Seen {
    look(balancer, fleet, &|_| true, clock).await.expect("learnt")
}

async fn run(fleet: &Fleet, balancer: &Pretended) -> Applied {
    let clock = Clock::start();
    let seen = seen(fleet, balancer, &clock).await;
    apply(balancer, fleet, &seen.rows, &clock, &watch::channel(0).1, |_| {}).await
}

#[tokio::test(start_paused = true)]
async fn a_second_run_gives_no_order() {
    let (fleet, balancer) = apart(&[]);
    let first = run(&fleet, &balancer).await;
    assert_eq!((first.done.len(), &first.failed, first.left.len()), (3, &None, 0));
    let second = run(&fleet, &balancer).await;
    assert_eq!(second, Applied::default());
    assert_eq!(balancer.with(|inner| inner.orders.len()), 3);
}

/// Whatever goes wrong with whichever order: what is said is what is so, and the next run finishes.
#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_with_an_order_the_next_run_finishes() {
    for at in 0..3 {
        for deed in [Deed::Refuse, Deed::Throttle, Deed::Whisper, Deed::Lie, Deed::Dawdle] {
            let mut deeds = vec![Deed::Obey; at];
            // One throttled answer is asked again; refusals and lies stay.
            deeds.extend(vec![deed; if deed == Deed::Refuse { 1 } else { usize::from(deed != Deed::Lie) }]);
            if deed == Deed::Lie {
                deeds.push(Deed::Lie);
            }
            let (fleet, balancer) = apart(&deeds);
            let first = run(&fleet, &balancer).await;
            let ended = first.failed.as_ref().map(|(_, end)| end.clone());
            match deed {
                Deed::Refuse => assert!(matches!(ended, Some(End::Refused(_))), "{deed:?} {at}: {ended:?}"),
                Deed::Lie => assert!(
                    matches!(&ended, Some(End::Unsure(why)) if why.contains("still says")),
                    "{deed:?} {at}: {ended:?}"
                ),
                _ => assert_eq!(ended, None, "{deed:?} {at}"),
            }
            let whole = ended.is_none();
            assert_eq!(first.done.len(), if whole { 3 } else { at }, "{deed:?} {at}");
            assert_eq!(first.left.len(), if whole { 0 } else { 2 - at }, "{deed:?} {at}");
            let second = run(&fleet, &balancer).await;
            assert_eq!((second.done.len(), second.failed), (if whole { 0 } else { 3 - at }, None), "{deed:?} {at}");
            assert_eq!(run(&fleet, &balancer).await, Applied::default(), "{deed:?} {at}: the third has nothing to do");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_throttles_for_good_is_given_up_and_said_to_be_unknown() {
    let (fleet, balancer) = apart(&[Deed::Throttle; 100]);
    let began = tokio::time::Instant::now();
    let applied = run(&fleet, &balancer).await;
    assert!(began.elapsed() <= Duration::from_secs(70), "{:?}", began.elapsed());
    let Some((_, End::Unsure(why))) = &applied.failed else { panic!("{applied:?}") };
    assert!(why.contains("Rate exceeded") && why.contains("30s"), "{why}");
    assert_eq!((applied.done.len(), applied.left.len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_seen_afterwards_is_not_called_done() {
    let (fleet, balancer) = apart(&[]);
    let clock = Clock::start();
    let rows = seen(&fleet, &balancer, &clock).await.rows;
    balancer.with(|inner| inner.blind = true);
    let applied = apply(&balancer, &fleet, &rows, &clock, &watch::channel(0).1, |_| panic!("not seen")).await;
    assert!(matches!(&applied.failed, Some((_, End::Unsure(why))) if why.contains("AccessDenied")), "{applied:?}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_stops_before_the_next_order() {
    let (fleet, balancer) = apart(&[]);
    let clock = Clock::start();
    let rows = seen(&fleet, &balancer, &clock).await.rows;
    let (sender, interrupts) = watch::channel(0);
    let applied = apply(&balancer, &fleet, &rows, &clock, &interrupts, |_| sender.send_modify(|n| *n += 1)).await;
    assert_eq!((applied.done.len(), applied.left.len(), applied.interrupted), (1, 2, true));
}

/// A server whose deploy lock is somebody's, or that does not answer.
struct Door(Result<Option<&'static str>, ()>);

impl Server for Door {
    async fn call(&self, request: Request) -> Result<Reply, ServerError> {
        let holder = |what: &str| Holder { who: "ada@ci".into(), what: what.into(), since: 1, run: None };
        let state = self.0.map_err(|()| ServerError::Unreachable("no route".into()))?;
        Ok(match request {
            Request::Observe => Reply::Facts(Box::new(ServerFacts {
                compose: "2.40.3".into(),
                engine: "27".into(),
                missing: Vec::new(),
                disk_free: 1 << 40,
                current: None,
                previous: None,
                incoming: None,
                containers: Vec::new(),
                drained: false,
                by_hand: false,
                absence: None,
                lock: None,
                deploy_lock: None,
                freeze: state.filter(|word| *word == "freeze").map(holder),
                watchdog: None,
                installed: None,
                asleep: BTreeMap::new(),
                once: Vec::new(),
                drift: Vec::new(),
                nodes: None,
                held: None,
            })),
            Request::LockDeploy if state == Some("deploy") => Reply::Held(holder("handover deploy")),
            _ => Reply::Locked,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn one_lock_is_enough_and_a_deploy_that_is_known_is_not_disturbed() {
    let clock = Clock::start();
    let ports = |doors: [Result<Option<&'static str>, ()>; 3]| Ports {
        servers: doors
            .into_iter()
            .enumerate()
            .map(|(at, door)| (ServerName::new(format!("web-{}", at + 1)), Arc::new(Door(door))))
            .collect::<BTreeMap<_, _>>(),
        balancer: Arc::new(Pretended::new(Vec::new(), &[])),
        here: Arc::new(handover::rollout::NotRun),
    };
    let all = reserve(&ports([Ok(None); 3]), &clock).await.expect("ours");
    assert_eq!((all.held.len(), all.unasked.len()), (3, 0));
    let one = reserve(&ports([Err(()), Ok(None), Err(())]), &clock).await.expect("ours");
    assert_eq!((one.held.len(), one.unasked.len()), (1, 2));
    let none = reserve(&ports([Err(()); 3]), &clock).await.expect("nobody knows");
    assert_eq!((none.held.len(), none.unasked.len()), (0, 3));
    for word in ["deploy", "freeze"] {
        let problem = reserve(&ports([Err(()), Ok(None), Ok(Some(word))]), &clock).await.expect_err(word);
        assert_eq!(problem.exit, Exit::Held, "{word}: {problem}");
    }
}

// As a user runs it.

async fn simulator(interval: u64, targets: bool) -> Standalone {
    let targets = if targets {
        serde_json::json!([{"id": "i-0a1b2c3d4e5f60718", "address": "127.0.0.1:9", "zone": "a"}])
    } else {
        serde_json::json!([])
    };
    let spec = serde_json::json!({"strict_ranges": true, "groups": [{"name": "mythex-api", "port": 8080, "path": "/old",
        "interval": interval, "timeout": 4, "unhealthy": 3, "healthy": 5, "deregistration_delay": 300, "targets": targets}]});
    let spec: StandaloneSpec = serde_json::from_value(spec).expect("a spec");
    standalone(spec).await.expect("a balancer")
}

/// A folder with the example for this balancer; nothing of its servers can be reached.
fn folder(lab: &Standalone, more: &str) -> tempfile::TempDir {
    let lines = format!("endpoint = {:?}\nidle_timeout = \"90s\"\n{more}\n[[balancer.group]]", lab.balancer.endpoint());
    let mut text = EXAMPLE.replace("[[balancer.group]]", &lines).replace("\"75s\"", "\"95s\"");
    for n in 1..=3 {
        text = text.replace(&format!("\"deploy@web-{n}\""), &format!("\"deploy@127.0.0.{n}\""));
    }
    let dir = tempfile::tempdir().expect("a folder");
    let compose = include_str!("../../compose.yaml");
    for (name, text) in [("deploy.toml", text.as_str()), ("ssh", "Host *\n  Port 9\n"), ("compose.yaml", compose)] {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

async fn handover(dir: &Path, args: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_handover"));
    command
        .args(args)
        .current_dir(dir)
        .envs([
            ("HANDOVER_SSH_CONFIG", "ssh"),
            ("AWS_ACCESS_KEY_ID", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("NO_PROXY", "*"),
        ])
        .stdin(Stdio::null());
    command.output().await.expect("it runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn summary(output: &Output) -> serde_json::Value {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(out.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

/// Somebody at a console.
fn says(lab: &Standalone, change: impl FnOnce(&mut GroupSpec)) {
    lab.balancer.with_model(|model| change(model.group_mut(&GroupName::new("mythex-api")).expect("a group")));
}

fn asked(lab: &Standalone) -> BTreeSet<String> {
    lab.balancer.asked()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_difference_is_shown_made_so_and_is_gone() {
    let lab = simulator(30, false).await;
    let dir = folder(&lab, "");
    let shown = handover(dir.path(), &["provision"]).await;
    let said = text(&shown);
    assert_eq!(shown.status.code(), Some(0), "{said}");
    for word in [
        "health.interval",
        "5s",
        "30s",
        "health.path",
        "/old",
        "deregistration_delay",
        "load balancer handover-lab",
        "1m30s",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(asked(&lab).iter().all(|action| action.starts_with("Describe")), "only looked: {:?}", asked(&lab));
    let refused = handover(dir.path(), &["provision", "--apply"]).await;
    assert_eq!(refused.status.code(), Some(4), "no terminal, no --yes: {}", text(&refused));
    assert!(asked(&lab).iter().all(|action| action.starts_with("Describe")), "only looked: {:?}", asked(&lab));
    let done = handover(dir.path(), &["provision", "--apply", "--yes", "--output", "json"]).await;
    let json = summary(&done);
    assert_eq!((&json["exit"], &json["outcome"]), (&0.into(), &"applied".into()), "{}", text(&done));
    assert_eq!(json["changed"].as_array().map(Vec::len), Some(7), "{json}");
    assert!(text(&done).contains("no server could be asked"), "said, not hidden: {}", text(&done));
    lab.balancer.forget_asked();
    let again = summary(&handover(dir.path(), &["provision", "--apply", "--yes", "--output", "json"]).await);
    assert_eq!((&again["outcome"], &again["differences"]), (&"unchanged".into(), &serde_json::json!([])), "{again}");
    assert!(asked(&lab).iter().all(|action| action.starts_with("Describe")), "{:?}", asked(&lab));
    // And the live check agrees.
    let live = summary(&handover(dir.path(), &["check", "--live", "--output", "json"]).await);
    assert_eq!(live["live"]["differences"], serde_json::json!([]), "{live}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_file_does_not_name_is_left_alone_and_said() {
    let lab = simulator(30, false).await;
    let dir = folder(&lab, "");
    let file = dir.path().join("deploy.toml");
    let text = std::fs::read_to_string(&file).expect("read");
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("deregistration_delay")).collect();
    // The default is AWS's own, 300 s; the balancer says 120 s.
    std::fs::write(&file, without.join("\n").replace("idle_timeout = \"90s\"\n", "")).expect("written");
    says(&lab, |group| group.attributes.deregistration_delay = Duration::from_secs(120));
    let done = summary(&handover(dir.path(), &["provision", "--apply", "--yes", "--output", "json"]).await);
    assert_eq!(done["outcome"], "applied", "{done}");
    let left = done["differences"].as_array().cloned().unwrap_or_default();
    assert_eq!(left.len(), 1, "{done}");
    assert_eq!((&left[0]["balancer"], &left[0]["named"]), (&"2m".into(), &false.into()), "{done}");
}

/// The second of three orders is refused: the first stays, the third is not begun, and the next run does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_order_in_the_middle_is_finished_by_the_next_run() {
    let lab = simulator(30, false).await;
    let dir = folder(&lab, "");
    let action = Some("ModifyTargetGroupAttributes".to_owned());
    lab.balancer.faults().add(Fault { kind: FaultKind::AccessDenied, action, times: None });
    let refused = handover(dir.path(), &["provision", "--apply", "--yes", "--output", "json"]).await;
    let json = summary(&refused);
    assert_eq!((&json["exit"], &json["outcome"]), (&6.into(), &"partly_applied".into()), "{json}");
    let message = json["error"]["message"].as_str().unwrap_or_default().to_owned();
    let lines: Vec<&str> = message.lines().map(|line| line.split(':').next().unwrap_or_default()).collect();
    assert_eq!(lines, ["done", "refused", "not begun"], "{message}");
    assert!(message.contains("AccessDenied") && message.contains("idle_timeout 1m -> 1m30s"), "{message}");
    lab.balancer.faults().clear();
    let next = summary(&handover(dir.path(), &["provision", "--apply", "--yes", "--output", "json"]).await);
    assert_eq!(next["outcome"], "applied", "{next}");
    assert_eq!(next["changed"].as_array().map(Vec::len), Some(2), "{next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_aws_would_refuse_is_told_before_anything_is_touched() {
    let lab = simulator(30, false).await;
    let dir = folder(&lab, "");
    let file = dir.path().join("deploy.toml");
    let more = "deregistration_delay = \"30s\"\ncross_zone = false\n";
    let text_ = std::fs::read_to_string(&file).expect("read").replace("deregistration_delay = \"30s\"\n", more);
    std::fs::write(&file, text_).expect("written");
    says(&lab, |group| drop(group.others.insert("stickiness.enabled".into(), "true".into())));
    let refused = handover(dir.path(), &["provision", "--apply", "--yes"]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    assert!(text(&refused).contains("stickiness.enabled"), "{}", text(&refused));
    assert!(asked(&lab).iter().all(|action| action.starts_with("Describe")), "{:?}", asked(&lab));
    // The simulator refuses it too, so that the rule is not only ours.
    let balancer = handover::adapters::alb::Alb::lab(&lab.balancer.endpoint());
    let mut row = {
        let clock = Clock::start();
        let fleet = fleet(EXAMPLE);
        look(&balancer, &fleet, &|_| true, &clock).await.expect("learnt").rows
    };
    row.retain(|row| row.setting == Setting::CrossZone);
    row[0].file = Value::Flag(false);
    let change = Change { at: row[0].at.clone(), order: Order::Attributes, rows: row };
    assert!(matches!(balancer.apply(&change).await, Err(BalancerError::Refused(_))));
}

/// Numbers of deploy.toml that do not fit together are not spread.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_the_check_calls_wrong_are_not_applied() {
    let lab = simulator(30, false).await;
    let dir = folder(&lab, "");
    let file = dir.path().join("deploy.toml");
    let wrong = std::fs::read_to_string(&file).expect("read").replace("serve  = \"15s\"", "serve  = \"5s\"");
    std::fs::write(&file, wrong).expect("written");
    let refused = handover(dir.path(), &["provision", "--apply", "--yes"]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    assert!(text(&refused).contains("serve-covers-out"), "{}", text(&refused));
    assert!(asked(&lab).iter().all(|action| action.starts_with("Describe")), "{:?}", asked(&lab));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_is_what_the_balancer_says() {
    let lab = simulator(30, false).await;
    let dir = folder(&lab, "");
    let exported = handover(dir.path(), &["provision", "--export"]).await;
    assert_eq!(exported.status.code(), Some(0), "{}", text(&exported));
    let lines = String::from_utf8_lossy(&exported.stdout).into_owned();
    let file = dir.path().join("deploy.toml");
    let before = std::fs::read_to_string(&file).expect("read");
    let (head, rest) = before.split_once("[balancer]").expect("a balancer");
    let (_, tail) = rest.split_once("\n[drain]").expect("a drain");
    std::fs::write(&file, format!("{head}{lines}\n[drain]{tail}")).expect("written");
    let json = summary(&handover(dir.path(), &["provision", "--output", "json"]).await);
    assert_eq!(
        (&json["outcome"], &json["differences"]),
        (&"unchanged".into(), &serde_json::json!([])),
        "{lines}\n{json}"
    );
}

/// The table against what the commands really ask: no more and no less.
#[tokio::test(flavor = "multi_thread")]
async fn each_command_asks_for_exactly_what_its_policy_allows() {
    let lab = simulator(30, true).await;
    let dir = folder(&lab, "");
    let fleet = fleet(&std::fs::read_to_string(dir.path().join("deploy.toml")).expect("read"));
    let runs: [(Command, &[&str]); 4] = [
        (Command::Plan, &["plan", "--set", "TAG=v1"]),
        (Command::CheckLive, &["check", "--live"]),
        (Command::Provision, &["provision"]),
        (Command::ProvisionApply, &["provision", "--apply", "--yes"]),
    ];
    std::fs::write(dir.path().join(".env.production"), "A=1\n").expect("written");
    std::fs::write(dir.path().join("gateway.toml"), "").expect("written");
    for (command, args) in runs {
        lab.balancer.forget_asked();
        drop(handover(dir.path(), args).await);
        let needs = needs(&fleet, command, true);
        let table: BTreeSet<String> =
            [needs.reads, needs.groups, needs.fronts].concat().into_iter().map(ToOwned::to_owned).collect();
        assert_eq!(asked(&lab), table, "{}", command.word());
    }
    // A deploy begins as a plan does, and with `deregister` it also registers and deregisters.
    let mut letting_go = fleet.clone();
    letting_go.drain.by = DrainBy::Deregister;
    let [deploy, plan] = [Command::Deploy, Command::Plan].map(|command| needs(&letting_go, command, true));
    assert_eq!(deploy.reads, plan.reads);
    lab.balancer.forget_asked();
    let balancer = handover::adapters::alb::Alb::lab(&lab.balancer.endpoint());
    let target = TargetRef { group: GroupName::new("mythex-api"), id: "i-0a1b2c3d4e5f60718".into(), port: 8080 };
    balancer.observe(&target.group).await.expect("observed");
    balancer.deregister(std::slice::from_ref(&target)).await.expect("deregistered");
    balancer.register(&[target]).await.expect("registered");
    let table: BTreeSet<String> = [deploy.reads, deploy.groups].concat().into_iter().map(ToOwned::to_owned).collect();
    assert_eq!(asked(&lab), table);
    let printed = handover(dir.path(), &["provision", "--iam"]).await;
    let policies: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(policies["provision --apply"], policy(&fleet, Command::ProvisionApply, true));
    assert_eq!(policies.as_object().map(serde_json::Map::len), Some(Command::ALL.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn balancers_that_are_written_elsewhere_are_refused_with_the_way_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let text_ = EXAMPLE
        .replace("kind   = \"alb\"", "kind   = \"haproxy\"\nnodes = [\"/run/haproxy/admin.sock\"]")
        .lines()
        .filter(|line| !["region", "deregistration_delay", "keep_alive"].iter().any(|key| line.starts_with(key)))
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(dir.path().join("deploy.toml"), text_).expect("written");
    for args in
        [&["provision"][..], &["provision", "--apply", "--yes"], &["provision", "--export"], &["provision", "--iam"]]
    {
        let output = handover(dir.path(), args).await;
        assert_eq!(output.status.code(), Some(4), "{}", text(&output));
        assert!(text(&output).contains("haproxy.cfg"), "{}", text(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_may_not_be_read_is_unknown_and_nothing_is_applied() {
    let lab = simulator(30, false).await;
    let dir = folder(&lab, "");
    let action = Some("DescribeLoadBalancerAttributes".to_owned());
    lab.balancer.faults().add(Fault { kind: FaultKind::AccessDenied, action, times: None });
    let live = summary(&handover(dir.path(), &["check", "--live", "--output", "json"]).await);
    assert!(live["live"]["unknown"].to_string().contains("handover-lab"), "{live}");
    let refused = handover(dir.path(), &["provision", "--apply", "--yes"]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    assert!(text(&refused).contains("not known: balancer.idle_timeout"), "{}", text(&refused));
    assert!(asked(&lab).iter().all(|action| action.starts_with("Describe")), "{:?}", asked(&lab));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_check_reads_the_load_balancers_own_idle_timeout() {
    let lab = simulator(5, false).await;
    let dir = folder(&lab, "");
    let json = summary(&handover(dir.path(), &["check", "--live", "--output", "json"]).await);
    let told = json["live"]["differences"]
        .as_array()
        .and_then(|all| all.iter().find(|row| row["key"] == "balancer.idle_timeout"));
    let told = told.unwrap_or_else(|| panic!("{json}"));
    assert_eq!((&told["file"], &told["live"]), (&"1m30s".into(), &"1m".into()), "{json}");
    assert_eq!(told["says"], "load balancer handover-lab");
    let kept =
        json["invariants"].as_array().and_then(|rows| rows.iter().find(|row| row["id"] == "keep-alive-above-idle"));
    assert_eq!(kept.map(|row| &row["left_seconds"]), Some(&60.0.into()), "the live number counts: {json}");
}

#[tokio::test]
async fn several_load_balancers_are_asked_once_each() {
    let (fleet, balancer) = apart(&[]);
    let clock = Clock::start();
    let views = seen(&fleet, &balancer, &clock).await.groups;
    let found = fronts(&balancer, views.iter().map(|(_, view)| view), &clock).await;
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), [LB]);
}

#[test]
fn a_policy_names_what_a_command_needs_and_where() {
    let mut fleet = fleet(EXAMPLE);
    let arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/other/0123456789abcdef";
    let mut second = fleet.balancer.groups[0].clone();
    second.name = GroupName::new(arn);
    fleet.balancer.groups.push(second);
    assert_eq!(needs(&fleet, Command::Deploy, true).groups, Vec::<&str>::new(), "a flip needs no right to change");
    fleet.drain.by = DrainBy::Deregister;
    assert_eq!(needs(&fleet, Command::Deploy, true).groups, ["RegisterTargets", "DeregisterTargets"]);
    let text = policy(&fleet, Command::ProvisionApply, true).to_string();
    for word in [
        "elasticloadbalancing:ModifyTargetGroupAttributes",
        "arn:aws:elasticloadbalancing:eu-central-1:*:targetgroup/mythex-api/*",
        arn,
        "loadbalancer/app/*",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!policy(&fleet, Command::ProvisionApply, false).to_string().contains("ModifyLoadBalancer"));
    fleet.balancer.region = Some("cn-north-1".into());
    assert!(
        policy(&fleet, Command::ProvisionApply, true).to_string().contains("arn:aws-cn:"),
        "China is a world of its own"
    );
    fleet.balancer.region = Some("us-gov-west-1".into());
    assert!(policy(&fleet, Command::ProvisionApply, true).to_string().contains("arn:aws-us-gov:"));
}
