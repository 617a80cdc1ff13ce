//! Prints a turn while it runs: the answer to standard output, everything else to standard error.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use anstyle::Style;
use parlor_dialect::view;
use parlor_json::Json;
use parlor_session::{Body, Content, EntryId, Patch, Role, Target, Transcript, Update};
use parlor_wire::{RpcError, code};
use rustix::fs::fstat;
use terminal_size::terminal_size_of;

use crate::command_error::with_actor;
use crate::live_turn::LiveTurn;
use crate::output::{CYAN, DIM, PLAIN, YELLOW};
use crate::render::{self, block_text, safe};
use crate::table::truncate;

/// Prints one turn.
pub(crate) struct TurnPrinter {
    /// Whether the answer is streamed.
    prints_answer: bool,
    /// Whether a session is followed and not one turn: prompts, and failed, refused and cancelled turns are printed as well, whose
    /// end the caller prints otherwise.
    follows_session: bool,
    terminals: Terminals,
    /// The message that was printed last.
    message: Option<EntryId>,
    /// Whether standard output is in the middle of a line.
    in_line: bool,
    /// The running tool call on the current line, which can be overwritten.
    open_tool_call: Option<EntryId>,
    /// The line that was last printed for each tool call and plan.
    printed: HashMap<EntryId, String>,
    /// Prints everything on a terminal instead.
    live: Option<LiveTurn>,
}

/// Which streams are terminals.
struct Terminals {
    out: bool,
    err: bool,
    /// Whether both streams are the same file, as with `2>&1`.
    are_same: bool,
}

impl Terminals {
    fn new() -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        let is_same = fstat(&out).ok().zip(fstat(&err).ok());
        Self {
            out: out.is_terminal(),
            err: err.is_terminal(),
            are_same: is_same.is_some_and(|(out, err)| (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)),
        }
    }

    const fn are_both(&self) -> bool {
        self.out && self.err
    }

    /// Whether a person sees the output of both streams together, so that it must not be mixed on a line.
    const fn are_mixed(&self) -> bool {
        self.are_both() || self.are_same
    }
}

impl TurnPrinter {
    /// Creates a printer for a turn in a directory; without `prints_answer` it prints everything except the answer.
    pub(crate) fn of_turn(prints_answer: bool, cwd: &str) -> Self {
        Self { live: LiveTurn::open(cwd).filter(|_| prints_answer), ..Self::new(prints_answer) }
    }

    fn new(prints_answer: bool) -> Self {
        Self {
            prints_answer,
            follows_session: false,
            terminals: Terminals::new(),
            message: None,
            in_line: false,
            open_tool_call: None,
            printed: HashMap::new(),
            live: None,
        }
    }

    /// Creates a printer for a session that is followed, with the prompts of all clients and the ends of turns.
    pub(crate) fn of_session() -> Self {
        Self { follows_session: true, ..Self::new(true) }
    }

    /// Prints an update that was applied to the transcript.
    pub(crate) fn print(&mut self, update: &Update, transcript: &Transcript) -> io::Result<()> {
        if let Some(live) = &mut self.live {
            return live.update(transcript);
        }
        match update {
            Update::Upsert { target: Target::Entry(id @ EntryId::Message(..)), upsert } => {
                if let Patch::Value(content) = &upsert.content {
                    self.print_text(id, &text(content))?;
                }
            }
            Update::Append { entry: id @ EntryId::Message(..), item, .. } => {
                self.print_text(id, &block_text(item.as_str()))?;
            }
            Update::Upsert { target: Target::Entry(id), .. } => self.print_entry(id, transcript)?,
            Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::Upsert { target: Target::Slot(_), .. }
            | Update::State(_) => {}
        }
        io::stdout().flush()
    }

    /// Prints a line about the turn.
    pub(crate) fn notice(&mut self, line: &str, style: Style) -> io::Result<()> {
        if let Some(live) = &mut self.live {
            live.hide()?;
        }
        self.end_line()?;
        writeln!(anstream::stderr(), "{style}{}{style:#}", safe(line))
    }

    /// Prints a line about the turn, below what it still changes.
    pub(crate) fn status(&mut self, line: &str, transcript: &Transcript) -> io::Result<()> {
        match &mut self.live {
            Some(live) => live.set_notice(line, transcript),
            None => self.notice(line, DIM),
        }
    }

