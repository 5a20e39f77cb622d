//! A service's process: started, watched until it ends, stopped by the signals that Docker would send.

use crate::fleet::model::{Container, ContainerState, ReleaseId, ServiceName};
use crate::lab::service::{ENVIRONMENT, Said, ServiceSpec};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc, watch};

/// What SIGKILL leaves as exit code in Docker: 128 and the signal.
const SIGNALLED: i32 = 128;

/// How services are started: the own executable with the hidden subcommand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCommand {
    /// The executable.
    pub program: PathBuf,
    /// What stands before anything else on its command line.
    pub args: Vec<OsString>,
}

impl ServiceCommand {
    /// This executable, with `lab-service`.
    ///
    /// # Errors
    /// When the system does not say which executable this is.
    pub fn own() -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, args: vec!["lab-service".into()] })
    }
}

/// What a process said so far.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    ready: bool,
    checks: u64,
    works: bool,
}

/// A container of the lab.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) release: ReleaseId,
    pub(super) started: SystemTime,
    pub(super) log: PathBuf,
    container: Container,
    exit: watch::Receiver<Option<i32>>,
    heard: watch::Receiver<Heard>,
    orders: mpsc::UnboundedSender<String>,
    kill: Arc<Notify>,
}

/// What is to be started, besides the spec.
pub(super) struct Start<'a> {
    pub(super) command: &'a ServiceCommand,
    pub(super) app: &'a str,
    pub(super) service: &'a ServiceName,
    pub(super) release: &'a ReleaseId,
    pub(super) image_id: String,
    pub(super) log: PathBuf,
}

impl Process {
    pub(super) fn start(start: Start<'_>, spec: &ServiceSpec) -> io::Result<Self> {
        let log = std::fs::File::create(&start.log)?;
        let mut child = Command::new(&start.command.program)
            .args(&start.command.args)
            .args([&spec.server, &spec.service])
            .env(ENVIRONMENT, serde_json::to_string(spec).map_err(io::Error::other)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let gone = || io::Error::other("the service ended at once");
        let pid = child.id().ok_or_else(gone)?;
        let (stdin, stdout) = (child.stdin.take().ok_or_else(gone)?, child.stdout.take().ok_or_else(gone)?);
        let (exit_sender, exit) = watch::channel(None);
        let (heard_sender, heard) = watch::channel(Heard::default());
        let (orders, orders_receiver) = mpsc::unbounded_channel();
        let kill = Arc::new(Notify::new());
        let watcher =
            Watcher { child, stdin, lines: BufReader::new(stdout).lines(), exit: exit_sender, heard: heard_sender };
        tokio::spawn(watcher.watch(orders_receiver, Arc::clone(&kill)));
        let container = Container {
            service: start.service.clone(),
            name: format!("{}-{}-1", start.app, start.service),
            state: ContainerState::Running,
            restarts: 0,
            exit_code: 0,
            image_id: start.image_id,
            health: None,
        };
        Ok(Self {
            pid,
            release: start.release.clone(),
            started: SystemTime::now(),
            log: start.log,
            container,
            exit,
            heard,
            orders,
            kill,
        })
    }

    /// The exit code, once it has ended.
    pub(super) fn exit_code(&self) -> Option<i32> {
        *self.exit.borrow()
    }

    /// As an engine would list it.
    pub(super) fn container(&self) -> Container {
        let mut container = self.container.clone();
        if let Some(code) = self.exit_code() {
            container.state = ContainerState::Exited;
            container.exit_code = code;
        }
        container
    }

    pub(super) fn name(&self) -> &str {
        &self.container.name
    }

    /// Gives an order; one that has ended takes none.
    pub(super) fn order(&self, order: &str) {
        drop(self.orders.send(format!("{order}\n")));
    }

    /// Asks the process itself whether it works; the answer proves that it runs and is not stuck.
    pub(super) async fn works(&self, timeout: Duration) -> Option<bool> {
        let mut heard = self.heard.clone();
        let before = heard.borrow().checks;
        self.order("check");
        let answered = tokio::time::timeout(timeout, heard.wait_for(|heard| heard.checks > before));
        answered.await.ok()?.ok().map(|heard| heard.works)
    }

    /// Waits until it listens or works; false when it ends first.
    pub(super) async fn ready(&self) -> bool {
        let mut heard = self.heard.clone();
        heard.wait_for(|heard| heard.ready).await.is_ok()
    }

    /// SIGTERM, and SIGKILL when the grace period is over: the exit code.
    pub(super) async fn stop(&self, grace: Duration) -> i32 {
        let mut exit = self.exit.clone();
        if self.exit_code().is_none() {
            self.signal(Signal::TERM);
        }
        if let Ok(Ok(code)) = tokio::time::timeout(grace, exit.wait_for(Option::is_some)).await {
            return code.unwrap_or_default();
        }
        self.kill.notify_one();
        exit.wait_for(Option::is_some).await.map_or(SIGNALLED, |code| code.unwrap_or_default())
    }

    /// SIGKILL, without waiting.
    pub(super) fn kill(&self) {
        self.kill.notify_one();
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) {
        // An error means that its watcher is gone, and the process with it.
        drop(self.exit.clone().wait_for(Option::is_some).await);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // One that ended meanwhile is what was wanted: no error of it matters.
        pid.and_then(|pid| kill_process(pid, signal).ok());
    }

    /// The last lines that it logged.
    pub(super) fn last_lines(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].iter().map(ToString::to_string).collect()
    }
}

struct Watcher {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    exit: watch::Sender<Option<i32>>,
    heard: watch::Sender<Heard>,
}

impl Watcher {
    async fn watch(mut self, mut orders: mpsc::UnboundedReceiver<String>, kill: Arc<Notify>) {
        let mut talks = true;
        loop {
            tokio::select! {
                status = self.child.wait() => {
                    self.exit.send_replace(Some(status.map_or(SIGNALLED, code)));
                    return;
                }
                line = self.lines.next_line(), if talks => match line {
                    Ok(Some(line)) => self.hear(&line),
                    Ok(None) | Err(_) => talks = false,
                },
                order = orders.recv() => match order {
                    Some(order) => drop(self.stdin.write_all(order.as_bytes()).await),
                    // Nobody wants it any more; dropping the child kills it.
                    None => return,
                },
                () = kill.notified() => drop(self.child.start_kill()),
            }
        }
    }

    fn hear(&self, line: &str) {
        // Other lines are not for us: a test harness around the service may print some.
        let Ok(said) = serde_json::from_str::<Said>(line) else { return };
        self.heard.send_modify(|heard| match said {
            Said::Ready => heard.ready = true,
            Said::Checked { ok } => {
                heard.checks += 1;
                heard.works = ok;
            }
        });
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default())
}
