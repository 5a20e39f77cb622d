//! One test for each thing that the machine decides; the reports that they stem from are other tools' issues.

use super::*;

const S: Duration = Duration::from_secs(1);

fn rules() -> Rules {
    Rules { after: S * 1800, quiet: S * 600, start: S * 40, awake: S * 60, tries: 3, again: S * 300, patience: S * 25 }
}

fn seen(running: Running) -> Option<Seen> {
    Some(Seen { running, planned: false })
}

struct At {
    sleep: Sleep,
    now: Instant,
}

impl At {
    fn new(written: Written, running: Running) -> Self {
        let now = Instant::now();
        let mut at = Self { sleep: Sleep::new(rules(), written, now), now };
        assert_eq!(at.sleep.effects(), [Effect::Look]);
        at.sleep.saw(0, seen(running), 0, now);
        at
    }

    fn asleep() -> Self {
        let at = Self::new(Written::Asleep, Running::None);
        assert_eq!(at.sleep.state(), State::Asleep);
        at
    }

    /// Awake after a wake by somebody who left again.
    fn woken() -> Self {
        let mut at = Self::asleep();
        at.sleep.enter(at.now);
        at.start();
        at.sleep.answered(at.now);
        at.sleep.left(true, at.now);
        at.sleep.effects();
        at
    }

    fn start(&mut self) {
        self.sleep.started(self.sleep.turn, Ok(()), self.now);
        self.sleep.accepted(self.now);
        assert_eq!(self.sleep.state(), State::Awake { woken: true });
    }

    fn later(&mut self, time: Duration) {
        self.now += time;
        self.sleep.tick(self.now);
    }

    fn look(&mut self, running: Running, planned: bool, waiting: usize) {
        self.sleep.saw(self.sleep.epoch(), Some(Seen { running, planned }), waiting, self.now);
    }
}

#[test]
fn idle_is_measured_from_the_last_activity_and_never_while_somebody_has_no_answer() {
    // ContainerNursery, http-add-on #882: not from the wake, not from a request's start.
    let mut at = At::new(Written::Nothing, Running::All);
    assert_eq!(at.sleep.enter(at.now), Entered::Go);
    at.later(S * 7200);
    assert_eq!(at.sleep.state(), State::Awake { woken: false }, "sablier #576: it works on an answer for two hours");
    at.sleep.answered(at.now);
    at.sleep.left(true, at.now);
    at.later(S * 1799);
    assert!(at.sleep.passes());
    at.later(S);
    assert_eq!(at.sleep.state(), State::Draining);
}

#[test]
fn an_open_stream_is_use_until_a_while_after_its_last_byte() {
    let mut at = At::new(Written::Nothing, Running::All);
    at.sleep.enter(at.now);
    at.sleep.answered(at.now);
    at.later(S * 1000);
    at.sleep.moved(at.now);
    at.later(S * (600 + 1800 - 1));
    assert!(at.sleep.passes());
    at.later(S);
    assert_eq!(at.sleep.state(), State::Draining);
    at.sleep.moved(at.now + S);
    assert!(at.sleep.passes(), "a byte while it was about to be stopped");
}

#[test]
fn an_arrival_cancels_a_stop_that_did_not_begin_and_queues_a_wake_after_one_that_did() {
    let mut at = At::woken();
    at.later(S * 1800);
    let Some(Effect::Stop { turn, .. }) = at.sleep.effects().pop() else { panic!("no stop") };
    assert_eq!(at.sleep.enter(at.now), Entered::Go);
    assert!(!at.sleep.commit(turn, at.now), "somebody came");
    at.sleep.stopped(turn, Stopped::NotBegun("somebody came".to_owned()), at.now);
    assert_eq!(at.sleep.effects(), [], "that is no failure");
    at.sleep.answered(at.now);
    at.sleep.left(true, at.now);
    at.later(S * 1800);
    let Some(Effect::Stop { turn, .. }) = at.sleep.effects().pop() else { panic!("no stop") };
    assert!(at.sleep.commit(turn, at.now));
    assert_eq!(at.sleep.enter(at.now), Entered::Wait);
    assert_eq!(at.sleep.effects(), [], "nothing is started while it is stopped");
    at.sleep.stopped(turn, Stopped::Done, at.now);
    assert!(matches!(at.sleep.effects()[..], [Effect::Slept, Effect::Start { force: false, .. }]));
}

