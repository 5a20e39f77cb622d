//! Bytes that nobody meant: everything that reads what comes from elsewhere is fed with mutated samples, and neither panics nor
//! hangs.
//!
//! Drawn from a seed, so that a finding comes again (`HANDOVER_SEED`). A few seconds a target; `HANDOVER_LONG` makes it two minutes,
//! `HANDOVER_FUZZ_SECONDS` as many as it says.

use futures_util::FutureExt as _;
use handover::config::{ComposeFiles, Source, compose_text_problems, from_sources};
use handover::event::journal::{Entry, Journal};
use handover::rollout::port::Balancer as _;
use handover::server::agent::Record;
use handover::server::frame::Reader;
use handover::server::wire::{AgentHello, FromAgent, MAGIC, Reply, Request, ToAgent};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const EXAMPLE: &str = include_str!("../../deploy.toml");
/// Nothing that is tried here takes a hundredth of it.
const HANGS: Duration = Duration::from_secs(20);
/// Longer inputs are cut: what is tried is what they say, not how much.
const LONGEST: usize = 64 * 1024;

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).expect("small")
    }

    /// A sample, changed in one to eight places.
    fn mutant(&mut self, samples: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
        let mut bytes = samples[self.below(samples.len())].clone();
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(40)).min(bytes.len());
            match self.below(9) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = self.next().to_le_bytes()[0],
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    bytes.splice(to..to, piece);
                }
                5 => {
                    let other = &samples[self.below(samples.len())];
                    let from = self.below(other.len());
                    let piece = other[from..(from + self.below(200)).min(other.len())].to_vec();
                    bytes.splice(at..end, piece);
                }
                6 | 7 => drop(bytes.splice(at..at, words[self.below(words.len())].bytes())),
                _ => {
                    let times = 1 << self.below(9);
                    let piece = bytes[at..end.min(at + 4)].repeat(times);
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes.truncate(LONGEST);
        bytes
    }
}

