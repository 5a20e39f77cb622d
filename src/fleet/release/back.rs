//! Which release a fleet goes back to when nobody names one.

use crate::fleet::model::{ReleaseId, ServerName};
use std::collections::BTreeSet;

/// What a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnServer {
    /// Which.
    pub name: ServerName,
    /// The last release verified there.
    pub current: Option<ReleaseId>,
    /// The one before.
    pub previous: Option<ReleaseId>,
}

/// Why there is no one release to go back to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWayBack {
    /// Nowhere is one.
    #[error("no server has a release from before the one that runs")]
    None,
    /// The servers would go back to different ones.
    #[error("the servers do not agree on the release before: {}", .0.join(", "))]
    Several(Vec<String>),
    /// One step back was taken already: the release before is the one that was gone back from.
    #[error("the fleet was rolled back to {} already; the release before it is the one that it came from", .0.short())]
    Already(ReleaseId),
}

/// The one release that every server either had before, or runs already because the last deploy never reached it.
///
/// # Errors
/// Where there is none, or not one.
pub fn one_back(servers: &[OnServer], went_back_to: Option<&ReleaseId>) -> Result<ReleaseId, NoWayBack> {
    let runs = |id: &ReleaseId| servers.iter().all(|server| server.current.as_ref() == Some(id));
    if let Some(already) = went_back_to.filter(|id| runs(id)) {
        return Err(NoWayBack::Already(already.clone()));
    }
    let candidates: BTreeSet<&ReleaseId> = servers.iter().filter_map(|server| server.previous.as_ref()).collect();
    let fits = |id: &&&ReleaseId| {
        servers.iter().all(|server| {
            server.previous.as_ref() == Some(**id)
                || server.current.as_ref() == Some(**id)
                // It holds nothing yet, and gets what the others go back to.
                || server.current.is_none()
        })
    };
    let fitting: Vec<&&ReleaseId> = candidates.iter().filter(fits).collect();
    match (fitting.as_slice(), candidates.is_empty()) {
        ([one], _) => Ok((**one).clone()),
        (_, true) => Err(NoWayBack::None),
        _ => {
            let told = servers.iter().map(|server| {
                let id = |id: &Option<ReleaseId>| id.as_ref().map_or("nothing", ReleaseId::short).to_owned();
                format!("{} runs {} and had {}", server.name, id(&server.current), id(&server.previous))
            });
            Err(NoWayBack::Several(told.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(servers: &[(&str, &str)]) -> Vec<OnServer> {
        let id = |text: &str| (!text.is_empty()).then(|| ReleaseId::new(text));
        let one = |(n, (current, previous)): (usize, &(&str, &str))| OnServer {
            name: ServerName::new(format!("web-{n}")),
            current: id(current),
            previous: id(previous),
        };
        servers.iter().enumerate().map(one).collect()
    }

    #[test]
    fn all_servers_go_where_all_of_them_were() {
        assert_eq!(one_back(&fleet(&[("new", "old"), ("new", "old")]), None), Ok("old".into()));
    }

    #[test]
    fn a_server_that_the_last_deploy_never_reached_is_there_already() {
        let half = fleet(&[("new", "old"), ("old", "older"), ("old", "older")]);
        assert_eq!(one_back(&half, None), Ok("old".into()));
    }

    #[test]
    fn servers_that_disagree_are_not_guessed_about() {
        let apart = fleet(&[("new", "old"), ("new", "other")]);
        assert!(matches!(one_back(&apart, None), Err(NoWayBack::Several(told)) if told.len() == 2));
        assert_eq!(one_back(&fleet(&[("new", ""), ("new", "")]), None), Err(NoWayBack::None));
        let swapped = fleet(&[("a", "b"), ("b", "a")]);
        assert!(matches!(one_back(&swapped, None), Err(NoWayBack::Several(_))));
    }

    #[test]
    fn who_went_back_is_not_brought_forward_by_going_back_once_more() {
        let back = fleet(&[("old", "new"), ("old", "new")]);
        assert_eq!(one_back(&back, Some(&"old".into())), Err(NoWayBack::Already("old".into())));
        assert_eq!(one_back(&back, None), Ok("new".into()), "another deploy came after it");
        let later = fleet(&[("newer", "old"), ("newer", "old")]);
        assert_eq!(one_back(&later, Some(&"old".into())), Ok("old".into()), "the rollback was not the last change");
    }
}
