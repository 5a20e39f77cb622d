//! What was found in access logs, for people.

use super::{Found, per_10_000};
use crate::event::Requests;
use crate::measure::access_log::{Cause, Counted, Side, Window, time};
use crate::report::table;

/// So many targets and losses are shown; JSON has more.
const SHOWN: usize = 20;

pub(super) fn text(found: &Found, notes: &[String]) -> String {
    let mut out = head(found);
    out.push_str(&classes(found));
    out.push_str(&causes(found));
    out.push_str(&targets(found));
    out.push_str(&losses(found));
    let broken = found.broken_lines();
    if !broken.is_empty() {
        section(&mut out, &format!("{} broken lines, in no count:", found.reading.broken()), &broken);
    }
    if !notes.is_empty() {
        section(&mut out, "to know:", notes);
    }
    out
}

fn section(out: &mut String, head: &str, lines: &[String]) {
    out.push_str(&format!("\n{head}\n"));
    lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
}

fn head(found: &Found) -> String {
    let (files, nodes) = (found.reading.files.len(), found.reading.nodes.len());
    let of_nodes = if nodes == 0 { String::new() } else { format!(" of {}", count(nodes, "node")) };
    let mut out = format!("{}{of_nodes}: {} requests", count(files, "file"), found.tally.records);
    if let Some((first, last)) = found.tally.span {
        out.push_str(&format!(", {} to {}", time::show(first), time::show(last)));
    }
    out.push('\n');
    match found.tally.window() {
        Window { from: None, to: None } => {}
        Window { from, to } => {
            let end = |moment: Option<i64>, open: &str| moment.map_or_else(|| open.to_owned(), time::show);
            out.push_str(&format!("window: {} to {}\n", end(from, "the beginning"), end(to, "the end")));
        }
    }
    out
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn cells<T: ToString>(head: &str, sides: &[Side], value: impl Fn(&Side) -> T) -> Vec<String> {
    std::iter::once(head.to_owned()).chain(sides.iter().map(|side| value(side).to_string())).collect()
}

/// The sides of the window that are shown.
fn sides(found: &Found) -> (Vec<Side>, Vec<String>) {
    if found.tally.window().given() {
        (vec![found.sums.0, found.sums.1], vec!["window".to_owned(), "outside".to_owned()])
    } else {
        (vec![found.sums.0], vec!["requests".to_owned()])
    }
}

fn counts(requests: &Requests) -> [(&'static str, u64); 8] {
    [
        ("all", requests.total),
        ("served", requests.served),
        ("app errors", requests.app_errors),
        ("drain signals", requests.drain_signals),
        ("given up by the client", requests.client_gone),
        ("reached nowhere", requests.nowhere),
        ("cut short", requests.cut_short),
        ("lost", requests.lost()),
    ]
}

fn classes(found: &Found) -> String {
    let (sides, heads) = sides(found);
    let mut rows = vec![std::iter::once(String::new()).chain(heads).collect()];
    for (at, (name, _)) in counts(&Requests::default()).into_iter().enumerate() {
        rows.push(cells(name, &sides, |side| counts(&side.requests)[at].1));
    }
    rows.push(cells("lost per 10,000", &sides, |side| {
        per_10_000(side).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}"))
    }));
    format!("\n{}", table(&rows))
}

fn causes(found: &Found) -> String {
    let (sides, heads) = sides(found);
    let happened = Cause::ALL.into_iter().filter(|cause| sides.iter().any(|side| side.causes[*cause as usize] > 0));
    let rows: Vec<Vec<String>> =
        happened.map(|cause| cells(cause.what(), &sides, |side| side.causes[cause as usize])).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = std::iter::once("lost because".to_owned()).chain(heads).collect();
    format!("\n{}", table(&[vec![head], rows].concat()))
}

fn targets(found: &Found) -> String {
    let targets = found.tally.targets();
    let given = found.tally.window().given();
    let mut rows = vec![["target", "requests", "app errors", "lost"].map(str::to_owned).to_vec()];
    if given {
        rows[0].extend(["requests outside", "lost outside"].map(str::to_owned));
    }
    for Counted { target, inside, outside } in targets.iter().take(SHOWN) {
        let inside = inside.requests;
        let mut row = vec![target.clone().unwrap_or_else(|| "none".to_owned())];
        row.extend([inside.total, inside.app_errors, inside.lost()].map(|n| n.to_string()));
        if given {
            row.extend([outside.requests.total, outside.requests.lost()].map(|n| n.to_string()));
        }
        rows.push(row);
    }
    let more = targets.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("and {more} more; --output json has them all\n") } else { String::new() };
    if targets.is_empty() { String::new() } else { format!("\n{}{more}", table(&rows)) }
}

fn losses(found: &Found) -> String {
    let losses = found.tally.losses();
    if losses.is_empty() {
        return String::new();
    }
    let mut lines: Vec<String> = losses
        .iter()
        .take(SHOWN)
        .map(|loss| {
            let status = loss.status.map_or_else(|| "-".to_owned(), |status| format!("{status:03}"));
            let target = loss.target.as_deref().unwrap_or("no target");
            format!("{}  {status}  {target}  {}: {}", time::show(loss.at), loss.request, loss.cause.what())
        })
        .collect();
    let lost = found.sums.0.requests.lost();
    if lost > lines.len() as u64 {
        lines.push(format!("and {} more; --output json has the first hundred", lost - lines.len() as u64));
    }
    let mut out = String::new();
    section(&mut out, "lost:", &lines);
    out
}
