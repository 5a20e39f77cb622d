//! What an HAProxy process says of itself, as values: `show info` and `show stat` in, rows and target states out. Pure.
//!
//! Columns are found by their names: every version adds some (HAProxy management guide, "CSV format").

use crate::fleet::model::{AdminState, OverrideState, TargetId, TargetReason, TargetState, TargetView};
use std::collections::HashMap;
use std::time::Duration;

/// The oldest version whose words are known here.
const OLDEST: (u32, u32) = (2, 4);
/// Columns without which a server would look idle, or in full use, because nothing is said of it.
const NEEDED: [&str; 8] = ["svname", "type", "status", "scur", "qcur", "weight", "bck", "check_status"];
/// What `type` says of a server; listening sockets have lines and names of their own (`option socket-stats`).
const SERVER: &str = "2";

/// One look at one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Look {
    /// Which process: another one has forgotten what it was told.
    pub(super) process: Process,
    /// Its version, e.g. `2.6.12`.
    pub(super) version: String,
    /// Every backend's name.
    pub(super) backends: Vec<String>,
    /// Every server of every backend.
    pub(super) rows: Vec<Row>,
    /// The cookie by which a backend keeps sessions, by backend.
    pub(super) cookies: HashMap<String, String>,
}

/// A process as it says who it is. In a container every one has the same number, so the time that it runs tells, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) uptime: Duration,
}

impl Process {
    /// Whether this one, seen later, began after `earlier` was seen.
    pub(super) fn came_after(self, earlier: Self) -> bool {
        self.pid != earlier.pid || self.uptime < earlier.uptime
    }
}

/// One server as one process sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) backend: String,
    pub(super) server: String,
    pub(super) status: String,
    pub(super) check: String,
    pub(super) code: Option<u16>,
    pub(super) last: String,
    pub(super) sessions: u64,
    pub(super) queued: u64,
    pub(super) since_change: Duration,
    pub(super) throttle: Option<u32>,
    pub(super) weight: Option<u32>,
    pub(super) rise: Option<u32>,
    pub(super) fall: Option<u32>,
    pub(super) backup: bool,
    pub(super) port: Option<u16>,
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// Cut off, empty, not HAProxy's: ask again.
    #[error("{0}")]
    Unclear(String),
    /// Asking again will not help.
    #[error("{0}")]
    Final(String),
}

/// Reads the answer to `show info;show stat`.
pub(super) fn read(text: &str) -> Result<Look, Fault> {
    let Some((info, stat)) = text.split_once("# pxname,") else { return Err(refusal(text)) };
    // The list ends with an empty line; without it the answer was cut off, and a server that is missing would look gone.
    if !stat.ends_with("\n\n") {
        return Err(Fault::Unclear("the answer ends in the middle".into()));
    }
    let info: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(": ")).collect();
    let version = known_version(info.get("Version").copied().unwrap_or_default())?;
    if info.get("Nbproc").is_some_and(|count| *count != "1") {
        let what = "it runs as several processes (`nbproc`), each with a view of its own: use `nbthread` instead";
        return Err(Fault::Final(what.into()));
    }
    if info.get("Stopping").is_some_and(|word| *word == "1") {
        return Err(Fault::Unclear("this process is being replaced by another".into()));
    }
    let pid = info.get("Pid").and_then(|pid| pid.parse().ok());
    let pid = pid.ok_or_else(|| Fault::Unclear("`show info` names no Pid".into()))?;
    let uptime = info.get("Uptime_sec").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let uptime = uptime.ok_or_else(|| Fault::Unclear("`show info` names no Uptime_sec".into()))?;
    let mut lines = stat.lines();
    let head: Vec<&str> = std::iter::once("pxname").chain(lines.next().unwrap_or_default().split(',')).collect();
    if let Some(column) = NEEDED.iter().find(|column| !head.contains(column)) {
        return Err(Fault::Final(format!("HAProxy {version} does not say `{column}` in `show stat`")));
    }
    let process = Process { pid, uptime };
    let mut look = Look { process, version, backends: Vec::new(), rows: Vec::new(), cookies: HashMap::new() };
    for line in lines.filter(|line| !line.is_empty()) {
        let fields = fields(line);
        let field = |name: &str| {
            head.iter().position(|column| *column == name).and_then(|at| fields.get(at)).map_or("", String::as_str)
        };
        match field("svname") {
            "FRONTEND" => {}
            "BACKEND" => {
                look.backends.push(field("pxname").to_owned());
                if !field("cookie").is_empty() {
                    look.cookies.insert(field("pxname").to_owned(), field("cookie").to_owned());
                }
            }
            "" => return Err(Fault::Unclear(format!("a line without a server: `{}`", start(line)))),
            _ if field("type") == SERVER => {
                let row = row(&field);
                look.rows.push(row.ok_or_else(|| Fault::Unclear(format!("a line without counts: `{}`", start(line))))?);
            }
            _ => {}
        }
    }
    Ok(look)
}

