//! `handover measure URL`: what becomes of requests sent beside any tool's deploys. It reads no deploy.toml.

use super::args::MeasureArgs;
use super::finish;
use super::marks::{self, Said};
use super::signals::Signals;
use crate::clock::{Clock, Stamp};
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Mark, Measured, Sink};
use crate::measure::{MOST_A_SECOND, Prober, ProberOptions, Site, Target, check_ca};
use crate::report::{Format, Reporter, measured_text};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::mpsc;

/// As in deploy.toml.
const RATE: f64 = 20.0;
/// As in deploy.toml.
const TIMEOUT: Duration = Duration::from_secs(10);
/// One request in so long is no measurement.
const LEAST_A_SECOND: f64 = 0.01;
/// As in deploy.toml.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Longer than any server keeps a request.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Files besides the connections of requests.
const OTHER_FILES: u64 = 64;
/// More requests are not under way at a time, whatever the machine allows: they would fill its memory.
const MOST_UNDER_WAY: u64 = 100_000;
/// So many lines that are no marks are told; what is piped in by mistake is told no further.
const WRONG_LINES: u32 = 10;
/// What each connection settles by itself.
const NOT_FOR_USERS: [&str; 6] = ["connection", "content-length", "host", "keep-alive", "te", "transfer-encoding"];

pub(super) async fn run(args: &MeasureArgs, reporter: &Reporter) -> u8 {
    let clock = Clock::start();
    match begin(args, clock) {
        Ok(Begun { prober, marks, signals }) => {
            let run = Run { prober, clock, signals, reporter, wrong_lines: 0 };
            Box::pin(run.carry_on(marks)).await
        }
        Err(problem) => finish::refused(reporter, &problem),
    }
}

/// What a measurement begins with.
struct Begun {
    prober: Prober,
    marks: mpsc::Receiver<Said>,
    signals: Signals,
}

fn begin(args: &MeasureArgs, clock: Clock) -> Result<Begun, Problem> {
    let url = args.url.clone().unwrap_or_default();
    let site = Site::parse(&url).map_err(|error| {
        usage(error.to_string()).hint("write it like `handover measure https://shop.example/version`")
    })?;
    let options = options(args, &site)?;
    let addresses = args.live.connect.iter().map(|text| address(text, site.port)).collect::<Result<Vec<_>, _>>()?;
    let target = Target { url: url.clone(), addresses: Some(addresses).filter(|named| !named.is_empty()) };
    let (signals, marks) = (Signals::listen()?, marks::listen()?);
    let prober = Prober::start(target, &options, clock)
        .map_err(|error| Problem::new(Exit::Refused, format!("{url}: {error}")).hint("nothing was sent"))?;
    Ok(Begun { prober, marks, signals })
}

fn usage(message: impl Into<String>) -> Problem {
    Problem::new(Exit::Usage, message)
}

fn options(args: &MeasureArgs, site: &Site) -> Result<ProberOptions, Problem> {
    let live = &args.live;
    let rate = live.rate.unwrap_or(RATE);
    if !(LEAST_A_SECOND..=MOST_A_SECOND).contains(&rate) {
        let between = format!("it must be between {LEAST_A_SECOND} and {MOST_A_SECOND}, requests a second");
        return Err(usage(format!("--rate {rate}: {between}")).hint("one machine keeps no schedule beyond that"));
    }
    let timeout = within("--timeout", live.timeout.unwrap_or(TIMEOUT), LONGEST_TIMEOUT)?;
    let length = live.length.map(|length| within("--for", length, LONGEST)).transpose()?;
    let ca = live.ca.as_ref().map(|file| {
        if !site.tls {
            return Err(
                usage("--ca: an http:// URL shows no certificate").hint("ask an https:// URL, or leave --ca out")
            );
        }
        let wrong = |error: std::io::Error| usage(format!("--ca {}: {error}", file.display()));
        let pem = std::fs::read(file).map_err(wrong)?;
        check_ca(&pem).map_err(wrong)?;
        Ok(pem)
    });
    Ok(ProberOptions {
        rate,
        timeout,
        health_paths: args.health_path.clone(),
        http2: live.http2,
        ca: ca.transpose()?,
        headers: headers(&live.header)?,
        length,
        most_under_way: most_under_way(),
    })
}

