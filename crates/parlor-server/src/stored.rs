//! Reads sessions and agent information from the store, for servers and for commands that work offline.

pub use parlor_engine::stored::StoredSession;
pub use parlor_engine::{CachedAgentInfo, DayUsage, SessionData, SessionUsage, TOKEN_KINDS, Tokens, title};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{EntryId, Role, SessionId, Slot, Transcript, text_of};
use parlor_store::{ErrorKind, SessionRow, Store, StoreError};

use crate::agent_sessions;
use crate::config::AgentConfig;

/// The slot with a session's title and metadata.
pub(crate) const INFO: &str = "info";

/// How many bytes of a session are read at once.
const PAGE: usize = 4 << 20;

/// Reads a session from the store. This blocks.
pub fn open(store: &dyn Store, id: &str) -> Result<Option<StoredSession>, StoreError> {
    let Some(row) = store.session(id)? else { return Ok(None) };
    let damaged = |error: parlor_session::InvalidRow| StoreError {
        kind: ErrorKind::Format,
        message: error.to_string(),
    };
    let mut session = StoredSession::new(row);
    let mut after = 0;
    loop {
        let page = store.entries(id, 0, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.created;
        for entry in &page {
            session
                .add_entry(entry.created, entry.seq, &entry.head, &entry.content, entry.inherited)
                .map_err(damaged)?;
        }
    }
    for slot in store.slots(id, 0)? {
        session.add_slot(&slot.name, slot.seq, slot.body).map_err(damaged)?;
    }
    Ok(Some(session))
}

/// The sessions that own a session, directly or through others, from the nearest on. This blocks.
pub(crate) fn owners(store: &dyn Store, row: &SessionRow) -> Result<Vec<SessionId>, StoreError> {
    let mut owners = Vec::new();
    let mut next = row.owner.clone();
    while let Some(id) = next {
        let owner = JsonStr::from_literal(&id).map(SessionId::from);
        next = store.session(&id)?.and_then(|row| row.owner);
        owners.extend(owner);
    }
    Ok(owners)
}

/// Reads the metadata of a session.
pub fn meta(store: &dyn Store, id: &str) -> Result<Option<Object>, StoreError> {
    let mut transcript = Transcript::default();
    for slot in store.slots(id, 0)?.iter().filter(|slot| slot.name == INFO) {
        // A damaged slot is reported when the session is opened.
        let _ = transcript.restore_slot(&slot.name, slot.seq, &slot.body);
    }
    Ok(transcript.slot(Slot::Info).and_then(|info| info.meta.clone()))
}

/// How many entries are searched for the first prompt.
const FIRST_ENTRIES: usize = 16;

/// The maximum number of characters of [`first_prompt`].
const MAX_PROMPT_CHARS: usize = 200;

/// The first line of the first prompt after an entry, by the seq that created it; 0 for the first prompt of all.
fn first_prompt(store: &dyn Store, session: &str, mut after: u64) -> Result<Option<String>, StoreError> {
    for _ in 0..FIRST_ENTRIES {
        let Some(row) = store.entries(session, 0, after, 1)?.into_iter().next() else { break };
        after = row.created;
        let mut transcript = Transcript::default();
        let restored = transcript.restore_entry(row.created, row.seq, &row.head, &row.content, row.inherited);
        let Some(entry) = restored.ok().and(transcript.entries().first()) else { continue };
        if matches!(entry.id(), EntryId::Message(Role::User, _)) {
            let content = entry.body().content.joined();
            let text = content.iter().find_map(|item| text_of(item.json));
            let line = text.and_then(|text| {
                let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
                Some(line.chars().take(MAX_PROMPT_CHARS).collect())
            });
            return Ok(line);
        }
    }
    Ok(None)
}

/// The name of a fork that still has the title of its parent: the first line of its first own prompt, and before that the title with
/// the number of the last message that it shares. `None` for every other session.
pub(crate) fn fork_name(
    store: &dyn Store,
    row: &SessionRow,
    data: &SessionData,
) -> Result<Option<String>, StoreError> {
    let (Some(parent), Some((entries, messages))) = (&row.parent, data.forked_counts) else {
        return Ok(None);
    };
    let Some(own) = title(row) else { return Ok(None) };
    // A generated title is that of the first prompt, which a fork shares with its parent unless it is empty.
    let has_title_of_parent = match data.generated_title {
        Some(_) => entries > 0,
        None => store.session(parent)?.and_then(|parent| title(&parent)).as_ref() == Some(&own),
    };
    if !has_title_of_parent {
        return Ok(None);
    }
    let prompt = first_prompt(store, &row.id, entries)?;
    Ok(Some(prompt.unwrap_or_else(|| format!("{} (fork at #{messages})", own.to_text()))))
}

/// The name of a session for people: the name of a fork, else its title, else the first line of its first prompt. `None` for
/// a session without any of these.
pub fn display_name(store: &dyn Store, row: &SessionRow) -> Result<Option<String>, StoreError> {
    if let Some(name) = fork_name(store, row, &SessionData::of(row))? {
        return Ok(Some(name));
    }
    let title = title(row).map(|title| title.to_text().into_owned());
    match title.filter(|title| !title.trim().is_empty()) {
        Some(title) => Ok(Some(title)),
        None if agent_sessions::is_agent_only(row) => Ok(None),
        None => first_prompt(store, &row.id, 0),
    }
}

/// Encodes a time, in milliseconds since 1970, as JSON.
pub(crate) fn time(millis: i64) -> Option<Json> {
    Some(Json::from(&jiff::Timestamp::from_millisecond(millis).ok()?.to_string()))
}

/// Reads an agent's last response to `initialize`.
pub fn cached_agent_info(
    store: &dyn Store,
    config: &AgentConfig,
) -> Result<Option<CachedAgentInfo>, StoreError> {
    cached_agent_info_by_key(store, &agent_key(config))
}

/// Reads an agent's last response to `initialize` by the agent's [key](agent_key).
pub(crate) fn cached_agent_info_by_key(
    store: &dyn Store,
    key: &str,
) -> Result<Option<CachedAgentInfo>, StoreError> {
    Ok(store.value(key)?.and_then(decode_agent_info))
}

/// Reads whether a person is logged in to an agent, if it is known.
pub fn login_state(store: &dyn Store, config: &AgentConfig) -> Result<Option<bool>, StoreError> {
    login_state_by_key(store, &agent_key(config))
}

/// Reads the login state of an agent by its [key](agent_key).
pub(crate) fn login_state_by_key(store: &dyn Store, key: &str) -> Result<Option<bool>, StoreError> {
    Ok(store.value(&login_key(key))?.and_then(|stored| stored.parse().ok()))
}

/// The key of an agent's login state in the store.
pub(crate) fn login_key(agent_key: &str) -> String {
    format!("login of {agent_key}")
}

fn decode_agent_info(stored: String) -> Option<CachedAgentInfo> {
    let stored = Json::parse(stored).ok()?.to_object().unwrap_or_default();
    let dialect = stored.get_string("dialect")?.parse().ok()?;
    Some(CachedAgentInfo { dialect, initialize: stored.get_object("info")? })
}

/// The key of an agent in the store. The configured dialect and version are part of it, because they change the response to
/// `initialize`.
pub(crate) fn agent_key(config: &AgentConfig) -> String {
    let command = config.sandbox.wrap.iter().chain(&config.command).cloned().collect::<Vec<_>>().join(" ");
    match (config.dialect, config.version) {
        (Some(dialect), _) => format!("agent {} {command}", dialect.name()),
        (None, Some(version)) => format!("agent {version} {command}"),
        (None, None) => format!("agent {command}"),
    }
}

/// An empty session of the agent `a`.
#[cfg(test)]
pub(crate) fn session_for_tests(id: &str) -> StoredSession {
    StoredSession::new(parlor_store::SessionRow {
        id: Json::from(id).as_str().to_owned(),
        agent: "a".to_owned(),
        agent_session: None,
        cwd: "/".to_owned(),
        title: None,
        parent: None,
        owner: None,
        created_at: 1,
        active_at: 1,
        archived: false,
        busy: false,
        data: "{}".to_owned(),
    })
}
