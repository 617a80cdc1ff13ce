//! Parses prompts that are scripts, one command per line, for agents without a model.
//!
//! `parlor-testkit` compiles this file as well, for the test agent.

use std::fmt::Write as _;
use std::time::Duration;

/// A command, and how it becomes a step of the agent.
pub(crate) struct Command<S> {
    /// The first word of the line.
    pub(crate) name: &'static str,
    /// The arguments, for the help.
    pub(crate) input: &'static str,
    /// A description, for the help.
    pub(crate) about: &'static str,
    /// Parses the arguments into a step; `None` if they are invalid.
    make: fn(&str) -> Option<S>,
}

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part<S> {
    /// A command.
    Step(S),
    /// A command with invalid arguments, with its usage.
    Misused(String),
    /// Text that is not a command.
    Chat(String),
}

/// How many parts of one prompt are used.
pub(crate) const MAX_PARTS: usize = 1000;

/// Creates a command for a table of commands.
pub(crate) const fn command<S>(
    name: &'static str,
    input: &'static str,
    about: &'static str,
    make: fn(&str) -> Option<S>,
) -> Command<S> {
    Command { name, input, about, make }
}

/// Splits a prompt: one part for each line that is a command, and one for the text between them.
pub(crate) fn parts<S>(prompt: &str, commands: &[Command<S>]) -> Vec<Part<S>> {
    let mut parts: Vec<Part<S>> = Vec::new();
    for line in prompt.lines().map(str::trim) {
        if parts.len() == MAX_PARTS {
            break;
        }
        match (command_of(line, commands), parts.last_mut()) {
            (Some(part), _) => parts.push(part),
            (None, Some(Part::Chat(text))) => {
                text.push('\n');
                text.push_str(line);
            }
            (None, _) if line.is_empty() => {}
            (None, _) => parts.push(Part::Chat(line.to_owned())),
        }
    }
    if let Some(Part::Chat(text)) = parts.last_mut() {
        text.truncate(text.trim_end().len());
    }
    if parts.is_empty() {
        parts.push(Part::Chat(String::new()));
    }
    parts
}

/// Whether a text block is the transcript that parlor sends to an agent as context, and not a script.
pub(crate) fn is_conversation(text: &str) -> bool {
    text.starts_with("<conversation id=\"")
}

fn command_of<S>(line: &str, commands: &[Command<S>]) -> Option<Part<S>> {
    // Clients that list commands send them with a slash.
    let line = line.strip_prefix('/').unwrap_or(line);
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let command = commands.iter().find(|command| command.name == name)?;
    let misused = || Part::Misused(format!("{name} {}", command.input));
    Some((command.make)(rest.trim_start()).map_or_else(misused, Part::Step))
}

/// The commands with their descriptions, one per line.
pub(crate) fn list<S>(commands: &[Command<S>]) -> String {
    let mut text = String::new();
    for command in commands {
        let name = format!("{} {}", command.name, command.input);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<25}  {}", command.about);
    }
    text.truncate(text.trim_end().len());
    text
}

/// The arguments, or a default if there are none.
pub(crate) fn or(rest: &str, otherwise: &str) -> String {
    if rest.is_empty() { otherwise.to_owned() } else { rest.to_owned() }
}

/// The arguments, if there are any.
pub(crate) fn some(rest: &str) -> Option<String> {
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// Parses milliseconds.
pub(crate) fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// Parses an optional word.
pub(crate) fn flag(rest: &str, word: &str) -> Option<bool> {
    if rest.is_empty() { Some(false) } else { (rest == word).then_some(true) }
}

/// Parses a list of at least one item, separated by semicolons.
pub(crate) fn items(rest: &str) -> Option<Vec<String>> {
    let items = rest.split(';').map(str::trim).filter(|item| !item.is_empty());
    let items: Vec<String> = items.map(str::to_owned).collect();
    (!items.is_empty() && items.len() <= MAX_PARTS).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: &[Command<String>] = &[
        command("say", "TEXT", "says TEXT", |rest| Some(rest.into())),
        command("sleep", "MS", "waits", |rest| millis(rest).map(|time| format!("{time:?}"))),
    ];

    #[test]
    fn lines_are_commands_and_the_text_between_them_is_one_part() {
        let script = "say Hi  there\n\nfix my code\nplease\n/say hm\n  sleep 5 \n";
        assert_eq!(
            parts(script, COMMANDS),
            [
                Part::Step("Hi  there".into()),
                Part::Chat("fix my code\nplease".into()),
                Part::Step("hm".into()),
                Part::Step("5ms".into()),
            ]
        );
        assert_eq!(parts(" \n", COMMANDS), [Part::Chat(String::new())]);
    }

    #[test]
    fn a_command_with_invalid_arguments_has_its_usage() {
        assert_eq!(parts("sleep soon", COMMANDS), [Part::Misused("sleep MS".into())]);
        assert_eq!((flag("", "x"), flag("x", "x"), flag("y", "x")), (Some(false), Some(true), None));
        assert_eq!((items(" a; ;b"), items(";;")), (Some(vec!["a".into(), "b".into()]), None));
    }

    #[test]
    fn a_prompt_has_at_most_a_thousand_parts() {
        assert_eq!(parts(&"say\n".repeat(2000), COMMANDS).len(), MAX_PARTS);
    }
}
