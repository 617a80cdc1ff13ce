//! A session as it is listed.

use parlor_engine::{EarlierAgent, SessionState, SessionSummary};
use parlor_json::{Json, Object};
use parlor_store::{SessionRow, Store, StoreError};

use crate::agent_sessions;
use crate::stored::{self, SessionData};

/// The metadata key of what lists show besides the members that the protocol has.
const ROW: &str = "parlor/row";

/// Encodes a listed session with its metadata. `open_requests` is the number of requests that wait for a person.
pub(super) fn session_info(
    store: &dyn Store,
    row: &SessionRow,
    open_requests: usize,
) -> Result<Object, StoreError> {
    let is_agent_only = agent_sessions::is_agent_only(row);
    let data = SessionData::of(row);
    let mut info = Object::default();
    info.set("sessionId", Json::parse(&row.id).unwrap_or_default());
    info.set("cwd", &row.cwd);
    if let Some(title) = stored::title(row) {
        info.set("title", &title);
    }
    let own = stored::time(row.active_at).filter(|_| row.active_at != 0);
    if let Some(time) = data.agent_updated_at.as_ref().map(Json::from).or(own) {
        info.set("updatedAt", time);
    }
    info.set("archived", row.archived);
    if is_agent_only {
        info.add_missing(&agent_sessions::other_members(row));
    } else {
        if let Some(directories) = data.additional_directories() {
            info.set("additionalDirectories", directories.clone());
        }
        if let Some(meta) = stored::meta(store, &row.id)? {
            info.set("_meta", meta.to_json());
        }
    }
    info.set_nested("_meta", "parlor/agent", &row.agent);
    if let Some(parent) = &row.parent {
        info.set_nested("_meta", "parlor/parent", Json::parse(parent).unwrap_or_default());
        if let Some(message) = &data.forked_at {
            info.set_nested("_meta", "parlor/forkedAt", message);
        }
    }
    if let Some(owner) = &row.owner {
        info.set_nested("_meta", "parlor/owner", Json::parse(owner).unwrap_or_default());
    }
    info.set_nested("_meta", "parlor/busy", row.busy);
    if is_agent_only {
        info.set_nested("_meta", "parlor/adopted", false);
    }
    let mut listed = row_of(row, &data, open_requests);
    if let Some(name) = stored::fork_name(store, row, &data)? {
        listed.set("name", name);
    }
    info.set_nested("_meta", ROW, listed.to_json());
    Ok(info)
}

/// The value of [`ROW`].
fn row_of(row: &SessionRow, data: &SessionData, open_requests: usize) -> Object {
    let SessionSummary { mode, model, usage, .. } = &data.summary;
    let state = match (open_requests, row.busy, data.summary.has_failed) {
        (1.., _, _) => SessionState::NeedsYou,
        (0, true, _) => SessionState::Running,
        (0, false, true) => SessionState::Failed,
        (0, false, false) => SessionState::Idle,
    };
    let forked_from = row.parent.as_ref().map(|parent| {
        let mut from = Object::new().with("sessionId", Json::parse(parent).unwrap_or_default());
        if let Some(message) = &data.forked_at {
            from.set("messageId", message);
        }
        if let Some((_, messages)) = data.forked_counts {
            from.set("messages", messages);
        }
        from.to_json()
    });
    let members = [
        ("mode", mode.as_ref().map(Json::from)),
        ("model", model.as_ref().map(Json::from)),
        ("forkedFrom", forked_from),
        ("earlierAgents", EarlierAgent::list_to_json(&data.earlier_agents)),
        ("lastPromptAt", data.summary.last_prompt_at.and_then(stored::time)),
        ("lastTurnEndedAt", data.summary.last_turn_ended_at.and_then(stored::time)),
        ("usage", usage.as_ref().map(Object::to_json)),
        ("tokens", data.summary.turn_usage.total_tokens().map(Json::from)),
        ("queued", (data.summary.queued > 0).then(|| Json::from(data.summary.queued))),
    ];
    let mut result = Object::new().with("state", state.name());
    for (name, value) in members {
        if let Some(value) = value {
            result.set(name, value);
        }
    }
    result.with("openRequests", open_requests).with("unread", data.summary.is_unread())
}
