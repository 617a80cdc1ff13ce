//! The content of a notification.

use std::sync::Arc;

use jiff::Timestamp;
use parlor_json::{Json, Object};
use parlor_session::{EntryId, Role, SessionId, Transcript};
use parlor_store::{SessionRow, Store, StoreError};
use parlor_view::address::{element_id, percent_encoded, session_path};
use parlor_view::tool_call::ToolDetails;

use super::schedule::DueNotification;
use crate::config::NotifyKind;
use crate::feed::{ListedRequest, request_name};
use crate::stored::{self, SessionData};

/// Characters of the text of an event.
const MAX_TEXT: usize = 500;

/// Characters of a title, a name or a path.
const MAX_SHORT: usize = 200;

/// How many changes before the end of a turn its last message is looked for.
const LAST_CHANGES: u64 = 64;

/// Bytes of entries that are read for it.
const MAX_ENTRIES: usize = 1 << 20;

/// An event. Its texts are cut, and have no control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotifyEvent {
    pub(super) kind: NotifyKind,
    session: SessionId,
    title: String,
    agent: String,
    cwd: String,
    text: String,
    requests: Vec<String>,
    /// The path of the message on the page.
    path: String,
    at: Timestamp,
}

impl NotifyEvent {
    /// Reads what is known of an event from the store; `None` if its session was deleted. This blocks.
    pub(super) fn read(
        store: &dyn Store,
        due: &DueNotification,
        requests: &[(u64, ListedRequest)],
        now: i64,
    ) -> Result<Option<Self>, StoreError> {
        let Some(row) = store.session(&due.session)? else { return Ok(None) };
        let Some(session) = Json::parse(&row.id).ok().and_then(|id| id.to_json_str()).map(SessionId::from)
        else {
            return Ok(None);
        };
        let title = stored::title(&row).map(|title| title.to_text().into_owned());
        let (text, entry) = match due.kind {
            NotifyKind::NeedsYou => of_requests(due, requests, &row.cwd),
            NotifyKind::TurnEnded | NotifyKind::TurnFailed => last_entry(store, &row, due.kind)?,
        };
        let element = entry.map(|entry| format!("#{}", element_id(&entry))).unwrap_or_default();
        Ok(Some(Self {
            kind: due.kind,
            path: format!("{}{element}", session_path(&session)),
            session,
            title: clean(&title.unwrap_or_else(|| "New session".to_owned()), MAX_SHORT),
            agent: clean(&row.agent, MAX_SHORT),
            cwd: clean(&row.cwd, MAX_SHORT),
            text: clean(&text, MAX_TEXT),
            requests: due.requests.iter().map(|id| request_name(*id)).collect(),
            at: Timestamp::from_millisecond(now).unwrap_or_default(),
        }))
    }

    /// The event without what an agent or a person wrote.
    pub(super) fn without_details(mut self) -> Self {
        self.title.clear();
        self.text.clear();
        self.cwd.clear();
        self
    }

    /// What happened, in a few words.
    pub(super) fn headline(&self) -> String {
        let agent = &self.agent;
        match (self.kind, self.requests.len()) {
            (NotifyKind::NeedsYou, 0 | 1) => format!("{agent} needs you"),
            (NotifyKind::NeedsYou, many) => format!("{agent} needs you: {many} requests"),
            (NotifyKind::TurnEnded, _) => format!("{agent}: the turn ended"),
            (NotifyKind::TurnFailed, _) => format!("{agent}: the turn failed"),
        }
    }

    /// The title of the session and what is asked for or was answered.
    pub(super) fn body(&self) -> String {
        let parts = [self.title.as_str(), self.text.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { self.headline() } else { parts.join(": ") }
    }

    /// The address of the message, if the page has one.
    pub(super) fn link(&self, page: Option<&str>) -> Option<String> {
        page.map(|page| format!("{page}{}", self.path))
    }

    /// The event as JSON.
    pub(super) fn to_json(&self, page: Option<&str>) -> String {
        let mut event = Object::new()
            .with("event", self.kind.name())
            .with("sessionId", self.session.as_json())
            .with("agent", self.agent.as_str())
            .with("headline", self.headline().as_str())
            .with("at", self.at.to_string().as_str());
        let texts = [("title", &self.title), ("cwd", &self.cwd), ("text", &self.text)];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            event.set(name, text.as_str());
        }
        if !self.requests.is_empty() {
            event.set("requests", Json::array(self.requests.iter().map(|id| Json::from(id.as_str()))));
        }
        if let Some(link) = self.link(page) {
            event.set("url", link.as_str());
        }
        event.to_json().as_str().to_owned()
    }

    /// The environment variables of a program that receives the notification.
    pub(super) fn variables(&self, page: Option<&str>) -> Vec<(&'static str, String)> {
        vec![
            ("PARLOR_EVENT", self.kind.name().to_owned()),
            ("PARLOR_HEADLINE", self.headline()),
            ("PARLOR_SESSION", clean(&self.session.to_string(), MAX_SHORT)),
            ("PARLOR_TITLE", self.title.clone()),
            ("PARLOR_AGENT", self.agent.clone()),
            ("PARLOR_CWD", self.cwd.clone()),
            ("PARLOR_TEXT", self.text.clone()),
            ("PARLOR_URL", self.link(page).unwrap_or_default()),
        ]
    }