fn within(name: &str, duration: Duration, most: Duration) -> Result<Duration, Problem> {
    if duration.is_zero() || duration > most {
        let hours = most.as_secs() / 3600;
        return Err(usage(format!("{name}: it must be more than nothing and at most {hours}h")));
    }
    Ok(duration)
}

fn headers(texts: &[String]) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::new();
    for text in texts {
        // The value may be a secret: it is not repeated.
        let name = text.split(':').next().unwrap_or_default();
        let wrong = |why: &str| usage(format!("--header {name}: {why}")).hint("write --header 'NAME: VALUE'");
        let (_, value) = text.split_once(':').ok_or_else(|| wrong("there is no `:` in it"))?;
        let key: HeaderName = name.trim().parse().map_err(|_| wrong("no header can be called so"))?;
        if NOT_FOR_USERS.contains(&key.as_str()) {
            return Err(usage(format!("--header {name}: each connection settles it by itself"))
                .hint("the host is the URL's; --connect says where it is asked"));
        }
        let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong("its value cannot be sent"))?;
        headers.append(key, value);
    }
    Ok(headers)
}

fn address(text: &str, port: u16) -> Result<SocketAddr, Problem> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let address = text.parse().or_else(|_| bare.parse().map(|ip: IpAddr| SocketAddr::new(ip, port)));
    address.map_err(|_| {
        usage(format!("--connect {text}: it is no IP address"))
            .hint("write it like 192.0.2.7, 192.0.2.7:8443, 2001:db8::7 or [2001:db8::7]:8443")
    })
}

/// As many connections as may be had, a few files left for the rest.
fn most_under_way() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let wanted = limits.maximum.unwrap_or(MOST_UNDER_WAY + OTHER_FILES).min(MOST_UNDER_WAY + OTHER_FILES);
    if limits.current.is_some_and(|current| current < wanted) {
        // Where it cannot be raised, the limit that there is counts.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limits.maximum });
    }
    let may = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
    usize::try_from(may.saturating_sub(OTHER_FILES).clamp(1, MOST_UNDER_WAY)).unwrap_or(1)
}

/// A measurement that runs.
struct Run<'a> {
    prober: Prober,
    clock: Clock,
    signals: Signals,
    reporter: &'a Reporter,
    wrong_lines: u32,
}

