//! The way to a running agent: connect, see what the server is, stage our own binary, start it.

use super::link::Link;
use super::words::{self, said};
use super::{Options, Shared};
use crate::fleet::model::HostKeys;
use crate::fleet::release::sha256_hex;
use crate::rollout::port::ServerError;
use crate::server::layout::Layout;
use crate::server::wire::{Context, Failure, FailureKind};
use openssh::{ControlPersist, KnownHosts, Session, SessionBuilder, Stdio};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

/// Everything at connect except sending the binary.
const CONNECT: Duration = Duration::from_secs(30);
const TCP: Duration = Duration::from_secs(10);
/// Three unanswered of these, and ssh itself gives up.
const ALIVE: Duration = Duration::from_secs(15);
/// A master without sessions goes away by itself: a killed CI job leaves none behind.
const IDLE: usize = 10;
/// Our own binary over a slow line.
const UPLOAD: Duration = Duration::from_secs(300);
/// Longer folders do not leave room for a socket's name (108 bytes in all).
const LONGEST_FOLDER: usize = 50;

/// Says what the server is and whether it has the binary already: `$1` is its path, `$2` its SHA-256.
const LOOK: &str = r#"
printf 'HANDOVER-SAYS arch %s\n' "$(uname -m)"
if [ -x "$1" ] && [ "$(sha256sum <"$1")" = "$2  -" ]; then
    printf 'HANDOVER-SAYS have yes\n'
else
    printf 'HANDOVER-SAYS have no\n'
fi
"#;

/// Puts the binary there whole: `$1` is the folder, `$2` the name, `$3` the SHA-256. Old ones go.
const PUT: &str = r#"
set -eu
umask 022
mkdir -p "$1"
new="$1/.$2.$$.new"
trap 'rm -f "$new"' EXIT
cat >"$new"
chmod 755 "$new"
if [ "$(sha256sum <"$new")" != "$3  -" ]; then
    echo 'the binary did not arrive whole' >&2
    exit 1
fi
if ! why=$("$new" --version 2>&1 >/dev/null); then
    printf 'HANDOVER-SAYS unfit %s\n' "$(printf %s "$why" | tr '\n' ' ')"
    exit 1
fi
mv -f "$new" "$1/$2"
ls -t "$1"/handover-* | tail -n +6 | while IFS= read -r old; do rm -f "$old"; done
"#;

/// Our own binary, read once for all servers.
#[derive(Debug)]
pub(super) struct Binary {
    bytes: Vec<u8>,
    sha256: String,
}

fn failed(kind: FailureKind, message: impl Into<String>) -> ServerError {
    ServerError::Failed(Failure::new(kind, message))
}

/// Connects and starts the agent.
pub(super) async fn connect(shared: &Shared, destination: &str, context: &Context) -> Result<Link, ServerError> {
    let Ok(_permit) = shared.connecting.acquire().await else {
        return Err(ServerError::Unreachable("the run is over".to_owned()));
    };
    let binary = shared.binary.get_or_try_init(|| read_binary(&shared.options)).await?;
    let layout = Layout::of(&context.fleet);
    let path = layout.agent(&binary.sha256).to_string_lossy().into_owned();
    let late = |what: &str| ServerError::Unreachable(format!("`{destination}`: {what} took more than {CONNECT:?}"));
    let (session, folder) = match tokio::time::timeout(CONNECT, session(shared, destination)).await {
        Ok(session) => session?,
        Err(_) => return Err(late("connecting")),
    };
    let session = Arc::new(session);
    let asked: [&str; 2] = [&path, &binary.sha256];
    let looked = tokio::time::timeout(CONNECT, script(&session, shared.sudo, LOOK, &asked, &[])).await;
    let looked = looked.map_err(|_| late("a first look at it"))??;
    fits(&looked)?;
    if said(&looked.0, "have") != Some("yes") {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let bin = layout.bin().to_string_lossy().into_owned();
        let args: [&str; 3] = [&bin, &name, &binary.sha256];
        let put = script(&session, shared.sudo, PUT, &args, &binary.bytes);
        let put = tokio::time::timeout(UPLOAD, put).await;
        was_put(
            &put.map_err(|_| {
                ServerError::Unreachable(format!("`{destination}`: sending the agent took more than {UPLOAD:?}"))
            })??,
            &bin,
        )?;
    }
    let started = tokio::time::timeout(CONNECT, start(session, folder, shared.sudo, &path, context)).await;
    started.map_err(|_| late("starting the agent"))?
}

