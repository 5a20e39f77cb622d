//! The team's own commands: their order, what they are told, and what their failure means, the same for every command.

use crate::world::{World, exit, fleet, message};
use handover::diag::Exit;
use handover::event::{Event, HookState, StepState};
use handover::fleet::model::{Fleet, Hook, ReleaseId};
use handover::fleet::plan::Options;
use handover::rollout::{Deployed, Source};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../deploy.toml");
const HOOKS: &str = r#"
[hooks]
pre_deploy = { run = ["a"] }
pre_drain = { run = ["b", "$(x)"], limit = "30s" }
post_server = { run = ["c"] }
post_deploy = { run = ["d"] }
on_failure = { run = ["e"] }
"#;

fn hooked() -> Fleet {
    fleet(&format!("{EXAMPLE}{HOOKS}"))
}

async fn world() -> World {
    World::new(hooked(), 2, |_| {}).await
}

fn names(world: &World) -> Vec<String> {
    world.hooks.lock().expect("hooks").names()
}

fn told(world: &World, name: &str) -> String {
    world.hooks.lock().expect("hooks").told(name).to_owned()
}

fn fail(world: &World, hook: Hook, server: Option<&str>) {
    world.hooks.lock().expect("hooks").fail.push((hook, server.map(Into::into)));
}

const ALL: [&str; 8] = [
    "pre_deploy",
    "pre_drain web-1",
    "post_server web-1",
    "pre_drain web-2",
    "post_server web-2",
    "pre_drain web-3",
    "post_server web-3",
    "post_deploy",
];

