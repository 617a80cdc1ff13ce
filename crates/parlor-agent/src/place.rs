//! A session as its agent has it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Content, SessionId};
use parlor_wire::RequestId;
use tokio::sync::Notify;

use crate::info::Chosen;
use crate::session::Session;

/// A session that is open.
pub(crate) struct Place {
    pub(crate) id: SessionId,
    pub(crate) cwd: PathBuf,
    pub(crate) mcp_servers: Vec<Json>,
    pub(crate) chosen: Mutex<Chosen>,
    pub(crate) queue: Mutex<Queue>,
}

/// What is to be done in a session.
#[derive(Default)]
pub(crate) struct Queue {
    /// Whether somebody works off what waits.
    pub(crate) is_worked_off: bool,
    /// The turn that goes on.
    pub(crate) running: Option<Running>,
    pub(crate) waiting: VecDeque<(RequestId, Content)>,
}

/// A turn, for who cancels it.
#[derive(Clone)]
pub(crate) struct Running {
    session: Session,
    cancelled: Arc<Notify>,
}

impl Running {
    pub(crate) fn new(session: &Session) -> Self {
        Self { session: session.clone(), cancelled: Arc::default() }
    }

    /// From now on nobody hears what the turn says, and it ends.
    pub(crate) fn cancel(&self) {
        self.session.cancel();
        self.cancelled.notify_one();
    }

    /// Waits until somebody cancels.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Place {
    /// A session as the hub asks for it.
    pub(crate) fn new(id: SessionId, params: &Object, chosen: Chosen) -> Self {
        let cwd = params.get("cwd").and_then(|cwd| JsonStr::from_raw(cwd.raw()));
        let cwd = cwd.map_or_else(|| PathBuf::from("/"), |cwd| PathBuf::from(cwd.to_text().into_owned()));
        let servers = params.get("mcpServers").and_then(|list| list.elements());
        let servers = servers.unwrap_or_default().into_iter().map(Json::from).collect();
        Self { id, cwd, mcp_servers: servers, chosen: Mutex::new(chosen), queue: Mutex::default() }
    }
}
