//! What a check found, for people and for machines: relations with both sides, and numbers with what notices when they are wrong.

use super::table;
use crate::config::Mutation;
use crate::fleet::timing::{Difference, Finding, Live, Side, Unit};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The relations as a table, each with both sides and its margin, and a sentence where one is broken or not known.
#[must_use]
pub fn check_text(findings: &[Finding], compose: &str) -> String {
    relations_text(findings, &format!("\ncompose file: {compose}\n"))
}

/// The same with what stands between the table and the sentences.
#[must_use]
pub fn relations_text(findings: &[Finding], between: &str) -> String {
    let mut rows = vec![["", "left", "right", "margin", ""].map(ToOwned::to_owned).to_vec()];
    for finding in findings {
        let word = match finding.reading.holds() {
            Some(true) => "holds",
            Some(false) if finding.fails_check() => "BROKEN",
            Some(false) => "does not hold",
            None => "unknown",
        };
        let reading = &finding.reading;
        let margin = reading.margin().map_or_else(|| "?".to_owned(), |margin| shown(margin, reading.unit));
        rows.push(vec![
            finding.name(),
            side(&reading.left, reading.unit),
            side(&reading.right, reading.unit),
            margin,
            word.to_owned(),
        ]);
    }
    let mut out = table(&rows);
    out.push_str(between);
    let mut unknown: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for finding in findings {
        let (id, invariant) = (finding.name(), finding.invariant);
        match (finding.reading.holds(), finding.reading.unknown()) {
            (Some(false), _) => {
                let (formula, why, anchor) = (invariant.formula, invariant.why, invariant.id);
                out.push_str(&format!("\n{id}: {formula}\n  {why}\n"));
                if let Some(cost) = &finding.reading.cost {
                    out.push_str(&format!("  costs: {cost}\n"));
                }
                out.push_str(&format!("  docs/timing.md#{anchor}\n"));
            }
            (None, Some(why)) => unknown.entry(why).or_default().push(id),
            _ => {}
        }
    }
    for (why, names) in unknown {
        out.push_str(&format!("\nnot known: {why}: {}\n", names.join(", ")));
    }
    out
}

fn side(side: &Side, unit: Unit) -> String {
    side.value().map_or_else(|| "?".to_owned(), |value| shown(value, unit))
}

fn shown(value: f64, unit: Unit) -> String {
    let value = (value * 1000.0).round() / 1000.0;
    match unit {
        Unit::Seconds => format!("{value}s"),
        Unit::PerSecond => format!("{value}/s"),
        Unit::Targets | Unit::Pods | Unit::Requests | Unit::Count => format!("{value}"),
    }
}

/// The relations as JSON: `holds` is null where a side is not known.
#[must_use]
pub fn findings_json(findings: &[Finding]) -> Vec<Value> {
    findings.iter().map(finding_json).collect()
}

fn finding_json(finding: &Finding) -> Value {
    let reading = &finding.reading;
    let round = |value: f64| (value * 1_000_000.0).round() / 1_000_000.0;
    json!({
        "id": finding.invariant.id,
        "subject": reading.subject,
        "formula": finding.invariant.formula,
        "holds": reading.holds(),
        "left_seconds": reading.left.value().map(round),
        "right_seconds": reading.right.value().map(round),
        "margin_seconds": reading.margin().map(round),
        "unit": reading.unit,
        "severity": finding.invariant.severity,
        "why": finding.invariant.why,
        "cost": reading.cost,
        "unknown": reading.unknown(),
        "sources": reading.sources,
        "link": format!("docs/timing.md#{}", finding.invariant.id),
    })
}

/// Where the balancer or a server says otherwise than the file, and what could not be learnt.
#[must_use]
pub fn live_text(live: &Live) -> String {
    let mut out = String::new();
    for difference in &live.differences {
        let Difference { key, file, live, says } = difference;
        out.push_str(&format!("{key}: deploy.toml says {file}, {says} says {live}\n"));
    }
    if live.differences.is_empty() {
        out.push_str("nothing that was learnt is otherwise than deploy.toml says\n");
    }
    for unknown in &live.unknown {
        out.push_str(&format!("not learnt: {unknown}\n"));
    }
    out
}

/// Each number with the wrong values that it was set to and what noticed them.
#[must_use]
pub fn mutations_text(mutations: &[Mutation]) -> String {
    let mut rows = vec![["number", "is", "set to", "noticed by"].map(ToOwned::to_owned).to_vec()];
    for mutation in mutations {
        let caught = match (mutation.caught_by.as_slice(), mutation.free) {
            ([], Some(reason)) => format!("free: {reason}"),
            ([], None) => "NOTHING".to_owned(),
            (caught, _) => caught.join(", "),
        };
        rows.push(vec![mutation.key.clone(), mutation.from.to_string(), mutation.to.to_string(), caught]);
    }
    left_aligned(&rows)
}

/// The last column holds sentences, so everything stands to the left.
fn left_aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |row: &Vec<String>| {
        let cells = widths.iter().zip(row).map(|(width, cell)| format!("{cell:width$}  "));
        format!("{}{}\n", cells.collect::<String>(), row[3])
    };
    rows.iter().map(line).collect()
}
