//! Bootstrap: once at boot, nothing comes into rotation before it was verified, and what was out on purpose stays out.
//!
//! It runs twice. Before the engine starts, health is made to fail, since the engine revives containers by itself; after it, `current`
//! is brought up, verified and let in. It decides nothing that the dead-man does not decide in the same way.

use super::agent::{Righted, Site, State};
use super::layout::Layout;
use super::settings::Settings;
use super::wire::{Failure, FailureKind};
use std::sync::atomic::Ordering;
use tokio::signal::unix::{SignalKind, signal};

/// What became of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Booted {
    /// It is let in.
    In(String),
    /// It stays out, and why.
    Out(String),
    /// Somebody else holds the lock and sees to it.
    Left(String),
}

/// Before the engine: whatever it revives is not to enter.
///
/// # Errors
/// When there is nothing that says what the server is, or the flag cannot be set.
pub async fn early(layout: &Layout) -> Result<Booted, Failure> {
    let mut site = Site::own(Settings::read(layout)?, "bootstrap");
    if site.fleet.drain.by.file().is_none() {
        let by = site.fleet.drain.by.word();
        return Ok(Booted::In(format!("drain.by is \"{by}\": nothing can be said before the containers run")));
    }
    site.out_from_the_start().await?;
    Ok(Booted::Out("health fails until everything is verified".to_owned()))
}

/// After the engine: brings `current` up, verifies it and lets the server in.
///
/// # Errors
/// When it could not be verified or looked at: the server stays out then.
pub async fn late(layout: &Layout) -> Result<Booted, Failure> {
    let mut site = Site::own(Settings::read(layout)?, "bootstrap");
    // The engine is being restarted, as a rule: the command that runs is finished, and the next bootstrap goes on from there.
    if let (Ok(mut term), ends) = (signal(SignalKind::terminate()), site.ends.clone()) {
        tokio::spawn(async move {
            term.recv().await;
            ends.store(true, Ordering::Relaxed);
        });
    }
    Box::pin(verified_in(&mut site)).await
}

async fn verified_in(site: &mut Site) -> Result<Booted, Failure> {
    let wait = site.fleet.lock.wait;
    let left = match site.take_lock(wait).await? {
        Ok(left) => left,
        Err(holder) => {
            return Ok(Booted::Left(format!("{} ({}) holds the server lock and sees to it", holder.who, holder.what)));
        }
    };
    let (booted, left) = match Box::pin(brought_up(site, left)).await {
        Ok(Ok(booted)) => (Ok(booted), State::Idle),
        // It is up, so the rest is the watchdog's: its strikes, its heals, and at last its word that a person is needed.
        Ok(Err(ill)) => (Err(Failure::new(FailureKind::Command, ill)), State::Idle),
        // What could not be put right is still to be.
        Err(failure) => (Err(failure), State::Switched),
    };
    let what = match &booted {
        Ok(Booted::In(what) | Booted::Out(what) | Booted::Left(what)) => what.clone(),
        Err(failure) => failure.to_string(),
    };
    let freed = site.free(&format!("bootstrap: {what}"), left);
    let booted = booted?;
    freed.map(|()| booted)
}

