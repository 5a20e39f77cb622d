//! Tells the binary what it was built from. A tree without git (a crate from a registry) says so; so does a development build, which would
//! else be made anew with every commit.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let said = Command::new("git").args(args).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let released = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = if released { git(&["rev-parse", "--short=12", "HEAD"]) } else { Some("in development".to_owned()) };
    if let (true, Some(folder)) = (released, git(&["rev-parse", "--git-dir"])) {
        for file in ["HEAD", "logs/HEAD"] {
            println!("cargo:rerun-if-changed={folder}/{file}");
        }
    }
    if released && std::env::var("TARGET").is_ok_and(|target| target.ends_with("-linux-gnu")) {
        // Agent and watchdog would else read and copy 60,000 relocations at their start, which is 2.3 MB resident on every server.
        println!("cargo:rustc-link-arg-bins=-no-pie");
        // `profile.release.strip` has no effect on a package that the profile says more about; 9 MB for each server to get.
        println!("cargo:rustc-link-arg-bins=-Wl,--strip-all");
    }
    println!("cargo:rustc-env=HANDOVER_COMMIT={}", commit.unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo:rustc-env=HANDOVER_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}