#[test]
fn one_start_however_many_wait_and_the_parts_are_those_of_the_first() {
    let mut at = At::asleep();
    for _ in 0..1000 {
        assert_eq!(at.sleep.enter(at.now), Entered::Wait);
    }
    let effects = at.sleep.effects();
    let [Effect::Start { turn, .. }] = effects[..] else { panic!("{effects:?}") };
    at.sleep.calls(turn, at.now + S / 100);
    at.now += S;
    at.sleep.started(turn, Ok(()), at.now);
    at.now += S * 3;
    at.sleep.accepted(at.now);
    at.now += S;
    at.sleep.answered(at.now);
    let parts = Parts { decision: S / 100, container: S - S / 100, accept: S * 3, answer: Some(S) };
    assert_eq!(at.sleep.effects(), [Effect::Clear, Effect::Woke(parts)]);
    assert!(at.sleep.is_wanted(at.now) && !at.sleep.is_wanted(at.now + LATCH), "the signal is latched");
}

#[test]
fn a_start_that_fails_is_told_at_once_and_a_crash_loop_opens_the_circuit() {
    // knative #3456, #14656: held traffic does not keep a broken backend alive.
    let mut at = At::asleep();
    for (count, pause) in [(1, S), (2, S * 2), (3, S * 300)] {
        assert_eq!(at.sleep.enter(at.now), Entered::Wait);
        let Some(Effect::Start { turn, .. }) = at.sleep.effects().pop() else { panic!("no start") };
        // Once the call fails, once the container ends, once nobody accepts.
        match count {
            1 => at.sleep.started(turn, Err("no such container".to_owned()), at.now),
            2 => {
                at.sleep.started(turn, Ok(()), at.now);
                at.look(Running::None, false, 1);
            }
            _ => {
                at.sleep.started(turn, Ok(()), at.now);
                at.later(S * 40);
            }
        }
        let effects = at.sleep.effects();
        let [Effect::Clear, Effect::Tell(told), Effect::Failed { open, .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!((*told, *open), (pause, count == 3));
        at.sleep.left(false, at.now);
        assert_eq!(at.sleep.enter(at.now), Entered::No(pause));
        at.sleep.left(false, at.now);
        at.now += pause;
    }
    at.sleep.enter(at.now);
    assert!(matches!(at.sleep.state(), State::Waking(_)), "once more, and only because somebody asks");
}

#[test]
fn a_backend_that_dies_soon_after_its_wake_counts_as_a_failed_start() {
    let mut at = At::woken();
    at.now += S * 59;
    at.look(Running::None, false, 0);
    assert!(matches!(at.sleep.state(), State::Failed { .. }));
    let mut at = At::woken();
    at.now += S * 60;
    at.look(Running::None, false, 0);
    assert_eq!(at.sleep.state(), State::Away);
}

#[test]
fn it_is_never_put_to_sleep_while_it_wakes_nor_soon_after() {
    // knative #6201.
    let mut at = At::asleep();
    at.sleep.obey(Rules { after: S, ..rules() });
    at.sleep.enter(at.now);
    at.sleep.left(false, at.now);
    at.later(S * 30);
    assert!(matches!(at.sleep.state(), State::Waking(_)));
    assert!(at.sleep.sleep_now(at.now).is_err());
    at.start();
    at.later(S * 59);
    assert!(at.sleep.passes());
    at.later(S);
    assert_eq!(at.sleep.state(), State::Draining);
}

#[test]
fn what_somebody_else_starts_is_adopted_into_the_idle_clock() {
    // Containarium #1411: woken by another path, put to sleep seconds later.
    let mut at = At::asleep();
    at.now += S * 100_000;
    at.look(Running::All, false, 0);
    let epoch = at.sleep.epoch();
    assert_eq!(at.sleep.effects(), [Effect::Adopt { epoch }]);
    at.sleep.adopted(epoch, false, at.now);
    at.sleep.accepted(at.now);
    assert_eq!(at.sleep.state(), State::Asleep, "a deploy that has begun meanwhile puts it back to sleep");
    at.sleep.adopted(epoch, true, at.now);
    assert_eq!(at.sleep.effects(), [Effect::Adopted]);
    at.sleep.accepted(at.now);
    assert_eq!(at.sleep.effects(), [Effect::Clear]);
    at.later(S * 1799);
    assert!(at.sleep.passes());
}

#[test]
fn what_somebody_else_stops_is_noticed_and_woken_for_who_waits() {
    // ContainerNursery #63: it believed that it runs.
    let mut at = At::new(Written::Nothing, Running::All);
    at.sleep.enter(at.now);
    at.sleep.turned_away();
    assert_eq!(at.sleep.effects(), [Effect::Look]);
    at.look(Running::None, false, 1);
    assert!(matches!(at.sleep.effects()[..], [Effect::Gone, Effect::Start { .. }]));
    // Nothing of that is a plan: the record is not written for a sleep that nobody decided.
    let mut at = At::new(Written::Nothing, Running::All);
    at.look(Running::None, false, 0);
    assert_eq!((at.sleep.state(), at.sleep.effects()), (State::Away, vec![Effect::Gone]));
}

#[test]
fn planned_work_is_left_alone_and_a_wake_waits_for_it_for_a_while() {
    let mut at = At::new(Written::Nothing, Running::All);
    at.look(Running::None, true, 5);
    assert!(at.sleep.passes(), "a deploy stops and starts it; the hold holds");
    let mut at = At::asleep();
    at.look(Running::All, true, 0);
    assert_eq!(at.sleep.state(), State::Asleep, "a deploy that verifies it is no use");
    at.sleep.enter(at.now);
    let Some(Effect::Start { turn, force: false }) = at.sleep.effects().pop() else { panic!("no start") };
    at.sleep.deferred(turn, false, at.now);
    at.later(S);
    assert!(matches!(at.sleep.effects()[..], [Effect::Start { force: false, .. }]));
    at.sleep.deferred(turn, false, at.now);
    at.look(Running::All, true, 1);
    assert!(!at.sleep.awaits_accept(), "he puts it back to sleep, and nothing may be forwarded to that");
    at.later(S * 24);
    assert!(matches!(at.sleep.effects()[..], [Effect::Start { force: true, .. }]), "who waits is not to wait in vain");
}

/// Who waits for a backend that runs already waits in vain; but only who started it knows whether it stays.
#[test]
fn what_who_works_here_has_started_is_joined_once_he_knows_that_it_is_wanted() {
    let mut at = At::asleep();
    at.sleep.enter(at.now);
    let Some(Effect::Start { turn, force: false }) = at.sleep.effects().pop() else { panic!("no start") };
    let early = at.sleep.epoch();
    at.sleep.deferred(turn, true, at.now);
    assert_eq!(at.sleep.effects(), [Effect::Look]);
    at.sleep.saw(early, Some(Seen { running: Running::All, planned: true }), 1, at.now);
    assert!(!at.sleep.awaits_accept(), "that was before he knew");
    let known = at.sleep.epoch();
    at.later(S);
    let Some(Effect::Start { turn, force: false }) = at.sleep.effects().pop() else { panic!("no start") };
    at.sleep.deferred(turn, true, at.now);
    assert_eq!(at.sleep.effects(), [], "nothing new");
    at.sleep.saw(known, Some(Seen { running: Running::All, planned: true }), 1, at.now);
    assert!(at.sleep.awaits_accept(), "a look that takes longer than a turn counts too");
    at.later(S);
    at.sleep.accepted(at.now);
    assert_eq!((at.sleep.state(), at.sleep.effects()), (State::Awake { woken: false }, vec![Effect::Clear]));
    at.sleep.answered(at.now);
    let parts = Parts { decision: S, container: Duration::ZERO, accept: S, answer: Some(Duration::ZERO) };
    assert_eq!(at.sleep.effects(), [Effect::Woke(parts)], "somebody asked for it, so it stands in the log");
}

#[test]
fn what_who_works_here_stops_again_has_not_failed_and_is_waited_for_again() {
    let mut at = At::asleep();
    at.sleep.enter(at.now);
    let Some(Effect::Start { turn, .. }) = at.sleep.effects().pop() else { panic!("no start") };
    at.sleep.deferred(turn, true, at.now);
    at.look(Running::All, true, 1);
    at.sleep.effects();
    at.look(Running::None, true, 1);
    at.later(S);
    let Some(Effect::Start { turn, force: false }) = at.sleep.effects().pop() else { panic!("nobody was told to go") };
    at.sleep.calls(turn, at.now);
    at.sleep.started(turn, Ok(()), at.now);
    at.look(Running::None, false, 1);
    assert!(matches!(at.sleep.state(), State::Failed { .. }), "this start was our own");
}

#[test]
fn a_stop_that_cannot_begin_is_told_and_tried_again_later() {
    let mut at = At::woken();
    at.later(S * 1800);
    let Some(Effect::Stop { turn, .. }) = at.sleep.effects().pop() else { panic!("no stop") };
    at.sleep.stopped(turn, Stopped::NotBegun("somebody else works on this server".to_owned()), at.now);
    assert!(matches!(at.sleep.effects()[..], [Effect::NotSlept(_)]));
    at.later(S * 9);
    assert!(at.sleep.passes() && at.sleep.overdue(at.now) == S * 9, "{:?}", at.sleep.overdue(at.now));
    at.later(S);
    assert_eq!(at.sleep.state(), State::Draining);
}

#[test]
fn what_the_gateway_before_this_one_began_is_ended() {
    let at = At::new(Written::Stopping, Running::All);
    assert_eq!(at.sleep.state(), State::Stopping, "the engine goes on with it");
    let mut at = At::new(Written::Waking, Running::None);
    assert!(matches!(at.sleep.effects()[..], [Effect::Start { .. }]), "somebody wanted it");
    let mut at = At::new(Written::Asleep, Running::None);
    assert_eq!(at.sleep.effects(), [], "a reboot wakes nobody");
    let at = At::new(Written::Nothing, Running::None);
    assert_eq!(at.sleep.state(), State::Away);
}

#[test]
fn work_in_the_background_and_a_persons_wish_are_use() {
    let mut at = At::woken();
    at.now += S * 1000;
    at.sleep.busy(at.now);
    at.later(S * 1799);
    assert!(at.sleep.passes());
    let mut at = At::asleep();
    at.sleep.wake(at.now);
    assert!(matches!(at.sleep.effects()[..], [Effect::Start { .. }]));
    at.start();
    assert!(matches!(at.sleep.effects()[..], [Effect::Clear, Effect::Woke(Parts { answer: None, .. })]));
    let mut early = Sleep::new(rules(), Written::Asleep, at.now);
    early.wake(at.now);
    early.saw(0, seen(Running::None), 0, at.now);
    assert!(matches!(early.effects()[..], [Effect::Look, Effect::Start { .. }]), "asked before anybody had looked");
    assert_eq!(at.sleep.sleep_now(at.now), Ok(()));
    assert_eq!(at.sleep.state(), State::Draining);
}

#[test]
fn who_hands_over_ends_what_it_began_and_decides_nothing_more() {
    let mut at = At::woken();
    at.later(S * 1800);
    at.sleep.leave(at.now);
    assert!(at.sleep.passes());
    at.later(S * 100_000);
    assert!(at.sleep.passes());
}

#[test]
fn what_was_seen_before_a_change_says_nothing_after_it() {
    let mut at = At::woken();
    let before = at.sleep.epoch();
    at.later(S * 1800);
    let Some(Effect::Stop { turn, .. }) = at.sleep.effects().pop() else { panic!("no stop") };
    assert!(at.sleep.commit(turn, at.now));
    at.sleep.stopped(turn, Stopped::Done, at.now);
    at.sleep.saw(before, seen(Running::All), 0, at.now);
    assert_eq!(at.sleep.state(), State::Asleep);
}

#[test]
fn what_a_deploy_runs_to_verify_it_is_asleep_for_a_gateway_that_starts_in_the_middle() {
    let now = Instant::now();
    let planned = Some(Seen { running: Running::All, planned: true });
    let mut sleep = Sleep::new(rules(), Written::Asleep, now);
    sleep.saw(0, planned, 0, now);
    assert_eq!(sleep.state(), State::Asleep, "that is no use");
    let mut sleep = Sleep::new(rules(), Written::Asleep, now);
    sleep.effects();
    sleep.enter(now);
    sleep.saw(0, planned, 1, now);
    assert!(matches!(sleep.effects()[..], [Effect::Start { force: false, .. }]), "somebody waits");
}
