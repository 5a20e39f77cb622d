//! A deploy.toml for a fleet that has none: what is known, written with the key table's own sentence above each line, and with the
//! reason where a value is somebody's word or nobody's.
//!
//! It may ask nobody; what goes in was found by others. What comes out is read by the parser like every other file.

use super::compose::{ComposeOffer, HealthTest, ServiceOffer};
use super::keys;
use crate::fleet::model::{BalancerKind, Group, TargetId, show_duration};
use crate::fleet::timing;
use std::collections::BTreeSet;
use std::time::Duration;
use toml::Value;

/// The deploy's own margin (facts of the key table).
const MARGIN: Duration = Duration::from_secs(10);
/// Whole numbers that a person can remember.
const ROUND: u64 = 5;

/// What is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The app.
    pub app: String,
    /// The compose file's name.
    pub compose: String,
    /// What it offers.
    pub offer: ComposeOffer,
    /// Who sends the traffic.
    pub kind: BalancerKind,
    /// `balancer.region`.
    pub region: Option<String>,
    /// `balancer.endpoint`.
    pub endpoint: Option<String>,
    /// `balancer.nodes`.
    pub nodes: Vec<String>,
    /// The groups, each with whether the balancer said so itself.
    pub groups: Vec<(Group, bool)>,
    /// The servers.
    pub servers: Vec<ServerOffer>,
    /// Whether health can be made to fail by a file; else the balancer is told to let go.
    pub by_file: bool,
    /// A path that answers real traffic.
    pub real: String,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOffer {
    /// Its name.
    pub name: String,
    /// Whatever `ssh` accepts.
    pub ssh: String,
    /// What the balancer calls it.
    pub targets: Vec<TargetId>,
    /// Its zone.
    pub zone: Option<String>,
    /// Where all this is from.
    pub why: String,
}

/// The file.
#[must_use]
pub fn proposal(known: &Proposal) -> String {
    let mut page = Page { out: String::new(), told: BTreeSet::new() };
    page.out.push_str("# Proposed by `handover init`. Every line is explained once; docs/reference.md has the keys that are not here.\n\n");
    page.line("", "app", &quoted(&known.app), "");
    release(&mut page, known);
    balancer(&mut page, known);
    if known.kind != BalancerKind::None {
        drain(&mut page, known);
    }
    for one in known.offer.services.iter().filter(|one| !one.one_shot) {
        service(&mut page, known, one);
    }
    for one in known.offer.services.iter().filter(|one| one.one_shot) {
        page.out.push_str(&format!(
            "\n# {} ends by itself (nothing restarts it, and it has no port): a deploy waits for its end, and it needs no [[service]].\n",
            one.name
        ));
    }
    for one in &known.servers {
        page.table("[[server]]", &one.why);
        page.line("server", "name", &quoted(&one.name), "");
        page.line("server", "ssh", &quoted(&one.ssh), "");
        match one.targets.as_slice() {
            [] => {}
            [target] => page.line("server", "target", &quoted(target.as_str()), ""),
            several => page.line("server", "target", &list(several.iter().map(TargetId::as_str)), ""),
        }
        if let Some(zone) = &one.zone {
            page.line("server", "zone", &quoted(zone), "");
        }
    }
    page.out
}

struct Page {
    out: String,
    /// What was explained already.
    told: BTreeSet<(String, String)>,
}

impl Page {
    fn table(&mut self, head: &str, why: &str) {
        self.out.push('\n');
        if !why.is_empty() {
            self.out.push_str(&format!("# {why}\n"));
        }
        self.out.push_str(&format!("{head}\n"));
    }

    /// A key with its sentence, the first time, and with where the value is from.
    fn line(&mut self, table: &str, name: &str, value: &str, why: &str) {
        if let Some(key) = keys::find(table, name)
            && self.told.insert((table.to_owned(), name.to_owned()))
        {
            self.out.push_str(&format!("# {}\n", key.doc.split(" ([").next().unwrap_or(key.doc)));
        }
        if !why.is_empty() {
            self.out.push_str(&format!("# {why}\n"));
        }
        self.out.push_str(&format!("{name} = {value}\n"));
    }
}

fn release(page: &mut Page, known: &Proposal) {
    let offer = &known.offer;
    page.table("[release]", "");
    page.line("release", "compose", &quoted(&known.compose), "");
    for (name, values) in [("files", &offer.files), ("env", &offer.env), ("vars", &offer.vars)] {
        if !values.is_empty() {
            let why = format!("Named in {}.", known.compose);
            page.line("release", name, &list(values.iter().map(String::as_str)), &why);
        }
    }
    page.table("[rolling]", "");
    page.line("rolling", "batch", "1", "");
    page.line("rolling", "min_healthy", if known.servers.len() > 1 { "1" } else { "0" }, "");
    page.line("rolling", "on_failure", "\"rollback\"", "");
}

