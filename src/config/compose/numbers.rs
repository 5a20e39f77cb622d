//! The numbers of every service: what stands in the text, or what Compose itself made of it, each known or said why not.
//!
//! Compose's word is had by asking it for the definition with nothing interpolated, as publishing does, and reading its answer by
//! the same rules as the text; so a number that hides behind a variable is unknown by the variable's name either way.

use super::duration;
use super::files::{ComposeFiles, Found, Project, Service};
use super::vars::{self, Given};
use crate::config::problem::{Place, Source};
use crate::fleet::model::{Fleet, Known, ServiceName};
use crate::fleet::release::DEFAULT_GRACE;
use crate::fleet::timing::ComposeService;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What Compose said when it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposeAnswer {
    /// Which Compose.
    pub version: String,
    /// `config --format json --no-interpolate`, or why it refuses the file.
    pub definition: Result<String, String>,
}

/// The numbers of one service.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceNumbers {
    /// `stop_grace_period`; Compose's own default where nothing is said.
    pub grace: Known<Duration>,
    /// `healthcheck.interval`.
    pub interval: Known<Option<Duration>>,
    /// `healthcheck.timeout`.
    pub timeout: Known<Option<Duration>>,
    /// `healthcheck.retries`.
    pub retries: Known<Option<u64>>,
    /// `healthcheck.start_period`.
    pub start_period: Known<Option<Duration>>,
    /// `healthcheck.disable`.
    pub disabled: Known<bool>,
    /// `restart`, as it is written.
    pub restart: Known<Option<String>>,
}

/// The numbers of a compose file.
#[derive(Debug, Clone, PartialEq)]
pub struct ComposeNumbers {
    /// What `fleet::timing::Basis` reads.
    pub services: Known<BTreeMap<ServiceName, ComposeService>>,
    /// All of them, of the services that no profile switches off.
    pub all: BTreeMap<ServiceName, ServiceNumbers>,
    /// Who resolved them: `Compose 2.40.3`, or that nobody did.
    pub by: String,
    places: BTreeMap<String, Place>,
}

impl ComposeNumbers {
    /// Where a number stands: `compose.api.stop_grace_period`, `compose.api.healthcheck.start_period`. `None` is a default.
    #[must_use]
    pub fn place(&self, key: &str) -> Option<&Place> {
        self.places.get(key)
    }

    /// Whether every number was read: then Compose has none to add.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.services.get().is_some() && self.unresolved().is_empty()
    }

    /// Every number that is not known, by key, with why.
    #[must_use]
    pub fn unresolved(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (name, numbers) in &self.all {
            let whys = [
                ("stop_grace_period", why(&numbers.grace)),
                ("healthcheck.interval", why(&numbers.interval)),
                ("healthcheck.timeout", why(&numbers.timeout)),
                ("healthcheck.retries", why(&numbers.retries)),
                ("healthcheck.start_period", why(&numbers.start_period)),
                ("healthcheck.disable", why(&numbers.disabled)),
                ("restart", why(&numbers.restart)),
            ];
            let told = whys.into_iter().filter_map(|(key, why)| Some((format!("compose.{name}.{key}"), why?)));
            all.extend(told);
        }
        all
    }
}

fn why<T>(known: &Known<T>) -> Option<String> {
    match known {
        Known::Known(_) => None,
        Known::Unknown(why) => Some(why.clone()),
    }
}

/// Who resolved it where there was no Compose to ask.
pub const AS_READ: &str = "as read; no Compose here";

/// Who resolved it where nothing in it needs a Compose to be asked.
pub const WHOLE: &str = "as read; no number in it needs Compose";

/// Stands before why a number is not known where Compose could have told it.
const WITHOUT: &str = "not resolved without Compose";

impl ComposeFiles {
    /// The numbers: by `answer` where there is one, else as read. `vars` are the variables that are given here; what needs others
    /// is unknown by their name.
    #[must_use]
    pub fn numbers(
        &self,
        fleet: &Fleet,
        vars: &BTreeMap<String, String>,
        answer: Option<&ComposeAnswer>,
    ) -> ComposeNumbers {
        let given = Given { vars, declared: &fleet.release.vars, app: &fleet.app };
        let project = self.project();
        let places = places(&project);
        let resolved = |by, text: &str| {
            let source = Source::new("Compose's answer", text);
            let answer = Self::gather("answer", |name| (name == "answer").then(|| Arc::clone(&source)));
            read(&answer.project(), &given, by, "", places.clone())
        };
        match answer {
            None => read(&project, &given, AS_READ.to_owned(), WITHOUT, places),
            Some(ComposeAnswer { version, definition }) => {
                let by = format!("Compose {version}");
                match definition {
                    Ok(json) => resolved(by, json),
                    Err(why) => {
                        let why = format!("{by} refuses {}: {why}", self.main);
                        ComposeNumbers { services: Known::Unknown(why), all: BTreeMap::new(), by, places }
                    }
                }
            }
        }
    }
}

fn read(
    project: &Project<'_>,
    given: &Given<'_>,
    by: String,
    without: &str,
    places: BTreeMap<String, Place>,
) -> ComposeNumbers {
    let reader = Reader { given, without };
    let active = project.services.iter().filter(|(_, service)| !service.is_off());
    let all: BTreeMap<ServiceName, ServiceNumbers> =
        active.map(|(name, service)| (ServiceName::new(name.as_str()), reader.service(service))).collect();
    let services = match &project.unknown {
        Some(why) => Known::Unknown(reader.because(why)),
        None => Known::Known(all.iter().map(|(name, numbers)| (name.clone(), basis(numbers))).collect()),
    };
    ComposeNumbers { services, all, by, places }
}

