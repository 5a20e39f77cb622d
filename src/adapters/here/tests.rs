//! Real commands, ended in every way.

use super::*;
use crate::fleet::model::Hook;

fn commands(dir: &Path, interrupts: &watch::Sender<u32>) -> Commands {
    let files = std::iter::once(b"DB_PASSWORD=correct horse\n".to_vec());
    let variables = [("API_TOKEN".to_owned(), "t0ken-of-ours".to_owned()), ("HOME".into(), "/home/plain".into())];
    let secrets = Secrets::of_a_machine(files, variables.into_iter());
    let env = BTreeMap::from([("HANDOVER_DESTINATION".to_owned(), "staging".to_owned())]);
    Commands::new(dir, env, secrets, interrupts.subscribe())
}

fn sh(script: &str, limit: Duration) -> HookCommand {
    HookCommand {
        hook: Hook::PreDeploy,
        server: None,
        argv: ["sh", "-c", script].map(ToOwned::to_owned).to_vec(),
        env: BTreeMap::from([("HANDOVER_APP".to_owned(), "shop $1 `x`".to_owned())]),
        limit,
    }
}

const LONG: Duration = Duration::from_secs(60);

async fn run(commands: &Commands, command: HookCommand) -> (Result<(), HookFailed>, Vec<String>) {
    let (said, mut lines) = mpsc::unbounded_channel();
    let ended = commands.run(command, said).await;
    let mut all = Vec::new();
    while let Ok(line) = lines.try_recv() {
        all.push(line);
    }
    (ended, all)
}

#[tokio::test]
async fn a_command_is_told_what_it_is_for_and_runs_in_the_folder_of_deploy_toml() {
    let dir = tempfile::tempdir().expect("a folder");
    let commands = commands(dir.path(), &watch::channel(0).0);
    let script = "echo \"$HANDOVER_APP|$HANDOVER_DESTINATION\"; pwd; cat; test -n \"$PATH\"";
    let (ended, lines) = run(&commands, sh(script, LONG)).await;
    assert_eq!(ended, Ok(()));
    let here = dir.path().canonicalize().expect("a path").display().to_string();
    assert_eq!(lines, ["shop $1 `x`|staging".to_owned(), here]);
}

#[tokio::test]
async fn what_it_prints_is_told_without_secrets_and_colours_and_its_failure_with_the_last_lines() {
    let dir = tempfile::tempdir().expect("a folder");
    let commands = commands(dir.path(), &watch::channel(0).0);
    let script = "printf '\\033[31mred\\033[0m\\a is /home/plain\\n'; echo 'correct horse, t0ken-of-ours' >&2; exit 7";
    let (ended, lines) = run(&commands, sh(script, LONG)).await;
    let failed = ended.expect_err("7");
    assert_eq!(failed.message, "`sh` ended with exit code 7");
    let mut sorted = lines.clone();
    sorted.sort();
    assert_eq!(sorted, ["[secret], [secret]", "red is /home/plain"]);
    assert_eq!(failed.output.len(), 2);
    assert!(!format!("{failed:?}").contains("horse"));
}

#[tokio::test]
async fn a_command_that_does_not_end_is_ended_with_all_that_it_started() {
    let dir = tempfile::tempdir().expect("a folder");
    let commands = commands(dir.path(), &watch::channel(0).0);
    let (ended, lines) = run(&commands, sh("sleep 300 & echo $!; wait", Duration::from_millis(300))).await;
    assert_eq!(ended.expect_err("late").message, "`sh` was not over within 0.3s and was ended by force");
    let child = lines[0].clone();
    let alive = || std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_interrupt_reaches_it_and_lets_it_tidy_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let (interrupt, _) = watch::channel(0);
    let commands = commands(dir.path(), &interrupt);
    let script = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let (said, mut lines) = mpsc::unbounded_channel();
    let running = commands.run(sh(script, LONG), said);
    let interrupting = async {
        assert_eq!(lines.recv().await.as_deref(), Some("ready"));
        interrupt.send_modify(|count| *count += 1);
        lines.recv().await
    };
    let (ended, after) = tokio::join!(running, interrupting);
    assert_eq!(ended.expect_err("interrupted").message, "`sh` was interrupted");
    assert_eq!(after.as_deref(), Some("tidied"));
}

#[tokio::test]
async fn what_a_command_leaves_running_runs_on_and_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let commands = commands(dir.path(), &watch::channel(0).0);
    let (ended, lines) = run(&commands, sh("sleep 299 & echo $!", LONG)).await;
    assert_eq!(ended, Ok(()));
    let pid: i32 = lines[0].parse().expect("a process");
    let alive = std::path::Path::new(&format!("/proc/{pid}")).exists();
    let _ = rustix::process::kill_process(Pid::from_raw(pid).expect("one"), Signal::KILL);
    assert!(alive, "a tunnel that pre_connect opened is there for the deploy");
}

#[test]
fn a_program_that_is_not_there_is_said_before_anything_is_begun() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("plain"), "").expect("written");
    assert!(unusable(dir.path(), "no-such-program").is_some_and(|why| why.contains("PATH")));
    assert!(unusable(dir.path(), "./no/such").is_some_and(|why| why.contains("No such file")));
    assert_eq!(unusable(dir.path(), "./plain").as_deref(), Some("it is not executable"));
    assert_eq!(unusable(dir.path(), "sh"), None);
}
