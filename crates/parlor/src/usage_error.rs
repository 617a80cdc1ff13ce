//! Bad usage of the command line, in the form of all other errors.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use parlor_server::config::closest;

use crate::command_error::CommandError;

/// Commands of other programs, and what they are called here.
const SYNONYMS: [(&str, &str); 7] = [
    ("delete", "rm"),
    ("remove", "rm"),
    ("rename", "title"),
    ("list", "ls"),
    ("send", "prompt"),
    ("kill", "stop"),
    ("uninstall", "remove"),
];

/// How many letters of a command say which one is meant.
const PREFIX: usize = 3;

/// Converts an error of the parser for these arguments. Requested help and versions are printed, and the process exits.
pub(crate) fn of(error: &clap::Error, args: &[OsString]) -> CommandError {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        error.exit();
    }
    let command = command(error, args);
    let failure = CommandError::bad_input(message(error));
    match hint(error, &command) {
        Some(hint) => failure.hint(hint),
        None => failure.hint(format_args!("`{command} --help` shows how it is used")),
    }
}

/// What is wrong.
#[expect(clippy::wildcard_enum_match_arm, reason = "the parser words rare errors itself")]
fn message(error: &clap::Error) -> String {
    let arg = text(error, ContextKind::InvalidArg).map(|arg| name(&arg)).unwrap_or_default();
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if arg.starts_with('-') => format!("there is no option {arg}"),
        ErrorKind::UnknownArgument => format!("unexpected argument '{arg}'"),
        ErrorKind::InvalidSubcommand => {
            let command = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("there is no command '{command}'")
        }
        ErrorKind::MissingRequiredArgument => {
            let args: Vec<_> = texts(error, ContextKind::InvalidArg).iter().map(|arg| name(arg)).collect();
            match &args[..] {
                [only] => format!("{only} is missing"),
                all => format!("{} are missing", all.join(", ")),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{arg} needs a value"),
        ErrorKind::InvalidValue => format!("{arg} has no value '{value}'"),
        ErrorKind::ValueValidation => {
            let reason = error.source().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("{arg} cannot be '{value}'{reason}")
        }
        ErrorKind::ArgumentConflict => {
            let prior: Vec<_> = texts(error, ContextKind::PriorArg).iter().map(|arg| name(arg)).collect();
            match &prior[..] {
                [] => format!("{arg} cannot be used here"),
                [same] if *same == arg => format!("{arg} is given twice"),
                others => format!("{arg} cannot be used together with {}", others.join(", ")),
            }
        }
        _ => {
            let rendered = error.render().to_string();
            let line = rendered.lines().next().unwrap_or_default();
            line.strip_prefix("error: ").unwrap_or(line).to_owned()
        }
    }
}

/// How to correct it, if more is known than the help of the command says.
#[expect(clippy::wildcard_enum_match_arm, reason = "the help of the command has to do for the others")]
fn hint(error: &clap::Error, command: &str) -> Option<String> {
    // The parser has the most similar one last.
    let similar_option = || {
        let option = texts(error, ContextKind::SuggestedArg).into_iter().next_back();
        option.map(|option| format!("did you mean {option}?"))
    };
    match error.kind() {
        // The words of a prompt need no quotes, so that the whole text is what the user wants to send.
        ErrorKind::UnknownArgument if command == "parlor prompt" => {
            let text =
                "to send words that start with a dash, put `--` before the text: parlor prompt -- TEXT...";
            Some(similar_option().into_iter().chain([text.to_owned()]).collect::<Vec<_>>().join(" "))
        }
        ErrorKind::UnknownArgument if command == "parlor" => {
            Some("options follow the command: `parlor ls --data DIR`".to_owned())
        }
        ErrorKind::UnknownArgument => similar_option().or_else(|| {
            let given = text(error, ContextKind::InvalidArg).filter(|given| !given.starts_with('-'))?;
            match command {
                "parlor answer" => Some(format!(
                    "--allow allows it, --deny rejects it, `--option {given}` selects one of its options"
                )),
                "parlor fork" => Some(format!("`--at {given}` forks at that message")),
                _ => None,
            }
        }),
        ErrorKind::InvalidSubcommand => {
            let given = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            Some(match similar_command(command, &given) {
                Some(similar) => format!("did you mean `{command} {similar}`?"),
                None => format!("`{command} --help` lists the commands"),
            })
        }
        ErrorKind::InvalidValue => {
            let values = texts(error, ContextKind::ValidValue);
            (!values.is_empty()).then(|| format!("choose one of these: {}", values.join(", ")))
        }
        ErrorKind::MissingRequiredArgument => {
            let usage = usage(error)?;
            Some(format!("usage: {usage}; `{command} --help` has examples"))
        }
        _ => None,
    }
}

/// The subcommand that was probably meant. The parser's own suggestions have hidden ones, and are too far away.
fn similar_command(command: &str, given: &str) -> Option<String> {
    let mut parent = crate::command_line();
    for name in command.split(' ').skip(1) {
        parent = parent.find_subcommand(name)?.clone();
    }
    let names: Vec<&str> =
        parent.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name).collect();
    let begins = |name: &&&str| given.len() >= PREFIX && name.starts_with(given);
    let synonym = SYNONYMS.iter().find(|(other, ours)| *other == given && names.contains(ours));
    let found = synonym.map(|(_, ours)| *ours);
    let found = found.or_else(|| names.iter().find(begins).copied()).or_else(|| closest(given, &names));
    found.map(str::to_owned)
}

