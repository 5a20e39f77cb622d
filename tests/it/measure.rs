//! `handover measure URL` against servers that misbehave exactly so many times: every loss is counted, and no other.

mod misbehaving;

use misbehaving::{Fault, Http, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

fn tls(name: &str) -> String {
    format!("{}/tests/it/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A measurement that runs: its events as they come.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    events: Vec<Value>,
}

/// One that has ended.
struct Ended {
    events: Vec<Value>,
    exit: i32,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handover"));
        command.arg("measure").args(args);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command
            .args(["--output", "json"])
            .env("SSL_CERT_FILE", tls("other.pem"))
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Self { child, stdin, lines: BufReader::new(stdout).lines(), events: Vec::new() }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("open"), "{line}").expect("it listens");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for an event of this name.
    fn until(&mut self, name: &str) -> Value {
        loop {
            let line = self.lines.next().unwrap_or_else(|| panic!("no {name} in {:?}", self.events)).expect("text");
            let event: Value = serde_json::from_str(&line).expect("JSON");
            self.events.push(event.clone());
            if event["event"] == name {
                return event;
            }
        }
    }

    fn end(mut self) -> Ended {
        self.until("summary");
        let exit = self.child.wait().expect("it ends").code().unwrap_or(-1);
        Ended { events: std::mem::take(&mut self.events), exit }
    }
}

impl Drop for Running {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Ended {
    fn summary(&self) -> &Value {
        self.events.last().expect("a summary")
    }

    fn count(&self, class: &str) -> u64 {
        self.summary()["requests"][class].as_u64().unwrap_or_else(|| panic!("no {class}: {}", self.summary()))
    }

    /// The counts that are not zero, and whether the seconds add up to them.
    fn counts(&self) -> Vec<(String, u64)> {
        let all = self.summary()["requests"].as_object().unwrap_or_else(|| panic!("no requests: {}", self.summary()));
        for (class, count) in all {
            let seconds = self.events.iter().filter(|event| event["event"] == "second");
            let sum: u64 = seconds.filter_map(|second| second["requests"][class].as_u64()).sum();
            assert_eq!(Some(sum), count.as_u64(), "the seconds' {class}");
        }
        let counts = all.iter().map(|(class, count)| (class.clone(), count.as_u64().expect("a count")));
        counts.filter(|(class, count)| *count > 0 && class != "total").collect()
    }

    fn warnings(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter(|event| event["event"] == "warning")
            .filter_map(|event| event["what"].as_str())
            .collect()
    }
}

fn measure(args: &[&str]) -> Ended {
    Running::start(args).end()
}

#[expect(clippy::disallowed_methods, reason = "another process goes on meanwhile")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// So many requests, of which the server spoils exactly `k` in one way: they and no others are in `class`.
fn exactly(http: Http, fault: Fault, class: &str, exit: i32) {
    for (k, rate, length) in [(1, "50", "400ms"), (10, "100", "400ms"), (1000, "1000", "1200ms")] {
        let server = Server::start(http, fault, k);
        let url = server.url("/version");
        let mut args = vec![url.as_str(), "--rate", rate, "--for", length, "--timeout", "60s"];
        if http == Http::Two {
            args.push("--http2");
        }
        let ended = measure(&args);
        let total = ended.count("total");
        let wanted = [(class.to_owned(), k as u64), ("served".to_owned(), total - k as u64)];
        let mut counts = ended.counts();
        counts.sort_by_key(|(class, _)| class == "served");
        assert_eq!(counts, wanted, "{fault:?}, {k} times: {}", ended.summary());
        assert_eq!(server.answered() as u64, total - k as u64, "as the server counts");
        assert_eq!((ended.exit, &ended.summary()["exit"]), (exit, &exit.into()));
        if exit == 7 {
            let losses = ended.summary()["losses"].as_array().map(Vec::len);
            assert_eq!(losses, Some(k.min(100)), "the first hundred");
        }
    }
}

#[test]
fn every_refused_connection_is_counted_and_no_other() {
    exactly(Http::One, Fault::Refuse, "nowhere", 7);
}

#[test]
fn every_reset_answer_is_counted_and_no_other() {
    exactly(Http::One, Fault::Reset, "nowhere", 7);
}

#[test]
fn every_cut_body_is_counted_and_no_other() {
    exactly(Http::One, Fault::Cut, "cut_short", 7);
}

#[test]
fn a_503_of_the_balancer_is_nowhere_and_one_of_the_app_is_its_own() {
    exactly(Http::One, Fault::Balancer503, "nowhere", 7);
    exactly(Http::One, Fault::App503, "app_errors", 0);
}

#[test]
fn every_reset_stream_is_counted_and_no_other() {
    exactly(Http::Two, Fault::Reset, "nowhere", 7);
}

#[test]
fn every_cut_body_of_a_stream_is_counted_and_no_other() {
    exactly(Http::Two, Fault::Cut, "cut_short", 7);
    exactly(Http::Two, Fault::App503, "app_errors", 0);
    exactly(Http::Two, Fault::Balancer503, "nowhere", 7);
}

#[test]
fn every_stream_of_a_connection_that_goes_away_is_counted() {
    for k in [1, 10] {
        let server = Server::start(Http::Two, Fault::GoAway, k);
        let ended = measure(&[&server.url("/"), "--http2", "--rate", "100", "--for", "500ms", "--timeout", "60s"]);
        let (total, nowhere, served) = (ended.count("total"), ended.count("nowhere"), ended.count("served"));
        assert_eq!((total, served), (50, server.answered() as u64), "{}", ended.summary());
        assert_eq!(nowhere, total - served);
        assert!(nowhere >= k as u64, "each of {k} connections took a request with it: {nowhere}");
    }
}

#[test]
fn connections_that_end_in_good_order_lose_nothing() {
    for http in [Http::One, Http::Two] {
        let server = Server::start(http, Fault::FewToAConnection, 1);
        let url = server.url("/");
        let mut args = vec![url.as_str(), "--rate", "100", "--for", "1s", "--timeout", "60s"];
        args.extend((http == Http::Two).then_some("--http2"));
        let ended = measure(&args);
        assert_eq!((ended.exit, ended.counts()), (0, vec![("served".to_owned(), 100)]), "{}", ended.summary());
        assert!(server.connections() > 50, "half of them fresh, the others few to a connection");
    }
}

#[test]
fn the_503_of_a_health_path_is_a_drain_signal() {
    let server = Server::start(Http::One, Fault::App503, 5);
    let url = server.url("/health?full=1");
    let ended = measure(&[&url, "--health-path", "/health", "--rate", "50", "--for", "400ms"]);
    let counts = [("drain_signals".to_owned(), 5), ("served".to_owned(), 15)];
    let mut found = ended.counts();
    found.sort();
    assert_eq!((ended.exit, found), (0, counts.to_vec()), "{}", ended.summary());
}

#[test]
fn a_server_that_freezes_shows_in_the_percentiles() {
    let server = Server::start(Http::One, Fault::Freeze, 1);
    let ended = measure(&[&server.url("/"), "--rate", "100", "--for", "3s"]);
    let latency = |name: &str| ended.summary()["latency"][name].as_f64().expect("a latency");
    assert_eq!(ended.counts(), [("served".to_owned(), 300)]);
    // By hand: the requests due during the freeze are 100 of 300, and the one due t into it waits 1 s - t. The 297th of
    // 300 waits 0.97 s. A client that waits for its answers would have one slow request, and a p99 of nothing.
    assert!(latency("p50_seconds") < 0.5, "{}", ended.summary());
    assert!((0.9..3.0).contains(&latency("p99_seconds")), "{}", ended.summary());
    assert!((0.95..3.0).contains(&latency("max_seconds")), "{}", ended.summary());
}

#[test]
fn a_measurer_that_is_held_up_says_so_and_sends_what_was_due() {
    let server = Server::start(Http::One, Fault::App503, 0);
    let mut running = Running::start(&[&server.url("/"), "--rate", "100", "--for", "3s"]);
    running.until("second");
    running.signal(Signal::STOP);
    pause(Duration::from_secs(1));
    running.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.counts(), [("served".to_owned(), 300)], "{}", ended.summary());
    let number = |pointer: &str| ended.summary().pointer(pointer).and_then(Value::as_f64).expect("a number");
    assert!(number("/schedule/late_max_seconds") > 0.9, "{}", ended.summary());
    assert!(number("/latency/max_seconds") > 0.9, "{}", ended.summary());
    assert!(number("/schedule/late_requests") > 50.0, "{}", ended.summary());
    assert!(ended.warnings().iter().any(|what| what.contains("cannot keep the schedule")), "{:?}", ended.warnings());
}

#[test]
fn a_gap_is_bounded_from_both_sides() {
    let mut server = Server::start(Http::One, Fault::App503, 0);
    let mut running = Running::start(&[&server.url("/"), "--rate", "100"]);
    running.until("second");
    server.down();
    let down = Instant::now();
    pause(Duration::from_millis(400));
    let gap = down.elapsed();
    server.up();
    running.until("second");
    running.until("second");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.exit, 7);
    let gaps = ended.summary()["gaps"].as_array().expect("gaps");
    let longest = gaps.iter().max_by_key(|gap| gap["lost"].as_u64()).expect("a gap");
    let number = |name: &str| longest[name].as_f64().unwrap_or_else(|| panic!("no {name}: {longest}"));
    // The margins are for a machine that stops this test between two lines.
    assert!(number("at_most_seconds") + 0.05 >= gap.as_secs_f64(), "{gap:?} does not fit into {longest}");
    assert!(number("at_least_seconds") <= gap.as_secs_f64() + 0.25, "{gap:?} is shorter than {longest}");
    assert!(number("after") <= number("first") && number("first") <= number("last"), "{longest}");
    assert!(number("last") <= number("before"), "{longest}");
    assert!(number("lost") >= 20.0, "{longest}");
}

