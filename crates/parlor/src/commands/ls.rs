use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_server::{agent_sessions, stored};
use parlor_store::{Filter, SessionRow};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::offline_sessions::{OfflineSessions, literal_text, session_id, session_title};
use crate::output::{self, DIM, GREEN, YELLOW, ago, short_path, timestamp};
use crate::path_options::{self, PathOptions};
use crate::server;
use crate::table::{Cell, Table};

/// List sessions, the latest first
///
/// Prints the shortest unique prefix of each id. Other commands accept such a prefix, the whole id, or `latest` for the first
/// session of the list. Works with and without a running server.
#[derive(Args)]
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
    /// List at most this many sessions; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// List forks below the sessions that they were forked from
    #[arg(long)]
    tree: bool,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

/// A session as it is listed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedSession {
    session_id: String,
    title: Option<String>,
    first_prompt: Option<String>,
    agent: String,
    cwd: String,
    state: &'static str,
    created_at: String,
    updated_at: String,
    parent: Option<String>,
    forked_at: Option<String>,
    /// Whether the session is stored here; false if only its agent has it.
    adopted: bool,
    #[serde(skip)]
    active_at: i64,
    /// The branch characters before the title in a tree.
    #[serde(skip)]
    branches: String,
}

impl Ls {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let sessions = OfflineSessions::open(&self.paths)?;
        let cwd = self.cwd.as_deref().map(path_options::canonical_directory).transpose()?;
        let filter = Filter {
            agent: self.agent.clone(),
            cwd: cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
            archived: Some(self.archived),
            ..Filter::default()
        };
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        let mut rows = sessions.list(&filter, limit.saturating_add(1))?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let is_running =
            self.paths.existing_data_dir()?.is_some_and(|data| server::is_running(&data.socket()));
        let mut listed: Vec<_> =
            rows.iter().map(|row| list(&sessions, row, is_running)).collect::<Result<_, _>>()?;
        if self.tree {
            listed = tree(listed);
        }
        if self.json {
            output::print_json(&listed)?;
        } else if listed.is_empty() {
            output::print(|out| writeln!(out, "{}", self.empty_message()))?;
        } else {
            let length = sessions.id_length()?;
            output::print(|out| {
                table(&listed, length).write(out)?;
                if has_more {
                    writeln!(out, "{DIM}There are more sessions; --limit 0 lists all.{DIM:#}")?;
                }
                Ok(())
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn empty_message(&self) -> &'static str {
        if self.agent.is_some() || self.cwd.is_some() || self.archived {
            "No sessions match."
        } else {
            "There are no sessions yet. `parlor prompt --new TEXT` starts one, and so does an editor with `parlor acp`."
        }
    }
}

fn list(
    sessions: &OfflineSessions,
    row: &SessionRow,
    is_server_running: bool,
) -> Result<ListedSession, CommandError> {
    let title = session_title(row);
    let first_prompt = if title.is_none() && !agent_sessions::is_agent_only(row) {
        sessions.first_prompt_line(row)?
    } else {
        None
    };
    Ok(ListedSession {
        session_id: session_id(row),
        title,
        first_prompt,
        agent: row.agent.clone(),
        cwd: row.cwd.clone(),
        state: match (row.busy, is_server_running) {
            (true, true) => "running",
            // The server was killed during the turn; the next server ends it.
            (true, false) => "interrupted",
            (false, _) => "idle",
        },
        created_at: timestamp(row.created_at),
        updated_at: timestamp(row.active_at),
        parent: row.parent.as_deref().map(literal_text),
        forked_at: stored::SessionData::of(row).forked_at.map(|message| message.to_text().into_owned()),
        adopted: !agent_sessions::is_agent_only(row),
        active_at: row.active_at,
        branches: String::new(),
    })
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

fn table(listed: &[ListedSession], id_length: usize) -> Table {
    let mut table = Table::new(&["ID", "~TITLE", "~AGENT", "~DIRECTORY", "ACTIVE", "STATE"]);
    let now = output::now();
    for session in listed {
        let id: String = session.session_id.chars().take(id_length).collect();
        let branches = &session.branches;
        let title = match (&session.title, &session.first_prompt) {
            (None, None) if !session.adopted => Cell::styled("(no title)", DIM),
            (Some(title), _) | (None, Some(title)) => format!("{branches}{title}").into(),
            (None, None) => Cell::styled(&format!("{branches}(no prompt yet)"), DIM),
        };
        let state = match session.state {
            "running" => Cell::styled("● running", GREEN),
            "interrupted" => Cell::styled("! interrupted", YELLOW),
            _ if !session.adopted => Cell::styled("at the agent", DIM),
            _ => "".into(),
        };
        table.row([
            id.into(),
            title,
            session.agent.as_str().into(),
            short_path(&session.cwd).into(),
            ago(session.active_at, now).into(),
            state,
        ]);
    }
    table
}
