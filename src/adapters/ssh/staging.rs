//! Our own binary comes to a server: is it there, does it fit, put it there whole.
//!
//! Sent as it is read: the deploying side never holds all of it.

use super::words::{self, said};
use super::{Options, Shared};
use crate::rollout::port::ServerError;
use crate::server::layout::Layout;
use crate::server::wire::{Failure, FailureKind};
use openssh::{Session, Stdio};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

/// A script that only looks.
const LOOKING: Duration = Duration::from_secs(30);
/// Our own binary over a slow line.
const UPLOAD: Duration = Duration::from_secs(300);
/// Of what a server says to a script of ours, banner included.
const MOST_SAID: u64 = 256 * 1024;

/// Says what the server is and whether it has the binary already: `$1` is its path, `$2` its SHA-256, `$3` its folder, `$4`
/// that one's. Nothing is run from where everybody could have put it.
const LOOK: &str = r#"
printf 'HANDOVER-SAYS arch %s\n' "$(uname -m)"
if [ -L "$3" ] || [ -L "$1" ] || [ -n "$(find -H "$4" "$3" "$1" -prune ! -type l -perm -0002 2>/dev/null)" ]; then
    printf 'HANDOVER-SAYS open yes\n'
fi
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

/// Puts the binary into a folder of its own, for one run: where it belongs it may not lie, and what is missing there is
/// best said by the agent itself, all at once.
const PUT_ASIDE: &str = r#"
set -eu
umask 077
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/handover"
chmod 700 "$folder/handover"
[ "$(sha256sum <"$folder/handover")" = "$1  -" ]
"$folder/handover" --version >/dev/null
printf 'HANDOVER-SAYS aside %s\n' "$folder"
trap - EXIT
"#;

/// Runs an agent that was put aside, and leaves nothing of it.
pub(super) const RUN_ASIDE: &str = r#""$1/handover" agent; code=$?; rm -rf "$1"; exit "$code""#;

/// Our own binary.
#[derive(Debug)]
pub(super) struct Binary {
    path: PathBuf,
    sha256: String,
}

/// Where the binary lies on a server.
#[derive(Debug)]
pub(super) enum Place {
    /// Where it belongs.
    Own(String),
    /// In a folder for this run only, because of this.
    Aside(String, Failure),
}

impl Binary {
    /// Ours, or the one that is named.
    pub(super) async fn find(options: &Options) -> Result<Self, ServerError> {
        // By way of /proc: the file that runs, also where another one has taken its name meanwhile.
        let path = options.binary.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        match digest(&path).await {
            Ok(sha256) => Ok(Self { path, sha256 }),
            Err(error) => Err(ServerError::Failed(Failure::new(
                FailureKind::Internal,
                format!("our own binary cannot be read ({}): {error}", path.display()),
            ))),
        }
    }
}

async fn digest(path: &Path) -> std::io::Result<String> {
    let mut file = tokio::fs::File::open(path).await?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut chunk).await? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            n => hash.update(&chunk[..n]),
        }
    }
}

/// Sees to it that the binary is on the server and fits.
pub(super) async fn stage(
    shared: &Shared,
    session: &Session,
    binary: &Binary,
    layout: &Layout,
) -> Result<Place, ServerError> {
    let path = layout.agent(&binary.sha256).to_string_lossy().into_owned();
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let bin = layout.bin().to_string_lossy().into_owned();
    let dir = layout.dir().to_string_lossy().into_owned();
    let run = |text, args: Vec<String>, stdin, within| async move {
        let run = script(session, shared.sudo, text, &args, stdin);
        tokio::time::timeout(within, run).await.unwrap_or_else(|_| {
            Err(ServerError::Unreachable(format!("putting the agent there took more than {}", within.as_secs())))
        })
    };
    let looked = run(LOOK, vec![path.clone(), binary.sha256.clone(), bin.clone(), dir], None, LOOKING).await?;
    fits(&looked)?;
    let open = said(&looked.0, "open").map(|_| open_to_all(&bin));
    if open.is_none() && said(&looked.0, "have") == Some("yes") {
        return Ok(Place::Own(path));
    }
    if let Some(failure) = open {
        return aside(run(PUT_ASIDE, vec![binary.sha256.clone()], Some(&*binary.path), UPLOAD).await?, failure);
    }
    let put = run(PUT, vec![bin.clone(), name, binary.sha256.clone()], Some(&*binary.path), UPLOAD).await?;
    let failure = match was_put(&put, &bin) {
        Ok(()) => return Ok(Place::Own(path)),
        Err(failure) if said(&put.0, "unfit").is_some() => return Err(ServerError::Failed(failure)),
        Err(failure) => failure,
    };
    aside(run(PUT_ASIDE, vec![binary.sha256.clone()], Some(&*binary.path), UPLOAD).await?, failure)
}

