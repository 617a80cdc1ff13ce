//! The errors of a configuration file that cannot be parsed, in words for people: the line, the setting, the allowed values.

use std::path::Path;

use super::ConfigError;
use super::choice::closest;

/// The hint if nothing better is known.
const CHECK_HINT: &str = "correct this line; `parlor doctor` checks the file";

/// The line of an offset in a text, from 1 on.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.get(..offset).unwrap_or(text).matches('\n').count()
}

/// Describes why a text cannot be parsed.
pub(super) fn config_error(error: &toml::de::Error, text: &str, path: &Path) -> ConfigError {
    let line = error.span().map(|span| line_of(text, span.start));
    let location = match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    };
    let mut setting = line.map(|line| Setting::at(text, line)).unwrap_or_default();
    if let Some(inner) =
        error.span().and_then(|span| inline_key(text, span.start)).filter(|key| *key != setting.key)
    {
        setting.key = format!("{inner} in {}", setting.key);
    }
    let (message, hint) = describe(error.message().trim_end(), &setting);
    ConfigError { location, message, hint: Some(hint) }
}

/// The key of the value at an offset, which may be in an inline table: `A` of the 1 in `env = { A = 1 }`.
fn inline_key(text: &str, offset: usize) -> Option<&str> {
    let before = text.get(..offset)?.lines().next_back()?.trim_end().strip_suffix('=')?;
    before.trim_end().rsplit([' ', '\t', '{', ',']).next()
}

/// The setting on a line of the file.
#[derive(Debug, Default)]
struct Setting {
    key: String,
    /// The table with its brackets; empty for settings at the beginning of the file.
    table: String,
}

impl Setting {
    fn at(text: &str, line: usize) -> Self {
        let mut setting = Self::default();
        for text in text.lines().take(line).map(str::trim) {
            if text.starts_with('[') {
                let end = text.rfind(']').map_or(text.len(), |end| end + 1);
                text[..end].clone_into(&mut setting.table);
                setting.key.clear();
            } else if let Some((key, _)) = text.split_once('=') {
                key.trim().clone_into(&mut setting.key);
            }
        }
        setting
    }

    /// Where its table is.
    fn place(&self) -> String {
        match self.table.as_str() {
            "" => "at the beginning of the file".to_owned(),
            table => format!("in {table}"),
        }
    }
}

/// The message and the hint for a message of the parser, of which those of `serde` have fixed forms. Any other one is used as it is.
fn describe(message: &str, setting: &Setting) -> (String, String) {
    let key = &setting.key;
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let (name, expected) = rest.split_once('`').unwrap_or((rest, ""));
        let known = quoted(expected);
        let similar = closest(name, &known).map(|name| format!("did you mean {name}? ")).unwrap_or_default();
        let known =
            if known.is_empty() { CHECK_HINT.to_owned() } else { format!("known: {}", known.join(", ")) };
        return (format!("unknown setting {name} {}", setting.place()), format!("{similar}{known}"));
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let (value, expected) = rest.split_once('`').unwrap_or((rest, ""));
        let values = quoted(expected).join(", ");
        return (format!("{key} cannot be \"{value}\""), format!("choose one of these: {values}"));
    }
    if let Some(rest) = message.strip_prefix("missing field `") {
        let name = rest.trim_end_matches('`');
        return (format!("{name} is missing {}", setting.place()), CHECK_HINT.to_owned());
    }
    let typed = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = typed.and_then(|rest| rest.split_once(", expected ")) {
        let message = format!("{key} must be {}, not {}", expected_value(expected), found_value(found));
        return (message, CHECK_HINT.to_owned());
    }
    let message = message.replace('\n', ", ");
    // Messages of this crate name the value, those of the parser are about the syntax.
    (message, CHECK_HINT.to_owned())
}

/// The words between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn expected_value(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false",
        "a string" | "string or table" => "a text in quotes",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        "a map" => "a table",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// A value as it is in the file: `5` for ``integer `5` ``, `"x"` for `string "x"`.
fn found_value(found: &str) -> String {
    match found.split_once(' ') {
        Some((_, value)) => value.trim_matches('`').to_owned(),
        None => match found {
            "sequence" => "a list".to_owned(),
            "map" => "a table".to_owned(),
            other => other.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn errors_name_the_line_the_setting_and_the_allowed_values() {
        for (text, message, hint) in [
            (
                "[server]\nlistenn = 'a'",
                "config.toml:2: unknown setting listenn in [server]",
                "did you mean listen? known: listen, origins, hosts, allow_remote, socket_only, idle_timeout",
            ),
            (
                "\nx = 1",
                "config.toml:2: unknown setting x at the beginning of the file",
                "known: default_agent, agent_registry, agents, mcp, server, ascii, background, keys, notify",
            ),
            (
                "background = 'blue'",
                "config.toml:1: background cannot be \"blue\"",
                "choose one of these: dark, light",
            ),
            ("ascii = 1", "config.toml:1: ascii must be true or false, not 1", CHECK_HINT),
            (
                "[agents.x]\nenv = { A = 1 }",
                "config.toml:2: A in env must be a text in quotes, not 1",
                CHECK_HINT,
            ),
            (
                "[server]\nidle_timeout = -1",
                "config.toml:2: idle_timeout must be a whole number of at least 0, not -1",
                CHECK_HINT,
            ),
            (
                "[server]\norigins = \"x\"",
                "config.toml:2: origins must be a list, such as [\"a\", \"b\"], not \"x\"",
                CHECK_HINT,
            ),
            (
                "[keys.messages]\nfork = ['e']",
                "config.toml:2: fork must be a text in quotes, not a list",
                CHECK_HINT,
            ),
            ("keys = 3", "config.toml:1: keys must be a table, not 3", CHECK_HINT),
            (
                "[agents.a]\ncommand = 5",
                "config.toml:2: command must be a string, or a list of strings, not 5",
                CHECK_HINT,
            ),
        ] {
            let error = Config::parse(text, Path::new("config.toml")).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint.as_deref()), (message, Some(hint)), "{text}");
        }
        let error = Config::parse("a = = 3", Path::new("config.toml")).unwrap_err();
        assert!(error.to_string().starts_with("config.toml:1: "), "{error}");
        assert_eq!(error.hint.as_deref(), Some(CHECK_HINT));
    }
}
