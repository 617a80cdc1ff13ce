//! Runs a command of this program in an optimised build.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use parlor_testkit::programs::{self, Profile};

use crate::failure::Failure;

/// Builds this program optimised and replaces this process by it, with the same arguments; returns only if that
/// fails.
pub(crate) fn run_again() -> Result<ExitCode, Failure> {
    let program = programs::build("xtask", "xtask", Profile::Release).map_err(Failure::failed)?;
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Err(Failure::failed(format_args!("cannot run {}: {error}", program.display())))
}
