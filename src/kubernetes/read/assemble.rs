//! What was read of each file, put together: for every HPA that goes to zero the numbers of its wake, and what is wrong besides.

use super::caddy::{self, Proxy};
use super::hpa::{self, Hpa};
use super::prometheus::{self, Alarm, Job, Recorded, Shown};
use super::promql::{Says, says};
use super::{Document, Given, Places};
use crate::config::{Place, Problems};
use crate::fleet::model::Known;
use crate::fleet::timing::{Part, START, Scaler, Scraped, Severity, Told, Waiter, Wake};
use crate::kubernetes::fault::Fault;
use std::collections::BTreeMap;
use std::time::Duration;

/// What no file says.
#[derive(Debug, Clone)]
pub struct Besides {
    /// The p99 of a pod's start, where somebody measured it.
    pub start: Option<Duration>,
    /// How long the balancer in front waits.
    pub balancer: Duration,
    /// How long the least patient client waits.
    pub patience: Duration,
    /// How long the name service remembers that a name is missing.
    pub missing: Duration,
    /// How many requests a second monitoring and health checks make of the host, as the edge counts them.
    pub probes: Option<f64>,
}

/// What the files say.
#[derive(Debug)]
pub struct Read {
    /// One for each HPA that goes to zero.
    pub wakes: Vec<Wake>,
    /// What is wrong.
    pub faults: Vec<Fault>,
    places: BTreeMap<String, Place>,
}

impl Read {
    /// Where a number stands.
    #[must_use]
    pub fn place(&self, key: &str) -> Option<Place> {
        self.places.get(key).cloned()
    }
}

/// The adapter's own, unless its flags are among the files (prometheus-adapter, README).
const RELIST: Duration = Duration::from_secs(600);
/// The controller's own.
const SYNC: Duration = Duration::from_secs(15);
const QUESTION: Duration = Duration::from_secs(1);
/// What a restart of an edge takes, and how often kube-state-metrics is asked, where nobody says so.
const RESTART: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Parts {
    hpas: Vec<Hpa>,
    proxies: Vec<Proxy>,
    has_caddy: bool,
    jobs: Vec<Job>,
    recorded: Vec<Recorded>,
    alarms: Vec<Alarm>,
    has_rules: bool,
    shown: Vec<Shown>,
    has_adapter: Option<Place>,
    relist: Option<Told<Duration>>,
    max_age: Option<Told<Duration>>,
}

/// Reads files, in any order.
///
/// # Errors
/// The first file that is no YAML.
pub fn read(given: &[Given], besides: &Besides) -> Result<Read, Problems> {
    let (mut places, mut faults, mut parts) = (Places::default(), Vec::new(), Parts::default());
    let mut documents = Vec::new();
    for file in given {
        documents.extend(Document::all(file).map_err(|problem| Problems::from(*problem))?);
    }
    for document in &documents {
        let node = &document.node;
        parts.hpas.extend(hpa::read(document, &mut places, &mut faults));
        if node.get("apps").is_some() {
            parts.has_caddy = true;
            parts.proxies.extend(caddy::read(document, &mut places, &mut faults));
        }
        parts.jobs.extend(prometheus::jobs(document, &mut places, &mut faults));
        if node.get("groups").is_some() {
            parts.has_rules = true;
            let (recorded, alarms) = prometheus::rules(document, &mut places);
            parts.recorded.extend(recorded);
            parts.alarms.extend(alarms);
        }
        if let Some(rules) = node.get("externalRules") {
            parts.has_adapter = Some(document.place(&rules.span, ""));
            parts.shown.extend(prometheus::shown(document, &mut faults));
        }
        let (relist, max_age) = hpa::flags(document, &mut places);
        parts.relist = relist.or(parts.relist);
        parts.max_age = max_age.or(parts.max_age);
    }
    documents.iter().for_each(|document| hpa::replicas(document, &parts.hpas, &mut faults));
    alarms(&parts, &mut faults);
    let hpas = std::mem::take(&mut parts.hpas);
    let wakes = hpas.iter().map(|hpa| wake(hpa, &parts, besides, &mut faults)).collect();
    faults.sort_by_key(|fault| fault.place.as_ref().map(|place| (place.source.name.clone(), place.span.start)));
    faults.dedup();
    Ok(Read { wakes, faults, places: places.0 })
}

