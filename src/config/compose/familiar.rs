//! Whether every key of a compose file is one that the compose file reference has: any other is for Compose to judge, which
//! refuses the whole file for a slip such as `stop_grace_perod`.

use super::files::ComposeFiles;
use crate::config::yaml::Entry;

/// Of the file (compose file reference).
const TOP: [&str; 9] =
    ["name", "version", "services", "networks", "volumes", "configs", "secrets", "include", "models"];

/// Of a service (compose file reference, "services").
#[rustfmt::skip]
const SERVICE: &[&str] = &[
    "annotations", "attach", "build", "blkio_config", "cap_add", "cap_drop", "cgroup", "cgroup_parent", "command",
    "configs", "container_name", "cpu_count", "cpu_percent", "cpu_period", "cpu_quota", "cpu_rt_period",
    "cpu_rt_runtime", "cpu_shares", "cpus", "cpuset", "credential_spec", "depends_on", "deploy", "develop",
    "device_cgroup_rules", "devices", "dns", "dns_opt", "dns_search", "domainname", "entrypoint", "env_file",
    "environment", "expose", "extends", "external_links", "extra_hosts", "gpus", "group_add", "healthcheck", "hostname",
    "image", "init", "ipc", "isolation", "labels", "label_file", "links", "logging", "mac_address", "mem_limit",
    "mem_reservation", "mem_swappiness", "memswap_limit", "models", "network_mode", "networks", "oom_kill_disable",
    "oom_score_adj", "pid", "pids_limit", "platform", "ports", "post_start", "pre_stop", "privileged", "profiles",
    "provider", "pull_policy", "read_only", "restart", "runtime", "scale", "secrets", "security_opt", "shm_size",
    "stdin_open", "stop_grace_period", "stop_signal", "storage_opt", "sysctls", "tmpfs", "tty", "ulimits", "user",
    "userns_mode", "uts", "volumes", "volumes_from", "working_dir",
];

/// Of a health check.
const HEALTHCHECK: [&str; 7] = ["disable", "interval", "retries", "start_interval", "start_period", "test", "timeout"];

impl ComposeFiles {
    /// Whether no key in it is strange.
    #[must_use]
    pub fn is_familiar(&self) -> bool {
        self.docs.values().all(|doc| {
            let top = doc.root.as_ref().is_ok_and(|root| known(root.entries(), &TOP));
            top && doc.services.values().all(|service| {
                let healthcheck =
                    service.node.get("healthcheck").is_none_or(|check| known(check.entries(), &HEALTHCHECK));
                known(service.node.entries(), SERVICE) && healthcheck
            })
        })
    }
}

fn known(entries: &[Entry], keys: &[&str]) -> bool {
    // A merge key brings in what stands elsewhere in the file, where an `x-` key is free.
    let fine = |key: &str| key.starts_with("x-") || key == "<<" || keys.contains(&key);
    entries.iter().all(|entry| fine(&entry.key))
}
