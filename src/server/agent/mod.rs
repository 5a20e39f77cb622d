//! The agent: carries out on a server what a deploy asks for, and puts things right when the deploy dies.
//!
//! It reads requests from stdin and answers on stdout; how these reach it is not its business. One request at a time,
//! in order. It judges no step: it says what it saw. What it does decide is what becomes of the server when nobody
//! asks any more. Where only the connection broke, the same run's next agent goes on with what this one holds.

mod change;
mod deadman;
mod drain;
mod hand_over;
mod install;
mod observe;
mod once;
mod own;
mod record;
mod site;
mod sleep;
mod succession;
mod trust;

pub(in crate::server) use deadman::Righted;
pub(in crate::server) use record::now;
pub use record::{Entry, Record, State};
pub(in crate::server) use site::{Site, disk};

use super::frame::{self, FrameError, Reader};
use super::wire::{AgentHello, Context, FORMAT, Failure, FailureKind, FromAgent, MAGIC, Request, ToAgent};
use site::Ctl;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use succession::Succession;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Who starts an agent speaks to it at once.
const HELLO: Duration = Duration::from_secs(30);
/// How exactly a lease is kept.
const TICK: Duration = Duration::from_millis(250);

struct Job {
    id: u64,
    request: Request,
    /// How many unlocks had been asked for when it came; one more cancels a waiting lock.
    unlocks: u64,
}

/// When the deploying side was last heard.
#[derive(Clone)]
struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn ago(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// Serves until the deploying side is gone, puts the server right and returns the exit code: never 127 or 255, which
/// mean something else to SSH.
pub async fn serve<R, W>(stdin: R, mut stdout: W) -> i32
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    // A handler instead of the default: a closed terminal is no reason to leave a server half changed.
    let _hangup = signal(SignalKind::hangup());
    let heard = Heard(Arc::new(Mutex::new(Instant::now())));
    let hello = async {
        stdout.write_all(MAGIC).await?;
        frame::write(&mut stdout, &FromAgent::Hello(AgentHello::own())).await
    };
    if hello.await.is_err() {
        return 1;
    }
    let for_reader = heard.clone();
    let mut reader = Reader::new(stdin, move || for_reader.now());
    let context = match tokio::time::timeout(HELLO, first(&mut reader)).await {
        Ok(Ok(context)) => context,
        Ok(Err(failure)) => {
            // Whoever sent it may be able to read this much.
            drop(frame::write(&mut stdout, &FromAgent::Reply { id: 0, result: Err(failure) }).await);
            return 1;
        }
        Err(_) => return 1,
    };
    let lease = context.fleet.lock.lease;
    let (out, outgoing) = mpsc::unbounded_channel();
    tokio::spawn(write_all(stdout, outgoing, lease / 3));
    let (jobs, queue) = mpsc::unbounded_channel();
    let (ctl, ctl_seen) = watch::channel(Ctl::default());
    let site = Site::new(context);
    let succession = site.succession.clone();
    let worker = tokio::spawn(work(site, queue, ctl_seen, out));
    let end = listen(reader, &heard, lease, (&jobs, &ctl), succession).await;
    drop(jobs);
    ctl.send_modify(|ctl| ctl.dead = true);
    let Ok(mut site) = worker.await else { return 1 };
    match end {
        End::Yields => site.yields(),
        End::Over(why) => Box::pin(site.died(&why)).await,
        End::Broke(why) => {
            // Whoever reconnects goes on with what is held here.
            if site.holds_a_lock() && site.succession.within(lease.saturating_sub(heard.ago())).await {
                site.yields();
            } else {
                Box::pin(site.died(&why)).await;
            }
        }
    }
    0
}

/// How a conversation ended.
enum End {
    /// Nobody comes back.
    Over(String),
    /// The connection broke: perhaps somebody does.
    Broke(String),
    /// Somebody has: another agent of the same run.
    Yields,
}

