//! A measurement for people: each second as a line, the whole as a page.

use super::table;
use super::text::requests;
use crate::event::{Gap, Measured, Part, Second, Window};

/// So many single gaps and losses are shown to people.
const SHOWN: usize = 5;

/// The line of a second.
pub(super) fn second(second: &Second) -> String {
    let mut out = requests(&second.requests);
    if second.lost > 0 {
        out.push_str(&format!(", {} lost", second.lost));
    }
    if let Some(p99) = second.p99_seconds {
        out.push_str(&format!(", p99 {}", short(p99)));
    }
    match second.deploy.as_deref() {
        Some("") => out.push_str("  [during a deploy]"),
        Some(label) => out.push_str(&format!("  [during {label}]")),
        None => {}
    }
    out
}

/// The whole.
#[must_use]
pub fn measured_text(measured: &Measured) -> String {
    let counts = &measured.requests;
    let mut out = format!("{}\n", requests(counts));
    out.push_str(&format!(
        "{} {}: {} requests/s wanted, {:.1} sent, for {:.1}s\n",
        measured.http, measured.url, measured.rate.requested, measured.rate.achieved, measured.seconds
    ));
    out.push_str(&format!("{}\n", latency(measured)));
    out.push_str(&format!("{}\n", schedule(measured)));
    if !measured.windows.is_empty() {
        out.push_str(&windows(&measured.windows));
    }
    if counts.lost() > 0 {
        out.push_str(&lost(measured));
    }
    out
}

fn latency(measured: &Measured) -> String {
    let latency = &measured.latency;
    if latency.requests == 0 {
        return "nothing was answered, so there is no latency".to_owned();
    }
    let rows = [
        ("p50", latency.p50_seconds),
        ("p90", latency.p90_seconds),
        ("p99", latency.p99_seconds),
        ("p99.9", latency.p999_seconds),
        ("max", latency.max_seconds),
    ];
    let cells: Vec<String> =
        rows.iter().filter_map(|(name, value)| Some(format!("{name} {}", short((*value)?)))).collect();
    format!("latency of {} answers, each from when its request was due: {}", latency.requests, cells.join(", "))
}

fn schedule(measured: &Measured) -> String {
    let schedule = &measured.schedule;
    let p99 = schedule.late_p99_seconds.map_or_else(|| "-".to_owned(), short);
    let max = schedule.late_max_seconds.map_or_else(|| "-".to_owned(), short);
    let mut out = format!("requests were sent {p99} late at p99, {max} at most");
    if schedule.late_requests > 0 {
        out.push_str(&format!("; the schedule was not kept: {} more than 10 ms late", schedule.late_requests));
    }
    if schedule.not_sent > 0 {
        out.push_str(&format!("; {} could not be sent at all", schedule.not_sent));
    }
    out
}

fn windows(windows: &[Window]) -> String {
    let mut rows =
        vec![["when", "from", "to", "requests", "app errors", "lost", "p99"].map(ToOwned::to_owned).to_vec()];
    for window in windows {
        let when = match (window.part, &window.label) {
            (Part::Before, _) => "before".to_owned(),
            (Part::Between, _) => "between".to_owned(),
            (Part::After, _) => "after".to_owned(),
            (Part::During, Some(label)) => format!("during {label}"),
            (Part::During, None) => "during a deploy".to_owned(),
        };
        rows.push(vec![
            when,
            format!("{:.1}s", window.from),
            format!("{:.1}s", window.to),
            window.requests.total.to_string(),
            window.requests.app_errors.to_string(),
            window.requests.lost().to_string(),
            window.p99_seconds.map_or_else(|| "-".to_owned(), short),
        ]);
    }
    table(&rows)
}