fn aside(put: Said, failure: Failure) -> Result<Place, ServerError> {
    match said(&put.0, "aside") {
        Some(folder) if put.2 => Ok(Place::Aside(folder.to_owned(), failure)),
        _ => Err(ServerError::Failed(failure)),
    }
}

fn open_to_all(bin: &str) -> Failure {
    let message = format!(
        "everybody may write to {bin}, its folder or what lies in it, or it is a link: nothing is run from there"
    );
    Failure::new(FailureKind::Missing, message).hint("`chmod o-w` what is named here, and `rm` a link")
}

/// What a script printed on stdout and stderr, and whether it ended with 0.
type Said = (String, String, bool);

/// Runs one of our constant scripts with arguments and a file on stdin. Nothing is put together as a shell line.
async fn script(
    session: &Session,
    sudo: bool,
    text: &str,
    args: &[String],
    stdin: Option<&Path>,
) -> Result<Said, ServerError> {
    let mut command = session.command(if sudo { "sudo" } else { "sh" });
    if sudo {
        command.args(["-n", "sh"]);
    }
    command.args(["-c", text, "handover"]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let lost = |error: openssh::Error| ServerError::Unreachable(words::chain(&error));
    let mut child = command.spawn().await.map_err(lost)?;
    if let Some(mut pipe) = child.stdin().take() {
        if let Some(path) = stdin
            && let Ok(mut file) = tokio::fs::File::open(path).await
        {
            // A script that has failed does not read on; what it says about that counts.
            drop(tokio::io::copy(&mut file, &mut pipe).await);
        }
        drop(pipe.shutdown().await);
    }
    let (out, err) = tokio::join!(some(child.stdout().take()), some(child.stderr().take()));
    let status = child.wait().await.map_err(lost)?;
    Ok((out, err, status.success()))
}

/// As much as a script of ours may have said; the rest is read and forgotten, however much a server says.
async fn some<R: AsyncRead + Unpin>(from: Option<R>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut kept = Vec::new();
    // What broke off shows in how the script ended.
    drop((&mut from).take(MOST_SAID).read_to_end(&mut kept).await);
    drop(tokio::io::copy(&mut from, &mut tokio::io::sink()).await);
    String::from_utf8_lossy(&kept).into_owned()
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
            let words = if words.trim().is_empty() { "its login shell ended without a word" } else { words.trim() };
            let failure = Failure::new(FailureKind::Missing, format!("no command can be run there: {words}"));
            Err(ServerError::Failed(if words.contains("sudo") {
                failure.hint("`ssh.sudo = true` needs a user that may `sudo` without a password")
            } else {
                failure.hint("`ssh HOST sh -c true` must work; look for an `exit` in the login shell's start files")
            }))
        }
    }
}

