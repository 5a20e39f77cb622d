//! The balancer port on real HAProxy processes: what they are told, what they say, and what is made of it.

use handover::adapters::haproxy::Haproxy;
use handover::adapters::ssh::Options;
use handover::config;
use handover::fleet::model::{Fleet, GroupName, TargetReason, TargetRef, TargetState, TargetView, Word};
use handover::rollout::port::{Balancer, BalancerError};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../deploy.toml");
const PATIENCE: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "real processes are waited for")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// An app whose health answers what it is told to, and whose `/slow` answers when it is told to.
fn app(health: Arc<AtomicU16>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let health = Arc::clone(&health);
            std::thread::spawn(move || {
                let mut head = [0; 2048];
                let read = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                while head.starts_with("GET /slow") && health.load(Ordering::SeqCst) != 204 {
                    pause(Duration::from_millis(10));
                }
                let status = if head.contains("/health") { health.load(Ordering::SeqCst) } else { 200 };
                drop(write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
            });
        }
    });
    address
}

/// A running HAProxy; it goes with its guard.
struct Node {
    child: Child,
    dir: TempDir,
    front: u16,
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

impl Node {
    fn start(level: &str, check: &str, servers: &[SocketAddr]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let front = free_port();
        let socket = dir.path().join("admin.sock");
        let list: String = servers.iter().enumerate().map(|(n, at)| format!("  server web-{} {at}\n", n + 1)).collect();
        let text = format!(
            "global\n  stats socket {} mode 600 level {level}\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 30s\n  \
             timeout server 30s\nfrontend f\n  bind 127.0.0.1:{front}\n  default_backend mythex-api\nbackend mythex-api\n  \
             {check}\n  default-server check inter 100ms fall 3 rise 2\n{list}",
            socket.display()
        );
        std::fs::write(dir.path().join("haproxy.cfg"), text).expect("written");
        let child = Self::run(&dir);
        let node = Self { child, dir, front };
        node.wait();
        node
    }