fn balancer(page: &mut Page, known: &Proposal) {
    page.table("[balancer]", "");
    let kind = match known.kind {
        BalancerKind::Alb => "alb",
        BalancerKind::Haproxy => "haproxy",
        BalancerKind::None => "none",
    };
    page.line("balancer", "kind", &quoted(kind), "");
    for (name, value) in [("region", &known.region), ("endpoint", &known.endpoint)] {
        if let Some(value) = value {
            page.line("balancer", name, &quoted(value), "");
        }
    }
    if !known.nodes.is_empty() {
        page.line("balancer", "nodes", &list(known.nodes.iter().map(String::as_str)), "");
    }
    for (group, asked) in &known.groups {
        let why = match asked {
            true => "As the balancer itself says it is set.",
            false => {
                "Nobody was asked: what the balancer really says, `handover check --live` compares and `handover provision` shows."
            }
        };
        page.table("[[balancer.group]]", why);
        page.line("balancer.group", "name", &quoted(group.name.as_str()), "");
        page.line("balancer.group", "port", &group.port.to_string(), "");
        page.line("balancer.group", "health", &health(group), "");
        if known.kind == BalancerKind::Alb {
            page.line("balancer.group", "deregistration_delay", &time(group.deregistration_delay), "");
        }
        if !group.cross_zone {
            page.line("balancer.group", "cross_zone", "false", "");
        }
        if known.kind == BalancerKind::Alb && group.fail_open_count != 1 {
            page.line("balancer.group", "fail_open_count", &group.fail_open_count.to_string(), "");
        }
        if let Some(percent) = group.fail_open_percent {
            page.line("balancer.group", "fail_open_percent", &percent.to_string(), "");
        }
        if !group.slow_start.is_zero() {
            page.line("balancer.group", "slow_start", &time(group.slow_start), "");
        }
    }
}

fn health(group: &Group) -> String {
    let (check, settings) = (&group.health, group.health.settings);
    let port = check.port.map(|port| format!(", port = {port}")).unwrap_or_default();
    format!(
        "{{ path = {}{port}, interval = {}, timeout = {}, unhealthy = {}, healthy = {} }}",
        quoted(&check.path),
        time(settings.interval),
        time(settings.timeout),
        settings.unhealthy,
        settings.healthy
    )
}

fn drain(page: &mut Page, known: &Proposal) {
    let longest =
        |of: &dyn Fn(&Group) -> Duration| known.groups.iter().map(|(group, _)| of(group)).max().unwrap_or_default();
    page.table("[drain]", "");
    if known.by_file {
        page.line(
            "drain",
            "by",
            "\"file\"",
            "Your app has to look for the file; one that cannot is drained by \"deregister\".",
        );
        page.line("drain", "file", &quoted(&format!("/run/{}/drain", known.app)), "");
        let port = known.groups.first().map_or(80, |(group, _)| group.port);
        let why = "Yours to say: a path of real traffic, not the health check; one that names the release proves more.";
        page.line("drain", "real", &quoted(&format!("http://127.0.0.1:{port}{}", known.real)), why);
        let serve = longest(&|group| timing::out_nominal(&group.health.settings)).max(Duration::from_secs(15));
        page.line("drain", "serve", &time(rounded(serve)), "At least what the balancer's nodes need to notice.");
    } else {
        page.line("drain", "by", "\"deregister\"", "");
    }
    let bound = longest(&|group| timing::out_bound(&group.health.settings, MARGIN));
    let delay = if known.by_file { Duration::ZERO } else { longest(&|group| group.deregistration_delay) };
    let max = (bound + Duration::from_secs(30)).max(delay * 2 + MARGIN * 2).max(Duration::from_secs(150));
    page.line("drain", "max", &time(rounded(max)), "");
    page.line("drain", "margin", &time(MARGIN), "");
}

fn service(page: &mut Page, known: &Proposal, one: &ServiceOffer) {
    page.table("[[service]]", "");
    page.line("service", "name", &quoted(&one.name), "");
    let own: Vec<&Group> = known
        .groups
        .iter()
        .map(|(group, _)| group)
        .filter(|g| one.ports.iter().any(|(here, _)| *here == g.port))
        .collect();
    match own.as_slice() {
        [] => {}
        [group] => page.line("service", "group", &quoted(group.name.as_str()), ""),
        several => page.line("service", "group", &list(several.iter().map(|group| group.name.as_str())), ""),
    }
    let (verify, why) = verify(known, one, own.first().copied());
    page.line("service", "verify", &verify, why);
    let shutdown = one.grace.min(Duration::from_secs(10));
    let grace = show_duration(one.grace);
    page.line("service", "shutdown", &time(shutdown), &format!("Yours to say; {} gives it {grace}.", known.compose));
    page.line("service", "deadline", "\"60s\"", "");
}

fn verify(known: &Proposal, one: &ServiceOffer, group: Option<&Group>) -> (String, &'static str) {
    let http = |port: u16, path: &str| format!("{{ http = {} }}", quoted(&format!("http://127.0.0.1:{port}{path}")));
    if let Some(group) = group {
        return (
            http(group.port, &known.real),
            "The same path as `drain.real`, or a better one: add json = { version = \"{release}\" } where it says which release runs.",
        );
    }
    if let Some((port, path)) = one.checked() {
        return (http(port, path), "What its health check in the compose file asks.");
    }
    match (&one.test, one.ports.first()) {
        (Some(HealthTest::Command(argv)), _) => {
            (format!("{{ exec = {} }}", list(argv.iter().map(String::as_str))), "Its health check in the compose file.")
        }
        (_, Some((port, _))) => {
            (format!("{{ tcp = \"127.0.0.1:{port}\" }}"), "Only that somebody listens: a URL proves more.")
        }
        (_, None) => (
            "{ exec = [\"true\"] }".to_owned(),
            "Only that its container runs: a command that looks at its work proves more.",
        ),
    }
}

fn rounded(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().div_ceil(ROUND) * ROUND)
}

fn time(time: Duration) -> String {
    quoted(&show_duration(time))
}

fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", texts.map(quoted).collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