#[test]
fn each_address_has_gaps_of_its_own() {
    let server = Server::start(Http::One, Fault::App503, 0);
    let closed = TcpListener::bind("127.0.0.2:0").expect("a port").local_addr().expect("an address");
    let (good, bad) = (server.address().to_string(), closed.to_string());
    let args = ["http://shop.example/v", "--connect", &good, "--connect", &bad, "--rate", "100", "--for", "400ms"];
    let ended = measure(&args);
    assert_eq!((ended.exit, ended.count("served"), ended.count("nowhere")), (7, 20, 20));
    let gaps = ended.summary()["gaps"].as_array().expect("gaps");
    let of = |address: &str| gaps.iter().filter(|gap| gap["address"] == address).collect::<Vec<_>>();
    assert_eq!(of(&good).len(), 0);
    assert_eq!((of(&bad).len(), &of(&bad)[0]["lost"], &of(&bad)[0]["before"]), (1, &20.into(), &Value::Null));
    assert!(server.heads().iter().all(|head| head.contains("host: shop.example")), "the URL's own host is asked for");
}

#[test]
fn ipv6_is_asked_like_ipv4() {
    let server = Server::start_at("[::1]:0", Http::One, Fault::App503, 0);
    let ended = measure(&[&server.url("/"), "--rate", "50", "--for", "200ms"]);
    assert_eq!((ended.exit, ended.counts()), (0, vec![("served".to_owned(), 10)]), "{}", ended.summary());
    let achieved = ended.summary()["rate"]["achieved"].as_f64().expect("a rate");
    assert!(achieved > 0.0 && achieved <= 50.0, "the time counts to its end: {}", ended.summary());
}

