//! Writes to standard output and formats times, paths and counts.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::command_error::CommandError;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(crate) const PLAIN: Style = Style::new();

/// Prints a line to standard error and ignores write errors, on which `eprintln!` would panic.
macro_rules! print_stderr {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(anstream::stderr().lock(), $($line)*);
    }};
}

/// Prints text, with colours only on a terminal.
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
    serde_json::to_string(value).expect("all printed types have string keys")
}

/// Prints JSON text. On a terminal, control characters in it are escaped; they can only occur in strings.
pub(crate) fn print_raw_json(json: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    let written = if out.is_terminal() {
        out.write_all(escaped(json).as_bytes())
    } else {
        out.write_all(json.as_bytes())
    };
    written.and_then(|()| out.flush()).map_err(|error| CommandError::write(&error))
}

/// Escapes control characters in JSON if standard output is a terminal.
pub(crate) fn for_stdout(json: &str) -> std::borrow::Cow<'_, str> {
    if io::stdout().is_terminal() { escaped(json).into() } else { json.into() }
}

/// JSON text with its control characters escaped.
pub(crate) fn escaped(json: &str) -> String {
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

/// The current time in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Formats a time as RFC 3339.
pub(crate) fn timestamp(millis: i64) -> String {
    Timestamp::from_millisecond(millis).map(|time| time.to_string()).unwrap_or_default()
}

/// Formats how long ago a time was.
pub(crate) fn ago(time: i64, now: i64) -> String {
    let seconds = now.saturating_sub(time) / 1000;
    match seconds {
        ..5 => "just now".to_owned(),
        5..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        86_400..2_592_000 => format!("{} d ago", seconds / 86_400),
        _ => timestamp(time).chars().take(10).collect(),
    }
}

/// Formats a time in the time zone of the user: the time of day, with the date if it is not today.
pub(crate) fn clock_time(time: i64, now: i64) -> String {
    in_zone(time, now, &TimeZone::system())
}

fn in_zone(time: i64, now: i64, zone: &TimeZone) -> String {
    let zoned = |millis| Some(Timestamp::from_millisecond(millis).ok()?.to_zoned(zone.clone()));
    let (Some(time), Some(now)) = (zoned(time), zoned(now)) else { return String::new() };
    let format = match (time.date() == now.date(), time.year() == now.year()) {
        (true, _) => "%H:%M",
        (false, true) => "%-d %b %H:%M",
        (false, false) => "%Y-%m-%d %H:%M",
    };
    time.strftime(format).to_string()
}

/// Formats a duration.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats the time since a moment as minutes and seconds, or as hours, minutes and seconds.
pub(crate) fn elapsed(since: i64, now: i64) -> String {
    let seconds = now.saturating_sub(since).max(0) / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Formats the duration since a time.
pub(crate) fn span_since(time: i64, now: i64) -> String {
    span(u64::try_from(now.saturating_sub(time) / 1000).unwrap_or(0))
}

/// Reads a time as RFC 3339, in milliseconds since 1970.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    Some(text.parse::<Timestamp>().ok()?.as_millisecond())
}

/// The home directory, to be abbreviated in paths.
pub(crate) fn home() -> Option<String> {
    std::env::var("HOME").ok().filter(|home| Path::new(home).is_absolute() && home != "/")
}

/// Abbreviates the home directory in a path to `~`.
pub(crate) fn short_path(path: &str) -> String {
    let Some(inside) = home().and_then(|home| Path::new(path).strip_prefix(&home).ok()) else {
        return path.to_owned();
    };
    if inside.as_os_str().is_empty() { "~".to_owned() } else { format!("~/{}", inside.display()) }
}

/// Formats a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

/// Formats a number with a noun.
pub(crate) fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_are_formatted_for_people() {
        let now = 1_790_000_000_000;
        let formatted = |seconds: i64| ago(now - seconds * 1000, now);
        for (seconds, expected) in [
            (-10, "just now"),
            (0, "just now"),
            (5, "5 s ago"),
            (61, "1 min ago"),
            (7200, "2 h ago"),
            (86_400 * 3, "3 d ago"),
            (86_400 * 40, "2026-08-12"),
        ] {
            assert_eq!(formatted(seconds), expected);
        }
        assert_eq!(ago(i64::MIN, now), "");
        assert_eq!(
            (span(59), span(3660), span(90_000)),
            ("59 s".into(), "1 h 1 min".into(), "1 d 1 h".into())
        );
    }

    #[test]
    fn a_time_of_today_has_no_date() {
        let now = parse_timestamp("2026-11-17T01:30:00Z").unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        for (time, expected) in [
            ("2026-11-17T01:02:03Z", "03:02"),
            ("2026-11-16T22:00:00Z", "00:00"),
            ("2026-11-16T21:59:00Z", "16 Nov 23:59"),
            ("2025-02-03T04:05:06Z", "2025-02-03 06:05"),
        ] {
            assert_eq!(in_zone(parse_timestamp(time).unwrap(), now, &zone), expected);
        }
        assert_eq!(in_zone(i64::MAX, now, &zone), "");
    }

    #[test]
    fn control_characters_in_json_are_escaped() {
        assert_eq!(escaped("{\"a\":\"\u{9b}1m\u{7f}\"}\n"), "{\"a\":\"\\u009b1m\\u007f\"}\n");
    }
}
