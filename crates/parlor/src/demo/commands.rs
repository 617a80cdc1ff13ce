//! The commands of the demo agent.

use std::time::Duration;

use crate::script::{Command, command, flag, items, millis, or, some};

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Help,
    Say(String),
    Think(String),
    Two(String),
    Redact { clear: bool },
    Image,
    Link,
    Stream(Stream),
    Tool(String),
    Ask(String),
    Elicit,
    Terminal(String),
    Plan(Vec<String>),
    Unplan,
    Title(String),
    Meta(String),
    Mode(String),
    Usage,
    Whoami,
    Sleep(Duration),
    Later { after: Duration, text: String },
    Background(u32),
    Fail { code: i64, text: String },
    Refuse,
}

/// A stream of numbered chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    /// How many.
    pub(crate) count: u32,
    /// How many bytes of text each has.
    pub(crate) size: usize,
    /// How many are sent per second; without a limit if `None`.
    pub(crate) rate: Option<u32>,
}

/// The digits and the space that a chunk of a stream begins with.
pub(crate) const NUMBER: usize = 9;
const MAX_STREAM: u32 = 10_000_000;
const MAX_SIZE: usize = 1 << 20;
const MAX_BACKGROUND: u32 = 1000;
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// Every command.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Command<Step>] = &[
    command("help", "", "lists these commands", |_| Some(Step::Help)),
    command("say", "TEXT", "streams the words of TEXT", |rest| Some(Step::Say(rest.into()))),
    command("think", "TEXT", "streams TEXT as a thought", |rest| Some(Step::Think(rest.into()))),
    command("two", "TEXT", "sends TEXT in two messages", |rest| Some(Step::Two(rest.into()))),
    command("redact", "[clear]", "sends a message and replaces (or clears) it", |rest| flag(rest, "clear").map(|clear| Step::Redact { clear })),
    command("image", "", "sends an image", |_| Some(Step::Image)),
    command("link", "", "sends a link to a resource", |_| Some(Step::Link)),
    command("stream", "N SIZE [RATE]", "sends N chunks of SIZE bytes, RATE per second", stream),
    command("tool", "[TITLE]", "makes a tool call with a diff", |rest| Some(Step::Tool(or(rest, "Edit the notes")))),
    command("ask", "[TITLE]", "makes a tool call that needs permission", |rest| Some(Step::Ask(or(rest, "Delete the notes")))),
    command("elicit", "", "sends a form to fill in", |_| Some(Step::Elicit)),
    command("terminal", "COMMAND", "runs a shell command and streams its output", |rest| some(rest).map(Step::Terminal)),
    command("plan", "A;B;C", "sends a plan and completes its steps", |rest| items(rest).map(Step::Plan)),
    command("unplan", "", "removes the plan", |_| Some(Step::Unplan)),
    command("title", "[TEXT]", "sets the session's title, or clears it", |rest| Some(Step::Title(rest.into()))),
    command("meta", "JSON", "patches the session's metadata; null removes a member", |rest| some(rest).map(Step::Meta)),
    command("mode", "NAME", "changes the mode: ask, code", |rest| some(rest).map(Step::Mode)),
    command("usage", "", "sends the usage of the context window", |_| Some(Step::Usage)),
    command("whoami", "", "prints session, directory, mode, model and message count", |_| Some(Step::Whoami)),
    command("sleep", "MS", "waits", |rest| wait(rest).map(Step::Sleep)),
    command("later", "MS TEXT", "sends TEXT after MS milliseconds, also after the turn", later),
    command("background", "N", "sends N updates in the background, five per second", |rest| rest.parse().ok().filter(|n| *n <= MAX_BACKGROUND).map(Step::Background)),
    command("fail", "CODE TEXT", "ends the turn with this error", fail),
    command("refuse", "", "ends the turn with the stop reason refusal", |_| Some(Step::Refuse)),
];

fn wait(text: &str) -> Option<Duration> {
    millis(text).filter(|time| *time <= MAX_WAIT)
}

fn later(rest: &str) -> Option<Step> {
    let (after, text) = rest.split_once(' ').unwrap_or((rest, "Later."));
    Some(Step::Later { after: wait(after)?, text: text.to_owned() })
}

fn stream(rest: &str) -> Option<Step> {
    let mut words = rest.split_whitespace();
    let count = words.next()?.parse().ok().filter(|count| *count <= MAX_STREAM)?;
    let size: usize = words.next()?.parse().ok().filter(|size| *size <= MAX_SIZE)?;
    let rate = words.next().map(|rate| rate.parse().ok().filter(|rate| *rate > 0).ok_or(())).transpose();
    let stream = Stream { count, size: size.max(NUMBER), rate: rate.ok()? };
    words.next().is_none().then_some(Step::Stream(stream))
}

fn fail(rest: &str) -> Option<Step> {
    let (code, text) = rest.split_once(' ').unwrap_or((rest, "failed as asked"));
    Some(Step::Fail { code: code.parse().ok()?, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Part, parts};

    #[test]
    fn invalid_arguments_are_answered_with_the_usage() {
        for (line, usage) in [
            ("sleep 3600001", "sleep MS"),
            ("later soon x", "later MS TEXT"),
            ("background 1001", "background N"),
            ("stream 5", "stream N SIZE [RATE]"),
            ("stream 1 1 0", "stream N SIZE [RATE]"),
            ("stream 1 1 1 1", "stream N SIZE [RATE]"),
            ("stream 1 9999999", "stream N SIZE [RATE]"),
            ("plan ;;", "plan A;B;C"),
            ("redact all", "redact [clear]"),
            ("terminal", "terminal COMMAND"),
            ("fail x", "fail CODE TEXT"),
        ] {
            assert_eq!(parts(line, COMMANDS), [Part::Misused(usage.into())]);
        }
    }

    #[test]
    fn a_stream_has_room_for_its_numbers() {
        let stream = |line: &str| parts(line, COMMANDS).remove(0);
        let is = |count, size, rate| Part::Step(Step::Stream(Stream { count, size, rate }));
        assert_eq!(stream("stream 3 100"), is(3, 100, None));
        assert_eq!(stream("stream 3 1 50"), is(3, 9, Some(50)));
    }
}
