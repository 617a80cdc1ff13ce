//! Runs the package managers.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use parlor_process::{Command, Process, Reaper};
use parlor_server::config::program_at;
use tokio::io::AsyncReadExt;

use crate::command_error::CommandError;

/// How many bytes of the output of a program are kept.
const MAX_OUTPUT: usize = 64 << 10;

/// How many lines of the output of a program that failed are printed.
const MAX_LINES: usize = 6;

/// A program that installs packages.
pub(crate) struct Tool<'a> {
    /// Its name, for people.
    name: &'a str,
    program: OsString,
    reaper: &'a Reaper,
}

impl<'a> Tool<'a> {
    /// Finds a program in `PATH`.
    pub(crate) fn find(name: &'a str, reaper: &'a Reaper) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = program_at(name, &path)?.into_os_string();
        Some(Self { name, program, reaper })
    }

    /// Uses a program by its path.
    pub(crate) fn at(name: &'a str, program: &Path, reaper: &'a Reaper) -> Self {
        Self { name, program: program.into(), reaper }
    }

    /// Runs the program to its end and returns the last part of its output. If it fails, the error has the last useful lines.
    pub(crate) async fn run(&self, args: &[&OsStr], cwd: &Path) -> Result<String, CommandError> {
        let failed =
            |error: io::Error| CommandError::failed(format_args!("cannot run {}: {error}", self.name));
        let command = Command {
            program: self.program.clone(),
            args: args.iter().map(Into::into).collect(),
            env: std::env::vars_os().collect(),
            cwd: cwd.to_owned(),
        };
        let (process, mut output) = Process::start_merged(&command, self.reaper).map_err(failed)?;
        let mut tail = Vec::new();
        let mut buffer = vec![0; 8 << 10];
        loop {
            let length = output.read(&mut buffer).await.map_err(failed)?;
            if length == 0 {
                break;
            }
            tail.extend_from_slice(&buffer[..length]);
            let excess = tail.len().saturating_sub(MAX_OUTPUT);
            tail.drain(..excess);
        }
        let status = process.wait().await;
        let text = String::from_utf8_lossy(&tail).into_owned();
        if status.success() {
            return Ok(text);
        }
        Err(failure(self.name, &status.to_string(), &text))
    }
}

/// Errors of the network in the output of package managers.
const OFFLINE: [&str; 10] = [
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "ETIMEDOUT",
    "NewConnectionError",
    "dns error",
    "client error (Connect)",
    "Temporary failure in name resolution",
];

/// Signs of a full disk in the output of package managers.
const NO_SPACE: [&str; 2] = ["ENOSPC", "No space left on device"];

/// Signs of a package that does not exist in the output of package managers.
const NOT_FOUND: [&str; 4] =
    ["code E404", "code ETARGET", "No matching distribution found", "not found in the package registry"];

/// The error of a package manager that failed: what happened, in one sentence, or else its last useful lines.
fn failure(name: &str, status: &str, output: &str) -> CommandError {
    let has = |signs: &[&str]| signs.iter().any(|sign| output.contains(sign));
    if has(&NO_SPACE) {
        return CommandError::failed(format_args!("{name} failed: no space left on the disk"));
    }
    if has(&OFFLINE) {
        return CommandError::failed(format_args!("{name} cannot reach the package server"))
            .hint("check the network; installed agents work without it");
    }
    if has(&NOT_FOUND) {
        return CommandError::failed(format_args!("{name} does not find the package in this version"));
    }
    CommandError::failed(format_args!("{name} failed ({status})")).details(useful_lines(output))
}

/// The last lines of the output of a package manager that say something.
fn useful_lines(output: &str) -> Vec<String> {
    let lines = output.lines().map(|line| {
        let line = line.trim_end();
        ["npm error ", "npm ERR! ", "npm error", "npm ERR!"]
            .iter()
            .find_map(|prefix| line.strip_prefix(prefix))
            .unwrap_or(line)
    });
    let is_useful = |line: &&str| {
        !line.trim().is_empty() && !line.contains("complete log of this run") && !line.contains("/_logs/")
    };
    let lines: Vec<_> = lines.filter(is_useful).map(str::to_owned).collect();
    lines[lines.len().saturating_sub(MAX_LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_failure_is_one_sentence_and_another_one_has_the_last_useful_lines() {
        let error = failure("npm", "exit status: 1", "npm error code ENOTFOUND\nnpm error network\n");
        assert_eq!(error.to_string(), "npm cannot reach the package server");
        let error = failure("npm", "exit status: 228", "npm error code ENOSPC\n");
        assert_eq!(error.to_string(), "npm failed: no space left on the disk");
        let error = failure("npm", "exit status: 1", "npm error code E404\n");
        assert_eq!(error.to_string(), "npm does not find the package in this version");
        let output = "a\nb\nnpm error code EX\nnpm error\nnpm error 1\nnpm error 2\nnpm error 3\nnpm error 4\n\
                      npm error A complete log of this run can be found in: /home/x/.npm/_logs/1.log\n";
        assert_eq!(useful_lines(output), ["b", "code EX", "1", "2", "3", "4"]);
    }
}
