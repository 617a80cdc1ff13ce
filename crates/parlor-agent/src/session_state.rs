//! The sessions of an agent, as the host keeps them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Content, SessionId};
use parlor_wire::RequestId;
use tokio::sync::Notify;
use tracing::Span;

use crate::info::SettingValues;
use crate::session::Session;

/// A session that a client wants to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    kind: SessionRequestKind,
    cwd: PathBuf,
    mcp_servers: Vec<Json>,
}

/// How a session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionRequestKind {
    /// A new session is created.
    New,
    /// A session is created as a copy of another one.
    Fork,
    /// A session that exists continues, for instance after a restart.
    Resume,
}

/// An open session.
pub(crate) struct SessionState {
    pub(crate) id: SessionId,
    pub(crate) request: SessionRequest,
    pub(crate) settings: Mutex<SettingValues>,
    pub(crate) prompts: Mutex<PromptQueue>,
    /// The tracing span of everything in the session.
    pub(crate) span: Span,
}

/// The prompts of a session.
#[derive(Default)]
pub(crate) struct PromptQueue {
    /// Whether a task takes prompts from the queue.
    pub(crate) is_running: bool,
    pub(crate) running_turn: Option<RunningTurn>,
    pub(crate) queued: VecDeque<(RequestId, Content)>,
}

/// The turn that runs.
#[derive(Clone)]
pub(crate) struct RunningTurn {
    session: Session,
    cancelled: Arc<Notify>,
}

impl RunningTurn {
    pub(crate) fn new(session: &Session) -> Self {
        Self { session: session.clone(), cancelled: Arc::default() }
    }

    /// Ends the turn. What it sends from now on is dropped.
    pub(crate) fn cancel(&self) {
        self.session.cancel();
        self.cancelled.notify_one();
    }

    /// Waits until the turn is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl SessionRequest {
    pub(crate) fn read(kind: SessionRequestKind, params: &Object) -> Self {
        let cwd = params.get("cwd").and_then(|cwd| JsonStr::from_raw(cwd.raw()));
        let cwd = cwd.map_or_else(|| PathBuf::from("/"), |cwd| PathBuf::from(cwd.to_text().into_owned()));
        let servers = params.get_array("mcpServers");
        let mcp_servers = servers.unwrap_or_default().into_iter().map(Json::from).collect();
        Self { kind, cwd, mcp_servers }
    }

    /// How the session is opened.
    pub fn kind(&self) -> SessionRequestKind {
        self.kind
    }

    /// The working directory.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The MCP servers that the client wants the agent to use, as the protocol has them.
    pub fn mcp_servers(&self) -> &[Json] {
        &self.mcp_servers
    }
}

impl SessionState {
    pub(crate) fn new(id: SessionId, request: SessionRequest, settings: SettingValues) -> Self {
        let span = tracing::info_span!("session", session = %id);
        Self { id, request, settings: Mutex::new(settings), prompts: Mutex::default(), span }
    }
}