/// Without the alarm of an HPA that lost its metric a backend sleeps for ever, and nobody is told.
fn alarms(parts: &Parts, faults: &mut Vec<Fault>) {
    if parts.has_rules
        && !parts.alarms.is_empty()
        && !parts.alarms.iter().any(|alarm| alarm.expr.contains("ScalingActive"))
    {
        let what = "no alarm looks at ScalingActive: an HPA that cannot read its metric leaves its backend asleep for ever, and nobody is told";
        faults.push(Fault::new(
            "no-inactive-alarm",
            Severity::Warning,
            None,
            what,
            "`handover sleep render` writes one",
        ));
    }
}

fn wake(hpa: &Hpa, parts: &Parts, besides: &Besides, faults: &mut Vec<Fault>) -> Wake {
    let signal = Signal::of(hpa, parts, faults);
    let proxy = proxy(hpa, parts);
    let unknown = |what: &str| match parts.has_caddy {
        true => Told::unknown(format!("no reverse_proxy of the given Caddy is for its host: {what}")),
        false => Told::unknown("no Caddy configuration was given"),
    };
    let of =
        |read: fn(&Proxy) -> &Told<Duration>, what: &str| proxy.map_or_else(|| unknown(what), |one| read(one).clone());
    let (retry, dial) = (of(|one| &one.retry, "retry"), of(|one| &one.dial, "dial"));
    let waiter = |who, waits, key: &str| Waiter { who, waits: Told::new(waits, key) };
    Wake {
        tenant: hpa.name.clone(),
        hold: of(|one| &one.hold, "hold"),
        waiters: vec![
            waiter("your balancer", besides.balancer, "--balancer"),
            waiter("your least patient client", besides.patience, "--patience"),
        ],
        parts: wake_parts(hpa, &signal, proxy, besides, &retry, &dial),
        scraped: Some(Scraped {
            scrape: signal.scrape.clone(),
            timeout: signal.timeout.clone(),
            window: signal.says.rate.map(|window| signal.told(window)),
            floor: signal.says.floor.map(|floor| signal.told(floor)),
            probes: besides.probes.map_or_else(
                || Told::unknown("how often monitoring asks was not said (--probes)"),
                |rate| Told::new(rate, "--probes"),
            ),
            relist: signal.relist.clone(),
            max_age: parts.max_age.clone().unwrap_or_else(|| signal.relist.clone()),
        }),
        scaler: Some(Scaler {
            sync: Told::new(SYNC, "the controller's own"),
            quiet: hpa.quiet.clone(),
            most: hpa.most.clone(),
            inactive: alarm(parts, "ScalingActive"),
            restart: Told::new(RESTART, "a restart of the edge"),
            observed: Told::new(RESTART, "kube-state-metrics"),
        }),
        quiet: hpa.quiet.clone(),
        retry,
        dial,
        refresh: proxy.and_then(|one| one.refresh.clone()),
        keep_alive: of(|one| &one.keep_alive, "idle"),
        reload: proxy.map(|_| Told::new(Duration::ZERO, "Caddy")),
        stuck: alarm(parts, "desired_replicas"),
        latch: signal.says.latch.map(|latch| signal.told(latch)),
    }
}

