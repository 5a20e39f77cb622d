//! The one binary: parses, runs, ends with the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(handover::cli::main(std::env::args_os()))
}