#[test]
fn tls_is_verified_against_the_given_certificates() {
    for (http, more) in [(Http::TlsOne, None), (Http::TlsTwo, Some("--http2"))] {
        let server = Server::start(http, Fault::App503, 0);
        let (url, ca) = (server.url("/"), tls("ca.pem"));
        let mut args = vec![url.as_str(), "--rate", "50", "--for", "200ms", "--timeout", "60s"];
        args.extend(more);
        let ended = measure(&[args.as_slice(), &["--ca", &ca]].concat());
        assert_eq!((ended.exit, ended.counts()), (0, vec![("served".to_owned(), 10)]), "{}", ended.summary());
        let ended = measure(&args);
        assert_eq!((ended.exit, ended.counts()), (7, vec![("nowhere".to_owned(), 10)]), "{}", ended.summary());
        let told = ended.warnings().iter().any(|what| what.contains("certificate") && what.contains("UnknownIssuer"));
        assert!(told, "{:?}", ended.warnings());
    }
}

#[test]
fn a_server_without_http_2_is_refused_by_name() {
    let server = Server::start(Http::TlsOne, Fault::App503, 0);
    let ended = measure(&[&server.url("/"), "--http2", "--ca", &tls("ca.pem"), "--timeout", "60s"]);
    assert_eq!(ended.exit, 4, "{}", ended.summary());
    let message = ended.summary()["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&server.url("/")) && message.contains("does not speak HTTP/2"), "{message}");
}

#[test]
fn a_host_that_does_not_resolve_is_lost_requests_with_the_cause() {
    let ended = measure(&["http://nothing.invalid/", "--rate", "10", "--for", "300ms", "--timeout", "60s"]);
    assert_eq!((ended.exit, ended.counts()), (7, vec![("nowhere".to_owned(), 3)]), "{}", ended.summary());
    assert!(
        ended.warnings().iter().any(|what| what.contains("nothing.invalid does not resolve")),
        "{:?}",
        ended.warnings()
    );
    let hint = ended.summary()["error"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("nothing was ever answered"), "{hint}");
}

#[test]
fn marks_on_stdin_and_by_signals_tell_deploys_apart() {
    let server = Server::start(Http::One, Fault::App503, 0);
    let mut running = Running::start(&[&server.url("/"), "--rate", "100"]);
    running.until("second");
    running.say("begin v2");
    assert_eq!(running.until("mark")["label"], "v2");
    running.say("what?");
    let warning = running.until("warning");
    assert!(warning["what"].as_str().is_some_and(|what| what.contains("`what?` on stdin is no mark")), "{warning}");
    running.until("second");
    running.say("end");
    assert_eq!(running.until("mark")["mark"], "end");
    running.stdin = None;
    running.until("second");
    running.signal(Signal::USR1);
    assert_eq!(running.until("mark")["mark"], "begin", "the end of stdin ends nothing");
    running.until("second");
    running.signal(Signal::USR2);
    running.until("mark");
    running.until("second");
    running.signal(Signal::INT);
    let ended = running.end();
    let windows = ended.summary()["windows"].as_array().expect("windows");
    let parts: Vec<(&str, Option<&str>)> =
        windows.iter().map(|w| (w["part"].as_str().expect("a part"), w["label"].as_str())).collect();
    let wanted = [("before", None), ("during", Some("v2")), ("between", None), ("during", None), ("after", None)];
    assert_eq!(parts, wanted);
    let totals: Vec<u64> = windows.iter().filter_map(|window| window["requests"]["total"].as_u64()).collect();
    assert!(totals.iter().all(|total| *total > 10), "{totals:?}");
    assert_eq!(totals.iter().sum::<u64>(), ended.count("total"));
    assert_eq!(ended.exit, 0);
}

#[test]
fn the_first_signal_waits_for_answers_and_the_second_does_not() {
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let server = Server::start(Http::One, Fault::App503, 0);
        let mut running = Running::start(&[&server.url("/"), "--rate", "50"]);
        running.until("second");
        running.signal(signal);
        let ended = running.end();
        assert_eq!((ended.exit, ended.count("total")), (0, ended.count("served")), "{}", ended.summary());

        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", silent.local_addr().expect("an address"));
        let mut running = Running::start(&[&url, "--rate", "20", "--timeout", "10m"]);
        running.until("second");
        running.signal(signal);
        running.until("second");
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.exit, exit, "{}", ended.summary());
        assert_eq!(ended.count("client_gone"), ended.count("total"));
    }
}