fn was_put(put: &Said, bin: &str) -> Result<(), Failure> {
    let (out, err, ok) = put;
    if *ok {
        return Ok(());
    }
    let output = err.lines().map(ToOwned::to_owned).collect();
    if let Some(why) = said(out, "unfit") {
        return Err(if why.contains("Permission denied") {
            Failure::new(
                FailureKind::Missing,
                format!("nothing may be run from {bin}: its file system is mounted `noexec`"),
            )
            .hint("let `release.dir` lie on a file system that is mounted without `noexec`")
        } else {
            Failure::new(FailureKind::Missing, format!("our binary does not run there: {why}"))
                .hint("use a build for an older glibc (or a static one), or name one with HANDOVER_AGENT")
        }
        .output(output));
    }
    let last = err.trim().lines().last().unwrap_or("it said nothing");
    let hint = if last.contains("No space left") {
        format!("make room on the disk of {bin}")
    } else if last.contains("Read-only file system") {
        "let `release.dir` lie on a file system that may be written to".to_owned()
    } else {
        format!("let the user that deploys own the folder of `release.dir`: it writes {bin}")
    };
    let message = format!("the agent cannot be put into {bin}: {last}");
    Err(Failure::new(FailureKind::Missing, message).hint(hint).output(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(out: &str, err: &str) -> Failure {
        was_put(&(out.to_owned(), err.to_owned(), false), "/opt/x/bin").expect_err("it failed")
    }

    #[test]
    fn what_keeps_the_agent_out_is_told_apart() {
        let hint = |failure: Failure| failure.hint.unwrap_or_default();
        assert!(put("HANDOVER-SAYS unfit sh: /opt/x/bin/.h.new: Permission denied\n", "").message.contains("noexec"));
        let glibc = put("HANDOVER-SAYS unfit version `GLIBC_2.36' not found\n", "");
        assert!(glibc.message.contains("GLIBC_2.36") && hint(glibc).contains("older glibc"));
        assert!(hint(put("", "cat: write error: No space left on device")).contains("make room"));
        assert!(hint(put("", "mkdir: cannot create directory: Read-only file system")).contains("may be written"));
        assert!(hint(put("", "mkdir: cannot create directory: Permission denied")).contains("own the folder"));
    }

    #[test]
    fn a_shell_that_ends_without_a_word_is_said() {
        let ServerError::Failed(failure) = fits(&(String::new(), String::new(), true)).expect_err("nothing came")
        else {
            panic!("another kind of error");
        };
        assert!(failure.message.contains("without a word") && failure.hint.is_some(), "{failure}");
    }

    #[tokio::test]
    async fn a_server_that_talks_without_end_fills_no_memory() {
        let said = some(Some(tokio::io::repeat(b'x').take(MOST_SAID * 40))).await;
        assert_eq!(said.len() as u64, MOST_SAID);
    }

    #[test]
    fn nothing_is_run_from_a_folder_that_everybody_may_write_to() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().expect("a folder");
        let (top, bin) = (dir.path().join("app"), dir.path().join("app/bin"));
        std::fs::create_dir_all(&bin).expect("made");
        let own = bin.join("handover-x");
        std::fs::write(&own, "x").expect("written");
        let is_open = || {
            let sh = std::process::Command::new("sh")
                .args(["-c", LOOK, "handover"])
                .args([&own, Path::new("0"), &bin, &top])
                .output()
                .expect("sh");
            said(&String::from_utf8_lossy(&sh.stdout), "open").is_some()
        };
        assert!(!is_open());
        for path in [&top, &bin, &own] {
            let mode = |mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
            mode(0o777);
            assert!(is_open(), "{}", path.display());
            mode(0o775);
            assert!(!is_open(), "a group's folder is the group's");
        }
        // The administrator's own link is followed, a link in the place of our folder is not.
        let (moved, linked) = (dir.path().join("moved"), dir.path().join("app"));
        std::fs::rename(&top, &moved).and_then(|()| symlink(&moved, &linked)).expect("linked");
        assert!(!is_open());
        std::fs::rename(moved.join("bin"), moved.join("other")).expect("moved");
        symlink(moved.join("other"), moved.join("bin")).expect("linked");
        assert!(is_open());
    }

    #[tokio::test]
    async fn the_digest_is_that_of_the_whole_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x");
        let bytes = vec![7; 200_000];
        std::fs::write(&path, &bytes).expect("written");
        assert_eq!(digest(&path).await.expect("read"), crate::fleet::release::sha256_hex(&bytes));
    }
}
