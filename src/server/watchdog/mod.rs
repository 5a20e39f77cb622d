//! The watchdog: looks at the services of its own server, and heals what stays broken, unless planned work is going on.
//!
//! When to do what is decided by `fleet::watch` and `fleet::strikes`; here it is carried out, written down and told. It never writes a
//! definition or a pointer.

mod look;
mod metrics;
mod telling;

use super::agent::{Righted, Site, State, now};
use super::layout::{Layout, read_json, write_atomic, write_json};
use super::settings::Settings;
use super::wire::Failure;
use crate::fleet::model::{ServiceName, WatchdogState, Watched};
use crate::fleet::watch::{Do, Look, Next, Outcome, Saw, Turn};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Format number of the file.
const FORMAT: u32 = 1;

/// How it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Until it is told to end.
    Forever,
    /// One turn, for cron.
    Once,
    /// Says what a turn would do, and changes nothing.
    Explain,
}

/// What the watchdog says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said {
    /// Seconds since the epoch.
    #[serde(rename = "time")]
    pub at: u64,
    /// The state in a word.
    pub word: WatchdogState,
    /// Whether somebody should be told although nobody asks.
    pub loud: bool,
    /// The sentence.
    pub what: String,
    /// Each service that is not fine, and what that means.
    pub services: BTreeMap<ServiceName, String>,
    /// The last words of what was healed.
    pub logs: Vec<String>,
}

/// Runs it over the server whose files lie in `dir`.
///
/// # Errors
/// When there is nothing that says what the server is, or, for a single turn, when nothing could be learnt.
pub async fn watch(layout: &Layout, mode: Mode, mut say: impl FnMut(&Said)) -> Result<Said, Failure> {
    let mut dog = Dog::new(layout)?;
    if mode == Mode::Explain {
        let said = Box::pin(dog.explain()).await;
        say(&said);
        return Ok(said);
    }
    if mode == Mode::Once {
        let said = Box::pin(dog.turn()).await;
        say(&said);
        return Ok(said);
    }
    let (mut term, mut int) = (ended_by(SignalKind::terminate())?, ended_by(SignalKind::interrupt())?);
    let mut last = None;
    loop {
        // A heal that is under way is finished: what it stopped would stay down until the next one looks.
        let said = Box::pin(dog.turn()).await;
        let news = Some((said.what.clone(), said.services.clone()));
        if said.loud || news != last {
            say(&said);
        }
        last = news;
        let pause = dog.site.fleet.watchdog.interval;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = term.recv() => return Ok(said),
            _ = int.recv() => return Ok(said),
        }
        // A deploy may have brought others; without them it goes on with what it has.
        match Dog::new(layout) {
            Ok(next) => dog = dog.goes_on_as(next),
            Err(failure) => say(&Said::new(WatchdogState::Unknown, true, failure.to_string())),
        }
    }
}

