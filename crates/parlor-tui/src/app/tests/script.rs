//! A client that a test drives with events and keys, and what it does.

use std::sync::Arc;

use jiff::tz::TimeZone;
use parlor_client::{Json, OpenRequest, SessionId, SessionInfo, Transcript};
use parlor_dialect::{Dialect, Fold};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::*;
use crate::conversation::Replica;
use crate::event::{Failure, Opened};
use crate::keys::{Key, KeyMap};
use crate::sessions::SessionRow;
use crate::theme::{Colors, Theme};

/// The time of the screens.
pub(super) fn noon() -> Timestamp {
    "2026-11-17T14:05:30Z".parse().unwrap()
}

/// A client with a clock that only the script moves.
pub(super) struct Script {
    pub(super) app: App,
    pub(super) now: Timestamp,
}

impl Script {
    pub(super) fn new(start: Start) -> Self {
        let theme = Theme { colors: Colors::Ansi, is_light: false, is_ascii: false };
        let options = TerminalOptions {
            theme,
            keys: KeyMap::default(),
            zone: TimeZone::UTC,
            home: Some("/home/dev".to_owned()),
            cwd: "/home/dev/src/parlor".to_owned(),
            agent: None,
            start,
            version: "0.2.0".to_owned(),
            serve: Some("parlor serve".to_owned()),
            login: vec!["parlor".to_owned(), "login".to_owned()],
        };
        let mut script = Self { app: App::new(options, noon()), now: noon() };
        script.event(Event::Resize(80, 24));
        script
    }

    /// A client that is connected to a server with these sessions.
    pub(super) fn connected(start: Start, sessions: &[&str]) -> Self {
        let mut script = Self::new(start);
        script.event(Event::Connected);
        let agent = |name: &str, is_installed, is_default| AgentInfo {
            name: name.to_owned(),
            is_installed,
            is_default,
            is_logged_in: None,
        };
        script.event(Event::Agents(vec![
            agent("claude", true, true),
            agent("codex", true, false),
            agent("gemini", false, false),
        ]));
        script.event(Event::List(rows(sessions)));
        script
    }

    /// A client with an open session.
    pub(super) fn open(updates: &[&str]) -> Self {
        let mut script =
            Self::connected(Start::Session("s1".into(), "/home/dev/src/parlor".to_owned()), SESSIONS);
        script.opened("s1", updates);
        script
    }

    pub(super) fn opened(&mut self, id: &str, updates: &[&str]) -> Vec<Effect> {
        let ticket = self.app.opening.as_ref().expect("a session is being opened").ticket;
        self.event(Event::Opened(Box::new(Opened {
            ticket,
            id: id.into(),
            cwd: "/home/dev/src/parlor".to_owned(),
            replica: Replica::Fixed(Arc::new(transcript(updates))),
            older: None,
            older_messages: 0,
            is_reloaded: false,
        })))
    }

    /// A fork of the first session was made.
    pub(super) fn forked(&mut self, id: &str) -> Vec<Effect> {
        let cwd = "/home/dev/src/parlor".to_owned();
        let ticket = self.fork_ticket();
        self.event(Event::Forked { parent: "s1".into(), id: id.into(), cwd, ticket })
    }

    /// The request of the fork that is awaited; 0 if there is none.
    pub(super) fn fork_ticket(&self) -> u64 {
        self.app.forking.as_ref().map_or(0, |forking| forking.call)
    }

