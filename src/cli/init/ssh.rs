//! The hosts that a person's own ~/.ssh/config names: plain names only, as far as that file says them itself.

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// What `ssh` calls it.
    pub(super) name: String,
    /// Where it is.
    pub(super) hostname: Option<String>,
}

/// Every host that is named without a pattern; what `Include` and `Match` bring is left to `ssh`.
pub(super) fn hosts(text: &str) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(|c: char| c.is_whitespace() || c == '=') else { continue };
        let value = value.trim_start_matches(|c: char| c.is_whitespace() || c == '=').trim_matches('"');
        match key.to_ascii_lowercase().as_str() {
            "host" => {
                open.clear();
                for name in value.split_whitespace().filter(|name| !name.contains(['*', '?', '!'])) {
                    open.push(hosts.len());
                    hosts.push(Host { name: name.trim_matches('"').to_owned(), hostname: None });
                }
            }
            "match" => open.clear(),
            // The first word counts, as `ssh` has it.
            "hostname" => {
                for at in &open {
                    let slot = &mut hosts[*at].hostname;
                    *slot = slot.take().or_else(|| Some(value.to_owned()));
                }
            }
            _ => {}
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_ssh_reads_them() {
        let text = "# mine\nHost web-1 web-one\n  HostName 10.0.0.1\n  User deploy\n  hostname 10.9.9.9\nhost=web-2\n\tHostname = \"10.0.0.2\"\n\
                    Host *.example !bad web-3\nMatch host x\n  HostName 1.2.3.4\nHost *\n  HostName nowhere\n";
        let all: Vec<(String, Option<String>)> = hosts(text).into_iter().map(|h| (h.name, h.hostname)).collect();
        let host = |name: &str, at: Option<&str>| (name.to_owned(), at.map(ToOwned::to_owned));
        assert_eq!(
            all,
            [
                host("web-1", Some("10.0.0.1")),
                host("web-one", Some("10.0.0.1")),
                host("web-2", Some("10.0.0.2")),
                host("web-3", None)
            ]
        );
    }
}
