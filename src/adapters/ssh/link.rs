//! A conversation with a running agent: requests and answers by number, and signs of life in both directions.

use crate::fleet::model::show_duration;
use crate::rollout::port::ServerError;
use crate::server::frame::{self, Reader};
use crate::server::wire::{Context, FORMAT, Failure, FailureKind, FromAgent, Reply, Request, ToAgent};
use openssh::{Child, ChildStdin, ChildStdout, Session};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// An agent that is told to end finishes what it runs first; nobody waits for that longer than this.
const FAREWELL: Duration = Duration::from_secs(5);
/// Of what an agent complains of, the end is kept.
const COMPLAINTS: usize = 2000;

type Answer = oneshot::Sender<Result<Reply, ServerError>>;

/// Who waits for which answer, and why nobody will get one any more.
#[derive(Debug, Default)]
struct Waiting {
    by_id: HashMap<u64, Answer>,
    lost: Option<String>,
    /// We ended it ourselves.
    closed: bool,
}

/// A connection to a running agent.
#[derive(Debug)]
pub(super) struct Link {
    next: AtomicU64,
    to: mpsc::UnboundedSender<ToAgent>,
    waiting: Arc<Mutex<Waiting>>,
    ended: Mutex<Option<JoinHandle<()>>>,
    /// True when there will be no more answers.
    over: watch::Receiver<bool>,
    /// Why the agent does not lie where it belongs: it may look, and a deploy is not to begin.
    pub(super) lacking: Option<Failure>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Hears the agent's hello, says ours, and from then on carries messages.
    pub(super) async fn greet(
        mut child: Child<Arc<Session>>,
        folder: TempDir,
        context: &Context,
        lacking: Option<Failure>,
    ) -> Result<Self, ServerError> {
        let (Some(mut stdin), Some(stdout)) = (child.stdin().take(), child.stdout().take()) else {
            return Err(ServerError::Unreachable("the agent's pipes are not there".to_owned()));
        };
        let complaints = tokio::spawn(read_complaints(child.stderr().take()));
        let lease = context.fleet.lock.lease;
        let (heard, hearing) = watch::channel(());
        let mut reader = Reader::new(stdout, move || {
            // Nobody listens for it before the hello.
            let _ = heard.send(());
        });
        let hello = async {
            reader.skip_banner().await?;
            reader.next::<FromAgent>().await
        };
        match hello.await {
            Ok(FromAgent::Hello(hello)) if hello.format == FORMAT => {}
            Ok(FromAgent::Hello(hello)) => {
                let what = format!("the agent there speaks format {}, this handover {FORMAT}", hello.format);
                return Err(ServerError::Failed(
                    Failure::new(FailureKind::Missing, what).hint("let both be the same version"),
                ));
            }
            Ok(_) => return Err(ServerError::Unreachable("the agent's first message was no hello".to_owned())),
            Err(error) => {
                let said = tokio::time::timeout(Duration::from_secs(1), complaints)
                    .await
                    .ok()
                    .and_then(Result::ok)
                    .unwrap_or_default();
                return Err(ServerError::Failed(Failure::new(
                    FailureKind::Missing,
                    format!("the agent did not start: {error} {said}"),
                )));
            }
        }
        let lost = |error: frame::FrameError| ServerError::Unreachable(format!("the agent was lost at once: {error}"));
        frame::write(&mut stdin, &ToAgent::Hello(Box::new(context.clone()))).await.map_err(lost)?;
        let (to, messages) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        tokio::spawn(write_all(stdin, messages, lease / 3, Arc::clone(&waiting)));
        let for_reader = Arc::clone(&waiting);
        let (is_over, over) = watch::channel(false);
        let ended = tokio::spawn(async move {
            let why = read_all(reader, hearing, lease, &for_reader).await;
            let said = tokio::time::timeout(Duration::from_secs(1), complaints)
                .await
                .ok()
                .and_then(Result::ok)
                .unwrap_or_default();
            lose(&for_reader, format!("{why} {said}").trim());
            is_over.send_replace(true);
            // What SSH says about the end is no news any more.
            drop(tokio::time::timeout(FAREWELL, child.wait()).await);
            drop(folder);
        });
        Ok(Self { next: AtomicU64::new(1), to, waiting, ended: Mutex::new(Some(ended)), over, lacking })
    }