    /// The query of a request to ntfy: title, priority, tags and link.
    pub(super) fn ntfy_query(&self, page: Option<&str>) -> String {
        let (priority, tag) = match self.kind {
            NotifyKind::NeedsYou => ("high", "raised_hand"),
            NotifyKind::TurnEnded => ("default", "white_check_mark"),
            NotifyKind::TurnFailed => ("high", "x"),
        };
        let click =
            self.link(page).map(|link| format!("&click={}", percent_encoded(&link))).unwrap_or_default();
        format!("title={}&priority={priority}&tags={tag}{click}", percent_encoded(&self.headline()))
    }
}

/// What the oldest of the requests asks for, and the tool call that it is about.
fn of_requests(
    due: &DueNotification,
    requests: &[(u64, ListedRequest)],
    cwd: &str,
) -> (String, Option<EntryId>) {
    let mut of_due =
        requests.iter().filter(|(id, _)| due.requests.contains(id)).map(|(_, listed)| &listed.request);
    let Some(request) = of_due.next().map(Arc::as_ref) else { return (String::new(), None) };
    let mut params = request.params.clone();
    if request.method != "session/request_permission" {
        return (params.get_string("message").unwrap_or_default(), None);
    }
    if let Some(call) = &request.tool_call {
        params.set("toolCall", call.to_json());
    }
    let summary = ToolDetails::of_request(&params, &Transcript::default(), cwd).summary_line();
    let subject_call = params.get_object("subject").unwrap_or_default();
    let call =
        params.get_object("toolCall").or_else(|| subject_call.get_object("toolCall")).unwrap_or(subject_call);
    let call = call.get_json_str("toolCallId").map(|id| EntryId::ToolCall(id.into()));
    (summary, call)
}

/// The last message of the last turn, or the event of its failure, with its text.
fn last_entry(
    store: &dyn Store,
    row: &SessionRow,
    kind: NotifyKind,
) -> Result<(String, Option<EntryId>), StoreError> {
    let last = SessionData::of(row).summary.last_turn_seq.unwrap_or_default();
    let mut transcript = Transcript::default();
    for entry in store.entries(&row.id, last.saturating_sub(LAST_CHANGES), 0, MAX_ENTRIES)? {
        // A damaged entry is reported when the session is opened.
        let _ =
            transcript.restore_entry(entry.created, entry.seq, &entry.head, &entry.content, entry.inherited);
    }
    let found = transcript.entries().iter().rev().find(|entry| match entry.id() {
        EntryId::Message(Role::Agent, _) => kind == NotifyKind::TurnEnded,
        EntryId::Event(_) => kind == NotifyKind::TurnFailed,
        EntryId::Message(Role::User | Role::Thought, _)
        | EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Note(_) => false,
    });
    let Some(entry) = found else { return Ok((String::new(), None)) };
    let text = match kind {
        NotifyKind::TurnFailed => {
            let error = entry.body().fields.get_object("error").unwrap_or_default();
            error.get_string("message").unwrap_or_default()
        }
        NotifyKind::NeedsYou | NotifyKind::TurnEnded => entry.body().content.to_text(),
    };
    Ok((text, Some(entry.id().clone())))
}

/// A text in one line of at most this many characters, without control and bidirectional characters.
fn clean(text: &str, max: usize) -> String {
    let is_bidirectional = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control() || is_bidirectional(c)) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        for character in word.chars() {
            if length >= max {
                line.push('…');
                return line;
            }
            line.push(character);
            length += 1;
        }
    }
    line
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn event(kind: NotifyKind) -> NotifyEvent {
        NotifyEvent {
            kind,
            session: "s 1".into(),
            title: "Fix the café".to_owned(),
            agent: "claude".to_owned(),
            cwd: "/w".to_owned(),
            text: "run make".to_owned(),
            requests: vec!["r1".to_owned()],
            path: "/s/s%201#t-x".to_owned(),
            at: "2026-03-04T09:41:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn an_event_has_a_link_and_can_omit_what_was_written() {
        let page = Some("http://parlor.localhost:7667");
        let shown = event(NotifyKind::NeedsYou).to_json(page);
        assert_eq!(
            shown,
            r#"{"event":"needs_you","sessionId":"s 1","agent":"claude","headline":"claude needs you","at":"2026-03-04T09:41:00Z","title":"Fix the café","cwd":"/w","text":"run make","requests":["r1"],"url":"http://parlor.localhost:7667/s/s%201#t-x"}"#
        );
        let bare = event(NotifyKind::TurnFailed).without_details();
        assert!(
            !bare.to_json(None).contains("Fix the") && bare.body() == "claude: the turn failed",
            "{bare:?}"
        );
        assert_eq!(
            event(NotifyKind::NeedsYou).ntfy_query(page),
            "title=claude%20needs%20you&priority=high&tags=raised_hand&click=http%3A%2F%2Fparlor.localhost%3A7667%2Fs%2Fs%25201%23t-x"
        );
    }

    #[test]
    fn texts_are_one_line_and_cut() {
        assert_eq!(clean(" a\n\tb\u{1b}[2J\u{202e}c ", 100), "a b [2J c");
        assert_eq!(clean("abcdef", 3), "abc…");
        assert_eq!(clean("é é", 3), "é é");
    }
}
