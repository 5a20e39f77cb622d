//! Every command line that is ever run against Compose or the engine.

use crate::server::run::CommandLine;
use std::path::Path;

/// Given as env file so that a `.env` that happens to lie in the folder is not read (it would be, silently).
pub const NO_FILE: &str = "/dev/null";

/// The engine's client.
#[must_use]
pub fn docker<const N: usize>(args: [&str; N]) -> CommandLine {
    CommandLine::new(["docker"]).args(args)
}

fn compose(app: &str, file: &Path) -> CommandLine {
    docker(["compose", "--env-file", NO_FILE, "--project-name", app, "--file"]).args([file.to_string_lossy()])
}

/// The project as a whole, whatever file it was started from: orphans included.
#[must_use]
pub fn project(app: &str) -> CommandLine {
    docker(["compose", "--env-file", NO_FILE, "--project-name", app])
}

const PATHS_AS_THEY_ARE: [&str; 5] = ["config", "--format", "json", "--no-path-resolution", "--no-env-resolution"];

/// The first pass: everything merged, nothing interpolated. Only so are env files not read (Compose 2.40).
#[must_use]
pub fn config_pass_one(app: &str, file: &Path) -> CommandLine {
    compose(app, file).args(PATHS_AS_THEY_ARE).args(["--no-interpolate"])
}

/// The first pass by another Compose than the engine's own plugin, for who only wants to know what a file says.
#[must_use]
pub fn config_asked(tool: &[&str], app: &str, file: &Path) -> CommandLine {
    CommandLine::new(tool.iter().copied())
        .args(["--env-file", NO_FILE, "--project-name", app, "--file"])
        .args([file.to_string_lossy()])
        .args(PATHS_AS_THEY_ARE)
        .args(["--no-interpolate"])
}

/// The version of a Compose.
#[must_use]
pub fn version_asked(tool: &[&str]) -> CommandLine {
    CommandLine::new(tool.iter().copied()).args(["version", "--short"])
}

/// The second pass: variables put in, images pinned to what the registry says now.
#[must_use]
pub fn config_pass_two(app: &str, file: &Path) -> CommandLine {
    compose(app, file).args(PATHS_AS_THEY_ARE).args(["--resolve-image-digests"])
}

/// Whether this Compose understands a file.
#[must_use]
pub fn config_check(app: &str, file: &Path) -> CommandLine {
    compose(app, file).args(["config", "--quiet"])
}

/// A project as it was started by other means, resolved whole.
#[must_use]
pub fn config_full(app: &str, files: &[String], folder: &str, env_files: &[String]) -> CommandLine {
    let mut line = docker(["compose", "--project-name", app, "--project-directory", folder]);
    for env_file in env_files {
        line = line.args(["--env-file", env_file]);
    }
    for file in files {
        line = line.args(["--file", file]);
    }
    line.args(["config", "--format", "json"])
}

/// Brings a release up: nothing is pulled, nothing is built, what does not belong to it goes.
#[must_use]
pub fn up(app: &str, file: &Path) -> CommandLine {
    compose(app, file).args(["up", "--detach", "--no-build", "--pull", "never", "--remove-orphans", "--quiet-pull"])
}

/// Brings these services up and leaves the others alone.
#[must_use]
pub fn up_some<'a>(app: &str, file: &Path, services: impl IntoIterator<Item = &'a str>) -> CommandLine {
    compose(app, file)
        .args(["up", "--detach", "--no-build", "--pull", "never", "--quiet-pull", "--no-deps", "--"])
        .args(services)
}

/// Makes these services' containers anew, each stopped with its own grace period first, and leaves the others alone.
#[must_use]
pub fn up_anew<'a>(app: &str, file: &Path, services: impl IntoIterator<Item = &'a str>) -> CommandLine {
    compose(app, file)
        .args([
            "up",
            "--detach",
            "--no-build",
            "--pull",
            "never",
            "--quiet-pull",
            "--no-deps",
            "--force-recreate",
            "--",
        ])
        .args(services)
}

/// What the container of something that is run once is called: one for each release.
#[must_use]
pub fn once_name(app: &str, name: &str, release: &str) -> String {
    format!("{app}-once-{name}-{release}")
}

/// Runs a command in a container of its own, as a service is defined; nothing else of the project is started.
#[must_use]
pub fn run_once(app: &str, file: &Path, service: &str, container: &str, argv: &[String]) -> CommandLine {
    compose(app, file)
        .args(["run", "--no-deps", "--no-TTY", "--quiet-pull", "--name", container, service])
        .args(argv.iter().map(String::as_str))
}

/// What became of such a container: its state and exit code.
#[must_use]
pub fn once_state(container: &str) -> CommandLine {
    docker(["container", "inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", container])
}

/// Removes a container, by force where it runs.
#[must_use]
pub fn remove_container(container: &str) -> CommandLine {
    docker(["container", "rm", "--force", container])
}

/// Stops every container of the project, each with its own grace period.
#[must_use]
pub fn stop(app: &str) -> CommandLine {
    project(app).args(["stop"])
}

/// Stops the containers of these services.
#[must_use]
pub fn stop_some<'a>(app: &str, services: impl IntoIterator<Item = &'a str>) -> CommandLine {
    project(app).args(["stop", "--"]).args(services)
}

/// Makes the containers of these services as the definition has them, where they are not, and starts none of them.
#[must_use]
pub fn create_some<'a>(app: &str, file: &Path, services: impl IntoIterator<Item = &'a str>) -> CommandLine {
    compose(app, file).args(["create", "--no-build", "--pull", "never", "--"]).args(services)
}