/// The proxy for one of the hosts that the HPA's selector names; the only one there is.
fn proxy<'a>(hpa: &Hpa, parts: &'a Parts) -> Option<&'a Proxy> {
    let named = |one: &&Proxy| one.hosts.iter().any(|host| hpa.selector.iter().any(|(_, value)| value == host));
    parts.proxies.iter().find(named).or(match parts.proxies.as_slice() {
        [one] => Some(one),
        _ => None,
    })
}

fn alarm(parts: &Parts, word: &str) -> Told<Duration> {
    let found = parts.alarms.iter().find(|alarm| alarm.expr.contains(word));
    found.map_or_else(|| Told::unknown(format!("no alarm with {word} was given")), |alarm| alarm.lasts.clone())
}

fn wake_parts(
    hpa: &Hpa,
    signal: &Signal,
    proxy: Option<&Proxy>,
    besides: &Besides,
    retry: &Told<Duration>,
    dial: &Told<Duration>,
) -> Vec<Part> {
    let part = |name, most: Told<Duration>| Part { name, most };
    let mut parts = vec![part("scrape", signal.scrape.clone()), part("slow scrape", signal.timeout.clone())];
    parts.extend(signal.evaluate.clone().map(|it| part("evaluation", it)));
    parts.extend([
        part("sync", Told::new(SYNC, "the controller's own")),
        part("question", Told::new(QUESTION, "the adapter")),
    ]);
    parts.extend(hpa.up_window.clone().map(|it| part("up window", it)));
    let start = besides.start.map_or_else(
        || Told::unknown("how long the pod's start takes was not said (--start)"),
        |it| Told::new(it, "--start"),
    );
    parts.push(part(START, start));
    if proxy.is_some_and(|one| one.refresh.is_some()) {
        parts.push(part("missing name", Told::new(besides.missing, "--missing-name")));
    }
    parts.extend([part("retry", retry.clone()), part("dial", dial.clone())]);
    parts
}

/// How the HPA comes to know of a request.
struct Signal {
    says: Says,
    keys: Vec<String>,
    scrape: Told<Duration>,
    timeout: Told<Duration>,
    evaluate: Option<Told<Duration>>,
    relist: Told<Duration>,
}

impl Signal {
    fn told<T>(&self, value: T) -> Told<T> {
        Told { value: Known::Known(value), keys: self.keys.clone() }
    }

    fn of(hpa: &Hpa, parts: &Parts, faults: &mut Vec<Fault>) -> Self {
        let shown = parts.shown.iter().find(|shown| shown.name == hpa.metric);
        if let (None, Some(place)) = (shown, &parts.has_adapter) {
            let what = format!("the adapter shows no `{}`: the HPA asks for it and gets 404", hpa.metric);
            faults.push(Fault::new(
                "adapter-no-metric",
                Severity::Error,
                Some(place.clone()),
                what,
                "name it under `name.as`",
            ));
        }
        let recorded = shown.and_then(|shown| {
            parts.recorded.iter().find(|one| {
                shown.query.contains(&one.name) || shown.query.contains("<<.Series>>") && shown.found_by == one.name
            })
        });
        let (says, place) = match (recorded, shown) {
            (Some(one), Some(shown)) => (joined(one, &shown.query), Some(one.place.clone())),
            (None, Some(shown)) => (says(&format!("{} {}", shown.query, shown.found_by)), Some(shown.place.clone())),
            _ => (Says::default(), None),
        };
        if let (Some(shown), Some(place)) = (shown, &place) {
            expression(&says, place, faults);
            namespaced(shown, faults);
        }
        let own = || Told::new(RELIST, "the adapter's own --metrics-relist-interval");
        let relist = parts.relist.clone().unwrap_or_else(own);
        if let Some(shown) = shown {
            forgets(shown, parts, &relist, faults);
        }
        let job = job(hpa, parts, faults);
        let unknown = || Told::unknown("no scrape job of Prometheus was given");
        Self {
            keys: place.iter().map(|place| format!("{}:{}", place.source.name, place.position().0)).collect(),
            scrape: job.map_or_else(unknown, |job| job.scrape.clone()),
            timeout: job.map_or_else(unknown, |job| job.timeout.clone()),
            evaluate: recorded.map(|one| one.evaluate.clone()),
            relist,
            says,
        }
    }
}

