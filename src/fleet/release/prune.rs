//! Which releases may leave a server's disk.

use crate::fleet::model::ReleaseId;
use std::collections::BTreeSet;

/// Everything beyond the newest `keep`, but never what is needed to go on or back.
///
/// `newest_first` are all releases of the server in the order in which they were staged; `needed` are `current`,
/// `previous` and `incoming`, which also count against `keep`.
#[must_use]
pub fn to_prune(newest_first: &[ReleaseId], keep: u32, needed: &BTreeSet<ReleaseId>) -> Vec<ReleaseId> {
    let mut room = (keep as usize).saturating_sub(needed.len());
    let mut gone = Vec::new();
    for id in newest_first.iter().filter(|id| !needed.contains(id)) {
        if room > 0 {
            room -= 1;
        } else {
            gone.push(id.clone());
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<ReleaseId> {
        names.iter().map(|name| ReleaseId::from(*name)).collect()
    }

    #[test]
    fn the_oldest_go_and_what_is_needed_stays_however_old() {
        let needed = ids(&["a", "b"]).into_iter().collect();
        assert_eq!(to_prune(&ids(&["e", "d", "c", "b", "a"]), 3, &needed), ids(&["d", "c"]));
    }

    #[test]
    fn keeping_one_keeps_current_and_previous_all_the_same() {
        let needed = ids(&["a", "b"]).into_iter().collect();
        assert_eq!(to_prune(&ids(&["c", "b", "a"]), 1, &needed), ids(&["c"]));
    }

    #[test]
    fn nothing_goes_while_there_is_room() {
        assert_eq!(to_prune(&ids(&["b", "a"]), 5, &BTreeSet::new()), ids(&[]));
    }
}
