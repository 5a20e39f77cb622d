//! The real end of `Here`: runs the team's own commands on this machine.
//!
//! A command gets the environment of whoever deploys, nothing on stdin, and a process group of its own, so that Ctrl-C reaches
//! it through us and not beside us. Where it ends by itself, what it left running runs on (a tunnel); where it is ended by
//! force, all of it is.

use crate::fleet::model::show_duration;
use crate::rollout::port::Here;
use crate::rollout::{HookCommand, HookFailed, Running};
use crate::server::Secrets;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

/// From the order to end to the force.
const FAREWELL: Duration = Duration::from_secs(5);
/// What a command left behind may hold its pipes open.
const PIPES_AFTER_END: Duration = Duration::from_millis(500);
/// A longer line is cut.
const LINE: usize = 4096;
/// A command that prints more is not shown to the end.
const LINES: usize = 2000;
/// So many of the last lines stand beside its failure.
const LAST: usize = 12;

/// This machine, for the commands of one deploy.toml.
#[derive(Debug)]
pub struct Commands {
    dir: PathBuf,
    env: BTreeMap<String, String>,
    secrets: Secrets,
    interrupts: watch::Receiver<u32>,
}

/// Why a command is ended by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Limit,
    Interrupt,
}

impl Commands {
    /// Commands run in the folder of deploy.toml and are told these variables besides; what `secrets` holds is never shown.
    #[must_use]
    pub fn new(dir: &Path, env: BTreeMap<String, String>, secrets: Secrets, interrupts: watch::Receiver<u32>) -> Self {
        let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir.to_owned() };
        Self { dir, env, secrets, interrupts }
    }

    async fn carry_out(&self, command: HookCommand, said: mpsc::UnboundedSender<String>) -> Result<(), HookFailed> {
        let shown = command.argv.first().cloned().unwrap_or_default();
        let fail = |message: String, output: Vec<String>| {
            let mut message = message;
            self.secrets.hide(&mut message);
            HookFailed { message, output }
        };
        let mut child = match self.start(&command) {
            Ok(child) => child,
            Err(error) => return Err(fail(format!("`{shown}` cannot be run: {error}"), Vec::new())),
        };
        let telling = Arc::new(Telling { said, last: Mutex::default(), secrets: &self.secrets });
        let both = (child.stdout.take(), child.stderr.take());
        let reading = async { tokio::join!(read(both.0, &telling), read(both.1, &telling)) };
        tokio::pin!(reading);
        let mut read_all = false;
        let ended = {
            let ending = self.ended(&mut child, command.limit);
            tokio::pin!(ending);
            loop {
                tokio::select! {
                    ended = &mut ending => break ended,
                    _ = &mut reading, if !read_all => read_all = true,
                }
            }
        };
        if !read_all {
            drop(tokio::time::timeout(PIPES_AFTER_END, reading).await);
        }
        let output = telling.last.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        match ended {
            (Ok(status), None) if status.success() => Ok(()),
            (_, Some(Over::Interrupt)) => Err(fail(format!("`{shown}` was interrupted"), output)),
            (_, Some(Over::Limit)) => {
                let limit = show_duration(command.limit);
                Err(fail(format!("`{shown}` was not over within {limit} and was ended by force"), output))
            }
            (Ok(status), None) => Err(fail(format!("`{shown}` ended with {}", how(status)), output)),
            (Err(error), None) => Err(fail(format!("`{shown}`: its end was not seen: {error}"), output)),
        }
    }

    fn start(&self, command: &HookCommand) -> std::io::Result<Child> {
        let (program, args) = command.argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        Command::new(found(&self.dir, program))
            .args(args)
            .envs(&self.env)
            .envs(&command.env)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Waits for its end; after its limit, or at an interrupt that comes while it runs, it is told to end, then made to.
    async fn ended(&self, child: &mut Child, limit: Duration) -> (std::io::Result<ExitStatus>, Option<Over>) {
        let mut interrupts = self.interrupts.clone();
        interrupts.mark_unchanged();
        let interrupted = async {
            if interrupts.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let over = tokio::select! {
            biased;
            status = child.wait() => return (status, None),
            () = interrupted => Over::Interrupt,
            () = tokio::time::sleep(limit) => Over::Limit,
        };
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // Gone already is what is wanted.
        let send = |signal| group.map_or(Ok(()), |group| kill_process_group(group, signal)).unwrap_or_default();
        send(Signal::TERM);
        let status = match tokio::time::timeout(FAREWELL, child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                send(Signal::KILL);
                child.wait().await
            }
        };
        // What it started and did not end itself.
        send(Signal::KILL);
        (status, Some(over))
    }
}

impl Here for Commands {
    fn run(&self, command: HookCommand, said: mpsc::UnboundedSender<String>) -> Running<'_> {
        Box::pin(self.carry_out(command, said))
    }
}

/// A path is relative to deploy.toml's folder, a bare name is looked for like everywhere.
fn found(dir: &Path, program: &str) -> PathBuf {
    if !program.contains('/') || program.starts_with('/') {
        return PathBuf::from(program);
    }
    let path = dir.join(program);
    std::path::absolute(&path).unwrap_or(path)
}

/// Whether a command could be started at all; the reason where not.
#[must_use]
pub fn unusable(dir: &Path, program: &str) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let fault = |path: &Path| match std::fs::metadata(path) {
        Err(error) => Some(error.to_string()),
        Ok(meta) if !meta.is_file() => Some("it is no file".to_owned()),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => Some("it is not executable".to_owned()),
        Ok(_) => None,
    };
    if program.contains('/') {
        return fault(&found(dir, program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let somewhere = std::env::split_paths(&path).any(|folder| fault(&folder.join(program)).is_none());
    (!somewhere).then(|| "PATH has no such program".to_owned())
}

fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Where lines go.
struct Telling<'a> {
    said: mpsc::UnboundedSender<String>,
    last: Mutex<VecDeque<String>>,
    secrets: &'a Secrets,
}

impl Telling<'_> {
    fn line(&self, bytes: &[u8], number: usize) {
        let mut line = plain(&String::from_utf8_lossy(bytes));
        self.secrets.hide(&mut line);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == LAST {
            last.pop_front();
        }
        last.push_back(line.clone());
        drop(last);
        // Whoever does not listen misses nothing.
        match number {
            n if n < LINES => drop(self.said.send(line)),
            LINES => drop(self.said.send(format!("more than {LINES} lines: the others are not shown"))),
            _ => {}
        }
    }
}

/// Reads to the end, so that nothing blocks for want of a reader.
async fn read<R: AsyncRead + Unpin>(from: Option<R>, telling: &Telling<'_>) {
    let Some(mut from) = from else { return };
    let (mut rest, mut chunk, mut number) = (Vec::new(), vec![0; 8192], 0);
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        for part in chunk[..n].split_inclusive(|byte| *byte == b'\n') {
            let whole = part.ends_with(b"\n");
            let room = LINE.saturating_sub(rest.len());
            let part = part.strip_suffix(b"\n").unwrap_or(part);
            rest.extend_from_slice(&part[..part.len().min(room)]);
            if whole {
                telling.line(&rest, number);
                rest.clear();
                number += 1;
            }
        }
    }
    if !rest.is_empty() {
        telling.line(&rest, number);
    }
}

/// A line without colours and whatever else a terminal would take for an order.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                if chars.next() == Some('[') {
                    chars.by_ref().find(|c| ('\u{40}'..='\u{7e}').contains(c));
                }
            }
            '\t' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
