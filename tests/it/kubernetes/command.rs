//! `handover sleep check` and `render` from the command line.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const DEFAULTS: &str = include_str!("../../../tenants/defaults.toml");
const EXAMPLE: &str = include_str!("../../../tenants/example.toml");

/// A folder with tenants.
fn folder(defaults: &str, tenants: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(dir.path().join("tenants")).expect("made");
    std::fs::write(dir.path().join("tenants/defaults.toml"), defaults).expect("written");
    for (name, text) in tenants {
        std::fs::write(dir.path().join(format!("tenants/{name}.toml")), text).expect("written");
    }
    dir
}

fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_handover")).arg("sleep").args(args).current_dir(dir).output().expect("it runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

fn relation<'a>(result: &'a Value, id: &str) -> &'a Value {
    let all = result["invariants"].as_array().expect("a list");
    all.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn the_example_passes_with_the_figures_that_were_worked_out_by_hand() {
    let dir = folder(DEFAULTS, &[("example", EXAMPLE)]);
    let output = run(dir.path(), &["check", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let result = json(&output);
    let sides = |id: &str| {
        let one = relation(&result, id);
        (one["left_seconds"].as_f64(), one["right_seconds"].as_f64(), one["holds"].as_bool())
    };
    assert_eq!(sides("tenant-wake-within-hold"), (Some(41.0), Some(44.0), Some(true)));
    assert_eq!(sides("tenant-hold-within-patience"), (Some(60.0), Some(60.0), Some(true)));
    assert_eq!(result["tenants"][0]["longest_seconds"], 41.0);
    let longest = |mode: &str| {
        json(&run(dir.path(), &["check", "--output", "json", "--mode", mode]))["tenants"][0]["longest_seconds"].as_f64()
    };
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kubernetes.md")).expect("read");
    for (mode, seconds) in [("k1", 41.0), ("k2", 29.1), ("k2+", 14.1), ("k3", 14.1)] {
        assert_eq!(longest(mode), Some(seconds), "{mode}");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{mode}` |"))).expect("a row");
        assert!(row.ends_with(&format!("| {seconds}s |")), "{row}");
    }
}

#[test]
fn what_does_not_hold_says_what_it_costs_and_where_it_stands() {
    let dir = folder(DEFAULTS, &[("example", &EXAMPLE.replace("hold      = \"55s\"", "hold      = \"90s\""))]);
    let output = run(dir.path(), &["check", "--output", "json"]);
    assert_eq!(output.status.code(), Some(4));
    let result = json(&output);
    let broken = relation(&result, "tenant-hold-within-patience");
    assert_eq!(broken["cost"], "the last 30 s of the hold serve nobody: your balancer cuts at 60 s");
    assert_eq!(result["broken"], 2, "the other is the note about reloads");
    let shown = text(&run(dir.path(), &["check", "--format", "github"]));
    let line = "::error file=tenants/example.toml,line=7,col=13,title=tenant-hold-within-patience::";
    assert!(shown.contains(line), "{shown}");
    let log: Value = serde_json::from_slice(&run(dir.path(), &["check", "--format", "sarif"]).stdout).expect("SARIF");
    assert!(log["runs"][0]["results"].as_array().is_some_and(|all| all.len() == 2));
    let table = text(&run(dir.path(), &["check"]));
    assert!(table.contains("costs: the last 30 s of the hold serve nobody"), "{table}");
}

#[test]
fn versions_that_lose_requests_or_never_wake_are_refused_where_the_mode_uses_them() {
    let old = DEFAULTS.replace("2.11.7", "2.11.1").replace("\"1.37\"", "\"1.35\"");
    let dir = folder(&old, &[("example", EXAMPLE)]);
    let faults = |mode: &str| {
        let result = json(&run(dir.path(), &["check", "--output", "json", "--mode", mode]));
        let all = result["faults"].as_array().expect("a list").clone();
        all.iter().map(|fault| fault["rule"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(faults("k1"), ["caddy-version", "cluster-version"]);
    assert_eq!(faults("k2"), ["cluster-version"]);
    assert_eq!(faults("k3"), Vec::<String>::new());
}

fn rendered(dir: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for folder in std::fs::read_dir(dir.join("out")).expect("rendered") {
        let folder = folder.expect("an entry").path();
        for file in std::fs::read_dir(&folder).expect("a folder") {
            let path = file.expect("an entry").path();
            let name = path.strip_prefix(dir.join("out")).expect("inside").display().to_string();
            files.insert(name, std::fs::read_to_string(&path).expect("text"));
        }
    }
    files
}

#[test]
fn what_is_rendered_is_the_same_each_time_and_sets_no_replicas() {
    let other = EXAMPLE.replace("cms.example", "shop.example").replace("tenant-example", "tenant-shop");
    let dir = folder(DEFAULTS, &[("example", EXAMPLE), ("shop", &other)]);
    let output = run(dir.path(), &["render", "--mode", "k1", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let first = rendered(dir.path());
    assert_eq!(
        first.keys().collect::<Vec<_>>(),
        [
            "adapter/config.yaml",
            "caddy/Caddyfile",
            "example/hpa.yaml",
            "prometheus/alerts.rules.yaml",
            "prometheus/scrape.yaml",
            "prometheus/wake.rules.yaml",
            "shop/hpa.yaml"
        ]
    );
    assert!(run(dir.path(), &["render", "--mode", "k1", "--out", "out"]).status.success());
    assert_eq!(rendered(dir.path()), first);
    let sets = |line: &str| line.trim().starts_with("replicas:");
    assert!(!first.values().any(|text| text.lines().any(sets)), "somebody's replicas would be reset");
    let hpa = &first["example/hpa.yaml"];
    assert!(hpa.contains("matchLabels:\n              wake_host: cms.example.org"), "{hpa}");
    // Of one tenant alone the own manifest only, and what all share is still whole.
    std::fs::remove_dir_all(dir.path().join("out")).expect("removed");
    assert!(run(dir.path(), &["render", "--out", "out", "shop"]).status.success());
    let one = rendered(dir.path());
    assert!(!one.contains_key("example/hpa.yaml"));
    assert_eq!(one["caddy/Caddyfile"], first["caddy/Caddyfile"]);
    let none = run(dir.path(), &["render", "--out", "out", "nobody"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none).contains("no tenant `nobody`") && text(&none).contains("there are example, shop"));
}

#[test]
fn with_the_gateway_as_the_metric_its_objects_are_rendered_and_its_configuration_is_one() {
    let image = DEFAULTS.replace("[cluster]", "[gateway]\nimage = \"registry.example.org/handover:1\"\n\n[cluster]");
    let dir = folder(&image, &[("example", EXAMPLE)]);
    let output = run(dir.path(), &["render", "--mode", "k2", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let files = rendered(dir.path());
    assert!(!files.contains_key("caddy/Caddyfile") && !files.contains_key("adapter/config.yaml"));
    let manifests = &files["gateway/manifests.yaml"];
    assert!(!manifests.contains("replicas:"), "somebody's replicas would be reset");
    assert!(
        files["prometheus/alerts.rules.yaml"]
            .contains("handover_gateway_held{job=\"handover-edge\",host=\"cms.example.org\"}")
    );
    let inside =
        manifests.split("gateway.toml: |-\n").nth(1).and_then(|rest| rest.split("---").next()).expect("a file");
    let inside: String = inside.lines().map(|line| format!("{}\n", line.trim_start())).collect();
    // Its certificates are not here, which is the only thing that is wrong with it.
    std::fs::write(dir.path().join("gateway.toml"), inside).expect("written");
    let checked = Command::new(env!("CARGO_BIN_EXE_handover"))
        .args(["gateway", "--check", "-c", "gateway.toml"])
        .current_dir(dir.path())
        .output()
        .expect("it runs");
    let said = text(&checked);
    assert!(said.contains("gateway.external_metrics: /etc/handover/front-proxy/ca.crt: No such file"), "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn what_a_mode_cannot_do_is_said_with_the_way_out() {
    let image = DEFAULTS.replace("[cluster]", "[gateway]\nimage = \"i\"\n\n[cluster]");
    for (defaults, tenant, mode, expected) in [
        (DEFAULTS, EXAMPLE.to_owned(), "k2", "`gateway.image` is missing in defaults.toml"),
        (&image, format!("{EXAMPLE}tls = true\n"), "k2", "the backend of tenant `example` speaks TLS"),
        (DEFAULTS, EXAMPLE.to_owned(), "k3", "mode k3 cannot be rendered"),
    ] {
        let dir = folder(defaults, &[("example", &tenant)]);
        let output = run(dir.path(), &["render", "--mode", mode, "--out", "out"]);
        let shown = text(&output);
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(shown.contains(expected) && shown.contains("hint: "), "{shown}");
        assert!(!dir.path().join("out").exists(), "nothing was written");
    }
}

#[test]
fn taking_sleep_back_leaves_the_hpa_with_one_pod_at_least() {
    let dir = folder(DEFAULTS, &[("example", &EXAMPLE.replace("sleep     = true", "sleep     = false"))]);
    assert!(run(dir.path(), &["render", "--out", "out"]).status.success());
    let files = rendered(dir.path());
    assert!(files["example/hpa.yaml"].contains("minReplicas: 1\n"));
    assert!(!files["prometheus/wake.rules.yaml"].contains("handover_may_sleep\n"), "it may not be without a pod");
    assert!(files["caddy/Caddyfile"].contains("cms.example.org"), "it is served as before");
}

#[test]
fn a_render_warns_of_what_check_refuses_and_of_what_is_left_of_a_tenant_that_is_gone() {
    let dir =
        folder(DEFAULTS, &[("example", EXAMPLE), ("old", &EXAMPLE.replace("cms", "old").replace("app-", "old-"))]);
    assert!(run(dir.path(), &["render", "--out", "out"]).status.success());
    std::fs::remove_file(dir.path().join("tenants/old.toml")).expect("removed");
    std::fs::write(dir.path().join("out/example/mine.yaml"), "kind: Mine\n").expect("written");
    std::fs::write(dir.path().join("tenants/example.toml"), EXAMPLE.replace("\"55s\"", "\"90s\"")).expect("written");
    let output = run(dir.path(), &["render", "--out", "out"]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("out/old/hpa.yaml is of no tenant any more"), "{shown}");
    assert!(!shown.contains("mine.yaml"), "{shown}");
    assert!(
        shown.contains("warning: tenant-hold-within-patience(example)") && shown.contains("serve nobody"),
        "{shown}"
    );
}

#[test]
fn the_page_names_every_fault() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/kubernetes.md")).expect("read");
    let mut names = std::collections::BTreeSet::new();
    let mut folders = vec![root.join("src/kubernetes")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("text");
            let text = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            let id = |word: &str| {
                let known =
                    ["caddy-", "cluster-", "hpa-", "spec-", "prometheus-", "signal-", "adapter-", "no-inactive"];
                let plain = word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                (plain && known.iter().any(|start| word.starts_with(start))).then(|| word.to_owned())
            };
            names.extend(text.split('"').filter_map(id));
        }
    }
    assert!(names.len() >= 22, "{names:?}");
    let missing: Vec<&String> = names.iter().filter(|name| !page.contains(&format!("| `{name}` |"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_page_names_every_alarm_that_is_rendered() {
    let dir = folder(DEFAULTS, &[("example", EXAMPLE)]);
    assert!(run(dir.path(), &["render", "--out", "out"]).status.success());
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kubernetes.md")).expect("read");
    let files = rendered(dir.path());
    let names: Vec<&str> = files["prometheus/alerts.rules.yaml"]
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert_eq!(names.len(), 7);
    assert!(names.iter().all(|name| page.contains(&format!("| `{name}` |"))));
    assert!(files.keys().all(|name| page.contains(&format!("| `{}` |", name.replace("example/", "TENANT/")))));
}