/// A server's line; none where it does not say how many sessions there are.
fn row<'a>(field: &impl Fn(&str) -> &'a str) -> Option<Row> {
    let number = |name: &str| field(name).parse::<u64>().ok();
    let small = |name: &str| field(name).parse::<u32>().ok();
    Some(Row {
        backend: field("pxname").to_owned(),
        server: field("svname").to_owned(),
        status: field("status").to_owned(),
        // `* ` says that a check is under way.
        check: field("check_status").trim_start_matches("* ").to_owned(),
        code: field("check_code").parse().ok(),
        last: field("last_chk").to_owned(),
        sessions: number("scur")?,
        queued: number("qcur")?,
        since_change: Duration::from_secs(number("lastchg").unwrap_or(0)),
        throttle: small("throttle"),
        weight: small("uweight").or_else(|| small("weight")),
        rise: small("check_rise"),
        fall: small("check_fall"),
        backup: field("bck") == "1",
        port: field("addr").rsplit_once(':').and_then(|(_, port)| port.parse().ok()),
    })
}

/// A line of CSV; quotes stand around fields with commas in them.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(field) = fields.last_mut() else { break };
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => field.push(letter),
        }
    }
    fields
}

/// What HAProxy says instead of an answer.
pub(super) fn refusal(text: &str) -> Fault {
    let said = start(text.trim());
    match text.trim() {
        "" => Fault::Unclear("an empty answer".into()),
        text if text.contains("Permission denied") => {
            Fault::Final(format!("{said} (its `stats socket` line needs `level admin`)"))
        }
        text if text.contains("No such") || text.starts_with("Unknown command") => Fault::Final(said),
        _ => Fault::Unclear(format!("it answered `{said}`")),
    }
}

fn start(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(120).collect()
}

fn known_version(text: &str) -> Result<String, Fault> {
    let short: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let mut parts = short.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST => Ok(short),
        (Some(Ok(_)), Some(Ok(_))) => {
            Err(Fault::Final(format!("HAProxy {short} is too old: {}.{} or newer is needed", OLDEST.0, OLDEST.1)))
        }
        _ => Err(Fault::Unclear("`show info` names no version".into())),
    }
}

impl Row {
    /// The state in the words that all balancers share. `lets_go` is how HAProxy is told to let go, where it is; `delay` is
    /// how long sessions may then go on.
    pub(super) fn view(&self, port: u16, lets_go: Option<AdminState>, delay: Duration) -> TargetView {
        let (state, reason, description) = self.state(lets_go, delay);
        TargetView {
            id: TargetId::new(self.server.as_str()),
            port: self.port.unwrap_or(port),
            zone: None,
            state,
            reason,
            description,
            shift: OverrideState::None,
        }
    }

    fn state(
        &self,
        lets_go: Option<AdminState>,
        delay: Duration,
    ) -> (TargetState, Option<TargetReason>, Option<String>) {
        let plain = |state| (state, None, Some(self.words()));
        match self.status.split(' ').next().unwrap_or_default() {
            "UP" if self.weight == Some(0) => plain(TargetState::Other("weight 0".into())),
            "UP" if self.backup => plain(TargetState::Other("backup".into())),
            "UP" if self.throttle.is_some_and(|share| share < 100) => plain(TargetState::Other("slow start".into())),
            "UP" if matches!(self.check.as_str(), "" | "UNK" | "INI" | "SOCKERR") => plain(TargetState::Initial),
            // After maintenance it is up before its first check, and shows the last one from before (measured, 2.6.12).
            "UP" if self.status != "UP" && self.check.ends_with("OK") => plain(TargetState::Initial),
            "UP" => plain(TargetState::Healthy),
            "DOWN" => (TargetState::Unhealthy, Some(self.reason()), Some(self.words())),
            "DRAIN" | "MAINT" => plain(self.admin(lets_go, delay)),
            "no" => plain(TargetState::Unavailable),
            word => plain(TargetState::Other(word.to_lowercase())),
        }
    }

