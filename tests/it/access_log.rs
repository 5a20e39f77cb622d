//! `measure --access-log` as a user meets it, over logs of every year and of every kind of trouble; and over the lab's own log, whose
//! truth is known.

use handover::lab::balancer::{StandaloneSpec, standalone};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/access-log").join(name);
    path.display().to_string()
}

/// In an empty folder: there is no deploy.toml, and none is needed.
fn run_with(args: &[&str], stdin: &[u8]) -> Output {
    let dir = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(env!("CARGO_BIN_EXE_handover"))
        .arg("measure")
        .args(args)
        .current_dir(dir.path())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdin.take().expect("stdin").write_all(stdin));
    child.wait_with_output().expect("it ends")
}

fn run(args: &[&str]) -> Output {
    run_with(args, b"")
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}-- stderr --\n{err}-- exit {}", output.status.code().unwrap_or(-1))
}

fn summary(args: &[&str]) -> Value {
    let output = run(&[args, &["--output", "json"]].concat());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let json: Value = serde_json::from_str(out.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("no summary ({error}): {}", text(&output)));
    assert_eq!(json["exit"], output.status.code().unwrap_or(-1), "{json}");
    json
}

fn requests(counts: [u64; 7]) -> Value {
    let [total, served, app_errors, nowhere, cut_short, drain_signals, client_gone] = counts;
    json!({"total": total, "served": served, "app_errors": app_errors, "nowhere": nowhere, "cut_short": cut_short,
        "drain_signals": drain_signals, "client_gone": client_gone})
}

fn written(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = dir.join(name);
    std::fs::write(&path, bytes).expect("written");
    path.display().to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("packed");
    packer.finish().expect("packed")
}

#[test]
fn a_log_of_every_year_is_read_to_the_last_request() {
    let rows = [
        ("2016.log", [4, 1, 1, 2, 0, 0, 0], json!({"never_connected": 1, "no_complete_response": 1}), 4),
        ("2017.log", [4, 3, 0, 1, 0, 0, 0], json!({"no_target": 1}), 4),
        ("2018.log", [5, 4, 0, 1, 0, 0, 0], json!({"lambda": 1}), 0),
        ("2019.log", [4, 1, 1, 2, 0, 0, 0], json!({"no_target": 1, "connect_timeout": 1}), 0),
        ("2020.log", [6, 4, 0, 0, 0, 0, 2], json!({}), 0),
        ("2024.log", [3, 2, 0, 1, 0, 0, 0], json!({"never_connected": 1}), 0),
        ("2026.log", [3, 1, 1, 1, 0, 0, 0], json!({"answer_timeout": 1}), 0),
    ];
    for (name, counts, causes, without_creation_time) in rows {
        let json = summary(&["--access-log", &fixture(name)]);
        assert_eq!(json["requests"], requests(counts), "{name}: {json}");
        assert_eq!(json["causes"], causes, "{name}");
        assert_eq!(json["broken"], json!({"lines": 0, "shown": []}), "{name}");
        assert_eq!(json["log"]["without_creation_time"], without_creation_time, "{name}");
        let lost = counts[3] > 0;
        assert_eq!((&json["exit"], json["error"].is_null()), (&json!(if lost { 7 } else { 0 }), !lost), "{name}");
    }
}

const WINDOW: [&str; 4] = ["--from", "2026-11-29T12:00:00Z", "--to", "2026-11-29T13:05:00+01:00"];

#[test]
fn what_the_deploy_lost_stands_beside_what_is_usual() {
    let all = fixture("all.log");
    let json = summary(&[&["--access-log", &all, "--health-path", "/health"], &WINDOW[..]].concat());
    assert_eq!(json["requests"], requests([18, 5, 1, 8, 1, 1, 2]), "{json}");
    assert_eq!(json["baseline"], requests([6, 2, 0, 4, 0, 0, 0]));
    assert_eq!(json["per_10_000"], json!({"window": 5000.0, "baseline": 6666.67}));
    let causes = json!({"no_target": 1, "never_connected": 1, "no_complete_response": 1, "connect_timeout": 1,
        "answer_timeout": 1, "timeout": 1, "lambda": 1, "answer_lost": 1, "no_status": 1});
    assert_eq!(json["causes"], causes);
    assert_eq!(json["baseline_causes"], json!({"never_connected": 2, "no_complete_response": 1, "answer_timeout": 1}));
    assert_eq!(json["window"], json!({"from": "2026-11-29T12:00:00Z", "to": "2026-11-29T12:05:00Z"}));
    assert_eq!(json["log"]["unforwarded"], 1);
    assert_eq!((&json["exit"], &json["error"]["kind"]), (&json!(7), &json!("lost_requests")));
    let losses = json["losses"].as_array().expect("losses");
    assert_eq!(losses.len(), 9);
    assert_eq!(
        losses[0],
        json!({"at": "2026-11-29T12:00:00Z", "target": "198.51.100.1:8080", "status": 502, "class": "nowhere", "cause": "never_connected",
            "request": "GET /first"})
    );
    assert_eq!(losses[1]["request"], "POST /cart");
    let targets = json["targets"].as_array().expect("targets");
    let named: Vec<&Value> = targets.iter().map(|target| &target["target"]).collect();
    assert_eq!(named, [&json!("198.51.100.1:8080"), &Value::Null, &json!("198.51.100.2:8080")]);
    assert_eq!(targets[1]["causes"], json!({"no_target": 1, "lambda": 1}));
    assert_eq!(targets[2]["requests"], requests([3, 0, 1, 1, 0, 1, 0]));
    assert_eq!(targets[2]["baseline"]["nowhere"], 1);
}

