//! Lays `deploy.staging.toml` over `deploy.toml`. It may know which lists have names, and what replaces what; nothing else.
//!
//! The rules are those of the reference page (`RULES`). Every value keeps the place in the file that it came from.

use super::tree::{Entry, Node, Table, Value};

/// The rules, as the reference page tells them.
pub(super) const RULES: &str = "\
`-d staging` lays `deploy.staging.toml`, beside the base file, over it; its keys are the same, all of them optional there.

* Tables are merged key by key; a value or a plain list in the overlay replaces the one in the base.
* `[[service]]`: an entry with the name of one in the base is merged into it, any other is added at the end; the base's other services stay.
* `[[server]]` and `[[balancer.group]]`: the overlay's list is the list, so that a deploy to staging can never reach a server or group that only
  the base names. An entry with the name of one in the base takes over what it does not say itself.
* `drain.by` in the overlay drops the base's `file`, `http`, `exec`, `signal` and `nodes`; a `verify` that names another way replaces the base's whole;
  `target` is always replaced whole.
* A problem points to the file that the value came from.
";

const DRAIN_WAYS: [&str; 5] = ["file", "http", "exec", "signal", "nodes"];
const VERIFY_WAYS: [&str; 4] = ["http", "tcp", "exec", "heartbeat"];

/// What the overlay's list means for entries that only the base has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Stay,
    Go,
}

/// The base with the overlay over it.
pub(super) fn lay(base: Table, over: Table) -> Table {
    merge("", base, over)
}

fn merge(at: &str, mut base: Table, over: Table) -> Table {
    if at == "drain" && over.entry("by").is_some() {
        base.entries.retain(|entry| !DRAIN_WAYS.contains(&entry.key.as_str()));
    }
    for entry in over.entries {
        let Some(index) = base.entries.iter().position(|old| old.key == entry.key) else {
            base.entries.push(entry);
            continue;
        };
        let old = base.entries.remove(index);
        base.entries.insert(index, merged(at, old, entry));
    }
    base
}

fn merged(at: &str, old: Entry, new: Entry) -> Entry {
    let path = if at.is_empty() { new.key.clone() } else { format!("{at}.{}", new.key) };
    match (path.as_str(), old.node.value, new.node.value) {
        ("server.target", _, value) => Entry { node: Node { value, ..new.node }, ..new },
        ("service.verify", Value::Table(a), Value::Table(b)) if way(&b).is_some() && way(&a) != way(&b) => {
            Entry { node: Node { value: Value::Table(b), ..new.node }, ..new }
        }
        // Where it stands is where the base has it: what is missing in a table is missing there.
        (_, Value::Table(a), Value::Table(b)) => {
            let node = Node { place: old.node.place, value: Value::Table(merge(&path, a, b)) };
            Entry { key: old.key, key_place: old.key_place, node }
        }
        ("service", Value::List(a), Value::List(b)) => {
            listed(old.key, new.key_place, new.node.place, &path, a, b, Others::Stay)
        }
        ("server" | "balancer.group", Value::List(a), Value::List(b)) => {
            listed(old.key, new.key_place, new.node.place, &path, a, b, Others::Go)
        }
        (_, _, value) => Entry { node: Node { value, ..new.node }, ..new },
    }
}

fn way(verify: &Table) -> Option<&str> {
    verify.entries.iter().map(|entry| entry.key.as_str()).find(|key| VERIFY_WAYS.contains(key))
}

fn listed(
    key: String,
    key_place: super::Place,
    place: super::Place,
    path: &str,
    base: Vec<Node>,
    over: Vec<Node>,
    others: Others,
) -> Entry {
    let mut list = if others == Others::Stay { base.clone() } else { Vec::new() };
    for node in over {
        let same = |old: &&Node| name(&node).is_some() && name(old) == name(&node);
        // Two entries of one name in the overlay itself stay two, so that the check of names sees them.
        let Some(old) = base.iter().find(same) else {
            list.push(node);
            continue;
        };
        let joined = joined(path, old.clone(), node);
        match list.iter().position(|there| name(there) == name(&joined) && there.place == old.place) {
            Some(index) if others == Others::Stay => list[index] = joined,
            _ => list.push(joined),
        }
    }
    Entry { key, key_place, node: Node { place, value: Value::List(list) } }
}

fn joined(path: &str, old: Node, new: Node) -> Node {
    match (old.value, new.value) {
        (Value::Table(a), Value::Table(b)) => {
            let place = b.place.clone();
            let mut table = merge(path, a, b);
            table.place = place;
            Node { place: new.place, value: Value::Table(table) }
        }
        (_, value) => Node { place: new.place, value },
    }
}

fn name(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Table(table) => table.text("name"),
        _ => None,
    }
}
