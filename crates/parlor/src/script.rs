//! Parses prompts that are scripts, one command a line, for agents that have no model.
//!
//! `parlor-testkit` compiles this file as well, for the test agent.

use std::fmt::Write as _;
use std::time::Duration;

/// A command that a line may begin with, and the step of an agent that it means.
pub(crate) struct Command<S> {
    /// The word that the line begins with.
    pub(crate) name: &'static str,
    /// What follows the word.
    pub(crate) input: &'static str,
    /// What it does.
    pub(crate) about: &'static str,
    /// The step, from what follows the word; `None` if that makes no sense.
    make: fn(&str) -> Option<S>,
}

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part<S> {
    /// A command.
    Step(S),
    /// A command whose arguments cannot be understood, with how it is used.
    Misused(String),
    /// Ordinary words.
    Chat(String),
}

/// How many parts of one prompt are taken.
pub(crate) const MAX_PARTS: usize = 1000;

/// A line of a table of commands.
pub(crate) const fn command<S>(
    name: &'static str,
    input: &'static str,
    about: &'static str,
    make: fn(&str) -> Option<S>,
) -> Command<S> {
    Command { name, input, about, make }
}

/// The parts of a prompt: one for each line that is a command, and one for the words between them.
pub(crate) fn parts<S>(prompt: &str, commands: &[Command<S>]) -> Vec<Part<S>> {
    let mut parts: Vec<Part<S>> = Vec::new();
    for line in prompt.lines().map(str::trim) {
        if parts.len() == MAX_PARTS {
            break;
        }
        match (command_of(line, commands), parts.last_mut()) {
            (Some(part), _) => parts.push(part),
            (None, Some(Part::Chat(words))) => {
                words.push('\n');
                words.push_str(line);
            }
            (None, _) if line.is_empty() => {}
            (None, _) => parts.push(Part::Chat(line.to_owned())),
        }
    }
    if let Some(Part::Chat(words)) = parts.last_mut() {
        words.truncate(words.trim_end().len());
    }
    if parts.is_empty() {
        parts.push(Part::Chat(String::new()));
    }
    parts
}

/// Whether a text block is a conversation that parlor hands to an agent that was not there, and no script.
pub(crate) fn is_conversation(text: &str) -> bool {
    text.starts_with("<conversation id=\"")
}

fn command_of<S>(line: &str, commands: &[Command<S>]) -> Option<Part<S>> {
    // Clients that show commands send them with a slash.
    let line = line.strip_prefix('/').unwrap_or(line);
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let command = commands.iter().find(|command| command.name == name)?;
    let misused = || Part::Misused(format!("{name} {}", command.input));
    Some((command.make)(rest.trim_start()).map_or_else(misused, Part::Step))
}

/// The commands with what they do, one a line.
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

/// What follows a command, or something else if nothing does.
pub(crate) fn or(rest: &str, otherwise: &str) -> String {
    if rest.is_empty() { otherwise.to_owned() } else { rest.to_owned() }
}

/// What follows a command that needs something.
pub(crate) fn some(rest: &str) -> Option<String> {
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// A time in milliseconds.
pub(crate) fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// A word that may be there or not.
pub(crate) fn flag(rest: &str, word: &str) -> Option<bool> {
    if rest.is_empty() { Some(false) } else { (rest == word).then_some(true) }
}

/// Things with a semicolon between them, at least one.
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
    fn lines_are_commands_and_words_between_them_are_kept_together() {
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
    fn arguments_that_make_no_sense_are_told_how_it_is_used() {
        assert_eq!(parts("sleep soon", COMMANDS), [Part::Misused("sleep MS".into())]);
        assert_eq!((flag("", "x"), flag("x", "x"), flag("y", "x")), (Some(false), Some(true), None));
        assert_eq!((items(" a; ;b"), items(";;")), (Some(vec!["a".into(), "b".into()]), None));
    }

    #[test]
    fn a_prompt_has_at_most_a_thousand_parts() {
        assert_eq!(parts(&"say\n".repeat(2000), COMMANDS).len(), MAX_PARTS);
    }
}
