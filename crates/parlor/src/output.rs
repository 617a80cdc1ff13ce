//! Writing to standard output, and the small words that all commands share.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use serde::Serialize;

use crate::command_error::CommandError;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const PLAIN: Style = Style::new();

/// Prints a line to standard error. One that cannot be written is dropped: `eprintln!` would panic.
macro_rules! print_stderr {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(anstream::stderr().lock(), $($line)*);
    }};
}

/// Prints for people: in colours on a terminal, without them in a pipe.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CommandError> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(|error| CommandError::write(&error))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    print_raw_json(&(to_json(value) + "\n"))
}

/// A value as JSON.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all that is printed has text for keys")
}

/// Prints JSON as it is. On a terminal, control characters in it are escaped; they can only stand in strings.
pub(crate) fn print_raw_json(json: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    let written = if out.is_terminal() {
        out.write_all(escaped(json).as_bytes())
    } else {
        out.write_all(json.as_bytes())
    };
    written.and_then(|()| out.flush()).map_err(|error| CommandError::write(&error))
}

/// JSON without control characters, for a terminal; as it is for a pipe.
pub(crate) fn for_stdout(json: &str) -> std::borrow::Cow<'_, str> {
    if io::stdout().is_terminal() { escaped(json).into() } else { json.into() }
}

fn escaped(json: &str) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() && c != '\n' {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// A time in the words of programs.
pub(crate) fn timestamp(millis: i64) -> String {
    Timestamp::from_millisecond(millis).map(|time| time.to_string()).unwrap_or_default()
}

/// How long ago something was, in the words of people.
pub(crate) fn ago(then: i64, now: i64) -> String {
    let seconds = now.saturating_sub(then) / 1000;
    match seconds {
        ..5 => "just now".to_owned(),
        5..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        86_400..2_592_000 => format!("{} d ago", seconds / 86_400),
        _ => timestamp(then).chars().take(10).collect(),
    }
}

/// A span of time in the words of people.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A path, with the home directory as a tilde.
pub(crate) fn short_path(path: &str) -> String {
    let home = std::env::var_os("HOME").filter(|home| Path::new(home).is_absolute() && home != "/");
    let Some(inside) = home.and_then(|home| Path::new(path).strip_prefix(home).ok()) else {
        return path.to_owned();
    };
    if inside.as_os_str().is_empty() { "~".to_owned() } else { format!("~/{}", inside.display()) }
}

/// A number of things.
pub(crate) fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_do() {
        let now = 1_790_000_000_000;
        let told = |seconds: i64| ago(now - seconds * 1000, now);
        for (seconds, words) in [
            (-10, "just now"),
            (0, "just now"),
            (5, "5 s ago"),
            (61, "1 min ago"),
            (7200, "2 h ago"),
            (86_400 * 3, "3 d ago"),
            (86_400 * 40, "2026-08-12"),
        ] {
            assert_eq!(told(seconds), words);
        }
        assert_eq!(ago(i64::MIN, now), "");
        assert_eq!(
            (span(59), span(3660), span(90_000)),
            ("59 s".into(), "1 h 1 min".into(), "1 d 1 h".into())
        );
    }

    #[test]
    fn control_characters_in_json_are_escaped() {
        assert_eq!(escaped("{\"a\":\"\u{9b}1m\u{7f}\"}\n"), "{\"a\":\"\\u009b1m\\u007f\"}\n");
    }
}