#[test]
fn a_health_path_is_one_only_when_it_is_named() {
    let all = fixture("all.log");
    let json = summary(&[&["--access-log", &all], &WINDOW[..]].concat());
    assert_eq!(json["requests"], requests([18, 5, 2, 8, 1, 0, 2]));
}

#[test]
fn without_a_window_the_whole_log_counts_and_nothing_is_usual() {
    let json = summary(&["--access-log", &fixture("all.log")]);
    assert_eq!(json["requests"], requests([24, 7, 2, 12, 1, 0, 2]));
    assert_eq!((&json["baseline"], &json["targets"][0]["baseline"]), (&Value::Null, &Value::Null));
}

#[test]
fn people_are_told_the_same() {
    let output = run(&[&["--access-log", &fixture("all.log"), "--health-path=/health"], &WINDOW[..]].concat());
    let text = text(&output);
    for line in [
        "1 file: 24 requests, 2026-11-29T11:58:00Z to 2026-11-29T12:06:00Z\n",
        "window: 2026-11-29T12:00:00Z to 2026-11-29T12:05:00Z\n",
        "                         window  outside\n",
        "lost                          9        4\n",
        "lost per 10,000         5000.00  6666.67\n",
        "timeout: no connection within 10 s                  1        0\n",
        "198.51.100.2:8080         3           1     1                 1             1\n",
        "  2026-11-29T12:00:00Z  502  198.51.100.1:8080  GET /first: never connected: refused or unreachable\n",
        "error: 9 of 18 requests in the window were lost\n",
        "-- exit 7",
    ] {
        assert!(text.contains(line), "{line:?} is missing in {text}");
    }
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn csv_adds_up_to_all_requests() {
    let output =
        run(&[&["--csv", "--health-path", "/health", "--access-log", &fixture("all.log")], &WINDOW[..]].concat());
    let out = String::from_utf8(output.stdout).expect("text");
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("window,target,class,cause,requests"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 5), "{out}");
    assert_eq!(rows.iter().map(|row| row[4].parse::<u64>().expect("a number")).sum::<u64>(), 24);
    for row in [
        "inside,none,nowhere,no_target,1",
        "inside,198.51.100.2:8080,drain_signal,,1",
        "outside,198.51.100.1:8080,served,,2",
    ] {
        assert!(out.lines().any(|line| line == row), "{row} is missing in {out}");
    }
    assert_eq!(output.status.code(), Some(7));
    let both = summary(&["--csv", "--access-log", &fixture("all.log")]);
    assert_eq!((&both["exit"], &both["error"]["kind"]), (&json!(2), &json!("usage")));
}