    /// Why there will be no more answers.
    pub(super) fn lost(&self) -> Option<String> {
        locked(&self.waiting).lost.clone()
    }

    /// Waits until there will be no more answers; false where we ended it ourselves.
    pub(super) async fn lost_by_accident(&self) -> bool {
        let mut over = self.over.clone();
        // That the sender is gone means the same.
        drop(over.wait_for(|over| *over).await);
        !locked(&self.waiting).closed
    }

    /// Asks, and waits for the answer. Whoever stops waiting has not stopped the operation.
    pub(super) async fn ask(&self, request: Request) -> Result<Reply, ServerError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (send, answer) = oneshot::channel();
        {
            let mut waiting = locked(&self.waiting);
            if let Some(why) = waiting.lost.clone() {
                return Err(ServerError::Lost(why));
            }
            waiting.by_id.insert(id, send);
        }
        if self.to.send(ToAgent::Request { id, request }).is_err() {
            return Err(ServerError::Lost(self.lost().unwrap_or_else(|| "nothing can be sent any more".to_owned())));
        }
        answer.await.unwrap_or_else(|_| Err(ServerError::Lost("the conversation ended".to_owned())))
    }

    /// Ends it: the end of its stdin tells the agent to free everything and to end.
    pub(super) async fn close(&self) {
        locked(&self.waiting).closed = true;
        lose(&self.waiting, "the connection was closed");
        drop(self.to.send(ToAgent::Goodbye));
        let ended = locked(&self.ended).take();
        if let Some(ended) = ended {
            drop(tokio::time::timeout(FAREWELL * 2, ended).await);
        }
    }
}

fn lose(waiting: &Mutex<Waiting>, why: &str) {
    let mut waiting = locked(waiting);
    waiting.lost.get_or_insert_with(|| why.to_owned());
    for (_, answer) in waiting.by_id.drain() {
        // Who has stopped waiting need not be told.
        drop(answer.send(Err(ServerError::Lost(why.to_owned()))));
    }
}

async fn write_all(
    mut to: ChildStdin,
    mut messages: mpsc::UnboundedReceiver<ToAgent>,
    beat: Duration,
    waiting: Arc<Mutex<Waiting>>,
) {
    loop {
        let message = match tokio::time::timeout(beat, messages.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(_) => ToAgent::Heartbeat,
        };
        let last = matches!(message, ToAgent::Goodbye);
        if locked(&waiting).lost.is_some() && !last {
            continue;
        }
        if let Err(error) = frame::write(&mut to, &message).await {
            lose(&waiting, &format!("nothing can be sent any more: {error}"));
            return;
        }
        if last {
            return;
        }
    }
}

/// Hands answers to who waits for them; returns how it ended.
async fn read_all<F: FnMut() + Send + 'static>(
    mut reader: Reader<ChildStdout, F>,
    mut hearing: watch::Receiver<()>,
    lease: Duration,
    waiting: &Mutex<Waiting>,
) -> String {
    let reading = async {
        loop {
            match reader.next::<FromAgent>().await {
                Ok(FromAgent::Reply { id: 0, result: Err(failure) }) => return failure.to_string(),
                Ok(FromAgent::Reply { id, result }) => {
                    if let Some(answer) = locked(waiting).by_id.remove(&id) {
                        // Who has stopped waiting has not stopped the operation.
                        drop(answer.send(result.map_err(ServerError::Failed)));
                    }
                }
                Ok(FromAgent::Heartbeat | FromAgent::Hello(_)) => {}
                Err(error) => return error.to_string(),
            }
        }
    };
    // The agent gives a sign of life three times a lease; what is half open shows no end of the stream.
    let silence =
        async { while tokio::time::timeout(lease, hearing.changed()).await.is_ok_and(|changed| changed.is_ok()) {} };
    tokio::select! {
        why = reading => why,
        () = silence => format!("nothing was heard from the agent for {}", show_duration(lease)),
    }
}

async fn read_complaints<R: AsyncRead + Unpin>(from: Option<R>) -> String {
    let mut kept = String::new();
    let mut chunk = [0; 1024];
    let Some(mut from) = from else { return kept };
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        kept.push_str(&String::from_utf8_lossy(&chunk[..n]));
        if let Some((cut, _)) = kept.char_indices().rev().nth(COMPLAINTS) {
            kept.drain(..cut);
        }
    }
    kept.trim().replace('\n', " | ")
}