    /// Replaces the transcript of the open session.
    pub(super) fn changed(&mut self, updates: &[&str]) -> Vec<Effect> {
        let replica = Replica::Fixed(Arc::new(transcript(updates)));
        self.app.conversation.as_mut().unwrap().reconnect(replica);
        self.event(Event::Changed)
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<Effect> {
        self.app.update(event, self.now)
    }

    /// Presses keys, separated by spaces, one after the other.
    pub(super) fn press(&mut self, keys: &str) -> Vec<Effect> {
        let keys: Vec<Key> = keys.split(' ').map(|key| key.parse().unwrap()).collect();
        keys.into_iter().flat_map(|key| self.event(Event::Key(key))).collect()
    }

    pub(super) fn type_text(&mut self, text: &str) -> Vec<Effect> {
        let key = |letter: char| {
            if letter == ' ' { "Space".parse().unwrap() } else { letter.to_string().parse().unwrap() }
        };
        text.chars().flat_map(|letter| self.event(Event::Key(key(letter)))).collect()
    }

    pub(super) fn wait(&mut self, millis: i64) -> Vec<Effect> {
        self.now += SignedDuration::from_millis(millis);
        self.event(Event::Tick)
    }

    /// The screen at a size, with the cursor as `█`.
    pub(super) fn screen(&mut self, width: u16, height: u16) -> String {
        self.event(Event::Resize(width, height));
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        let cursor = self.app.draw(buffer.area, &mut buffer);
        let mut screen = String::new();
        for y in 0..height {
            let mut row = String::new();
            let mut skip = 0;
            for x in 0..width {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let symbol = buffer[(x, y)].symbol();
                if cursor == Some(Position::new(x, y)) {
                    row.push('█');
                } else {
                    row.push_str(symbol);
                }
                skip = crate::text::width(symbol).saturating_sub(1);
            }
            screen.push_str(row.trim_end());
            screen.push('\n');
        }
        screen
    }
}

/// The requests, list and conversation of the first screen.
pub(super) fn busy() -> Script {
    let mut script = Script::open(&[PROMPT, ANSWER, TOOL, OPTIONS, QUEUE, RUNNING]);
    script.event(Event::Requests(requests(&[EDIT_REQUEST]), Vec::new()));
    script
}

pub(super) fn transcript(updates: &[&str]) -> Transcript {
    let mut fold = Fold::new(Dialect::V2);
    updates
        .iter()
        .for_each(|update| fold.line(update).unwrap_or_else(|problem| panic!("{problem}: {update}")));
    fold.transcript().clone()
}

pub(super) fn rows(sessions: &[&str]) -> Vec<SessionRow> {
    let update = parlor_client::Notification::new(
        "_parlor/list/update",
        Some(Json::parse(format!(r#"{{"sessions":[{}]}}"#, sessions.join(","))).unwrap()),
    );
    let infos: Vec<SessionInfo> = parlor_client::ListUpdate::of(&update).unwrap().changed;
    assert_eq!(infos.len(), sessions.len());
    infos.iter().map(SessionRow::of).collect()
}

pub(super) fn requests(requests: &[&str]) -> Vec<Request> {
    let update = parlor_client::Notification::new(
        "_parlor/requests/update",
        Some(Json::parse(format!(r#"{{"opened":[{}]}}"#, requests.join(","))).unwrap()),
    );
    let open: Vec<OpenRequest> = parlor_client::RequestsUpdate::of(&update).unwrap().opened;
    assert_eq!(open.len(), requests.len());
    open.iter().map(Request::of_open).collect()
}

pub(super) fn call(effects: &[Effect]) -> Vec<&Call> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Send(call) = effect { Some(call) } else { None })
        // The agents are listed again whenever one can be chosen.
        .filter(|call| **call != Call::Agents)
        .collect()
}

/// The requests about the open session, which is `s1`.
pub(super) fn session_calls(effects: &[Effect]) -> Vec<&SessionCall> {
    let mut calls = Vec::new();
    for call in call(effects) {
        if let Call::InSession(id, call) = call
            && *id == SessionId::from("s1")
        {
            calls.push(call);
        }
    }
    calls
}

pub(super) fn answers(effects: &[Effect]) -> Vec<String> {
    let answer = |call: &&Call| {
        let Call::Answer { id, result } = call else { return None };
        Some(format!("{id} {}", result.to_json().as_str()))
    };
    call(effects).iter().filter_map(answer).collect()
}

pub(super) fn failure(reason: &str) -> Failure {
    Failure { reason: reason.to_owned(), needs_login: false }
}

/// A conversation of many messages.
pub(super) fn long(messages: usize) -> Vec<String> {
    let message = |number: usize| {
        let (kind, role) =
            if number.is_multiple_of(2) { ("user_message", "u") } else { ("agent_message", "a") };
        format!(
            r#"{{"sessionUpdate":"{kind}","messageId":"{role}{number}","content":[{{"type":"text","text":"message {number}"}}]}}"#
        )
    };
    (1..=messages).map(message).collect()
}

pub(super) fn refs(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

pub(super) fn disconnect(script: &mut Script) {
    script.event(Event::Disconnected {
        server: "/data/parlor.sock".to_owned(),
        reason: "connection refused".to_owned(),
        is_down: true,
        retry_at: script.now + SignedDuration::from_secs(1),
    });
}

pub(super) fn connect(script: &mut Script) -> Vec<Effect> {
    script.event(Event::Connected)
}

pub(super) fn older_page(page: Transcript, cursor: u32, before: Option<u32>) -> Event {
    let json = |number: u32| Json::parse(number.to_string()).unwrap();
    let before = before.map(json);
    Event::Older { session: "s1".into(), cursor: json(cursor), page: Box::new(page), before }
}

pub(super) fn older_failed(session: &str, cursor: u32) -> Event {
    let cursor = Json::parse(cursor.to_string()).unwrap();
    Event::OlderFailed { session: session.into(), cursor, reason: "the disk is full".to_owned() }
}
