//! A remark at a line of a file, as editors, code hosts and pipelines want it: a plain line, JSON, SARIF 2.1.0 or GitHub's
//! workflow commands.

use crate::config::{LintFinding, Place, Severity};
use crate::fleet::timing::{Difference, Finding};
use serde_json::{Value, json};

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The check fails.
    Error,
    /// Somebody should look.
    Warning,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One remark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The rule's name.
    pub rule: String,
    /// How much it matters.
    pub level: Level,
    /// File, line and column from 1; none where it is about no line.
    pub place: Option<(String, usize, usize)>,
    /// What, and what to do about it.
    pub text: String,
}

impl Notice {
    /// A relation that does not hold, at the first of its numbers that was written down.
    pub fn of_finding(finding: &Finding, place_of: impl Fn(&str) -> Option<Place>) -> Self {
        let reading = &finding.reading;
        let show = |value: Option<f64>| {
            value.map_or_else(|| "?".to_owned(), |value| format!("{}", (value * 1000.0).round() / 1000.0))
        };
        let text = format!(
            "{}: {}, but {} against {}{}. {}",
            finding.name(),
            finding.invariant.formula,
            show(reading.left.value()),
            show(reading.right.value()),
            reading.cost.as_ref().map_or_else(String::new, |cost| format!(": {cost}")),
            finding.invariant.why
        );
        let level = if finding.fails_check() { Level::Error } else { Level::Warning };
        let place = reading.sources.iter().rev().find_map(|key| place_of(key));
        Self { rule: finding.invariant.id.to_owned(), level, place: place.as_ref().map(position), text }
    }

    /// A number that is not what the file says.
    #[must_use]
    pub fn of_difference(difference: &Difference, place: Option<&Place>) -> Self {
        let Difference { key, file, live, says } = difference;
        let text = format!("{key}: deploy.toml says {file}, {says} says {live}");
        Self { rule: "live-differs".to_owned(), level: Level::Error, place: place.map(position), text }
    }

    /// A number that nothing guards.
    #[must_use]
    pub fn of_unguarded(key: &str, place: Option<&Place>) -> Self {
        let text = format!("nothing notices when {key} is wrong");
        Self { rule: "unguarded-number".to_owned(), level: Level::Error, place: place.map(position), text }
    }

    /// As a line of a log.
    #[must_use]
    pub fn line(&self) -> String {
        let word = self.level.word();
        match &self.place {
            Some((file, line, column)) => format!("{file}:{line}:{column}: {word}: {} [{}]", self.text, self.rule),
            None => format!("{word}: {} [{}]", self.text, self.rule),
        }
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let (file, line, column) =
            self.place.clone().map_or((None, None, None), |(f, l, c)| (Some(f), Some(l), Some(c)));
        json!({"rule": self.rule, "level": self.level.word(), "file": file, "line": line, "column": column, "text": self.text})
    }
}

impl From<&LintFinding> for Notice {
    fn from(finding: &LintFinding) -> Self {
        let level = if finding.severity == Severity::Error { Level::Error } else { Level::Warning };
        let text = format!("{}; {}", finding.text, finding.hint);
        Self { rule: finding.id.to_owned(), level, place: Some(position(&finding.place)), text }
    }
}

fn position(place: &Place) -> (String, usize, usize) {
    let (line, column) = place.position();
    (place.source.name.clone(), line, column)
}

/// All of them as a SARIF 2.1.0 log.
#[must_use]
pub fn sarif(notices: &[Notice]) -> Value {
    let mut rules: Vec<&str> = notices.iter().map(|notice| notice.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    let result = |notice: &Notice| {
        let location = |(file, line, column): &(String, usize, usize)| {
            json!({"physicalLocation": {
                "artifactLocation": {"uri": file},
                "region": {"startLine": line, "startColumn": column},
            }})
        };
        json!({
            "ruleId": notice.rule,
            "level": notice.level.word(),
            "message": {"text": notice.text},
            "locations": notice.place.iter().map(location).collect::<Vec<_>>(),
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "handover",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|rule| json!({"id": rule})).collect::<Vec<_>>(),
            }},
            "results": notices.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

/// All of them as GitHub's workflow commands, one a line.
#[must_use]
pub fn github(notices: &[Notice]) -> String {
    // GitHub docs, "Workflow commands": `%`, CR and LF are escaped in the message, `:` and `,` in properties too.
    let message = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| message(text).replace(':', "%3A").replace(',', "%2C");
    let line = |notice: &Notice| {
        let at = notice.place.as_ref().map_or_else(String::new, |(file, line, column)| {
            format!("file={},line={line},col={column},", property(file))
        });
        format!("::{} {at}title={}::{}", notice.level.word(), property(&notice.rule), message(&notice.text))
    };
    notices.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice() -> Notice {
        let place = Some(("a,b.toml".to_owned(), 7, 3));
        Notice { rule: "serve-covers-out".into(), level: Level::Error, place, text: "60 against 5,\n100%".into() }
    }

    #[test]
    fn a_command_of_github_cannot_be_broken_out_of() {
        assert_eq!(
            github(&[notice()]),
            "::error file=a%2Cb.toml,line=7,col=3,title=serve-covers-out::60 against 5,%0A100%25"
        );
        let nowhere = Notice { place: None, level: Level::Warning, ..notice() };
        assert!(github(&[nowhere]).starts_with("::warning title="));
    }

    #[test]
    fn a_sarif_log_names_rule_level_and_line() {
        let log = sarif(&[notice()]);
        let result = &log["runs"][0]["results"][0];
        assert_eq!((&result["ruleId"], &result["level"]), (&json!("serve-covers-out"), &json!("error")));
        assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 7);
        assert_eq!(log["runs"][0]["tool"]["driver"]["rules"][0]["id"], "serve-covers-out");
    }
}