fn ended_by(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Failure> {
    signal(kind).map_err(|error| Failure::new(super::wire::FailureKind::Internal, format!("no signals: {error}")))
}

impl Said {
    fn new(word: WatchdogState, loud: bool, what: impl Into<String>) -> Self {
        Self { at: now(), word, loud, what: what.into(), services: BTreeMap::new(), logs: Vec::new() }
    }
}

struct Dog {
    site: Site,
    seen: Watched,
    /// How far whoever had the lock before had come; ours to put right.
    left: State,
    logs: Vec<String>,
    look: Option<Look>,
    /// What was done under the lock, for the record.
    done: String,
}

impl Dog {
    fn new(layout: &Layout) -> Result<Self, Failure> {
        let site = Site::own(Settings::read(layout)?, "watchdog");
        // What is not understood is of another version: counting starts again.
        let seen = read_json::<Watched>(&site.layout.watchdog()).ok().flatten().filter(|seen| seen.format == FORMAT);
        let seen = seen.unwrap_or_else(|| Watched { format: FORMAT, ..Watched::default() });
        Ok(Self { site, seen, left: State::Idle, logs: Vec::new(), look: None, done: String::new() })
    }

    /// With other settings, and what it has counted itself: a disk that takes nothing makes it forget nothing. What somebody else's
    /// turn has written since is newer.
    fn goes_on_as(self, next: Self) -> Self {
        if next.seen.at > self.seen.at { next } else { Self { seen: self.seen, ..next } }
    }

    /// One turn: looked at, done, written down.
    async fn turn(&mut self) -> Said {
        let rules = self.site.fleet.watchdog.rules();
        let (mut turn, mut todo) = Turn::begin(rules);
        let mut kept_from = None;
        let outcome = loop {
            let intent = turn.intent();
            let saw = self.carry_out(todo).await;
            match saw {
                Ok(saw) => match turn.step(&mut self.seen.strikes, saw, now()) {
                    Next::Do(next) => todo = next,
                    Next::End(outcome) => break outcome,
                },
                Err(failure) => {
                    kept_from = intent.map(|intent| format!("could not {intent}: {}", failure.with_hint()));
                    break Outcome::Unknown(failure.with_hint());
                }
            }
        };
        if self.site.is_at_work() {
            // Nothing but a disk that takes no record leads here.
            drop(self.site.free("the watchdog gave up its turn", State::Idle));
        }
        let mut said = self.told(&outcome, turn.verdicts());
        if let Some(what) = kept_from {
            // It has looked; what is wanted could not be begun.
            (said.what, said.loud) = (what, true);
        }
        self.commands(&outcome, turn.verdicts(), &mut said).await;
        if let Err(error) = self.write_down(&said) {
            said.loud = true;
            said.what = format!("{}; that could not be written down: {error}", said.what);
        }
        said
    }

    async fn carry_out(&mut self, todo: Do) -> Result<Saw, Failure> {
        Ok(match todo {
            Do::SeeLock => Saw::Lock(look::holder(&self.site.layout)?),
            Do::Look => {
                let look = look::at(&self.site, &mut self.seen.restarts).await?;
                self.look = Some(look.clone());
                Saw::Server(Box::new(look))
            }
            Do::TakeLock => match self.site.take_lock(Duration::ZERO).await? {
                Ok(left) => {
                    self.left = left;
                    Saw::Taken(Ok(self.left != State::Idle))
                }
                Err(holder) => Saw::Taken(Err(format!("{} ({})", holder.who, holder.what))),
            },
            Do::PutRight => {
                let done = match self.site.put_right_after(self.left.clone()).await {
                    Ok(righted) => {
                        self.left = State::Idle;
                        match righted {
                            Righted::Well(what) => Ok(what),
                            Righted::Ill(why) => Err(why),
                        }
                    }
                    Err(failure) => Err(failure.to_string()),
                };
                if let Ok(look) = look::at(&self.site, &mut self.seen.restarts).await {
                    // What is told is how it stands now.
                    self.look = Some(look);
                }
                self.done(done)
            }
            Do::LetBack => {
                let done = self.site.let_back().await.map(|()| "everything works: let back".to_owned());
                self.done(done.map_err(|failure| failure.to_string()))
            }
            Do::Heal(services) => {
                self.logs = self.site.last_words(&services).await;
                let done = self.site.heal(&services).await;
                self.done(done.map_err(|failure| failure.to_string()))
            }
            Do::Free => {
                let done = std::mem::take(&mut self.done);
                // What could not be put right is still to be.
                let left = std::mem::replace(&mut self.left, State::Idle);
                Saw::Done(self.site.free(&done, left).map(|()| done).map_err(|failure| failure.to_string()))
            }
        })
    }

    fn done(&mut self, done: Result<String, String>) -> Saw {
        self.done = done.clone().unwrap_or_else(|why| why);
        Saw::Done(done)
    }

    /// What a turn would do: everything but the lock and what comes after it.
    async fn explain(&mut self) -> Said {
        let rules = self.site.fleet.watchdog.rules();
        let mut strikes = self.seen.strikes.clone();
        let (mut turn, mut todo) = Turn::begin(rules);
        loop {
            if let Some(intent) = turn.intent() {
                let mut said =
                    Said::new(WatchdogState::Failing, true, format!("would take the server lock and {intent}"));
                said.services = self.services(turn.verdicts());
                return said;
            }
            match self.carry_out(todo).await {
                Ok(saw) => match turn.step(&mut strikes, saw, now()) {
                    Next::Do(next) => todo = next,
                    Next::End(outcome) => return self.told(&outcome, turn.verdicts()),
                },
                Err(failure) => return Said::new(WatchdogState::Unknown, true, failure.with_hint()),
            }
        }
    }

    fn write_down(&mut self, said: &Said) -> std::io::Result<()> {
        self.seen.at = said.at;
        self.seen.word = said.word;
        self.seen.what.clone_from(&said.what);
        self.seen.restarts.turn_ends();
        let layout = &self.site.layout;
        // Each by itself: one that is refused is no reason not to write the others.
        let state = write_json(&layout.watchdog(), &self.seen);
        let heartbeat = write_atomic(&layout.heartbeat(), format!("{}\n", said.at).as_bytes(), 0o644);
        let metrics = self.site.fleet.watchdog.textfile.as_ref().map_or(Ok(()), |path| {
            write_atomic(Path::new(path), metrics::text(&self.seen, &self.site.server).as_bytes(), 0o644)
        });
        state.and(heartbeat).and(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::strikes::Seen;
    use crate::server::agent::tests::fleet;
    use crate::server::agent::{Record, State};
    use crate::server::flock::{Taken, try_take};
    use crate::server::wire::Run;

    fn server() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().expect("a folder");
        let mut fleet = fleet(dir.path(), Duration::from_secs(10));
        fleet.watchdog.textfile = Some(dir.path().join("handover.prom").to_string_lossy().into_owned());
        let layout = Layout::of(&fleet);
        Settings::of(&"web-1".into(), &fleet).write(&layout).expect("written");
        (dir, layout)
    }

    async fn once(layout: &Layout, mode: Mode) -> Said {
        Box::pin(watch(layout, mode, |_| {})).await.expect("looked")
    }

    #[tokio::test]
    async fn each_look_is_written_down_for_whoever_asks() {
        let (dir, layout) = server();
        assert_eq!(once(&layout, Mode::Once).await.word, WatchdogState::NoRelease);
        let seen: Watched = read_json(&layout.watchdog()).expect("read").expect("there");
        assert_eq!((seen.word, seen.format), (WatchdogState::NoRelease, FORMAT));
        assert!(layout.heartbeat().exists());
        let metrics = std::fs::read_to_string(dir.path().join("handover.prom")).expect("written");
        assert!(metrics.contains("handover_watchdog_state{server=\"web-1\",state=\"no_release\"} 1"), "{metrics}");
        assert!(metrics.contains("handover_watchdog_state{server=\"web-1\",state=\"fine\"} 0"), "{metrics}");
    }

    #[tokio::test]
    async fn a_held_lock_is_planned_work_and_nothing_is_touched() {
        let (dir, layout) = server();
        let run = Run { id: "run-1".into(), who: "ann@laptop".into(), what: "deploy".into() };
        let Ok(Taken::Ours(lock)) = try_take(layout.server_lock(), &layout.server_lock_note(), &run) else {
            panic!("it is free")
        };
        let record = Record { state: State::Drained, drained: true, ..Record::default() };
        record.write(&layout.record()).expect("written");
        std::fs::create_dir_all(dir.path().join("run")).expect("made");
        std::fs::write(dir.path().join("run/drain"), "").expect("written");
        let said = once(&layout, Mode::Once).await;
        assert_eq!(said.word, WatchdogState::Busy);
        assert!(said.what.contains("ann@laptop"), "{said:?}");
        assert!(dir.path().join("run/drain").exists());
        assert_eq!(Record::read(&layout.record()).expect("read"), record);
        drop(lock);
    }

    #[tokio::test]
    async fn explaining_takes_no_lock_and_writes_nothing() {
        let (_dir, layout) = server();
        Record { state: State::Stopped, ..Record::default() }.write(&layout.record()).expect("written");
        let said = once(&layout, Mode::Explain).await;
        assert!(said.what.contains("would take the server lock and put right what a dead deploy left"), "{said:?}");
        assert!(!layout.watchdog().exists() && !layout.server_lock().exists());
        assert_eq!(Record::read(&layout.record()).expect("read").state, State::Stopped);
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_is_said_and_no_strike_is_forgotten() {
        let (_dir, layout) = server();
        let mut dog = Dog::new(&layout).expect("settings");
        std::fs::create_dir(layout.watchdog()).expect("nothing can be put in its place");
        let failing = BTreeMap::from([("api".into(), Seen::Failing("no answer".into()))]);
        let rules = dog.site.fleet.watchdog.rules();
        dog.seen.strikes.look(&rules, &"one".into(), &failing, now());
        let said = Box::pin(dog.turn()).await;
        assert!(said.loud && said.what.contains("could not be written down"), "{said:?}");
        let strikes = dog.seen.strikes.clone();
        let dog = dog.goes_on_as(Dog::new(&layout).expect("settings"));
        assert_eq!(dog.seen.strikes, strikes);
    }

    #[tokio::test]
    async fn a_lock_that_cannot_be_taken_is_told_as_what_it_keeps_from() {
        let (_dir, layout) = server();
        Record { state: State::Stopped, ..Record::default() }.write(&layout.record()).expect("written");
        std::fs::create_dir(layout.server_lock_note()).expect("nothing can be put in its place");
        let said = once(&layout, Mode::Once).await;
        assert!(said.loud && said.what.starts_with("could not put right what a dead deploy left: "), "{said:?}");
        assert_eq!(said.word, WatchdogState::Unknown);
    }

    #[tokio::test]
    async fn what_another_turn_has_written_since_is_newer() {
        let (_dir, layout) = server();
        let dog = Dog::new(&layout).expect("settings");
        assert_eq!(once(&layout, Mode::Once).await.word, WatchdogState::NoRelease);
        let dog = dog.goes_on_as(Dog::new(&layout).expect("settings"));
        assert_eq!(dog.seen.word, WatchdogState::NoRelease);
    }

    #[test]
    fn healed_is_said_of_a_heal_only_and_fine_of_nothing_that_fails() {
        let (_dir, layout) = server();
        let mut dog = Dog::new(&layout).expect("settings");
        let mut word = |outcome: Outcome, seen: Seen| {
            let services = Ok(BTreeMap::from([("api".into(), seen)]));
            dog.look = Some(Look { release: None, absent: None, left: crate::fleet::watch::Left::Nothing, services });
            dog.told(&outcome, &BTreeMap::new()).word
        };
        let failing = || Seen::Failing("no answer".into());
        let done = || Ok("done".to_owned());
        for outcome in [Outcome::PutRight(done()), Outcome::LetBack(done()), Outcome::Watched, Outcome::Passed] {
            assert_eq!(word(outcome.clone(), Seen::Fine), WatchdogState::Fine, "{outcome:?}");
            assert_eq!(word(outcome.clone(), failing()), WatchdogState::Failing, "{outcome:?}");
        }
        for outcome in [Outcome::PutRight(Err("it stays drained".into())), Outcome::LetBack(Err("no".into()))] {
            assert_eq!(word(outcome.clone(), Seen::Fine), WatchdogState::Failing, "{outcome:?}");
        }
        assert_eq!(word(Outcome::Healed(vec!["api".into()], done()), Seen::Fine), WatchdogState::Healed);
    }

    #[tokio::test]
    async fn a_flag_of_ours_that_no_record_knows_is_somebodys_to_take_away() {
        let (dir, layout) = server();
        let site = Site::own(Settings::read(&layout).expect("settings"), "watchdog");
        std::fs::create_dir_all(dir.path().join("run")).expect("made");
        for (text, left) in [("drained by handover\n", "Drained"), ("by hand", "Nothing")] {
            std::fs::write(dir.path().join("run/drain"), text).expect("written");
            let look = look::at(&site, &mut Default::default()).await.expect("looked");
            assert_eq!(format!("{:?}", look.left), left, "{text}");
            assert_eq!(site.unexplained().is_some(), left == "Nothing", "{text}");
        }
    }

    #[tokio::test]
    async fn an_absence_without_its_flag_is_told_as_none() {
        let (dir, layout) = server();
        let absence = serde_json::json!({"reason": "a new disk", "ends_when_verified": false, "since": 1});
        write_json(&layout.absence(), &absence).expect("written");
        std::fs::create_dir_all(dir.path().join("run")).expect("made");
        for out in [true, false] {
            let flag = dir.path().join("run/drain");
            let done = if out { std::fs::write(&flag, "drained by handover\n") } else { std::fs::remove_file(&flag) };
            done.expect("done");
            let said = once(&layout, Mode::Once).await;
            assert_eq!(said.word, WatchdogState::Absent);
            assert_eq!(said.what.contains("in rotation all the same"), !out, "{said:?}");
        }
    }

    #[tokio::test]
    async fn a_state_of_another_version_is_counted_anew_and_a_broken_one_too() {
        let (_dir, layout) = server();
        for text in ["{", "{\"format\": 99, \"at\": 1}", "[]"] {
            std::fs::write(layout.watchdog(), text).expect("written");
            assert_eq!(once(&layout, Mode::Once).await.word, WatchdogState::NoRelease, "{text}");
        }
    }

    #[tokio::test]
    async fn the_teams_own_command_is_told_by_its_environment_and_its_failure_is_said() {
        let (dir, layout) = server();
        let mut dog = Dog::new(&layout).expect("settings");
        let out = dir.path().join("told");
        let script = format!(
            "echo \"$HANDOVER_SERVER $HANDOVER_SERVICES $HANDOVER_OUTCOME $HANDOVER_WHY\" > {}; exit 3",
            out.display()
        );
        dog.site.fleet.watchdog.on_heal = vec!["sh".into(), "-c".into(), script];
        let outcome = Outcome::Healed(vec!["api".into(), "gateway".into()], Err("it still $(fails)".into()));
        let mut said = dog.told(&outcome, &BTreeMap::new());
        dog.commands(&outcome, &BTreeMap::new(), &mut said).await;
        let told = std::fs::read_to_string(out).expect("written");
        assert_eq!(told.trim(), "web-1 api,gateway failed api, gateway: it still $(fails)");
        assert!(said.logs.iter().any(|line| line.contains("exit code 3")), "{said:?}");
    }
}
