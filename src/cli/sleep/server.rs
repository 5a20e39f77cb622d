//! `handover sleep status|wake|now|report` on a server: how its backends that may sleep stand, waking them, putting them to sleep, and whether it pays.

use super::super::args::{Global, SleepAction};
use super::super::finish;
use crate::config::load_gateway;
use crate::diag::{Exit, Problem};
use crate::fleet::model::{GatewaySpec, HostName, SleepPlace, show_duration};
use crate::gateway::{ASK_FORMAT, Ask, HostSays, Report, Says, Verdict, entries};
use crate::report::{Format, Reporter, table};
use crate::server::layout::asleep::{self, Asleep};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// For one question.
const WITHIN: Duration = Duration::from_secs(10);
/// Between two questions while something is waited for.
const PAUSE: Duration = Duration::from_millis(100);

type Ended = Result<(Value, String), Problem>;

pub(super) async fn run(global: &Global, action: &SleepAction, reporter: &Reporter) -> u8 {
    let ended = match read(global) {
        Err(problem) => Err(problem),
        Ok((spec, place)) => match action {
            SleepAction::Status { host } => status(&place, host.as_deref()),
            SleepAction::Wake { host } => wake(&spec, &place, host).await,
            SleepAction::Now { host } => now(&spec, &place, host).await,
            SleepAction::Report { host, within, days } => {
                return report(reporter, &spec, &place, host.as_deref(), *within, *days);
            }
            SleepAction::Check(_) | SleepAction::Render(_) => return Exit::Usage.into(),
        },
    };
    match ended {
        Err(problem) => finish::refused(reporter, &problem),
        Ok((result, text)) => {
            if reporter.format() != Format::Json {
                reporter.result(&text);
            }
            finish::ended(reporter, None, &result)
        }
    }
}

fn read(global: &Global) -> Result<(GatewaySpec, SleepPlace), Problem> {
    let (spec, _) = load_gateway(&global.config, global.destination.as_deref())
        .map_err(|problems| Problem::new(Exit::Usage, problems.render(false).trim_end().to_owned()))?;
    let none = || {
        Problem::new(Exit::Usage, format!("{}: no host of the gateway may sleep", global.config.display()))
            .hint("say `sleep` in a `[[gateway.host]]`, or name the gateway's file with `-c`; docs/sleep.md says more")
    };
    let place = spec.sleep.clone().ok_or_else(none)?;
    Ok((spec, place))
}

fn ask(place: &SleepPlace, ask: &Ask) -> Result<Says, Problem> {
    let path = asleep::socket(Path::new(&place.dir));
    let wrong = |error: std::io::Error| {
        let what = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => "no gateway runs here".to_owned(),
            _ => error.to_string(),
        };
        Problem::new(Exit::Failed, format!("{}: {what}", path.display()))
            .hint("the gateway answers there, to its own user and root; `handover sleep report` works without it")
    };
    let mut stream = UnixStream::connect(&path).map_err(wrong)?;
    stream.set_read_timeout(Some(WITHIN)).and_then(|()| stream.set_write_timeout(Some(WITHIN))).map_err(wrong)?;
    let mut line = serde_json::to_string(ask).map_err(std::io::Error::other).map_err(wrong)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(wrong)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(wrong)?;
    let says: Says = serde_json::from_str(&answer).map_err(std::io::Error::other).map_err(wrong)?;
    if says.format != ASK_FORMAT {
        let what = format!("the gateway speaks format {}, this program {ASK_FORMAT}", says.format);
        return Err(Problem::new(Exit::Failed, what).hint("use the program that the gateway was started from"));
    }
    Ok(says)
}

fn status(place: &SleepPlace, host: Option<&str>) -> Ended {
    let written = asleep::records(Path::new(&place.dir))
        .map_err(|error| Problem::new(Exit::Failed, format!("what is asleep cannot be read: {error}")))?;
    let says = match ask(place, &Ask::Status) {
        Ok(says) => says,
        Err(problem) => return Err(without_gateway(problem, &written)),
    };
    let hosts: Vec<HostSays> = says.hosts.into_iter().filter(|one| host.is_none_or(|host| one.host == host)).collect();
    if let (Some(host), true) = (host, hosts.is_empty()) {
        return Err(stranger(host));
    }
    let mut rows =
        vec![["host", "state", "for", "here", "waiting", "sleeps in", "services"].map(str::to_owned).to_vec()];
    let rounded = |seconds: f64| show_duration(Duration::from_secs(seconds.max(0.0) as u64));
    rows.extend(hosts.iter().map(|one| {
        vec![
            one.host.clone(),
            one.state.clone(),
            rounded(one.seconds),
            one.present.to_string(),
            one.waiting.to_string(),
            one.sleeps_in.map_or_else(|| "-".to_owned(), rounded),
            one.services.join(", "),
        ]
    }));
    Ok((json!({ "hosts": hosts, "written": written }), table(&rows)))
}

/// What is written down is true also while nobody answers.
fn without_gateway(mut problem: Problem, written: &[Asleep]) -> Problem {
    for one in written {
        let names: Vec<&str> = one.services.iter().map(|name| name.as_str()).collect();
        let services = names.join(", ");
        problem.message.push_str(&format!("\nwritten down: {} ({services}) is off on purpose: {}", one.host, one.why));
    }
    problem
}

fn stranger(host: &str) -> Problem {
    Problem::new(Exit::Usage, format!("no host `{host}` that may sleep")).hint("`handover sleep status` names them")
}

