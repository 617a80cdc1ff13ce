//! The commands of the test agent.

use std::time::Duration;

use crate::script::{Command, command, flag, items, millis, or, some};

/// A step of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Help,
    Say(String),
    Think(String),
    Tool(String),
    Ask(String),
    AskOpen(String),
    Elicit,
    Title(String),
    Meta(String),
    Plan(Vec<String>),
    Unplan,
    Terminal(String),
    Read(String),
    Write { path: String, text: String },
    Redact { clear: bool },
    Later { after: Duration, text: String },
    Background(u32),
    Stream(Stream),
    Stamp(Stamp),
    Big(usize),
    Image,
    Link,
    Sleep(Duration),
    AwaitSteering,
    Usage,
    Commands,
    Mode(String),
    SameId(String),
    Two(String),
    EchoUser,
    Fail { code: i64, text: String },
    Refuse,
    Crash { code: i32 },
    CrashSilently,
    Hang,
    Garbage,
    Raw(String),
    Stderr(String),
    Env(String),
    Pid,
    Child { own_session: bool },
    Ext(String),
    Whoami,
}

/// Numbered chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) count: u32,
    /// The bytes of text per chunk.
    pub(crate) size: usize,
    pub(crate) rate: StreamRate,
}

/// Numbered chunks with the time at which they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) count: u32,
    /// Chunks per second.
    pub(crate) rate: u32,
    /// The bytes of text per chunk.
    pub(crate) size: usize,
    /// The time of the first chunk, in nanoseconds of the monotonic clock; it is sent at once if that time has passed.
    pub(crate) at: u64,
}

/// The rate of a stream, and how its chunks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamRate {
    /// As fast as possible, many in one write.
    Full,
    /// As fast as possible, each by a write of its own.
    Each,
    /// This many chunks per second.
    PerSecond(u32),
}

/// The digits and the space that a chunk of a stream begins with.
pub const STREAM_NUMBER: usize = 9;
/// The bytes of the shortest stamped chunk: its number, a space and the time in twenty digits.
pub const STAMPED: usize = STREAM_NUMBER + 20;
const MAX_STREAM: u32 = 100_000_000;
const MAX_SIZE: usize = 16 << 20;
const MAX_BIG: usize = 256 << 20;

/// All commands.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Command<Step>] = &[
    command("help", "", "lists these commands", |_| Some(Step::Help)),
    command("say", "TEXT", "sends TEXT, one chunk per word", |rest| Some(Step::Say(rest.into()))),
    command("think", "TEXT", "the same, as a thought", |rest| Some(Step::Think(rest.into()))),
    command("two", "TEXT", "sends TEXT in two messages in a row", |rest| Some(Step::Two(rest.into()))),
    command("same-id", "TEXT", "sends a thought and a message with the same id, as some agents do", |rest| Some(Step::SameId(rest.into()))),
    command("echo-user", "", "sends the prompt back as the user's message", |_| Some(Step::EchoUser)),
    command("redact", "[clear]", "sends a message and replaces (or clears) it; v2", |rest| flag(rest, "clear").map(|clear| Step::Redact { clear })),
    command("tool", "[TITLE]", "sends a tool call from pending to completed, with a diff", |rest| Some(Step::Tool(or(rest, "Edit the notes")))),
    command("ask", "[TITLE]", "sends a tool call that needs permission", |rest| Some(Step::Ask(or(rest, "Delete the notes")))),
    command("ask-open", "[TITLE]", "the same, but leaves the tool call open when it is cancelled", |rest| Some(Step::AskOpen(or(rest, "Delete the notes")))),
    command("elicit", "", "asks the user to fill in a form", |_| Some(Step::Elicit)),
    command("plan", "A;B;C", "sends a plan and completes its entries", |rest| items(rest).map(Step::Plan)),
    command("unplan", "", "removes the plan; v2", |_| Some(Step::Unplan)),
    command("terminal", "COMMAND", "runs a shell command: in the client's terminal in v1, in its own in v2", |rest| some(rest).map(Step::Terminal)),
    command("read", "PATH", "reads a file through the client; v1", |rest| some(rest).map(Step::Read)),
    command("write", "PATH TEXT", "writes a file through the client; v1", write),
    command("title", "[TEXT]", "sets the session's title, or clears it", |rest| Some(Step::Title(rest.into()))),
    command("meta", "JSON", "sends session information with this metadata", |rest| some(rest).map(Step::Meta)),
    command("mode", "NAME", "changes the mode: ask, code", |rest| some(rest).map(Step::Mode)),
    command("commands", "", "sends the list of commands again", |_| Some(Step::Commands)),
    command("usage", "", "reports the use of the context window", |_| Some(Step::Usage)),
    command("image", "", "sends an image", |_| Some(Step::Image)),
    command("link", "", "sends a link to a resource", |_| Some(Step::Link)),
    command("sleep", "MS", "waits", |rest| millis(rest).map(Step::Sleep)),
    command("await-steering", "", "waits for a prompt that steers the turn, and sends its text", |_| Some(Step::AwaitSteering)),
    command("later", "MS TEXT", "sends TEXT this long after the turn has ended", later),
    command("background", "N", "sends N messages after the turn has ended", |rest| rest.parse().ok().map(Step::Background)),
    command("stream", "N SIZE [RATE|each]", "sends N chunks of SIZE bytes, RATE per second or one write each", stream),
    command("stamp", "N RATE [SIZE [AT]]", "sends N chunks, RATE per second, each with the time at which it was written", stamp),
    command("big", "N", "sends one chunk of N bytes", |rest| rest.parse().ok().filter(|n| *n <= MAX_BIG).map(Step::Big)),
    command("fail", "CODE TEXT", "ends the turn with this error", fail),
    command("refuse", "", "ends the turn with the stop reason refusal", |_| Some(Step::Refuse)),
    command("hang", "", "sends `Hanging.` and never ends the turn, not even when it is cancelled", |_| Some(Step::Hang)),
    command("crash", "[CODE]", "flushes its output, writes a line to stderr, and exits with CODE (1)", |rest| or(rest, "1").parse().ok().map(|code| Step::Crash { code })),
    command("crash-silently", "", "exits with 1, without flushing its output or writing to stderr", |_| Some(Step::CrashSilently)),
    command("garbage", "", "writes a line that is not JSON and one that is not a message", |_| Some(Step::Garbage)),
    command("raw", "PARAMS", "sends a session/update with these params; SESSION is the id", |rest| some(rest).map(Step::Raw)),
    command("stderr", "TEXT", "writes to standard error", |rest| Some(Step::Stderr(rest.into()))),
    command("env", "NAME", "sends the value of an environment variable", |rest| some(rest).map(Step::Env)),
    command("pid", "", "sends the process id", |_| Some(Step::Pid)),
    command("child", "[setsid]", "starts `sleep 1000` and sends its process id", |rest| flag(rest, "setsid").map(|own_session| Step::Child { own_session })),
    command("ext", "METHOD", "sends the request METHOD to the client, and its response", |rest| some(rest).map(Step::Ext)),
    command("whoami", "", "sends session, directory, protocol and message count", |_| Some(Step::Whoami)),
];

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
    let rate = match words.get(2).copied() {
        None | Some("0") => StreamRate::Full,
        Some("each") => StreamRate::Each,
        Some(per_second) => StreamRate::PerSecond(per_second.parse().ok()?),
    };
    let count = words.first()?.parse().ok().filter(|count| *count <= MAX_STREAM)?;
    let size: usize = words.get(1)?.parse().ok().filter(|size| *size <= MAX_SIZE)?;
    (words.len() <= 3).then_some(Step::Stream(Stream { count, size: size.max(STREAM_NUMBER), rate }))
}