/// What became of it, or what is wrong with a server whose containers are up.
async fn brought_up(site: &mut Site, left: State) -> Result<Result<Booted, String>, Failure> {
    let absence = site.absence()?;
    if absence.is_some() {
        site.stay_out().await?;
    }
    let on_purpose = absence.map(|absence| format!("left out on purpose, and stays so: {}", absence.reason));
    if site.last_good()?.is_none() {
        let why = on_purpose.unwrap_or_else(|| "no release was ever verified here".to_owned());
        return Ok(Ok(Booted::Out(why)));
    }
    let before = if left == State::Idle { "" } else { "somebody had died in the middle of something; " };
    // Also of what stays out: a deploy may have died when it had stopped everything.
    Ok(match (site.put_right_after(State::Switched).await?, on_purpose) {
        (done, Some(why)) => Ok(Booted::Out(format!("{before}{why}; {}", done.what()))),
        (Righted::Well(done), None) if site.is_out_by_hand() => {
            Ok(Booted::Out(format!("{before}{done}; a drain file that somebody put there by hand keeps it out")))
        }
        (Righted::Well(done), None) => Ok(Booted::In(format!("{before}{done}"))),
        (Righted::Ill(why), None) => Err(format!("{before}{why}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::model::Absence;
    use crate::server::agent::tests::fleet;
    use crate::server::flock::{Taken, try_take};
    use crate::server::layout::write_json;
    use crate::server::wire::Run;
    use std::time::Duration;

    fn server(wait: Duration) -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().expect("a folder");
        let mut fleet = fleet(dir.path(), Duration::from_secs(10));
        fleet.lock.wait = wait;
        let layout = Layout::of(&fleet);
        Settings::of(&"web-1".into(), &fleet).write(&layout).expect("written");
        (dir, layout)
    }

    #[tokio::test]
    async fn before_the_engine_health_fails_and_the_record_says_so() {
        let (dir, layout) = server(Duration::ZERO);
        assert!(matches!(early(&layout).await, Ok(Booted::Out(_))));
        assert!(dir.path().join("run/drain").exists());
        assert!(crate::server::agent::Record::read(&layout.record()).expect("read").drained);
    }

    #[tokio::test]
    async fn what_was_left_out_on_purpose_stays_out_and_so_does_what_was_never_verified() {
        let (dir, layout) = server(Duration::ZERO);
        let booted = late(&layout).await.expect("looked");
        assert_eq!(booted, Booted::Out("no release was ever verified here".to_owned()));
        let absence = serde_json::json!({"reason": "a new disk", "ends_when_verified": false, "since": 1});
        let absence: Absence = serde_json::from_value(absence).expect("an absence");
        write_json(&layout.absence(), &absence).expect("written");
        let booted = late(&layout).await.expect("looked");
        assert_eq!(booted, Booted::Out("left out on purpose, and stays so: a new disk".to_owned()));
        assert!(dir.path().join("run/drain").exists());
        assert!(std::fs::read_to_string(layout.record()).expect("read").contains("bootstrap: left out on purpose"));
    }

    #[tokio::test]
    async fn what_a_person_drained_by_hand_is_his_to_let_back() {
        let (dir, layout) = server(Duration::ZERO);
        let flag = dir.path().join("run/drain");
        std::fs::create_dir_all(dir.path().join("run")).expect("made");
        std::fs::write(&flag, "ann: its disk is changed").expect("written");
        assert!(matches!(early(&layout).await, Ok(Booted::Out(_))));
        assert_eq!(std::fs::read_to_string(&flag).expect("there"), "ann: its disk is changed");
        assert!(!crate::server::agent::Record::read(&layout.record()).expect("read").drained, "the record says ours");
        std::fs::write(&flag, "drained by handover\n").expect("written");
        assert!(matches!(early(&layout).await, Ok(Booted::Out(_))));
        assert!(crate::server::agent::Record::read(&layout.record()).expect("read").drained);
    }

    #[tokio::test]
    async fn who_holds_the_lock_sees_to_the_server() {
        let (_dir, layout) = server(Duration::from_millis(300));
        let run = Run { id: "run-1".into(), who: "ann@laptop".into(), what: "deploy".into() };
        let taken = try_take(layout.server_lock(), &layout.server_lock_note(), &run).expect("opened");
        assert!(matches!(taken, Taken::Ours(_)));
        let booted = late(&layout).await.expect("looked");
        assert!(matches!(&booted, Booted::Left(what) if what.contains("ann@laptop")), "{booted:?}");
    }

    #[tokio::test]
    async fn whoever_dies_while_he_verifies_has_let_nothing_in() {
        let (_dir, layout) = server(Duration::ZERO);
        let mut site = Site::own(Settings::read(&layout).expect("settings"), "bootstrap");
        assert_eq!(site.take_lock(Duration::ZERO).await, Ok(Ok(State::Idle)));
        // Nothing has to be brought up here, so nothing else writes it down.
        drop(site.put_right_after(State::Switched).await);
        let record = crate::server::agent::Record::read(&layout.record()).expect("a record");
        assert_eq!(record.state, State::Switched, "whoever finds it verifies");
    }

    #[tokio::test]
    async fn who_is_told_to_end_waits_no_longer() {
        let (_dir, layout) = server(Duration::from_secs(3600));
        let run = Run { id: "run-1".into(), who: "ann@laptop".into(), what: "deploy".into() };
        let taken = try_take(layout.server_lock(), &layout.server_lock_note(), &run).expect("opened");
        assert!(matches!(taken, Taken::Ours(_)));
        let mut site = Site::own(Settings::read(&layout).expect("settings"), "bootstrap");
        site.ends.store(true, Ordering::Relaxed);
        assert!(matches!(verified_in(&mut site).await, Ok(Booted::Left(_))));
    }

    #[tokio::test]
    async fn a_disk_that_takes_no_record_keeps_no_server_in() {
        for held in [false, true] {
            let (dir, layout) = server(Duration::ZERO);
            // Nothing can be put in its place.
            std::fs::create_dir(layout.record()).expect("made");
            let run = Run { id: "run-1".into(), who: "ann@laptop".into(), what: "deploy".into() };
            let _taken = held.then(|| try_take(layout.server_lock(), &layout.server_lock_note(), &run));
            assert_eq!(early(&layout).await.is_ok(), held, "whose record it is when it is held is not ours to read");
            assert!(dir.path().join("run/drain").exists());
        }
    }

    #[tokio::test]
    async fn a_server_that_nobody_told_anything_is_told_how() {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(dir.path(), dir.path().join("lock"));
        let failure = early(&layout).await.expect_err("nothing");
        assert!(failure.hint.is_some_and(|hint| hint.contains("handover install")));
        std::fs::write(layout.settings(), "{\"format\": 99}").expect("written");
        assert!(late(&layout).await.expect_err("other").message.contains("another version"));
    }
}
