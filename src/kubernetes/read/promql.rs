//! What an expression of Prometheus says about a wake, as far as one can tell from its letters: which kinds of series, which windows, what is
//! taken away.

use std::time::Duration;

/// What was found in an expression.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Says {
    /// Requests under way are in it.
    pub in_flight: bool,
    /// The window of a `rate`.
    pub rate: Option<Duration>,
    /// The window of a `max_over_time`.
    pub latch: Option<Duration>,
    /// A number that is taken away.
    pub floor: Option<f64>,
    /// `clamp_min` is in it.
    pub clamped: bool,
    /// Something is divided.
    pub divides: bool,
    /// It has a value where its series are missing.
    pub fallback: bool,
}

pub(super) fn says(expr: &str) -> Says {
    let plain = without_strings(expr);
    Says {
        in_flight: expr.contains("in_flight") || expr.contains("_held"),
        rate: window(&plain, "rate(").or_else(|| window(&plain, "increase(")),
        latch: window(&plain, "max_over_time("),
        floor: taken(&plain),
        clamped: plain.contains("clamp_min("),
        divides: plain.contains('/'),
        fallback: plain.contains("vector(") || plain.split_whitespace().any(|word| word == "or"),
    }
}

/// What stands in quotes is blank.
fn without_strings(expr: &str) -> String {
    let mut quoted = None;
    let blank = |c: char| {
        match (quoted, c) {
            (None, '"' | '\'' | '`') => quoted = Some(c),
            (Some(end), c) if c == end => quoted = None,
            (Some(_), _) => return ' ',
            _ => {}
        }
        c
    };
    expr.chars().map(blank).collect()
}

/// The first window in brackets behind a function.
fn window(expr: &str, function: &str) -> Option<Duration> {
    let rest = &expr[expr.find(function)? + function.len()..];
    let inside = rest.split('[').nth(1)?.split([']', ':']).next()?;
    super::duration(inside.trim())
}

/// A number behind a minus.
fn taken(expr: &str) -> Option<f64> {
    expr.match_indices('-').find_map(|(at, _)| {
        let rest = expr[at + 1..].trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_says_what_wakes_what_keeps_awake_and_what_is_taken_away() {
        let found = says(
            "sum by (wake_host)(caddy_http_requests_in_flight) + on (wake_host) clamp_min(sum by (wake_host)(rate(caddy_http_requests_total{host!=\"a-5/b\"}[2m])) - 0.15, 0)",
        );
        let expected = Says {
            in_flight: true,
            rate: Some(Duration::from_secs(120)),
            latch: None,
            floor: Some(0.15),
            clamped: true,
            divides: false,
            fallback: false,
        };
        assert_eq!(found, expected);
        let found = says("max_over_time(x_in_flight[30s:5s]) or vector(0)");
        assert_eq!((found.latch, found.fallback, found.floor), (Some(Duration::from_secs(30)), true, None));
        assert!(says("a / b").divides);
    }
}
