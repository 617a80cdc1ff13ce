//! A turn as it happens, for people: the answer on standard output, everything about it on standard error.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};

use anstyle::Style;
use parlor_dialect::view;
use parlor_json::Json;
use parlor_session::{Body, Content, EntryId, Patch, Role, Target, Transcript, Update};
use terminal_size::terminal_size_of;

use crate::output::{DIM, PLAIN, YELLOW};
use crate::render::{self, block_text, safe};
use crate::table::cut;

/// Where a turn is shown.
pub(crate) struct TurnPrinter {
    /// Whether the answer is shown as it comes.
    answers: bool,
    terminals: Terminals,
    /// The message that was last written to.
    message: Option<EntryId>,
    /// Whether standard output is in the middle of a line.
    in_line: bool,
    /// The tool call whose line can still be written again.
    open: Option<EntryId>,
    /// How tool calls and plans were last shown.
    shown: HashMap<EntryId, String>,
}

/// Which streams are terminals.
struct Terminals {
    out: bool,
    err: bool,
}

impl Terminals {
    /// Whether the answer and the rest share one, so that neither must stand in a line of the other.
    const fn share(&self) -> bool {
        self.out && self.err
    }
}

impl TurnPrinter {
    /// A screen; without `answers` it only shows what happens besides.
    pub(crate) fn new(answers: bool) -> Self {
        Self {
            answers,
            terminals: Terminals { out: io::stdout().is_terminal(), err: io::stderr().is_terminal() },
            message: None,
            in_line: false,
            open: None,
            shown: HashMap::new(),
        }
    }

    /// Shows what is new; the transcript has it already.
    pub(crate) fn show(&mut self, update: &Update, transcript: &Transcript) -> io::Result<()> {
        match update {
            Update::Upsert { target: Target::Entry(id @ EntryId::Message(..)), upsert } => {
                if let Patch::Value(content) = &upsert.content {
                    self.say(id, &text(content))?;
                }
            }
            Update::Append { entry: id @ EntryId::Message(..), item, .. } => {
                self.say(id, &block_text(item.as_str()))?;
            }
            Update::Upsert { target: Target::Entry(id), .. } => self.entry(id, transcript)?,
            Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::Upsert { target: Target::Slot(_), .. }
            | Update::State(_) => {}
        }
        io::stdout().flush()
    }

    /// A line about the turn.
    pub(crate) fn note(&mut self, line: &str, style: Style) -> io::Result<()> {
        self.end_line()?;
        writeln!(anstream::stderr(), "{style}{}{style:#}", safe(line))
    }

    /// The turn is over.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.close()?;
        if self.in_line {
            self.in_line = false;
            writeln!(anstream::stdout())?;
        }
        io::stdout().flush()
    }

    fn say(&mut self, id: &EntryId, text: &str) -> io::Result<()> {
        let style = match id {
            EntryId::Message(Role::Agent, _) if self.answers => PLAIN,
            // A thought is for who watches, not for a file.
            EntryId::Message(Role::Thought, _) if self.answers && self.terminals.share() => DIM,
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
        self.close()?;
        let mut out = anstream::stdout().lock();
        if self.message.as_ref().is_some_and(|last| last != id) {
            // Another message: an empty line stands between them.
            write!(out, "{}", if self.in_line { "\n\n" } else { "\n" })?;
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

    fn entry(&mut self, id: &EntryId, transcript: &Transcript) -> io::Result<()> {
        let Some(entry) = transcript.get(id) else { return Ok(()) };
        let line = match id {
            EntryId::ToolCall(call) => render::tool_line(&call.to_string(), entry.body()),
            EntryId::Plan(_) => render::plan_line(entry.body()),
            // How this turn ended is said where it ends.
            EntryId::Event(_) if is_turn_end(entry.body()) => return Ok(()),
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
        if self.shown.get(id) == Some(&line.text) {
            return Ok(());
        }
        self.shown.insert(id.clone(), line.text.clone());
        let is_open = line.is_open && matches!(id, EntryId::ToolCall(_));
        if is_open && !self.terminals.err {
            // A line that cannot be written again is written when nothing will change in it.
            return Ok(());
        }
        let again = self.open.as_ref() == Some(id);
        if !again {
            self.end_line()?;
        }
        let width = terminal_size_of(io::stderr()).map_or(usize::MAX, |(width, _)| usize::from(width.0) - 1);
        let text = cut(&line.text, if self.terminals.err { width } else { usize::MAX });
        let (back, style) = (if again { "\r\u{1b}[K" } else { "" }, line.style);
        let mut err = anstream::stderr();
        write!(err, "{back}{style}{text}{style:#}")?;
        self.open = is_open.then(|| id.clone());
        if is_open { err.flush() } else { writeln!(err) }
    }

    /// Leaves the line of a tool call as it is.
    fn close(&mut self) -> io::Result<()> {
        if self.open.take().is_some() { writeln!(anstream::stderr()) } else { Ok(()) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.close()?;
        if self.terminals.share() && self.in_line {
            self.in_line = false;
            writeln!(anstream::stdout())?;
        }
        Ok(())
    }

    /// Shows the tool calls that were not shown because they were not done yet.
    pub(crate) fn rest(&mut self, transcript: &Transcript) -> io::Result<()> {
        if self.terminals.err {
            return Ok(());
        }
        for entry in transcript.entries() {
            let EntryId::ToolCall(call) = entry.id() else { continue };
            let line = render::tool_line(&call.to_string(), entry.body());
            if line.is_open {
                self.note(&line.text, YELLOW)?;
            }
        }
        Ok(())
    }
}

/// The text of a message.
pub(crate) fn text(content: &Content) -> String {
    content.joined().iter().map(|item| block_text(item.json)).collect()
}

/// What a state says of an error.
pub(crate) fn error_of(state: &parlor_session::State) -> Option<String> {
    let error = state.fields.get("error").map(Json::raw)?;
    let message = parlor_json::Members::of(error).ok()?.get("message").and_then(parlor_json::text)?;
    Some(message.into_owned())
}

/// Whether an event says how a turn ended.
fn is_turn_end(body: &Body) -> bool {
    render::field(body, "type").is_some_and(|kind| kind.starts_with("turn_"))
}
