//! What a compose file has to offer to who writes a deploy.toml: its services with their ports and health checks, and the files and
//! variables that belong to it. What it does not say plainly is left out, and never guessed.

use super::duration;
use super::files::{ComposeFiles, Found, Service};
use super::vars::{Given, uses};
use crate::config::yaml::{Entry, Node};
use crate::fleet::release::{DEFAULT_GRACE, RELEASE_VARIABLE};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A compose file, for a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComposeOffer {
    /// Its own `name`.
    pub name: Option<String>,
    /// The services that no profile switches off, by name.
    pub services: Vec<ServiceOffer>,
    /// Files and folders beside it that are mounted.
    pub files: Vec<String>,
    /// Env files beside it.
    pub env: Vec<String>,
    /// Variables without a default.
    pub vars: Vec<String>,
}

/// One service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceOffer {
    /// Its name.
    pub name: String,
    /// Its grace period, Compose's own default included.
    pub grace: Duration,
    /// The ports that it has on the server, each with the one in its container.
    pub ports: Vec<(u16, u16)>,
    /// Its health check.
    pub test: Option<HealthTest>,
    /// It ends by itself: nothing restarts it, and it has no port.
    pub one_shot: bool,
}

/// What a health check does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthTest {
    /// It asks a URL on its own port in the container.
    Url {
        /// The port there.
        port: u16,
        /// The path, with its query.
        path: String,
    },
    /// It runs a command.
    Command(Vec<String>),
}

impl ServiceOffer {
    /// Where its health check's URL is reached on the server.
    #[must_use]
    pub fn checked(&self) -> Option<(u16, &str)> {
        let Some(HealthTest::Url { port, path }) = &self.test else { return None };
        let (here, _) = self.ports.iter().find(|(_, inside)| inside == port)?;
        Some((*here, path))
    }
}

impl ComposeFiles {
    /// What it offers.
    ///
    /// # Errors
    /// Why its services are not known, as a sentence.
    pub fn offer(&self) -> Result<ComposeOffer, String> {
        let project = self.project();
        if let Some(why) = project.unknown {
            return Err(why);
        }
        let active = || project.services.iter().filter(|(_, service)| !service.is_off());
        let services: Vec<ServiceOffer> = active().map(|(name, found)| service(name, found)).collect();
        let mut env = BTreeSet::new();
        let mut files = BTreeSet::new();
        for (_, service) in active() {
            env.extend(service.all("env_file").into_iter().flat_map(|(_, entry)| env_files(&entry.node)));
            let mounts = service.all("volumes").into_iter().flat_map(|(_, entry)| entry.node.items().to_vec());
            files.extend(mounts.filter_map(|mount| mounted(&mount)));
        }
        files.retain(|file| !env.contains(file));
        let root = self.doc().and_then(|doc| doc.root.as_ref().ok());
        let name = root.and_then(|root| root.get("name")).and_then(|name| name.text()).map(ToOwned::to_owned);
        let vars = self.open_variables();
        Ok(ComposeOffer { name, services, files: files.into_iter().collect(), env: env.into_iter().collect(), vars })
    }

    /// The variables that somebody must give.
    fn open_variables(&self) -> Vec<String> {
        let (vars, declared) = (BTreeMap::new(), Vec::new());
        let given = Given { vars: &vars, declared: &declared, app: "" };
        let mut open = BTreeSet::new();
        for doc in self.docs.values() {
            // A remark is no use of a variable.
            let lines = doc.source.text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let text = lines.map(|line| line.split(" #").next().unwrap_or(line)).collect::<Vec<_>>().join("\n");
            let needed = uses(&text, &given).into_iter().filter(|used| !used.has_default());
            open.extend(needed.map(|used| used.name));
        }
        open.retain(|name| name != RELEASE_VARIABLE && name != "COMPOSE_PROJECT_NAME");
        open.into_iter().collect()
    }
}

fn service(name: &str, service: &Service<'_>) -> ServiceOffer {
    let here = |path: &[&str]| match service.find(path) {
        Found::Here(_, entry) => Some(entry),
        Found::Nothing | Found::Unknown(_) => None,
    };
    let text = |path: &[&str]| here(path).and_then(|entry| entry.node.text()).map(ToOwned::to_owned);
    let grace = text(&["stop_grace_period"]).and_then(|text| duration::parse(&text).ok()).unwrap_or(DEFAULT_GRACE);
    let lists = service.all("ports");
    let ports: Vec<(u16, u16)> =
        lists.iter().flat_map(|(_, entry)| entry.node.items()).filter_map(|p| port(p)).collect();
    let restart = text(&["restart"]).unwrap_or_else(|| "no".to_owned());
    let one_shot = restart == "no" && lists.is_empty();
    let disabled = text(&["healthcheck", "disable"]).as_deref() == Some("true");
    let test = here(&["healthcheck", "test"]).filter(|_| !disabled).and_then(test);
    ServiceOffer { name: name.to_owned(), grace, ports, test, one_shot }
}

