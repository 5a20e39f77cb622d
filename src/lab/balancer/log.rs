//! The truth: what became of every request that reached a node, whoever sent it. Counted, and on wish written down in
//! the 30 fields of an ALB's access log.

use super::core::Core;
use super::lock;
use super::model::Place;
use crate::clock::Stamp;
use crate::event::{Requests, seconds};
use crate::fleet::model::GroupName;
use crate::measure::classify::{self, Class, Outcome, Who};
use hyper::Request;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderName, USER_AGENT};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// So many losses are kept with their circumstances.
const KEPT: usize = 100;

/// What became of all requests.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct Truth {
    /// How many there were.
    pub total: u64,
    /// How many reached nowhere.
    pub nowhere: u64,
    /// By class.
    pub classes: Requests,
    /// How many were sent to a target only because too few were healthy.
    pub fail_open: u64,
    /// How many reached nowhere, by cause.
    pub causes: BTreeMap<String, u64>,
    /// The first hundred that were lost.
    pub losses: Vec<LostRequest>,
}

/// A request that was lost.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LostRequest {
    /// When it came, in seconds of fleet time.
    pub at: f64,
    /// To which node.
    pub node: usize,
    /// For which group.
    pub group: GroupName,
    /// Meant for which target, as `id:port`.
    pub target: Option<String>,
    /// What the client got.
    pub status: u16,
    /// Why.
    pub cause: String,
}

/// The log of a balancer.
#[derive(Debug)]
pub(super) struct Log {
    truth: Mutex<Truth>,
    file: Option<Mutex<BufWriter<File>>>,
    balancer: String,
    next: AtomicU64,
}

impl Log {
    pub(super) fn new(file: Option<&Path>, balancer: String) -> io::Result<Self> {
        let file = file.map(File::create).transpose()?.map(|file| Mutex::new(BufWriter::new(file)));
        Ok(Self { truth: Mutex::default(), file, balancer, next: AtomicU64::new(1) })
    }

    pub(super) fn truth(&self) -> Truth {
        lock(&self.truth).clone()
    }

    pub(super) fn flush(&self) {
        if let Some(file) = &self.file {
            // A log that cannot be written is no reason to fail what it is about.
            drop(lock(file).flush());
        }
    }

