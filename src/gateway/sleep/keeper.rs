//! The keeper of a host that may sleep: does what its machine says, tells it what became of it, and writes down what happened.

use super::ask;
use super::diary::{self, Entry, What};
use super::docker::Engine;
use super::lock::{ServerLock, Shared as Lock};
use super::machine::{Effect, Parts, State, Wait};
use super::work::{self, Done, Place, Slept};
use crate::clock::Clock;
use crate::event::{GatewayState, Sink};
use crate::fleet::model::{HostName, SleepPlace, SleepSpec};
use crate::gateway::metrics::{SleepFigures, word};
use crate::gateway::site::{Shared, Standing};
use crate::server::layout::asleep;
use futures_util::StreamExt as _;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Between two looks at the engine where nothing happens, and where something may at any moment.
const LOOK: Duration = Duration::from_secs(30);
const CLOSE: Duration = Duration::from_secs(1);
/// Between two turns where nothing is to be done.
const TURN: Duration = Duration::from_secs(1);

/// Keeps every host that may sleep, whatever the configuration says by then.
pub(in crate::gateway) async fn keep(
    shared: Arc<Shared>,
    lock: Arc<dyn ServerLock>,
    sink: Arc<dyn Sink>,
    clock: Clock,
) {
    let mut reloaded = shared.reloaded.subscribe();
    let mut place: Option<Arc<Place>> = None;
    let mut keepers: HashMap<HostName, JoinHandle<()>> = HashMap::new();
    loop {
        let site = shared.site();
        if let (None, Some(spec)) = (&place, &site.spec.sleep) {
            place = Some(begin(spec, &shared, &lock, &sink, clock));
        }
        keepers.retain(|_, keeper| !keeper.is_finished());
        for host in site.spec.hosts.iter().filter(|host| host.sleep.is_some()) {
            if let (Some(place), Some(standing)) = (&place, site.host(&host.name))
                && !keepers.contains_key(&host.name)
            {
                let keeper = Keeper::new(Arc::clone(place), Arc::clone(&shared), Arc::clone(standing));
                keepers.insert(host.name.clone(), tokio::spawn(keeper.run()));
            }
        }
        tokio::select! {
            changed = reloaded.changed() => if changed.is_err() { return },
            // A keeper that ended because its host did not sleep any more, and does again.
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn begin(
    spec: &SleepPlace,
    shared: &Arc<Shared>,
    lock: &Arc<dyn ServerLock>,
    sink: &Arc<dyn Sink>,
    clock: Clock,
) -> Arc<Place> {
    let place = Arc::new(Place {
        engine: Engine::new(&spec.docker, &spec.project),
        lock: Lock::new(Arc::clone(lock), &spec.lock, &spec.dir),
        spec: spec.clone(),
        sink: Arc::clone(sink),
        clock,
        changed: tokio::sync::watch::Sender::new(0),
    });
    tokio::spawn(listen(Arc::clone(&place)));
    tokio::spawn(ask::serve(Arc::clone(&place), Arc::clone(shared)));
    place
}

/// Passes on that something happened to a container, also after the engine was gone for a while.
async fn listen(place: Arc<Place>) {
    loop {
        if let Ok(mut events) = place.engine.events().await {
            place.changed.send_modify(|count| *count += 1);
            while events.next().await.is_some() {
                place.changed.send_modify(|count| *count += 1);
            }
        }
        tokio::time::sleep(CLOSE).await;
    }
}

struct Keeper {
    place: Arc<Place>,
    shared: Arc<Shared>,
    standing: Arc<Standing>,
    name: String,
    /// How it sleeps; what it was last, where it is not to any more.
    spec: Option<SleepSpec>,
    work: JoinSet<Done>,
    figures: SleepFigures,
    /// When the engine was last looked at, whether that is under way, and whether it is to be done again.
    looked: Instant,
    looking: bool,
    again: bool,
    accepting: Option<AbortHandle>,
    /// Where the backend itself has its port.
    inner: Option<SocketAddr>,
    planned: bool,
    slept: Slept,
}

impl Keeper {
    fn new(place: Arc<Place>, shared: Arc<Shared>, standing: Arc<Standing>) -> Self {
        Self {
            name: standing.host().spec.name.to_string(),
            spec: standing.host().spec.sleep.clone(),
            place,
            shared,
            standing,
            work: JoinSet::new(),
            figures: SleepFigures::default(),
            looked: Instant::now(),
            looking: false,
            again: false,
            accepting: None,
            inner: None,
            planned: false,
            slept: Slept::default(),
        }
    }

    async fn run(mut self) {
        let mut changed = self.place.changed.subscribe();
        if let Err(error) = asleep::read(self.place.dir(), &self.name) {
            let what = format!("whether {} sleeps cannot be read, so it is woken: {error}", self.name);
            self.place.tell(GatewayState::Noticed, what);
        }
        loop {
            let Some(next) = self.turn() else { return };
            tokio::select! {
                () = self.standing.nudge.notified() => {}
                Some(done) = self.work.join_next() => match done {
                    Ok(done) => self.take(done),
                    Err(error) if error.is_cancelled() => {}
                    // A call that broke says nothing; the next look does.
                    Err(_) => self.look(),
                },
                Ok(()) = changed.changed() => self.look(),
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
    }

    /// How its host is configured, as long as it sleeps.
    fn configured(&self) -> Option<SleepSpec> {
        let host = self.standing.host();
        let name = &host.spec.name;
        let known = self.shared.site().host(name).is_some_and(|standing| Arc::ptr_eq(standing, &self.standing));
        host.spec.sleep.clone().filter(|_| known)
    }

    /// Everything that is due now; when to look again, or `None` at the end.
    fn turn(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let spec = self.configured();
        if spec.is_none() && self.ends(now) {
            return None;
        }
        if spec.is_some() {
            self.spec.clone_from(&spec);
        }
        let used = self.last_busy(spec.as_ref(), now);
        let leaving = self.shared.is_leaving();
        let (effects, state, next, present) = self.standing.sleeping(|sleep| {
            used.into_iter().for_each(|at| sleep.busy(at));
            if leaving {
                sleep.leave(now);
            }
            sleep.tick(now);
            self.figures.state = word(sleep.state());
            self.figures.wanted = sleep.is_wanted(now);
            self.figures.overdue = sleep.overdue(now).as_secs_f64();
            (sleep.effects(), sleep.state(), sleep.next(), sleep.present())
        })?;
        for effect in effects {
            self.obey(effect);
        }
        if leaving && present > 0 {
            // Whoever serves now does not see who is still here.
            drop(std::fs::write(self.lease(), ""));
        }
        let close = self.planned || matches!(state, State::Unknown | State::Waking(_));
        if now.saturating_duration_since(self.looked) >= if close { CLOSE } else { LOOK } {
            self.look();
        }
        self.look_for_it(state == State::Waking(Wait::Accept));
        self.show();
        let soon = now + TURN;
        Some(next.map_or(soon, |next| next.clamp(now + Duration::from_millis(1), soon)))
    }

    /// A host that is not to sleep any more is woken first.
    fn ends(&mut self, now: Instant) -> bool {
        let over = self.standing.sleeping(|sleep| {
            if !matches!(sleep.state(), State::Failed { until } if now < until) {
                sleep.wake(now);
            }
            sleep.passes()
        });
        if over == Some(false) && self.shared.site().host(&self.standing.host().spec.name).is_some() {
            return false;
        }
        self.standing.sleep_by(None);
        self.clear();
        *self.standing.metrics.sleep.lock().unwrap_or_else(PoisonError::into_inner) = None;
        true
    }

    fn show(&self) {
        let mut shown = self.standing.metrics.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Some(self.figures.clone());
    }

    /// When somebody who is not seen here last needed the backend.
    fn last_busy(&self, spec: Option<&SleepSpec>, now: Instant) -> Vec<Instant> {
        let own = spec.and_then(|spec| spec.busy.as_ref()).map(PathBuf::from);
        let touched = |path: PathBuf| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let of = |at: SystemTime| now.checked_sub(SystemTime::now().duration_since(at).unwrap_or_default());
        own.into_iter().chain([self.lease()]).filter_map(touched).filter_map(of).collect()
    }

    fn lease(&self) -> PathBuf {
        asleep::folder(self.place.dir()).join(format!("{}.busy", self.name))
    }

    fn clear(&self) {
        if let Err(error) = asleep::clear(self.place.dir(), &self.name) {
            let what = format!("{}: that it is awake cannot be written down: {error}", self.name);
            self.place.tell(GatewayState::Noticed, what);
        }
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        if self.looking {
            self.again = true;
            return;
        }
        let Some(spec) = self.spec.clone() else { return };
        let Some(epoch) = self.standing.sleeping(|sleep| sleep.epoch()) else { return };
        self.looking = true;
        self.work.spawn(work::look(Arc::clone(&self.place), Arc::clone(&self.standing), spec, epoch));
    }

    /// While it runs and is not known to accept, somebody looks.
    fn look_for_it(&mut self, needed: bool) {
        if !needed {
            if let Some(looks) = self.accepting.take() {
                looks.abort();
            }
        } else if self.accepting.is_none() {
            self.accepting = Some(self.work.spawn(work::accepts(Arc::clone(&self.standing), self.inner)));
        }
    }

    fn take(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Looked(epoch, seen, inner) => {
                self.looking = false;
                self.inner = inner;
                self.planned = seen.is_some_and(|seen| seen.planned);
                let waiting = self.standing.waiting();
                self.standing.sleeping(|sleep| sleep.saw(epoch, seen, waiting, now));
                let stale = self.standing.sleeping(|sleep| sleep.epoch()) != Some(epoch);
                if std::mem::take(&mut self.again) || stale {
                    self.look();
                }
            }
            Done::Deferred(turn, told) => drop(self.standing.sleeping(|sleep| sleep.deferred(turn, told, now))),
            Done::Started(turn, result) => {
                self.inner = result.as_ref().ok().copied().flatten();
                self.standing.sleeping(|sleep| sleep.started(turn, result.map(drop), now));
            }
            Done::Stopped(turn, ended, slept) => {
                self.slept = slept;
                self.standing.sleeping(|sleep| sleep.stopped(turn, ended, now));
            }
            Done::Accepts => {
                self.accepting = None;
                self.standing.reached(now);
            }
        }
    }

    fn obey(&mut self, effect: Effect) {
        let spec = self.spec.clone();
        let (place, standing) = (Arc::clone(&self.place), Arc::clone(&self.standing));
        match (effect, spec) {
            (Effect::Look, _) => self.look(),
            (Effect::Start { turn, force }, Some(spec)) => {
                drop(self.work.spawn(work::start(place, standing, spec, turn, force)));
            }
            (Effect::Stop { turn, begun }, Some(spec)) => {
                drop(self.work.spawn(work::stop(place, standing, spec, turn, begun)));
            }
            (Effect::Start { .. } | Effect::Stop { .. } | Effect::Adopt { .. }, None) => {}
            (Effect::Clear, _) => self.clear(),
            (Effect::Tell(after), _) => self.standing.send_away(after),
            (Effect::Failed { why, open }, _) => self.failed(why, open),
            (Effect::Slept, _) => self.fell_asleep(),
            (Effect::NotSlept(why), _) => {
                self.figures.sleeps[1] += 1;
                self.place.tell(GatewayState::NotSlept, format!("{} does not go to sleep: {why}", self.name));
                self.note(What::NotSlept { why });
            }
            (Effect::Woke(parts), _) => self.woke(&parts),
            (Effect::Adopt { epoch }, Some(spec)) => {
                // It runs, and nobody was seen to work here: with a full disk that must be enough.
                let told = place.say_wanted(&self.name, &spec, Duration::ZERO, true);
                standing.sleeping(|sleep| sleep.adopted(epoch, told, Instant::now()));
            }
            (Effect::Adopted, _) => {
                self.place.tell(GatewayState::Noticed, format!("{} was started by somebody else", self.name));
                self.note(What::Adopted);
            }
            (Effect::Gone, _) => {
                self.place.tell(GatewayState::Noticed, format!("{} does not run, and was not put to sleep", self.name));
                self.note(What::Gone);
            }
        }
    }

    fn failed(&mut self, why: String, open: bool) {
        self.figures.wakes[1] += 1;
        let more = if open { "; it is left alone for a while" } else { "" };
        self.place.tell(GatewayState::WakeFailed, format!("{} cannot be woken: {why}{more}", self.name));
        self.note(What::WakeFailed { why });
    }

    fn fell_asleep(&mut self) {
        self.figures.sleeps[0] += 1;
        let Slept { memory, killed, always } = std::mem::take(&mut self.slept);
        let mut what = format!("{} sleeps; {} MiB are free", self.name, memory / 1024 / 1024);
        if !killed.is_empty() {
            what.push_str(&format!("; {} did not stop within their grace period and were killed", killed.join(", ")));
        }
        if !always.is_empty() {
            let names = always.join(", ");
            what.push_str(&format!("; {names} will start when the engine does: write `restart: unless-stopped`"));
        }
        self.place.tell(GatewayState::Slept, what);
        self.note(What::Slept { memory_bytes: memory, killed });
    }

    fn woke(&mut self, parts: &Parts) {
        self.figures.woke(parts);
        let seconds = |part: Duration| part.as_secs_f64();
        let what = What::Woke {
            decision: seconds(parts.decision),
            container: seconds(parts.container),
            accept: seconds(parts.accept),
            answer: parts.answer.map(seconds),
        };
        let whole = what.whole().unwrap_or_default();
        self.place.tell(GatewayState::Woke, format!("{} is awake after {whole:.3}s", self.name));
        self.note(what);
    }

    fn note(&self, what: What) {
        let entry = Entry { format: diary::FORMAT, at: work::epoch().as_secs_f64(), what };
        if let Err(error) = diary::write(self.place.dir(), &self.name, &entry) {
            self.place.tell(GatewayState::Noticed, format!("{}: the wake log cannot be written: {error}", self.name));
        }
    }
}
