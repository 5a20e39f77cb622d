//! Which containers a wake needs and in which order, from what Compose wrote into their labels.
//!
//! Pure. A service that others want completed runs once in a release's life: where it ended well it is not run again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// What a service wants of one that it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    Started,
    Healthy,
    Completed,
}

/// A container as the engine shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) service: String,
    pub(super) depends: Vec<(String, Wants)>,
    pub(super) running: bool,
    /// Whether it says that it is well; `None` where it says nothing.
    pub(super) healthy: Option<bool>,
    /// How it ended, if it ran.
    pub(super) exit: Option<i64>,
    pub(super) grace: Duration,
    /// The engine starts it again whatever stopped it.
    pub(super) always: bool,
    /// Ports of this machine that lead to it, and where it has them itself.
    pub(super) ports: Vec<(u16, SocketAddr)>,
}

/// Reads the label `com.docker.compose.depends_on`: `db:service_healthy:false,migrate:service_completed_successfully:false`.
pub(super) fn depends(label: &str) -> Vec<(String, Wants)> {
    let one = |part: &str| {
        let mut fields = part.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let wants = match fields.next() {
            Some("service_healthy") => Wants::Healthy,
            Some("service_completed_successfully") => Wants::Completed,
            _ => Wants::Started,
        };
        Some((name.to_owned(), wants))
    };
    label.split(',').filter_map(one).collect()
}

/// Services in the order in which they start: each after what it depends on. What stands in a circle comes last, as it comes.
pub(super) fn layers(all: &[Container], services: &[String]) -> Vec<Vec<String>> {
    let needs = needs(all);
    let mut needed: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = services.iter().map(String::as_str).collect();
    while let Some(service) = open.pop() {
        if needed.insert(service) {
            let more = needs.get(service).into_iter().flatten();
            open.extend(more.copied().filter(|name| needs.contains_key(name)));
        }
    }
    let mut layers = Vec::new();
    while !needed.is_empty() {
        let free = |service: &&str| {
            let mut wants = needs.get(service).into_iter().flatten();
            !wants.any(|name| needed.contains(name))
        };
        let mut layer: Vec<&str> = needed.iter().copied().filter(free).collect();
        if layer.is_empty() {
            layer = needed.iter().copied().collect();
        }
        for service in &layer {
            needed.remove(service);
        }
        layers.push(layer.into_iter().map(str::to_owned).collect());
    }
    layers
}

fn needs(all: &[Container]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in all {
        let of = needs.entry(&container.service).or_default();
        of.extend(container.depends.iter().map(|(name, _)| name.as_str()).filter(|name| *name != container.service));
    }
    needs
}

/// The most that anybody wants of a service.
pub(super) fn wanted(all: &[Container], service: &str) -> Wants {
    let of = all.iter().flat_map(|one| &one.depends).filter(|(name, _)| name == service);
    let rank = |wants: &Wants| match wants {
        Wants::Started => 0,
        Wants::Healthy => 1,
        Wants::Completed => 2,
    };
    of.map(|(_, wants)| *wants).max_by_key(rank).unwrap_or(Wants::Started)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(service: &str, depends_on: &str) -> Container {
        Container {
            id: service.to_owned(),
            service: service.to_owned(),
            depends: depends(depends_on),
            running: false,
            healthy: None,
            exit: None,
            grace: Duration::from_secs(10),
            always: false,
            ports: Vec::new(),
        }
    }

    #[test]
    fn what_others_depend_on_starts_first_and_strangers_do_not_start() {
        let all = [
            container("cms", "db:service_healthy:false,migrate:service_completed_successfully:false"),
            container("migrate", "db:service_healthy:true"),
            container("db", ""),
            container("consumer", "db:service_started:false"),
            container("mcp", "cms:service_started:false,gone:service_started:false"),
        ];
        assert_eq!(
            layers(&all, &["cms".into()]),
            [["db"], ["migrate"], ["cms"]].map(|layer| layer.map(str::to_owned).to_vec())
        );
        assert_eq!(layers(&all, &["mcp".into(), "cms".into()]).concat(), ["db", "migrate", "cms", "mcp"]);
        assert_eq!(wanted(&all, "db"), Wants::Healthy);
        assert_eq!(wanted(&all, "migrate"), Wants::Completed);
        assert_eq!(wanted(&all, "mcp"), Wants::Started);
        assert_eq!(depends(""), []);
    }

    #[test]
    fn a_circle_is_started_all_at_once() {
        let all = [container("a", "b:service_started:false"), container("b", "a:service_started:false")];
        assert_eq!(layers(&all, &["a".into()]), [["a".to_owned(), "b".to_owned()]]);
        let own = [container("a", "a:service_started:false")];
        assert_eq!(layers(&own, &["a".into()]), [["a".to_owned()]]);
    }
}
