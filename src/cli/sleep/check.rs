//! `handover sleep check`: whether the numbers of tenants on Kubernetes, or of somebody's own files, fit together.

use super::super::args::{CheckFormat, TenantCheckArgs, TenantsArgs};
use super::super::finish;
use super::files;
use crate::config::{LoadedTenants, Place, load_tenants};
use crate::diag::{Exit, Problem};
use crate::fleet::model::{Mode, show_duration};
use crate::fleet::timing::{Finding, Severity, Wake, of_wake};
use crate::kubernetes::{Fault, of_tenants, wakes};
use crate::report::{Format, Notice, NoticeLevel, Reporter, findings_json, github, relations_text, sarif};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn run(args: &TenantCheckArgs, reporter: &Reporter) -> u8 {
    if !args.files.is_empty() {
        return match files::read(args) {
            Ok(read) => {
                let place = |key: &str| read.place(key);
                tell(args.format, reporter, &Checked::new(read.wakes.clone(), read.faults.clone(), place))
            }
            Err(problem) => finish::refused(reporter, &problem),
        };
    }
    let loaded = match load(&args.tenants) {
        Ok(loaded) => loaded,
        Err(problem) => return finish::refused(reporter, &problem),
    };
    let mode = args.tenants.mode.unwrap_or(loaded.tenants.shared.mode);
    let checked = Checked::of(&loaded, mode);
    tell(args.format, reporter, &checked)
}

/// Reads the tenants' files.
pub(super) fn load(args: &TenantsArgs) -> Result<LoadedTenants, Problem> {
    load_tenants(&args.tenants).map_err(|problems| {
        let count = problems.iter().count();
        let things = if count == 1 { "problem" } else { "problems" };
        let text = format!("{count} {things} in the tenants' files\n{}", problems.render(false).trim_end());
        Problem::new(Exit::Usage, text).hint("docs/tenants.md lists every key")
    })
}

/// What a check found.
pub(super) struct Checked {
    wakes: Vec<Wake>,
    findings: Vec<Finding>,
    faults: Vec<Fault>,
    notices: Vec<Notice>,
}

impl Checked {
    pub(super) fn of(loaded: &LoadedTenants, mode: Mode) -> Self {
        Self::new(wakes(&loaded.tenants, mode), of_tenants(loaded, mode), |key| loaded.place(key))
    }

    pub(super) fn new(wakes: Vec<Wake>, faults: Vec<Fault>, place: impl Fn(&str) -> Option<Place>) -> Self {
        let findings: Vec<Finding> = wakes.iter().flat_map(of_wake).collect();
        let broken = findings.iter().filter(|finding| finding.is_broken());
        let notices = broken.map(|finding| Notice::of_finding(finding, &place));
        let notices = notices.chain(faults.iter().map(of_fault)).collect();
        Self { wakes, findings, faults, notices }
    }

    /// What a check fails for, one line each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let broken = self.findings.iter().filter(|finding| finding.fails_check());
        let lines = broken.map(|finding| {
            let cost = finding.reading.cost.as_deref().unwrap_or(finding.invariant.why);
            format!("{}: {}: {cost}", finding.name(), finding.invariant.formula)
        });
        lines.chain(self.faults.iter().map(|fault| of_fault(fault).line())).collect()
    }

    /// What refuses.
    fn problem(&self) -> Option<Problem> {
        let relations = self.findings.iter().filter(|finding| finding.fails_check()).count();
        let faults = self.faults.iter().filter(|fault| fault.fails_check()).count();
        let what: Vec<String> = [
            (relations, "one relation does not hold", "relations do not hold"),
            (faults, "one thing is wrong without being a relation", "things are wrong without being relations"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| if count == 1 { one.to_owned() } else { format!("{count} {many}") })
        .collect();
        let hint = "docs/timing.md says what each relation is for, docs/kubernetes.md what each fault means";
        (!what.is_empty()).then(|| Problem::new(Exit::Refused, what.join("; ")).hint(hint))
    }
}

fn of_fault(fault: &Fault) -> Notice {
    let place = fault.place.as_ref().map(|place| {
        let (line, column) = place.position();
        (place.source.name.clone(), line, column)
    });
    let level = if fault.severity == Severity::Error { NoticeLevel::Error } else { NoticeLevel::Warning };
    Notice { rule: fault.id.to_owned(), level, place, text: format!("{}; {}", fault.text, fault.hint) }
}

fn tell(format: Option<CheckFormat>, reporter: &Reporter, checked: &Checked) -> u8 {
    let problem = checked.problem();
    match format {
        Some(CheckFormat::Sarif) => reporter.result(&format!("{:#}", sarif(&checked.notices))),
        Some(CheckFormat::Github) => reporter.result(&github(&checked.notices)),
        None if reporter.format() != Format::Json => {
            reporter.result(&relations_text(&checked.findings, &between(&checked.wakes)));
            checked.faults.iter().for_each(|fault| reporter.result(&of_fault(fault).line()));
        }
        None => {}
    }
    if format.is_some() {
        if let Some(problem) = &problem {
            reporter.problem(problem);
        }
        return problem.map_or(Exit::Done, |problem| problem.exit).into();
    }
    finish::ended(reporter, problem.as_ref(), &json_of(checked))
}

/// How each tenant's wake adds up, and when it sleeps.
fn between(wakes: &[Wake]) -> String {
    let mut out = String::new();
    for wake in wakes {
        let show = |seconds: Option<f64>| {
            seconds.map_or_else(|| "?".to_owned(), |seconds| show_duration(Duration::from_secs_f64(seconds)))
        };
        let part = |part: &crate::fleet::timing::Part| format!("{} {}", part.name, show(part.most.side().value()));
        let parts: Vec<String> = wake.parts.iter().map(part).collect();
        out.push_str(&format!(
            "\n{}: a wake takes at most {} = {}; it sleeps at most {} after its last use\n",
            wake.tenant,
            show(wake.longest().value()),
            parts.join(" + "),
            show(wake.sleeps_after()),
        ));
    }
    if wakes.is_empty() {
        out.push_str("\nnobody here goes to zero\n");
    }
    out
}

fn json_of(checked: &Checked) -> Value {
    let tenant = |wake: &Wake| {
        let parts: Vec<Value> =
            wake.parts.iter().map(|part| json!({"part": part.name, "seconds": part.most.side().value()})).collect();
        json!({
            "tenant": wake.tenant,
            "parts": parts,
            "longest_seconds": wake.longest().value(),
            "sleeps_after_seconds": wake.sleeps_after(),
        })
    };
    json!({
        "invariants": findings_json(&checked.findings),
        "broken": checked.findings.iter().filter(|finding| finding.is_broken()).count(),
        "faults": checked.faults.iter().map(|fault| of_fault(fault).json()).collect::<Vec<_>>(),
        "tenants": checked.wakes.iter().map(tenant).collect::<Vec<_>>(),
    })
}
