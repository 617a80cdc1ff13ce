//! One session of the list.

use jiff::Timestamp;
use parlor_client::{MessageId, Object, SessionId, SessionInfo};
use parlor_view::money::money;

use crate::clean::Clean;

/// Whether a session works, waits for a person, or is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowState {
    /// The agent waits for an answer of a person.
    NeedsYou,
    /// A turn runs.
    Running,
    /// The last turn failed.
    Failed,
    /// No turn runs.
    #[default]
    Idle,
}

/// Tokens in the context and what the session has cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Tokens in use.
    pub used: u64,
    /// The size of the context.
    pub size: u64,
    /// The cost, such as `$1.84`.
    pub cost: Option<Clean>,
}

impl Usage {
    /// Reads the members of a `usage_update`; `None` if there is no size of the context.
    pub fn of(fields: &Object) -> Option<Self> {
        let size = fields.get_u64("size").filter(|size| *size > 0)?;
        let cost = fields.get_object("cost").and_then(|cost| {
            let amount: f64 = cost.get("amount")?.as_str().parse().ok()?;
            let currency = cost.get_string("currency").unwrap_or_default();
            Some(Clean::line(&money(&currency, amount)))
        });
        Some(Self { used: fields.get_u64("used").unwrap_or(0), size, cost })
    }

    /// The part of the context that is in use, in percent.
    pub fn percent(&self) -> u64 {
        self.used.saturating_mul(100) / self.size
    }
}

/// One session of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: Clean,
    /// Whether it has a title of its own.
    pub has_title: bool,
    /// The name of its agent.
    pub agent: Clean,
    /// Its working directory.
    pub cwd: String,
    /// Its state.
    pub state: RowState,
    /// When it was last active.
    pub active: Option<Timestamp>,
    /// When its last prompt was sent.
    pub prompted: Option<Timestamp>,
    /// When its last turn ended.
    pub turn_ended: Option<Timestamp>,
    /// The session that it was forked from.
    pub parent: Option<SessionId>,
    /// The last message that it shares with its parent.
    pub forked_at: Option<MessageId>,
    /// How many messages it shares with its parent.
    pub shared_messages: Option<u64>,
    /// Whether it is archived.
    pub is_archived: bool,
    /// Whether a turn has ended that no person has seen.
    pub is_unread: bool,
    /// Its mode.
    pub mode: Option<Clean>,
    /// Its model.
    pub model: Option<Clean>,
    /// Its usage.
    pub usage: Option<Usage>,
}

impl SessionRow {
    /// Reads a listed session.
    pub fn of(info: &SessionInfo) -> Self {
        let meta = info.fields.get_object("_meta").unwrap_or_default();
        let row = meta.get_object("parlor/row").unwrap_or_default();
        let time = |holder: &Object, name: &str| {
            holder.get_string(name).and_then(|text| text.parse::<Timestamp>().ok())
        };
        let text = |name: &str| row.get_string(name).map(|text| Clean::line(&text));
        let is_busy = meta.get_bool("parlor/busy").unwrap_or(false);
        let state = match row.get_string("state").as_deref() {
            Some("needs_you") => RowState::NeedsYou,
            Some("running") => RowState::Running,
            Some("failed") => RowState::Failed,
            Some("idle") => RowState::Idle,
            Some(_) | None => {
                if is_busy {
                    RowState::Running
                } else {
                    RowState::Idle
                }
            }
        };
        // A fork that has the title of its parent is listed by its own prompt.
        let name = row.get_string("name");
        let title = name.as_deref().or(info.title.as_deref()).filter(|title| !title.trim().is_empty());
        Self {
            id: info.id.clone(),
            title: Clean::line(title.unwrap_or("New session")),
            has_title: title.is_some(),
            agent: Clean::line(&meta.get_string("parlor/agent").unwrap_or_default()),
            cwd: info.cwd.clone(),
            state,
            active: info.updated_at.as_deref().and_then(|text| text.parse().ok()),
            prompted: time(&row, "lastPromptAt"),
            turn_ended: time(&row, "lastTurnEndedAt"),
            parent: meta.get_json_str("parlor/parent").map(SessionId::from),
            forked_at: meta.get_json_str("parlor/forkedAt").map(MessageId::from),
            shared_messages: row.get_object("forkedFrom").and_then(|from| from.get_u64("messages")),
            is_archived: info.fields.get_bool("archived").unwrap_or(false),
            is_unread: row.get_bool("unread").unwrap_or(false),
            mode: text("mode"),
            model: text("model"),
            usage: row.get_object("usage").and_then(|usage| Usage::of(&usage)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_has_a_percentage_and_a_cost() {
        let fields = parlor_client::Json::parse(
            r#"{"used":124000,"size":200000,"cost":{"amount":1.841,"currency":"USD"}}"#,
        );
        let usage = Usage::of(&fields.unwrap().to_object().unwrap()).unwrap();
        assert_eq!((usage.percent(), usage.cost.unwrap().to_string()), (62, "$1.84".to_owned()));
        let empty = parlor_client::Json::parse(r#"{"used":1,"size":0}"#).unwrap();
        assert_eq!(Usage::of(&empty.to_object().unwrap()), None);
    }
}
