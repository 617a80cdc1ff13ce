//! The commands that a prompt may hold, as data.

use std::fmt::Write as _;
use std::time::Duration;

/// One thing that the agent does in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Help,
    Say(String),
    Think(String),
    Tool(String),
    Ask(String),
    Elicit,
    Title(String),
    Meta(String),
    Plan(Vec<String>),
    Unplan,
    Terminal(String),
    Read(String),
    Write {
        path: String,
        text: String,
    },
    Redact {
        clear: bool,
    },
    Later {
        after: Duration,
        text: String,
    },
    Background(u32),
    Stream(Stream),
    Stamp {
        count: u32,
        rate: u32,
    },
    Big(usize),
    Image,
    Link,
    Sleep(Duration),
    Usage,
    Commands,
    Mode(String),
    SameId(String),
    Two(String),
    EchoUser,
    Fail {
        code: i64,
        text: String,
    },
    Refuse,
    Crash {
        code: i32,
    },
    CrashSilently,
    Hang,
    Garbage,
    Stderr(String),
    Env(String),
    Pid,
    Child {
        own_session: bool,
    },
    Ext(String),
    Whoami,
    /// Ordinary words.
    Chat(String),
    /// A command whose arguments cannot be understood, with how it is used.
    Misused(String),
}

/// Chunks that count themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    /// How many.
    pub(crate) count: u32,
    /// How many bytes of text each has.
    pub(crate) size: usize,
    /// How they are written.
    pub(crate) pace: Pace,
}

/// How the chunks of a stream are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as possible, many in one write.
    Full,
    /// As fast as possible, each by a write of its own.
    Each,
    /// So many a second.
    PerSecond(u32),
}

/// One line of the help: a command, what it takes, what it does, and the step it means.
pub(crate) struct Command {
    /// The word that the line begins with.
    pub(crate) name: &'static str,
    /// What follows the word.
    pub(crate) input: &'static str,
    /// What it does.
    pub(crate) about: &'static str,
    /// The step, from what follows the word; `None` if that makes no sense.
    make: fn(&str) -> Option<Step>,
}

/// How many steps of one prompt are taken.
const MAX_STEPS: usize = 1000;
/// The digits and the space that a chunk of a stream begins with.
pub(crate) const STREAM_NUMBER: usize = 9;
const MAX_STREAM: u32 = 100_000_000;
const MAX_SIZE: usize = 16 << 20;
const MAX_BIG: usize = 256 << 20;

const fn command(
    name: &'static str,
    input: &'static str,
    about: &'static str,
    make: fn(&str) -> Option<Step>,
) -> Command {
    Command { name, input, about, make }
}