fn basis(numbers: &ServiceNumbers) -> ComposeService {
    let start_period = match (&numbers.disabled, &numbers.start_period) {
        (Known::Known(true), _) | (_, Known::Known(None)) => Known::Known(None),
        (Known::Unknown(why), _) => Known::Unknown(why.clone()),
        (_, period) => period.clone(),
    };
    ComposeService { grace: numbers.grace.clone(), start_period }
}

/// The keys that have places.
const KEYS: [&[&str]; 6] = [
    &["stop_grace_period"],
    &["healthcheck", "interval"],
    &["healthcheck", "timeout"],
    &["healthcheck", "retries"],
    &["healthcheck", "start_period"],
    &["restart"],
];

fn places(project: &Project<'_>) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    for (name, service) in &project.services {
        for path in KEYS {
            if let Found::Here(layer, entry) = service.find(path) {
                places.insert(format!("compose.{name}.{}", path.join(".")), layer.place(&entry.node.span));
            }
        }
    }
    places
}

/// Reads values with the variables that are given.
pub(super) struct Reader<'a> {
    pub(super) given: &'a Given<'a>,
    pub(super) without: &'a str,
}

/// A text, and whether it may mean a number.
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) plain: bool,
}

impl Reader<'_> {
    fn because(&self, why: &str) -> String {
        if self.without.is_empty() { why.to_owned() } else { format!("{}: {why}", self.without) }
    }

    fn service(&self, service: &Service<'_>) -> ServiceNumbers {
        let grace = match self.duration(service, &["stop_grace_period"]) {
            Known::Known(grace) => Known::Known(grace.unwrap_or(DEFAULT_GRACE)),
            Known::Unknown(why) => Known::Unknown(why),
        };
        ServiceNumbers {
            grace,
            interval: self.duration(service, &["healthcheck", "interval"]),
            timeout: self.duration(service, &["healthcheck", "timeout"]),
            retries: self.value(service, &["healthcheck", "retries"], |scalar| {
                let number =
                    scalar.text.parse().ok().filter(|_| scalar.text == "0" || !scalar.text.starts_with(['0', '+']));
                number.ok_or_else(|| format!("`{}` is left to Compose", scalar.text))
            }),
            start_period: self.duration(service, &["healthcheck", "start_period"]),
            disabled: self.disabled(service),
            restart: self.restart(service),
        }
    }

    /// A value under a path of keys, read by `read`.
    fn value<T>(
        &self,
        service: &Service<'_>,
        path: &[&str],
        read: impl Fn(&Scalar) -> Result<T, String>,
    ) -> Known<Option<T>> {
        let read = self.scalar(service, path).and_then(|scalar| scalar.map(|scalar| read(&scalar)).transpose());
        match read {
            Ok(value) => Known::Known(value),
            Err(why) => Known::Unknown(self.because(&why)),
        }
    }

    /// The text under a path of keys with its variables put in.
    pub(super) fn scalar(&self, service: &Service<'_>, path: &[&str]) -> Result<Option<Scalar>, String> {
        if let Some(why) = &service.unknown {
            return Err(why.clone());
        }
        let node = match service.find(path) {
            Found::Nothing => return Ok(None),
            Found::Unknown(why) => return Err(why),
            Found::Here(_, entry) => &entry.node,
        };
        let name = path.join(".");
        match &node.value {
            crate::config::yaml::Value::Scalar { text, plain } if !node.is_null() => {
                let put = vars::put_in(text, self.given)?;
                let plain = *plain && put == *text;
                Ok(Some(Scalar { text: put, plain }))
            }
            _ => Err(format!("`{name}` has no value that Compose takes")),
        }
    }

    fn duration(&self, service: &Service<'_>, path: &[&str]) -> Known<Option<Duration>> {
        self.value(service, path, |scalar| {
            duration_of(scalar)
                .map_err(|_| format!("`{}: {}` is not a duration that Compose takes", path.join("."), scalar.text))
        })
    }

    fn restart(&self, service: &Service<'_>) -> Known<Option<String>> {
        let restart = self.value(service, &["restart"], |scalar| {
            // Anything else that is no text is refused.
            let number =
                scalar.text.parse::<f64>().is_ok() || ["true", "false"].contains(&scalar.text.to_lowercase().as_str());
            if scalar.plain && number {
                Err(format!("`restart: {}` is left to Compose", scalar.text))
            } else {
                Ok(scalar.text.clone())
            }
        });
        match restart {
            Known::Known(Some(text)) if text.is_empty() => Known::Known(None),
            other => other,
        }
    }

    fn disabled(&self, service: &Service<'_>) -> Known<bool> {
        // `test: [NONE]` says the same (compose file reference, "healthcheck").
        if let Found::Here(_, entry) = service.find(&["healthcheck", "test"])
            && entry.node.items().first().and_then(|item| item.text()) == Some("NONE")
        {
            return Known::Known(true);
        }
        let disabled = self.value(service, &["healthcheck", "disable"], |scalar| {
            scalar
                .text
                .to_lowercase()
                .parse::<bool>()
                .map_err(|_| format!("`disable: {}` is left to Compose", scalar.text))
        });
        match disabled {
            Known::Known(disabled) => Known::Known(disabled.unwrap_or(false)),
            Known::Unknown(why) => Known::Unknown(why),
        }
    }
}

/// A duration as Compose takes it: a bare number is none, also zero.
pub(super) fn duration_of(scalar: &Scalar) -> Result<Duration, duration::Fault> {
    let bare = scalar.plain && matches!(scalar.text.as_str(), "0" | "+0" | "-0");
    if bare { Err(duration::Fault::NoUnit) } else { duration::parse(&scalar.text) }
}
