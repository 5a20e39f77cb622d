//! The JSON schema and the reference page, both written from the key table.
//!
//! It may know no key by name; what is said here about a key is said in its row.

use super::keys::{self, ANY, Key, Kind, Need};
use super::overlay::RULES;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

const DURATION: &str = r"^\s*([0-9]+(\.[0-9]+)?\s*[a-zA-Z]+\s*)+$";

/// The JSON schema of deploy.toml, for editors.
#[must_use]
pub fn schema() -> Value {
    let mut root = table_schema("");
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".to_owned(), json!("deploy.toml"));
    Value::Object(root)
}

fn table_schema(table: &str) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in keys::of_table(table) {
        if matches!(key.need, Need::Required) {
            required.push(json!(key.name));
        }
        properties.insert(key.name.to_owned(), Value::Object(key_schema(key)));
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), Value::Array(required));
    }
    schema
}

fn key_schema(key: &Key) -> Map<String, Value> {
    let mut schema = match kind_schema(key.kind) {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.insert("description".to_owned(), json!(key.doc));
    if let Need::Default(text) = key.need
        && let Some(value) = as_json(text)
    {
        schema.insert("default".to_owned(), value);
    }
    schema
}

fn kind_schema(kind: Kind) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Integer { min, max: ANY, .. } => json!({ "type": "integer", "minimum": min }),
        Kind::Integer { min, max, .. } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Rate { .. } => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Kind::Duration { .. } => text(DURATION),
        Kind::Text(form) => text(form.pattern()),
        Kind::Word { now, .. } => json!({ "enum": now }),
        Kind::List { form, empty } => {
            json!({ "type": "array", "items": text(form.pattern()), "minItems": u8::from(!empty) })
        }
        Kind::TextOrList(form) => {
            json!({ "anyOf": [text(form.pattern()), { "type": "array", "items": text(form.pattern()) }] })
        }
        Kind::Batch => json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, text("^[0-9]+%$")] }),
        Kind::Targets => {
            let one = text(keys::Form::Target.pattern());
            let some = json!([one, { "type": "array", "items": one, "minItems": 1 }]);
            json!({ "anyOf": [some[0], some[1], { "type": "object", "additionalProperties": { "anyOf": some } }] })
        }
        Kind::Fields => json!({ "type": "object" }),
        Kind::Table(path) => Value::Object(table_schema(path)),
        Kind::Tables(path) => json!({ "type": "array", "items": table_schema(path) }),
    }
}

/// A default of the table, which is TOML, as JSON.
fn as_json(text: &str) -> Option<Value> {
    let table: toml::Table = toml::from_str(&format!("value = {text}")).ok()?;
    serde_json::to_value(table.get("value")?).ok()
}

/// The reference page of deploy.toml, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# deploy.toml: reference\n\n\
         <!-- Written from the table that the parser walks (src/config/keys); do not edit. -->\n\n\
         The one file a user writes. Unknown keys, wrong types and numbers out of range are errors, all of them told at once, each\n\
         with file, line and column. A duration is a text with a unit: `\"500ms\"`, `\"15s\"`, `\"2m30s\"`, at most a day.\n\
         The commented example is the `deploy.toml` in the root of the repository.\n\n",
    );
    section(&mut page, "", "The file itself", "");
    sections(&mut page, "");
    // Writing into a String cannot fail.
    let _ = write!(page, "## Destinations\n\n{RULES}");
    page
}

/// The reference page of the tenants' files, as Markdown.
#[must_use]
pub fn tenants_page() -> String {
    let mut page = String::from(
        "# Tenants: reference\n\n\
         <!-- Written from the table that the parser walks (src/config/keys/tenant_rows.rs); do not edit. -->\n\n\
         A folder with `defaults.toml`, which all tenants share, and one file a tenant, called by the tenant's name. `handover sleep check` and\n\
         `handover sleep render` read it (`--tenants DIR`, else `tenants`); [kubernetes.md](kubernetes.md) says how it is used. Unknown keys, wrong\n\
         types and numbers out of range are errors, all of them told at once. The tables below are called `[clients]`, `[edge]` and so on in\n\
         `defaults.toml`; a tenant's own keys stand in its file without a table.\n\n",
    );
    section(&mut page, "tenants", "`defaults.toml`", "");
    sections(&mut page, "tenants");
    section(&mut page, "tenant", "A tenant's file", "");
    sections(&mut page, "tenant");
    page.truncate(page.trim_end().len() + 1);
    page
}

/// Every table below `table`, each followed by its own.
fn sections(page: &mut String, table: &str) {
    for key in keys::of_table(table) {
        match key.kind {
            Kind::Table(path) => {
                section(page, path, &format!("`[{path}]`"), key.doc);
                sections(page, path);
            }
            Kind::Tables(path) => {
                section(page, path, &format!("`[[{path}]]`"), key.doc);
                sections(page, path);
            }
            _ => {}
        }
    }
}

fn section(page: &mut String, table: &str, title: &str, doc: &str) {
    let _ = write!(page, "## {title}\n\n");
    if !doc.is_empty() {
        let _ = write!(page, "{doc}\n\n");
    }
    page.push_str("| key | value | left out | what for |\n| --- | --- | --- | --- |\n");
    for key in keys::of_table(table) {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", key.name, value_text(key), need_text(key.need), key.doc);
    }
    page.push('\n');
}

fn value_text(key: &Key) -> String {
    match key.kind {
        Kind::Table(path) => format!("a table, see `[{path}]`"),
        Kind::Tables(path) => format!("tables, see `[[{path}]]`"),
        kind => format!("{}; `{}`", kind.noun(), key.example),
    }
}

fn need_text(need: Need) -> String {
    match need {
        Need::Required => "**required**".to_owned(),
        Need::Default(text) => format!("`{text}`"),
        Need::Computed(text) => text.to_owned(),
        Need::Optional => "none".to_owned(),
    }
}