/// The command with its subcommand, such as `parlor show`. The parser does not name it in all errors.
fn command(error: &clap::Error, args: &[OsString]) -> String {
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    match usage(error) {
        Some(usage) => usage.split_whitespace().take_while(is_name).collect::<Vec<_>>().join(" "),
        None => match args.get(1).and_then(|arg| arg.to_str()).filter(is_name) {
            Some(name) => format!("parlor {name}"),
            None => "parlor".to_owned(),
        },
    }
}

/// The usage without its heading.
fn usage(error: &clap::Error) -> Option<String> {
    let usage = text(error, ContextKind::Usage)?;
    let line = usage.lines().next().unwrap_or_default();
    Some(line.trim_start_matches("Usage:").trim().to_owned())
}

/// The name of an argument without its placeholders: `--limit` for `--limit <N>`, `SESSION` for `<SESSION>...`.
fn name(arg: &str) -> String {
    let first = arg.split_whitespace().next().unwrap_or_default();
    let first = first.split('=').next().filter(|name| name.starts_with('-')).unwrap_or(first);
    first.trim_end_matches("...").trim_matches(['<', '>', '[', ']']).to_owned()
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    texts(error, kind).into_iter().next()
}

fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        Some(ContextValue::StyledStrs(texts)) => texts.iter().map(ToString::to_string).collect(),
        Some(_) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a command line, with its hint.
    fn error(args: &str) -> String {
        let args = format!("parlor {args}");
        let args: Vec<OsString> = args.split(' ').map(OsString::from).collect();
        let error = of(&crate::command_line().try_get_matches_from(&args).unwrap_err(), &args);
        format!("{error} | {}", error.hint_text().unwrap_or_default())
    }

    #[test]
    fn bad_usage_is_reported_like_any_other_error() {
        for (args, expected) in [
            ("shwo latest", "there is no command 'shwo' | did you mean `parlor show`?"),
            ("prmpt hi", "there is no command 'prmpt' | did you mean `parlor prompt`?"),
            ("lst", "there is no command 'lst' | did you mean `parlor ls`?"),
            ("exprt x", "there is no command 'exprt' | did you mean `parlor export`?"),
            ("attch", "there is no command 'attch' | did you mean `parlor attach`?"),
            ("serch x", "there is no command 'serch' | did you mean `parlor search`?"),
            ("regen x", "there is no command 'regen' | did you mean `parlor regenerate`?"),
            ("delete x", "there is no command 'delete' | did you mean `parlor rm`?"),
            ("deta", "there is no command 'deta' | `parlor --help` lists the commands"),
            ("agents uninstall x", "there is no command 'uninstall' | did you mean `parlor agents remove`?"),
            ("agents instal x", "there is no command 'instal' | did you mean `parlor agents install`?"),
            ("--data x ls", "there is no option --data | options follow the command: `parlor ls --data DIR`"),
            ("nothing-like-it", "there is no command 'nothing-like-it' | `parlor --help` lists the commands"),
            ("ls --trea", "there is no option --trea | did you mean --tree?"),
            (
                "prompt --agnt demo",
                "there is no option --agnt | did you mean --agent? to send words that start with a dash, put `--` before the text: parlor prompt -- TEXT...",
            ),
            ("ls -x", "there is no option -x | `parlor ls --help` shows how it is used"),
            (
                "answer 5 yes",
                "unexpected argument 'yes' | --allow allows it, --deny rejects it, `--option yes` selects one of its options",
            ),
            ("fork latest 99", "unexpected argument '99' | `--at 99` forks at that message"),
            (
                "ls --limit -1",
                "--limit cannot be '-1': it is not a whole number, such as 20 | `parlor ls --help` shows how it is used",
            ),
            (
                "stop --timeout x",
                "--timeout cannot be 'x': it is not a whole number of seconds, such as 30 | `parlor stop --help` shows how it is used",
            ),
            ("stop now", "unexpected argument 'now' | `parlor stop --help` shows how it is used"),
            (
                "prompt fix -Wall",
                "there is no option -W | to send words that start with a dash, put `--` before the text: parlor prompt -- TEXT...",
            ),
            (
                "show",
                "SESSION is missing | usage: parlor show <SESSION> [MESSAGES]; `parlor show --help` has examples",
            ),
            ("ls --limit", "--limit needs a value | `parlor ls --help` shows how it is used"),
            (
                "export x --format pdf",
                "--format has no value 'pdf' | choose one of these: json, jsonl, markdown, html",
            ),
            (
                "answer r1 --allow --deny",
                "--allow cannot be used together with --deny | `parlor answer --help` shows how it is used",
            ),
            ("ls --json --json", "--json is given twice | `parlor ls --help` shows how it is used"),
        ] {
            assert_eq!(error(args), expected, "{args}");
        }
        assert!(error("ls --limit x").starts_with("--limit cannot be 'x': "), "{}", error("ls --limit x"));
    }
}