/// Removes the stopped containers of these services.
#[must_use]
pub fn remove_some<'a>(app: &str, services: impl IntoIterator<Item = &'a str>) -> CommandLine {
    project(app).args(["rm", "--force", "--"]).args(services)
}

/// One more container of a service, beside the one that the definition has, and of this name.
#[must_use]
pub fn beside(app: &str, file: &Path, service: &str, name: &str) -> CommandLine {
    compose(app, file).args(["run", "--detach", "--no-deps", "--name", name, "--", service])
}

/// What Compose makes of a service's definition; a container of it bears it as a label.
#[must_use]
pub fn config_hash(app: &str, file: &Path, service: &str) -> CommandLine {
    compose(app, file).args(["config", "--hash", service])
}

/// When the engine is to start a container again, in its own words; `no` is never, whatever becomes of it.
#[must_use]
pub fn restart(container: &str, when: &str) -> CommandLine {
    docker(["update", "--restart", when, container])
}

/// Ends one container, with its own grace period.
#[must_use]
pub fn stop_container(container: &str) -> CommandLine {
    docker(["stop", container])
}

/// Removes the project's stopped containers, orphans and networks.
#[must_use]
pub fn down(app: &str) -> CommandLine {
    project(app).args(["down", "--remove-orphans"])
}

/// The ids of the project's containers.
#[must_use]
pub fn list(app: &str) -> CommandLine {
    docker(["ps", "--all", "--quiet", "--no-trunc", "--filter"])
        .args([format!("label=com.docker.compose.project={app}")])
}

/// All about containers.
#[must_use]
pub fn inspect(ids: &[String]) -> CommandLine {
    docker(["container", "inspect"]).args(ids)
}

/// All about images; those that are not there make it end with 1, after the others.
#[must_use]
pub fn image_inspect(images: &[String]) -> CommandLine {
    docker(["image", "inspect"]).args(images)
}

/// Pulls an image.
#[must_use]
pub fn pull(image: &str) -> CommandLine {
    docker(["pull", "--quiet", image])
}

/// Gives an image one more name.
#[must_use]
pub fn tag(image: &str, name: &str) -> CommandLine {
    docker(["image", "tag", image, name])
}

/// Takes an image's name away, and the image with it where that was its last one and no container is made of it.
#[must_use]
pub fn forget(image: &str) -> CommandLine {
    docker(["image", "rm", image])
}

/// A command in a container.
#[must_use]
pub fn exec(container: &str, argv: &[String]) -> CommandLine {
    docker(["exec", container]).args(argv)
}

/// A signal for a container's first process.
#[must_use]
pub fn signal(container: &str, name: &str) -> CommandLine {
    docker(["kill", "--signal", name, container])
}

/// The last log lines of a container.
#[must_use]
pub fn logs(container: &str) -> CommandLine {
    docker(["logs", "--tail", "20", container])
}

/// The version of Compose.
#[must_use]
pub fn version() -> CommandLine {
    docker(["compose", "version", "--short"])
}

/// The version of Compose v1, where that is what is installed.
#[must_use]
pub fn version_one() -> CommandLine {
    CommandLine::new(["docker-compose", "version", "--short"])
}

/// The version of the engine, as the engine says it.
#[must_use]
pub fn engine_version() -> CommandLine {
    docker(["version", "--format", "{{.Server.Version}}"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_brought_up_from_its_own_file_and_nothing_else() {
        let line = up("mythex", Path::new("/opt/my app/releases/ab/compose.json"));
        assert_eq!(
            line.argv,
            [
                "docker",
                "compose",
                "--env-file",
                "/dev/null",
                "--project-name",
                "mythex",
                "--file",
                "/opt/my app/releases/ab/compose.json",
                "up",
                "--detach",
                "--no-build",
                "--pull",
                "never",
                "--remove-orphans",
                "--quiet-pull"
            ]
        );
    }

    #[test]
    fn what_is_run_once_is_a_container_of_its_own_and_a_value() {
        let argv = ["./manage.py".to_owned(), "migrate; rm -rf $HOME".to_owned()];
        let name = once_name("mythex", "migrate", "0123456789ab");
        let line = run_once("mythex", Path::new("compose.resolved.json"), "api", &name, &argv).argv;
        assert_eq!(
            line[8..],
            [
                "run",
                "--no-deps",
                "--no-TTY",
                "--quiet-pull",
                "--name",
                "mythex-once-migrate-0123456789ab",
                "api",
                "./manage.py",
                "migrate; rm -rf $HOME"
            ]
        );
    }

    #[test]
    fn what_is_stopped_is_the_project_and_not_what_a_file_says_of_it() {
        assert_eq!(
            stop("mythex").argv,
            ["docker", "compose", "--env-file", "/dev/null", "--project-name", "mythex", "stop"]
        );
        assert!(!down("mythex").argv.contains(&"--file".to_owned()));
    }

    #[test]
    fn who_is_asked_what_a_file_says_is_asked_as_publishing_asks() {
        let asked = config_asked(&["docker", "compose"], "mythex", Path::new("c.yaml"));
        assert_eq!(asked, config_pass_one("mythex", Path::new("c.yaml")));
        assert_eq!(version_asked(&["docker", "compose"]), version());
    }

    #[test]
    fn only_the_first_pass_leaves_variables_alone() {
        let one = config_pass_one("a", Path::new("c.yaml")).argv;
        let two = config_pass_two("a", Path::new("c.json")).argv;
        assert!(one.contains(&"--no-interpolate".to_owned()) && one.contains(&"--no-env-resolution".to_owned()));
        assert!(!two.contains(&"--no-interpolate".to_owned()) && two.contains(&"--resolve-image-digests".to_owned()));
    }
}