/// Every command.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Command] = &[
    command("help", "", "lists these commands", |_| Some(Step::Help)),
    command("say", "TEXT", "streams the words of TEXT", |rest| Some(Step::Say(rest.into()))),
    command("think", "TEXT", "the same as a thought", |rest| Some(Step::Think(rest.into()))),
    command("two", "TEXT", "says TEXT in two messages in a row", |rest| Some(Step::Two(rest.into()))),
    command("same-id", "TEXT", "a thought and a message under one id, as some agents do", |rest| Some(Step::SameId(rest.into()))),
    command("echo-user", "", "sends the prompt back as the user's message", |_| Some(Step::EchoUser)),
    command("redact", "[clear]", "says something and replaces (or clears) it; v2", redact),
    command("tool", "[TITLE]", "a tool call from pending to completed, with a diff", |rest| Some(Step::Tool(or(rest, "Edit the notes")))),
    command("ask", "[TITLE]", "a tool call that needs permission", |rest| Some(Step::Ask(or(rest, "Delete the notes")))),
    command("elicit", "", "asks the user to fill in a form", |_| Some(Step::Elicit)),
    command("plan", "A;B;C", "a plan that is worked off", plan),
    command("unplan", "", "removes the plan; v2", |_| Some(Step::Unplan)),
    command("terminal", "COMMAND", "runs a shell command: in the client's terminal in v1, in its own in v2", |rest| some(rest).map(Step::Terminal)),
    command("read", "PATH", "reads a file through the client; v1", |rest| some(rest).map(Step::Read)),
    command("write", "PATH TEXT", "writes a file through the client; v1", write),
    command("title", "[TEXT]", "sets the session's title, or clears it", |rest| Some(Step::Title(rest.into()))),
    command("meta", "JSON", "session information with this metadata", |rest| some(rest).map(Step::Meta)),
    command("mode", "NAME", "changes the mode by itself: ask, code", |rest| some(rest).map(Step::Mode)),
    command("commands", "", "announces the commands again", |_| Some(Step::Commands)),
    command("usage", "", "reports the use of the context window", |_| Some(Step::Usage)),
    command("image", "", "says a picture", |_| Some(Step::Image)),
    command("link", "", "says a link to a resource", |_| Some(Step::Link)),
    command("sleep", "MS", "waits", |rest| millis(rest).map(Step::Sleep)),
    command("later", "MS TEXT", "says TEXT by itself, so long after the turn has ended", later),
    command("background", "N", "N updates by itself after the turn has ended", |rest| rest.parse().ok().map(Step::Background)),
    command("stream", "N SIZE [RATE|each]", "N chunks of SIZE bytes, RATE a second or one write each", stream),
    command("stamp", "N RATE", "N chunks, RATE a second, each with the time at which it was written", stamp),
    command("big", "N", "one chunk of N bytes", |rest| rest.parse().ok().filter(|n| *n <= MAX_BIG).map(Step::Big)),
    command("fail", "CODE TEXT", "ends the turn with this error", fail),
    command("refuse", "", "ends the turn with the stop reason refusal", |_| Some(Step::Refuse)),
    command("hang", "", "says `Hanging.` and never ends the turn, not even when cancelled", |_| Some(Step::Hang)),
    command("crash", "[CODE]", "writes what was said and a word to stderr, and exits with CODE (1)", |rest| or(rest, "1").parse().ok().map(|code| Step::Crash { code })),
    command("crash-silently", "", "exits with 1, without a word and without writing what was said", |_| Some(Step::CrashSilently)),
    command("garbage", "", "writes a line that is no JSON and one that is no message", |_| Some(Step::Garbage)),
    command("stderr", "TEXT", "writes to standard error", |rest| Some(Step::Stderr(rest.into()))),
    command("env", "NAME", "says an environment variable", |rest| some(rest).map(Step::Env)),
    command("pid", "", "says the process id", |_| Some(Step::Pid)),
    command("child", "[setsid]", "starts `sleep 1000` and says its process id", child),
    command("ext", "METHOD", "asks the client METHOD and says the answer", |rest| some(rest).map(Step::Ext)),
    command("whoami", "", "says session, directory, protocol and message count", |_| Some(Step::Whoami)),
];

/// The steps that a prompt means: one for each line that is a command, and one for the words between them.
pub(crate) fn steps(prompt: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in prompt.lines().map(str::trim) {
        if steps.len() == MAX_STEPS {
            break;
        }
        match (command_of(line), steps.last_mut()) {
            (Some(step), _) => steps.push(step),
            (None, Some(Step::Chat(words))) => {
                words.push('\n');
                words.push_str(line);
            }
            (None, _) if line.is_empty() => {}
            (None, _) => steps.push(Step::Chat(line.to_owned())),
        }
    }
    if let Some(Step::Chat(words)) = steps.last_mut() {
        words.truncate(words.trim_end().len());
    }
    if steps.is_empty() {
        steps.push(Step::Chat(String::new()));
    }
    steps
}

/// The commands with what they do, one a line.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for command in COMMANDS {
        let name = format!("{} {}", command.name, command.input);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<25}  {}", command.about);
    }
    text.truncate(text.trim_end().len());
    text
}

fn command_of(line: &str) -> Option<Step> {
    // Clients that show commands send them with a slash.
    let line = line.strip_prefix('/').unwrap_or(line);
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let command = COMMANDS.iter().find(|command| command.name == name)?;
    let misused = || Step::Misused(format!("{name} {}", command.input));
    Some((command.make)(rest.trim_start()).unwrap_or_else(misused))
}

fn or(rest: &str, otherwise: &str) -> String {
    if rest.is_empty() { otherwise.to_owned() } else { rest.to_owned() }
}

