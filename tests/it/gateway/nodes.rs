//! Who asks for health: a real gateway between real HAProxy nodes, each at an address of its own.

use super::world::{Gateway, address, one_host, pause, until};
use handover::fleet::model::{HealthSettings, Network};
use handover::fleet::nodes::{Judged, NodesSeen, Origin, Reading, Rule, Told, judge};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const HEALTH: &str = "[[gateway.health]]\npath = \"/health\"\ngroup = \"api\"\n";

fn counted(gateway: &Gateway) -> NodesSeen {
    let mut stream = TcpStream::connect(gateway.metrics).expect("it listens");
    stream.write_all(b"GET /nodes HTTP/1.1\r\nhost: m\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("a count")
}

/// A HAProxy that asks from an address of its own.
struct Node {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Node {
    fn start(from: IpAddr, target: SocketAddr) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("admin.sock");
        let text = format!(
            "global\n  stats socket {} mode 600 level admin\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  \
             timeout server 5s\nbackend b\n  option httpchk GET /health\n  http-check expect status 200\n  source {from}\n  \
             server web-1 {target} check inter 300ms fall 3 rise 2\n",
            socket.display()
        );
        std::fs::write(dir.path().join("haproxy.cfg"), text).expect("written");
        let child = Command::new("haproxy")
            .args(["-db", "-f"])
            .arg(dir.path().join("haproxy.cfg"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy is installed (tests/run does it)");
        Self { child, dir }
    }

    fn is_up(&self) -> bool {
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(self.dir.path().join("admin.sock")) else {
            return false;
        };
        stream.write_all(b"show stat b 4 -1\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text.lines().any(|line| line.starts_with("b,web-1,") && line.contains(",UP"))
    }
}

fn rule(from: &str) -> Rule {
    let quick = Duration::from_millis(300);
    Rule {
        path: "/health".into(),
        port: None,
        settings: HealthSettings { interval: quick, timeout: quick, unhealthy: 3, healthy: 2 },
        from: vec![Network::parse(from).expect("a network")],
        agent: None,
    }
}

#[test]
fn two_haproxy_nodes_have_let_go_when_each_was_told_so_often_and_have_come_back_likewise() {
    let gateway = Gateway::start_with("drain_file = \"DIR/drain\"", &(one_host(address(), "") + HEALTH));
    let nodes = ["127.9.0.1", "127.9.0.2"].map(|from| Node::start(from.parse().expect("an address"), gateway.at));
    let rule = rule("127.9.0.0/24");
    let proved = |wanted, known: &BTreeSet<IpAddr>| match judge(
        &counted(&gateway),
        Duration::ZERO,
        &rule,
        wanted,
        Reading::Exact,
        known,
    ) {
        Judged::Proved(nodes) => Some(nodes),
        Judged::NotYet(_) => None,
        Judged::Nothing(why) => panic!("{why}"),
    };
    until("both send", || nodes.iter().all(Node::is_up) && counted(&gateway).nodes.len() == 2);
    until("both were told so", || proved(Told::In, &BTreeSet::new()).is_some_and(|nodes| nodes.len() == 2));
    for _ in 0..3 {
        std::fs::write(gateway.dir.path().join("drain"), "").expect("written");
        assert_eq!(proved(Told::Out, &BTreeSet::new()), None, "nobody was told yet");
        let mut known = BTreeSet::new();
        until("both were told", || {
            known = proved(Told::Out, &BTreeSet::new()).unwrap_or_default();
            known.len() == 2
        });
        // An answer that was written is read a moment later.
        pause(50);
        assert!(
            !nodes.iter().any(Node::is_up),
            "a node that was told three times still sends: {:?}",
            counted(&gateway)
        );
        std::fs::remove_file(gateway.dir.path().join("drain")).expect("removed");
        until("both were told that it is back", || proved(Told::In, &known).is_some());
        pause(50);
        assert!(nodes.iter().all(Node::is_up), "a node that was told twice does not send: {:?}", counted(&gateway));
    }
}

#[test]
fn what_the_gateway_sees_of_checkers_is_told_as_it_is() {
    let gateway = Gateway::start(&(one_host(address(), "") + HEALTH));
    let ask = |path: &str, more: &str| {
        gateway.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nuser-agent: check\r\n{more}connection: close\r\n\r\n"))
    };
    ask("/health?g=api", "");
    ask("/health", "x-forwarded-for: 10.0.0.7\r\n");
    ask("/other", "");
    assert_eq!(gateway.ask("GET /health HTTP/1.0\r\n\r\n").split(' ').nth(1), Some("200"), "a check without a host");
    let seen = counted(&gateway);
    let told: Vec<_> = seen.nodes.iter().map(|n| (n.path.as_str(), n.origin, n.told, n.row, n.port)).collect();
    let port = gateway.at.port();
    assert_eq!(
        told,
        [("/health", Origin::Proxy, Told::In, 2, port), ("/health?g=api", Origin::Itself, Told::In, 1, port)]
    );
    assert_eq!(seen.nodes[1].agent, "check");
    assert_eq!(
        gateway.ask("GET /nodes HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").split(' ').nth(1),
        Some("421")
    );
}