    /// Out of use is what we told HAProxy; somebody else's maintenance is not ours to end, and a server that drains where
    /// it was to be in maintenance still gets persistent sessions.
    fn admin(&self, lets_go: Option<AdminState>, delay: Duration) -> TargetState {
        let idle = self.sessions == 0 && self.queued == 0;
        let ours = match lets_go {
            None => false,
            Some(AdminState::Maint) => self.status == "MAINT",
            Some(AdminState::Drain) => !self.status.contains('('),
        };
        if ours && (idle || self.since_change >= delay) { TargetState::Unused } else { TargetState::Draining }
    }

    fn reason(&self) -> TargetReason {
        match self.check.as_str() {
            "L7STS" => TargetReason::ResponseCodeMismatch,
            "L4TOUT" | "L6TOUT" | "L7TOUT" => TargetReason::Timeout,
            "L4CON" => TargetReason::FailedHealthChecks,
            other => TargetReason::Other(other.to_owned()),
        }
    }

    /// HAProxy's own words.
    fn words(&self) -> String {
        let mut words = self.status.clone();
        if !self.check.is_empty() {
            words = format!("{words}, {}", self.check);
        }
        if let Some(code) = self.code {
            words = format!("{words} {code}");
        }
        if !self.last.is_empty() {
            words = format!("{words}, {}", start(&self.last));
        }
        match self.sessions + self.queued {
            0 => words,
            1 => format!("{words}, 1 session"),
            many => format!("{words}, {many} sessions"),
        }
    }

    /// Whether the check looks at an answer: one that only connects never sees a 503.
    pub(super) fn checks_answers(&self) -> bool {
        !matches!(self.check.as_str(), "L4OK" | "L6OK")
    }
}

/// The views of several nodes as one: a state is only what all of them say.
pub(super) fn merge(mut views: Vec<(String, Vec<TargetView>)>) -> Vec<TargetView> {
    if views.len() == 1 {
        return views.pop().map(|(_, views)| views).unwrap_or_default();
    }
    let mut keys: Vec<(TargetId, u16)> =
        views.iter().flat_map(|(_, targets)| targets).map(|target| (target.id.clone(), target.port)).collect();
    keys.sort();
    keys.dedup();
    let of = |(id, port): &(TargetId, u16)| {
        let each: Vec<(&str, Option<&TargetView>)> = views
            .iter()
            .map(|(node, targets)| (node.as_str(), targets.iter().find(|t| t.id == *id && t.port == *port)))
            .collect();
        merge_one(id, *port, &each)
    };
    keys.iter().map(of).collect()
}

fn merge_one(id: &TargetId, port: u16, each: &[(&str, Option<&TargetView>)]) -> TargetView {
    let words = |target: Option<&TargetView>| match target {
        None => "not there".to_owned(),
        Some(target) => target.description.clone().unwrap_or_else(|| format!("{:?}", target.state).to_lowercase()),
    };
    let description = each.iter().map(|(node, t)| format!("{node}: {}", words(*t))).collect::<Vec<_>>().join("; ");
    // A node that does not know it sends it nothing.
    let states: Vec<TargetState> =
        each.iter().map(|(_, t)| t.map_or(TargetState::Unused, |target| target.state.clone())).collect();
    let all = |wanted: &[TargetState]| states.iter().all(|state| wanted.contains(state));
    let state = match states.first() {
        Some(first) if all(std::slice::from_ref(first)) => first.clone(),
        _ if all(&[TargetState::Unused, TargetState::Unhealthy]) => TargetState::Unhealthy,
        _ if all(&[TargetState::Healthy, TargetState::Initial]) => TargetState::Initial,
        _ if all(&[TargetState::Unused, TargetState::Draining]) => TargetState::Draining,
        _ => TargetState::Other("different from node to node".into()),
    };
    let reasons = || each.iter().filter_map(|(_, target)| target.and_then(|target| target.reason.clone()));
    let ours = TargetReason::ResponseCodeMismatch;
    let reason = reasons().find(|reason| *reason != ours).or_else(|| reasons().next());
    let zone = each.iter().find_map(|(_, target)| target.and_then(|target| target.zone.clone()));
    TargetView { id: id.clone(), port, zone, state, reason, description: Some(description), shift: OverrideState::None }
}