fn some(rest: &str) -> Option<String> {
    (!rest.is_empty()).then(|| rest.to_owned())
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

fn redact(rest: &str) -> Option<Step> {
    match rest {
        "" => Some(Step::Redact { clear: false }),
        "clear" => Some(Step::Redact { clear: true }),
        _ => None,
    }
}

fn plan(rest: &str) -> Option<Step> {
    let entries: Vec<String> =
        rest.split(';').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect();
    (!entries.is_empty() && entries.len() <= MAX_STEPS).then_some(Step::Plan(entries))
}

fn write(rest: &str) -> Option<Step> {
    let (path, text) = rest.split_once(' ')?;
    Some(Step::Write { path: path.to_owned(), text: text.to_owned() })
}

fn later(rest: &str) -> Option<Step> {
    let (after, text) = rest.split_once(' ').unwrap_or((rest, "Later."));
    Some(Step::Later { after: millis(after)?, text: text.to_owned() })
}

fn stream(rest: &str) -> Option<Step> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let pace = match words.get(2).copied() {
        None | Some("0") => Pace::Full,
        Some("each") => Pace::Each,
        Some(rate) => Pace::PerSecond(rate.parse().ok()?),
    };
    let count = words.first()?.parse().ok().filter(|count| *count <= MAX_STREAM)?;
    let size: usize = words.get(1)?.parse().ok().filter(|size| *size <= MAX_SIZE)?;
    (words.len() <= 3).then_some(Step::Stream(Stream { count, size: size.max(STREAM_NUMBER), pace }))
}

fn stamp(rest: &str) -> Option<Step> {
    let (count, rate) = rest.split_once(' ')?;
    let count = count.parse().ok().filter(|count| *count <= MAX_STREAM)?;
    Some(Step::Stamp { count, rate: rate.trim().parse().ok()? })
}

fn fail(rest: &str) -> Option<Step> {
    let (code, text) = rest.split_once(' ').unwrap_or((rest, "failed as asked"));
    Some(Step::Fail { code: code.parse().ok()?, text: text.to_owned() })
}

fn child(rest: &str) -> Option<Step> {
    match rest {
        "" => Some(Step::Child { own_session: false }),
        "setsid" => Some(Step::Child { own_session: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_and_words_between_them_are_kept_together() {
        let script = "say Hi  there\n\nfix my code\nplease\n/think hm\n  sleep 5 \n";
        assert_eq!(
            steps(script),
            [
                Step::Say("Hi  there".into()),
                Step::Chat("fix my code\nplease".into()),
                Step::Think("hm".into()),
                Step::Sleep(Duration::from_millis(5)),
            ]
        );
        assert_eq!(steps(" \n"), [Step::Chat(String::new())]);
    }

    #[test]
    fn arguments_that_make_no_sense_are_told_how_it_is_used() {
        for (line, usage) in [
            ("sleep soon", "sleep MS"),
            ("stream 5", "stream N SIZE [RATE|each]"),
            ("stream 1 1 1 1", "stream N SIZE [RATE|each]"),
            ("stamp 5", "stamp N RATE"),
            ("big -1", "big N"),
            ("write x", "write PATH TEXT"),
            ("plan ;;", "plan A;B;C"),
            ("redact all", "redact [clear]"),
        ] {
            assert_eq!(steps(line), [Step::Misused(usage.into())]);
        }
    }

    #[test]
    fn streams_have_three_paces_and_room_for_their_number() {
        let stream = |line: &str| {
            let Step::Stream(stream) = steps(line).remove(0) else { panic!("{line}") };
            (stream.count, stream.size, stream.pace)
        };
        assert_eq!(stream("stream 3 100"), (3, 100, Pace::Full));
        assert_eq!(stream("stream 3 100 0"), (3, 100, Pace::Full));
        assert_eq!(stream("stream 3 1 each"), (3, 9, Pace::Each));
        assert_eq!(stream("stream 3 9 50"), (3, 9, Pace::PerSecond(50)));
    }

    #[test]
    fn a_prompt_has_at_most_a_thousand_steps() {
        assert_eq!(steps(&"pid\n".repeat(2000)).len(), MAX_STEPS);
    }
}