#[test]
fn broken_lines_are_told_with_their_place_and_never_counted_as_fine() {
    let file = fixture("broken.log");
    let json = summary(&["--access-log", &file]);
    assert_eq!(json["requests"], requests([2, 2, 0, 0, 0, 0, 0]), "{json}");
    let shown: Vec<(u64, &str)> = json["broken"]["shown"]
        .as_array()
        .expect("shown")
        .iter()
        .map(|one| (one["line"].as_u64().unwrap_or(0), one["what"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        shown,
        [
            (2, "4 fields, where an ALB writes at least 17"),
            (3, "field 14: its quotes do not close"),
            (4, "22 fields, where lines before it have 30: it was cut off"),
            (5, "21 fields, where lines before it have 30: it was cut off"),
            (6, "field 7, target_processing_time: cannot be `fast`"),
            (7, "field 15: its quotes do not close"),
            (9, "field 2, time: cannot be `2026-11-29T12:00`"),
        ]
    );
    assert_eq!((&json["broken"]["lines"], &json["files"][0]["lines"]), (&json!(7), &json!(9)));
    let text = text(&run(&["--access-log", &file]));
    let csv = run(&["--csv", "-q", "--access-log", &file]);
    let told = String::from_utf8_lossy(&csv.stderr).into_owned();
    assert!(told.contains("7 broken lines") && told.contains(&format!("{file}:9: field 2")), "{told}");
    assert!(text.contains(&format!("  {file}:6: field 7, target_processing_time: cannot be `fast`\n")), "{text}");
}

#[test]
fn what_strangers_sent_reaches_no_terminal() {
    let dir = tempfile::tempdir().expect("a folder");
    let line = std::fs::read_to_string(fixture("all.log")).expect("a log");
    let line = line.lines().find(|line| line.contains("/first")).expect("a line").as_bytes();
    let replaced = |from: &str, to: &[u8]| {
        let at = line.windows(from.len()).position(|part| part == from.as_bytes()).expect("a part");
        [&line[..at], to, &line[at + from.len()..], b"\n"].concat()
    };
    let log = [
        replaced("/first", b"/\x1b]0;owned\x07\x9b31m\xff\x00"),
        replaced("GET ", b"\x1b[2J "),
        replaced("198.51.100.1:8080 -1", b"\x1b[31m:80 -1"),
        replaced("probe/1.0", b"\x1b[31m\x00\xfe agent"),
        replaced("2026", b"\x1b[A"),
        b"\x00\x01\x02\x1b[0m\n".to_vec(),
    ]
    .concat();
    let file = written(dir.path(), "\u{1b}[31mhostile\u{202e}.log", &log);
    let json = summary(&["--access-log", &file]);
    assert_eq!((&json["requests"]["nowhere"], &json["broken"]["lines"]), (&json!(3), &json!(3)), "{json}");
    assert_eq!(json["losses"][0]["request"], "GET /\\x1B]0");
    for extra in [&[][..], &["--csv"], &["--output", "json"], &["--output", "human"]] {
        let output = run(&[&["--access-log", &file], extra].concat());
        let bytes = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(bytes).expect("UTF-8");
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
    }
    let nothing = written(dir.path(), "\u{1b}[2J.log", b"\x1b[31m\n");
    assert!(!text(&run(&["--access-log", &nothing, "/\u{1b}[1m"])).contains('\u{1b}'));
}

#[test]
fn what_cannot_be_read_is_no_zero() {
    let dir = tempfile::tempdir().expect("a folder");
    let all = std::fs::read(fixture("all.log")).expect("a log");
    let packed = gzip(&all);
    let cut = written(dir.path(), "cut.log.gz", &packed[..packed.len() - 9]);
    let other = written(dir.path(), "other.log", b"2026-11-29T12:00:00Z one two\nand more\n");
    let good = fixture("2020.log");
    let never = written(dir.path(), "never-came.log.gz", b"");
    let rows: [(&[&str], &str); 11] = [
        (&["--access-log", &good, &never], "the gzip data ends too early; none of it was read"),
        (&["--access-log", &never], "the gzip data ends too early; none of it was read"),
        (&["--access-log", &cut], "the gzip data ends too early; what comes behind line"),
        (&["--access-log", &good, &cut], "the gzip data ends too early"),
        (&["--access-log", "/nowhere/a.log", &good], "/nowhere/a.log"),
        (&["--access-log", &other], "none of the 2 lines is one of an ALB's access log"),
        (&["--access-log", &good, "--from", "yesterday"], "RFC 3339"),
        (&["--access-log", &good, "--from", "2026-11-29T12:00:00"], "RFC 3339"),
        (&["--access-log", &good, "--to", "2026-11-29T12:00:00Z", "--from", "2026-11-29T12:00:00Z"], "is not before"),
        (&["--access-log", &good, "--health-path", "health"], "a path begins with /"),
        (&["--csv", "http://shop.example/"], "--access-log"),
    ];
    for (args, word) in rows {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(word), "{args:?}: {}", text(&output));
        assert_eq!(summary(args)["error"]["kind"], "usage", "{args:?}");
    }
    let json = summary(&["--access-log", &other]);
    assert_eq!(json["requests"], Value::Null, "nothing is known: {json}");
    assert!(!text(&run(&["--access-log", &other])).contains("lost"));
    let json = summary(&["--access-log", &good, &cut]);
    assert!(json["files"][1]["error"].is_string() && json["files"][0]["error"].is_null(), "{json}");
    let message = json["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("in what was read, ") && message.contains(" requests were lost"), "{message}");
}

#[test]
fn an_empty_log_proves_nothing_and_says_so() {
    for (args, what) in [
        (vec!["--access-log", "-"], "an empty one proves nothing"),
        (vec!["--access-log", "-", "--csv"], "an empty one proves nothing"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "what is not known is not fine: {}", text(&output));
        assert!(text(&output).contains(what), "{}", text(&output));
        assert!(output.stdout.is_empty(), "no counts: {}", text(&output));
    }
    assert_eq!(summary(&["--access-log", "-"])["requests"], Value::Null);
    let json = summary(&["--access-log", &fixture("all.log"), "--from", "2027-01-01T00:00:00Z"]);
    assert_eq!((&json["exit"], &json["requests"]["total"]), (&json!(0), &json!(0)));
    assert!(json["notes"][0].as_str().is_some_and(|note| note.contains("proves nothing")), "{json}");
    let json = summary(&["--access-log", &fixture("all.log"), "--to", "2027-01-01T00:00:00Z"]);
    assert!(
        json["notes"][0].as_str().is_some_and(|note| note.contains("the log already at 2026-11-29T12:06:00Z")),
        "{json}"
    );
}

#[test]
fn folders_and_stdin_are_read_and_files_given_twice_are_not_counted_twice() {
    let dir = tempfile::tempdir().expect("a folder");
    let all = std::fs::read(fixture("2020.log")).expect("a log");
    let name = "111122223333_elasticloadbalancing_eu-central-1_app.shop.0123456789abcdef_20261129T1205Z_203.0.113.8_1a2b3c4d.log";
    let first = written(dir.path(), &format!("{name}.gz"), &gzip(&all));
    written(dir.path(), name, &all);
    let _pipe = std::os::unix::net::UnixListener::bind(dir.path().join("pipe.log")).expect("bound");
    let folder = dir.path().display().to_string();
    let output = run_with(&["--access-log", &folder, &first, "-", "--output", "json"], &gzip(&all));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["requests"]["total"], 12, "the folder's file and stdin: {json}");
    assert_eq!(json["nodes"], json!(["203.0.113.8"]));
    let notes = json["notes"].to_string();
    assert!(notes.contains("the same as") && notes.contains("begin with the same line"), "{notes}");
    assert!(notes.contains("pipe.log: no file"), "{notes}");
}

/// A target whose health is always fine; what else it does its path says.
async fn target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
                let head = String::from_utf8_lossy(&buffer[..count]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let answer: &[u8] = match path {
                    _ if head.contains("ELB-HealthChecker") => {
                        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                    }
                    "/close" => return,
                    "/silent" => std::future::pending().await,
                    "/500" => b"HTTP/1.1 500 E\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                    "/503" | "/health" => b"HTTP/1.1 503 E\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                    "/404" => b"HTTP/1.1 404 E\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                    _ => b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
                };
                drop(stream.write_all(answer).await);
            });
        }
    });
    address
}