/// The host as the gateway calls it, and how long its start may take.
fn known(spec: &GatewaySpec, host: &str) -> Result<(String, Duration), Problem> {
    let name = HostName::parse(host).map_err(|_| stranger(host))?;
    let found = spec.hosts.iter().find(|one| one.name == name || one.aliases.contains(&name));
    let found = found.and_then(|one| Some((one.name.to_string(), one.sleep.as_ref()?.start)));
    found.ok_or_else(|| stranger(host))
}

async fn wake(spec: &GatewaySpec, place: &SleepPlace, host: &str) -> Ended {
    let (host, start) = known(spec, host)?;
    let began = Instant::now();
    let asked = Ask::Wake { host: host.clone() };
    let says = until(place, asked, &host, start * 2 + WITHIN, |state| state == "awake" || state == "failed").await?;
    let took = began.elapsed().as_secs_f64();
    if says.state != "awake" {
        let what = format!("{host} is {} after {took:.1}s", says.state);
        return Err(Problem::new(Exit::Failed, what).hint("the gateway's own output says why"));
    }
    Ok((json!({ "host": host, "state": says.state, "seconds": took }), format!("{host} is awake after {took:.1}s")))
}

async fn now(spec: &GatewaySpec, place: &SleepPlace, host: &str) -> Ended {
    let (host, _) = known(spec, host)?;
    let began = Instant::now();
    let asked = Ask::Now { host: host.clone() };
    // A stop takes as long as the containers' grace periods, which only the engine knows.
    let most = Duration::from_secs(600);
    let says = until(place, asked, &host, most, |state| !matches!(state, "draining" | "stopping")).await?;
    let took = began.elapsed().as_secs_f64();
    if says.state != "asleep" {
        let what = format!("{host} does not sleep: it is {}", says.state);
        return Err(Problem::new(Exit::Refused, what).hint("the gateway's own output says why"));
    }
    Ok((json!({ "host": host, "state": says.state, "seconds": took }), format!("{host} sleeps after {took:.1}s")))
}

/// Asks, and then asks how it stands until that will do.
async fn until(
    place: &SleepPlace,
    first: Ask,
    host: &str,
    most: Duration,
    is_enough: impl Fn(&str) -> bool,
) -> Result<HostSays, Problem> {
    let end = Instant::now() + most;
    let mut says = ask(place, &first)?;
    if let Some(why) = says.refused {
        return Err(Problem::new(Exit::Refused, format!("{host}: {why}")));
    }
    loop {
        let found = says.hosts.into_iter().find(|one| one.host == host).ok_or_else(|| stranger(host))?;
        if is_enough(&found.state) || Instant::now() >= end {
            return Ok(found);
        }
        tokio::time::sleep(PAUSE).await;
        says = ask(place, &Ask::Status)?;
    }
}

fn report(
    reporter: &Reporter,
    spec: &GatewaySpec,
    place: &SleepPlace,
    host: Option<&str>,
    within: Duration,
    days: u32,
) -> u8 {
    let names = match host.map(|host| known(spec, host)).transpose() {
        Err(problem) => return finish::refused(reporter, &problem),
        Ok(Some((name, _))) => vec![name],
        Ok(None) => spec.hosts.iter().filter(|one| one.sleep.is_some()).map(|one| one.name.to_string()).collect(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for name in names {
        let (log, strange) = match entries(Path::new(&place.dir), &name) {
            Ok(read) => read,
            Err(error) => {
                let problem = Problem::new(Exit::Failed, format!("{name}: the wake log cannot be read: {error}"));
                return finish::refused(reporter, &problem);
            }
        };
        if strange > 0 {
            reporter.note(&format!("warning: {name}: {strange} lines of the wake log are not understood"));
        }
        let report = Report::of(&log, now, within, days);
        if reporter.format() != Format::Json {
            reporter.result(&text(&name, &report));
        }
        if report.gate.verdict != Verdict::Passed {
            wrong.push(format!("{name}: {}", report.gate.why));
        }
        found.push(json!({ "host": name, "report": report }));
    }
    let problem = (!wrong.is_empty()).then(|| Problem::new(Exit::Refused, wrong.join("\n")));
    finish::ended(reporter, problem.as_ref(), &json!({ "reports": found }))
}

fn text(host: &str, report: &Report) -> String {
    let mut rows = vec![["woken", "seconds", "decision", "container", "accept", "answer"].map(str::to_owned).to_vec()];
    let figure = |seconds: f64| format!("{seconds:.3}");
    rows.extend(report.wakes.iter().map(|wake| {
        let at = UNIX_EPOCH + Duration::from_secs_f64(wake.at.max(0.0));
        let parts = [wake.seconds, wake.decision, wake.container, wake.accept].map(figure);
        let answer = wake.answer.map_or_else(|| "-".to_owned(), figure);
        let stamp = humantime::format_rfc3339_seconds(at).to_string();
        [stamp].into_iter().chain(parts).chain([answer]).collect()
    }));
    let figures = [report.p50, report.p95, report.p99, report.slowest];
    let [p50, p95, p99, slowest] = figures.map(|seconds| seconds.map_or_else(|| "-".to_owned(), figure));
    let verdict = match report.gate.verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        Verdict::TooEarly => "too early to say",
    };
    format!(
        "{host}\n{}\n{} wakes, {} failed; p50 {p50}, p95 {p95}, p99 {p99}, slowest {slowest} seconds\nasleep for {:.1} hours, {:.0} MiB-hours saved\ngate: {verdict}: {}\n",
        table(&rows).trim_end(),
        report.wakes.len(),
        report.failed,
        report.hours_asleep,
        report.mib_hours,
        report.gate.why,
    )
}
