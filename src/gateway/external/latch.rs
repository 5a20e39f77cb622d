//! A request that is over is shown for a while, so that who looks every 15 s sees one that took 15 ms; pure.

use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Of each host what was seen last.
#[derive(Debug, Default)]
pub(super) struct Latches(HashMap<String, Seen>);

#[derive(Debug)]
struct Seen {
    ended: u64,
    used: Option<Instant>,
}

impl Latches {
    /// What a host shows: requests under way, or 1 while one that is over is shown, or 0. `ended` counts requests that are over.
    pub(super) fn look(&mut self, host: &str, under_way: i64, ended: u64, latch: Duration, now: Instant) -> i64 {
        let known = self.0.get(host).map(|seen| seen.ended);
        let seen = self.0.entry(host.to_owned()).or_insert(Seen { ended, used: None });
        // Who is seen for the first time has counted before: a successor that took over shows nobody's use as its own.
        if under_way > 0 || known.is_some_and(|before| before != ended) {
            seen.used = Some(now);
        }
        seen.ended = ended;
        match seen.used {
            Some(used) if under_way <= 0 && now.duration_since(used) <= latch => 1,
            _ => under_way.max(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_nobody_saw_under_way_is_shown_for_the_latch_and_no_longer() {
        let (mut latches, began, latch) = (Latches::default(), Instant::now(), Duration::from_secs(30));
        let mut look = |seconds, under_way, ended| {
            latches.look("a", under_way, ended, latch, began + Duration::from_secs(seconds))
        };
        assert_eq!(look(0, 0, 7), 0, "what was before is nobody's use");
        assert_eq!(look(1, 0, 8), 1);
        assert_eq!(look(31, 0, 8), 1);
        assert_eq!(look(32, 0, 8), 0);
        assert_eq!(look(40, 3, 8), 3);
        assert_eq!(look(50, 0, 11), 1);
        assert_eq!(look(81, 0, 11), 0);
    }

    #[test]
    fn hosts_do_not_show_each_others_use() {
        let (mut latches, now) = (Latches::default(), Instant::now());
        let latch = Duration::from_secs(30);
        assert_eq!(latches.look("a", 1, 0, latch, now), 1);
        assert_eq!(latches.look("b", 0, 0, latch, now), 0);
    }
}
