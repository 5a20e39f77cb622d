//! Documents say what is so: names, links and commands that stand in them exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_architecture_names_every_module_and_no_other() {
    let lib = read("src/lib.rs");
    let modules: BTreeSet<&str> =
        lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let page = read("docs/architecture.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let mut named = BTreeSet::new();
    for row in &rows {
        let cell = row.split('|').nth(1).unwrap_or_default();
        let mut parent = String::new();
        for name in cell.split('`').skip(1).step_by(2) {
            if name.contains("::") {
                parent = name.split("::").next().unwrap_or_default().to_owned();
            }
            let path = if name.contains("::") || modules.contains(name) {
                name.to_owned()
            } else {
                format!("{parent}::{name}")
            };
            let file = root().join("src").join(path.replace("::", "/"));
            assert!(
                file.is_dir() || file.with_extension("rs").is_file(),
                "{path} stands in docs/architecture.md and is not there"
            );
            named.insert(path.split("::").next().unwrap_or_default().to_owned());
        }
    }
    let missing: Vec<&&str> = modules.iter().filter(|module| !named.contains(**module)).collect();
    assert!(missing.is_empty(), "docs/architecture.md says nothing of {missing:?}");
}

#[test]
fn every_figure_in_the_documents_is_one() {
    assert!(!read("docs/performance.md").contains("PLACEHOLDER"));
}

/// The first block of a kind.
fn block<'a>(page: &'a str, kind: &str) -> &'a str {
    let start = page.split(&format!("```{kind}\n")).nth(1).expect("there is one");
    start.split("```").next().expect("it ends")
}

#[test]
fn the_example_of_sleep_is_a_gateway_and_its_numbers_fit() {
    let example = read("docs/sleep.md");
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("gateway.toml"), block(&example, "toml")).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(["gateway", "--check", "-c", "gateway.toml"])
        .current_dir(dir.path())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_alert_rules_name_only_series_that_there_are_and_the_page_names_each_rule() {
    let (rules, page, metrics) = (read("alerts/sleep.yml"), read("docs/sleep.md"), read("docs/gateway.md"));
    let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    for rest in rules.split("handover_gateway_").skip(1) {
        let name = rest.split(end).next().unwrap_or_default();
        assert!(metrics.contains(&format!("| `handover_gateway_{name}` |")), "handover_gateway_{name}");
    }
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(names, ["WakeStuck", "SleepStuck", "HeldWithoutWake"]);
    assert!(names.iter().all(|name| page.contains(&format!("| `{name}` |"))));
    assert!(rules.contains("for: 2m # handover check: wake-before-alarm"), "the relation names this very number");
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let mut dead = Vec::new();
    for name in [
        "README.md",
        "docs/architecture.md",
        "docs/drain.md",
        "docs/exit-codes.md",
        "docs/steps.md",
        "docs/story.md",
        "docs/performance.md",
        "docs/reference.md",
        "docs/measure.md",
        "docs/balancers.md",
        "docs/timing.md",
        "docs/reliability.md",
        "docs/provision.md",
        "docs/mutants.md",
        "docs/gateway.md",
        "docs/security.md",
        "docs/sleep.md",
        "docs/kubernetes.md",
        "docs/tenants.md",
        "docs/sleep-story.md",
        "docs/hooks.md",
        "docs/init.md",
        "docs/peers.md",
        "docs/report.md",
    ] {
        let folder = Path::new(name).parent().map(Path::to_owned).unwrap_or_default();
        for link in read(name).split("](").skip(1).filter_map(|rest| rest.split(')').next().map(ToOwned::to_owned)) {
            let target = link.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.starts_with("http") && !root().join(&folder).join(target).exists() {
                dead.push(format!("{name}: {link}"));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn the_readme_names_exactly_two_commands_for_a_newcomer() {
    let readme = read("README.md");
    let blocks: Vec<&str> = readme.split("```").skip(1).step_by(2).map(str::trim).collect();
    assert_eq!(blocks, ["cargo run --release -- rehearse", "bash tests/run"]);
    assert!(root().join("tests/run").exists());
}

#[test]
fn every_exit_code_stands_in_the_documentation_with_a_way_to_get_it() {
    let page = read("docs/exit-codes.md");
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "130, 143"] {
        let row = page.lines().find(|line| line.starts_with(&format!("| {code} |")));
        let way = row.and_then(|row| row.split('|').nth(3)).unwrap_or_default();
        assert!(!way.trim().is_empty(), "no way to get {code}");
    }
}

/// With them, and beside a server that holds, a server's steps are all that there are.
const SLEEPS: &str = r#"
[gateway]
listen = "127.0.0.1:8000"
metrics = "127.0.0.1:9180"

[[gateway.host]]
name = "cms.example.org"
backend = "http://127.0.0.1:9000"
sleep = { services = ["publish-worker"], after = "30m" }

[hooks]
pre_drain = { run = ["a"] }
post_server = { run = ["b"] }
"#;

#[test]
fn the_steps_in_the_documentation_are_those_of_a_plan_in_their_order() {
    let page = read("docs/steps.md");
    let words: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    let steps = [read("deploy.toml") + SLEEPS, read("examples/one-server/deploy.toml")].map(|text| {
        let fleet = crate::world::fleet(&text);
        let options = handover::fleet::plan::Options { offline: true, ..Default::default() };
        let snapshot = handover::fleet::plan::offline_snapshot(&fleet);
        let plan = handover::fleet::plan::plan(&fleet, &snapshot, None, &options).expect("the example is planned");
        plan.batches[0][0].steps.iter().map(|step| step.step).collect::<BTreeSet<_>>()
    });
    let steps: Vec<&str> = (&steps[0] | &steps[1]).iter().map(|step| step.word()).collect();
    assert_eq!(
        words.iter().filter(|word| **word != "step" && !word.starts_with("---")).copied().collect::<Vec<_>>(),
        steps
    );
}

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let page = read("docs/security.md");
    let all = every_test();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    for row in rows {
        let tests: Vec<&str> = row.split('|').nth(2).unwrap_or_default().split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "nothing shows that {row}");
        for test in tests {
            let there = all.contains(&format!("fn {test}(")) || all.contains(&format!("def {test}("));
            assert!(there, "{test} stands in docs/security.md and is not there");
        }
    }
}

/// The text of everything that may hold a test.
fn every_test() -> String {
    let mut all = String::new();
    let mut folders = vec![root().join("src"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "py") {
                all += &std::fs::read_to_string(path).expect("text");
            }
        }
    }
    all
}