fn seconds() -> Duration {
    let usual = if std::env::var_os("HANDOVER_LONG").is_some() { 120.0 } else { 4.0 };
    let said = std::env::var("HANDOVER_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(said.unwrap_or(usual))
}

fn seed() -> u64 {
    std::env::var("HANDOVER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Tries mutants for a while; every one that panics or hangs is said with its bytes.
fn fuzz(name: &str, samples: &[Vec<u8>], words: &[&str], mut target: impl FnMut(&[u8]) + Send + 'static) {
    let (samples, words) = (samples.to_vec(), words.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (tell, told) = channel::<Result<Vec<u8>, String>>();
    let until = Instant::now() + seconds();
    let tries = std::thread::spawn(move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut dice = Dice(seed());
        let mut tries: u64 = 0;
        while Instant::now() < until {
            let bytes = if tries < samples.len() as u64 {
                samples[usize::try_from(tries).expect("few")].clone()
            } else {
                dice.mutant(&samples, &words)
            };
            tell.send(Ok(bytes.clone())).expect("somebody watches");
            if catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
                let shown = bytes.escape_ascii().to_string();
                tell.send(Err(shown)).expect("somebody watches");
            }
            tries += 1;
        }
        tries
    });
    let mut last = Vec::new();
    loop {
        match told.recv_timeout(HANGS) {
            Ok(Ok(bytes)) => last = bytes,
            Ok(Err(bytes)) => panic!("{name} panics on b\"{bytes}\""),
            Err(RecvTimeoutError::Timeout) => panic!("{name} hangs on b\"{}\"", last.escape_ascii()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let tries = tries.join().expect("it ended");
    #[expect(clippy::print_stderr, reason = "how much was tried is for whoever runs it with --nocapture")]
    {
        eprintln!("{name}: {tries} inputs");
    }
    assert!(tries > 20, "{name}: only {tries} inputs in {:?}", seconds());
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn deploy_toml_of_any_text_is_read_or_refused() {
    let samples =
        texts(&[EXAMPLE, "app = \"x\"\n", "", "[[server]]\nname=\"a\"\nssh=\"b\"\ntargets={a=[{id=\"i\",port=1}]}\n"]);
    let words = [
        "\"",
        "'",
        "[[",
        "]",
        "= ",
        "99999999999999999999",
        "-1",
        "1e308",
        "\"0s\"",
        "\"584542046090y\"",
        "\n",
        "\u{0}",
        "é",
        "{",
        "..",
        "true",
    ];
    fuzz("deploy.toml", &samples, &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match from_sources(&Source::new("deploy.toml", text.clone()), None) {
            Ok(loaded) => assert!(!loaded.fleet.app.is_empty()),
            Err(problems) => assert!(!problems.render(false).is_empty()),
        }
        if let Err(problems) = from_sources(&Source::new("deploy.toml", EXAMPLE), Some(&Source::new("over.toml", text)))
        {
            assert!(!problems.render(false).is_empty());
        }
    });
}

#[test]
fn compose_files_of_any_text_are_read_or_unknown() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/compose");
    let mut samples = texts(&[include_str!("../../compose.yaml")]);
    for place in std::fs::read_dir(folder).expect("fixtures") {
        let file = place.expect("a folder").path().join("compose.yaml");
        samples.extend(std::fs::read(file));
    }
    let words = [
        "&a",
        "*a",
        "<<: ",
        "${A:-${B}}",
        "${",
        "}",
        ": ",
        "- ",
        "\n  ",
        "!reset",
        "!override",
        "1h1m",
        "99999999999999999999s",
        "'",
        "\"",
        "|",
        "---\n",
        "\u{0}",
        "include:",
        "extends:",
    ];
    let fleet = crate::world::fleet(EXAMPLE);
    fuzz("compose", &samples, &words, move |bytes| {
        let text = String::from_utf8_lossy(bytes);
        drop(compose_text_problems(&text, "compose.yaml"));
        // A file that is found under every name includes and extends itself.
        let source = Source::new("compose.yaml", text);
        let files = ComposeFiles::gather("compose.yaml", |_| Some(source.clone()));
        let vars = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        drop(files.lint(&fleet, &vars));
        drop(files.numbers(&fleet, &vars, None).unresolved());
    });
}

fn framed<M: serde::Serialize>(message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    handover::server::frame::write(&mut bytes, message).now_or_never().expect("at once").expect("written");
    bytes
}

#[test]
fn frames_of_any_bytes_are_messages_or_errors() {
    let hello = [MAGIC.to_vec(), framed(&FromAgent::Hello(AgentHello::own()))].concat();
    let answer = framed(&FromAgent::Reply { id: 1, result: Ok(Reply::Journals(vec!["{}".into()])) });
    let asks = [
        ToAgent::Request { id: 1, request: Request::Observe },
        ToAgent::Request { id: 2, request: Request::Start { release: "../../etc".into() } },
        ToAgent::Request { id: 3, request: Request::Lock { wait: Duration::from_secs(3) } },
        ToAgent::Heartbeat,
        ToAgent::Goodbye,
    ];
    let mut samples: Vec<Vec<u8>> = asks.iter().map(framed).collect();
    samples.extend([[hello, answer].concat()]);
    let words = [
        "\u{0}\u{0}\u{0}\u{2}",
        "[[[[[[[[",
        "{\"request\":",
        "null",
        "1e999",
        "\"\\ud800\"",
        "\u{1}HANDOVER-AGENT\u{2}\n",
    ];
    fuzz("frames", &samples, &words, |bytes| {
        for banner in [false, true] {
            let mut reader = Reader::new(bytes, || {});
            let read = async {
                if banner {
                    reader.skip_banner().await?;
                }
                loop {
                    reader.next::<FromAgent>().await?;
                }
            };
            let ended: Result<(), handover::server::frame::FrameError> =
                read.now_or_never().expect("nothing is waited for");
            assert!(!ended.expect_err("every stream ends").to_string().is_empty());
            let mut reader = Reader::new(bytes, || {});
            while reader.next::<ToAgent>().now_or_never().expect("nothing is waited for").is_ok() {}
        }
    });
}

#[test]
fn records_of_any_bytes_are_read_or_refused() {
    let samples = [include_bytes!("fixtures/format-1/record.json").to_vec(), b"{}".to_vec()];
    let dir = tempfile::tempdir().expect("a folder");
    fuzz("records", &samples, &["null", "{", "[[[[[[", "\"idle\"", "-1", "18446744073709551616"], move |bytes| {
        let path = dir.path().join("record.json");
        std::fs::write(&path, bytes).expect("written");
        if let Ok(record) = Record::read(&path) {
            record.write(&path).expect("written");
            assert_eq!(Record::read(&path).expect("read again"), record);
        }
    });
}

#[test]
fn journals_of_any_bytes_are_read_and_put_together() {
    let whole = include_str!("fixtures/format-1/journal.jsonl");
    let samples = texts(&[whole, &whole.replace("web-1", "web-2"), &whole.lines().take(1).collect::<String>()]);
    let words = ["\n", "null", "{\"format\":1,\"journal\":\"head\"", "1e999", "[[[[", "\"began\"", "NaN"];
    fuzz("journals", &samples, &words, move |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let journals = [text.as_ref(), whole, text.as_ref()].into_iter().filter_map(Journal::read);
        for journal in Journal::merge(journals) {
            let lines: String = journal.entries.iter().map(|entry| entry.line() + "\n").collect();
            let again = Journal::read(&(Entry::Head(journal.head.clone()).line() + "\n" + &lines)).expect("a journal");
            assert_eq!(again, journal, "what was read is what is written");
            let _ = (journal.reached(&"web-1".into()), journal.requests());
            assert!(!(journal.is_unfinished() && journal.is_deployed()));
        }
    });
}

#[test]
fn log_lines_of_any_bytes_are_records_or_broken() {
    let all = include_bytes!("fixtures/access-log/all.log");
    let samples: Vec<Vec<u8>> = all.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    fuzz("log lines", &samples, &["\"", "-1", " ", "99999999999999999999", "-", "\\", "T", "Z", "\u{0}"], |bytes| {
        if let Ok(record) = handover::measure::access_log::parse(bytes) {
            assert!(record.method().len() + record.path().len() <= bytes.len() && record.came() < i64::MAX);
        }
    });
}

/// Answers every request with what it is given next.
fn api(answers: std::sync::mpsc::Receiver<Vec<u8>>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let Ok(answer) = answers.recv() else { return };
            let mut asked = [0; 16 * 1024];
            drop(stream.read(&mut asked));
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                answer.len()
            );
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&answer)));
        }
    });
    url
}

