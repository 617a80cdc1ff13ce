//! How an agent session is to be opened.

use core::time::Duration;
use std::sync::Arc;

use parlor_dialect::settings::Settings;
use parlor_dialect::{Dialect, LossKind, Losses, live};
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use super::refused::{known_settings, wanted_settings};
use super::replay::History;
use crate::mcp::{McpServer, add_servers};
use crate::{AgentInfo, Capability, SessionData};

/// How an agent session is to be opened. All params are in the agent's dialect.
#[derive(Debug)]
pub enum OpeningPlan {
    /// Creates a session for a client.
    Create {
        /// The params of `session/new`.
        params: Object,
    },
    /// Restores the agent session of a session.
    Restore(RestorePlan),
    /// Takes over a session that only the agent knows, with its history.
    Adopt {
        /// The agent's id for it.
        session: SessionId,
        /// The params of `session/load` or `session/resume`, without the session.
        params: Object,
        /// Whether the agent lists the session. One that it does not list must have a history.
        is_listed: bool,
    },
    /// Has the agent fork a session.
    Fork {
        /// The params of `session/fork`.
        params: Object,
        /// The settings that the fork must have.
        wanted: Settings,
        /// The conversation of the session that is forked, to recognise a replay.
        history: Arc<History>,
    },
}

impl OpeningPlan {
    /// Adds MCP servers of the configuration to the agent's request. Returns those that the agent cannot use, each of which is a
    /// loss.
    pub fn add_mcp_servers<'a>(
        &mut self,
        configured: &'a [McpServer],
        agent: &AgentInfo,
        losses: &mut Losses,
    ) -> Vec<&'a McpServer> {
        add_servers(self.params(), configured, agent, losses)
    }

    /// Drops the client's system prompt, which is a loss, if the agent does not take one.
    pub fn check_system_prompt(&mut self, agent: &AgentInfo, losses: &mut Losses) {
        let params = self.params();
        let has_prompt = params.get("systemPrompt").is_some_and(|prompt| !prompt.is_null());
        if has_prompt && !agent.has(Capability::SystemPrompt) {
            params.remove("systemPrompt");
            losses.add(LossKind::SystemPrompt);
        }
    }

    /// The params of the agent's request.
    fn params(&mut self) -> &mut Object {
        match self {
            Self::Create { params } | Self::Adopt { params, .. } | Self::Fork { params, .. } => params,
            Self::Restore(plan) => &mut plan.params,
        }
    }
}

/// How a session's agent session is restored: by `session/resume`, else by `session/load`, else by `session/new`.
#[derive(Debug)]
pub struct RestorePlan {
    /// The session.
    pub(super) session: SessionId,
    /// The agent's id for it, if it had one.
    pub(super) agent_session: Option<SessionId>,
    /// The params of `session/new`.
    pub(super) params: Object,
    /// The settings in force at an agent that still has the session open.
    pub(super) in_force: Settings,
    /// The settings to apply.
    pub(super) wanted: Settings,
    pub(super) history: Arc<History>,
}

/// What is stored of a session whose agent session is to be restored.
#[derive(Debug, Clone, Copy)]
pub struct RestoreSource<'a> {
    /// Its id.
    pub session: &'a SessionId,
    /// The agent's id for it, if it had one.
    pub agent_session: Option<&'a SessionId>,
    /// Where it works.
    pub cwd: &'a str,
    /// How it was created, and what else is remembered.
    pub data: &'a SessionData,
}

impl RestorePlan {
    /// Plans to restore a stored session with these settings at an agent that speaks this dialect.
    pub fn new(
        stored: RestoreSource<'_>,
        in_force: &Settings,
        history: &Arc<History>,
        dialect: Dialect,
        losses: &mut Losses,
    ) -> Result<Self, RpcError> {
        let RestoreSource { session, agent_session, cwd, data } = stored;
        let mut params = data.params.clone();
        let from = data.params_dialect();
        params.set("cwd", cwd);
        let converted = live::request_to_agent("session/new", &params, from, dialect, None, losses);
        let (_, params) = converted.map_err(|loss| {
            RpcError::new(code::INTERNAL_ERROR, format!("the session cannot be given to the agent: {loss}"))
        })?;
        Ok(Self {
            session: session.clone(),
            agent_session: agent_session.cloned(),
            params,
            in_force: known_settings(data, in_force),
            wanted: wanted_settings(data, in_force),
            history: Arc::clone(history),
        })
    }
}

/// How long an agent may take until it can be prompted.
#[derive(Debug, Clone, Copy)]
pub struct StartupLimit {
    /// How long it may take in all.
    pub timeout: Duration,
    /// When that time is over, in monotonic time.
    pub until: Duration,
}

/// Names our session in the params of a request that creates an agent session. Only for an embedded agent: its sessions
/// have the same ids.
pub fn name_session(agent: &AgentInfo, params: &mut Object, session: &SessionId) {
    if agent.is_embedded {
        params.set_nested("_meta", "parlor/session", session.as_json());
    }
}