/// The first message says who asks and about what; the format number is looked at before anything else of it.
async fn first<R: AsyncRead + Unpin, F: FnMut()>(reader: &mut Reader<R, F>) -> Result<Context, Failure> {
    let wrong = |what: String| Failure::new(FailureKind::Internal, what);
    let value: serde_json::Value = reader.next().await.map_err(|error| wrong(error.to_string()))?;
    let format = value.pointer("/hello/format").and_then(serde_json::Value::as_u64);
    if format != Some(u64::from(FORMAT)) {
        let theirs = format.map_or_else(|| "none".to_owned(), |format| format.to_string());
        return Err(Failure::new(
            FailureKind::Missing,
            format!("the agent speaks format {FORMAT}, the deploying side {theirs}"),
        )
        .hint("let both be the same version of handover"));
    }
    match serde_json::from_value(value) {
        Ok(ToAgent::Hello(context)) => Ok(*context),
        Ok(_) => Err(wrong("the first message was no hello".to_owned())),
        Err(error) => Err(wrong(format!("a hello that is not understood: {error}"))),
    }
}

async fn write_all<W: AsyncWrite + Unpin>(mut to: W, mut messages: mpsc::UnboundedReceiver<FromAgent>, beat: Duration) {
    loop {
        let message = match tokio::time::timeout(beat, messages.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(_) => FromAgent::Heartbeat,
        };
        if frame::write(&mut to, &message).await.is_err() {
            // Nobody reads; that the deploy is dead shows on stdin or by its silence.
            return;
        }
    }
}

/// Hears the deploying side out; returns how it ended.
async fn listen<R, F>(
    mut reader: Reader<R, F>,
    heard: &Heard,
    lease: Duration,
    (jobs, ctl): (&mpsc::UnboundedSender<Job>, &watch::Sender<Ctl>),
    succession: Succession,
) -> End
where
    R: AsyncRead + Unpin + Send + 'static,
    F: FnMut() + Send + 'static,
{
    // Reading is not cut short by the clock's tick: half a message would be lost with it.
    let (send, mut messages) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        loop {
            let message = reader.next::<ToAgent>().await;
            let ended = message.is_err();
            if send.send(message).is_err() || ended {
                return;
            }
        }
    });
    let mut terminate = signal(SignalKind::terminate()).ok();
    let terminated = async {
        match &mut terminate {
            Some(signal) => signal.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(terminated);
    let why = loop {
        let message = tokio::select! {
            message = messages.recv() => message,
            _ = &mut terminated => break End::Over("the agent was told to end".to_owned()),
            () = tokio::time::sleep(TICK) => {
                if succession.has_come() {
                    break End::Yields;
                }
                if heard.ago() > lease {
                    let lease = crate::fleet::model::show_duration(lease);
                    break End::Over(format!("the deploy was not heard from for {lease}"));
                }
                continue;
            }
        };
        match message {
            Some(Ok(ToAgent::Request { id, request })) => {
                let unlocks = ctl.borrow().unlocks;
                if matches!(request, Request::Unlock { .. }) {
                    ctl.send_modify(|ctl| ctl.unlocks += 1);
                }
                if jobs.send(Job { id, request, unlocks }).is_err() {
                    break End::Over("the agent broke".to_owned());
                }
            }
            Some(Ok(ToAgent::Heartbeat | ToAgent::Hello(_))) => {}
            Some(Ok(ToAgent::Goodbye)) => break End::Over("the deploy ended the connection".to_owned()),
            Some(Err(FrameError::Ended)) | None => {
                break End::Broke("the connection broke, and nobody came back".to_owned());
            }
            Some(Err(error)) => break End::Broke(format!("the connection broke, and nobody came back: {error}")),
        }
    };
    reading.abort();
    why
}

/// One request at a time, in order. When the deploy is dead, what only looks is dropped; what changes is finished.
async fn work(
    mut site: Site,
    mut queue: mpsc::UnboundedReceiver<Job>,
    ctl: watch::Receiver<Ctl>,
    out: mpsc::UnboundedSender<FromAgent>,
) -> Site {
    let mut death = ctl.clone();
    tokio::select! {
        () = Box::pin(site.succeed()) => {}
        _ = death.wait_for(|ctl| ctl.dead) => {}
    }
    while let Some(Job { id, request, unlocks }) = queue.recv().await {
        if ctl.borrow().dead {
            continue;
        }
        let finished = Site::must_finish(&request);
        let mut death = ctl.clone();
        let handled = Box::pin(site.handle(request, ctl.clone(), unlocks));
        let result = tokio::select! {
            result = handled => result,
            _ = death.wait_for(|ctl| ctl.dead), if !finished => continue,
        };
        // That nobody reads it shows elsewhere.
        drop(out.send(FromAgent::Reply { id, result }));
    }
    site
}

#[cfg(test)]
pub(in crate::server) mod tests;
