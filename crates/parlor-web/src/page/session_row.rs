//! A session as the list shows it.

use jiff::Timestamp;
use parlor_client::SessionInfo;
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_view::money::money;

use crate::render::Authors;

/// A session in the list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SessionRow {
    pub(super) id: SessionId,
    pub(super) title: String,
    pub(super) agent: String,
    /// The agents that wrote its messages.
    pub(super) authors: Authors,
    pub(super) cwd: String,
    pub(super) state: SessionState,
    pub(super) is_unread: bool,
    pub(super) is_archived: bool,
    pub(super) active_at: Option<Timestamp>,
    /// The cost so far, such as `$1.84`.
    pub(super) cost: Option<String>,
    /// The tokens of all turns, if the agent reports them.
    pub(super) tokens: Option<u64>,
    /// The session from which it was forked.
    pub(super) parent: Option<SessionId>,
    /// The session that owns it, if it is that of a subagent.
    pub(super) owner: Option<SessionId>,
}

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionState {
    Running,
    NeedsYou,
    Idle,
    Failed,
}

impl SessionState {
    /// Whether a turn runs, or waits for a person.
    pub(super) fn is_busy(self) -> bool {
        matches!(self, Self::Running | Self::NeedsYou)
    }

    /// The name of its icon, its class and its name.
    pub(super) fn shown(self) -> (&'static str, &'static str) {
        match self {
            Self::Running => ("run", "running"),
            Self::NeedsYou => ("you", "needs you"),
            Self::Idle => ("idle", "idle"),
            Self::Failed => ("bad", "failed"),
        }
    }
}

impl SessionRow {
    pub(super) fn new(info: &SessionInfo) -> Self {
        let meta = info.fields.get_object("_meta").unwrap_or_default();
        let row = meta.get_object("parlor/row").unwrap_or_default();
        let state = match row.get_str("state").as_deref() {
            Some("running") => SessionState::Running,
            Some("needs_you") => SessionState::NeedsYou,
            Some("failed") => SessionState::Failed,
            Some(_) | None => SessionState::Idle,
        };
        let agent = meta.get_string("parlor/agent").unwrap_or_default();
        let earlier = row.get_array("earlierAgents").unwrap_or_default().into_iter().filter_map(|earlier| {
            let earlier = earlier.to_object()?;
            Some((earlier.get_string("name")?, usize::try_from(earlier.get_u64("messages")?).ok()?))
        });
        let parent = row.get_object("forkedFrom").and_then(|from| from.get_json_str("sessionId"));
        Self {
            id: info.id.clone(),
            // A fork that has the title of its parent is listed by its own prompt.
            title: row
                .get_string("name")
                .or_else(|| info.title.clone())
                .unwrap_or_else(|| "New session".to_owned()),
            authors: Authors::new(&agent, earlier.collect()),
            agent,
            cwd: info.cwd.clone(),
            state,
            is_unread: row.get_bool("unread") == Some(true),
            is_archived: info.fields.get_bool("archived") == Some(true),
            active_at: info.updated_at.as_ref().and_then(|at| at.parse().ok()),
            cost: row.get_object("usage").and_then(|usage| cost(&usage)),
            tokens: row.get_u64("tokens"),
            parent: parent.map(SessionId::from),
            owner: meta.get_json_str("parlor/owner").map(SessionId::from),
        }
    }
}

/// The cost of a session, as its agent reports it.
pub(super) fn cost(usage: &Object) -> Option<String> {
    let cost = usage.get_object("cost")?;
    let amount: f64 = cost.get("amount")?.as_str().parse().ok()?;
    let currency = cost.get_string("currency").unwrap_or_default();
    Some(money(&currency, amount))
}

/// How long ago a time was: `now`, `14m`, `3h`, `5d`, or the date.
pub(super) fn age(at: Timestamp, now: Timestamp) -> String {
    match now.as_second().saturating_sub(at.as_second()) {
        ..60 => "now".to_owned(),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds @ 86_400..604_800 => format!("{}d", seconds / 86_400),
        _ => at.to_string().chars().take("2026-01-31".len()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let now: Timestamp = "2026-03-04T09:41:00Z".parse().unwrap();
        for (at, shown) in [
            ("2026-03-04T09:42:00Z", "now"),
            ("2026-03-04T09:40:01Z", "now"),
            ("2026-03-04T09:27:00Z", "14m"),
            ("2026-03-04T06:00:00Z", "3h"),
            ("2026-02-27T06:00:00Z", "5d"),
            ("2025-12-31T06:00:00Z", "2025-12-31"),
        ] {
            assert_eq!(age(at.parse().unwrap(), now), shown, "{at}");
        }
    }

    #[test]
    fn costs_have_their_currency() {
        let usage = |text: &str| Object::parse(parlor_json::Json::parse(text).unwrap().raw()).unwrap();
        assert_eq!(cost(&usage(r#"{"cost":{"amount":1.837,"currency":"USD"}}"#)), Some("$1.84".to_owned()));
        assert_eq!(cost(&usage(r#"{"cost":{"amount":2,"currency":"EUR"}}"#)), Some("€2.00".to_owned()));
        assert_eq!(cost(&usage(r#"{"used":1}"#)), None);
    }
}