    /// An id for `X-Amzn-Trace-Id`: `Root=1-SECONDS-24 hex digits`.
    pub(super) fn trace(&self) -> String {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        format!("Root=1-{seconds:08x}-{:024x}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// One request on its way; the log learns of it when it is finished, or dropped because the client went away.
#[derive(Debug)]
pub(super) struct Ticket {
    core: Arc<Core>,
    facts: Box<Facts>,
    finished: bool,
}

#[derive(Debug)]
struct Facts {
    node: usize,
    group: GroupName,
    at: Stamp,
    wall: SystemTime,
    client: SocketAddr,
    line: String,
    host: String,
    agent: String,
    trace: String,
    health: bool,
    received: u64,
    target: Option<(Place, Option<SocketAddr>)>,
    fail_open: bool,
    sent_at: Option<Stamp>,
    headers_at: Option<(Stamp, u16)>,
    sent: u64,
}

impl Ticket {
    pub(super) fn open<B>(
        core: &Arc<Core>,
        node: usize,
        group: &GroupName,
        client: SocketAddr,
        trace: String,
        request: &Request<B>,
    ) -> Self {
        let header =
            |name: HeaderName| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
        let host = header(HOST);
        let path = request.uri().path();
        let facts = Facts {
            node,
            group: group.clone(),
            at: core.clock.now(),
            wall: SystemTime::now(),
            client,
            line: format!("{} http://{host}{} {:?}", request.method(), request.uri(), request.version()),
            health: core.group(group).is_some_and(|g| g.path.split('?').next() == Some(path)),
            host,
            agent: header(USER_AGENT),
            trace,
            received: header(CONTENT_LENGTH).parse().unwrap_or(0),
            target: None,
            fail_open: false,
            sent_at: None,
            headers_at: None,
            sent: 0,
        };
        Self { core: Arc::clone(core), facts: Box::new(facts), finished: false }
    }

    pub(super) fn target(&mut self, place: Place, address: Option<SocketAddr>, fail_open: bool) {
        self.facts.target = Some((place, address));
        self.facts.fail_open = fail_open;
    }

    /// The request was given to the target.
    pub(super) fn sent(&mut self) {
        self.facts.sent_at = Some(self.core.clock.now());
    }

    /// The target's headers came.
    pub(super) fn headers(&mut self, status: u16) {
        self.facts.headers_at = Some((self.core.clock.now(), status));
    }

    /// So many bytes went to the client.
    pub(super) fn bytes(&mut self, count: usize) {
        self.facts.sent += count as u64;
    }

    /// The balancer answered by itself.
    pub(super) fn own(mut self, status: u16, cause: &str) {
        let outcome = Outcome::Answer { status, who: Who::Balancer, health: false, whole: true };
        self.finish(status, None, outcome, cause);
    }

    /// The target's answer was passed on, whole or broken off.
    pub(super) fn passed(&mut self, whole: bool, cause: &str) {
        let Some((_, status)) = self.facts.headers_at else { return };
        let outcome = Outcome::Answer { status, who: Who::App, health: self.facts.health, whole };
        self.finish(status, Some(status), outcome, cause);
    }

    fn finish(&mut self, status: u16, target_status: Option<u16>, outcome: Outcome, cause: &str) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let class = classify::classify(outcome);
        self.count(class, status, cause);
        if let Some(file) = &self.core.log.file {
            let line = self.line(status, target_status);
            drop(writeln!(lock(file), "{line}"));
        }
    }

    fn count(&self, class: Class, status: u16, cause: &str) {
        let mut truth = lock(&self.core.log.truth);
        classify::count(&mut truth.classes, class);
        truth.total = truth.classes.total;
        truth.nowhere = truth.classes.nowhere;
        truth.fail_open += u64::from(self.facts.fail_open);
        if !matches!(class, Class::Nowhere | Class::CutShort) {
            return;
        }
        *truth.causes.entry(format!("{status} {cause}")).or_default() += 1;
        if truth.losses.len() < KEPT {
            truth.losses.push(LostRequest {
                at: seconds(self.facts.at.since_start()),
                node: self.facts.node,
                group: self.facts.group.clone(),
                target: self.facts.target.as_ref().map(|((id, port), _)| format!("{id}:{port}")),
                status,
                cause: cause.to_owned(),
            });
        }
    }

    /// The fields as the AWS user guide lists them (load-balancer-access-logs); times in seconds of fleet time.
    fn line(&self, status: u16, target_status: Option<u16>) -> String {
        let facts = &self.facts;
        let now = self.core.clock.now();
        let stamp = |at: SystemTime| humantime::format_rfc3339_micros(at).to_string();
        let took = |from: Stamp, to: Stamp| format!("{:.3}", to.since(from).as_secs_f64());
        let never = || "-1".to_owned();
        let connected = facts.sent_at;
        let times = [
            connected.map_or_else(never, |sent| took(facts.at, sent)),
            connected.map_or_else(never, |sent| took(sent, facts.headers_at.map_or(now, |(at, _)| at))),
            facts.headers_at.map_or_else(never, |(at, _)| took(at, now)),
        ];
        let target =
            facts.target.as_ref().and_then(|(_, address)| *address).map_or_else(|| "-".to_owned(), |a| a.to_string());
        let target_status = target_status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        format!(
            "http {} {} {} {target} {} {status} {target_status} {} {} \"{}\" \"{}\" - - {} \"{}\" \"{}\" \"-\" 0 {} \"forward\" \
             \"-\" \"-\" \"{target}\" \"{target_status}\" \"-\" \"-\" TID_{:032x}",
            stamp(SystemTime::now()),
            self.core.log.balancer,
            facts.client,
            times.join(" "),
            facts.received,
            facts.sent,
            quoted(&facts.line),
            quoted(&facts.agent),
            self.core.names.group_arn(&facts.group),
            facts.trace,
            quoted(&facts.host),
            stamp(facts.wall),
            u128::from(facts.client.port()),
        )
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Dropped on its way: hyper gave the request up because the client closed its connection.
        let (status, target) = self.facts.headers_at.map_or((460, None), |(_, status)| (status, Some(status)));
        self.finish(status, target, Outcome::Stopped, "the client went away");
    }
}

fn quoted(text: &str) -> String {
    text.replace('"', "%22")
}
