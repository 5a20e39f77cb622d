//! The two locks of a lab's server, and the freeze. Each knows its holder; a run that holds one may take it again.

use crate::fleet::model::Holder;
use crate::lab::lock;
use crate::server::wire::{Reply, Run};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The locks of one server.
#[derive(Debug)]
pub(super) struct Locks {
    server: watch::Sender<Option<Holder>>,
    deploy: Mutex<Option<Holder>>,
    freeze: Mutex<Option<Holder>>,
}

impl Default for Locks {
    fn default() -> Self {
        Self { server: watch::channel(None).0, deploy: Mutex::default(), freeze: Mutex::default() }
    }
}

/// Seconds since the epoch.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn holder(run: &Run) -> Holder {
    Holder { who: run.who.clone(), what: run.what.clone(), since: now(), run: Some(run.id.clone()) }
}

fn is_ours(held: Option<&Holder>, run: &Run) -> bool {
    held.is_some_and(|holder| holder.run.as_ref() == Some(&run.id))
}

/// Takes a lock that is free or ours already.
fn take(held: &mut Option<Holder>, run: &Run) -> Reply {
    match held {
        Some(other) if !is_ours(Some(other), run) => Reply::Held(other.clone()),
        held => {
            held.get_or_insert_with(|| holder(run));
            Reply::Locked
        }
    }
}

impl Locks {
    pub(super) fn is_ours(&self, run: &Run) -> bool {
        is_ours(self.server.borrow().as_ref(), run)
    }

    pub(super) fn server_holder(&self) -> Option<Holder> {
        self.server.borrow().clone()
    }

    pub(super) fn deploy_holder(&self) -> Option<Holder> {
        lock(&self.deploy).clone()
    }

    pub(super) fn freeze_holder(&self) -> Option<Holder> {
        lock(&self.freeze).clone()
    }

    pub(super) fn deploy(&self, run: &Run) -> Reply {
        take(&mut lock(&self.deploy), run)
    }

    pub(super) fn free_deploy(&self, run: &Run) -> Reply {
        let mut held = lock(&self.deploy);
        if is_ours(held.as_ref(), run) {
            *held = None;
        }
        Reply::Done
    }

    /// Takes the server lock, and waits for it if somebody else has it.
    pub(super) async fn server(&self, run: &Run, wait: Duration) -> Reply {
        let until = tokio::time::Instant::now() + wait;
        let mut changes = self.server.subscribe();
        loop {
            let mut reply = Reply::Locked;
            self.server.send_if_modified(|held| {
                let before = held.is_some();
                reply = take(held, run);
                !before
            });
            if reply == Reply::Locked {
                return reply;
            }
            let changed = tokio::time::timeout_at(until, changes.changed()).await;
            if changed.is_err() {
                return reply;
            }
        }
    }

    pub(super) fn free_server(&self, run: &Run) -> Reply {
        self.server.send_if_modified(|held| {
            let ours = is_ours(held.as_ref(), run);
            if ours {
                *held = None;
            }
            ours
        });
        Reply::Done
    }

    pub(super) fn freeze(&self, run: &Run, reason: String) -> Reply {
        *lock(&self.freeze) = Some(Holder { what: reason, ..holder(run) });
        Reply::Done
    }

    pub(super) fn unfreeze(&self) -> Reply {
        *lock(&self.freeze) = None;
        Reply::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str) -> Run {
        Run { id: id.into(), who: format!("{id}@host"), what: "deploy".into() }
    }

    #[tokio::test]
    async fn two_runs_never_hold_a_lock_together() {
        let locks = Locks::default();
        let (one, two) = (run("one"), run("two"));
        assert_eq!(locks.deploy(&one), Reply::Locked);
        assert_eq!(locks.deploy(&one), Reply::Locked);
        assert!(matches!(locks.deploy(&two), Reply::Held(holder) if holder.who == "one@host"));
        locks.free_deploy(&two);
        assert!(matches!(locks.deploy(&two), Reply::Held(_)), "only its holder frees it");
        locks.free_deploy(&one);
        assert_eq!(locks.deploy(&two), Reply::Locked);
    }

    #[tokio::test]
    async fn whoever_waits_for_the_server_lock_gets_it_when_it_is_freed() {
        let locks = std::sync::Arc::new(Locks::default());
        let (one, two) = (run("one"), run("two"));
        assert_eq!(locks.server(&one, Duration::ZERO).await, Reply::Locked);
        assert!(matches!(locks.server(&two, Duration::from_millis(5)).await, Reply::Held(_)));
        let waiting = tokio::spawn({
            let (locks, two) = (std::sync::Arc::clone(&locks), two.clone());
            async move { locks.server(&two, Duration::from_secs(20)).await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        locks.free_server(&one);
        assert_eq!(waiting.await.expect("waits"), Reply::Locked);
        assert!(locks.is_ours(&two) && !locks.is_ours(&one));
    }
}
