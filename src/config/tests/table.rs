//! The key table against everything that is made from it.

use super::super::keys::{self, Key, Kind, Need};
use super::super::{parse, reference, schema, tree};
use super::{EXAMPLE, SHORT, fleet};
use crate::config::Source;
use serde_json::Value;

/// Where a table's keys stand in the schema.
fn properties<'a>(schema: &'a Value, table: &str) -> &'a Value {
    let mut at = &schema["properties"];
    for name in table.split('.').filter(|name| !name.is_empty()) {
        let key = &at[name];
        at = if key["type"] == "array" { &key["items"]["properties"] } else { &key["properties"] };
    }
    at
}

#[test]
fn every_key_is_in_the_schema_with_its_sentence() {
    let schema = schema();
    for key in keys::all() {
        assert_eq!(properties(&schema, key.table)[key.name]["description"], key.doc, "{}", key.path());
    }
}

#[test]
fn every_key_is_on_the_reference_page_under_its_table() {
    let page = reference();
    for key in keys::all() {
        let title = match key.table {
            "" => "## The file itself".to_owned(),
            table => format!("## [{table}]"),
        };
        let section = page.split("\n## ").find(|section| {
            format!("## {section}").replace(['`'], "").replace("[[", "[").replace("]]", "]").starts_with(&title)
        });
        let row = format!("| `{}` |", key.name);
        assert!(section.is_some_and(|section| section.contains(&row)), "{} under {title}", key.path());
    }
}

#[test]
fn no_key_stands_twice_in_the_table() {
    let mut paths: Vec<String> = keys::all().map(Key::path).collect();
    paths.sort();
    let count = paths.len();
    paths.dedup();
    assert_eq!(paths.len(), count);
}

#[test]
fn every_example_in_the_table_is_taken_by_the_parser() {
    for key in keys::all().filter(|key| !matches!(key.kind, Kind::Table(_) | Kind::Tables(_))) {
        let source = Source::new("example", format!("{} = {}", key.name, key.example));
        let (table, mut problems) = tree::parse(&source);
        parse::check(key.table, table, parse::Missing::Told, &mut problems);
        problems.retain(|problem| !problem.text.ends_with("is missing"));
        assert_eq!(problems, [], "{}", key.path());
    }
}

/// The file with one more value in it.
fn with(text: &str, key: &Key, value: &str) -> String {
    let mut file: toml::Table = toml::from_str(text).expect("a file");
    let value: toml::Table = toml::from_str(&format!("value = {value}")).expect("a value");
    let mut at = &mut file;
    for name in key.table.split('.').filter(|name| !name.is_empty()) {
        let next = at.entry(name).or_insert_with(|| toml::Table::new().into());
        at = match next {
            toml::Value::Array(items) => items[0].as_table_mut().expect("a table"),
            next => next.as_table_mut().expect("a table"),
        };
    }
    at.insert(key.name.to_owned(), value["value"].clone());
    toml::to_string(&file).expect("TOML")
}

/// Every table of a gateway, each as short as it may be.
const GATEWAY: &str = "\
[gateway]
listen_tls = \"0.0.0.0:8443\"
[[gateway.certificate]]
cert = \"/c\"
key = \"/k\"
[gateway.external_metrics]
listen = \"0.0.0.0:6443\"
cert = \"/c\"
key = \"/k\"
client_ca = \"/a\"
[[gateway.host]]
name = \"a\"
backend = \"http://b\"
[gateway.host.sleep]
services = [\"w\"]
after = \"30m\"
[[gateway.host.class]]
path = \"/p\"
hold = \"1s\"
[[gateway.health]]
path = \"/health\"
[[gateway.probe]]
path = \"/p\"
";

/// Every hook, as short as it may be.
const HOOKS: &str = "\
[hooks]
pre_connect = { run = [\"a\"] }
pre_deploy = { run = [\"a\"] }
pre_drain = { run = [\"a\"] }
post_server = { run = [\"a\"] }
post_deploy = { run = [\"a\"] }
on_failure = { run = [\"a\"] }
[[run_once]]
name = \"m\"
service = \"w\"
run = [\"a\"]
";

#[test]
fn leaving_a_key_out_is_the_same_as_writing_its_default() {
    let measured = format!("{SHORT}[measure]\nurl = \"http://a\"\n");
    let bare =
        EXAMPLE.replace("deregistration_delay = \"30s\"", "").replace(", json = { version = \"{release}\" }", "");
    let called = "by = \"http\"\nhttp = { drain = \"http://localhost/d\", undrain = \"http://localhost/u\" }";
    let called = EXAMPLE.replace("by     = \"file\"", called).replace("file   = \"/run", "# \"/run");
    let fronted = format!("{measured}{GATEWAY}");
    let hooked = format!("{measured}{HOOKS}");
    let mut defaults = 0;
    for key in keys::all() {
        let Need::Default(value) = key.need else { continue };
        let text = match key.table {
            "balancer.group" | "service.verify" => &bare,
            "drain.http" => &called,
            table if table.starts_with("gateway") => &fronted,
            table if table.starts_with("hooks") || table == "run_once" => &hooked,
            _ => &measured,
        };
        assert_eq!(fleet(&with(text, key, value)), fleet(text), "{}", key.path());
        defaults += 1;
    }
    assert!(defaults > 20, "{defaults}");
}

#[test]
fn defaults_that_depend_on_others_follow_them() {
    let short = fleet(SHORT);
    assert_eq!((short.release.dir.as_str(), short.lock.path.as_str()), ("/opt/a", "/opt/a/lock"));
    let moved = fleet(&format!("{SHORT}[release]\ndir = \"/srv/x/\"\n"));
    assert_eq!((moved.release.dir.as_str(), moved.lock.path.as_str()), ("/srv/x", "/srv/x/lock"));
    assert_eq!(short.drain.by.word(), "deregister");
    assert_eq!(fleet(EXAMPLE).balancer.groups[0].local_health_url(), "http://127.0.0.1:8080/health");
}

#[test]
fn the_generated_files_are_fresh() {
    assert_eq!(
        include_str!("../../../docs/reference.md"),
        reference(),
        "run the ignored test `writes_the_generated_files`"
    );
    let stored: Value = serde_json::from_str(include_str!("../../../docs/deploy.schema.json")).expect("JSON");
    assert_eq!(stored, schema(), "run the ignored test `writes_the_generated_files`");
}

#[test]
#[ignore = "writes into docs/; run it after the key table changed"]
fn writes_the_generated_files() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let schema = serde_json::to_string_pretty(&schema()).expect("JSON");
    std::fs::write(root.join("deploy.schema.json"), schema + "\n").expect("written");
    std::fs::write(root.join("reference.md"), reference()).expect("written");
}