fn lost(measured: &Measured) -> String {
    let mut out = String::new();
    let over_all = measured.gaps.iter().filter(|gap| gap.address.is_none()).count();
    let shown = SHOWN.min(over_all);
    for gap in &measured.gaps[..shown] {
        out.push_str(&format!("{}\n", self::gap(gap)));
    }
    more(&mut out, measured.gaps_total, shown, "gaps");
    let of_addresses: Vec<&Gap> = measured.gaps.iter().filter(|gap| gap.address.is_some()).collect();
    for gap in of_addresses.iter().take(SHOWN) {
        out.push_str(&format!("  {}\n", self::gap(gap)));
    }
    more(&mut out, of_addresses.len() as u64, of_addresses.len().min(SHOWN), "gaps of single addresses");
    out.push_str("losses:\n");
    for loss in measured.losses.iter().take(SHOWN) {
        let to = loss.address.map(|address| format!(" to {address}")).unwrap_or_default();
        out.push_str(&format!("  {:.3}s  {}{to}: {}\n", loss.at, loss.class.replace('_', " "), loss.what));
    }
    more(&mut out, measured.requests.lost(), measured.losses.len().min(SHOWN), "losses");
    out
}

fn more(out: &mut String, all: u64, shown: usize, what: &str) {
    let left = all.saturating_sub(shown as u64);
    if left > 0 {
        out.push_str(&format!("  and {left} more {what}; --output json has the first hundred\n"));
    }
}

/// What is known of a gap: it is at least as long as its losses, and lies between two answers.
fn gap(gap: &Gap) -> String {
    let who = gap.address.map(|address| format!("{address} ")).unwrap_or_default();
    let lost = if gap.lost == 1 { "1 request".to_owned() } else { format!("{} requests", gap.lost) };
    let bounds = match (gap.after, gap.before, gap.at_most_seconds) {
        (Some(after), Some(before), Some(most)) => {
            return format!(
                "{who}unreachable between {after:.3}s and {before:.3}s: at least {}, at most {}, {lost} lost",
                short(gap.at_least_seconds),
                short(most)
            );
        }
        (None, Some(before), _) => format!("from the beginning until {before:.3}s at the latest"),
        (Some(after), None, _) => format!("since {after:.3}s at the earliest, until the end"),
        _ => "from beginning to end".to_owned(),
    };
    format!("{who}unreachable {bounds}: at least {}, {lost} lost", short(gap.at_least_seconds))
}

/// A short time with a unit that fits.
fn short(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2}s"),
        s if s >= 0.1 => format!("{:.0}ms", s * 1e3),
        s if s >= 0.001 => format!("{:.1}ms", s * 1e3),
        s => format!("{:.0}us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_gap(after: Option<f64>, before: Option<f64>) -> Gap {
        let at_most_seconds = after.zip(before).map(|(after, before)| before - after);
        let (first, last) = (12.36, 12.4);
        Gap { address: None, lost: 5, after, first, last, before, at_least_seconds: last - first, at_most_seconds }
    }

    #[test]
    fn a_gap_is_told_with_what_bounds_it() {
        assert_eq!(
            gap(&a_gap(Some(12.35), Some(12.41))),
            "unreachable between 12.350s and 12.410s: at least 40.0ms, at most 60.0ms, 5 requests lost"
        );
        assert_eq!(
            gap(&a_gap(None, Some(12.41))),
            "unreachable from the beginning until 12.410s at the latest: at least 40.0ms, 5 requests lost"
        );
        assert_eq!(gap(&a_gap(None, None)), "unreachable from beginning to end: at least 40.0ms, 5 requests lost");
        let since = gap(&Gap { lost: 1, ..a_gap(Some(12.35), None) });
        assert_eq!(since, "unreachable since 12.350s at the earliest, until the end: at least 40.0ms, 1 request lost");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let rows = [(0.000_123, "123us"), (0.0123, "12.3ms"), (0.123, "123ms"), (1.234, "1.23s"), (0.0, "0us")];
        for (seconds, text) in rows {
            assert_eq!(short(seconds), text);
        }
    }
}
