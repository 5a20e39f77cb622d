//! Hazards of what a service is made of: its image, its environment, its name, what it shares, keys without effect.

use super::Cx;
use crate::config::compose::files::{Found, Service};
use crate::config::yaml::Value;
use crate::fleet::model::Known;
use std::path::Path;

pub(super) fn look(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    image(cx, name, service);
    environment(cx, name, service);
    env_files(cx, name, service);
    first_compose(cx, name, service);
    shared(cx, name, service);
    deploy(cx, name, service);
    if let Found::Here(layer, entry) = service.find(&["container_name"]) {
        let text = format!(
            "{name}: `container_name` is one name on the whole machine: a leftover of it, or another project's, stops the start"
        );
        cx.say("container-name", layer.place(&entry.key_span), text);
    }
}

fn image(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    let build = match service.find(&["build"]) {
        Found::Here(layer, entry) => Some(layer.place(&entry.key_span)),
        _ => None,
    };
    match (service.find(&["image"]), build) {
        (Found::Here(..), Some(place)) => {
            cx.say("build-ignored", place, format!("{name}: `build` is ignored, its pushed image is used"));
        }
        (Found::Nothing, Some(place)) => {
            cx.say(
                "image-missing",
                place,
                format!("{name}: is built on the spot and has no `image`; nothing is built on servers"),
            );
        }
        (Found::Nothing, None) if service.unknown.is_none() => {
            cx.say_of("image-missing", service, format!("{name}: has neither `image` nor `build`: Compose refuses it"));
        }
        _ => {}
    }
    let Some((image, place)) = cx.text(service, &["image"]) else { return };
    let last = image.text.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    if !image.text.contains('@') && tag.is_none_or(|tag| tag == "latest" || tag.is_empty()) {
        let text = format!("{name}: `{}` is whatever was pushed last when a release is made", image.text);
        cx.say("image-floating", place, text);
    }
}

fn environment(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    for (layer, entry) in service.all("environment") {
        let mut bare = Vec::new();
        for item in entry.node.items() {
            if let Some(text) = item.text().filter(|text| !text.contains('=') && !text.contains('$')) {
                bare.push((text.to_owned(), layer.place(&item.span)));
            }
        }
        for inner in entry.node.entries().iter().filter(|inner| inner.node.is_null() && !inner.node.tagged) {
            bare.push((inner.key.clone(), layer.place(&inner.key_span)));
        }
        for (variable, place) in bare {
            let text =
                format!("{name}: `{variable}` has no value here and would be taken from whoever starts the container");
            cx.say("environment-without-value", place, text);
        }
    }
}

fn env_files(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    for (layer, entry) in service.all("env_file") {
        // Elsewhere paths begin elsewhere; publishing looks at those.
        if cx.files.doc().is_none_or(|main| main.source != layer.doc.source) {
            continue;
        }
        let list = if entry.node.items().is_empty() { std::slice::from_ref(&entry.node) } else { entry.node.items() };
        for item in list {
            let required = item.get("required").and_then(|node| node.text()) != Some("false");
            let path = item.get("path").unwrap_or(item);
            let Some(text) = path.text().filter(|text| required && !text.starts_with('/') && !text.contains('$'))
            else {
                continue;
            };
            if !published(cx, text) {
                let text = format!("{name}: the env file `{text}` is not published");
                cx.say("env-file-not-published", layer.place(&path.span), text);
            }
        }
    }
}

fn published(cx: &Cx<'_>, path: &str) -> bool {
    let plain = path.trim_start_matches("./");
    let folder = Path::new(&cx.files.main).parent().unwrap_or_else(|| Path::new("")).join(plain);
    let release = &cx.fleet.release;
    let mut files = release.env.iter().chain(&release.files).map(|file| file.trim_start_matches("./"));
    files.any(|file| file == plain || Path::new(file) == folder)
}

fn first_compose(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    for (key, id, why) in [
        (
            "links",
            "links",
            "services of one network find each other by name without them; they only tie starts together",
        ),
        ("volumes_from", "volumes-from", "whoever mounts another's volumes must be made anew when that one is"),
    ] {
        if let Found::Here(layer, entry) = service.find(&[key]) {
            cx.say(id, layer.place(&entry.key_span), format!("{name}: `{key}` is from the first Compose: {why}"));
        }
    }
}

fn shared(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    for key in ["network_mode", "ipc", "pid"] {
        let Some((mode, place)) = cx.text(service, &[key]) else { continue };
        if let Some((_, other)) = mode.text.split_once(':').filter(|(kind, _)| ["service", "container"].contains(kind))
        {
            let text = format!(
                "{name}: lives in a namespace of `{other}`: it loses it whenever `{other}` is made anew or restarts"
            );
            cx.say("namespace-shared", place, text);
        }
    }
}

/// Keys under `deploy` that only Swarm reads (Compose's `pkg/compose/create.go`: of `deploy`, it reads resources, replicas and restart_policy).
const SWARM_ONLY: [&str; 5] = ["update_config", "rollback_config", "placement", "endpoint_mode", "labels"];

fn deploy(cx: &mut Cx<'_>, name: &str, service: &Service<'_>) {
    for key in SWARM_ONLY {
        if let Found::Here(layer, entry) = service.find(&["deploy", key]) {
            let decides = if key.ends_with("_config") { "; `[rolling]` of deploy.toml decides" } else { "" };
            let text = format!("{name}: `deploy.{key}` is for Swarm, plain Compose ignores it{decides}");
            cx.say("deploy-ignored", layer.place(&entry.key_span), text);
        }
    }
    let Some((replicas, place)) = cx.text(service, &["scale"]).or_else(|| cx.text(service, &["deploy", "replicas"]))
    else {
        return;
    };
    match replicas.text.parse::<u32>() {
        Ok(0) if cx.expected(name) => {
            cx.say("replicas-none", place, format!("{name}: no container of it runs, and deploy.toml verifies it"));
        }
        Ok(count) if count > 1 => {
            if matches!(service.find(&["container_name"]), Found::Here(..)) {
                cx.say(
                    "replicas-collide",
                    place,
                    format!("{name}: {count} containers cannot have one `container_name`"),
                );
            } else if let Some(port) = super::network::fixed_port(cx, service) {
                cx.say("replicas-collide", place, format!("{name}: {count} containers cannot all publish port {port}"));
            }
        }
        _ => {}
    }
}

/// Whether a health check is written down, is switched off, or stands in the image at most.
pub(super) fn health(cx: &Cx<'_>, service: &Service<'_>) -> Known<bool> {
    let disabled =
        cx.text(service, &["healthcheck", "disable"]).is_some_and(|(text, _)| text.text.eq_ignore_ascii_case("true"));
    match service.find(&["healthcheck", "test"]) {
        _ if disabled => Known::Known(false),
        Found::Here(_, entry) => match &entry.node.value {
            Value::List(items) if items.first().and_then(|item| item.text()) == Some("NONE") => Known::Known(false),
            _ => Known::Known(true),
        },
        _ => Known::Unknown("its image may have one".to_owned()),
    }
}
