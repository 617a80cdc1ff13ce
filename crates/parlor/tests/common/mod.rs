//! Runs `parlor` and checks its output.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use expect_test::Expect;

pub(crate) fn parlor(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_parlor"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that exits early does not read the whole input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

pub(crate) fn check(args: &[&str], input: &str, code: i32, stdout: &Expect, stderr: &Expect) {
    let output = parlor(args, input.as_bytes());
    stdout.assert_eq(&tidy(&output.stdout));
    stderr.assert_eq(&tidy(&output.stderr));
    assert_eq!(output.status.code(), Some(code));
}

/// Removes trailing white space, which the help has.
fn tidy(output: &[u8]) -> String {
    String::from_utf8_lossy(output).lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
