//! The systemd units of bootstrap and watchdog, as text, and what stands in for them where there is no systemd.

use std::path::Path;

/// Where an administrator's units lie (systemd.unit(5)).
pub const FOLDER: &str = "/etc/systemd/system";

/// A unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The names of an app's units: before the engine, after it, and the watchdog.
#[must_use]
pub fn names(app: &str) -> [String; 3] {
    ["early", "bootstrap", "watchdog"].map(|part| format!("handover-{app}-{part}.service"))
}

/// The units of an app whose files lie in `dir`.
#[must_use]
pub fn units(app: &str, dir: &Path) -> [Unit; 3] {
    let [early, bootstrap, watchdog] = names(app);
    let binary = word(&dir.join("bin/handover").to_string_lossy());
    let folder = word(&dir.to_string_lossy());
    // Nothing but % is expanded there (systemd.unit(5)).
    let mounts = folder.replace("$$", "$");
    let app = app.replace('%', "%%");
    // A signal for the main process only: it finishes what it runs. Each of its commands has a limit of its own, in which the grace
    // periods of the release count that is there by then, so none is set here.
    let main_only = "KillMode=mixed\nTimeoutStopSec=infinity";
    // Without the requisite an engine that ended by itself, and is about to be started again, would have systemd start a bootstrap that
    // had failed before, at once: it would ask an engine that is not there, and the engine would wait for it to end.
    [
        Unit {
            name: early.clone(),
            text: format!(
                "# Written by `handover install`.\n[Unit]\nDescription=Keep {app} out of rotation until it is verified\n\
                 Before=docker.service\nPartOf=docker.service\nRequiresMountsFor={mounts}\n\n[Service]\nType=oneshot\n\
                 RemainAfterExit=yes\nExecStart={binary} bootstrap --early --dir {folder}\n\n[Install]\n\
                 WantedBy=docker.service\n"
            ),
        },
        Unit {
            name: bootstrap.clone(),
            text: format!(
                "# Written by `handover install`.\n[Unit]\nDescription=Bring {app} up, verify it and let it in\n\
                 After=docker.service {early}\nPartOf=docker.service\nRequisite=docker.service\n\
                 RequiresMountsFor={mounts}\n\n[Service]\n\
                 Type=oneshot\nRemainAfterExit=yes\n{main_only}\nExecStart={binary} bootstrap --dir {folder}\n\n\
                 [Install]\nWantedBy=docker.service\n"
            ),
        },
        Unit {
            name: watchdog,
            text: format!(
                "# Written by `handover install`.\n[Unit]\nDescription=Watch the services of {app} and heal what stays broken\n\
                 After=docker.service {bootstrap}\nRequiresMountsFor={mounts}\nStartLimitIntervalSec=0\n\n[Service]\n\
                 Type=simple\nRestart=always\nRestartSec=5s\n{main_only}\n\
                 ExecStart={binary} watchdog --dir {folder}\n\n[Install]\nWantedBy=multi-user.target\n"
            ),
        },
    ]
}

/// A word as systemd reads it: quoted, with nothing expanded (systemd.service(5), "Command lines").
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

/// What to run by hand where there is no systemd: lines for cron (crontab(5)).
#[must_use]
pub fn by_hand(dir: &Path) -> Vec<String> {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''").replace('%', "\\%"));
    let (binary, dir) = (quoted(&dir.join("bin/handover")), quoted(dir));
    vec![
        format!("@reboot {binary} bootstrap --early --dir {dir}; {binary} bootstrap --dir {dir}"),
        format!("* * * * * {binary} watchdog --once --dir {dir}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_would_expand_is_taken_as_it_stands() {
        assert_eq!(word("/opt/mythex"), "/opt/mythex");
        assert_eq!(word("/opt/my app/50%$x"), "\"/opt/my app/50%%$$x\"");
    }

    #[test]
    fn what_cron_and_the_shell_would_read_otherwise_is_quoted() {
        let lines = by_hand(Path::new("/opt/50% o'clock"));
        assert_eq!(
            lines[1],
            r"* * * * * '/opt/50\% o'\''clock/bin/handover' watchdog --once --dir '/opt/50\% o'\''clock'"
        );
    }

    #[test]
    fn the_flag_is_set_before_the_engine_and_everything_else_comes_after_it() {
        let [early, bootstrap, watchdog] = units("mythex", Path::new("/opt/mythex"));
        assert!(early.text.contains("Before=docker.service\n") && early.text.contains("--early"));
        assert!(bootstrap.text.contains("After=docker.service handover-mythex-early.service\n"));
        assert!(watchdog.text.contains("Restart=always\n"));
        for unit in [&bootstrap, &watchdog] {
            assert!(
                unit.text.contains("KillMode=mixed\nTimeoutStopSec=infinity\n"),
                "a heal is finished: {}",
                unit.text
            );
        }
        assert!(bootstrap.text.contains("\nRequisite=docker.service\n"), "{}", bootstrap.text);
        for unit in [&early, &bootstrap] {
            assert!(unit.text.contains("PartOf=docker.service\n"), "{}", unit.text);
            assert!(unit.text.contains("WantedBy=docker.service\n"), "{}", unit.text);
        }
        for unit in [early, bootstrap, watchdog] {
            assert!(unit.text.contains("\nExecStart=/opt/mythex/bin/handover "), "{}", unit.text);
        }
    }
}