#[tokio::test(start_paused = true)]
async fn a_deploy_and_a_rollback_run_every_hook_in_one_order_inside_the_deploy_lock() {
    for source in [None, Some(Source::OnDisk(ReleaseId::new(crate::world::NEW)))] {
        let world = world().await;
        let deployed = match source {
            None => world.deploy().await,
            Some(source) => world.carry_out(source, Options::default(), |_| {}).await,
        };
        assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
        assert_eq!(names(&world), ALL);
        assert!(world.hooks.lock().expect("hooks").run.iter().all(|(_, locked)| *locked));
        for (name, value) in [
            ("HANDOVER_HOOK", "post_deploy"),
            ("HANDOVER_APP", "mythex"),
            ("HANDOVER_COMMAND", "deploy"),
            ("HANDOVER_DEPLOY", "1-1-1"),
            ("HANDOVER_RELEASE", "new0new0new0"),
            ("HANDOVER_SERVERS", "web-1 web-2 web-3"),
            ("HANDOVER_OUTCOME", "deployed"),
            ("HANDOVER_EXIT", "0"),
            ("HANDOVER_LOST", "0"),
        ] {
            assert_eq!(told(&world, name), value, "{name}");
        }
        assert_eq!(world.with(|inner| (inner.nowhere, inner.violations.clone())), (0, Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_a_value_its_words_are_not_read_by_a_shell_and_its_lines_are_events() {
    let world = world().await;
    world.deploy().await;
    let hooks = world.hooks.lock().expect("hooks");
    let (command, _) = hooks.run.iter().find(|(command, _)| command.hook == Hook::PreDrain).expect("one");
    assert_eq!(command.argv, ["b", "$(x)"]);
    assert_eq!(command.limit, Duration::from_secs(30));
    assert_eq!(command.env["HANDOVER_SERVER"], "web-1");
    drop(hooks);
    let lines = world.events.lock().expect("events");
    let said: Vec<(Hook, bool)> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::Hook { hook, server, state: HookState::Said, what, .. } if what.as_deref() == Some("a line") => {
                Some((*hook, server.is_some()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(said.len(), ALL.len());
    assert_eq!((said[0], said[1]), ((Hook::PreDeploy, false), (Hook::PreDrain, true)));
}

fn untouched(world: &World) {
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current old, runs old");
        assert!(!world.requests(server).iter().any(|request| request == "flip" || request == "stop"));
    }
}

#[tokio::test(start_paused = true)]
async fn pre_deploy_that_fails_refuses_the_deploy_before_anything_is_touched() {
    let world = world().await;
    fail(&world, Hook::PreDeploy, None);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Refused);
    assert_eq!(message(&deployed), "hooks.pre_deploy: `it` ended with exit code 1; nothing was touched");
    assert_eq!(deployed.problem().expect("one").output, ["no"]);
    assert_eq!(names(&world), ["pre_deploy", "on_failure"]);
    assert_eq!(told(&world, "HANDOVER_OUTCOME"), "refused");
    assert_eq!(told(&world, "HANDOVER_EXIT"), "4");
    untouched(&world);
}

#[tokio::test(start_paused = true)]
async fn pre_drain_that_fails_leaves_its_server_alone_and_begins_no_other() {
    let world = world().await;
    fail(&world, Hook::PreDrain, Some("web-1"));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Refused, "{}", message(&deployed));
    assert_eq!(names(&world), ["pre_deploy", "pre_drain web-1", "on_failure"]);
    untouched(&world);
    let world = self::world().await;
    fail(&world, Hook::PreDrain, Some("web-2"));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    assert_eq!(world.state("web-1"), "current new, runs new");
    assert_eq!(world.state("web-2"), "current old, runs old");
    assert!(message(&deployed).contains("web-2: `it` ended with exit code 1; web-2 was not drained"));
    assert_eq!(world.failed_steps(), ["web-2 pre drain Forward"]);
    assert_eq!(told(&world, "HANDOVER_EXIT"), "5");
}

#[tokio::test(start_paused = true)]
async fn with_rollback_all_a_hook_that_fails_on_the_way_back_stops_nothing() {
    let text = format!("{EXAMPLE}{HOOKS}").replace("\"rollback\" ", "\"rollback-all\" ");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    fail(&world, Hook::PreDrain, Some("web-3"));
    fail(&world, Hook::PostServer, Some("web-2"));
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Undone, "{}", message(&deployed));
    for server in ["web-1", "web-2", "web-3"] {
        assert_eq!(world.state(server), "current old, runs old");
    }
    let back = ["pre_drain web-2", "post_server web-2", "pre_drain web-1", "post_server web-1", "on_failure"];
    assert_eq!(names(&world)[6..], back);
    assert_eq!(world.with(|inner| (inner.nowhere, inner.violations.clone())), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn post_hooks_that_fail_are_told_and_undo_nothing() {
    let world = world().await;
    fail(&world, Hook::PostServer, Some("web-1"));
    fail(&world, Hook::PostDeploy, None);
    let deployed = world.deploy().await;
    assert_eq!(exit(&deployed), Exit::Done, "{}", message(&deployed));
    assert_eq!(names(&world), ALL);
    assert_eq!(world.failed_steps(), ["web-1 post server Forward"]);
    let lines = world.events.lock().expect("events");
    let failed = |event: &Event| matches!(event, Event::Hook { hook: Hook::PostDeploy, state: HookState::Failed, .. });
    assert!(lines.iter().any(|line| failed(&line.event)));
}

#[tokio::test(start_paused = true)]
async fn lost_requests_end_with_on_failure_although_all_is_deployed() {
    let world = world().await;
    let lost = world.lost.clone();
    let deployed = world.deploy_with(Options::default(), |_| lost.send_modify(|lost| *lost = 3)).await;
    assert_eq!(exit(&deployed), Exit::Lost, "{}", message(&deployed));
    assert_eq!(names(&world).last().map(String::as_str), Some("on_failure"));
    assert_eq!((told(&world, "HANDOVER_OUTCOME"), told(&world, "HANDOVER_LOST")), ("lost_requests".into(), "3".into()));
    let text = format!("{EXAMPLE}{HOOKS}").replace("on_loss     = \"halt\"", "on_loss     = \"continue\"");
    let world = World::new(fleet(&text), 2, |_| {}).await;
    world.lost.send_replace(1);
    assert_eq!(exit(&world.deploy().await), Exit::Done);
    assert_eq!(names(&world).last().map(String::as_str), Some("on_failure"));
    assert_eq!((told(&world, "HANDOVER_OUTCOME"), told(&world, "HANDOVER_EXIT")), ("lost_requests".into(), "7".into()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_leaves_or_comes_back_has_the_hooks_that_are_about_it() {
    let world = world().await;
    assert_eq!(exit(&world.drain("web-2").await), Exit::Done);
    assert_eq!(names(&world), ["pre_drain web-2", "post_server web-2"]);
    assert_eq!(told(&world, "HANDOVER_OUTCOME"), "drained");
    assert_eq!(exit(&world.undrain("web-2").await), Exit::Done);
    assert_eq!(names(&world)[2..], ["post_server web-2"]);
    assert_eq!(told(&world, "HANDOVER_OUTCOME"), "undrained");
    fail(&world, Hook::PreDrain, Some("web-1"));
    let deployed = world.drain("web-1").await;
    assert_eq!(exit(&deployed), Exit::Refused, "{}", message(&deployed));
    assert_eq!(names(&world)[3..], ["pre_drain web-1", "on_failure"]);
    assert_eq!(world.state("web-1"), "current old, runs old");
}

/// Interrupts when a command has begun that never ends.
async fn interrupted(world: &World, hook: Hook) -> Deployed {
    world.hooks.lock().expect("hooks").hang.push(hook);
    let hooks = world.hooks.clone();
    let clock = world.clock;
    let interrupting = |interrupt: &tokio::sync::watch::Sender<u32>| {
        let interrupt = interrupt.clone();
        tokio::spawn(async move {
            while !hooks.lock().expect("hooks").run.iter().any(|(command, _)| command.hook == hook) {
                clock.sleep(Duration::from_millis(100)).await;
            }
            interrupt.send_modify(|count| *count += 1);
        });
    };
    world.deploy_with(Options::default(), interrupting).await
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_does_not_wait_for_a_hook() {
    let world = world().await;
    let deployed = interrupted(&world, Hook::PreDrain).await;
    assert_eq!(exit(&deployed), Exit::Interrupted, "{}", message(&deployed));
    assert_eq!(names(&world), ["pre_deploy", "pre_drain web-1", "on_failure"]);
    assert_eq!((told(&world, "HANDOVER_OUTCOME"), told(&world, "HANDOVER_EXIT")), ("interrupted".into(), "130".into()));
    untouched(&world);
    let world = self::world().await;
    interrupted(&world, Hook::PostServer).await;
    assert_eq!(world.state("web-1"), "current new, runs new");
    assert_eq!(world.state("web-2"), "current old, runs old");
    let lines = world.events.lock().expect("events");
    let began = lines.iter().filter(
        |line| matches!(&line.event, Event::Step { server, state: StepState::Began, .. } if server.as_str() == "web-2"),
    );
    assert_eq!(began.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deploy_that_cannot_begin_tells_on_failure_too() {
    let text = format!("{EXAMPLE}{HOOKS}").replace("port   = 8080\n", "port   = 8080\ncross_zone = false\n");
    let world = World::new(fleet(&text), 3, |_| {}).await;
    assert_eq!(exit(&world.deploy().await), Exit::Refused);
    assert_eq!(names(&world), ["on_failure"]);
    assert!(told(&world, "HANDOVER_ERROR").contains("1 must stay"));
}

/// A folder with a fleet whose servers are nowhere, and hooks that write down what they are told.
fn folder(hooks: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["compose.yaml", "gateway.toml"] {
        std::fs::copy(root.join(name), dir.path().join(name)).expect("copied");
    }
    std::fs::write(dir.path().join(".env.production"), "DB=hush-hush\n").expect("written");
    let text = EXAMPLE.replace("deploy@web-", "nobody@127.0.0.1.invalid-");
    std::fs::write(dir.path().join("deploy.toml"), format!("{text}{hooks}")).expect("written");
    let script = "#!/bin/sh\necho \"$HANDOVER_HOOK $HANDOVER_COMMAND $HANDOVER_OUTCOME $HANDOVER_EXIT\" >> told\necho DB is hush-hush\nexit $1\n";
    std::fs::write(dir.path().join("hook"), script).expect("written");
    std::fs::set_permissions(dir.path().join("hook"), std::fs::Permissions::from_mode(0o755)).expect("set");
    dir
}

fn handover(dir: &Path, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .stdin(Stdio::null())
        .output();
    output.expect("it runs")
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn pre_connect_comes_before_anything_is_connected_to_for_every_command() {
    let hooks = "[hooks]\npre_connect = { run = [\"./hook\", \"1\"] }\non_failure = { run = [\"./hook\", \"0\"] }\n";
    let commands: [&[&str]; 5] =
        [&["deploy", "--set", "TAG=1"], &["rollback"], &["resume"], &["drain", "web-1"], &["undrain", "web-1"]];
    for args in commands {
        let dir = folder(hooks);
        let output = handover(dir.path(), args);
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("hooks.pre_connect: `./hook` ended with exit code 1; nothing was touched"), "{text}");
        assert!(text.contains("pre_connect | DB is [secret]") && !text.contains("hush"), "{text}");
        let told = std::fs::read_to_string(dir.path().join("told")).expect("told");
        assert_eq!(told, format!("pre_connect {0}  \non_failure {0} refused 4\n", args[0]));
    }
}

#[test]
fn hooks_that_cannot_be_run_are_refused_first_and_skip_hooks_leaves_them_out() {
    let dir = folder("[hooks]\npre_connect = { run = [\"./hook\", \"1\"] }\npost_deploy = { run = [\"./no\"] }\n");
    let output = handover(dir.path(), &["undrain", "web-1"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("hooks.post_deploy: `./no` cannot be run: No such file"), "{text}");
    assert!(!dir.path().join("told").exists());
    let output = handover(dir.path(), &["undrain", "web-1", "--skip-hooks"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(!dir.path().join("told").exists() && !text.contains("hook"), "{text}");
}
