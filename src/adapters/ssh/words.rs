//! What SSH and a server's shell say, turned into what a person can do something about. Pure.

use std::error::Error;

/// An error with everything that caused it, each said once.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !said.contains(words.trim()) {
            said = format!("{said}: {}", words.trim());
        }
        cause = inner.source();
    }
    said
}

/// SSH's own words, and what to do about them where that is known.
pub(super) fn unreachable(destination: &str, words: &str) -> String {
    let known = [
        (
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            "its host key is not the one that is known; if it was installed anew, forget the old key with `ssh-keygen -R`",
        ),
        (
            "Host key verification failed",
            "its host key is not known; look at it with `ssh` once, or set `ssh.host_keys = \"accept-new\"`",
        ),
        ("Permission denied", "no key of yours opens it; see `ssh-add -l` and its authorized_keys"),
        ("Could not resolve hostname", "its name is not known; see `server.ssh` in deploy.toml and ~/.ssh/config"),
        ("Connection refused", "nothing listens there"),
        ("timed out", "no answer; see its address, its firewall and your network"),
    ];
    // ssh frames its loudest warning with lines of `@`.
    let loud = |word: &&str| !word.chars().all(|letter| letter == '@');
    let words = words.split_whitespace().filter(loud).collect::<Vec<_>>().join(" ");
    match known.iter().find(|(word, _)| words.contains(word)) {
        Some((_, help)) => format!("`{destination}`: {words} ({help})"),
        None => format!("`{destination}`: {words}"),
    }
}

/// What our scripts print is told by its first word from what a login shell prints.
pub(super) const MARK: &str = "HANDOVER-SAYS ";

/// What a script of ours said under a name.
pub(super) fn said<'a>(output: &'a str, name: &str) -> Option<&'a str> {
    output.lines().find_map(|line| {
        let (_, said) = line.split_once(MARK)?;
        said.strip_prefix(name)?.strip_prefix(' ').map(str::trim)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_login_shell_prints_is_not_taken_for_an_answer() {
        let output = "Welcome to web-1\narch i386\nmotd: HANDOVER-SAYS arch x86_64\nHANDOVER-SAYS have no\n";
        assert_eq!(said(output, "arch"), Some("x86_64"));
        assert_eq!(said(output, "have"), Some("no"));
        assert_eq!(said(output, "other"), None);
    }

    #[test]
    fn an_unknown_and_a_changed_host_key_are_told_apart() {
        let unknown =
            unreachable("deploy@web-1", "No ED25519 host key is known for web-1.\r\nHost key verification failed.\r\n");
        assert!(unknown.contains("accept-new"), "{unknown}");
        let changed = unreachable(
            "web-1",
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @ ... Host key verification failed.",
        );
        assert!(changed.contains("ssh-keygen -R") && !changed.contains("accept-new"), "{changed}");
    }
}
