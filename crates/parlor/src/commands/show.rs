use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;

use clap::Args;
use parlor_client::OpenRequest;
use parlor_json::Object;
use parlor_server::stored::StoredSession;
use parlor_session::session::QueuedPrompt;
use parlor_session::{MessageNumbers, Slot, Transcript};
use parlor_view::money::money;

use crate::command_error::CommandError;
use crate::offline_sessions::{self, LatestOption, OfflineSessions};
use crate::output::{self, BOLD, DIM, YELLOW, ago, clock_time, count, short_path};
use crate::path_options::PathOptions;
use crate::render::{self, Details, safe};
use crate::session_list::{ListedSession, LiveState};
use crate::{message_name, open_request, pager, session_json};

/// Print the transcript of a session
///
/// Messages have numbers, by which `fork`, `edit`, `regenerate` and `show` itself select them. Tool calls are shortened; `--tools`
/// prints them in full. On a terminal, a long transcript is shown in `$PAGER` (`less -R` if it is not set).
///
/// Reads the stored session, and asks a running server for open requests. Starts neither a server nor an agent.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Show {
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    latest: LatestOption,
    /// Select the session: its id, a unique prefix of its id or name, or `latest`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Print only these messages, and what is between them: `7`, `7..9`, `7..`, or `-1` for the last one
    ///
    /// A message is selected by its number, with or without `#`, or by a prefix of its id. Quote `#`, which starts a comment in a
    /// shell.
    #[arg(value_name = "MESSAGES", allow_negative_numbers = true, conflicts_with = "json")]
    messages: Option<String>,
    /// Print only the last N entries
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["messages", "json"])]
    entries: Option<usize>,
    /// Print the ids of messages and tool calls
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print the inputs and the complete outputs of tool calls
    #[arg(long, conflicts_with = "json")]
    tools: bool,
    /// Print everything at once, also on a terminal
    #[arg(long)]
    no_pager: bool,
    /// Print the session as one JSON object, as `parlor export --format json`
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor show latest
  parlor show latest -1
  parlor show latest '#7..#9' --tools
  parlor show latest -n 20 --no-pager";

impl Show {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        let opened = sessions.read(&sessions.find(&self.session, self.latest.scope())?)?;
        let transcript = offline_sessions::v2_transcript(&opened);
        let live = LiveState::query(&self.paths)?;
        let session = ListedSession::new(&sessions, &opened.row, &live)?;
        if self.json {
            let json = session_json::session(&session, &opened, &transcript);
            output::print_raw_json(&format!("{}\n", json.as_str()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let shown = self.range(&transcript)?;
        let now = output::now();
        let numbers = MessageNumbers::of(&transcript);
        let details =
            Details { numbers: Some(&numbers), times: times(&opened, now), ids: self.ids, tools: self.tools };
        pager::print(!self.no_pager, |mut out| {
            if self.messages.is_none() {
                write_header(&session, &transcript, numbers.last(), now, &mut out)?;
                write_requests(live.requests_of(&session.session_id), &mut out)?;
            }
            if shown.start > 0 && self.messages.is_none() {
                let entries = if shown.start == 1 { "entry" } else { "entries" };
                writeln!(out, "{DIM}… {} earlier {entries}{DIM:#}\n", shown.start)?;
            }
            render::entries(&transcript.entries()[shown], &details, &mut out)?;
            if self.messages.is_none() { write_queue(&opened, &mut out) } else { Ok(()) }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// The entries that are printed, as indexes.
    fn range(&self, transcript: &Transcript) -> Result<Range<usize>, CommandError> {
        let all = transcript.entries().len();
        match (&self.messages, self.entries) {
            (Some(name), _) => message_name::find_range(transcript, name),
            (None, Some(last)) => Ok(all.saturating_sub(last)..all),
            (None, None) => Ok(0..all),
        }
    }
}

/// The times of entries, for people.
fn times(opened: &StoredSession, now: i64) -> std::collections::HashMap<parlor_session::EntryId, String> {
    let entries = opened.transcript.entries().iter();
    entries.filter_map(|entry| Some((entry.id().clone(), clock_time(entry.created_at()?.0, now)))).collect()
}

/// Prints the prompts that wait for the end of the turn.
fn write_queue(opened: &StoredSession, out: &mut impl Write) -> io::Result<()> {
    let queued = opened.side_state.as_ref().map(QueuedPrompt::stored_in).unwrap_or_default();
    for prompt in queued {
        writeln!(out, "{DIM}queued{DIM:#}")?;
        for line in prompt.text.lines() {
            writeln!(out, "  {}", safe(line))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Prints the requests of the agent that wait for a person.
fn write_requests(requests: &[OpenRequest], out: &mut impl Write) -> io::Result<()> {
    for request in requests {
        let summary = open_request::summary(request).replace('\n', " ");
        writeln!(
            out,
            "{YELLOW}! {}{YELLOW:#} {DIM}(`parlor answer {}` answers it){DIM:#}\n",
            safe(&summary),
            safe(&request.id)
        )?;
    }
    Ok(())
}

fn write_header(
    session: &ListedSession,
    transcript: &Transcript,
    messages: usize,
    now: i64,
    out: &mut impl Write,
) -> io::Result<()> {
    if let Some(title) = session.name() {
        writeln!(out, "{BOLD}{}{BOLD:#}", safe(&title.replace('\n', " ")))?;
    }
    let place = [
        Some(session.session_id.clone()),
        Some(session.agent.clone()),
        session.model.clone(),
        session.mode.as_ref().map(|mode| format!("mode {mode}")),
        Some(short_path(&session.cwd)),
    ];
    writeln!(out, "{DIM}{}{DIM:#}", joined(place))?;
    let usage = transcript.slot(Slot::Usage).map(|usage| &usage.fields);
    let (mark, style) = session.state.mark();
    let state = session.state_text(now);
    let has_state = !state.is_empty() && mark != " ";
    if has_state {
        write!(out, "{style}{}{style:#} {DIM}·{DIM:#} ", safe(&state))?;
    }
    let figures = [
        Some(count(messages, "message")),
        usage.and_then(context),
        usage.and_then(|usage| cost(&usage.get_object("cost")?)),
        Some(format!("active {}", ago(session.active_at, now))),
    ];
    writeln!(out, "{DIM}{}{DIM:#}\n", joined(figures))
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().map(|part| safe(&part)).collect::<Vec<_>>().join(" · ")
}

/// How full the context window is.
fn context(usage: &Object) -> Option<String> {
    let (used, size) = (usage.get_u64("used")?, usage.get_u64("size").filter(|size| *size > 0)?);
    Some(format!("context {}%", used.saturating_mul(100) / size))
}

/// The cost of the session as the agent reported it.
fn cost(cost: &Object) -> Option<String> {
    let amount = cost.get("amount")?.as_str().parse().ok()?;
    Some(money(&cost.get_string("currency")?, amount))
}
