//! Compose and the engine: command lines as values, and how their answers are read.
//!
//! Pure: nothing is run here. What stands here was measured with Compose 2.40 and Docker 20.10 to 28.

mod argv;
mod config;
mod inspect;

pub use argv::{
    NO_FILE, beside, config_asked, config_check, config_full, config_hash, config_pass_one, config_pass_two,
    create_some, docker, down, engine_version, exec, forget, image_inspect, inspect, list, logs, once_name, once_state,
    project, pull, remove_container, remove_some, restart, run_once, signal, stop, stop_container, stop_some, tag, up,
    up_anew, up_some, version, version_asked, version_one,
};
pub use config::{ENV_FILES_KEY, Unset, env_files_aside, env_files_back, unset_variables};
pub use inspect::{Inspected, ids_by_pin, parse_images, parse_inspect};