#[test]
fn answers_of_the_balancers_api_of_any_bytes_are_read_or_unknown() {
    let health = "<DescribeTargetHealthResponse xmlns=\"x\"><DescribeTargetHealthResult><TargetHealthDescriptions><member><Target><Id>i-1</Id><Port>8080</Port><AvailabilityZone>a</AvailabilityZone></Target><HealthCheckPort>8080</HealthCheckPort><TargetHealth><State>unhealthy</State><Reason>Target.Timeout</Reason><Description>x</Description></TargetHealth></member></TargetHealthDescriptions></DescribeTargetHealthResult></DescribeTargetHealthResponse>";
    let error = "<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
    let (give, answers) = channel();
    let alb = handover::adapters::alb::Alb::lab(&api(answers));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let group = "arn:aws:elasticloadbalancing:lab-1:1:targetgroup/api/1".into();
    let words = [
        "<member>",
        "</member>",
        "&lt;",
        "&#x110000;",
        "&",
        "<![CDATA[",
        "<!DOCTYPE a [<!ENTITY b \"c\">]>",
        "99999999999",
        "-1",
        "Response>",
        "<?",
        "\u{0}",
    ];
    fuzz("ELBv2 answers", &texts(&[health, error]), &words, move |bytes| {
        give.send(bytes.to_vec()).expect("the API listens");
        let seen = runtime.block_on(alb.health(&group));
        if seen.is_ok() {
            assert!(bytes.trim_ascii_end().ends_with(b"Response>"), "it was cut short");
        }
    });
}

#[test]
fn records_and_journals_of_format_1_still_load() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/format-1");
    let record = Record::read(&folder.join("record.json")).expect("a record");
    assert_eq!((record.format, record.drained, record.entries.len()), (1, true, 1));
    assert_eq!(record.state, handover::server::agent::State::Started("9f2c4e7a1b3d".into()));
    let journal = Journal::read(include_str!("fixtures/format-1/journal.jsonl")).expect("a journal");
    assert_eq!((journal.head.servers.len(), journal.end().map(|end| end.0)), (2, Some("deployed")));
    assert!(journal.is_deployed() && !journal.is_unfinished());
    assert_eq!(journal.entries.len(), 4, "nothing of it is passed over");
}