    /// Whether a person follows the turn on a terminal.
    pub(crate) const fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// When [`tick`](Self::tick) is due, on a terminal.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        self.live.as_ref().map(LiveTurn::next_tick)
    }

    /// Shows on a terminal that the turn is running.
    pub(crate) fn tick(&mut self, transcript: &Transcript) -> io::Result<()> {
        self.live.as_mut().map_or(Ok(()), |live| live.update(transcript))
    }

    /// Makes room for something else than the turn.
    pub(crate) fn pause(&mut self, transcript: &Transcript) -> io::Result<()> {
        match &mut self.live {
            Some(live) => live.pause(transcript),
            None => self.finish(),
        }
    }

    /// Prints what is left of the turn.
    pub(crate) fn end(&mut self, transcript: &Transcript) -> io::Result<()> {
        if let Some(live) = &mut self.live {
            live.end(transcript)?;
        }
        self.finish()
    }

    /// Completes the current line.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.end_tool_line()?;
        if self.in_line {
            self.in_line = false;
            writeln!(anstream::stdout())?;
        }
        io::stdout().flush()
    }

    fn print_text(&mut self, id: &EntryId, text: &str) -> io::Result<()> {
        let style = match id {
            EntryId::Message(Role::Agent, _) if self.prints_answer => PLAIN,
            EntryId::Message(Role::User, _) if self.follows_session => CYAN,
            // Thoughts are printed only for people.
            EntryId::Message(Role::Thought, _) if self.prints_answer && self.terminals.are_both() => DIM,
            EntryId::Message(..)
            | EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => return Ok(()),
        };
        self.end_tool_line()?;
        let mut out = anstream::stdout().lock();
        if self.message.as_ref().is_some_and(|last| last != id) {
            // An empty line separates messages.
            write!(out, "{}", if self.in_line { "\n\n" } else { "\n" })?;
        }
        if matches!(id, EntryId::Message(Role::User, _)) && self.message.as_ref() != Some(id) {
            write!(out, "{style}› {style:#}")?;
        }
        self.message = Some(id.clone());
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            write!(out, "{style}{}{style:#}", safe(line.trim_end_matches('\r')))?;
        }
        if !text.is_empty() {
            self.in_line = !text.ends_with('\n');
        }
        Ok(())
    }

    fn print_entry(&mut self, id: &EntryId, transcript: &Transcript) -> io::Result<()> {
        let Some(entry) = transcript.get(id) else { return Ok(()) };
        let line = match id {
            EntryId::ToolCall(call) => render::tool_line(&call.to_string(), entry.body()),
            EntryId::Plan(_) => render::plan_line(entry.body()),
            EntryId::Event(_) if !self.follows_session && is_turn_end(entry.body()) => return Ok(()),
            EntryId::Event(_) => render::event_line(entry.body()),
            EntryId::Note(_) if view::kind_name(entry).inner() == "notice" => {
                render::notice_line(entry.body())
            }
            EntryId::Message(..)
            | EntryId::Terminal(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Note(_) => return Ok(()),
        };
        if self.printed.get(id) == Some(&line.text) {
            return Ok(());
        }
        self.printed.insert(id.clone(), line.text.clone());
        let is_open = line.is_open && matches!(id, EntryId::ToolCall(_));
        if is_open && !self.terminals.err {
            // A line that cannot be overwritten is printed once, when the tool call has ended.
            return Ok(());
        }
        let overwrites = self.open_tool_call.as_ref() == Some(id);
        if !overwrites {
            self.end_line()?;
        }
        let width = terminal_size_of(io::stderr()).map_or(usize::MAX, |(width, _)| usize::from(width.0) - 1);
        let text = truncate(&line.text, if self.terminals.err { width } else { usize::MAX });
        let (prefix, style) = (if overwrites { "\r\u{1b}[K" } else { "" }, line.style);
        let mut err = anstream::stderr();
        write!(err, "{prefix}{style}{text}{style:#}")?;
        self.open_tool_call = is_open.then(|| id.clone());
        if is_open { err.flush() } else { writeln!(err) }
    }

    /// Ends the line of a running tool call, which is not overwritten any more.
    fn end_tool_line(&mut self) -> io::Result<()> {
        if self.open_tool_call.take().is_some() { writeln!(anstream::stderr()) } else { Ok(()) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.end_tool_line()?;
        if self.terminals.are_mixed() && self.in_line {
            self.in_line = false;
            writeln!(anstream::stdout())?;
        }
        Ok(())
    }

    /// Prints the tool calls that have not ended and were not printed for that reason.
    pub(crate) fn print_unfinished(&mut self, transcript: &Transcript) -> io::Result<()> {
        if self.terminals.err {
            return Ok(());
        }
        for entry in transcript.entries() {
            let EntryId::ToolCall(call) = entry.id() else { continue };
            let line = render::tool_line(&call.to_string(), entry.body());
            if line.is_open {
                self.notice(&line.text, YELLOW)?;
            }
        }
        Ok(())
    }
}

/// The text of a message.
pub(crate) fn text(content: &Content) -> String {
    content.joined().iter().map(|item| block_text(item.json)).collect()
}

/// Says how a turn ended that the agent did not complete.
pub(crate) fn end_line(reason: &str, error: Option<&str>) -> String {
    let line = match reason {
        "cancelled" => "the turn was cancelled",
        "refusal" => "the agent refused",
        "error" => "the turn failed",
        "max_tokens" => "the turn ended: the limit of tokens was reached",
        "max_turn_requests" => "the turn ended: the limit of requests to the model was reached",
        other => &format!("the turn ended: {other}"),
    };
    match error {
        Some(error) => format!("{line}: {}", with_actor(error)),
        None => line.to_owned(),
    }
}

/// The error message of a state.
pub(crate) fn error_of(state: &parlor_session::State) -> Option<String> {
    let error = state.fields.get("error").map(Json::raw)?;
    let message = parlor_json::Members::of(error).ok()?.get_str("message")?;
    Some(message.into_owned())
}

/// Whether a turn failed because the agent requires a login. The code also stands for other errors; the server adds the methods.
pub(crate) fn is_login_required(state: &parlor_session::State) -> bool {
    let error = state.fields.get("error").map(|error| RpcError::from_raw(error.raw()));
    let has_methods = |error: &RpcError| {
        let data = error.data().and_then(Json::to_object);
        data.is_some_and(|data| data.get_array("methods").is_some())
    };
    error.is_some_and(|error| error.code() == code::AUTH_REQUIRED && has_methods(&error))
}

/// Whether an event is the end of a turn.
pub(crate) fn is_turn_end(body: &Body) -> bool {
    render::field(body, "type").is_some_and(|kind| kind.starts_with("turn_"))
}