/// "Probes and idleness" and "Wake and sleep control" of the collected reports; the numbers that are missing are about other things.
#[test]
fn every_report_about_idleness_and_wakes_has_a_test_that_is_there() {
    let page = read("docs/sleep.md");
    let all = every_test();
    let reports = page.split("## Reports").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the chapter");
    let mut numbers = Vec::new();
    for row in reports.lines().filter(|line| line.contains('`')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let number = cells[1].split(' ').next().and_then(|number| number.parse::<u32>().ok());
        numbers.push(number.unwrap_or_else(|| panic!("no number: {row}")));
        for test in cells[3].split(", ").map(|test| test.trim_matches('`')) {
            assert!(
                all.contains(&format!("fn {test}(")) || all.contains(&format!("def {test}(")),
                "{test} is not there"
            );
        }
    }
    assert_eq!(numbers, [37, 38, 39, 40, 41, 42, 43, 44, 46, 47, 48, 51, 52, 54, 55, 57, 58, 59]);
}

#[test]
fn whatever_is_said_to_be_so_beside_other_tools_has_a_test_that_is_there() {
    let page = read("docs/peers.md");
    let all = every_test();
    let mut numbers = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Ok(number) = cells[1].parse::<u32>() else { continue };
        numbers.push(number);
        let tests: Vec<&str> = cells[4].split('`').skip(1).step_by(2).collect();
        match cells[3] {
            "yes" | "partly" => {
                assert!(!tests.is_empty(), "nothing shows that {row}");
                for test in tests {
                    let there = all.contains(&format!("fn {test}(")) || all.contains(&format!("def {test}("));
                    assert!(there, "{test} stands in docs/peers.md and is not there");
                }
            }
            "no" => assert!(!cells[4].is_empty(), "what is there instead of {row}"),
            other => panic!("{other} in {row}"),
        }
    }
    assert_eq!(numbers, (1..=64).collect::<Vec<_>>());
}
