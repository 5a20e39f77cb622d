//! Runs a command line: in a process group of its own, with a deadline, with nothing on stdin and a bounded output.
//!
//! Knows nothing of Docker or Compose. What is dropped or late is killed with its whole group, so that a command
//! never outlives who waits for it.

use super::wire::{Failure, FailureKind};
use crate::fleet::model::show_duration;
use crate::fleet::release::FROM_THE_SERVER;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// More than this on stdout is no answer to anything that is asked here.
const STDOUT_LIMIT: usize = 32 * 1024 * 1024;
/// Of stderr the end is kept.
const STDERR_LIMIT: usize = 64 * 1024;
/// After the command's end, its pipes may be held open by what it left behind.
const PIPES_AFTER_END: Duration = Duration::from_secs(2);
/// What a person is shown of a failed command.
const SHOWN_LINES: usize = 12;
/// A command as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Variables besides the few that every command gets.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub cwd: Option<PathBuf>,
}

impl CommandLine {
    /// A program and its arguments.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(argv: I) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), env: BTreeMap::new(), cwd: None }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: Into<String>>(mut self, args: I) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Says where it runs.
    #[must_use]
    pub fn cwd(mut self, folder: &Path) -> Self {
        self.cwd = Some(folder.to_owned());
        self
    }

    /// The words for people: the program and what it was told first.
    #[must_use]
    pub fn shown(&self) -> String {
        self.argv.join(" ")
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; 128 and the signal where one ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// The end of what it complained of.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Output {
    /// What it printed, as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The last lines of what it complained of, or of what it printed.
    #[must_use]
    pub fn last_lines(&self) -> Vec<String> {
        let text = if self.stderr.trim().is_empty() { self.text() } else { self.stderr.clone() };
        last_lines(&text, SHOWN_LINES)
    }

    /// Itself, if it ended with 0.
    ///
    /// # Errors
    /// The failure as a person is told of it otherwise.
    pub fn success(self, what: &str) -> Result<Self, Failure> {
        if self.code == 0 {
            return Ok(self);
        }
        let output = self.last_lines();
        let last = output.last().cloned().unwrap_or_else(|| "it printed nothing".to_owned());
        Err(Failure::new(FailureKind::Command, format!("{what} failed (exit code {}): {last}", self.code))
            .output(output))
    }
}

/// The last lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| line.chars().take(500).collect()).collect()
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started or is not over within `within`; it is killed then.
pub async fn run(line: &CommandLine, within: Duration) -> Result<Output, Failure> {
    run_noted(line, within, |_| {}).await
}

/// Runs a command to its end; `note` hears the number of its process group before anything is waited for.
///
/// # Errors
/// When it cannot be started or is not over within `within`; it is killed then.
pub async fn run_noted(line: &CommandLine, within: Duration, note: impl FnOnce(u32)) -> Result<Output, Failure> {
    let began = Instant::now();
    let mut child = command(line)?.spawn().map_err(|error| not_started(line, &error))?;
    let group = Group(child.id());
    if let Some(id) = group.0 {
        note(id);
    }
    let stdout = tokio::spawn(read_start(child.stdout.take()));
    let stderr = tokio::spawn(read_end(child.stderr.take()));
    let status = match tokio::time::timeout(within, child.wait()).await {
        Ok(status) => status.map_err(|error| not_started(line, &error))?,
        Err(_) => {
            group.kill();
            drop(tokio::time::timeout(PIPES_AFTER_END, child.wait()).await);
            let stderr =
                tokio::time::timeout(PIPES_AFTER_END, stderr).await.ok().and_then(Result::ok).unwrap_or_default();
            let message = format!("`{}` was not over within {} and was killed", line.shown(), show_duration(within));
            return Err(Failure::new(FailureKind::Command, message).output(last_lines(&stderr, SHOWN_LINES)));
        }
    };
    let both = async { (stdout.await.unwrap_or_default(), stderr.await.unwrap_or_default()) };
    let (stdout, stderr) = tokio::time::timeout(PIPES_AFTER_END, both).await.unwrap_or_default();
    drop(group);
    Ok(Output { code: code(status), stdout, stderr, took: began.elapsed() })
}

fn command(line: &CommandLine) -> Result<Command, Failure> {
    let Some((program, args)) = line.argv.split_first() else {
        return Err(Failure::new(FailureKind::Internal, "an empty command line"));
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(FROM_THE_SERVER.iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value))))
        .envs([("LC_ALL", "C.UTF-8"), ("NO_COLOR", "1")])
        .envs(&line.env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(cwd) = &line.cwd {
        command.current_dir(cwd);
    }
    Ok(command)
}

