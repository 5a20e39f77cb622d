//! Destinations: what is laid over what, and where its problems point.

use super::super::{Loaded, Problem, Problems, Source, from_sources, load};
use super::EXAMPLE;
use crate::fleet::model::{OnLoss, Verify};
use std::time::Duration;

fn over(overlay: &str) -> Result<Loaded, Problems> {
    over_base(EXAMPLE, overlay)
}

fn over_base(base: &str, overlay: &str) -> Result<Loaded, Problems> {
    from_sources(&Source::new("deploy.toml", base), Some(&Source::new("deploy.staging.toml", overlay)))
}

fn fine(overlay: &str) -> Loaded {
    over(overlay).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn tables_are_merged_key_by_key() {
    let loaded = fine("[rolling]\non_loss = \"continue\"\n[release]\nenv = [\".env.staging\"]\n");
    assert_eq!(loaded.fleet.rolling.on_loss, OnLoss::Continue);
    assert_eq!(loaded.fleet.rolling.stable, Duration::from_secs(5));
    assert_eq!(loaded.fleet.release.env, [".env.staging"]);
    assert_eq!(loaded.fleet.release.files, ["gateway.toml"]);
    assert_eq!(loaded.origin("rolling.on_loss").as_deref(), Some("deploy.staging.toml:2"));
}

#[test]
fn services_are_merged_by_name_and_the_others_stay() {
    let loaded = fine(
        "[[service]]\nname = \"gateway\"\ndeadline = \"90s\"\n[[service]]\nname = \"mailer\"\nverify = { tcp = \"localhost:25\" }\n",
    );
    let services = &loaded.fleet.services;
    let names: Vec<&str> = services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["api", "orchestrator", "gateway", "publish-worker", "mailer"]);
    assert_eq!(services[2].deadline, Duration::from_secs(90));
    assert!(matches!(&services[2].verify, Verify::Http { url, .. } if url.ends_with(":8000/health")));
}

#[test]
fn servers_of_the_base_are_gone_unless_the_overlay_names_them() {
    let loaded = fine(
        "[[server]]\nname = \"web-2\"\n[[server]]\nname = \"test-1\"\nssh = \"test-1\"\ntarget = \"i-0f\"\nzone = \"eu-central-1a\"\n",
    );
    let servers: Vec<&str> = loaded.fleet.servers.iter().map(|server| server.ssh.as_str()).collect();
    assert_eq!(servers, ["deploy@web-2", "test-1"]);
}

#[test]
fn another_way_to_drain_or_to_verify_drops_the_old_one() {
    let loaded =
        fine("[drain]\nby = \"sigterm\"\n[[service]]\nname = \"api\"\nverify = { tcp = \"localhost:8080\" }\n");
    assert_eq!(loaded.fleet.drain.by.word(), "sigterm");
    assert_eq!(loaded.fleet.drain.max, Duration::from_secs(150));
    assert!(matches!(loaded.fleet.services[0].verify, Verify::Tcp { .. }));
}

#[test]
fn a_problem_points_to_the_file_that_it_came_from() {
    let base = EXAMPLE.replace("keep    = 5", "keep    = 0");
    let problems =
        over_base(&base, "[rolling]\nbatch = 0\ntimout = 1\n[[server]]\nname = \"x\"\n").expect_err("broken");
    let lines: Vec<String> = problems.iter().map(Problem::line).collect();
    assert_eq!(
        lines,
        [
            "deploy.toml:12:11: `release.keep` must be at least 1, not 0",
            "deploy.staging.toml:2:9: `rolling.batch` must be at least 1, not 0",
            "deploy.staging.toml:3:1: unknown key `timout` in `rolling`",
            "deploy.staging.toml:4:1: `server.ssh` is missing",
        ]
    );
}

#[test]
fn two_entries_of_one_name_in_the_overlay_are_still_two() {
    let problems = over("[[server]]\nname = \"web-1\"\n[[server]]\nname = \"web-1\"\n").expect_err("double");
    assert!(problems.to_string().contains("two servers `web-1`"), "{problems}");
    let problems = over("[[service]]\nname = \"api\"\n[[service]]\nname = \"api\"\n").expect_err("double");
    assert!(problems.to_string().contains("two services `api`"), "{problems}");
}

#[test]
fn files_are_found_beside_the_base_and_a_missing_one_names_those_that_are_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("deploy.toml"), EXAMPLE).expect("written");
    std::fs::write(file("deploy.staging.toml"), "[rolling]\nmin_healthy = 2\n").expect("written");
    let loaded = load(&file("deploy.toml"), Some("staging")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.fleet.rolling.min_healthy, 2);
    assert_eq!(loaded.dir, dir.path());
    let missing = load(&file("deploy.toml"), Some("stagign")).expect_err("missing").to_string();
    assert!(missing.contains("destination `stagign` has no file"), "{missing}");
    assert!(missing.contains("did you mean `staging`?"), "{missing}");
    let outside = load(&file("deploy.toml"), Some("../x")).expect_err("outside").to_string();
    assert!(outside.contains("no destination"), "{outside}");
    let gone = load(&file("nothing.toml"), None).expect_err("gone").to_string();
    assert!(gone.contains("nothing.toml cannot be read"), "{gone}");
}

#[test]
fn a_file_that_is_not_text_is_refused_where_it_stops_being_text() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("deploy.toml");
    std::fs::write(&path, b"app = \"a\"\nx = \"\xff\"\n").expect("written");
    let problems = load(&path, None).expect_err("no text");
    let (line, column) = problems.iter().next().expect("one").place.position();
    assert_eq!((line, column), (2, 6));
}