#[test]
fn what_this_machine_cannot_send_is_not_the_server_s_loss() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    let mut command = Command::new("sh");
    let handover = env!("CARGO_BIN_EXE_handover");
    command.args(["-c", "ulimit -n 90; exec \"$@\"", "sh", handover, "measure", &url]);
    command.args(["--rate", "100", "--for", "1s", "--timeout", "3s"]);
    let ended = Running::of(command).end();
    let not_sent = ended.summary()["schedule"]["not_sent"].as_u64().expect("a count");
    assert!(not_sent > 0, "{}", ended.summary());
    assert_eq!((ended.count("total"), ended.count("client_gone")), (100, not_sent));
    assert_eq!(ended.count("nowhere"), 100 - not_sent);
    assert!(ended.warnings().iter().any(|what| what.contains("could not send")), "{:?}", ended.warnings());
}

#[test]
fn people_are_told_the_same_as_machines() {
    let server = Server::start(Http::One, Fault::Reset, 3);
    let url = server.url("/");
    let output = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(["measure", &url, "--rate", "50", "--for", "1200ms", "--output", "plain"])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{out}{err}");
    for word in ["60 requests: 57 served, 3 reached nowhere", "p99.9 ", "unreachable ", "losses:", "late at p99"] {
        assert!(out.contains(word), "{word} is missing in {out}");
    }
    for word in ["3 lost", "error: 3 of 60 requests were lost"] {
        assert!(err.contains(word), "{word} is missing in {err}");
    }
}

