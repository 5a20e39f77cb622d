//! What the watchdog saw, as text for Prometheus' node exporter.

use crate::fleet::model::{ServerName, WatchdogState, Watched};
use std::fmt::Write as _;

/// The text.
pub(super) fn text(seen: &Watched, server: &ServerName) -> String {
    let mut out = String::new();
    let server = label(server.as_str());
    head(
        &mut out,
        "handover_watchdog_last_look_seconds",
        "gauge",
        "When the watchdog looked last, seconds since the epoch.",
    );
    let _ = writeln!(out, "handover_watchdog_last_look_seconds{{server=\"{server}\"}} {}", seen.at);
    head(&mut out, "handover_watchdog_state", "gauge", "What it saw: 1 for the state that it is in.");
    // Every one of them, so that each series is there from the start.
    for state in WatchdogState::ALL {
        let (word, on) = (state.as_str(), u8::from(seen.word == state));
        let _ = writeln!(out, "handover_watchdog_state{{server=\"{server}\",state=\"{word}\"}} {on}");
    }
    head(&mut out, "handover_watchdog_failures", "gauge", "Failed looks in a row, by service.");
    for (service, count) in seen.strikes.services() {
        let service = label(service.as_str());
        let _ =
            writeln!(out, "handover_watchdog_failures{{server=\"{server}\",service=\"{service}\"}} {}", count.failures);
    }
    head(&mut out, "handover_watchdog_given_up", "gauge", "Whether healing a service was given up.");
    for (service, count) in seen.strikes.services() {
        let (service, on) = (label(service.as_str()), u8::from(count.given_up));
        let _ = writeln!(out, "handover_watchdog_given_up{{server=\"{server}\",service=\"{service}\"}} {on}");
    }
    head(
        &mut out,
        "handover_watchdog_heals_total",
        "counter",
        "How often a service was made anew, whether or not it helped.",
    );
    for (service, heals) in &seen.healed {
        let service = label(service.as_str());
        let _ = writeln!(out, "handover_watchdog_heals_total{{server=\"{server}\",service=\"{service}\"}} {heals}");
    }
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
