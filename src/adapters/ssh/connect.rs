//! The way to a running agent: connect, see that our own binary is there, start it.

use super::link::Link;
use super::staging::{Binary, Place, RUN_ASIDE, stage};
use super::{Options, Shared, words};
use crate::fleet::model::HostKeys;
use crate::rollout::port::ServerError;
use crate::server::layout::Layout;
use crate::server::wire::{Context, Failure, FailureKind};
use openssh::{ControlPersist, KnownHosts, Session, SessionBuilder, Stdio};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Everything at connect except sending the binary.
const CONNECT: Duration = Duration::from_secs(30);
const TCP: Duration = Duration::from_secs(10);
/// Three unanswered of these, and ssh itself gives up.
const ALIVE: Duration = Duration::from_secs(15);
/// A master without sessions goes away by itself: a killed CI job leaves none behind.
const IDLE: usize = 10;
/// Longer folders do not leave room for a socket's name (108 bytes in all).
const LONGEST_FOLDER: usize = 50;
/// What our folders in the temporary one begin with.
const PREFIX: &str = "handover-ssh-";
/// A folder that is younger may be of a run that is about to connect.
const YOUNG: Duration = Duration::from_secs(60);

/// What is done once for all servers of a run.
pub(super) async fn prepare(shared: &Shared) -> Result<Binary, ServerError> {
    sweep(&temp());
    Binary::find(&shared.options).await
}

/// Connects and starts the agent.
pub(super) async fn connect(shared: &Shared, destination: &str, context: &Context) -> Result<Link, ServerError> {
    let Ok(_permit) = shared.connecting.acquire().await else {
        return Err(ServerError::Unreachable("the run is over".to_owned()));
    };
    let binary = shared.binary.get_or_try_init(|| prepare(shared)).await?;
    let late = |what: &str| {
        ServerError::Unreachable(format!("`{destination}`: {what} took more than {} s", CONNECT.as_secs()))
    };
    let (session, folder) =
        match tokio::time::timeout(CONNECT, session(&shared.options, shared.host_keys, destination)).await {
            Ok(session) => session?,
            Err(_) => return Err(late("connecting")),
        };
    let place = stage(shared, &session, binary, &Layout::of(&context.fleet)).await?;
    let started = start(Arc::new(session), folder, shared.sudo, place, context);
    tokio::time::timeout(CONNECT, started).await.map_err(|_| late("starting the agent"))?
}

fn temp() -> PathBuf {
    let temp = std::env::temp_dir();
    if temp.as_os_str().len() > LONGEST_FOLDER { PathBuf::from("/tmp") } else { temp }
}

/// Removes the folders of runs that were killed: ours, not young, and nobody listens on the socket in it any more.
fn sweep(temp: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(temp).into_iter().flatten().flatten() {
        let folder = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && fs::symlink_metadata(&folder).is_ok_and(|meta| {
                meta.is_dir()
                    && meta.uid() == own
                    && meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG))
            });
        let inside = || fs::read_dir(&folder).into_iter().flatten().flatten();
        if ours && !inside().any(|inner| UnixStream::connect(inner.path().join("master")).is_ok()) {
            // The next run tries again.
            drop(fs::remove_dir_all(&folder));
        }
    }
}

/// A connection of its own, and the folder of its socket.
pub(super) async fn session(
    options: &Options,
    host_keys: HostKeys,
    destination: &str,
) -> Result<(Session, TempDir), ServerError> {
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(temp()).map_err(|error| {
        let what = format!("no folder for SSH's socket: {error}");
        ServerError::Failed(Failure::new(FailureKind::Internal, what))
    })?;
    let mut builder = SessionBuilder::default();
    builder
        .known_hosts_check(match host_keys {
            HostKeys::Strict => KnownHosts::Strict,
            HostKeys::AcceptNew => KnownHosts::Add,
        })
        .connect_timeout(TCP)
        .server_alive_interval(ALIVE)
        .control_directory(folder.path());
    if let Some(idle) = std::num::NonZeroUsize::new(IDLE) {
        builder.control_persist(ControlPersist::IdleFor(idle));
    }
    if let Some(config) = &options.config {
        builder.config_file(config);
    }
    match builder.connect_mux(destination).await {
        Ok(session) => Ok((session, folder)),
        Err(error) => Err(ServerError::Unreachable(words::unreachable(destination, &words::chain(&error)))),
    }
}

async fn start(
    session: Arc<Session>,
    folder: TempDir,
    sudo: bool,
    place: Place,
    context: &Context,
) -> Result<Link, ServerError> {
    let (argv, lacking) = match place {
        Place::Own(path) => (vec![path, "agent".to_owned()], None),
        Place::Aside(path, failure) => {
            (["sh", "-c", RUN_ASIDE, "handover", &path].map(ToOwned::to_owned).to_vec(), Some(failure))
        }
    };
    let mut words = if sudo { vec!["sudo".to_owned(), "-n".to_owned()] } else { Vec::new() };
    words.extend(argv);
    let mut command = session.arc_command(words.remove(0));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().await.map_err(|error| ServerError::Unreachable(words::chain(&error)))?;
    Link::greet(child, folder, context, lacking).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::time::SystemTime;

    #[test]
    fn what_killed_runs_left_goes_and_what_is_used_or_young_stays() {
        let temp = tempfile::tempdir().expect("a folder");
        let make = |name: &str, old: bool| {
            let folder = temp.path().join(name);
            fs::create_dir_all(folder.join(".ssh-connection")).expect("made");
            if old {
                let then = SystemTime::now() - YOUNG * 2;
                fs::File::open(&folder).and_then(|file| file.set_modified(then)).expect("set back");
            }
            folder
        };
        let (left, used) = (make("handover-ssh-a", true), make("handover-ssh-b", true));
        let (young, others) = (make("handover-ssh-c", false), make("handover-other", true));
        let listener = UnixListener::bind(used.join(".ssh-connection/master")).expect("bound");
        sweep(temp.path());
        assert!(!left.exists() && used.exists() && young.exists() && others.exists());
        drop(listener);
        // A process that another test has just forked has the listener, too, until it is another program.
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while used.exists() && std::time::Instant::now() < until {
            sweep(temp.path());
            std::thread::yield_now();
        }
        assert!(!used.exists(), "nobody listens any more");
    }
}
