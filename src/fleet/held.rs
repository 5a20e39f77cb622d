//! What a gateway says of the requests that it holds while what is behind it is changed.
//!
//! It knows neither who asks nor what is done meanwhile; what proves that a backend may be stopped is decided here.

use super::model::{Fleet, HoldBy, Service, ServiceName, show_duration};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// What makes a gateway ask the one that runs for its listeners.
const TAKE_OVER: &str = "--take-over";

/// How a gateway stands, at the moment in which it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSeen {
    /// Whether every request is held that arrives.
    pub holding: bool,
    /// How many requests were let through to a backend before and are not finished.
    pub forwarded: u64,
    /// How many connections are tunnels, such as WebSockets: they end with the backend.
    pub tunnels: u64,
    /// How many requests wait.
    pub waiting: u64,
    /// Which process said so; another one after the listeners were handed over.
    pub process: String,
    /// The shortest time for which one of its hosts holds a request.
    pub hold: Duration,
    /// The file that it looks for.
    pub file: Option<String>,
    /// Whether it can hand its listeners over.
    pub hands_over: bool,
}

impl HeldSeen {
    /// Whether what is behind the gateway may be stopped: nothing arrives there, and nothing is under way. What is missing, if not.
    ///
    /// # Errors
    /// What was seen instead, as a sentence.
    pub fn quiet(&self) -> Result<(), String> {
        match (self.holding, self.forwarded) {
            (false, _) => Err("the gateway lets requests through".to_owned()),
            (true, 0) => Ok(()),
            (true, 1) => Err("one request is still answered by what is to be stopped".to_owned()),
            (true, many) => Err(format!("{many} requests are still answered by what is to be stopped")),
        }
    }

    /// What of it does not fit what a deploy asks for: `by`, with its file at `path`, and requests that may have to wait for `bound`.
    #[must_use]
    pub fn unfit(&self, by: &HoldBy, path: &str, bound: Duration) -> Vec<String> {
        let mut unfit = Vec::new();
        if self.file.as_deref() != Some(path) {
            let has =
                self.file.as_ref().map_or_else(|| "no hold_file".to_owned(), |file| format!("hold_file = \"{file}\""));
            unfit.push(format!("the gateway has {has}, and drain.file is \"{path}\": they must be one file"));
        }
        if by.service.is_some() && !self.hands_over {
            unfit.push("the gateway has no `control`, so its successor could not take its listeners over".to_owned());
        }
        if bound > self.hold {
            unfit.push(format!(
                "a request may have to wait {} and the gateway holds it for {}: raise `hold` of [[gateway.host]] (and what sits in front, \
                 and its clients' timeouts), or lower drain.max, the services' `shutdown` and `deadline`, or rolling.stable",
                show_duration(bound),
                show_duration(self.hold)
            ));
        }
        unfit
    }
}

/// How long a request may have to wait: what was let through before it ends, everything stops, starts and is verified.
#[must_use]
pub fn longest_wait(fleet: &Fleet) -> Duration {
    let gateway = fleet.drain.by.hands_over();
    let longest = |of: fn(&Service) -> Duration| {
        fleet.services.iter().filter(|one| Some(&one.name) != gateway).map(of).max().unwrap_or_default()
    };
    fleet.drain.max + longest(|one| one.shutdown) + longest(|one| one.deadline) + fleet.rolling.stable
}

/// Why the gateway of this definition could not take its predecessor's listeners over, as far as the definition says it.
#[must_use]
pub fn cannot_take_over(definition: &Value, gateway: &ServiceName) -> Vec<String> {
    let Some(service) = definition.pointer(&format!("/services/{gateway}")) else { return Vec::new() };
    let mut why = Vec::new();
    if service.get("network_mode").and_then(Value::as_str) != Some("host") {
        why.push(format!(
            "{gateway}: hands its listeners over and is not on the server's own network: write `network_mode: host`"
        ));
    }
    // Without a command it is the image's, which is not known here.
    let words = |key| service.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if words("command").next().is_some() && !words("entrypoint").chain(words("command")).any(|word| word == TAKE_OVER) {
        why.push(format!("{gateway}: hands its listeners over and its `command` has no `{TAKE_OVER}`"));
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> HeldSeen {
        HeldSeen {
            holding: false,
            forwarded: 0,
            tunnels: 9,
            waiting: 9,
            process: "1".to_owned(),
            hold: Duration::from_secs(50),
            file: Some("/run/a/hold".to_owned()),
            hands_over: true,
        }
    }

    #[test]
    fn a_gateway_that_does_not_fit_is_told_before_anything_is_touched() {
        let by = |service: Option<&str>| HoldBy {
            told: "http://127.0.0.1:9180/hold".to_owned(),
            service: service.map(Into::into),
        };
        let bound = Duration::from_secs(50);
        assert_eq!(fine().unfit(&by(Some("gateway")), "/run/a/hold", bound), Vec::<String>::new());
        let wrong = |seen: HeldSeen, service, bound| seen.unfit(&by(service), "/run/a/hold", bound);
        assert!(wrong(fine(), None, bound * 2)[0].contains("1m40s"));
        assert!(wrong(HeldSeen { file: None, ..fine() }, None, bound)[0].contains("no hold_file"));
        let other = HeldSeen { file: Some("/run/b".to_owned()), ..fine() };
        assert!(wrong(other, None, bound)[0].contains("/run/b"));
        let alone = HeldSeen { hands_over: false, ..fine() };
        assert_eq!(wrong(alone.clone(), None, bound), Vec::<String>::new(), "nobody is to take its place");
        assert_eq!(wrong(alone, Some("gateway"), bound).len(), 1);
    }

    #[test]
    fn only_a_closed_and_empty_gateway_lets_its_backend_be_stopped() {
        let seen = |holding, forwarded| HeldSeen { holding, forwarded, ..fine() };
        assert_eq!(seen(true, 0).quiet(), Ok(()));
        for (holding, forwarded) in [(false, 0), (false, 3), (true, 1), (true, 7)] {
            assert!(seen(holding, forwarded).quiet().is_err(), "{holding} {forwarded}");
        }
    }

    #[test]
    fn a_definition_whose_gateway_could_not_take_over_is_told() {
        let of = |gateway: serde_json::Value| {
            cannot_take_over(&serde_json::json!({"services": {"gateway": gateway}}), &ServiceName::new("gateway"))
        };
        let none = Vec::<String>::new();
        assert_eq!(of(serde_json::json!({"network_mode": "host", "command": ["gateway", "--take-over"]})), none);
        assert_eq!(of(serde_json::json!({"network_mode": "host", "command": null})), none, "the image's own");
        let wrapped =
            serde_json::json!({"network_mode": "host", "entrypoint": ["h", "--take-over"], "command": ["-c", "f"]});
        assert_eq!(of(wrapped), none);
        let bare = of(serde_json::json!({"networks": {"default": null}, "command": ["gateway"]}));
        assert!(
            bare.len() == 2 && bare[0].contains("network_mode: host") && bare[1].contains("--take-over"),
            "{bare:?}"
        );
        assert_eq!(cannot_take_over(&serde_json::json!({"services": {}}), &ServiceName::new("gateway")), none);
    }
}
