//! What /proc says of processes: whether one that a record names is still the same one, and what it is.

use serde::{Deserialize, Serialize};
use std::fs;

/// A process, told apart from a later one with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the boot.
    pub start: u64,
    /// In which boot.
    pub boot: String,
}

impl ProcessId {
    /// A process that runs now.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self { pid, start: stat(pid).map_or(0, |stat| stat.start), boot: boot_id() }
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.boot == boot_id() && stat(self.pid).is_some_and(|stat| stat.start == self.start && stat.state != 'Z')
    }

    /// Whether anything of the group that it leads, or led, still runs.
    #[must_use]
    pub fn group_is_alive(&self) -> bool {
        self.boot == boot_id()
            && pids().any(|pid| {
                stat(pid).is_some_and(|stat| stat.group == self.pid && stat.state != 'Z' && stat.start >= self.start)
            })
    }
}

struct Stat {
    state: char,
    group: u32,
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold parentheses and spaces.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

/// This boot's id.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Every process that is seen.
pub fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process's command line, where it may be read.
#[must_use]
pub fn command_line(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text.split('\0').filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" ").chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_not_taken_for_an_earlier_one_with_its_number() {
        let own = ProcessId::of(std::process::id());
        assert!(own.is_alive());
        assert!(!ProcessId { start: own.start + 1, ..own.clone() }.is_alive());
        assert!(!ProcessId { boot: "another".into(), ..own }.is_alive());
    }
}
