//! What goes wrong in a simulated run, and when: drawn from its seed.

use super::dice::Dice;
use crate::fleet::model::{Fleet, ServerName};
use std::time::Duration;

/// A span of fleet time since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Span {
    fn drawn(dice: &mut Dice, within: Duration, longest: Duration) -> Self {
        let from = dice.within(within);
        Self { from, to: from + dice.within(longest) }
    }

    pub(super) fn holds(self, at: Duration) -> bool {
        self.from <= at && at < self.to
    }
}

/// What is wrong with the new release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wreck {
    /// `up` brings containers of another image.
    OtherImage,
    /// It answers as the old version.
    OldVersion,
    /// It is restarted again and again.
    CrashLoop,
    /// It passes its checks and dies a little later.
    DiesAfter(Duration),
    /// It listens, and the balancer never gets an answer.
    Unreachable,
    /// It never comes up.
    NeverUp,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The new release is bad, there or everywhere.
    Wreck(Option<ServerName>, Wreck),
    /// Some of its processes go on answering 200.
    HalfFlips(ServerName),
    /// The balancer's check asks something that does not follow the flip.
    OtherCheck(ServerName),
    /// Real traffic is refused while health fails.
    RealRefused(ServerName),
    /// It needs that long to stop, and is killed in the end.
    StopsSlowly(ServerName, Duration),
    /// Its app dies by itself and stays dead.
    Dies(ServerName, Duration),
    /// The apps of all other servers die and stay dead.
    Lonely(ServerName, Duration),
    /// The API throttles every question.
    Throttled(Span),
    /// The API denies access.
    Denied(Span),
    /// The API does not answer at all.
    Silent(Span),
    /// The API's answers leave targets out.
    Partial(Span),
    /// The line to a server is cut.
    Cut(ServerName, Span),
    /// The connection to a server breaks; another one can be made.
    Dropped(ServerName, Duration),
    /// The line to a server is slow.
    Slow(ServerName, Duration),
    /// Its disk takes nothing more.
    DiskFull(ServerName, Duration),
    /// Somebody's script holds its server lock.
    LockTaken(ServerName, Span),
    /// Its agent is killed.
    AgentKilled(ServerName, Duration),
    /// The deploying process is killed.
    DeployKilled(Duration),
    /// It is interrupted, and once more so long after.
    Interrupted(Duration, Option<Duration>),
    /// Somebody else deploys, too.
    Second(Duration),
}

/// Draws what goes wrong in a run that takes about so long. One run in eight goes as planned.
pub(super) fn drawn(fleet: &Fleet, seed: u64, length: Duration) -> Vec<Fault> {
    let mut dice = Dice::new(seed, 1);
    let count = match dice.below(8) {
        0 => 0,
        1..=4 => 1,
        5 | 6 => 2,
        _ => 3,
    };
    (0..count).filter_map(|_| one(&mut dice, fleet, length)).collect()
}

fn one(dice: &mut Dice, fleet: &Fleet, length: Duration) -> Option<Fault> {
    let server = dice.one(&fleet.servers)?.name.clone();
    let minute = Duration::from_secs(60);
    Some(match dice.below(23) {
        0 | 1 => {
            let wrecks = [
                Wreck::OtherImage,
                Wreck::OldVersion,
                Wreck::CrashLoop,
                Wreck::DiesAfter(Duration::from_secs(4) + dice.within(Duration::from_secs(8))),
                Wreck::Unreachable,
                Wreck::NeverUp,
            ];
            Fault::Wreck((!dice.once_in(3)).then_some(server), *dice.one(&wrecks)?)
        }
        2 => Fault::HalfFlips(server),
        3 => Fault::RealRefused(server),
        4 => Fault::StopsSlowly(server, dice.within(minute)),
        5 | 6 => Fault::Dies(server, dice.within(length)),
        7 => Fault::Throttled(Span::drawn(dice, length, minute * 2)),
        8 => Fault::Denied(Span::drawn(dice, length, minute * 2)),
        9 => Fault::Silent(Span::drawn(dice, length, minute * 2)),
        10 => Fault::Partial(Span::drawn(dice, length, minute)),
        11 | 12 => Fault::Cut(server, Span::drawn(dice, length, minute * 3)),
        13 => Fault::Slow(server, dice.within(Duration::from_secs(8))),
        14 => Fault::DiskFull(server, dice.within(length)),
        15 => Fault::LockTaken(server, Span::drawn(dice, length, minute * 2)),
        16 => Fault::AgentKilled(server, dice.within(length)),
        17 => Fault::DeployKilled(dice.within(length)),
        18 => {
            let again = dice.once_in(2).then(|| dice.within(minute / 2));
            Fault::Interrupted(dice.within(length), again)
        }
        19 => Fault::OtherCheck(server),
        20 => Fault::Lonely(server, dice.within(length)),
        21 => Fault::Dropped(server, dice.within(length)),
        _ => Fault::Second(dice.within(length)),
    })
}