/// `8080:80`, `127.0.0.1:8080:80/tcp`, or the long form; a port that is not fixed, or stands in a variable, is none.
fn port(node: &Node) -> Option<(u16, u16)> {
    if node.is_map() {
        let number = |key| node.get(key)?.text()?.parse().ok();
        return Some((number("published")?, number("target")?));
    }
    let text = node.text()?;
    let text = text.strip_suffix("/tcp").unwrap_or(text);
    let (rest, inside) = text.rsplit_once(':')?;
    let here = rest.rsplit_once(':').map_or(rest, |(_, here)| here);
    Some((here.parse().ok()?, inside.parse().ok()?))
}

fn test(entry: &Entry) -> Option<HealthTest> {
    let words: Vec<String> = match entry.node.text() {
        Some(text) => vec!["CMD-SHELL".to_owned(), text.to_owned()],
        None => entry.node.items().iter().filter_map(|item| item.text()).map(ToOwned::to_owned).collect(),
    };
    let (kind, rest) = words.split_first()?;
    if rest.is_empty() || rest.iter().any(|word| word.contains('$')) {
        return None;
    }
    if let Some(url) = rest.iter().flat_map(|word| word.split_whitespace()).find_map(url) {
        return Some(url);
    }
    match kind.as_str() {
        "CMD" => Some(HealthTest::Command(rest.to_vec())),
        "CMD-SHELL" => Some(HealthTest::Command([&["sh".to_owned(), "-c".to_owned()], rest].concat())),
        _ => None,
    }
}

/// A URL of the container itself.
fn url(word: &str) -> Option<HealthTest> {
    let word = word.trim_matches(['\'', '"', ';', ')']);
    let rest = word.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    let own = ["localhost", "127.0.0.1", "0.0.0.0"].contains(&name);
    let port = port.parse().ok().filter(|_| own)?;
    Some(HealthTest::Url { port, path: format!("/{path}") })
}

fn env_files(node: &Node) -> Vec<String> {
    let one = |node: &Node| beside(node.text().or_else(|| node.get("path")?.text())?);
    if node.items().is_empty() {
        one(node).into_iter().collect()
    } else {
        node.items().iter().filter_map(|n| one(n)).collect()
    }
}

/// What of the folder is mounted.
fn mounted(mount: &Node) -> Option<String> {
    match mount.text() {
        Some(text) => text.split_once(':').filter(|(from, _)| from.starts_with('.')).and_then(|(from, _)| beside(from)),
        None => {
            let bind = mount.get("type")?.text()? == "bind";
            beside(mount.get("source")?.text().filter(|_| bind)?)
        }
    }
}

/// A path beside the compose file, plainly written.
fn beside(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let plain = !path.starts_with(['/', '~']) && !path.contains('$') && !parts.contains(&"..");
    (plain && !parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    fn offer(text: &str) -> ComposeOffer {
        let source = Source::new("compose.yaml", text);
        let files = ComposeFiles::gather("compose.yaml", |name| (name == "compose.yaml").then(|| source.clone()));
        files.offer().expect("known")
    }

    #[test]
    fn the_example_offers_its_services_files_and_variables() {
        let offer = offer(include_str!("../../../compose.yaml"));
        let names: Vec<&str> = offer.services.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["api", "gateway", "orchestrator", "publish-worker"]);
        assert_eq!(offer.services[0].ports, [(8080, 8080)]);
        assert!(offer.services.iter().all(|service| service.grace == Duration::from_secs(30) && !service.one_shot));
        assert_eq!((offer.files, offer.env), (vec!["gateway.toml".to_owned()], vec![".env.production".to_owned()]));
        assert_eq!(offer.vars, ["TAG"]);
    }

    #[test]
    fn ports_and_checks_are_read_in_every_way_to_write_them() {
        let offer = offer(
            "name: shop\nservices:\n  web:\n    image: a:${TAG:-1}\n    stop_grace_period: 1m30s\n    ports:\n      - \"127.0.0.1:8443:443/tcp\"\n      - \
             {target: 80, published: \"8080\"}\n      - \"9000\"\n      - \"${P}:1\"\n    healthcheck:\n      test: curl -f 'http://localhost/up?x=1' || exit 1\n  \
             job:\n    image: b\n    volumes: [{type: bind, source: ./cfg, target: /c}, data:/d, /abs:/e, ../out:/f]\n    env_file: [{path: ./a.env}, b.env]\n  \
             worker:\n    image: c\n    restart: always\n    healthcheck: {test: [CMD, check, --all]}\n  off:\n    image: d\n    profiles: [tools]\n",
        );
        assert_eq!(offer.name.as_deref(), Some("shop"));
        let [job, web, worker] = offer.services.as_slice() else { panic!("{:?}", offer.services) };
        assert_eq!((web.ports.as_slice(), web.grace), (&[(8443, 443), (8080, 80)][..], Duration::from_secs(90)));
        assert_eq!(web.checked(), Some((8080, "/up?x=1")));
        assert!(job.one_shot && !web.one_shot && !worker.one_shot);
        assert_eq!(worker.test, Some(HealthTest::Command(vec!["check".into(), "--all".into()])));
        assert_eq!((offer.files, offer.env), (vec!["cfg".to_owned()], vec!["a.env".to_owned(), "b.env".to_owned()]));
        assert_eq!(offer.vars, ["P"]);
    }
}
