mod watch;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_store::Filter;

use crate::command_error::CommandError;
use crate::input;
use crate::offline_sessions::OfflineSessions;
use crate::output::{self, DIM, YELLOW, ago, short_path};
use crate::path_options::{self, PathOptions};
use crate::render::safe;
use crate::session_list::{ListedSession, ListedState, LiveState};
use crate::table::{Cell, Table, terminal_width, truncate};

/// List sessions, the latest first
///
/// Prints the shortest unique prefix of each id. Other commands accept such a prefix, the whole id, or `latest` for the latest
/// session of this directory. Works with and without a running server.
///
/// States: `running`, `needs you` (the agent waits for an answer, see `parlor inbox`), `failed` (the last turn failed),
/// `interrupted` (the server was stopped or killed during a turn).
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Ls {
    #[command(flatten)]
    paths: PathOptions,
    /// List only sessions of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// List only sessions with this working directory
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// List only archived sessions
    #[arg(long)]
    archived: bool,
    /// List at most this many sessions; 0 for all [default: 50 on a terminal without `--json`, and with `--watch`; else all]
    #[arg(long, value_name = "N", value_parser = input::parse_count, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// List forks below the sessions that they were forked from, with the last message that they share
    #[arg(long)]
    tree: bool,
    /// Follow the list until Ctrl-C: draw it again on a terminal, print one line per change into a pipe
    #[arg(long, conflicts_with = "tree")]
    watch: bool,
    /// Print a list of objects as JSON; with `--watch` one object per line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor ls --cwd .
  parlor ls --watch
  parlor ls --json | jq -r '.[] | select(.state == \"needs_you\") | .sessionId'";

/// How many sessions are listed on a terminal.
const ON_TERMINAL: usize = 50;

/// The width below which only ids, marks and titles are printed.
const NARROW: usize = 60;

/// The listed sessions.
struct Listing {
    sessions: Vec<ListedSession>,
    /// Whether there are more than the limit.
    has_more: bool,
    /// How many sessions need a person, also those that are not listed.
    needs_you: usize,
    /// The length of the printed ids.
    id_length: usize,
    /// Whether forks are listed below their parents.
    is_tree: bool,
}

impl Ls {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let filter = self.filter()?;
        if self.watch {
            return self.follow(&filter);
        }
        let mut listing = self.list(&filter, &LiveState::query(&self.paths)?)?;
        if self.tree {
            listing.sessions = tree(listing.sessions);
        }
        if self.json {
            output::print_json(&listing.sessions)?;
        } else if listing.sessions.is_empty() {
            output::print(|out| writeln!(out, "{}", self.empty_message()))?;
        } else {
            output::print(|out| listing.write(terminal_width(), usize::MAX, out))?;
            if listing.has_more {
                print_stderr!("{DIM}There are more sessions; --limit 0 lists all.{DIM:#}");
            }
            if listing.needs_you > 0 && terminal_width().is_some() {
                let verb = if listing.needs_you == 1 { "needs" } else { "need" };
                print_stderr!("{YELLOW}{} {verb} you{YELLOW:#}: parlor inbox", listing.needs_you);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn filter(&self) -> Result<Filter, CommandError> {
        let cwd = self.cwd.as_deref().map(path_options::canonical_directory).transpose()?;
        Ok(Filter {
            agent: self.agent.as_deref().map(|agent| self.paths.agent_name(agent)),
            cwd: cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
            archived: Some(self.archived),
            ..Filter::default()
        })
    }

    fn list(&self, filter: &Filter, live: &LiveState) -> Result<Listing, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        let is_for_people = terminal_width().is_some() && !self.json;
        let limit = match self.limit {
            None if is_for_people || self.watch => ON_TERMINAL,
            None | Some(0) => usize::MAX,
            Some(limit) => limit,
        };
        let mut rows = sessions.list(filter, limit.saturating_add(1))?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let listed = rows.iter().map(|row| ListedSession::new(&sessions, row, live));
        let listed = listed.collect::<Result<_, _>>()?;
        let needs_you = live.waiting_sessions();
        Ok(Listing {
            sessions: listed,
            has_more,
            needs_you,
            id_length: sessions.id_length()?,
            is_tree: self.tree,
        })
    }

    fn empty_message(&self) -> &'static str {
        if self.agent.is_some() || self.cwd.is_some() || self.archived {
            "No sessions match."
        } else {
            "There are no sessions yet. `parlor prompt --new TEXT` starts one, and so does an editor with `parlor acp`."
        }
    }
}

impl Listing {
    /// Writes at most `rows` sessions: as a table, or on a narrow terminal one line each.
    fn write(&self, width: Option<usize>, rows: usize, out: &mut dyn Write) -> std::io::Result<()> {
        match width {
            Some(width) if width < NARROW => {
                self.sessions.iter().take(rows).try_for_each(|session| self.write_line(session, width, out))
            }
            _ => self.table(width.is_some(), rows).write_within(width, out),
        }
    }

    fn short_id(&self, session: &ListedSession) -> String {
        session.session_id.chars().take(self.id_length).collect()
    }

    fn write_line(&self, session: &ListedSession, width: usize, out: &mut dyn Write) -> std::io::Result<()> {
        let (mark, style) = session.state.mark();
        let id = safe(&self.short_id(session));
        let room = width.saturating_sub(id.chars().count() + 4);
        let title = format!("{}{}", session.branches, session.name().unwrap_or("(no prompt yet)"));
        writeln!(out, "{id}  {style}{mark}{style:#} {}", truncate(&safe(&title.replace('\n', " ")), room))
    }

    /// The table: on a terminal with marks and without idle states, in a pipe with a word for every state. A tree says where forks
    /// begin.
    fn table(&self, is_terminal: bool, rows: usize) -> Table {
        let columns = ["ID", "~TITLE", "STATE", "~AGENT", "FORKED", "ACTIVE", "~DIRECTORY"];
        let columns: Vec<_> = columns.into_iter().filter(|name| self.is_tree || *name != "FORKED").collect();
        let mut table = Table::new(&columns);
        table.drop_if_narrow(&["DIRECTORY", "AGENT", "ACTIVE"]);
        let now = output::now();
        for session in self.sessions.iter().take(rows) {
            let branches = &session.branches;
            let title = match session.name() {
                Some(name) => format!("{branches}{name}").into(),
                None if !session.adopted => Cell::styled("(no title)", DIM),
                None => Cell::styled(&format!("{branches}(no prompt yet)"), DIM),
            };
            let state = if is_terminal {
                Cell::styled(&session.state_text(now), session.state.mark().1)
            } else if session.state == ListedState::Idle && !session.adopted {
                "at-the-agent".into()
            } else {
                session.state.word().into()
            };
            let mut cells = vec![self.short_id(session).into(), title, state, session.agent.as_str().into()];
            if self.is_tree {
                cells.push(forked(session).into());
            }
            cells.extend([ago(session.active_at, now).into(), short_path(&session.cwd).into()]);
            table.push(cells);
        }
        table
    }
}

/// Where a fork begins: after which message.
fn forked(session: &ListedSession) -> String {
    match session.forked_messages {
        Some(0) => "at the start".to_owned(),
        Some(number) => format!("at #{number}"),
        None => String::new(),
    }
}

/// Sorts forks below the sessions that they were forked from. Forks of sessions that are not listed are roots.
fn tree(listed: Vec<ListedSession>) -> Vec<ListedSession> {
    let ids: HashSet<String> = listed.iter().map(|session| session.session_id.clone()).collect();
    let mut forks: HashMap<String, Vec<ListedSession>> = HashMap::new();
    let mut roots = Vec::new();
    for session in listed {
        match session.parent.clone().filter(|parent| ids.contains(parent)) {
            Some(parent) => forks.entry(parent).or_default().push(session),
            None => roots.push(session),
        }
    }
    let mut sorted = Vec::new();
    // A stack of sessions, each with the branch characters of its forks.
    let mut next: Vec<(String, ListedSession)> =
        roots.into_iter().rev().map(|root| (String::new(), root)).collect();
    while let Some((below, session)) = next.pop() {
        let forks = forks.remove(&session.session_id).unwrap_or_default();
        for (index, mut fork) in forks.into_iter().rev().enumerate() {
            let (branch, on) = if index == 0 { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            fork.branches = format!("{below}{branch}");
            next.push((format!("{below}{on}"), fork));
        }
        sorted.push(session);
    }
    sorted
}
