//! `handover measure --access-log`: what a balancer's own logs say became of the requests. Reads no deploy.toml.

mod data;
mod text;

use super::args::MeasureArgs;
use super::finish;
use crate::clock::Stamp;
use crate::diag::{Exit, Problem};
use crate::event::{Event, Line, Sink};
use crate::measure::access_log::{Reading, Rules, Side, Tally, Window, inputs, read, time};
use crate::report::{Format, Reporter};
use serde_json::Value;

/// So many notes of one kind are told.
const NOTES: usize = 10;

/// What was found.
struct Found {
    tally: Tally,
    reading: Reading,
    left_out: Vec<String>,
    /// Inside of the window, and outside.
    sums: (Side, Side),
}

pub(super) fn run(args: &MeasureArgs, reporter: &Reporter) -> u8 {
    let found = match look(args, reporter.format()) {
        Ok(found) => found,
        Err(problem) => return finish::refused(reporter, &problem),
    };
    let (problem, notes) = (found.problem(), found.notes());
    let known = found.tally.records > 0;
    if args.log.csv {
        notes.iter().for_each(|note| reporter.note(note));
        found.warn_of_broken_lines(reporter);
        if known {
            reporter.result(&data::csv(&found));
        }
    } else if reporter.format() != Format::Json && known {
        reporter.result(&text::text(&found, &notes));
    }
    let result = if reporter.format() == Format::Json { data::json(&found, known, &notes) } else { Value::Null };
    finish::ended(reporter, problem.as_ref(), &result)
}

fn look(MeasureArgs { log: args, health_path, .. }: &MeasureArgs, format: Format) -> Result<Found, Problem> {
    let wrong = |message: &str| Problem::new(Exit::Usage, message);
    let window = Window { from: args.from, to: args.to };
    if args.csv && format == Format::Json {
        return Err(wrong("--csv and --output json: stdout can hold one of them")
            .hint("the summary of --output json has the same counts"));
    }
    if let (Some(from), Some(to)) = (window.from, window.to)
        && from >= to
    {
        return Err(wrong(&format!("--from {} is not before --to {}", time::show(from), time::show(to))));
    }
    let inputs = inputs(&args.access_log).map_err(|missing| {
        wrong(&missing.join("\n"))
            .hint("nothing was read; --access-log takes files, folders with *.log or *.gz, and - for stdin")
    })?;
    let mut tally = Tally::new(Rules { window, health_paths: health_path.clone() });
    let reading = read(&inputs.files, &mut tally);
    let sums = tally.sums();
    Ok(Found { tally, reading, left_out: inputs.left_out, sums })
}

impl Found {
    /// How the run ends otherwise than well. What could not be read outweighs what was: the losses may be more.
    fn problem(&self) -> Option<Problem> {
        let (lost, total) = (self.sums.0.requests.lost(), self.sums.0.requests.total);
        let unread: Vec<String> = self
            .reading
            .files
            .iter()
            .filter_map(|file| file.error.as_ref().map(|error| format!("{}: {error}", file.file)))
            .collect();
        if !unread.is_empty() {
            let so_far = if lost > 0 {
                format!("\nin what was read, {lost} of {total} requests were lost")
            } else {
                String::new()
            };
            return Some(
                Problem::new(Exit::Usage, format!("{}{so_far}", unread.join("\n")))
                    .hint("what was not read is in no count; fetch the file again")
                    .output(if self.tally.records == 0 { self.broken_lines() } else { Vec::new() }),
            );
        }
        if self.reading.lines() == 0 {
            let hint =
                "AWS writes no empty files: was the log fetched? Best-effort as they are, an empty one proves nothing";
            return Some(Problem::new(Exit::Usage, "the log is empty: nothing is known of any request").hint(hint));
        }
        if self.tally.records == 0 {
            let message = format!("none of the {} lines is one of an ALB's access log", self.reading.lines());
            let hint = "other logs (connection, health check, Classic or Network Load Balancer) have other fields";
            return Some(Problem::new(Exit::Usage, message).hint(hint).output(self.broken_lines()));
        }
        let place = if self.tally.window().given() { " in the window" } else { "" };
        let what = if lost == 1 { "was" } else { "were" };
        (lost > 0).then(|| Problem::new(Exit::Lost, format!("{lost} of {total} requests{place} {what} lost")))
    }

    fn broken_lines(&self) -> Vec<String> {
        let shown = self.reading.shown.iter();
        let mut lines: Vec<String> = shown.map(|one| format!("{}:{}: {}", one.file, one.line, one.what)).collect();
        let more = self.reading.broken().saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }

    /// Beside CSV, which has no place for them.
    fn warn_of_broken_lines(&self, reporter: &Reporter) {
        if self.tally.records > 0 && self.reading.broken() > 0 {
            let lines = self.broken_lines().join("\n  ");
            let what = format!("{} broken lines, in no count:\n  {lines}", self.reading.broken());
            reporter.take(Line::new(Stamp::ZERO, Event::Warning { server: None, what }));
        }
    }

    /// What has to be known to read the counts rightly.
    fn notes(&self) -> Vec<String> {
        let (tally, mut notes) = (&self.tally, Vec::new());
        let window = tally.window();
        if tally.records > 0 && window.given() && self.sums.0.requests.total == 0 {
            notes.push("no request of the log came in the window: that proves nothing".to_owned());
        }
        if let Some((first, last)) = tally.span {
            if let Some(from) = window.from.filter(|from| *from < first) {
                notes.push(format!("the window begins at {}, the log only at {}", time::show(from), time::show(first)));
            }
            if let Some(to) = window.to.filter(|to| *to > last) {
                notes.push(format!("the window ends at {}, the log already at {}", time::show(to), time::show(last)));
            }
        }
        if tally.counted_back > 0 {
            notes.push(format!(
                "{} lines do not say when their request came: `time` less the processing times is taken",
                tally.counted_back
            ));
        }
        if tally.unforwarded > 0 {
            notes.push(format!(
                "{} answers 502, 503 or 504 are the balancer's own although no rule forwarded or answered the request; counted as served",
                tally.unforwarded
            ));
        }
        let twice = |files: &String| format!("{files} begin with the same line: requests may be counted twice");
        notes.extend(first_few(self.reading.overlaps.iter().map(twice).collect()));
        notes.extend(first_few(self.left_out.iter().map(|what| format!("left out {what}")).collect()));
        notes
    }
}

/// A folder may hold thousands of files of another kind.
fn first_few(mut notes: Vec<String>) -> Vec<String> {
    let more = notes.len().saturating_sub(NOTES);
    notes.truncate(NOTES);
    if more > 0 {
        notes.push(format!("and {more} more like these"));
    }
    notes
}

/// Lost requests per 10,000.
fn per_10_000(side: &Side) -> Option<f64> {
    let requests = side.requests;
    (requests.total > 0).then(|| (requests.lost() as f64 / requests.total as f64 * 1e6).round() / 100.0)
}