fn not_started(line: &CommandLine, error: &std::io::Error) -> Failure {
    let program = line.argv.first().map_or("", String::as_str);
    let kind = if error.kind() == std::io::ErrorKind::NotFound { FailureKind::Missing } else { FailureKind::Command };
    Failure::new(kind, format!("`{program}` cannot be run: {error}"))
}

fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The process group of a command; whatever of it still runs when nobody waits any more is killed.
struct Group(Option<u32>);

impl Group {
    fn kill(&self) {
        if let Some(pid) = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            // Gone already is what is wanted.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn read_start<R: AsyncRead + Unpin>(from: Option<R>) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut chunk = vec![0; 16 * 1024];
    let Some(mut from) = from else { return kept };
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        let room = STDOUT_LIMIT - kept.len();
        kept.extend_from_slice(&chunk[..n.min(room)]);
    }
    kept
}

async fn read_end<R: AsyncRead + Unpin>(from: Option<R>) -> String {
    let mut kept = VecDeque::new();
    let mut chunk = vec![0; 16 * 1024];
    let Some(mut from) = from else { return String::new() };
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        kept.extend(&chunk[..n]);
        kept.drain(..kept.len().saturating_sub(STDERR_LIMIT));
    }
    String::from_utf8_lossy(kept.make_contiguous()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::process::ProcessId;

    fn sh(script: &str) -> CommandLine {
        CommandLine::new(["sh", "-c", script])
    }

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_late_command_is_killed_with_all_that_it_started() {
        let mut group = 0;
        let line = sh("sleep 61 & echo working >&2; wait");
        let failure = run_noted(&line, Duration::from_millis(300), |id| group = id).await.expect_err("late");
        assert!(failure.message.contains("was killed"), "{failure}");
        assert_eq!(failure.output, ["working"]);
        assert!(!ProcessId { pid: group, start: 0, boot: crate::server::process::boot_id() }.group_is_alive());
    }

    #[tokio::test]
    async fn what_a_command_left_behind_neither_stays_nor_is_waited_for() {
        let mut group = 0;
        let began = Instant::now();
        let output = run_noted(&sh("sleep 62 & echo done"), SOON, |id| group = id).await.expect("ended");
        assert_eq!(output.code, 0);
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!ProcessId { pid: group, start: 0, boot: crate::server::process::boot_id() }.group_is_alive());
    }

    #[tokio::test]
    async fn nothing_comes_in_and_the_callers_environment_stays_out() {
        let output = run(&sh("cat; env").env("TAG", "a$b \"c\"\nd"), SOON).await.expect("ended").text();
        assert!(output.contains("TAG=a$b \"c\"\nd"), "{output}");
        assert!(!output.contains("CARGO_MANIFEST_DIR"), "{output}");
    }

    #[tokio::test]
    async fn a_failed_command_says_what_it_said() {
        let failure = run(&sh("echo first >&2; echo last >&2; exit 3"), SOON)
            .await
            .expect("ended")
            .success("the try")
            .expect_err("3");
        assert_eq!(failure.message, "the try failed (exit code 3): last");
        assert_eq!(failure.output, ["first", "last"]);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_missing() {
        let failure = run(&CommandLine::new(["no-such-program"]), SOON).await.expect_err("missing");
        assert_eq!(failure.kind, FailureKind::Missing);
    }

    #[test]
    fn a_reminder_that_code_of_a_signal_is_128_and_its_number() {
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(code(std::process::ExitStatus::from_raw(9)), 137);
    }
}