async fn read_binary(options: &Options) -> Result<Binary, ServerError> {
    // By way of /proc: the file that runs, also where another one has taken its name meanwhile.
    let path = options.binary.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let bytes = tokio::fs::read(&path).await.map_err(|error| {
        failed(FailureKind::Internal, format!("our own binary cannot be read ({}): {error}", path.display()))
    })?;
    let sha256 = sha256_hex(&bytes);
    Ok(Binary { bytes, sha256 })
}

async fn session(shared: &Shared, destination: &str) -> Result<(Session, TempDir), ServerError> {
    let temp = std::env::temp_dir();
    let temp = if temp.as_os_str().len() > LONGEST_FOLDER { PathBuf::from("/tmp") } else { temp };
    let folder = tempfile::Builder::new().prefix("handover-").tempdir_in(temp);
    let folder =
        folder.map_err(|error| failed(FailureKind::Internal, format!("no folder for SSH's socket: {error}")))?;
    let mut builder = SessionBuilder::default();
    builder
        .known_hosts_check(match shared.host_keys {
            HostKeys::Strict => KnownHosts::Strict,
            HostKeys::AcceptNew => KnownHosts::Add,
        })
        .connect_timeout(TCP)
        .server_alive_interval(ALIVE)
        .control_directory(folder.path());
    if let Some(idle) = std::num::NonZeroUsize::new(IDLE) {
        builder.control_persist(ControlPersist::IdleFor(idle));
    }
    if let Some(config) = &shared.options.config {
        builder.config_file(config);
    }
    match builder.connect_mux(destination).await {
        Ok(session) => Ok((session, folder)),
        Err(error) => Err(ServerError::Unreachable(words::unreachable(destination, &words::chain(&error)))),
    }
}

/// What a script printed on stdout and stderr, and whether it ended with 0.
type Said = (String, String, bool);

/// Runs one of our constant scripts with arguments and something on stdin. Nothing is put together as a shell line.
async fn script(session: &Session, sudo: bool, text: &str, args: &[&str], stdin: &[u8]) -> Result<Said, ServerError> {
    let mut command = session.command(if sudo { "sudo" } else { "sh" });
    if sudo {
        command.args(["-n", "sh"]);
    }
    command.args(["-c", text, "handover"]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let lost = |error: openssh::Error| ServerError::Unreachable(words::chain(&error));
    let mut child = command.spawn().await.map_err(lost)?;
    if let Some(mut pipe) = child.stdin().take() {
        // A script that has failed does not read on; what it says about that counts.
        if pipe.write_all(stdin).await.is_ok() {
            drop(pipe.shutdown().await);
        }
    }
    let output = child.wait_with_output().await.map_err(lost)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr), output.status.success()))
}

fn fits(looked: &Said) -> Result<(), ServerError> {
    let own = std::env::consts::ARCH;
    match said(&looked.0, "arch") {
        Some(arch) if arch == own => Ok(()),
        Some(arch) => Err(ServerError::Failed(
            Failure::new(FailureKind::Missing, format!("it is {arch}, this handover is built for {own}"))
                .hint(format!("run the deploy from a build for {arch}, or name one with HANDOVER_AGENT")),
        )),
        None => {
            let (out, err, _) = looked;
            let words = format!("{} {}", out.trim(), err.trim());
            let failure = Failure::new(FailureKind::Missing, format!("no command can be run there: {}", words.trim()));
            Err(ServerError::Failed(if words.contains("sudo") {
                failure.hint("`ssh.sudo = true` needs a user that may `sudo` without a password")
            } else {
                failure
            }))
        }
    }
}

fn was_put(put: &Said, bin: &str) -> Result<(), ServerError> {
    let (out, err, ok) = put;
    if *ok {
        return Ok(());
    }
    let failure = if let Some(why) = said(out, "unfit") {
        Failure::new(FailureKind::Missing, format!("our binary does not run there: {why}"))
            .hint("use a build for an older glibc (or a static one), or name one with HANDOVER_AGENT")
    } else {
        let last = err.trim().lines().last().unwrap_or("it said nothing").to_owned();
        Failure::new(FailureKind::Missing, format!("the agent cannot be put into {bin}: {last}"))
            .hint(format!("let the user that deploys own the folder of `release.dir`: it writes {bin}"))
    };
    Err(ServerError::Failed(failure.output(err.lines().map(ToOwned::to_owned).collect())))
}

async fn start(
    session: Arc<Session>,
    folder: TempDir,
    sudo: bool,
    path: &str,
    context: &Context,
) -> Result<Link, ServerError> {
    let mut command = session.arc_command(if sudo { "sudo".to_owned() } else { path.to_owned() });
    if sudo {
        command.args(["-n", path]);
    }
    command.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().await.map_err(|error| ServerError::Unreachable(words::chain(&error)))?;
    Link::greet(child, folder, context).await
}
