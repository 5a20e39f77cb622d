//! What `handover sleep` asks a gateway that runs, over a socket that only its own user may open: one line each way.

use super::work::Place;
use crate::gateway::listen;
use crate::gateway::metrics::word;
use crate::gateway::site::{Shared, Standing};
use crate::server::layout::asleep;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Format number of both lines.
pub const FORMAT: u32 = 1;
/// Between two looks whether the socket is still ours.
const LOOK: Duration = Duration::from_secs(5);
/// How long a question may be.
const LONGEST: u64 = 16 * 1024;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// How do they stand?
    Status,
    /// Wake this one; that counts as use.
    Wake {
        /// Its host.
        host: String,
    },
    /// Put this one to sleep, as if nobody had needed it for long.
    Now {
        /// Its host.
        host: String,
    },
}

/// The answer: how every host that may sleep stands, or why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Says {
    /// `FORMAT`.
    pub format: u32,
    /// The hosts that may sleep.
    pub hosts: Vec<HostSays>,
    /// Why what was asked for is not done.
    pub refused: Option<String>,
}

/// How one stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSays {
    /// Its name.
    pub host: String,
    /// Its services.
    pub services: Vec<String>,
    /// `awake`, `draining`, `stopping`, `asleep`, `away`, `waking`, `failed` or `unknown`.
    pub state: String,
    /// For how long.
    pub seconds: f64,
    /// How many requests and tunnels are there, and how many of them wait.
    pub present: usize,
    /// How many of them wait.
    pub waiting: usize,
    /// After how long it sleeps if nobody comes.
    pub sleeps_in: Option<f64>,
}

fn says(place: &Place, shared: &Shared, refused: Option<String>) -> Says {
    let now = Instant::now();
    let site = shared.site();
    let one = |standing: &Arc<Standing>| {
        let host = standing.host();
        let services = host.spec.sleep.as_ref()?.services.iter().map(|name| name.as_str().to_owned()).collect();
        let waiting = standing.waiting();
        standing.sleeping(|sleep| HostSays {
            host: host.spec.name.to_string(),
            services,
            state: word(sleep.state()).to_owned(),
            seconds: now.saturating_duration_since(sleep.since()).as_secs_f64(),
            present: sleep.present(),
            waiting,
            sleeps_in: if sleep.passes() {
                sleep.next().map(|at| at.saturating_duration_since(now).as_secs_f64())
            } else {
                None
            },
        })
    };
    let hosts = site.spec.hosts.iter().filter_map(|host| site.host(&host.name)).filter_map(one).collect();
    debug_assert!(site.spec.sleep.as_ref().is_none_or(|spec| *spec == place.spec));
    Says { format: FORMAT, hosts, refused }
}

fn answer(place: &Place, shared: &Shared, ask: &Ask) -> Says {
    let now = Instant::now();
    let refused = match ask {
        Ask::Status => None,
        Ask::Wake { host } => told(shared, host, |standing| {
            standing.sleeping(|sleep| sleep.wake(now));
            Ok(())
        }),
        Ask::Now { host } => {
            told(shared, host, |standing| standing.sleeping(|sleep| sleep.sleep_now(now)).unwrap_or(Ok(())))
        }
    };
    says(place, shared, refused)
}

fn told(shared: &Shared, host: &str, act: impl FnOnce(&Standing) -> Result<(), String>) -> Option<String> {
    let site = shared.site();
    let name = crate::fleet::model::HostName::parse(host).ok();
    let standing = name.and_then(|name| site.host(&name).cloned());
    match standing.filter(|standing| standing.host().spec.sleep.is_some()) {
        Some(standing) => act(&standing).err(),
        None => Some(format!("no host `{host}` that may sleep")),
    }
}

/// Answers until the gateway ends.
pub(super) async fn serve(place: Arc<Place>, shared: Arc<Shared>) {
    let path = asleep::socket(place.dir());
    let listener = loop {
        let made = std::fs::create_dir_all(asleep::folder(place.dir())).map_err(|error| error.to_string());
        match made.and_then(|()| listen::control("the socket of `handover sleep`", &path.display().to_string())) {
            Ok(listener) => break listener,
            Err(why) => place.tell(crate::event::GatewayState::Noticed, why),
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    let ours = inode(&path);
    let mut told = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tokio::time::sleep(LOOK), if !told => {
                told = !shared.is_leaving() && inode(&path).is_some_and(|now| Some(now) != ours);
                if told {
                    let what = format!(
                        "another gateway has taken {}: each of the two puts to sleep what only the other one's requests need; let one of them \
                         alone have these hosts",
                        path.display()
                    );
                    place.tell(crate::event::GatewayState::Noticed, what);
                }
                continue;
            }
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (place, shared) = (Arc::clone(&place), Arc::clone(&shared));
        // Who does not ask in time is not answered.
        tokio::spawn(tokio::time::timeout(Duration::from_secs(10), async move { one(stream, &place, &shared).await }));
    }
}

fn inode(path: &std::path::Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|meta| std::os::unix::fs::MetadataExt::ino(&meta))
}

async fn one(mut stream: UnixStream, place: &Place, shared: &Shared) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    BufReader::new(read.take(LONGEST)).read_line(&mut line).await?;
    let says = match serde_json::from_str::<Ask>(&line) {
        Ok(ask) => answer(place, shared, &ask),
        Err(error) => says(place, shared, Some(format!("not understood: {error}"))),
    };
    let mut text = serde_json::to_vec(&says)?;
    text.push(b'\n');
    write.write_all(&text).await
}