    fn run(dir: &TempDir) -> Child {
        Command::new("haproxy")
            .args(["-db", "-f"])
            .arg(dir.path().join("haproxy.cfg"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy is installed (tests/run does it)")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("admin.sock")
    }

    fn wait(&self) {
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(began.elapsed() < PATIENCE, "haproxy does not listen");
            pause(Duration::from_millis(20));
        }
    }

    fn restart(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_file(self.socket()));
        self.child = Self::run(&self.dir);
        self.wait();
    }
}

const HTTP: &str = "option httpchk GET /health";

fn fleet(nodes: &[String], drain: &str) -> Fleet {
    let list = nodes.iter().map(|node| format!("{node:?}")).collect::<Vec<_>>().join(", ");
    let mut text = EXAMPLE
        .replace("kind   = \"alb\"", &format!("kind   = \"haproxy\"\nnodes = [{list}]"))
        .replace("region = \"eu-central-1\"\n", "")
        .replace("deregistration_delay = \"30s\"\n", "");
    for (n, id) in ["i-0a1b2c3d4e5f60718", "i-0b2c3d4e5f6071829", "i-0c3d4e5f607182930"].iter().enumerate() {
        text = text.replace(id, &format!("web-{}", n + 1));
    }
    if !drain.is_empty() {
        let at = text.find("by     = \"file\"").expect("the example drains by file");
        let end = text.find("serve  =").expect("serve");
        text.replace_range(at..end, drain);
    }
    let loaded = config::from_sources(&config::Source::new("deploy.toml", &text), None);
    loaded.unwrap_or_else(|problems| panic!("{problems}")).fleet
}

const LETS_GO: &str = "by = \"deregister\"\n";

fn api() -> GroupName {
    GroupName::new("mythex-api")
}

fn balancer(nodes: &[&Node], drain: &str) -> Haproxy {
    let nodes: Vec<String> = nodes.iter().map(|node| node.socket().display().to_string()).collect();
    Haproxy::new(&fleet(&nodes, drain), Options::default())
}

async fn until(balancer: &Haproxy, what: &str, wanted: impl Fn(&TargetView) -> bool) -> TargetView {
    let began = Instant::now();
    loop {
        let seen = balancer.health(&api()).await;
        let web_1 = seen.as_ref().ok().and_then(|views| views.iter().find(|view| view.id.as_str() == "web-1"));
        if let Some(view) = web_1.filter(|view| wanted(view)) {
            return view.clone();
        }
        assert!(began.elapsed() < PATIENCE, "not {what}: {seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn healthy(view: &TargetView) -> bool {
    view.state == TargetState::Healthy
}

fn web_1(port: u16) -> [TargetRef; 1] {
    [TargetRef { group: api(), id: "web-1".into(), port }]
}

#[tokio::test]
async fn a_health_flip_is_seen_with_its_reason_and_the_numbers_are_the_processes_own() {
    let health = Arc::new(AtomicU16::new(200));
    let app = app(Arc::clone(&health));
    let node = Node::start("operator", HTTP, &[app]);
    let balancer = balancer(&[&node], "");
    until(&balancer, "healthy", healthy).await;
    let view = balancer.observe(&api()).await.expect("a group");
    assert_eq!((view.settings.unhealthy, view.settings.healthy), (3, 2), "fall and rise of the running process");
    assert_eq!((view.word, view.attributes.fail_open_count), (Word::EachNode, 0));
    assert_eq!(view.targets[0].port, app.port());
    health.store(503, Ordering::SeqCst);
    let out = until(&balancer, "out", |view| view.state == TargetState::Unhealthy).await;
    assert_eq!(out.reason, Some(TargetReason::ResponseCodeMismatch));
    assert!(out.description.unwrap_or_default().contains("503"));
    health.store(200, Ordering::SeqCst);
    until(&balancer, "back", healthy).await;
    let refused = balancer.deregister(&web_1(app.port())).await.expect_err("health drains this fleet");
    assert!(matches!(refused, BalancerError::Refused(_)));
}

#[tokio::test]
async fn what_is_let_go_is_out_when_its_last_session_ended_and_in_only_after_a_check() {
    let health = Arc::new(AtomicU16::new(200));
    let app = app(Arc::clone(&health));
    let node = Node::start("admin", HTTP, &[app]);
    for state in ["", "state = \"drain\"\n"] {
        health.store(200, Ordering::SeqCst);
        let balancer = balancer(&[&node], &format!("{LETS_GO}{state}"));
        until(&balancer, "healthy", healthy).await;
        let mut slow = TcpStream::connect(("127.0.0.1", node.front)).expect("connected");
        slow.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        until(&balancer, "busy", |view| view.description.as_deref().is_some_and(|text| text.contains("1 session")))
            .await;
        balancer.deregister(&web_1(app.port())).await.expect("told");
        let waits = until(&balancer, "draining", |view| view.state == TargetState::Draining).await;
        assert!(waits.description.unwrap_or_default().contains("1 session"));
        health.store(204, Ordering::SeqCst);
        let mut answer = String::new();
        slow.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "a running request is not cut: {answer}");
        until(&balancer, "out", |view| view.state == TargetState::Unused).await;
        balancer.register(&web_1(app.port())).await.expect("told");
        until(&balancer, "in", healthy).await;
    }
}

#[tokio::test]
async fn two_nodes_are_believed_each_for_itself() {
    let (first, second) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicU16::new(200)));
    let (up, down) = (app(first), app(Arc::clone(&second)));
    let nodes = [Node::start("admin", HTTP, &[up]), Node::start("admin", HTTP, &[down])];
    let fleet = fleet(&nodes.each_ref().map(|node| node.socket().display().to_string()), LETS_GO);
    let balancer = Haproxy::new(&fleet, Options::default());
    let began = Instant::now();
    loop {
        let seen = balancer.health(&api()).await.expect("both answer");
        // Two addresses, two ports: each is known to one node only, and a node that does not know it sends it nothing.
        assert_eq!(seen.len(), 2);
        if seen.iter().all(|view| matches!(&view.state, TargetState::Other(word) if word.contains("node to node"))) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let [one, other] = nodes;
    drop(other);
    let unknown = balancer.health(&api()).await.expect_err("one node is silent");
    assert!(unknown.is_unknown(), "{unknown}");
    let told = balancer.deregister(&web_1(up.port())).await.expect_err("one node is silent");
    assert!(told.is_unknown(), "{told}");
    let alone = balancer_of(&one);
    until(&alone, "told all the same", |view| matches!(view.state, TargetState::Unused)).await;
}

fn balancer_of(node: &Node) -> Haproxy {
    balancer(&[node], LETS_GO)
}

#[tokio::test]
async fn a_process_that_forgot_what_it_was_told_is_told_again() {
    let app = app(Arc::new(AtomicU16::new(200)));
    let mut node = Node::start("admin", HTTP, &[app]);
    let balancer = balancer(&[&node], LETS_GO);
    until(&balancer, "healthy", healthy).await;
    balancer.deregister(&web_1(app.port())).await.expect("told");
    until(&balancer, "out", |view| view.state == TargetState::Unused).await;
    node.restart();
    let first = balancer.health(&api()).await.expect("it answers");
    assert_ne!(first[0].state, TargetState::Unused, "what was seen before it was told again stands");
    until(&balancer, "out again", |view| view.state == TargetState::Unused).await;
    balancer.register(&web_1(app.port())).await.expect("told");
    node.restart();
    until(&balancer, "in, and not told again", healthy).await;
}

#[tokio::test]
async fn what_would_never_work_is_refused_by_name() {
    let app = app(Arc::new(AtomicU16::new(200)));
    let node = Node::start("operator", "", &[app]);
    let flips = balancer(&[&node], "");
    let began = Instant::now();
    let refused = loop {
        match flips.observe(&api()).await {
            Err(BalancerError::Refused(text)) => break text,
            other => assert!(began.elapsed() < PATIENCE, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(refused.contains("bare connection") && refused.contains("option httpchk GET /health"), "{refused}");
    let lets_go = balancer_of(&node);
    match lets_go.deregister(&web_1(app.port())).await {
        Err(BalancerError::Refused(text)) => assert!(text.contains("level admin"), "{text}"),
        other => panic!("{other:?}"),
    }
    let stranger = GroupName::new("nobody");
    assert!(matches!(lets_go.health(&stranger).await, Err(BalancerError::Refused(_))));
    let sockets = [node.dir.path().join("nowhere.sock").display().to_string()];
    let nowhere = Haproxy::new(&fleet(&sockets, LETS_GO), Options::default());
    let unknown = nowhere.health(&api()).await.expect_err("nobody listens");
    assert!(unknown.is_unknown() && unknown.to_string().contains("nowhere.sock"), "{unknown}");
}

/// Answers each question with what `answers` makes of it, as HAProxy does: one line, one answer, closed.
fn peer(answers: impl Fn(&str) -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = [0; 256];
            let read = stream.read(&mut line).unwrap_or(0);
            drop(stream.write_all(answers(&String::from_utf8_lossy(&line[..read])).as_bytes()));
        }
    });
    address
}

const STAT: &str = "# pxname,svname,qcur,scur,status,weight,bck,lastchg,check_status,type,\n\
                    mythex-api,web-1,0,0,UP,1,0,9,L7OK,2,\nmythex-api,BACKEND,0,0,UP,1,0,9,,1,\n\n";

fn info(uptime: u64) -> String {
    format!("Version: 2.6.12\nNbproc: 1\nPid: 8\nUptime_sec: {uptime}\n\n")
}

#[tokio::test]
async fn a_process_that_goes_away_before_it_did_what_it_was_told_has_not_done_it() {
    for silent in ["ready", "maint"] {
        let address = peer(move |line| match line {
            line if line.starts_with("show") => format!("{}{STAT}", info(60)),
            line if line.contains(silent) => String::new(),
            _ => "\n".into(),
        });
        let balancer = Haproxy::new(&fleet(&[address.to_string()], LETS_GO), Options::default());
        let (out, back) = (balancer.deregister(&web_1(8080)).await, balancer.register(&web_1(8080)).await);
        let (unknown, told) = if silent == "ready" { (back, out) } else { (out, back) };
        assert!(told.is_ok(), "{silent}: {told:?}");
        assert!(matches!(&unknown, Err(error) if error.is_unknown()), "{silent}: {unknown:?}");
    }
}

#[tokio::test]
async fn a_process_that_began_anew_under_its_old_number_is_told_again() {
    let uptime = Arc::new(AtomicU16::new(3600));
    let sets = Arc::new(AtomicU16::new(0));
    let (says, counts) = (Arc::clone(&uptime), Arc::clone(&sets));
    let address = peer(move |line| {
        if line.starts_with("show") {
            return format!("{}{STAT}", info(says.load(Ordering::SeqCst).into()));
        }
        counts.fetch_add(1, Ordering::SeqCst);
        "\n".into()
    });
    let balancer = Haproxy::new(&fleet(&[address.to_string()], LETS_GO), Options::default());
    balancer.deregister(&web_1(8080)).await.expect("told");
    let told = async |seconds| {
        uptime.store(seconds, Ordering::SeqCst);
        balancer.health(&api()).await.expect("it answers");
        sets.load(Ordering::SeqCst)
    };
    assert_eq!(told(3602).await, 1, "the same process");
    assert_eq!(told(3).await, 2, "in a container the next one has the same number");
    assert_eq!(told(5).await, 2, "once");
    assert_eq!(told(4).await, 3, "and the one after that");
}

#[tokio::test]
async fn a_server_that_is_to_be_back_is_not_told_to_go_by_a_node_that_comes_back() {
    let (uptime, maints) = (Arc::new(AtomicU16::new(60)), Arc::new(AtomicU16::new(0)));
    let (says, counts) = (Arc::clone(&uptime), Arc::clone(&maints));
    let address = peer(move |line| match line {
        line if line.starts_with("show") && says.load(Ordering::SeqCst) == 0 => String::new(),
        line if line.starts_with("show") => format!("{}{STAT}", info(says.load(Ordering::SeqCst).into())),
        line => {
            counts.fetch_add(u16::from(line.contains("maint")), Ordering::SeqCst);
            "\n".into()
        }
    });
    let balancer = Haproxy::new(&fleet(&[address.to_string()], LETS_GO), Options::default());
    balancer.deregister(&web_1(8080)).await.expect("told");
    uptime.store(0, Ordering::SeqCst);
    assert!(balancer.register(&web_1(8080)).await.is_err(), "the node says nothing");
    uptime.store(5, Ordering::SeqCst);
    balancer.health(&api()).await.expect("it answers");
    assert_eq!(maints.load(Ordering::SeqCst), 1, "told once, before");
}

#[tokio::test]
async fn a_peer_that_is_not_haproxy_or_never_ends_is_unknown() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                drop(stream.write_all(answer.as_bytes()));
                if answer.is_empty() {
                    // Says nothing and stays.
                    std::mem::forget(stream);
                }
            }
        });
        let balancer = Haproxy::new(&fleet(&[address.to_string()], LETS_GO), Options::default());
        let unknown = balancer.health(&api()).await.expect_err("no HAProxy");
        assert!(unknown.is_unknown() && unknown.to_string().contains(&address.to_string()), "{unknown}");
    }
}