/// What is recorded, and what is asked of it.
fn joined(recorded: &Recorded, query: &str) -> Says {
    let asked = says(query);
    let own = recorded.says.clone();
    Says {
        in_flight: own.in_flight || asked.in_flight,
        rate: own.rate.or(asked.rate),
        latch: own.latch.or(asked.latch),
        floor: own.floor.or(asked.floor),
        clamped: own.clamped || asked.clamped,
        divides: own.divides || asked.divides,
        fallback: own.fallback || asked.fallback,
    }
}

fn expression(says: &Says, place: &Place, faults: &mut Vec<Fault>) {
    let mut fault = |id, severity, what: &str, hint: &str| {
        faults.push(Fault::new(id, severity, Some(place.clone()), what, hint));
    };
    if !says.in_flight && says.rate.is_some() {
        let what =
            "only ended requests are counted: one that is held has not ended, so it never wakes what it waits for";
        fault("signal-ended-only", Severity::Error, what, "add the requests that are in flight");
    }
    if says.floor.is_some() && !says.clamped {
        let what = "below what is taken away it is negative, and the HPA adds it to other series: a request that waits is cancelled out";
        fault("signal-negative", Severity::Error, what, "write clamp_min(..., 0) around it");
    }
    if says.divides {
        let what = "a quotient of nothing is no number, and the adapter makes any number of it";
        fault("signal-division", Severity::Warning, what, "do without the division");
    }
}

fn namespaced(shown: &Shown, faults: &mut Vec<Fault>) {
    if shown.namespaced {
        let what =
            "the adapter asks for series with the HPA's own namespace, which those of an edge elsewhere do not have";
        let fault = Fault::new(
            "adapter-namespaced",
            Severity::Error,
            Some(shown.place.clone()),
            what,
            "write `resources: {namespaced: false}`",
        );
        faults.push(fault);
    }
}

/// A name that is gone while nobody has asked yet: Caddy has no series of a host before its first request.
fn forgets(shown: &Shown, parts: &Parts, relist: &Told<Duration>, faults: &mut Vec<Fault>) {
    let anchored = parts.recorded.iter().any(|one| one.name == shown.found_by && one.says.fallback);
    let foreign = !shown.found_by.contains("caddy_") && !parts.recorded.iter().any(|one| one.name == shown.found_by);
    if anchored || foreign {
        return;
    }
    let late = relist.side().value().unwrap_or_default();
    let what = format!(
        "after each restart of the edge there is no such series until the first request, and the adapter learns its name again only when it looks the next time: that wake may take {late} s longer"
    );
    let hint = "find the name by a series that is always there: a recorded `vector(1)`";
    faults.push(Fault::new("adapter-no-anchor", Severity::Error, Some(shown.place.clone()), what, hint));
}

/// The job that makes the label which the HPA selects by; the only one there is.
fn job<'a>(hpa: &Hpa, parts: &'a Parts, faults: &mut Vec<Fault>) -> Option<&'a Job> {
    let makes = |job: &&Job| hpa.selector.iter().any(|(key, _)| job.labels.contains(key));
    if let Some(job) = parts.jobs.iter().find(makes) {
        return Some(job);
    }
    let first = parts.jobs.first()?;
    if let Some((key, _)) = hpa.selector.first().filter(|(key, _)| key != "host") {
        let what = format!("no job makes the label `{key}` that {} selects by: it sees no series at all", hpa.name);
        faults.push(Fault::new(
            "prometheus-no-label",
            Severity::Error,
            Some(first.place.clone()),
            what,
            "make it with metric_relabel_configs",
        ));
    }
    (parts.jobs.len() == 1).then_some(first)
}
