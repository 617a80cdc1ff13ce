//! Reads lines from files or standard input.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use parlor_wire::{LineDecoder, Malformed};

use crate::command_error::CommandError;

/// A line with its position.
pub(crate) struct Line<'a> {
    pub(crate) text: Result<&'a str, Malformed>,
    pub(crate) number: usize,
    /// The file, if there are several.
    file: Option<&'a Path>,
}

impl Line<'_> {
    /// The end of the input, for problems that are found there.
    pub(crate) fn last(number: usize) -> Self {
        Self { text: Ok(""), number, file: None }
    }

    /// Reports a problem of this line on standard error.
    pub(crate) fn report(&self, problem: &dyn Display) {
        match self.file {
            Some(file) => print_stderr!("{}: line {}: {problem}", file.display(), self.number),
            None => print_stderr!("line {}: {problem}", self.number),
        }
    }
}

/// Calls `handle` with each line of the files, or of standard input if there are none.
pub(crate) fn each_line(
    files: &[PathBuf],
    max_line: usize,
    mut handle: impl FnMut(Line<'_>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    if files.is_empty() {
        return read(&mut io::stdin().lock(), "standard input", None, max_line, &mut handle);
    }
    for path in files {
        let name = path.display().to_string();
        let file = File::open(path);
        let mut file =
            file.map_err(|error| CommandError::failed(format_args!("cannot open {name}: {error}")))?;
        let named = (files.len() > 1).then_some(path.as_path());
        read(&mut file, &name, named, max_line, &mut handle)?;
    }
    Ok(())
}

fn read(
    input: &mut dyn Read,
    name: &str,
    file: Option<&Path>,
    max_line: usize,
    handle: &mut dyn FnMut(Line<'_>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut lines = LineDecoder::new(max_line);
    let mut buffer = vec![0; 256 << 10];
    let mut number = 0;
    loop {
        let count = input.read(&mut buffer);
        let count =
            count.map_err(|error| CommandError::failed(format_args!("cannot read {name}: {error}")))?;
        if count == 0 {
            lines.finish();
        } else {
            lines.extend(&buffer[..count]);
        }
        while let Some(frame) = lines.next_line() {
            number += 1;
            handle(Line { text: frame.line(), number, file })?;
        }
        if count == 0 {
            return Ok(());
        }
    }
}

/// Parses a number of seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "it is not a whole number of seconds, such as 30".to_owned())
}

/// Parses a number of lines or entries.
pub(crate) fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "it is not a whole number, such as 20".to_owned())
}