fn stamp(rest: &str) -> Option<Step> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| words.get(index).map(|word| word.parse::<u64>().ok());
    let count = number(0)??.try_into().ok().filter(|count| *count <= MAX_STREAM)?;
    let rate = number(1)??.try_into().ok()?;
    let size: usize = number(2).unwrap_or(Some(0))?.try_into().ok().filter(|size| *size <= MAX_SIZE)?;
    let at = number(3).unwrap_or(Some(0))?;
    (words.len() <= 4).then_some(Step::Stamp(Stamp { count, rate, size: size.max(STAMPED), at }))
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
            ("sleep soon", "sleep MS"),
            ("stream 5", "stream N SIZE [RATE|each]"),
            ("stream 1 1 1 1", "stream N SIZE [RATE|each]"),
            ("stamp 5", "stamp N RATE [SIZE [AT]]"),
            ("stamp 5 10 40 soon", "stamp N RATE [SIZE [AT]]"),
            ("stamp 5 10 40 0 0", "stamp N RATE [SIZE [AT]]"),
            ("big -1", "big N"),
            ("write x", "write PATH TEXT"),
            ("plan ;;", "plan A;B;C"),
            ("redact all", "redact [clear]"),
        ] {
            assert_eq!(parts(line, COMMANDS), [Part::Misused(usage.into())]);
        }
    }

    #[test]
    fn stamped_chunks_have_room_for_the_time_and_may_start_later() {
        let stamp = |line: &str| {
            let Part::Step(Step::Stamp(stamp)) = parts(line, COMMANDS).remove(0) else { panic!("{line}") };
            stamp
        };
        assert_eq!(stamp("stamp 5 10"), Stamp { count: 5, rate: 10, size: STAMPED, at: 0 });
        assert_eq!(stamp("stamp 5 10 40 99"), Stamp { count: 5, rate: 10, size: 40, at: 99 });
    }

    #[test]
    fn streams_have_three_rates_and_room_for_their_number() {
        let stream = |line: &str| {
            let Part::Step(Step::Stream(stream)) = parts(line, COMMANDS).remove(0) else { panic!("{line}") };
            (stream.count, stream.size, stream.rate)
        };
        assert_eq!(stream("stream 3 100"), (3, 100, StreamRate::Full));
        assert_eq!(stream("stream 3 100 0"), (3, 100, StreamRate::Full));
        assert_eq!(stream("stream 3 1 each"), (3, 9, StreamRate::Each));
        assert_eq!(stream("stream 3 9 50"), (3, 9, StreamRate::PerSecond(50)));
    }
}
