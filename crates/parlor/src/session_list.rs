//! Sessions as `ls` and `status` list them: stored rows, with the state that the running server reports.

use std::collections::HashMap;

use anstyle::Style;
use parlor_client::OpenRequest;
use parlor_json::{Json, JsonStr};
use parlor_server::{agent_sessions, stored};
use parlor_store::SessionRow;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::command_error::CommandError;
use crate::offline_sessions::{OfflineSessions, literal_text, session_id, session_title};
use crate::output::{CYAN, DIM, RED, YELLOW, elapsed, timestamp};
use crate::path_options::PathOptions;
use crate::server;

/// What the running server knows of sessions besides what is stored.
#[derive(Debug, Default)]
pub(crate) struct LiveState {
    is_server_running: bool,
    /// The open requests by the text of the session's id.
    requests: HashMap<String, Vec<OpenRequest>>,
}

/// The state of a session in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListedState {
    Running,
    /// The agent waits for an answer of a person.
    NeedsYou,
    Idle,
    /// The last turn failed.
    Failed,
    /// The server was killed during the turn; the next server ends it.
    Interrupted,
}

/// A session as it is listed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedSession {
    pub(crate) session_id: String,
    #[serde(skip)]
    name: Option<String>,
    pub(crate) title: Option<String>,
    first_prompt: Option<String>,
    /// The first own prompt of a fork that has the title of its parent.
    fork_name: Option<String>,
    pub(crate) agent: String,
    pub(crate) cwd: String,
    pub(crate) state: ListedState,
    open_requests: usize,
    queued: u64,
    unread: bool,
    pub(crate) mode: Option<String>,
    pub(crate) model: Option<String>,
    usage: Option<Box<RawValue>>,
    pub(crate) created_at: String,
    pub(crate) updated_at: String,
    last_prompt_at: Option<String>,
    last_turn_ended_at: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) forked_at: Option<String>,
    /// The number of the last message that a fork shares with its parent.
    pub(crate) forked_messages: Option<u64>,
    /// Whether the session is stored here; false if only its agent has it.
    pub(crate) adopted: bool,
    #[serde(skip)]
    pub(crate) active_at: i64,
    #[serde(skip)]
    prompted_at: Option<i64>,
    /// The branch characters before the title in a tree.
    #[serde(skip)]
    pub(crate) branches: String,
}

impl LiveState {
    /// Queries the running server. A server that does not respond is reported on standard error, and what is stored is used.
    pub(crate) fn query(paths: &PathOptions) -> Result<Self, CommandError> {
        let data = paths.existing_data_dir()?;
        let Some(socket) = data.map(|data| data.socket()).filter(|socket| server::is_running(socket)) else {
            return Ok(Self::default());
        };
        match server::open_requests(&socket) {
            Ok(requests) => Ok(Self::of(requests)),
            Err(error) => {
                print_stderr!("{YELLOW}{error}: requests that wait for you are not listed{YELLOW:#}");
                Ok(Self { is_server_running: true, ..Self::default() })
            }
        }
    }

    /// The state of a server with these open requests.
    pub(crate) fn of(requests: Vec<OpenRequest>) -> Self {
        let mut by_session: HashMap<String, Vec<OpenRequest>> = HashMap::new();
        for request in requests {
            by_session.entry(request.session.to_string()).or_default().push(request);
        }
        Self { is_server_running: true, requests: by_session }
    }

    /// How many sessions have open requests.
    pub(crate) fn waiting_sessions(&self) -> usize {
        self.requests.len()
    }

    /// The ids of the sessions that have open requests.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &OpenRequest> {
        self.requests.values().filter_map(|requests| requests.first())
    }

    pub(crate) fn requests_of(&self, session: &str) -> &[OpenRequest] {
        self.requests.get(session).map(Vec::as_slice).unwrap_or_default()
    }
}

impl ListedState {
    /// The word for programs and for pipes.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::NeedsYou => "needs-you",
            Self::Idle => "idle",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }

    /// The mark on a terminal.
    pub(crate) const fn mark(self) -> (&'static str, Style) {
        match self {
            Self::Running => ("●", CYAN),
            Self::NeedsYou | Self::Interrupted => ("!", YELLOW),
            Self::Idle => (" ", DIM),
            Self::Failed => ("✗", RED),
        }
    }
}

impl ListedSession {
    pub(crate) fn new(
        sessions: &OfflineSessions,
        row: &SessionRow,
        live: &LiveState,
    ) -> Result<Self, CommandError> {
        let name = sessions.display_name(row)?;
        let title = session_title(row);
        let first_prompt = name.clone().filter(|_| title.is_none());
        let fork_name = name.clone().filter(|_| title.is_some() && name != title);
        let data = stored::SessionData::of(row);
        let summary = &data.summary;
        let id = session_id(row);
        let open_requests = live.requests_of(&id).len();
        let text = |text: &Option<JsonStr>| text.as_ref().map(|text| text.to_text().into_owned());
        Ok(Self {
            name,
            title,
            first_prompt,
            fork_name,
            agent: row.agent.clone(),
            cwd: row.cwd.clone(),
            state: match (open_requests, row.busy, live.is_server_running) {
                (1.., _, _) => ListedState::NeedsYou,
                (0, true, true) => ListedState::Running,
                (0, true, false) => ListedState::Interrupted,
                (0, false, _) if summary.has_failed => ListedState::Failed,
                (0, false, _) => ListedState::Idle,
            },
            open_requests,
            queued: summary.queued,
            unread: summary.is_unread(),
            mode: text(&summary.mode),
            model: text(&summary.model),
            usage: summary.usage.as_ref().map(|usage| to_raw(&usage.to_json())),
            created_at: timestamp(row.created_at),
            updated_at: timestamp(row.active_at),
            last_prompt_at: summary.last_prompt_at.map(timestamp),
            last_turn_ended_at: summary.last_turn_ended_at.map(timestamp),
            parent: row.parent.as_deref().map(literal_text),
            forked_at: data.forked_at.as_ref().map(|message| message.to_text().into_owned()),
            forked_messages: data.forked_counts.map(|(_, messages)| messages),
            adopted: !agent_sessions::is_agent_only(row),
            active_at: row.active_at,
            prompted_at: summary.last_prompt_at,
            branches: String::new(),
            session_id: id,
        })
    }

    /// The [name](OfflineSessions::display_name) of the session.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The state for people: with its mark, how long the turn runs, and how many prompts are queued. An idle session has none.
    pub(crate) fn state_text(&self, now: i64) -> String {
        let state = self.turn_text(now);
        match self.queued {
            0 => state,
            queued if state.is_empty() => format!("{queued} queued"),
            queued => format!("{state}, {queued} queued"),
        }
    }

    fn turn_text(&self, now: i64) -> String {
        let (mark, _) = self.state.mark();
        match self.state {
            ListedState::Running => {
                let running = self.prompted_at.map(|at| format!(" {}", elapsed(at, now))).unwrap_or_default();
                format!("{mark} running{running}")
            }
            ListedState::NeedsYou => format!("{mark} needs you"),
            ListedState::Failed => format!("{mark} failed"),
            ListedState::Interrupted => format!("{mark} interrupted"),
            ListedState::Idle if !self.adopted => "at the agent".to_owned(),
            ListedState::Idle => String::new(),
        }
    }
}

fn to_raw(json: &Json) -> Box<RawValue> {
    RawValue::from_string(json.as_str().to_owned()).expect("it is JSON")
}
