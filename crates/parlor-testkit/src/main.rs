//! The test agent as a program.

use std::process::ExitCode;

fn main() -> ExitCode {
    parlor_testkit::test_agent::main()
}
