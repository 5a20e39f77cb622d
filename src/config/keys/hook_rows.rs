//! The rows of the key table that are about the team's own commands: those beside a deploy and those before its first server.
//!
//! It may know nothing but values; `keys` gives them their meaning.

use super::rows::{SOME_TIME, key};
use super::{Form, Key, Kind, Need};
use Need::{Default, Optional, Required};

const COMMAND: Kind = Kind::List { form: Form::Line, empty: false };
const LIMIT: Kind = SOME_TIME;

#[rustfmt::skip]
pub(super) const HOOK_ROWS: &[Key] = &[
    key("hooks", "pre_connect", Kind::Table("hooks.pre_connect"), Optional, "{ run = [\"scripts/vpn-up\"] }", "Before anything is connected to, and before the lock: a tunnel, a login. What fails refuses the run."),
    key("hooks", "pre_deploy", Kind::Table("hooks.pre_deploy"), Optional, "{ run = [\"scripts/wait-for-green\", \"main\"] }", "With the lock ours, the release in place on every server and the plan made, before anything is touched: approvals, checks of other systems. What fails refuses the deploy."),
    key("hooks", "pre_drain", Kind::Table("hooks.pre_drain"), Optional, "{ run = [\"scripts/silence-alerts\"] }", "Before a server leaves rotation, its lock in hand. What fails leaves that server as it is, and no other is begun."),
    key("hooks", "post_server", Kind::Table("hooks.post_server"), Optional, "{ run = [\"scripts/smoke-test\"] }", "After a server ended as planned. What fails is told, and undoes nothing."),
    key("hooks", "post_deploy", Kind::Table("hooks.post_deploy"), Optional, "{ run = [\"scripts/announce\", \"deployed\"] }", "After all ended as planned, the lock still ours. What fails is told, and undoes nothing."),
    key("hooks", "on_failure", Kind::Table("hooks.on_failure"), Optional, "{ run = [\"scripts/announce\", \"failed\"] }", "After a run that ended otherwise than planned. What fails is told."),

    key("hooks.pre_connect", "run", COMMAND, Required, "[\"scripts/vpn-up\"]", "Program and arguments, no shell; a path is relative to deploy.toml's folder, where it runs."),
    key("hooks.pre_connect", "limit", LIMIT, Default("\"5m\""), "\"10m\"", "Ended by force after so long, which is a failure."),

    key("hooks.pre_deploy", "run", COMMAND, Required, "[\"scripts/wait-for-green\", \"main\"]", "Program and arguments, no shell; a path is relative to deploy.toml's folder, where it runs."),
    key("hooks.pre_deploy", "limit", LIMIT, Default("\"5m\""), "\"10m\"", "Ended by force after so long, which is a failure."),

    key("hooks.pre_drain", "run", COMMAND, Required, "[\"scripts/silence-alerts\"]", "Program and arguments, no shell; a path is relative to deploy.toml's folder, where it runs."),
    key("hooks.pre_drain", "limit", LIMIT, Default("\"5m\""), "\"10m\"", "Ended by force after so long, which is a failure."),

    key("hooks.post_server", "run", COMMAND, Required, "[\"scripts/smoke-test\"]", "Program and arguments, no shell; a path is relative to deploy.toml's folder, where it runs."),
    key("hooks.post_server", "limit", LIMIT, Default("\"5m\""), "\"10m\"", "Ended by force after so long, which is a failure."),

    key("hooks.post_deploy", "run", COMMAND, Required, "[\"scripts/announce\", \"deployed\"]", "Program and arguments, no shell; a path is relative to deploy.toml's folder, where it runs."),
    key("hooks.post_deploy", "limit", LIMIT, Default("\"5m\""), "\"10m\"", "Ended by force after so long, which is a failure."),

    key("hooks.on_failure", "run", COMMAND, Required, "[\"scripts/announce\", \"failed\"]", "Program and arguments, no shell; a path is relative to deploy.toml's folder, where it runs."),
    key("hooks.on_failure", "limit", LIMIT, Default("\"5m\""), "\"10m\"", "Ended by force after so long, which is a failure."),

    key("run_once", "name", Kind::Text(Form::Service), Required, "\"migrate\"", "What it is called."),
    key("run_once", "service", Kind::Text(Form::Service), Required, "\"api\"", "A container of this service, as the new release defines it: its image, environment, mounts and networks; no ports. Nothing else is started for it."),
    key("run_once", "run", COMMAND, Required, "[\"./manage.py\", \"migrate\"]", "Program and arguments, no shell, in the place of the service's `command`; its entrypoint stays."),
    key("run_once", "limit", LIMIT, Default("\"10m\""), "\"30m\"", "Ended by force after so long, which is a failure."),
];