#[test]
fn wrong_arguments_end_with_2_and_say_the_way_out() {
    let ca = tls("make.sh");
    let rows: [(&[&str], &str); 17] = [
        (&["http://x/", "--rate", "0"], "--rate 0"),
        (&["http://x/", "--rate", "-1"], "--rate -1"),
        (&["http://x/", "--rate", "NaN"], "--rate NaN"),
        (&["http://x/", "--rate", "1e9"], "--rate 1000000000"),
        (&["http://x/", "--rate", "many"], "many"),
        (&["http://x/", "--for", "0s"], "--for"),
        (&["http://x/", "--for", "5"], "5s"),
        (&["http://x/", "--timeout", "2h"], "--timeout"),
        (&["ftp://x/"], "http:// or https://"),
        (&["http://x:0/"], "port 0"),
        (&["http://x/", "--connect", "localhost"], "--connect localhost"),
        (&["http://x/", "--header", "Host: y"], "--header Host"),
        (&["http://x/", "--health-path", "health"], "--health-path"),
        (&["http://x/", "--ca", &ca], "--ca"),
        (&["https://x/", "--ca", "/nothing.pem"], "/nothing.pem"),
        (&["https://x/", "--ca", &ca], "holds no certificate"),
        (&["--rate", "5"], "URL"),
    ];
    for (args, word) in rows {
        let ended = measure(args);
        assert_eq!(ended.exit, 2, "{args:?}: {}", ended.summary());
        let error = &ended.summary()["error"];
        assert!(error["message"].as_str().is_some_and(|message| message.contains(word)), "{args:?}: {error}");
    }
}

#[test]
fn what_says_how_requests_are_sent_says_nothing_of_logs() {
    let rows: [&[&str]; 7] = [
        &["--rate", "5"],
        &["--for", "1s"],
        &["--timeout", "1s"],
        &["--http2"],
        &["--ca", "x.pem"],
        &["--header", "a: b"],
        &["--connect", "127.0.0.1"],
    ];
    for option in rows {
        let ended = measure(&[&["--access-log", "/dev/null"], option].concat());
        assert_eq!(ended.exit, 2, "{option:?}: {}", ended.summary());
        let message = ended.summary()["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(option[0]) && message.contains("cannot be used with"), "{option:?}: {message}");
    }
}