async fn ask(node: SocketAddr, path: &str) {
    let mut stream = TcpStream::connect(node).await.expect("the node");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: a \"quoted\" one\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    // Whoever asks for nothing goes away.
    let patience = Duration::from_millis(if path == "/silent?gone" { 150 } else { 20_000 });
    drop(tokio::time::timeout(patience, stream.read_to_end(&mut Vec::new())).await);
}

/// A real ALB's log does not tell a body that broke off, nor a client that went away behind the headers; the lab's truth does. Everything
/// else has to be the same, or one of the two is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lab_s_own_log_says_what_its_truth_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("access.log");
    let (address, dead) = (target().await, TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    let dead_address = dead.local_addr().expect("an address");
    let group = |name: &str, targets: Value| json!({"name": name, "port": 80, "path": "/health", "interval": 1.0, "timeout": 0.5, "unhealthy": 2, "healthy": 2, "targets": targets});
    let spec: StandaloneSpec = serde_json::from_value(json!({
        "groups": [
            group("shop", json!([{"id": "i-1", "address": address.to_string(), "zone": "a"}])),
            group("refused", json!([{"id": "i-2", "address": dead_address.to_string(), "zone": "a"}])),
            group("empty", json!([])),
        ],
        "speed": 10.0, "seed": 3, "access_log": log,
    }))
    .expect("a spec");
    drop(dead);
    let mut balancer = standalone(spec).await.expect("a balancer").balancer;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let node = balancer.nodes()[0];
    let paths = ["/", "/a?b=c", "/404", "/500", "/503", "/health", "/close", "/silent", "/silent?gone"];
    for path in paths {
        ask(node, path).await;
    }
    for group in ["refused", "empty"] {
        ask(balancer.nodes_of(&group.into())[0], "/").await;
    }
    for _ in 0..200 {
        if balancer.truth().total == 11 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    balancer.stop();
    let truth = balancer.truth();
    let json = summary(&["--access-log", &log.display().to_string(), "--health-path", "/health"]);
    assert_eq!(json["broken"]["lines"], 0, "{json}");
    assert_eq!(json["requests"], json!(truth.classes), "{json}");
    assert_eq!(truth.classes.total, 11, "{truth:?}");
    assert_eq!(
        json["causes"],
        json!({"no_target": 1, "never_connected": 1, "no_complete_response": 1, "answer_timeout": 1})
    );
}