impl Run<'_> {
    async fn carry_on(mut self, mut marks: mpsc::Receiver<Said>) -> u8 {
        let mut signals = self.signals.count.clone();
        let mut next = Stamp::ZERO + Duration::from_secs(1);
        let mut refused = None;
        loop {
            tokio::select! {
                biased;
                Ok(()) = signals.changed() => self.signal(*signals.borrow_and_update()),
                Some(said) = marks.recv() => self.said(said),
                () = self.prober.ended() => break,
                () = self.clock.sleep_until(next) => {
                    next = next + Duration::from_secs(1);
                    self.second();
                }
            }
            refused = refused.or_else(|| self.prober.hopeless());
            if refused.is_some() {
                self.prober.give_up();
            }
        }
        self.second();
        let signals = *signals.borrow();
        self.summary(refused.or_else(|| self.prober.hopeless()), signals)
    }

    fn tell(&self, event: Event) {
        self.reporter.take(Line::new(self.clock.now(), event));
    }

    fn warn(&self, what: String) {
        self.tell(Event::Warning { server: None, what });
    }

    fn second(&self) {
        self.prober.troubles().into_iter().for_each(|what| self.warn(what));
        let second = self.prober.second();
        if second.requests.total > 0 || second.outstanding > 0 {
            self.tell(Event::Second(Box::new(second)));
        }
    }

    /// The first one ends it in the ordinary way, a second one gives up what is under way.
    fn signal(&self, count: u32) {
        if count > 1 {
            return self.prober.give_up();
        }
        self.prober.close();
        self.reporter.note("no more is sent; waiting for the answers that are under way (again: give them up)");
    }

    fn said(&mut self, said: Said) {
        match said {
            Said::Begin(label) => {
                if self.prober.begin(label.clone()) {
                    self.tell(Event::Mark { mark: Mark::Begin, label });
                } else {
                    self.wrong("there were too many marks: no further deploy is told apart".to_owned());
                }
            }
            Said::End if self.prober.end() => self.tell(Event::Mark { mark: Mark::End, label: None }),
            Said::End => self.wrong("a deploy is marked as ended, but none as begun".to_owned()),
            Said::Unknown(line) => {
                self.wrong(format!("`{line}` on stdin is no mark: write `begin`, `begin LABEL` or `end`"));
            }
        }
    }

    fn wrong(&mut self, what: String) {
        self.wrong_lines = self.wrong_lines.saturating_add(1);
        match self.wrong_lines {
            ..=WRONG_LINES => self.warn(what),
            n if n == WRONG_LINES + 1 => self.warn("and so on; further ones are not told".to_owned()),
            _ => {}
        }
    }

    fn summary(&self, refused: Option<String>, signals: u32) -> u8 {
        let measured = self.prober.measured();
        let problem = match refused {
            Some(why) => Some(
                Problem::new(Exit::Refused, format!("{} does not speak HTTP/2: {why}", measured.url))
                    .hint("leave --http2 out to measure it in HTTP/1.1"),
            ),
            None => problem(&measured, signals).map(|problem| self.signals.name(problem)),
        };
        if self.reporter.format() != Format::Json {
            self.reporter.result(&measured_text(&measured));
        }
        finish::ended(self.reporter, problem.as_ref(), &json!(measured))
    }
}

/// What is wrong with what was measured.
fn problem(measured: &Measured, signals: u32) -> Option<Problem> {
    let counts = &measured.requests;
    let (lost, total) = (counts.lost(), counts.total);
    if signals > 1 {
        let message = format!(
            "given up with answers under way; of {total} requests {lost} were lost, {} given up",
            counts.client_gone
        );
        return Some(Problem::new(Exit::Interrupted, message).hint("the first signal waits for them"));
    }
    if lost == 0 {
        return None;
    }
    let problem = Problem::new(Exit::Lost, format!("{lost} of {total} requests were lost"));
    Some(if measured.latency.requests == 0 {
        problem.hint("nothing was ever answered: is the URL right, and may this machine go there?")
    } else {
        problem.hint("the summary says when, how and to which address")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_go_with_or_without_its_port() {
        let rows = [
            ("192.0.2.7", "192.0.2.7:443"),
            ("192.0.2.7:8443", "192.0.2.7:8443"),
            ("2001:db8::7", "[2001:db8::7]:443"),
            ("[2001:db8::7]", "[2001:db8::7]:443"),
            ("[2001:db8::7]:8443", "[2001:db8::7]:8443"),
        ];
        for (text, wanted) in rows {
            assert_eq!(address(text, 443).expect(text).to_string(), wanted);
        }
        for text in ["shop.example", "", "1.2.3", "192.0.2.7:99999"] {
            assert!(address(text, 443).expect_err(text).message.contains("no IP address"));
        }
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_told_without_its_value() {
        let headers = headers(&["X-Tenant: a".into(), "Authorization:Bearer secret".into()]).expect("fine");
        assert_eq!(headers.get("authorization").map(HeaderValue::as_bytes), Some(b"Bearer secret".as_slice()));
        for text in ["no colon", "Host: x", "a b: c", "x: sec\nret", ": v"] {
            let problem = super::headers(&[text.to_owned()]).expect_err(text);
            assert_eq!(problem.exit, Exit::Usage);
            assert!(!problem.message.contains("ret"), "{problem}");
        }
    }
}
